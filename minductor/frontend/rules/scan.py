"""Running sums, products, extremes and log-sum-exps: what stands so far of a reduction, at each element of a dimension.

Takes tensors and a dimension. Gives one kernel a result, whose `Scan` carries what eager carries: float64 for float32,
float32 for 16-bit floats, the result's dtype for integers. `scan` takes any combine of several values, for the
operators that bring one of their own. Refuses (to an extern call) running sums and products of bools, which eager
refuses too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from minductor.core.dtypes import BOOL, I64, U8, DType, accumulate_dtype, compute_dtype
from minductor.core.expressions.expr import Expr, Symbol, as_expr, as_int, integer, maximum
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Value, is_zero_sized, wrap_dim
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Combine, View

LONG = 1 << 16  # elements of a row: cut in blocks that are scanned in parallel, if there are
FEW = 16  # rows or fewer
BLOCK = 4096  # elements, about

Rule = Callable[..., Value]
Given = Callable[[KernelBuilder, Sequence[Expr]], Sequence[KernelValue]]


def scan(
    ctx: Lowering, views: Sequence[View], dim: int, how: Combine, metas: Sequence[TensorMeta], *, reverse: bool = False
) -> tuple[View, ...]:
    """Inclusive prefixes of k values joined by `how`, one result for each of `metas`; all views have one size.

    `how` takes what is carried, then the element's values, in the views' compute dtypes.
    """

    def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Sequence[KernelValue]:
        return [loop.load(view, coords) for view in views]

    return tuple(_carried(ctx, meta, dim, how, n, given, reverse=reverse) for n, meta in enumerate(metas))


def _carried(
    ctx: Lowering, meta: TensorMeta, dim: int, how: Combine, number: int, given: Given, *, reverse: bool = False
) -> View:
    """The number-th carried value of the scan of what `given` loads, in the layout of `meta`."""
    out = ctx.result(meta)
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    loop = KernelBuilder(out.size)
    values = given(loop, loop.coords)
    # a number is its own scan, and on a GPU so is one element: eager begins with it there, and with 0 on a CPU
    is_own = not out.size or (
        ctx.device.partition(":")[0] == "cuda" and as_int(out.size[wrap_dim(dim, len(out.size))]) == 1
    )
    if not is_own:
        values = _joined(loop, values, loop.coords[wrap_dim(dim, len(out.size))], how, reverse=reverse)
    return ctx.store(loop, out, loop.coords, values[number])


def _joined(
    loop: KernelBuilder, values: Sequence[KernelValue], along: Expr, how: Combine, *, reverse: bool
) -> Sequence[KernelValue]:
    b = loop.b
    if isinstance(along, Symbol):
        made = b.scan([v.at for v in values], along.name, how, reverse=reverse)
        return [loop.term(b.project(made, n)) for n in range(len(values))]
    # one element: it is joined to the identity, which tells -0.0 from the sum of nothing and -0.0
    first = [b.constant(i, v.dtype) for i, v in zip(how.identity, values, strict=True)]
    places = b.splice(how.body, {}, parameters=[*first, *(v.at for v in values)])
    return [loop.term(places[r]) for r in how.body.results]


def running(name: str) -> Rule:
    """cumsum and cumprod, of elements converted to the result's dtype first."""

    def rule(ctx: Lowering, x: View, dim: int, dtype: DType | None = None) -> Value:
        result = ctx.meta.dtype
        if result == BOOL:
            return NotImplemented
        carried = accumulate_dtype(result) if x.size else compute_dtype(result)

        def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Sequence[KernelValue]:
            return [loop.load(x, coords).cast(result).cast(carried)]

        along = wrap_dim(dim, len(x.size))
        # a product within a block overflows where that of the whole row is small
        is_safe = name != "prod" or result.kind != "float"
        block = _block(x, along) if is_safe else None
        if block is None:
            return _carried(ctx, ctx.meta, dim, combine(name, carried), 0, given)
        return _in_blocks(ctx, x.size, along, block, name, carried, given)

    return rule


# --- long rows


def _block(x: View, along: int) -> int | None:
    """The elements of a block, if x is a few long rows that equal blocks fill: they are scanned in parallel."""
    sizes = [as_int(n) for n in x.size]
    length = sizes[along] if sizes else None
    rows = math.prod(n or 1 for d, n in enumerate(sizes) if d != along)
    if length is None or None in sizes or length < LONG or rows >= FEW or x.stride[along] not in (1, -1):
        return None
    lengths = (n for n in range(BLOCK // 4, BLOCK * 4) if length % n == 0 and length // n >= FEW)
    return min(lengths, key=lambda n: abs(n - BLOCK), default=None)


def _in_blocks(
    ctx: Lowering, size: Sequence[Expr], along: int, block: int, name: str, dtype: DType, given: Given
) -> View:
    """Joins each block, scans what the blocks give, and then each block, joined to what the blocks before it give."""
    cut = [*size[:along], size[along] // block, integer(block), *size[along + 1 :]]

    def element(loop: KernelBuilder, at: Sequence[Expr]) -> Sequence[KernelValue]:
        return given(loop, [*at[:along], at[along] * block + at[along + 1], *at[along + 2 :]])

    how = combine(name, dtype)
    totals = ctx.buffer(dtype, [*cut[: along + 1], *cut[along + 2 :]])
    totals = store_reduction(ctx, totals, cut, (along + 1,), element, name)
    loop = KernelBuilder(totals.size)
    (total,) = _joined(loop, [loop.load(totals)], loop.coords[along], how, reverse=False)
    ends = ctx.store(loop, ctx.buffer(dtype, totals.size), loop.coords, total)

    out = ctx.result()
    loop = KernelBuilder(cut)
    at = loop.coords
    (inside,) = _joined(loop, element(loop, at), at[along + 1], how, reverse=False)
    before = loop.load(ends, [*at[:along], maximum(at[along] - 1, 0), *at[along + 2 :]])
    start = loop.index(at[along], I64).op("gt", 0).where(before, loop.term(loop.b.constant(how.identity[0], dtype)))
    places = loop.b.splice(how.body, {}, parameters=[start.at, inside.at])
    whole = [*at[:along], at[along] * block + at[along + 1], *at[along + 2 :]]
    return ctx.store(loop, out, whole, loop.term(places[how.body.results[0]]))


def running_log_sum(ctx: Lowering, x: View, dim: int) -> Value:
    """logcumsumexp: the maximum so far, and the logarithm of the sum of what all are beside it."""
    if ctx.meta.dtype.kind != "float":  # the call raises
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
    most, total = _joined(loop, [element, one], along, combine("logsumexp", carried), reverse=False)
    return ctx.store(loop, out, loop.coords, most.op("add", total.op("log")))


def running_extreme(name: str) -> Rule:
    """cummax and cummin: the value, and where the last one of its equals so far stands; a NaN beats every number."""

    def rule(ctx: Lowering, x: View, dim: int) -> Value:
        carried = U8 if x.dtype == BOOL else compute_dtype(x.dtype)

        def given(loop: KernelBuilder, coords: Sequence[Expr]) -> Sequence[KernelValue]:
            place = coords[wrap_dim(dim, len(coords))] if coords else 0
            return [loop.load(x, coords).cast(carried), loop.index(as_expr(place), I64)]

        how = combine(name, carried)
        return tuple(
            _carried(ctx, meta, dim, how, n, given) if ctx.is_result_used(n) else None
            for n, meta in enumerate(ctx.metas)
        )

    return rule


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.cumsum.default": running("sum"),
        "aten.cumprod.default": running("prod"),
        "aten.logcumsumexp.default": running_log_sum,
        "aten.cummax.default": running_extreme("last_max"),
        "aten.cummin.default": running_extreme("last_min"),
    }
)
