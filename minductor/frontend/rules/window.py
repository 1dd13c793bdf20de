"""Rules of windows that slide over the last dimensions, forward and backward.

- max_pool2d/3d with indices, adaptive_max_pool2d/3d, and their gradients
- avg_pool2d/3d, _adaptive_avg_pool2d/3d, and their gradients
- im2col and col2im (torch's unfold and fold)

Takes the arguments of ATen's operators. Gives one kernel per result, whose axes are those of the result; windows of
more than MAX_UNROLLED elements add reduction axes. Refuses (to an extern call) the indices of maxima in such windows.

A tap is one element of the source that counts for an element of the result. `Taps` describes the taps of one dimension
with their conditions; conditions that are known to hold are not tested, so that only the border of a padded window has
masked loads. A gradient is a gather: the taps of an input element are the windows that may hold it. So no two points
of the kernel write one element, and no atomics are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

from minductor.core.dtypes import I64, DType
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, is_zero, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue, without_negative_zero
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Coords, Rule, Value, is_zero_sized
from minductor.frontend.rules.concat import masked_load
from minductor.frontend.rules.index import ravel
from minductor.frontend.rules.window_passes import in_passes, is_channels_last, is_few, load_from, summed_dims
from minductor.frontend.rules.window_places import places_in_passes
from minductor.frontend.rules.window_taps import (
    MAX_UNROLLED,
    AdaptiveWindow,
    AnyWindow,
    Taps,
    Window,
    Windows,
    adaptive_window,
    ints_per_dim,
    reduced_dims,
    tap_at,
    unrolled_numbers,
)
from minductor.ir.program.nodes import View

FEW_TAPS = 7  # that one kernel combines on a CPU; of more, those of each dimension have a kernel of their own
FEW_MAXIMA = 9  # as FEW_TAPS, of which the maximum is wanted and not its index

# --- kernels that gather taps -------------------------------------------------------------------------------------


def gather_taps(
    ctx: Lowering,
    meta: TensorMeta,
    taps: Sequence[Taps],
    value: Callable[[KernelBuilder, Coords, list[KernelValue]], KernelValue],
    how: str = "sum",
    finish: Callable[[Coords, KernelValue, KernelBuilder], KernelValue] = lambda at, total, loop: total,
) -> Value:
    """A kernel that combines the values of the taps of each element of the result `meta` by `how`.

    `value(loop, coords, tests)` loads the tap at those coordinates of the source. The `taps` belong to the last
    dimensions; the coordinates of the others are the result's. `finish(coords, total, loop)` makes the stored value.
    """
    out = ctx.result(meta)
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    rank = len(out.size)
    lead, loops = rank - len(taps), reduced_dims(taps, out.size)
    loop = KernelBuilder((*out.size, *(tap_range.count for tap_range in taps[:loops])))
    point = loop.coords[:rank]

    def tap_value(number: Coords) -> KernelValue:
        places, tests = tap_at(loop, taps, point[lead:], [*loop.coords[rank:], *number])
        return value(loop, [*point[:lead], *places], tests)

    first, *others = unrolled_numbers(taps[loops:]) or [()]
    joined = without_negative_zero(tap_value(first)) if how == "sum" and not loops else tap_value(first)
    for number in others:
        # the accumulator is the second argument: as the first one of a maximum, the C++ compiler makes a branch of it
        joined = tap_value(number).op("add" if how == "sum" else "maximum", joined)
    if loops:
        joined = loop.reduce([joined], range(rank, rank + loops), how)
    return ctx.store(loop, out, point, finish(point, joined, loop))


# --- maxima -------------------------------------------------------------------------------------------------------


def lowest(dtype: DType) -> float:
    """The identity of a maximum."""
    return -float("inf") if dtype.kind == "float" else dtype.min_value


def maxima(ctx: Lowering, x: View, windows: Windows) -> Value:
    """The maxima of windows, and their row-major indices in the pooled dimensions; a kernel for each that is used.

    As in eager, the index is that of the first of equal maxima, but of the last NaN.
    """
    values, places = ctx.metas
    taps = [w.for_maximum() for w in windows]
    few = FEW_MAXIMA if not ctx.is_result_used(1) or _is_channels_last(values) else FEW_TAPS
    order, load = passes(ctx, taps, few), load_from(x, lowest(x.dtype))
    if not ctx.is_result_used(1):
        if order:
            return in_passes(ctx, values, x.size, taps, load, order, how="max"), None
        return gather_taps(ctx, values, taps, load, "max"), None
    numbers = unrolled_numbers(taps)
    if order:
        return places_in_passes(ctx, ctx.metas, x, taps, order, lowest(x.dtype))
    if numbers is None:
        return NotImplemented
    lead, area = len(x.size) - len(taps), x.size[len(x.size) - len(taps) :]

    def found(loop: KernelBuilder) -> tuple[KernelValue, KernelValue]:
        point, other = loop.coords, lowest(x.dtype)
        at, tests = tap_at(loop, taps, point[lead:], numbers[0])
        best = masked_load(loop, tests, x, [*point[:lead], *at], other)
        if tests:
            at = [w.first(o) for w, o in zip(windows, point[lead:], strict=True)]
        place = loop.index(ravel(at, area), I64)
        for number in numbers[1:]:
            at, tests = tap_at(loop, taps, point[lead:], number)
            value = masked_load(loop, tests, x, [*point[:lead], *at], other)
            is_better = value > best
            if value.dtype.kind == "float":
                is_better = is_better.either(value.op("isnan"))
            best = is_better.where(value, best)
            place = is_better.where(loop.index(ravel(at, area), I64), place)
        return best, place

    top = ctx.map(lambda loop: found(loop)[0], values) if ctx.is_result_used(0) else None
    return top, ctx.map(lambda loop: found(loop)[1], places)


def maxima_backward(ctx: Lowering, grad: View, places: View, windows: Windows) -> Value:
    """The gradient of a maximum pooling: each input element sums the gradients of the windows whose maximum it is.

    `places` has the indices that the forward operator saved. A CPU calls ATen, which adds each gradient to the element
    that the index names, and does not ask each element for its windows.
    """

    if not ctx.env.target.is_gpu:
        return NotImplemented

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        rank = len(grad.size)
        point, area = loop.coords[rank - len(windows) : rank], [w.size for w in windows]
        is_named = masked_load(loop, tests, places, at, -1).equals(loop.index(ravel(point, area), I64))
        return is_named.where(masked_load(loop, tests, grad, at, 0), 0.0)

    return gather_taps(ctx, ctx.meta, [w.backward() for w in windows], value)


def windows_of(
    rank: int, size: Coords, number: Coords, kernel: Value, stride: Value, pad: Value, dilation: Value = 1
) -> list[Window]:
    """The windows of the last `rank` dimensions, for ATen's arguments; the stride is by default the kernel's size."""
    kernels = ints_per_dim(kernel, rank)
    strides = ints_per_dim(stride, rank, kernels)
    pads = ints_per_dim(pad, rank)
    steps = ints_per_dim(dilation, rank)
    rows = zip(size[-rank:], number[-rank:], kernels, strides, pads, steps, strict=True)
    return [Window(*row) for row in rows]


def max_pool(
    rank: int,
    ctx: Lowering,
    x: View,
    kernel: Value,
    stride: Value = (),
    pad: Value = 0,
    dilation: Value = 1,
    ceil_mode: bool = False,
) -> Value:
    """Lowers max_pool2d_with_indices and max_pool3d_with_indices; `ceil_mode` shows in the traced size."""
    return maxima(ctx, x, windows_of(rank, x.size, _result_size(ctx), kernel, stride, pad, dilation))


def _first_meta(ctx: Lowering) -> TensorMeta:
    """The size, strides and dtype of the node's first result."""
    return ctx.node.meta if isinstance(ctx.node.meta, TensorMeta) else ctx.metas[0]


def _result_size(ctx: Lowering) -> list[Expr]:
    """The size of the node's first result."""
    return [as_expr(n) for n in _first_meta(ctx).size]


def _is_channels_last(meta: TensorMeta) -> bool:
    """Whether channels are innermost."""
    return is_channels_last(sizes(meta.size), sizes(meta.stride))


def max_pool_backward(
    rank: int,
    ctx: Lowering,
    grad: View,
    x: View,
    kernel: Value,
    stride: Value,
    pad: Value,
    dilation: Value,
    ceil_mode: bool,
    places: View,
) -> Value:
    """Lowers the gradients of max_pool2d and max_pool3d."""
    return maxima_backward(ctx, grad, places, windows_of(rank, x.size, grad.size, kernel, stride, pad, dilation))


def adaptive_max_pool(rank: int, ctx: Lowering, x: View, number: Value) -> Value:
    """Lowers adaptive_max_pool2d and adaptive_max_pool3d.

    A CPU calls ATen for indices where channels are innermost: it compares values and indices of few bytes side by side.
    """
    windows = _adaptive_windows(rank, x.size, _result_size(ctx))
    are_for_library = ctx.is_result_used(1) and _are_uneven_on_cpu(ctx, windows) and _is_channels_last(ctx.metas[0])
    return maxima(ctx, x, windows) if windows and not are_for_library else NotImplemented


def adaptive_max_pool_backward(rank: int, ctx: Lowering, grad: View, x: View, places: View) -> Value:
    """Lowers the gradients of adaptive_max_pool2d and adaptive_max_pool3d."""
    windows = _adaptive_windows(rank, x.size, grad.size)
    return maxima_backward(ctx, grad, places, windows) if windows else NotImplemented


def _adaptive_windows(rank: int, size: Coords, number: Coords) -> list[AnyWindow]:
    """The windows of adaptive pooling; an empty list if a size or a number of windows is 0."""
    rows = list(zip(size[-rank:], number[-rank:], strict=True))
    return [] if any(is_zero(n) for row in rows for n in row) else [adaptive_window(n, m) for n, m in rows]


# --- means --------------------------------------------------------------------------------------------------------


def divide(total: KernelValue, divisor: Expr) -> KernelValue:
    """total / divisor; integers round towards zero, as in eager."""
    return total.op("truncdiv" if total.dtype.kind in ("int", "uint") else "div", total.size(divisor))


def mean_pool(ctx: Lowering, x: View, windows: Windows, divisor: Callable[[Coords], Expr]) -> Value:
    """The sum of each window divided by `divisor` of its coordinates."""
    taps = [w.forward() for w in windows]

    def finish(at: Coords, total: KernelValue, loop: KernelBuilder) -> KernelValue:
        return divide(total, divisor(at))

    if order := passes(ctx, taps, few_terms(ctx, taps)):
        return in_passes(ctx, ctx.meta, x.size, taps, load_from(x, 0), order, finish)
    return gather_taps(ctx, ctx.meta, taps, load_from(x, 0), finish=finish)


def passes(ctx: Lowering, taps: Sequence[Taps], few: int) -> list[int]:
    """The dimensions along which a CPU combines taps one after the other, outer ones first; empty for one kernel.

    One kernel combines up to `few` taps, and those of all of each image. More go dimension by dimension, and so do
    taps whose number differs from element to element: in the kernel of one dimension they need no masks.
    """
    meta = _first_meta(ctx)
    out = sizes(meta.size)
    dims = summed_dims(taps, len(out) - len(taps))
    total = as_int(count(each.count for each in taps))
    is_whole = all(is_one(out[d]) for d in dims)
    if ctx.env.target.is_gpu or any(is_zero(n) for n in out) or is_whole or (total is not None and total <= few):
        return []
    are_uneven = any(each.uneven is not None and not is_few(each) for each in taps)
    return dims if len(dims) > 1 or are_uneven else []


def few_terms(ctx: Lowering, taps: Sequence[Taps]) -> int:
    """How many taps one kernel sums: more where channels are innermost, and where the call decides on sizes."""
    size = sizes(ctx.meta.size)
    is_dynamic = any(as_int(size[d]) is None for d in summed_dims(taps, len(size) - len(taps)))
    return MAX_UNROLLED if is_dynamic or _is_channels_last(ctx.meta) else FEW_TAPS


def mean_pool_backward(ctx: Lowering, grad: View, windows: Windows, divisor: Callable[[Coords], Expr]) -> Value:
    """The gradient of mean_pool: each input element sums gradient / divisor over the windows that hold it.

    If the divisor is one constant for all windows, the sum is divided once.
    """
    taps = [w.backward() for w in windows]
    constant = as_int(divisor([integer(0)] * len(grad.size)))
    is_shared = constant is not None and as_int(divisor(KernelBuilder(grad.size).coords)) == constant

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        loaded = masked_load(loop, tests, grad, at, 0)
        if is_shared:
            return loaded
        share = divide(loaded, divisor(at))
        return reduce(KernelValue.both, tests).where(share, share.number(0)) if tests else share

    def finish(at: Coords, total: KernelValue, loop: KernelBuilder) -> KernelValue:
        return divide(total, integer(constant)) if is_shared and constant is not None else total

    if order := passes(ctx, taps, few_terms(ctx, taps)):
        return in_passes(ctx, ctx.meta, grad.size, taps, value, order[::-1], finish)
    return gather_taps(ctx, ctx.meta, taps, value, finish=finish)


def divisor_of(windows: Windows, *, is_padded: bool = False, override: int | None = None) -> Callable[[Coords], Expr]:
    """A function that gives, for the coordinates of a window, by how many elements its sum is divided.

    `override` is ATen's divisor_override, and `is_padded` its count_include_pad.
    """

    def divisor(at: Coords) -> Expr:
        if override is not None:
            return integer(override)
        last = at[len(at) - len(windows) :]
        return count(_extent(w, o, is_padded=is_padded) for w, o in zip(windows, last, strict=True))

    return divisor


def _extent(window: AnyWindow, at: Expr, *, is_padded: bool) -> Expr:
    """The divisor along one dimension: the constant kernel size if no window is cut at the border."""
    if isinstance(window, Window):
        end = (window.number - 1) * window.stride - window.pad + window.kernel
        limit = window.size + (window.pad if is_padded else 0)
        if (is_padded or window.pad == 0) and at_least(limit - end, 0):
            return integer(window.kernel)
    return window.extent(at, is_padded=is_padded)


def avg_pool(
    rank: int,
    ctx: Lowering,
    x: View,
    kernel: Value,
    stride: Value = (),
    pad: Value = 0,
    ceil_mode: bool = False,
    is_padded: bool = True,
    override: int | None = None,
) -> Value:
    """Lowers avg_pool2d and avg_pool3d."""
    windows = windows_of(rank, x.size, _result_size(ctx), kernel, stride, pad)
    return mean_pool(ctx, x, windows, divisor_of(windows, is_padded=is_padded, override=override))


def avg_pool_backward(
    rank: int,
    ctx: Lowering,
    grad: View,
    x: View,
    kernel: Value,
    stride: Value,
    pad: Value,
    ceil_mode: bool,
    is_padded: bool,
    override: int | None,
) -> Value:
    """Lowers the gradients of avg_pool2d and avg_pool3d."""
    windows = windows_of(rank, x.size, grad.size, kernel, stride, pad)
    return mean_pool_backward(ctx, grad, windows, divisor_of(windows, is_padded=is_padded, override=override))


def adaptive_avg_pool(rank: int, ctx: Lowering, x: View, number: Value) -> Value:
    """Lowers _adaptive_avg_pool2d and _adaptive_avg_pool3d.

    A CPU calls ATen for rows of 16-bit floats in windows whose sizes only the call knows: short ones are faster there.
    """
    windows = _adaptive_windows(rank, x.size, _result_size(ctx))
    cut = [w for w in windows if w.size != w.number]
    are_unknown = any(as_int(n) is None for w in cut for n in (w.size, w.number))
    are_rows = len(cut) == 1 and cut[0] is windows[-1] and x.dtype.itemsize == 2
    if not windows or (are_rows and are_unknown and _are_uneven_on_cpu(ctx, windows)):
        return NotImplemented
    return mean_pool(ctx, x, windows, divisor_of(windows))


def adaptive_avg_pool_backward(rank: int, ctx: Lowering, grad: View, x: View) -> Value:
    """Lowers the gradients of _adaptive_avg_pool2d and _adaptive_avg_pool3d.

    A CPU calls ATen for unequal windows that are long, unless channels are innermost, and for those of sizes that only
    the call knows: an element then has to divide to find its windows, and ATen's loop goes from window to window.
    """
    windows = _adaptive_windows(rank, x.size, grad.size)
    if not windows:
        return NotImplemented
    are_unknown = any(as_int(n) is None for w in windows for n in (w.size, w.number))
    are_long = not _is_channels_last(ctx.meta) and any(not at_least(2 * w.number - w.size, 1) for w in windows)
    if _are_uneven_on_cpu(ctx, windows) and (are_unknown or are_long):
        return NotImplemented
    return mean_pool_backward(ctx, grad, windows, divisor_of(windows))


def _are_uneven_on_cpu(ctx: Lowering, windows: Windows) -> bool:
    is_uneven = any(isinstance(w, AdaptiveWindow) and w.is_uneven for w in windows)
    return is_uneven and not ctx.env.target.is_gpu


# --- windows as columns -------------------------------------------------------------------------------------------


def im2col(ctx: Lowering, x: View, kernel: Value, dilation: Value, pad: Value, stride: Value) -> Value:
    """Lowers im2col: each window becomes a column; rows are (channel, row and column in the window).

    Columns are numbered row-major over the windows. One pointwise kernel, which reads 0 in the padding.
    """
    out = ctx.result()
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    windows = _columns(x.size, kernel, dilation, pad, stride)
    numbers, kernels = [w.number for w in windows], [integer(w.kernel) for w in windows]
    lead = len(x.size) - 2
    loop = KernelBuilder((*x.size[:lead], *kernels, *numbers))
    point = loop.coords
    places, tests = tap_at(loop, [w.forward() for w in windows], point[lead + 2 :], point[lead : lead + 2])
    value = masked_load(loop, tests, x, [*point[:lead], *places], 0)
    rows = ravel(point[lead - 1 : lead + 2], (x.size[lead - 1], *kernels))
    return ctx.store(loop, out, [*point[: lead - 1], rows, ravel(point[lead + 2 :], numbers)], value)


def _columns(size: Coords, kernel: Value, dilation: Value, pad: Value, stride: Value) -> list[Window]:
    """The windows of im2col over an image of that size, whose number follows from the other arguments."""
    windows = windows_of(2, size, size, kernel, stride, pad, dilation)
    numbers = ((w.size + 2 * w.pad - w.dilation * (w.kernel - 1) - 1) // w.stride + 1 for w in windows)
    return [w._replace(number=number) for w, number in zip(windows, numbers, strict=True)]


def col2im(ctx: Lowering, x: View, size: Value, kernel: Value, dilation: Value, pad: Value, stride: Value) -> Value:
    """Lowers col2im: each element of the image sums its entries in all columns whose window holds it."""
    windows = _columns(_result_size(ctx), kernel, dilation, pad, stride)
    numbers, kernels = [w.number for w in windows], [integer(w.kernel) for w in windows]

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        rank = len(ctx.meta.size)
        points = zip(windows, loop.coords[rank - 2 : rank], at[-2:], strict=True)
        inside = [(point + w.pad - o * w.stride) // w.dilation for w, point, o in points]
        rows = ravel([at[-3], *inside], (integer(1), *kernels))
        return masked_load(loop, tests, x, [*at[:-3], rows, ravel(at[-2:], numbers)], 0)

    return gather_taps(ctx, ctx.meta, [w.backward() for w in windows], value)


RULES: Mapping[str, Rule] = {
    **{f"aten.max_pool{d}d_with_indices.default": partial(max_pool, d) for d in (2, 3)},
    **{f"aten.max_pool{d}d_with_indices_backward.default": partial(max_pool_backward, d) for d in (2, 3)},
    **{f"aten.adaptive_max_pool{d}d.default": partial(adaptive_max_pool, d) for d in (2, 3)},
    **{f"aten.adaptive_max_pool{d}d_backward.default": partial(adaptive_max_pool_backward, d) for d in (2, 3)},
    **{f"aten.avg_pool{d}d.default": partial(avg_pool, d) for d in (2, 3)},
    **{f"aten.avg_pool{d}d_backward.default": partial(avg_pool_backward, d) for d in (2, 3)},
    **{f"aten._adaptive_avg_pool{d}d.default": partial(adaptive_avg_pool, d) for d in (2, 3)},
    **{f"aten._adaptive_avg_pool{d}d_backward.default": partial(adaptive_avg_pool_backward, d) for d in (2, 3)},
    "aten.im2col.default": im2col,
    "aten.col2im.default": col2im,
}
