"""Rules of reductions over dimensions.

- sum, mean, prod, any, all, linalg_vector_norm, _cdist_forward
- amax, amin, max, min, argmax, argmin, and max and min with indices
- var, std, var_mean, std_mean
- _softmax, _log_softmax and their gradients

Takes a tensor and dimensions; none stands for all. Gives one kernel per result, with the kept dimensions as outer axes
and the reduced ones as reduction axes; softmax and variances take several kernels, which fuse. 16-bit floats accumulate
in float32, integers in the result's dtype. Refuses (to an extern call) tensors without elements, and argmax of a bool,
for which eager raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from minductor.core.dtypes import BF16, BOOL, F32, F64, I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Coords, Rule, Value, is_zero_sized, rules_for, wrap_dims
from minductor.frontend.rules.pointwise import as_stored, is_nonzero
from minductor.ir.program.nodes import View

Finish = Callable[[KernelValue], KernelValue]
Dims = Sequence[int] | int | None


def reduce_over(
    ctx: Lowering,
    x: View,
    dims: Dims,
    how: str,
    prepare: Finish = lambda value: value,
    finish: Finish | None = None,
    dtype: DType | None = None,
) -> Value:
    """One kernel that combines prepare(x) by `how` over `dims` and stores finish(total) in the traced result.

    The elements are cast to the compute dtype of `dtype` (by default the result's) first.
    """
    if is_zero_sized(x):
        return NotImplemented
    out = ctx.result()
    compute = dtype or out.dtype

    def value(loop: KernelBuilder, coords: Coords) -> KernelValue:
        return prepare(loop.load(x, coords, compute))

    return store_reduction(ctx, out, x.size, wrap_dims(dims, len(x.size)), value, how, finish)


def total(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """Lowers sum. The traced result has `keepdim` and `dtype` already, here and in the other rules."""
    return reduce_over(ctx, x, dims, "sum")


def mean(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """Lowers mean: the sum divided by the number of elements."""
    size = count(x.size[d] for d in wrap_dims(dims, len(x.size)))
    return reduce_over(ctx, x, dims, "sum", finish=lambda s: s / s.size(size))


def product(ctx: Lowering, x: View, dim: Dims = None, keepdim: bool = False, dtype: DType | None = None) -> Value:
    """Lowers prod."""
    return reduce_over(ctx, x, dim, "prod")


def extreme(how: str) -> Rule:
    """A rule for amax and amin, and for max and min without a dimension; on bools they are any and all."""

    def rule(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False) -> Value:
        on_bools = "any" if how == "max" else "all"
        return reduce_over(ctx, x, dims, on_bools if x.dtype == BOOL else how)

    return rule


def any_or_all(how: str) -> Rule:
    """A rule for any and all of the truth values of x, rounded to its dtype; uint8 gives uint8, as in eager."""

    def rule(ctx: Lowering, x: View, dims: Dims = None, keepdim: bool = False) -> Value:
        return reduce_over(ctx, x, dims, how, lambda value: is_nonzero(as_stored(value, x.dtype)), dtype=x.dtype)

    return rule


def index_of_extreme(ctx: Lowering, x: View, dim: int | None, how: str, out: View, *, is_value: bool = False) -> Value:
    """A kernel that writes to `out` the index of the extreme over `dim`, or its value if `is_value`.

    Without a dimension the index is the row-major one of the whole tensor. Of equal elements, and of NaNs, the first
    one counts, as in eager. Bools are compared as integers. A kernel that reduces pairs (element, index) gives both.
    """
    rank = len(x.size)
    dims = wrap_dims(None if dim is None else (dim,), rank)

    def value(loop: KernelBuilder, coords: Coords) -> list[KernelValue]:
        index = integer(0)
        for d in dims:
            index = index * x.size[d] + coords[d]
        element = loop.load(x, coords)
        if element.dtype == BOOL:
            element = element.cast(I64)
        return [element, loop.index(index, I64)]

    if all(is_one(x.size[d]) for d in dims):
        return store_reduction(ctx, out, x.size, dims, lambda loop, coords: value(loop, coords)[not is_value], how)
    return store_reduction(ctx, out, x.size, dims, value, how, None if is_value else _second)


def arg_extreme(how: str) -> Rule:
    """A rule for argmax and argmin."""

    def rule(ctx: Lowering, x: View, dim: int | None = None, keepdim: bool = False) -> Value:
        if is_zero_sized(x) or x.dtype == BOOL:
            return NotImplemented
        return index_of_extreme(ctx, x, dim, how, ctx.result())

    return rule


def extreme_and_index(how: str) -> Rule:
    """A rule for max.dim and min.dim: the values and their indices, one kernel for each that is used."""

    def rule(ctx: Lowering, x: View, dim: int, keepdim: bool = False) -> Value:
        if is_zero_sized(x):
            return NotImplemented
        values, indices = ctx.metas
        first = index_of_extreme(ctx, x, dim, how, ctx.result(values), is_value=True) if ctx.is_result_used(0) else None
        return first, index_of_extreme(ctx, x, dim, how, ctx.result(indices)) if ctx.is_result_used(1) else None

    return rule


def vector_norm(
    ctx: Lowering, x: View, order: float = 2, dims: Dims = None, keepdim: bool = False, dtype: DType | None = None
) -> Value:
    """Lowers linalg_vector_norm; the orders 2, 1, 0 and the infinite ones need no `pow`.

    The norm of single elements is their absolute value, without a power and a root that would round; NaN passes.
    """

    def one_if_nonzero(value: KernelValue) -> KernelValue:
        return value.op("ne", 0.0).where(1.0, value * 0.0)

    if order != 0 and all(is_one(x.size[d]) for d in wrap_dims(dims, len(x.size))):
        return reduce_over(ctx, x, dims, "max", lambda value: value.op("abs"))
    if math.isinf(order):
        return reduce_over(ctx, x, dims, "max" if order > 0 else "min", lambda value: value.op("abs"))
    if order == 2:
        return reduce_over(ctx, x, dims, "sum", lambda value: value * value, lambda total: total.op("sqrt"))
    if order == 1:
        return reduce_over(ctx, x, dims, "sum", lambda value: value.op("abs"))
    if order == 0:
        return reduce_over(ctx, x, dims, "sum", one_if_nonzero)
    power = float(order)
    return reduce_over(
        ctx, x, dims, "sum", lambda v: v.op("abs").op("pow", power), lambda total: total.op("pow", 1.0 / power)
    )


def pair_distance(ctx: Lowering, x: View, y: View, order: float, mode: int | None = None) -> Value:
    """Lowers _cdist_forward: the norm of the difference of each row of x and each row of y, in one reduction.

    Refuses the Euclidean distance where eager computes it by a matrix product (`mode` 1, or more than 25 rows and not
    `mode` 2), and the infinite order, for which eager's treatment of NaN depends on the position in the row.
    """
    known = [as_int(n) for n in (x.size[-2], y.size[-2], x.size[-1])]
    if any(n is None or n == 0 for n in known) or math.isinf(order):
        return NotImplemented
    if order == 2 and mode != 2 and (mode == 1 or max(n for n in known[:2] if n is not None) > 25):
        return NotImplemented
    out = ctx.result()
    if is_zero_sized(out):
        return NotImplemented
    rank = len(out.size)

    def value(loop: KernelBuilder, at: Coords) -> KernelValue:
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


Values = Callable[[KernelBuilder, Coords], KernelValue]


def keepdim_size(size: Coords, reduced: Sequence[int]) -> tuple[Expr, ...]:
    """The size after a reduction with keepdim=True."""
    return tuple(integer(1) if d in reduced else n for d, n in enumerate(size))


def keepdim_sum(
    ctx: Lowering, size: Coords, reduced: Sequence[int], dtype: DType, value: Values, finish: Finish | None = None
) -> View:
    """The sum of `value` over the `reduced` dimensions with keepdim=True, in a new row-major buffer."""
    return store_reduction(ctx, ctx.buffer(dtype, keepdim_size(size, reduced)), size, reduced, value, "sum", finish)


def mean_and_square_sum(
    ctx: Lowering, x: View, dims: Dims, dtype: DType, *, is_scale: bool = False
) -> tuple[View, View, View, Expr]:
    """The mean over `dims`, the sum of squared distances from it, the uncorrected mean, and the count of elements.

    All are with keepdim=True, in the compute dtype of `dtype`. The method is the corrected two-pass algorithm (Chan,
    Golub and LeVeque, "Algorithms for computing the sample variance", 1983): the difference of two sums would cancel if
    the mean is large compared to the deviation. The second pass also sums the distances themselves. That sum would be 0
    if the mean were not rounded, and corrects the mean and the squares, so that equal values give exactly 0.

    The third result is the first pass's mean. It is nearer to the true mean if the deviation is large, but the squares
    are not distances from it; for float64 it is the corrected mean. If x is narrower than float64 and `dtype` is
    float64, no correction is needed. Nor is it for 16-bit values of a norm (`is_scale`): the squares only scale the
    distances, and x itself is rounded 2**13 times as coarsely as its mean is.
    """
    reduced, compute = wrap_dims(dims, len(x.size)), compute_dtype(dtype)
    size = count(x.size[d] for d in reduced)

    def value(loop: KernelBuilder, at: Coords) -> KernelValue:
        return loop.load(x, at, compute)

    if x.dtype == F64:
        rounded = _mean_from_first(ctx, x, reduced, size)
    else:
        rounded = keepdim_sum(ctx, x.size, reduced, compute, value, lambda s: s / s.size(size))

    def distance(loop: KernelBuilder, at: Coords) -> KernelValue:
        return value(loop, at) - loop.load(rounded, at)

    def square(loop: KernelBuilder, at: Coords) -> KernelValue:
        return distance(loop, at) * distance(loop, at)

    if compute == F64 != x.dtype or (is_scale and x.dtype.itemsize < compute.itemsize):
        return rounded, keepdim_sum(ctx, x.size, reduced, compute, square), rounded, size
    rest, squares = (keepdim_sum(ctx, x.size, reduced, compute, term) for term in (distance, square))

    def each(fn: Callable[[KernelValue, KernelValue, KernelValue], KernelValue]) -> View:
        out = ctx.buffer(compute, rounded.size)
        return ctx.fill(out, lambda loop: fn(*(loop.load(v) for v in (rounded, squares, rest))))

    def corrected(s: KernelValue, r: KernelValue) -> KernelValue:
        return s.number(0.0).op("maximum", s - r / r.size(size) * r)

    if x.dtype != F64:
        mean = each(lambda m, _, r: m + r / r.size(size))
        return mean, each(lambda _, s, r: corrected(s, r)), rounded, size
    # if the squares overflow, the correction may overflow too, and infinity minus infinity would be NaN
    mean = each(lambda m, s, r: s.equals(math.inf).where(m, m + r / r.size(size)))
    return mean, each(lambda _, s, r: s.equals(math.inf).where(s, corrected(s, r))), mean, size


SCALE = 2.0**-64  # keeps a sum of up to 2**64 terms from overflowing; the second pass corrects what it rounds away


def _mean_from_first(ctx: Lowering, x: View, reduced: Sequence[int], size: Expr) -> View:
    """The mean of float64 values; its intermediate results do not overflow, and equal values give exactly their value.

    There is no wider dtype to accumulate float64 in. So the kernel sums scaled distances from each row's first element.
    """

    def first(loop: KernelBuilder, at: Coords) -> KernelValue:
        return loop.load(x, [integer(0) if d in reduced else c for d, c in enumerate(at)], F64) * SCALE

    def term(loop: KernelBuilder, at: Coords) -> KernelValue:
        return loop.load(x, at, F64) * SCALE - first(loop, at)

    total = keepdim_sum(ctx, x.size, reduced, F64, term, lambda s: s / s.size(size))
    out = ctx.buffer(F64, total.size)
    return ctx.fill(out, lambda loop: (loop.load(total) + first(loop, loop.coords)) * (1 / SCALE))


def _second(found: KernelValue) -> KernelValue:
    """The second of the values that a reduction of several values gives."""
    return KernelValue(found.b, found.b.project(found.at, 1))


def to_layout(ctx: Lowering, x: View, meta: TensorMeta, finish: Finish | None = None) -> View:
    """`x` in the dtype and layout of the result `meta`, which may have other dimensions of size 1; through `finish`.

    A view if neither a copy nor `finish` is needed, else one pointwise kernel.
    """
    rank, size, stride = len(meta.size), sizes(meta.size), sizes(meta.stride)
    sources = [s for s in zip(x.size, x.stride, strict=True) if not is_one(s[0])]
    if (
        finish is None
        and meta.dtype == x.dtype
        and [s for n, s in zip(size, stride, strict=True) if not is_one(n)] == [s for _, s in sources]
    ):
        return View(x.ref, x.dtype, size, stride, x.offset)
    out = ctx.result(meta)
    loop = KernelBuilder(out.size)
    indices = [c for n, c in zip(out.size, loop.coords, strict=True) if not is_one(n)]
    assert len(indices) == len(sources) and rank == len(out.size)
    index = x.offset
    for (_, stride), coord in zip(sources, indices, strict=True):
        index = index + stride * coord
    value = loop.term(loop.b.load(x.ref, index, compute_dtype(x.dtype)))
    return ctx.store(loop, out, loop.coords, value if finish is None else finish(value))


def variance_of(ctx: Lowering, squares: View, size: Expr, correction: float, meta: TensorMeta, *, root: bool) -> View:
    """squares / max(size - correction, 0) in the layout of `meta`, or the square root of that."""

    def finish(total: KernelValue) -> KernelValue:
        known = as_int(size)
        if known is not None:
            value = total / max(known - float(correction), 0.0)
        else:
            value = total / (total.size(size) - float(correction)).op("maximum", 0.0)
        return value.op("sqrt") if root else value

    return to_layout(ctx, squares, meta, finish)


def _accumulator(ctx: Lowering, x: View) -> DType:
    """The dtype in which eager accumulates a variance: float64 for float32 and bfloat16 on a CPU.

    The squares of large numbers overflow float32 where the standard deviation does not.
    """
    return F64 if x.dtype in (F32, BF16) and not ctx.env.target.is_gpu else x.dtype


def variance(*, root: bool, with_mean: bool = False) -> Rule:
    """A rule for var.correction, with `root` for std.correction, and `with_mean` for var_mean and std_mean."""

    def rule(ctx: Lowering, x: View, dims: Dims = None, *, correction: float | None = 1, **named: Value) -> Value:
        if is_zero_sized(x):
            return NotImplemented
        first, *rest = ctx.metas if with_mean else (ctx.meta,)
        _, squares, average, size = mean_and_square_sum(ctx, x, dims, _accumulator(ctx, x))
        spread = variance_of(ctx, squares, size, 1 if correction is None else correction, first, root=root)
        if not rest:
            return spread
        return spread, to_layout(ctx, average, rest[0], None if as_int(size) == 1 else infinity_to_nan)

    return rule


def infinity_to_nan(mean: KernelValue) -> KernelValue:
    """NaN for an infinite mean: eager's recurrence continues with the distance from that mean, which is NaN."""
    return mean.op("isinf").where(math.nan, mean)


# --- softmax ------------------------------------------------------------------------------------------------------


def softmax_statistics(ctx: Lowering, x: View, dim: int, dtype: DType) -> tuple[View, View]:
    """The maximum m over a dimension and the sum of exp(x - m), both with keepdim=True."""
    reduced, compute = wrap_dims((dim,), len(x.size)), compute_dtype(dtype)

    def value(loop: KernelBuilder, at: Coords) -> KernelValue:
        return loop.load(x, at, compute)

    top = store_reduction(ctx, ctx.buffer(compute, keepdim_size(x.size, reduced)), x.size, reduced, value, "max")

    def shifted(loop: KernelBuilder, at: Coords) -> KernelValue:
        return (value(loop, at) - loop.load(top, at)).op("exp")

    return top, keepdim_sum(ctx, x.size, reduced, compute, shifted)


def softmax(ctx: Lowering, x: View, dim: int, half_to_float: bool) -> Value:
    """Lowers _softmax: exp(x - max) / sum."""
    if is_zero_sized(x):
        return NotImplemented
    top, total = softmax_statistics(ctx, x, dim, ctx.meta.dtype)
    # A product with the sum's reciprocal would have three times the rounding error. If one probability is almost 1, the
    # gradient cancels, and that error takes most of its digits.
    return ctx.pointwise(lambda x, top, total: (x - top).op("exp") / total, x, top, total)


def log_softmax(ctx: Lowering, x: View, dim: int, half_to_float: bool) -> Value:
    """Lowers _log_softmax: x - max - log(sum)."""
    if is_zero_sized(x):
        return NotImplemented
    top, total = softmax_statistics(ctx, x, dim, ctx.meta.dtype)
    return ctx.pointwise(lambda x, top, total: x - top - total.op("log"), x, top, total)


def softmax_backward(ctx: Lowering, grad: View, y: View, dim: int, dtype: DType) -> Value:
    """Lowers _softmax_backward_data: (grad - sum(grad * y)) * y, where y is the softmax."""
    if is_zero_sized(y):
        return NotImplemented
    compute = compute_dtype(y.dtype)
    along = wrap_dims((dim,), len(y.size))
    dot = keepdim_sum(
        ctx, y.size, along, compute, lambda loop, at: loop.load(grad, at, compute) * loop.load(y, at, compute)
    )
    return ctx.pointwise(lambda g, y, dot: (g - dot) * y, grad, y, dot, compute=y.dtype)


def log_softmax_backward(ctx: Lowering, grad: View, y: View, dim: int, dtype: DType) -> Value:
    """Lowers _log_softmax_backward_data: grad - exp(y) * sum(grad), where y is the log-softmax."""
    if is_zero_sized(y):
        return NotImplemented
    compute = compute_dtype(y.dtype)
    along = wrap_dims((dim,), len(y.size))
    total = keepdim_sum(ctx, y.size, along, compute, lambda loop, at: loop.load(grad, at, compute))
    return ctx.pointwise(lambda g, y, total: g - y.op("exp") * total, grad, y, total, compute=y.dtype)


RULES: Mapping[str, Rule] = {
    **rules_for("sum sum.dim_IntList", total),
    **rules_for("mean mean.dim", mean),
    **rules_for("prod prod.dim_int", product),
    **rules_for("amax max", extreme("max")),
    **rules_for("amin min", extreme("min")),
    "aten.max.dim": extreme_and_index("argmax"),
    "aten.min.dim": extreme_and_index("argmin"),
    "aten.argmax.default": arg_extreme("argmax"),
    "aten.argmin.default": arg_extreme("argmin"),
    **rules_for("any any.dim any.dims", any_or_all("any")),
    **rules_for("all all.dim all.dims", any_or_all("all")),
    "aten.linalg_vector_norm.default": vector_norm,
    "aten._cdist_forward.default": pair_distance,
    "aten.var.correction": variance(root=False),
    "aten.std.correction": variance(root=True),
    "aten.var_mean.correction": variance(root=False, with_mean=True),
    "aten.std_mean.correction": variance(root=True, with_mean=True),
    "aten._softmax.default": softmax,
    "aten._log_softmax.default": log_softmax,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten._log_softmax_backward_data.default": log_softmax_backward,
}
