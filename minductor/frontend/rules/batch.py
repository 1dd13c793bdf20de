"""Normalisations that mix samples or channels: batch norm and group norm, forward and backward.

Takes what ATen's native operators take. Gives the normalised tensor, the statistics, updated running statistics, and
the gradients that are asked for. Refuses (to an extern call) tensors without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from minductor.core.dtypes import DType, accumulate_dtype, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Operand, Value
from minductor.frontend.rules.norm import Coords, RowGradients, apply_affine, metas_by_mask, reciprocal_std
from minductor.frontend.rules.reduce import mean_and_square_sum, to_layout
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def by_channel(x: View, statistic: View) -> View:
    """A vector of channels as a tensor of x's rank: dimension 1, all others of size 1. A view, no kernel."""
    zero, one = integer(0), integer(1)
    size = tuple(x.size[1] if d == 1 else one for d in range(len(x.size)))
    stride = tuple(statistic.stride[0] if d == 1 else zero for d in range(len(x.size)))
    return View(statistic.ref, statistic.dtype, size, stride, statistic.offset)


def normalised(
    ctx: Lowering,
    x: View,
    mean: View,
    scale: View,
    weight: View | None,
    bias: View | None,
    meta: TensorMeta,
    inverse: Callable[[KernelValue], KernelValue] = lambda rstd: rstd,
) -> View:
    """(x - mean) * inverse(scale) * weight + bias, each by channel."""
    given = [by_channel(x, p) for p in (weight, bias) if p is not None]

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
    """_native_batch_norm_legit_functional: also gives the new running statistics, for the caller to write back."""
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
            saved_of_running(ctx, 1, mean_meta, running_mean, lambda v: v),
            saved_of_running(ctx, 2, rstd_meta, running_var, inverse),
        )
        running = by_channel(x, running_mean), by_channel(x, running_var)
        result = normalised(ctx, x, *running, weight, bias, y, inverse)
        kept = zip((running_mean, running_var), updated, strict=False)
        return result, *saved, *(ctx.pointwise(lambda v: v, old, meta=m) for old, m in kept if m is not None)
    dims = tuple(d for d in range(len(x.size)) if d != 1)
    mean, squares, _, size = mean_and_square_sum(ctx, x, dims, accumulate_dtype(x.dtype))
    rstd = reciprocal_std(ctx, squares, size, eps)
    result = normalised(ctx, x, mean, rstd, weight, bias, y)
    saved = [to_layout(ctx, v, m) for v, m in ((mean, mean_meta), (rstd, rstd_meta)) if m is not None]
    moved: list[Value] = [ctx.uninitialised(ctx.result(m)) for m in updated[:-2] if m is not None]  # a reserve
    pairs = zip((running_mean, running_var), (mean, squares), updated[-2:], strict=False)
    for old, new, meta in pairs:
        if old is None or meta is None:
            moved.append(None)
            continue
        is_variance = new is squares
        moved.append(_blended(ctx, old, reshaped_vector(new), momentum, size if is_variance else None, meta))
    return (result, *saved, *moved) if updated else (result, *saved)


def saved_of_running(
    ctx: Lowering, item: int, meta: TensorMeta | None, running: View, fn: Callable[[KernelValue], KernelValue]
) -> View | None:
    """What inference saves as the batch's statistic: a GPU what it normalised by, a CPU a vector without elements."""
    if meta is None or not ctx.is_result_used(item):
        return None
    return ctx.uninitialised(ctx.result(meta)) if meta.size == (0,) else ctx.pointwise(fn, running, meta=meta)


def reshaped_vector(statistic: View) -> View:
    """Statistics that kept all dimensions, as the vector of channels."""
    return View(statistic.ref, statistic.dtype, statistic.size[1:2], statistic.stride[1:2], statistic.offset)


def _blended(ctx: Lowering, old: View, new: View, momentum: float, size: Expr | None, meta: TensorMeta) -> View:
    """old + momentum * (new - old); a variance is first made unbiased from the sum of squares over `size`."""

    def fn(old: KernelValue, new: KernelValue) -> KernelValue:
        value = new if size is None else new / (new.size(size) - 1.0)
        return value * float(momentum) + old * (1.0 - float(momentum))

    return ctx.pointwise(fn, old, new, compute=new.dtype, meta=meta)


def batch_norm_no_stats(
    ctx: Lowering, x: View, weight: View | None, bias: View | None, training: bool, momentum: float, eps: float
) -> Value:
    """Without running statistics the batch's own count, whatever `training` says."""
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
    """An operator whose name says whether it trains."""
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


def grouped(x: View, groups: Operand) -> View:
    """The channels as two dimensions: the group, and the channel of the group."""
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
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    y_meta, mean_meta, rstd_meta = ctx.metas
    given = grouped(x, groups)
    mean, squares, _, size = mean_and_square_sum(ctx, given, tuple(range(2, len(given.size))), x.dtype)
    rstd = reciprocal_std(ctx, squares, size, eps)
    affine = [grouped(by_channel(x, p), groups) for p in (weight, bias) if p is not None]
    y = ctx.result(y_meta)
    loop = KernelBuilder(given.size)
    value, centre, scale, *rest = (loop.load(v, None, x.dtype) for v in (given, mean, rstd, *affine))
    ctx.store(loop, grouped(y, groups), loop.coords, apply_affine((value - centre) * scale, rest, weight, bias))
    return y, to_layout(ctx, mean, mean_meta), to_layout(ctx, rstd, rstd_meta)


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
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    slope, given = grouped(grad, groups), grouped(x, groups)
    factor = None if weight is None else grouped(by_channel(x, weight), groups)
    statistics = by_group(given, mean), by_group(given, rstd)
    rows = RowGradients(compute_dtype(x.dtype), slope, given, *statistics, factor)
    metas = metas_by_mask(ctx, mask)
    dx = None
    if metas[0] is not None:
        loop, value = rows.gradient(ctx, len(given.size) - 2)
        dx = ctx.result(metas[0])
        ctx.store(loop, grouped(dx, groups), loop.coords, value)

    def channel_sum(meta: TensorMeta | None, value: Callable[[KernelBuilder, Coords], KernelValue]) -> View | None:
        if meta is None:
            return None
        out = ctx.result(meta)
        outer = (0, *range(3, len(given.size)))
        store_reduction(ctx, grouped(by_channel(x, out), groups), given.size, outer, value, "sum")
        return out

    return dx, channel_sum(metas[1], rows.slope), channel_sum(metas[2], rows.grad_at)


def by_group(x: View, statistic: View) -> View:
    """A matrix of samples and groups as a tensor of x's rank, x's channels being two dimensions."""
    size = tuple(n if d < 2 else integer(1) for d, n in enumerate(x.size))
    stride = (*statistic.stride, *(integer(0) for _ in x.size[2:]))
    return replace(statistic, size=size, stride=stride)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten._native_batch_norm_legit_functional.default": batch_norm,
        "aten._native_batch_norm_legit.no_stats": batch_norm_no_stats,
        "aten._native_batch_norm_legit_no_training.default": partial(batch_norm_with_stats, False),
        "aten.native_batch_norm_backward.default": batch_norm_backward,
        "aten._batch_norm_with_update_functional.default": partial(batch_norm_with_stats, True),
        "aten.batch_norm_backward.default": lambda ctx, *given: batch_norm_backward(ctx, *given[:-1]),
        "aten.native_group_norm.default": group_norm,
        "aten.native_group_norm_backward.default": group_norm_backward,
    }
)
