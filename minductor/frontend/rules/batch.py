"""Rules of batch norm and group norm, forward and backward, whose statistics belong to channels.

- _native_batch_norm_legit (functional, no_stats, no_training), _batch_norm_with_update_functional and their gradients
- native_group_norm and its gradient; instance norm is decomposed to batch norm by torch

Takes the arguments of ATen's native operators; dimension 1 holds the channels. Gives the normalized tensor, the saved
statistics, the updated running statistics, and the gradients that `output_mask` asks for. Statistics are reductions
over all dimensions but the channels (or over a group), and the normalized tensor is a pointwise kernel that reads them.
Refuses (to an extern call) tensors without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from minductor.core.dtypes import F64, DType, accumulate_dtype, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Coords, Operand, Rule, Value
from minductor.frontend.rules.norm import RowGradients, apply_affine, metas_by_mask, reciprocal_std
from minductor.frontend.rules.reduce import keepdim_size, keepdim_sum, mean_and_square_sum, to_layout
from minductor.ir.program.nodes import View


def expand_channels(x: View, statistic: View) -> View:
    """A vector over channels as a view of x's rank, which broadcasts against x; no kernel."""
    zero, one = integer(0), integer(1)
    size = tuple(x.size[1] if d == 1 else one for d in range(len(x.size)))
    stride = tuple(statistic.stride[0] if d == 1 else zero for d in range(len(x.size)))
    return View(statistic.ref, statistic.dtype, size, stride, statistic.offset)


def normalized(
    ctx: Lowering,
    x: View,
    mean: View,
    scale: View,
    weight: View | None,
    bias: View | None,
    meta: TensorMeta,
    inverse: Callable[[KernelValue], KernelValue] = lambda rstd: rstd,
) -> View:
    """(x - mean) * inverse(scale) * weight + bias in one pointwise kernel; all but x are per channel."""
    given = [expand_channels(x, p) for p in (weight, bias) if p is not None]

    def fn(x: KernelValue, mean: KernelValue, scale: KernelValue, *affine: KernelValue) -> KernelValue:
        return apply_affine((x - mean) * inverse(scale), affine, weight, bias)

    return ctx.pointwise(fn, x, mean, scale, *given, meta=meta)


def batch_norm(
    ctx: Lowering,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View | None,
    running_var: View | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Value:
    """Lowers _native_batch_norm_legit_functional: y, the saved mean and rstd, and the new running statistics.

    In training the statistics are the batch's, accumulated in float32 or wider, and running = momentum * new + (1 -
    momentum) * old, with the unbiased variance. In inference the running statistics normalize x. The traced results
    tell which of the statistics the operator's variant has; the caller writes the running ones back.
    """
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    y, mean_meta, rstd_meta, *updated = (m if isinstance(m, TensorMeta) else None for m in metas)
    if y is None:
        return NotImplemented
    if not training:
        assert running_mean is not None and running_var is not None

        def inverse(variance: KernelValue) -> KernelValue:
            return (variance + eps).op("rsqrt")

        saved = (
            saved_statistic(ctx, 1, mean_meta, running_mean, lambda v: v),
            saved_statistic(ctx, 2, rstd_meta, running_var, inverse),
        )
        running = expand_channels(x, running_mean), expand_channels(x, running_var)
        result = normalized(ctx, x, *running, weight, bias, y, inverse)
        kept = zip((running_mean, running_var), updated, strict=False)
        return result, *saved, *(ctx.pointwise(lambda v: v, old, meta=m) for old, m in kept if m is not None)
    dims = tuple(d for d in range(len(x.size)) if d != 1)
    mean, squares, _, size = mean_and_square_sum(ctx, x, dims, accumulate_dtype(x.dtype))
    rstd = reciprocal_std(ctx, squares, size, eps)
    result = normalized(ctx, x, mean, rstd, weight, bias, y)
    saved = [to_layout(ctx, v, m) for v, m in ((mean, mean_meta), (rstd, rstd_meta)) if m is not None]
    # the reserve, which only cuDNN uses
    new_running: list[Value] = [ctx.uninitialised(ctx.result(m)) for m in updated[:-2] if m is not None]
    pairs = zip((running_mean, running_var), (mean, squares), updated[-2:], strict=False)
    for old, new, meta in pairs:
        if old is None or meta is None:
            new_running.append(None)
            continue
        is_variance = new is squares
        new_running.append(_momentum_mean(ctx, old, channel_vector(new), momentum, size if is_variance else None, meta))
    return (result, *saved, *new_running) if updated else (result, *saved)


def saved_statistic(
    ctx: Lowering, item: int, meta: TensorMeta | None, running: View, fn: Callable[[KernelValue], KernelValue]
) -> View | None:
    """The statistic that inference saves: what it normalized by on a GPU, an empty vector on a CPU, as in eager.

    None if nothing uses result number `item`.
    """
    if meta is None or not ctx.is_result_used(item):
        return None
    return ctx.uninitialised(ctx.result(meta)) if meta.size == (0,) else ctx.pointwise(fn, running, meta=meta)


def channel_vector(statistic: View) -> View:
    """Statistics with all dimensions kept, as a vector over the channels; a view."""
    return View(statistic.ref, statistic.dtype, statistic.size[1:2], statistic.stride[1:2], statistic.offset)


def _momentum_mean(ctx: Lowering, old: View, new: View, momentum: float, size: Expr | None, meta: TensorMeta) -> View:
    """momentum * new + (1 - momentum) * old: a new running statistic.

    For a variance, `new` is a sum of squares over `size` elements, and is divided by size - 1 first.
    """

    def fn(old: KernelValue, new: KernelValue) -> KernelValue:
        value = new if size is None else new / (new.size(size) - 1.0)
        return value * float(momentum) + old * (1.0 - float(momentum))

    return ctx.pointwise(fn, old, new, compute=new.dtype, meta=meta)


def batch_norm_no_stats(
    ctx: Lowering, x: View, weight: View | None, bias: View | None, training: bool, momentum: float, eps: float
) -> Value:
    """Lowers _native_batch_norm_legit.no_stats, which uses the batch's statistics in inference too."""
    return batch_norm(ctx, x, weight, bias, None, None, True, momentum, eps)


def batch_norm_with_stats(
    training: bool,
    ctx: Lowering,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View,
    running_var: View,
    momentum: float,
    eps: float,
) -> Value:
    """Lowers the variants whose name says whether they train: no_training, and _batch_norm_with_update."""
    return batch_norm(ctx, x, weight, bias, running_mean, running_var, training, momentum, eps)


def batch_norm_backward(
    ctx: Lowering,
    grad: View,
    x: View,
    weight: View | None,
    running_mean: View | None,
    running_var: View | None,
    save_mean: View | None,
    save_rstd: View | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Value:
    """Lowers native_batch_norm_backward: the gradients of x, weight and bias that `mask` asks for.

    Two sums per channel and one pointwise kernel; in inference the statistics are constants.
    """
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    center, scale = (save_mean, save_rstd) if training else (running_mean, running_var)
    if center is None or scale is None:
        return NotImplemented
    compute = compute_dtype(x.dtype)
    dims = tuple(d for d in range(len(x.size)) if d != 1)
    size = count(x.size[d] for d in dims)

    def rstd(loop: KernelBuilder, at: Coords) -> KernelValue:
        value = loop.load(scale, at[1:2], compute)
        return value if training else (value + eps).op("rsqrt")

    wide = accumulate_dtype(x.dtype)

    def distance(loop: KernelBuilder, at: Coords, dtype: DType) -> KernelValue:
        return loop.load(x, at, dtype) - loop.load(center, at[1:2], dtype)

    def channel_sum(value: Callable[[KernelBuilder, Coords], KernelValue]) -> View:
        return store_reduction(ctx, ctx.buffer(wide, x.size[1:2]), x.size, dims, value, "sum")

    dot = channel_sum(lambda loop, at: loop.load(grad, at, wide) * distance(loop, at, wide))
    total = channel_sum(lambda loop, at: loop.load(grad, at, wide))

    def dx(loop: KernelBuilder) -> KernelValue:
        at = loop.coords
        g, r, c = loop.load(grad, at, compute), rstd(loop, at), at[1:2]
        slope = r if weight is None else r * loop.load(weight, c, compute)
        if not training:
            return g * slope
        n = g.size(size)
        share = loop.load(total, c, compute) / n
        return (g - share - distance(loop, at, compute) * (r * r * loop.load(dot, c, compute) / n)) * slope

    def dw(loop: KernelBuilder) -> KernelValue:
        return loop.load(dot, None, wide) * rstd(loop, (integer(0), *loop.coords)).cast(wide)

    metas = metas_by_mask(ctx, mask)
    return (
        None if metas[0] is None else ctx.map(dx, metas[0]),
        None if metas[1] is None else ctx.map(dw, metas[1]),
        None if metas[2] is None else ctx.map(lambda loop: loop.load(total), metas[2]),
    )


# --- group norm ---------------------------------------------------------------------------------------------------


def split_groups(x: View, groups: Operand) -> View:
    """A view of x with its channels as two dimensions: the group, and the channel within the group."""
    assert isinstance(groups, int | Expr)
    inner = x.size[1] // groups
    size = (x.size[0], as_expr(groups), inner, *x.size[2:])
    return replace(x, size=size, stride=(x.stride[0], x.stride[1] * inner, *x.stride[1:]))


def group_norm(
    ctx: Lowering,
    x: View,
    weight: View | None,
    bias: View | None,
    samples: Operand,
    channels: Operand,
    places: Operand,
    groups: Operand,
    eps: float,
) -> Value:
    """Lowers native_group_norm: y, and the mean and rstd of each sample and group."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    y_meta, mean_meta, rstd_meta = ctx.metas
    given = split_groups(x, groups)
    if _sums_channels_first(ctx, given):
        mean, rstd = _statistics_by_channel(ctx, given, eps)
    else:
        dims = tuple(range(2, len(given.size)))
        mean, squares, _, size = mean_and_square_sum(ctx, given, dims, x.dtype, is_scale=True)
        rstd = reciprocal_std(ctx, squares, size, eps)
    affine = [split_groups(expand_channels(x, p), groups) for p in (weight, bias) if p is not None]
    y = ctx.result(y_meta)
    loop = KernelBuilder(given.size)
    value, centre, scale, *rest = (loop.load(v, None, x.dtype) for v in (given, mean, rstd, *affine))
    ctx.store(loop, split_groups(y, groups), loop.coords, apply_affine((value - centre) * scale, rest, weight, bias))
    mean, rstd = (replace(v, size=v.size[:2], stride=v.stride[:2]) for v in (mean, rstd))
    return y, to_layout(ctx, mean, mean_meta), to_layout(ctx, rstd, rstd_meta)


def _sums_channels_first(ctx: Lowering, x: View) -> bool:
    """Whether a CPU sums each channel before its group: if channels lie innermost, and only the call counts them.

    Kernels then add whole rows of channels, however few of them are in a group. If they are known, `narrow.py` decides.
    """
    _, _, channels, *area = x.size
    is_innermost = len(area) > 0 and is_one(x.stride[2]) and not is_one(x.stride[-1])
    return is_innermost and as_int(channels) is None and x.dtype != F64 and not ctx.env.target.is_gpu


def _statistics_by_channel(ctx: Lowering, x: View, eps: float) -> tuple[View, View]:
    """The mean and rstd of the groups of x, with an element for each channel, as in `mean_and_square_sum`."""
    compute, area = compute_dtype(x.dtype), tuple(range(3, len(x.size)))
    rounded = ctx.buffer(compute, keepdim_size(x.size, area))

    def value(loop: KernelBuilder, at: Coords) -> KernelValue:
        return loop.load(x, at, compute)

    def distance(loop: KernelBuilder, at: Coords) -> KernelValue:
        return value(loop, at) - loop.load(rounded, at)

    def square(loop: KernelBuilder, at: Coords) -> KernelValue:
        return distance(loop, at) * distance(loop, at)

    def in_groups(finish: Callable[..., KernelValue], out: View, *sums: View) -> View:
        """Stores for each channel what `finish` makes of the kernel's loop, the size of a group and its sums."""
        loop = KernelBuilder(rounded.size)
        totals = [loop.reduce([loop.load(each)], [2], "sum") for each in sums]
        return ctx.store(loop, out, loop.coords, finish(loop, totals[0].size(count(x.size[2:])), *totals))

    def corrected(loop: KernelBuilder, n: KernelValue, rest: KernelValue, _: KernelValue) -> KernelValue:
        return loop.load(rounded) + rest / n

    def rstd(_: KernelBuilder, n: KernelValue, rest: KernelValue, squares: KernelValue) -> KernelValue:
        return ((squares - rest / n * rest).op("maximum", 0.0) / n + eps).op("rsqrt")

    in_groups(lambda _, n, total: total / n, rounded, keepdim_sum(ctx, x.size, area, compute, value))
    sums = [keepdim_sum(ctx, x.size, area, compute, term) for term in (distance, square)]
    mean, scale = (in_groups(each, ctx.buffer(compute, rounded.size), *sums) for each in (corrected, rstd))
    return mean, scale


def group_norm_backward(
    ctx: Lowering,
    grad: View,
    x: View,
    mean: View,
    rstd: View,
    weight: View | None,
    samples: Operand,
    channels: Operand,
    places: Operand,
    groups: Operand,
    mask: Sequence[bool],
) -> Value:
    """Lowers native_group_norm_backward: the gradients of x, weight and bias that `mask` asks for."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    incoming, given = split_groups(grad, groups), split_groups(x, groups)
    factor = None if weight is None else split_groups(expand_channels(x, weight), groups)
    statistics = expand_groups(given, mean), expand_groups(given, rstd)
    rows = RowGradients(compute_dtype(x.dtype), incoming, given, *statistics, factor)
    metas = metas_by_mask(ctx, mask)
    dx = None
    if metas[0] is not None:
        loop, value = rows.gradient(ctx, len(given.size) - 2)
        dx = ctx.result(metas[0])
        ctx.store(loop, split_groups(dx, groups), loop.coords, value)

    def channel_sum(meta: TensorMeta | None, value: Callable[[KernelBuilder, Coords], KernelValue]) -> View | None:
        if meta is None:
            return None
        out = ctx.result(meta)
        outer = (0, *range(3, len(given.size)))
        store_reduction(ctx, split_groups(expand_channels(x, out), groups), given.size, outer, value, "sum")
        return out

    return dx, channel_sum(metas[1], rows.weight_slope), channel_sum(metas[2], rows.grad_at)


def expand_groups(x: View, statistic: View) -> View:
    """A matrix over (sample, group) as a view that broadcasts against x, whose channels are two dimensions."""
    size = tuple(n if d < 2 else integer(1) for d, n in enumerate(x.size))
    stride = (*statistic.stride, *(integer(0) for _ in x.size[2:]))
    return replace(statistic, size=size, stride=stride)


RULES: Mapping[str, Rule] = {
    "aten._native_batch_norm_legit_functional.default": batch_norm,
    "aten._native_batch_norm_legit.no_stats": batch_norm_no_stats,
    "aten._native_batch_norm_legit_no_training.default": partial(batch_norm_with_stats, False),
    "aten.native_batch_norm_backward.default": batch_norm_backward,
    "aten._batch_norm_with_update_functional.default": partial(batch_norm_with_stats, True),
    "aten.batch_norm_backward.default": lambda ctx, *given: batch_norm_backward(ctx, *given[:-1]),
    "aten.native_group_norm.default": group_norm,
    "aten.native_group_norm_backward.default": group_norm_backward,
}
