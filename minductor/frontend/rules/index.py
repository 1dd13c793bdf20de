"""Rules of gathers, that is, of reads at indices that are data.

- embedding, gather, index_select, index (`x[i, :, j]`), take, _unsafe_masked_index
- nll_loss_forward and _backward, nll_loss2d: the losses that pick an element by a class

Writes at such indices are in `scatter.py`.

Takes a tensor and index tensors. Gives one pointwise kernel over the result, which checks each index against the size
of its dimension; one out of range makes the call raise eager's kind of error. Refuses (to an extern call) masks as
indices, whose result size only the data tell, and tensors without elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from minductor.core.dtypes import BOOL, I64, U8, compute_dtype
from minductor.core.expressions.expr import Expr, integer
from minductor.frontend.capture.size_formulas import count, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Coords, Operand, Rule, Value, broadcast, rules_for, wrap_dim
from minductor.ir.program.nodes import ErrorKind, View

Indices: TypeAlias = "Sequence[View | None]"


def checked_index(
    loop: KernelBuilder, index: View, at: Coords, size: Expr, dim: int, *, wrap: bool, error: ErrorKind = "IndexError"
) -> Expr:
    """The element of `index` at the coordinates `at`, as an index into dimension `dim` of that size.

    With `wrap` negative indices count from the end. The call raises `error`, as eager does, if it is out of range.
    """
    return loop.b.check(loop.load(index, at, I64).at, size, wrap=wrap, error=error, dim=dim)


def embedding(ctx: Lowering, table: View, ids: View, *ignored: Value, **named: Value) -> Value:
    """Lowers embedding: table[ids]; the other arguments concern the gradient only."""
    if any(is_zero(n) for n in table.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        *outer, column = loop.coords
        return loop.load(table, [checked_index(loop, ids, outer, table.size[0], 0, wrap=False), column])

    return ctx.map(fn)


def at_least_1d(x: View) -> View:
    """A 0-dim tensor as a view of one dimension of size 1, as which torch indexes it; others unchanged."""
    return x if x.size else replace(x, size=(integer(1),), stride=(integer(1),))


def replace_coord(loop: KernelBuilder, dim: int, at: Expr) -> list[Expr]:
    """The loop's coordinates with `at` in place of that of dimension `dim`; of a 0-dim loop `at` alone."""
    return [at if d == dim else c for d, c in enumerate(loop.coords or (at,))]


def gather(ctx: Lowering, x: View, dim: int, index: View, sparse_grad: Value = None) -> Value:
    """Lowers gather: x[.., index[c], ..] for each point c of `index`. Negative indices raise, as in eager."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    x, along = at_least_1d(x), wrap_dim(dim, len(x.size))

    def fn(loop: KernelBuilder) -> KernelValue:
        at = checked_index(loop, index, loop.coords, x.size[along], along, wrap=False, error="RuntimeError")
        return loop.load(x, replace_coord(loop, along, at))

    return ctx.map(fn)


def index_select(ctx: Lowering, x: View, dim: int, index: View) -> Value:
    """Lowers index_select: the slices x[.., index[k], ..] in order of k. Negative indices raise, as in eager."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    x, index, along = at_least_1d(x), at_least_1d(index), wrap_dim(dim, len(x.size))
    error: ErrorKind = "RuntimeError" if along == 1 else "IndexError"  # eager has another function for dim 1

    def fn(loop: KernelBuilder) -> KernelValue:
        which = loop.coords[along] if loop.coords else integer(0)
        at = checked_index(loop, index, (which,), x.size[along], along, wrap=False, error=error)
        return loop.load(x, replace_coord(loop, along, at))

    return ctx.map(fn)


def index_tensors(ctx: Lowering, x: View, indices: Indices) -> Value:
    """Lowers index, `x[i, :, j]` with None for `:`; index tensors broadcast; negative indices count from the end."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    masks = any(i.dtype in (BOOL, U8) for _, i in given)
    if not given or masks or any(is_zero(n) for n in x.size):
        return NotImplemented
    rank, first = max(len(i.size) for _, i in given), index_position(indices)
    return ctx.map(lambda loop: loop.load(x, indexed_coords(loop, indices, x.size, first, rank)))


def index_position(indices: Indices) -> int:
    """The dimension of the result at which the broadcast dimensions of the index tensors begin.

    As in numpy's advanced indexing: at the first indexed dimension if the indexed ones are adjacent, else in front.
    """
    dims = [d for d, index in enumerate(indices) if index is not None]
    return dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0


def indexed_coords(loop: KernelBuilder, indices: Indices, size: Coords, first: int, rank: int) -> list[Expr]:
    """The coordinates in the indexed tensor of that size for the loop's current point of the result.

    `rank` of the loop's coordinates, from `first` on, address the index tensors; the others address the dimensions that
    are not indexed, in order.
    """
    shared = loop.coords[first : first + rank]
    rest = [*loop.coords[:first], *loop.coords[first + rank :]]
    at: list[Expr] = []
    for d, n in enumerate(size):
        index = indices[d] if d < len(indices) else None
        at.append(rest.pop(0) if index is None else checked_index(loop, index, shared, n, d, wrap=True))
    return at


def unsafe_masked_index(ctx: Lowering, x: View, mask: View, indices: Indices, fill: Operand) -> Value:
    """Lowers _unsafe_masked_index: x[indices] where the mask is true, else `fill`.

    An index whose mask is false is not checked.
    """
    if any(i is None for i in indices) or len(indices) != len(x.size) or any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        holds = loop.load(mask)
        at = [masked_index(loop, holds, i, x.size[d], d) for d, i in enumerate(indices) if i is not None]
        return holds.where(loop.load(x, at), loop.load(fill, (), x.dtype))

    return ctx.map(fn)


def masked_index(loop: KernelBuilder, holds: KernelValue, index: View, size: Expr, dim: int) -> Expr:
    """The checked index where the condition `holds`, else 0."""
    wanted = loop.load(index, None, I64)
    return loop.b.check(holds.where(wanted, wanted.number(0)).at, size, wrap=True, dim=dim)


def take(ctx: Lowering, x: View, index: View) -> Value:
    """Lowers take: x.flatten()[index], where elements are numbered row-major whatever the strides are."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        return loop.load(x, unravel(checked_index(loop, index, loop.coords, count(x.size), 0, wrap=True), x.size))

    return ctx.map(fn)


def ravel(coords: Coords, size: Coords) -> Expr:
    """The row-major number of the element at `coords` in a tensor of that size (numpy's ravel_multi_index)."""
    number = integer(0)
    for c, n in zip(coords, size, strict=True):
        number = number * n + c
    return number


def unravel(number: Expr, size: Coords) -> list[Expr]:
    """The coordinates of the element with that row-major number in a tensor of that size (numpy's unravel_index)."""
    at: list[Expr] = []
    for n in reversed(size):
        at.insert(0, number % n)
        number = number // n
    return at


# --- losses that pick a class --------------------------------------------------------------------------------------


def _class_weight(loop: KernelBuilder, weight: View | None, at: Expr, like: KernelValue) -> KernelValue:
    """The weight of class `at`, in the dtype of `like`; 1 without weights."""
    return like.number(1) if weight is None else loop.load(weight, (at,)).cast(like.dtype)


def nll_loss_forward(ctx: Lowering, x: View, target: View, weight: View | None, reduction: int, ignored: int) -> Value:
    """Lowers nll_loss_forward and nll_loss2d_forward: -weight[t] * x[n, t] with t = target[n], and the sum of weights.

    Classes are dimension 1. Without a reduction it is one pointwise kernel; a sum or a mean takes one reduction for the
    losses and one for the weights. A target equal to `ignored` counts for nothing; it reads class 0, so that no index
    is out of range.
    """
    if any(is_zero(n) for n in x.size) or target.dtype not in (I64, U8):
        return NotImplemented
    metas = ctx.metas
    compute = compute_dtype(x.dtype)
    axis = min(1, len(x.size) - 1)
    rows = (*x.size[:axis], *x.size[axis + 1 :])

    def picked(loop: KernelBuilder, coords: Coords) -> tuple[KernelValue, KernelValue]:
        """The loss of one row, and the weight of its class."""
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
    """Lowers nll_loss_backward and nll_loss2d_backward: a pointwise kernel, which is 0 but in the target's class.

    Each element compares its class with the target, so that no scatter is needed.
    """
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


RULES: Mapping[str, Rule] = {
    "aten.embedding.default": embedding,
    "aten.gather.default": gather,
    "aten.index_select.default": index_select,
    **rules_for("index.Tensor _unsafe_index.Tensor", index_tensors),
    "aten._unsafe_masked_index.default": unsafe_masked_index,
    "aten.take.default": take,
    **rules_for("nll_loss_forward nll_loss2d_forward", nll_loss_forward),
    **rules_for("nll_loss_backward nll_loss2d_backward", nll_loss_backward),
}
