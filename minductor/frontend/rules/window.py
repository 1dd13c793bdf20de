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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import NamedTuple, TypeAlias

from minductor.core.dtypes import I64, DType
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer, maximum, minimum
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue, without_negative_zero
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Coords, Rule, Value, is_zero_sized
from minductor.frontend.rules.concat import masked_load
from minductor.frontend.rules.index import ravel
from minductor.ir.program.nodes import View

MAX_UNROLLED = 27  # taps (3 x 3 x 3) that a kernel writes out one by one; more become reduction axes


@dataclass(frozen=True, slots=True)
class Taps:
    """The taps of one dimension.

    `tap(at, k)` gives, for index `at` of the result and 0 <= k < count, an index into the source and the expressions
    that must not be negative for the tap to count.
    """

    count: Expr
    tap: Callable[[Expr, Expr], tuple[Expr, tuple[Expr, ...]]]


class Window(NamedTuple):
    """The windows of one dimension: element k of window o is element o * stride - pad + k * dilation of the input.

    `size` is that of the input, and `number` how many windows there are.
    """

    size: Expr
    number: Expr
    kernel: int
    stride: int
    pad: int
    dilation: int = 1

    def start(self, at: Expr) -> Expr:
        """The index of a window's first element, which may lie in the padding."""
        return at * self.stride - self.pad

    def first(self, at: Expr) -> Expr:
        """The index of a window's first element that is not in the padding before the input."""
        start, step = self.start(at), self.dilation
        return start + maximum((step - 1 - start) // step, integer(0)) * step if self.pad else start

    def tap(self, at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """Element k of a window; it counts if it lies in the input."""
        place = self.start(at) + k * self.dilation
        return place, (place, self.size - 1 - place)

    def extent(self, at: Expr, *, is_padded: bool) -> Expr:
        """By how many elements a mean divides: those in the input or, if `is_padded`, those in the padding too."""
        start = self.start(at)
        if is_padded:
            return minimum(start + self.kernel, self.size + self.pad) - start
        return minimum(start + self.kernel, self.size) - maximum(start, integer(0))

    def forward(self) -> Taps:
        """The elements of a window."""
        return Taps(integer(self.kernel), self.tap)

    def for_maximum(self) -> Taps:
        """The elements of a window for a maximum: a tap in the padding reads the nearest element of the input instead.

        That element is in the window too, so the maximum stays. Masked loads of infinities would keep the C++ compiler
        from vectorizing the loop. In a dilated window the nearest element need not be in it, so masks stay.
        """
        if self.dilation > 1:
            return self.forward()
        return Taps(integer(self.kernel), lambda at, k: (clamped(self.start(at) + k, self.size - 1), ()))

    def backward(self) -> Taps:
        """The windows that hold an element of the input, first to last."""
        reach = -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

        def tap(at: Expr, number: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            window = (at + self.pad) // self.stride - (reach - 1) + number
            distance = at + self.pad - window * self.stride
            k = distance // self.dilation
            return window, (window, self.number - 1 - window, self.kernel - 1 - k, -(distance % self.dilation))

        return Taps(integer(reach), tap)


class AdaptiveWindow(NamedTuple):
    """The windows of one dimension of adaptive pooling: `number` windows of nearly equal size over `size` elements.

    Window o is [floor(o * size / number), ceil((o + 1) * size / number)), as in eager.
    """

    size: Expr
    number: Expr

    def first(self, at: Expr) -> Expr:
        return at * self.size // self.number

    def end(self, at: Expr) -> Expr:
        return ((at + 1) * self.size + self.number - 1) // self.number

    def extent(self, at: Expr, *, is_padded: bool = False) -> Expr:
        return self.end(at) - self.first(at)

    def forward(self) -> Taps:
        def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            place = self.first(at) + k
            return place, (self.end(at) - 1 - place,)

        return Taps(_longest(self.size, self.number), tap)

    def for_maximum(self) -> Taps:
        return Taps(_longest(self.size, self.number), lambda at, k: (minimum(self.first(at) + k, self.end(at) - 1), ()))

    def backward(self) -> Taps:
        def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            window = at * self.number // self.size + k
            return window, (((at + 1) * self.number - 1) // self.size - window,)

        return Taps(_longest(self.number, self.size), tap)


AnyWindow: TypeAlias = Window | AdaptiveWindow
Windows: TypeAlias = Sequence[AnyWindow]


def clamped(place: Expr, last: Expr) -> Expr:
    """The index of the element nearest to `place` in a dimension whose last index is `last`."""
    return minimum(maximum(place, integer(0)), last)


def _longest(size: Expr, number: Expr) -> Expr:
    """The length of the longest of `number` adaptive windows over `size`; an upper bound if sizes are symbolic."""
    n, m = as_int(size), as_int(number)
    if m == 1 or size == number:
        return size // number
    if n is None or m is None:
        return (size + number - 1) // number + 1
    period = m // math.gcd(n, m)
    return integer(max(((o + 1) * n + m - 1) // m - o * n // m for o in range(period)))


def adaptive_window(size: Expr, number: Expr) -> AnyWindow:
    """The windows of adaptive pooling; plain windows if `number` divides `size`."""
    n, m = as_int(size), as_int(number)
    if n is not None and m is not None and n % m == 0:
        return Window(size, number, n // m, n // m, 0)
    return AdaptiveWindow(size, number)


def ints_per_dim(values: Value, rank: int, default: Sequence[int] = ()) -> list[int]:
    """An argument int[rank] as a list: a single number stands for all dimensions, an empty list for `default`."""
    given = values if isinstance(values, tuple | list) else (values,)
    numbers = [n for v in given if isinstance(v, int | Expr) and (n := as_int(as_expr(v))) is not None]
    return list(default) if not numbers else numbers * rank if len(numbers) == 1 else numbers


# --- kernels that gather taps -------------------------------------------------------------------------------------


def tap_at(loop: KernelBuilder, taps: Sequence[Taps], at: Coords, ks: Coords) -> tuple[list[Expr], list[KernelValue]]:
    """The source indices of one tap in the windowed dimensions, and the conditions that need a test for it to count."""
    extents = {axis.symbol: axis.extent for axis in loop.axes}
    places: list[Expr] = []
    tests: list[KernelValue] = []
    for tap_range, coord, k in zip(taps, at, ks, strict=True):
        place, conditions = tap_range.tap(coord, k)
        places.append(place)
        tests += [loop.index(e, I64) >= 0 for e in conditions if not at_least(e, 0, extents)]
    return places, tests


def unrolled_numbers(taps: Sequence[Taps]) -> list[tuple[Expr, ...]] | None:
    """The numbers of all taps (one per dimension), if they are at most MAX_UNROLLED, else None."""
    total = as_int(count(tap_range.count for tap_range in taps))
    if total is None or total > MAX_UNROLLED:
        return None
    ranges = [[integer(k) for k in range(as_int(tap_range.count) or 0)] for tap_range in taps]
    return list(product(*ranges))


def reduced_dims(taps: Sequence[Taps], number: Coords) -> int:
    """How many of the windowed dimensions, from the first on, become reduction axes; the others are unrolled.

    `number` has the sizes of the result. If the last dimension is short it is unrolled, unless it has one window only:
    then reading along it is an ordinary reduction.
    """
    if unrolled_numbers(taps) is not None:
        return 0
    only_last = unrolled_numbers(taps[-1:]) is not None and not is_one(number[-1])
    return len(taps) - 1 if only_last else len(taps)


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


def load_tap(x: View, other: float) -> Callable[[KernelBuilder, Coords, list[KernelValue]], KernelValue]:
    """A function that loads x at a tap, or gives `other` if the tap does not count."""
    return lambda loop, at, tests: masked_load(loop, tests, x, at, other)


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
    if not ctx.is_result_used(1):
        return gather_taps(ctx, values, taps, load_tap(x, lowest(x.dtype)), "max"), None
    numbers = unrolled_numbers(taps)
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

    `places` has the indices that the forward operator saved.
    """

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


def _result_size(ctx: Lowering) -> list[Expr]:
    """The size of the node's first result."""
    meta = ctx.node.meta
    return [as_expr(n) for n in (meta.size if isinstance(meta, TensorMeta) else ctx.metas[0].size)]


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
    """Lowers adaptive_max_pool2d and adaptive_max_pool3d."""
    windows = _adaptive_windows(rank, x.size, _result_size(ctx))
    return maxima(ctx, x, windows) if windows else NotImplemented


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
    return gather_taps(ctx, ctx.meta, taps, load_tap(x, 0), finish=lambda at, total, loop: divide(total, divisor(at)))


def mean_pool_backward(ctx: Lowering, grad: View, windows: Windows, divisor: Callable[[Coords], Expr]) -> Value:
    """The gradient of mean_pool: each input element sums gradient / divisor over the windows that hold it.

    If the divisor is one constant for all windows, the sum is divided once.
    """
    taps = [w.backward() for w in windows]
    constant = as_int(divisor([integer(0)] * len(grad.size)))
    if constant is not None and as_int(divisor(KernelBuilder(grad.size).coords)) == constant:
        shared = integer(constant)
        return gather_taps(ctx, ctx.meta, taps, load_tap(grad, 0), finish=lambda at, total, loop: divide(total, shared))

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        share = divide(masked_load(loop, tests, grad, at, 0), divisor(at))
        return reduce(KernelValue.both, tests).where(share, share.number(0)) if tests else share

    return gather_taps(ctx, ctx.meta, taps, value)


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
    """Lowers _adaptive_avg_pool2d and _adaptive_avg_pool3d."""
    windows = _adaptive_windows(rank, x.size, _result_size(ctx))
    return mean_pool(ctx, x, windows, divisor_of(windows)) if windows else NotImplemented


def adaptive_avg_pool_backward(rank: int, ctx: Lowering, grad: View, x: View) -> Value:
    """Lowers the gradients of _adaptive_avg_pool2d and _adaptive_avg_pool3d."""
    windows = _adaptive_windows(rank, x.size, grad.size)
    return mean_pool_backward(ctx, grad, windows, divisor_of(windows)) if windows else NotImplemented


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
