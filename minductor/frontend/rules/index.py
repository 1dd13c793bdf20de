"""Reads at places that data decides: embedding, gather, indexing, and the losses that pick a class.

Takes index tensors. Gives kernels whose index values are checked against the dimension (`check` sets the error flag, so
that the call raises as eager does). Refuses (to an extern call) masks as indices and tensors without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from minductor.core.dtypes import BOOL, I64, U8, compute_dtype
from minductor.core.expressions.expr import Expr, integer
from minductor.frontend.capture.size_formulas import count, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Operand, Value, broadcast, wrap_dim
from minductor.ir.program.nodes import ErrorKind, View

Rule = Callable[..., Value]
Coords = Sequence[Expr]


def checked_index(
    loop: KernelBuilder,
    index: View,
    coords: Coords,
    size: Expr,
    dim: int,
    *,
    wrap: bool,
    error: ErrorKind = "IndexError",
) -> Expr:
    """An index tensor's element as an index into a dimension of that size; eager raises `error` if it is none."""
    return loop.b.check(loop.load(index, coords, I64).at, size, wrap=wrap, error=error, dim=dim)


def embedding(ctx: Lowering, table: View, ids: View, *ignored: Value, **named: Value) -> Value:
    if any(is_zero(n) for n in table.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        *outer, column = loop.coords
        return loop.load(table, [checked_index(loop, ids, outer, table.size[0], 0, wrap=False), column])

    return ctx.map(fn)


def at_least_1d(x: View) -> View:
    """A tensor without dimensions as one of a single element, as which torch indexes it."""
    return x if x.size else replace(x, size=(integer(1),), stride=(integer(1),))


def replace_coord(loop: KernelBuilder, dim: int, at: Expr) -> list[Expr]:
    """The loop's point with `at` in one dimension."""
    return [at if d == dim else c for d, c in enumerate(loop.coords or (at,))]


def gather(ctx: Lowering, x: View, dim: int, index: View, sparse_grad: Value = None) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    x, along = at_least_1d(x), wrap_dim(dim, len(x.size))

    def fn(loop: KernelBuilder) -> KernelValue:
        at = checked_index(loop, index, loop.coords, x.size[along], along, wrap=False, error="RuntimeError")
        return loop.load(x, replace_coord(loop, along, at))

    return ctx.map(fn)


def index_select(ctx: Lowering, x: View, dim: int, index: View) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    x, index, along = at_least_1d(x), at_least_1d(index), wrap_dim(dim, len(x.size))
    error: ErrorKind = "RuntimeError" if along == 1 else "IndexError"  # eager has a function of its own for dimension 1

    def fn(loop: KernelBuilder) -> KernelValue:
        which = loop.coords[along] if loop.coords else integer(0)
        at = checked_index(loop, index, (which,), x.size[along], along, wrap=False, error=error)
        return loop.load(x, replace_coord(loop, along, at))

    return ctx.map(fn)


def index_tensors(ctx: Lowering, x: View, indices: Sequence[View | None]) -> Value:
    """x[i, :, j]: the indices broadcast; their dimensions stand where the first one was, or in front if parted."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    masks = any(i.dtype in (BOOL, U8) for _, i in given)
    if not given or masks or any(is_zero(n) for n in x.size):
        return NotImplemented
    rank, first = max(len(i.size) for _, i in given), index_position(indices)
    return ctx.map(lambda loop: loop.load(x, indexed_coords(loop, indices, x.size, first, rank)))


def index_position(indices: Sequence[View | None]) -> int:
    """Where the dimensions of the indices stand among those of what is indexed."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    return dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0


def indexed_coords(
    loop: KernelBuilder, indices: Sequence[View | None], size: Coords, first: int, rank: int
) -> list[Expr]:
    """The place that a loop's point names, whose coordinates from `first` on, `rank` of them, are those of indices."""
    shared = loop.coords[first : first + rank]
    rest = [*loop.coords[:first], *loop.coords[first + rank :]]
    at: list[Expr] = []
    for d, n in enumerate(size):
        index = indices[d] if d < len(indices) else None
        at.append(rest.pop(0) if index is None else checked_index(loop, index, shared, n, d, wrap=True))
    return at


def unsafe_masked_index(ctx: Lowering, x: View, mask: View, indices: Sequence[View | None], fill: Operand) -> Value:
    """x[indices] where the mask holds, else `fill`; an index that is masked out may be anything."""
    if any(i is None for i in indices) or len(indices) != len(x.size) or any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        holds = loop.load(mask)
        at = [masked_index(loop, holds, i, x.size[d], d) for d, i in enumerate(indices) if i is not None]
        return holds.where(loop.load(x, at), loop.load(fill, (), x.dtype))

    return ctx.map(fn)


def masked_index(loop: KernelBuilder, holds: KernelValue, index: View, size: Expr, dim: int) -> Expr:
    """An index where the condition holds, else 0."""
    wanted = loop.load(index, None, I64)
    return loop.b.check(holds.where(wanted, wanted.number(0)).at, size, wrap=True, dim=dim)


def take(ctx: Lowering, x: View, index: View) -> Value:
    """An element by its number in row-major order, whatever the layout."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        return loop.load(x, unravel(checked_index(loop, index, loop.coords, count(x.size), 0, wrap=True), x.size))

    return ctx.map(fn)


def ravel(coords: Coords, size: Coords) -> Expr:
    """The row-major number of the element at `coords` of a tensor of that size."""
    number = integer(0)
    for c, n in zip(coords, size, strict=True):
        number = number * n + c
    return number


def unravel(number: Expr, size: Coords) -> list[Expr]:
    """The coordinates of the element with that number in row-major order."""
    at: list[Expr] = []
    for n in reversed(size):
        at.insert(0, number % n)
        number = number // n
    return at


# --- the class that a target names ---------------------------------------------------------------------------------


def _class_weight(loop: KernelBuilder, weight: View | None, at: Expr, like: KernelValue) -> KernelValue:
    return like.number(1) if weight is None else loop.load(weight, (at,)).cast(like.dtype)


def nll_loss_forward(ctx: Lowering, x: View, target: View, weight: View | None, reduction: int, ignored: int) -> Value:
    """-x[n, target[n]], weighted, the classes along dimension 1.

    A target that is to be ignored reads class 0 and counts for nothing.
    """
    if any(is_zero(n) for n in x.size) or target.dtype not in (I64, U8):
        return NotImplemented
    metas = ctx.metas
    compute = compute_dtype(x.dtype)
    axis = min(1, len(x.size) - 1)
    rows = (*x.size[:axis], *x.size[axis + 1 :])

    def picked(loop: KernelBuilder, coords: Coords) -> tuple[KernelValue, KernelValue]:
        """The loss of a row and its weight."""
        wanted = loop.load(target, broadcast(target, coords) if target.size else (), I64)
        counts = wanted.op("ne", ignored)
        at = loop.b.check(counts.where(wanted, wanted.number(0)).at, x.size[axis], wrap=False, dim=axis)
        value = loop.load(x, [*coords[:axis], at, *coords[axis:]], compute)
        share = _class_weight(loop, weight, at, value)
        return counts.where(-value if weight is None else -(value * share), 0.0), counts.where(share, 0.0)

    if reduction == 0:
        loss = ctx.map(lambda loop: picked(loop, loop.coords)[0], metas[0])
        return loss, ctx.pointwise(lambda z: z, 0, meta=metas[1])
    every = tuple(range(len(rows)))
    total = store_reduction(ctx, ctx.buffer(compute, ()), rows, every, lambda loop, at: picked(loop, at)[0], "sum")
    count = store_reduction(ctx, ctx.result(metas[1]), rows, every, lambda loop, at: picked(loop, at)[1], "sum")
    if reduction == 1:
        return ctx.pointwise(lambda t, n: t / n, total, count, meta=metas[0]), count
    return ctx.pointwise(lambda t: t, total, meta=metas[0]), count


def nll_loss_backward(
    ctx: Lowering,
    grad: View,
    x: View,
    target: View,
    weight: View | None,
    reduction: int,
    ignored: int,
    total_weight: View,
) -> Value:
    """The gradient is zero but in the class of the target: a comparison, no scatter."""
    compute = compute_dtype(x.dtype)

    def fn(loop: KernelBuilder) -> KernelValue:
        axis = min(1, len(x.size) - 1)
        rows, column = [*loop.coords[:axis], *loop.coords[axis + 1 :]], loop.coords[axis]
        wanted = loop.load(target, rows if target.size else (), I64)
        is_hit = wanted.equals(loop.index(column, I64)).both(wanted.op("ne", ignored))
        slope = -loop.load(grad, rows if grad.size else (), compute)
        if reduction == 1:
            slope = slope / loop.load(total_weight, (), compute)
        if weight is not None:
            slope = slope * loop.load(weight, (column,), compute)
        return is_hit.where(slope, 0.0)

    return ctx.map(fn)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.embedding.default": embedding,
        "aten.gather.default": gather,
        "aten.index_select.default": index_select,
        "aten.index.Tensor": index_tensors,
        "aten._unsafe_index.Tensor": index_tensors,
        "aten._unsafe_masked_index.default": unsafe_masked_index,
        "aten.take.default": take,
        "aten.nll_loss_forward.default": nll_loss_forward,
        "aten.nll_loss_backward.default": nll_loss_backward,
        "aten.nll_loss2d_forward.default": nll_loss_forward,
        "aten.nll_loss2d_backward.default": nll_loss_backward,
    }
)
