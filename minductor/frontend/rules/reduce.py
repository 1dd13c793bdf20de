"""Reductions over dimensions: sums, extremes, their places, truth, variances.

Takes a tensor and dimensions. Gives one kernel a result; 16-bit floats are joined in float32, integers in the result's
dtype. Refuses (to an extern call) a reduction over no element at all, and the place of a bool, which eager refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from minductor.core.dtypes import BF16, BOOL, F32, F64, I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_zero, sizes
from minductor.frontend.lowering_context import long_reductions
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Value, wrap_dims
from minductor.frontend.rules.pointwise import as_stored, is_nonzero
from minductor.ir.program.build import softmax_terms, softmax_total
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
Dims = Sequence[int] | int | None


def reduce_over(
    ctx: Lowering,
    x: View,
    dims: Dims,
    how: str,
    prepare: Callable[[KernelValue], KernelValue] = lambda value: value,
    finish: Callable[[KernelValue], KernelValue] | None = None,
    dtype: DType | None = None,
) -> Value:
    """One value per element of the result, computed in `dtype` (the result's if none)."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    out = ctx.result()
    compute = dtype or out.dtype

    def value(loop: KernelBuilder, coords: Sequence[Expr]) -> KernelValue:
        return prepare(loop.load(x, coords, compute))

    return store_reduction(ctx, out, x.size, wrap_dims(dims, len(x.size)), value, how, finish)


def total(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    return reduce_over(ctx, x, dims, "sum")


def mean(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    size = count(x.size[d] for d in wrap_dims(dims, len(x.size)))
    return reduce_over(ctx, x, dims, "sum", finish=lambda s: s / s.size(size))


def product(ctx: Lowering, x: View, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    return reduce_over(ctx, x, dim, "prod")


def extreme(how: str) -> Rule:
    """amax and amin; on bools they are `any` and `all`."""

    def rule(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False) -> Value:
        on_bools = "any" if how == "max" else "all"
        return reduce_over(ctx, x, dims, on_bools if x.dtype == BOOL else how)

    return rule


def truth_of(how: str) -> Rule:
    """any and all, of the truth of each element; uint8 gives uint8, as in eager."""

    def rule(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False) -> Value:
        return reduce_over(ctx, x, dims, how, lambda value: is_nonzero(as_stored(value, x.dtype)), dtype=x.dtype)

    return rule


def place_of(ctx: Lowering, x: View, dim: int | None, how: str, out: View, *, is_value: bool = False) -> Value:
    """The index of the extreme over one dimension, or in the flattened tensor if none; ties go to the first."""
    rank = len(x.size)
    dims = wrap_dims(None if dim is None else (dim,), rank)

    def value(loop: KernelBuilder, coords: Sequence[Expr]) -> list[KernelValue]:
        index = integer(0)
        for d in dims:
            index = index * x.size[d] + coords[d]
        element = loop.load(x, coords)
        if element.dtype == BOOL:
            element = element.cast(I64)
        return [element, loop.index(index, I64)]

    if not any(not _is_single(x.size[d]) for d in dims):
        return store_reduction(ctx, out, x.size, dims, lambda loop, coords: value(loop, coords)[not is_value], how)
    finish = None if is_value else lambda found: KernelValue(found.b, found.b.project(found.at, 1))
    return store_reduction(ctx, out, x.size, dims, value, how, finish)


def _is_single(size: Expr) -> bool:
    return size == integer(1)


def arg_extreme(how: str) -> Rule:
    def rule(ctx: Lowering, x: View, dim: int | None = None, keepdim: bool = False) -> Value:
        if any(is_zero(n) for n in x.size) or x.dtype == BOOL:
            return NotImplemented
        return place_of(ctx, x, dim, how, ctx.result())

    return rule


def extreme_and_place(how: str) -> Rule:
    """max.dim and min.dim: the value and where it is."""

    def rule(ctx: Lowering, x: View, dim: int, keepdim: bool = False) -> Value:
        if any(is_zero(n) for n in x.size):
            return NotImplemented
        values, places = ctx.metas
        first = place_of(ctx, x, dim, how, ctx.result(values), is_value=True) if ctx.is_result_used(0) else None
        return first, place_of(ctx, x, dim, how, ctx.result(places)) if ctx.is_result_used(1) else None

    return rule


def vector_norm(
    ctx: Lowering,
    x: View,
    order: float = 2,
    dims: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Value:
    """linalg.vector_norm: the orders 2, 1, 0 and the infinite ones without `pow`."""

    def truth_value(value: KernelValue) -> KernelValue:
        return value.op("ne", 0.0).where(1.0, value * 0.0)

    if order != 0 and all(_is_single(x.size[d]) for d in wrap_dims(dims, len(x.size))):
        return reduce_over(ctx, x, dims, "max", lambda value: value.op("abs"))  # no power and root that round
    if math.isinf(order):
        return reduce_over(ctx, x, dims, "max" if order > 0 else "min", lambda value: value.op("abs"))
    if order == 2:
        return reduce_over(ctx, x, dims, "sum", lambda value: value * value, lambda total: total.op("sqrt"))
    if order == 1:
        return reduce_over(ctx, x, dims, "sum", lambda value: value.op("abs"))
    if order == 0:
        return reduce_over(ctx, x, dims, "sum", truth_value)
    power = float(order)
    return reduce_over(
        ctx, x, dims, "sum", lambda v: v.op("abs").op("pow", power), lambda total: total.op("pow", 1.0 / power)
    )


def pair_distance(ctx: Lowering, x: View, y: View, order: float, mode: int | None = None) -> Value:
    """_cdist_forward: the norm of the difference of every row of x and every row of y.

    Refuses what eager computes by a matrix product: the Euclidean distance of many rows. Of the largest difference
    eager's NaN depends on the place.
    """
    known = [as_int(n) for n in (x.size[-2], y.size[-2], x.size[-1])]
    if any(n is None or n == 0 for n in known) or math.isinf(order):
        return NotImplemented
    if order == 2 and mode != 2 and (mode == 1 or max(n for n in known[:2] if n is not None) > 25):
        return NotImplemented
    out = ctx.result()
    if any(is_zero(n) for n in out.size):
        return NotImplemented
    rank = len(out.size)

    def value(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        *batch, row, other, element = at
        a, b = (loop.load(v, (*batch, r, element), out.dtype) for v, r in ((x, row), (y, other)))
        away = (a - b).op("abs")
        match order:
            case 0:
                return away.equals(0.0).where(away, away.op("isnan").where(away, 1.0))
            case 1:
                return away
            case 2:
                return away * away
            case _:
                return away.op("pow", float(order))

    def root(total: KernelValue) -> KernelValue:
        return total if order in (0, 1) else total.op("sqrt") if order == 2 else total.op("pow", 1.0 / float(order))

    return store_reduction(ctx, out, (*out.size, x.size[-1]), (rank,), value, "sum", root)


# --- variance -----------------------------------------------------------------------------------------------------


Values = Callable[[KernelBuilder, Sequence[Expr]], KernelValue]


def keepdim_size(size: Sequence[Expr], reduced: Sequence[int]) -> tuple[Expr, ...]:
    """What is left where dimensions that are reduced stay as ones of size 1."""
    return tuple(integer(1) if d in reduced else n for d, n in enumerate(size))


def keepdim_sum(
    ctx: Lowering,
    size: Sequence[Expr],
    reduced: Sequence[int],
    dtype: DType,
    value: Values,
    finish: Callable[[KernelValue], KernelValue] | None = None,
) -> View:
    """A sum over dimensions that stay."""
    return store_reduction(ctx, ctx.buffer(dtype, keepdim_size(size, reduced)), size, reduced, value, "sum", finish)


def mean_and_square_sum(ctx: Lowering, x: View, dims: Dims, dtype: DType) -> tuple[View, View, View, Expr]:
    """The mean over dimensions that stay, the sum of squared distances from it, and the count of what is summed.

    Two passes: a difference of sums cancels where the mean is large against the spread. The second one also adds up the
    distances, which would be nothing but for the rounding of the mean: so the result is exact where all values are one,
    however large. The third result is the mean without that: the nearer one where the spread is large, but not what the
    squares are distances from; of float64 it is the first. All are in the compute dtype of `dtype`; float64 needs no
    correction beside narrower x.
    """
    reduced, compute = wrap_dims(dims, len(x.size)), compute_dtype(dtype)
    size = count(x.size[d] for d in reduced)

    def value(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return loop.load(x, at, compute)

    if (cut := long_reductions.cut(x.size, reduced, value, ctx.env.target)) is not None:

        def single(loop: KernelBuilder, at: Sequence[Expr]) -> Sequence[KernelValue]:
            term = value(loop, at)
            return [term, term.number(0.0), term.number(1.0)]

        mean, squares = _in_parts(ctx, x, reduced, single, compute, "welford", cut, (_first, _second))
        return mean, squares, mean, size
    if x.dtype == F64:
        rounded = _mean_about_the_first(ctx, x, reduced, size)
    else:
        rounded = keepdim_sum(ctx, x.size, reduced, compute, value, lambda s: s / s.size(size))

    def distance(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return value(loop, at) - loop.load(rounded, at)

    def square(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return distance(loop, at) * distance(loop, at)

    if compute == F64 != x.dtype:
        return rounded, keepdim_sum(ctx, x.size, reduced, compute, square), rounded, size
    rest, squares = (keepdim_sum(ctx, x.size, reduced, compute, term) for term in (distance, square))

    def each(fn: Callable[[KernelValue, KernelValue, KernelValue], KernelValue]) -> View:
        out = ctx.buffer(compute, rounded.size)
        loop = KernelBuilder(out.size)
        return ctx.store(loop, out, loop.coords, fn(*(loop.load(v) for v in (rounded, squares, rest))))

    def corrected(s: KernelValue, r: KernelValue) -> KernelValue:
        return (s - r / r.size(size) * r).op("maximum", 0.0)

    if x.dtype != F64:
        mean = each(lambda m, _, r: m + r / r.size(size))
        return mean, each(lambda _, s, r: corrected(s, r)), rounded, size
    # where the squares overflow, so may the corrections, and infinity less infinity is NaN
    mean = each(lambda m, s, r: s.equals(math.inf).where(m, m + r / r.size(size)))
    return mean, each(lambda _, s, r: s.equals(math.inf).where(s, corrected(s, r))), mean, size


SCALE = 2.0**-64  # a sum of up to so many terms, scaled by it, does not overflow; what it rounds away is corrected


def _mean_about_the_first(ctx: Lowering, x: View, reduced: Sequence[int], size: Expr) -> View:
    """A mean that overflows nowhere, and that is exact where all values are one.

    No wider dtype is there to sum float64 in: distances from the first value of a row are summed, all scaled.
    """

    def first(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return loop.load(x, [integer(0) if d in reduced else c for d, c in enumerate(at)], F64) * SCALE

    def term(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return loop.load(x, at, F64) * SCALE - first(loop, at)

    total = keepdim_sum(ctx, x.size, reduced, F64, term, lambda s: s / s.size(size))
    out = ctx.buffer(F64, total.size)
    loop = KernelBuilder(out.size)
    return ctx.store(loop, out, loop.coords, (loop.load(total) + first(loop, loop.coords)) * (1 / SCALE))


def _first(found: KernelValue) -> KernelValue:
    return found


def _second(found: KernelValue) -> KernelValue:
    return KernelValue(found.b, found.b.project(found.at, 1))


def _in_parts(
    ctx: Lowering,
    x: View,
    reduced: Sequence[int],
    terms: Callable[[KernelBuilder, Sequence[Expr]], Sequence[KernelValue]],
    dtype: DType,
    how: str,
    cut: long_reductions.Cut,
    results: Sequence[Callable[[KernelValue], KernelValue]],
) -> list[View]:
    """What several passes find, in one: a second one would have to wait for all parts of the first."""
    domain = long_reductions.partial(ctx, x.size, reduced, terms, how, cut)
    kept = [d for d in range(len(x.size)) if d not in reduced]
    found: list[View] = []
    for finish in results:
        out = ctx.buffer(dtype, keepdim_size(x.size, reduced))
        slim = replace(out, size=tuple(out.size[d] for d in kept), stride=tuple(out.stride[d] for d in kept))
        store_reduction(ctx, slim, *domain, how, finish)
        found.append(out)
    return found


def to_layout(
    ctx: Lowering, x: View, meta: TensorMeta, finish: Callable[[KernelValue], KernelValue] | None = None
) -> View:
    """The elements of `x`, in order, in the layout of `meta`: drops or keeps dimensions of size 1."""
    rank, size, stride = len(meta.size), sizes(meta.size), sizes(meta.stride)
    sources = [s for s in zip(x.size, x.stride, strict=True) if not _is_single(s[0])]
    if (
        finish is None
        and meta.dtype == x.dtype
        and [s for n, s in zip(size, stride, strict=True) if not _is_single(n)] == [s for _, s in sources]
    ):
        return View(x.ref, x.dtype, size, stride, x.offset)
    out = ctx.result(meta)
    loop = KernelBuilder(out.size)
    places = [c for n, c in zip(out.size, loop.coords, strict=True) if not _is_single(n)]
    assert len(places) == len(sources) and rank == len(out.size)
    index = x.offset
    for (_, stride), coord in zip(sources, places, strict=True):
        index = index + stride * coord
    value = loop.term(loop.b.load(x.ref, index, compute_dtype(x.dtype)))
    return ctx.store(loop, out, loop.coords, value if finish is None else finish(value))


def variance_of(ctx: Lowering, squares: View, size: Expr, correction: float, meta: TensorMeta, *, root: bool) -> View:
    def finish(total: KernelValue) -> KernelValue:
        known = as_int(size)
        if known is not None:
            value = total / max(known - float(correction), 0.0)
        else:
            value = total / (total.size(size) - float(correction)).op("maximum", 0.0)
        return value.op("sqrt") if root else value

    return to_layout(ctx, squares, meta, finish)


def _summed(ctx: Lowering, x: View) -> DType:
    """What eager sums a variance in: the squares of large floats overflow float32 where their root does not."""
    return F64 if x.dtype in (F32, BF16) and not ctx.env.target.is_gpu else x.dtype


def spread(*, root: bool) -> Rule:
    """var.correction and std.correction."""

    def rule(
        ctx: Lowering, x: View, dims: Dims = None, *, correction: float | None = 1, keepdim: bool = False
    ) -> Value:
        if any(is_zero(n) for n in x.size):
            return NotImplemented
        _, squares, _, size = mean_and_square_sum(ctx, x, dims, _summed(ctx, x))
        return variance_of(ctx, squares, size, 1 if correction is None else correction, ctx.meta, root=root)

    return rule


def spread_and_mean(*, root: bool) -> Rule:
    """var_mean.correction and std_mean.correction."""

    def rule(
        ctx: Lowering, x: View, dims: Dims = None, *, correction: float | None = 1, keepdim: bool = False
    ) -> Value:
        if any(is_zero(n) for n in x.size):
            return NotImplemented
        first, second = ctx.metas
        _, squares, average, size = mean_and_square_sum(ctx, x, dims, _summed(ctx, x))
        spread = variance_of(ctx, squares, size, 1 if correction is None else correction, first, root=root)
        is_single = as_int(size) == 1
        return spread, to_layout(ctx, average, second, None if is_single else no_infinity)

    return rule


def no_infinity(mean: KernelValue) -> KernelValue:
    """Eager's recurrence goes on with the distance from an infinite mean, which is not a number; a sum does not."""
    return mean.op("isinf").where(math.nan, mean)


# --- softmax ------------------------------------------------------------------------------------------------------


def softmax_statistics(ctx: Lowering, x: View, dim: int, dtype: DType) -> tuple[View, View]:
    """Over one dimension: the maximum, and the sum of exp(x - maximum)."""
    reduced, compute = wrap_dims((dim,), len(x.size)), compute_dtype(dtype)

    def value(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return loop.load(x, at, compute)

    if (cut := long_reductions.cut(x.size, reduced, value, ctx.env.target)) is not None:

        def terms(loop: KernelBuilder, at: Sequence[Expr]) -> Sequence[KernelValue]:
            return [KernelValue(loop.b, n) for n in softmax_terms(loop.b, value(loop, at).at)]

        results = (_first, lambda found: KernelValue(found.b, softmax_total(found.b, found.at)))
        top, total = _in_parts(ctx, x, reduced, terms, compute, "online_softmax", cut, results)
        return top, total
    top = store_reduction(ctx, ctx.buffer(compute, keepdim_size(x.size, reduced)), x.size, reduced, value, "max")

    def shifted(loop: KernelBuilder, at: Sequence[Expr]) -> KernelValue:
        return (value(loop, at) - loop.load(top, at)).op("exp")

    return top, keepdim_sum(ctx, x.size, reduced, compute, shifted)


def softmax(ctx: Lowering, x: View, dim: int, half_to_float: bool) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    top, total = softmax_statistics(ctx, x, dim, ctx.meta.dtype)
    # a division, and not a product with the sum's reciprocal: that has three times the rounding, which a gradient where
    # one share is almost 1 shows as most of its digits
    return ctx.pointwise(lambda x, top, total: (x - top).op("exp") / total, x, top, total)


def log_softmax(ctx: Lowering, x: View, dim: int, half_to_float: bool) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    top, total = softmax_statistics(ctx, x, dim, ctx.meta.dtype)
    return ctx.pointwise(lambda x, top, total: x - top - total.op("log"), x, top, total)


def softmax_backward(ctx: Lowering, grad: View, y: View, dim: int, dtype: DType) -> Value:
    if any(is_zero(n) for n in y.size):
        return NotImplemented
    compute = compute_dtype(y.dtype)
    along = wrap_dims((dim,), len(y.size))
    dot = keepdim_sum(
        ctx, y.size, along, compute, lambda loop, at: loop.load(grad, at, compute) * loop.load(y, at, compute)
    )
    return ctx.pointwise(lambda g, y, dot: (g - dot) * y, grad, y, dot, compute=y.dtype)


def log_softmax_backward(ctx: Lowering, grad: View, y: View, dim: int, dtype: DType) -> Value:
    if any(is_zero(n) for n in y.size):
        return NotImplemented
    compute = compute_dtype(y.dtype)
    along = wrap_dims((dim,), len(y.size))
    total = keepdim_sum(ctx, y.size, along, compute, lambda loop, at: loop.load(grad, at, compute))
    return ctx.pointwise(lambda g, y, total: g - y.op("exp") * total, grad, y, total, compute=y.dtype)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.sum.default": total,
        "aten.sum.dim_IntList": total,
        "aten.mean.default": mean,
        "aten.mean.dim": mean,
        "aten.prod.default": product,
        "aten.prod.dim_int": product,
        "aten.amax.default": extreme("max"),
        "aten.amin.default": extreme("min"),
        "aten.max.default": extreme("max"),
        "aten.min.default": extreme("min"),
        "aten.max.dim": extreme_and_place("argmax"),
        "aten.min.dim": extreme_and_place("argmin"),
        "aten.argmax.default": arg_extreme("argmax"),
        "aten.argmin.default": arg_extreme("argmin"),
        **{f"aten.any.{kind}": truth_of("any") for kind in ("default", "dim", "dims")},
        **{f"aten.all.{kind}": truth_of("all") for kind in ("default", "dim", "dims")},
        "aten.linalg_vector_norm.default": vector_norm,
        "aten._cdist_forward.default": pair_distance,
        "aten.var.correction": spread(root=False),
        "aten.std.correction": spread(root=True),
        "aten.var_mean.correction": spread_and_mean(root=False),
        "aten.std_mean.correction": spread_and_mean(root=True),
        "aten._softmax.default": softmax,
        "aten._log_softmax.default": log_softmax,
        "aten._softmax_backward_data.default": softmax_backward,
        "aten._log_softmax_backward_data.default": log_softmax_backward,
    }
)
