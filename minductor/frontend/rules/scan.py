"""Rules of scans: cumsum, cumprod, logcumsumexp, cummax and cummin.

Takes a tensor and a dimension. Gives one kernel per result with a `Scan` op along that dimension; the accumulator has
eager's dtype: float64 for float32, float32 for 16-bit floats, the result's dtype for integers. Refuses (to an extern
call) cumsum and cumprod with a bool result, for which eager raises too.

`scan` takes any combine function of several values, for operators that have one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minductor.core.dtypes import BOOL, I64, U8, DType, accumulate_dtype, compute_dtype
from minductor.core.expressions.expr import Expr, Symbol, as_expr, as_int
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value, is_zero_sized, wrap_dim
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Combine, View

Values = Sequence[KernelValue]
Given = Callable[[KernelBuilder, Sequence[Expr]], Values]


def scan(
    ctx: Lowering, views: Sequence[View], dim: int, how: Combine, metas: Sequence[TensorMeta], *, reverse: bool = False
) -> tuple[View, ...]:
    """The inclusive scan of k tensors of one size by the combine function `how`; one kernel and result per `metas`.

    `how` takes the k accumulated values, then the k values of the next element, in the views' compute dtypes.
    """

    def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Values:
        return [loop.load(view, coords) for view in views]

    return tuple(_scan_kernel(ctx, meta, dim, how, n, given, reverse=reverse) for n, meta in enumerate(metas))


def _scan_kernel(
    ctx: Lowering, meta: TensorMeta, dim: int, how: Combine, number: int, given: Given, *, reverse: bool = False
) -> View:
    """A kernel that scans the values that `given` loads, and stores value number `number` in the layout of `meta`."""
    out = ctx.result(meta)
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    loop = KernelBuilder(out.size)
    values = given(loop, loop.coords)
    # A 0-dim tensor is its own scan. A single element is so on a GPU, where eager starts with it; on a CPU eager starts
    # with 0, which turns -0.0 into 0.0.
    is_own_scan = not out.size or (
        ctx.device.partition(":")[0] == "cuda" and as_int(out.size[wrap_dim(dim, len(out.size))]) == 1
    )
    if not is_own_scan:
        values = _scanned(loop, values, loop.coords[wrap_dim(dim, len(out.size))], how, reverse=reverse)
    return ctx.store(loop, out, loop.coords, values[number])


def _scanned(loop: KernelBuilder, values: Values, along: Expr, how: Combine, *, reverse: bool) -> Values:
    """The scanned values at the loop's current point; `along` is the coordinate of the scanned dimension."""
    b = loop.b
    if isinstance(along, Symbol):
        made = b.scan([v.at for v in values], along.name, how, reverse=reverse)
        return [loop.term(b.project(made, n)) for n in range(len(values))]
    # A dimension of size 1 has no axis: the element is combined with the identity, since 0.0 + -0.0 is 0.0.
    first = [b.constant(i, v.dtype) for i, v in zip(how.identity, values, strict=True)]
    places = b.splice(how.body, {}, parameters=[*first, *(v.at for v in values)])
    return [loop.term(places[r]) for r in how.body.results]


def cumulative(name: str) -> Rule:
    """A rule for cumsum and cumprod; as in eager, elements are cast to the result's dtype first."""

    def rule(ctx: Lowering, x: View, dim: int, dtype: DType | None = None) -> Value:
        result = ctx.meta.dtype
        if result == BOOL:
            return NotImplemented
        carried = accumulate_dtype(result) if x.size else compute_dtype(result)

        def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Values:
            return [loop.load(x, coords).cast(result).cast(carried)]

        return _scan_kernel(ctx, ctx.meta, dim, combine(name, carried), 0, given)

    return rule


def log_cumulative_sum_exp(ctx: Lowering, x: View, dim: int) -> Value:
    """Lowers logcumsumexp: carries the maximum m and the sum of exp(x - m), and stores m + log(sum)."""
    if ctx.meta.dtype.kind != "float":  # eager raises
        return NotImplemented
    out, carried = ctx.result(), accumulate_dtype(ctx.meta.dtype)
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    loop = KernelBuilder(out.size)
    element = loop.load(x).cast(carried)
    if not out.size:
        return ctx.store(loop, out, loop.coords, element)
    one = loop.term(loop.b.constant(1.0, carried))
    along = loop.coords[wrap_dim(dim, len(out.size))]
    most, total = _scanned(loop, [element, one], along, combine("logsumexp", carried), reverse=False)
    return ctx.store(loop, out, loop.coords, most.op("add", total.op("log")))


def cumulative_extreme(name: str) -> Rule:
    """A rule for cummax and cummin: values and indices, a kernel for each that is used.

    As in eager, NaN beats every number, and of equal elements so far the last one's index is given.
    """

    def rule(ctx: Lowering, x: View, dim: int) -> Value:
        carried = U8 if x.dtype == BOOL else compute_dtype(x.dtype)

        def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Values:
            place = coords[wrap_dim(dim, len(coords))] if coords else 0
            return [loop.load(x, coords).cast(carried), loop.index(as_expr(place), I64)]

        how = combine(name, carried)
        return tuple(
            _scan_kernel(ctx, meta, dim, how, n, given) if ctx.is_result_used(n) else None
            for n, meta in enumerate(ctx.metas)
        )

    return rule


RULES: Mapping[str, Rule] = {
    "aten.cumsum.default": cumulative("sum"),
    "aten.cumprod.default": cumulative("prod"),
    "aten.logcumsumexp.default": log_cumulative_sum_exp,
    "aten.cummax.default": cumulative_extreme("last_max"),
    "aten.cummin.default": cumulative_extreme("last_min"),
}
