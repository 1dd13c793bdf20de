"""Normalisations that mix samples or channels: batch norm and group norm, forward and backward.

Takes what ATen's native operators take. Gives the normalised tensor, the statistics, updated running statistics, and
the gradients that are asked for. Refuses (to an extern call) tensors without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from minductor.core.dtypes import F32, F64, DType, compute_dtype
from minductor.core.expr import Expr, as_expr, integer
from minductor.frontend.capture import TensorMeta
from minductor.frontend.loop import Loop
from minductor.frontend.lower import Lowering
from minductor.frontend.rules.norm import Coords, inverse_deviation, metas_by_mask
from minductor.frontend.rules.reduce import mean_and_squares, moments, reshaped
from minductor.frontend.values import Operand, Term, Value, count, is_zero, sizes
from minductor.ir.nodes import View

Rule = Callable[..., Value]


def accumulated(dtype: DType) -> DType:
    """What a channel is summed in: as in eager, where the mean of many values around 0 has to keep its digits."""
    return F64 if dtype == F32 else compute_dtype(dtype)


def by_channel(x: View, statistic: View) -> View:
    """A vector of channels as a tensor of x's rank: dimension 1, all others of size 1. A view, no kernel."""
    zero, one = integer(0), integer(1)
    size = tuple(x.size[1] if d == 1 else one for d in range(len(x.size)))
    stride = tuple(statistic.stride[0] if d == 1 else zero for d in range(len(x.size)))
    return View(statistic.ref, statistic.dtype, size, stride, statistic.offset)


def normalised(
    ctx: Lowering, x: View, mean: View, rstd: View, weight: View | None, bias: View | None, meta: TensorMeta
) -> View:
    """(x - mean) * rstd * weight + bias, each by channel."""
    given = [by_channel(x, p) for p in (weight, bias) if p is not None]

    def fn(x: Term, mean: Term, rstd: Term, *affine: Term) -> Term:
        left = list(affine)
        y = (x - mean) * rstd
        if weight is not None:
            y = y * left.pop(0)
        return y if bias is None else y + left.pop(0)

    return ctx.pointwise(fn, x, mean, rstd, *given, meta=meta)


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
        saved = (
            saved_of_running(ctx, 1, mean_meta, running_mean, lambda v: v),
            saved_of_running(ctx, 2, rstd_meta, running_var, lambda v: (v + eps).op("rsqrt")),
        )
        result = normalised_by_running(ctx, x, running_mean, running_var, weight, bias, eps, y)
        kept = zip((running_mean, running_var), updated, strict=False)
        return result, *saved, *(ctx.pointwise(lambda v: v, old, meta=m) for old, m in kept if m is not None)
    dims = tuple(d for d in range(len(x.size)) if d != 1)
    mean, squares, _, size = mean_and_squares(ctx, x, dims, accumulated(x.dtype))
    rstd = inverse_deviation(ctx, squares, size, eps)
    result = normalised(ctx, x, mean, rstd, weight, bias, y)
    saved = [reshaped(ctx, v, m) for v, m in ((mean, mean_meta), (rstd, rstd_meta)) if m is not None]
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
    ctx: Lowering, item: int, meta: TensorMeta | None, running: View, fn: Callable[[Term], Term]
) -> View | None:
    """What inference saves as the batch's statistic: a GPU what it normalised by, a CPU a vector without elements."""
    if meta is None or not ctx.is_wanted(item):
        return None
    return ctx.uninitialised(ctx.result(meta)) if meta.size == (0,) else ctx.pointwise(fn, running, meta=meta)


def reshaped_vector(statistic: View) -> View:
    """Statistics that kept all dimensions, as the vector of channels."""
    return View(statistic.ref, statistic.dtype, statistic.size[1:2], statistic.stride[1:2], statistic.offset)


def _blended(ctx: Lowering, old: View, new: View, momentum: float, size: Expr | None, meta: TensorMeta) -> View:
    """old + momentum * (new - old); a variance is first made unbiased from the sum of squares over `size`."""

    def fn(old: Term, new: Term) -> Term:
        value = new if size is None else new / (new.size(size) - 1.0)
        return value * float(momentum) + old * (1.0 - float(momentum))

    return ctx.pointwise(fn, old, new, compute=new.dtype, meta=meta)


def normalised_by_running(
    ctx: Lowering,
    x: View,
    running_mean: View,
    running_var: View,
    weight: View | None,
    bias: View | None,
    eps: float,
    meta: TensorMeta,
) -> View:
    given = [by_channel(x, p) for p in (weight, bias) if p is not None]

    def fn(x: Term, mean: Term, variance: Term, *affine: Term) -> Term:
        left = list(affine)
        y = (x - mean) * (variance + eps).op("rsqrt")
        if weight is not None:
            y = y * left.pop(0)
        return y if bias is None else y + left.pop(0)

    return ctx.pointwise(fn, x, by_channel(x, running_mean), by_channel(x, running_var), *given, meta=meta)


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

    def rstd(loop: Loop, at: Coords) -> Term:
        value = loop.load(scale, at[1:2], compute)
        return value if training else (value + eps).op("rsqrt")

    wide = accumulated(x.dtype)

    def distance(loop: Loop, at: Coords, dtype: DType) -> Term:
        return loop.load(x, at, dtype) - loop.load(center, at[1:2], dtype)

    def channel_sum(value: Callable[[Loop, Coords], Term]) -> View:
        return ctx.reduction(ctx.buffer(wide, x.size[1:2]), x.size, dims, value, "sum")

    dot = channel_sum(lambda loop, at: loop.load(grad, at, wide) * distance(loop, at, wide))
    total = channel_sum(lambda loop, at: loop.load(grad, at, wide))

    def dx(loop: Loop) -> Term:
        at = loop.coords
        g, r, c = loop.load(grad, at, compute), rstd(loop, at), at[1:2]
        slope = r if weight is None else r * loop.load(weight, c, compute)
        if not training:
            return g * slope
        n = g.size(size)
        share = loop.load(total, c, compute) / n
        return (g - share - distance(loop, at, compute) * (r * r * loop.load(dot, c, compute) / n)) * slope

    def dw(loop: Loop) -> Term:
        return loop.load(dot, None, wide) * rstd(loop, (integer(0), *loop.coords)).cast(wide)

    metas = metas_by_mask(ctx, mask)
    return (
        None if metas[0] is None else ctx.map(dx, metas[0]),
        None if metas[1] is None else ctx.map(dw, metas[1]),
        None if metas[2] is None else ctx.map(lambda loop: loop.load(total), metas[2]),
    )


# --- group norm ---------------------------------------------------------------------------------------------------


def by_group(x: View, groups: Operand) -> tuple[list[Expr], tuple[int, ...]]:
    """The domain (sample, group, channel of the group, places), and its dimensions that one statistic joins."""
    assert isinstance(groups, int | Expr)
    extents = [x.size[0], as_expr(groups), x.size[1] // groups, *x.size[2:]]
    return extents, tuple(range(2, len(extents)))


def ungrouped(at: Coords, channels: Expr) -> list[Expr]:
    """A point of that domain as coordinates of the tensor."""
    return [at[0], at[1] * channels + at[2], *at[3:]]


def group_norm(
    ctx: Lowering,
    x: View,
    weight: View | None,
    bias: View | None,
    samples: Operand,
    channels: Operand,
    places: Operand,
    groups: int,
    eps: float,
) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    y_meta, mean_meta, rstd_meta = ctx.metas
    compute = compute_dtype(x.dtype)
    extents, joined = by_group(x, groups)
    size, inner = count(extents[d] for d in joined), extents[2]
    rows = extents[:2]
    mean, squares, _ = moments(
        ctx, rows, extents, joined, lambda loop, at: loop.load(x, ungrouped(at, inner), compute), 2
    )
    rstd = inverse_deviation(ctx, squares, size, eps)
    y = ctx.result(y_meta)
    loop = Loop(extents)
    at, channel = loop.coords, ungrouped(loop.coords, inner)[1:2]
    value = (loop.load(x, ungrouped(at, inner), compute) - loop.load(mean, at[:2])) * loop.load(rstd, at[:2])
    if weight is not None:
        value = value * loop.load(weight, channel, compute)
    if bias is not None:
        value = value + loop.load(bias, channel, compute)
    ctx.store(loop, y, ungrouped(at, inner), value)
    return y, _as_saved(ctx, mean, mean_meta), _as_saved(ctx, rstd, rstd_meta)


def _as_saved(ctx: Lowering, statistic: View, meta: TensorMeta) -> View:
    if meta.dtype == statistic.dtype and sizes(meta.stride) == statistic.stride:
        return statistic
    return ctx.map(lambda loop: loop.load(statistic), meta)


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
    groups: int,
    mask: Sequence[bool],
) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    compute = compute_dtype(x.dtype)
    extents, joined = by_group(x, groups)
    size, inner = count(extents[d] for d in joined), extents[2]
    point = _GroupPoint(grad, x, mean, rstd, weight, inner, compute)
    metas = metas_by_mask(ctx, mask)
    dx = None
    if metas[0] is not None:
        rows = ctx.buffer(compute, extents[:2]), ctx.buffer(compute, extents[:2])
        a = ctx.reduction(rows[0], extents, joined, point.scaled, "sum")
        b = ctx.reduction(
            rows[1], extents, joined, lambda loop, at: point.scaled(loop, at) * point.normal(loop, at), "sum"
        )
        dx, loop = ctx.result(metas[0]), Loop(extents)
        at = loop.coords
        g = point.scaled(loop, at)
        n = g.size(size)  # a group's two quotients, rather than one for each element
        share = loop.load(a, at[:2]) / n + point.normal(loop, at) * (loop.load(b, at[:2]) / n)
        ctx.store(loop, dx, ungrouped(at, inner), loop.load(rstd, at[:2], compute) * (g - share))
    dw = db = None
    outer = (0, *range(3, len(extents)))
    by_channel_view = [_split(ctx.result(m), inner, extents[1]) if m is not None else None for m in metas[1:]]
    if by_channel_view[0] is not None:
        ctx.reduction(
            by_channel_view[0], extents, outer, lambda loop, at: point.grad_at(loop, at) * point.normal(loop, at), "sum"
        )
        dw = _joined(by_channel_view[0], x.size[1])
    if by_channel_view[1] is not None:
        ctx.reduction(by_channel_view[1], extents, outer, point.grad_at, "sum")
        db = _joined(by_channel_view[1], x.size[1])
    return dx, dw, db


def _split(vector: View, inner: Expr, groups: Expr) -> View:
    """A vector of channels as (group, channel of the group)."""
    (step,) = vector.stride
    return View(vector.ref, vector.dtype, (groups, inner), (step * inner, step), vector.offset)


def _joined(view: View, channels: Expr) -> View:
    return View(view.ref, view.dtype, (channels,), view.stride[1:], view.offset)


class _GroupPoint:
    """What the sums of the backward are made of, at one point of the domain."""

    def __init__(
        self, grad: View, x: View, mean: View, rstd: View, weight: View | None, inner: Expr, compute: DType
    ) -> None:
        self.grad, self.x, self.mean, self.rstd = grad, x, mean, rstd
        self.weight, self.inner, self.compute = weight, inner, compute

    def grad_at(self, loop: Loop, at: Coords) -> Term:
        return loop.load(self.grad, ungrouped(at, self.inner), self.compute)

    def scaled(self, loop: Loop, at: Coords) -> Term:
        g = self.grad_at(loop, at)
        return g if self.weight is None else g * loop.load(self.weight, ungrouped(at, self.inner)[1:2], self.compute)

    def normal(self, loop: Loop, at: Coords) -> Term:
        distance = loop.load(self.x, ungrouped(at, self.inner), self.compute) - loop.load(
            self.mean, at[:2], self.compute
        )
        return distance * loop.load(self.rstd, at[:2], self.compute)


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
