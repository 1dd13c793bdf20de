"""Rows that start at any element of memory: a bulk that starts at a multiple of a vector, and the edges beside it.

Takes ops of a kernel, and a tile loop that is `aligned`. Gives where rows start, which accesses are aligned together,
and the reason why a loop may not be aligned. Refuses nothing.

A row of N elements whose first element is number `start` of its storage has `head = -start mod V` elements in front of
the first multiple of V. The bulk is the `(N - head) // V * V` elements from there on. The edges are the elements before
and behind it, fewer than V on each side. The bulk is a block of memory that a GPU moves in whole vectors.

>>> [bulk(head, 20, 8) for head in (0, 4, 5)], most_in_bulk(20, 8)
([16, 16, 8], 16)
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.expressions.bounds import divides
from minductor.core.expressions.expr import Expr, Symbol, as_int, expand, free_symbols, substitute
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.nodes import Atomic, Body, Check, Kernel, Load, Op, Scan, Store, all_ops


def bulk(head: int, length: int, vector: int) -> int:
    """The elements of the bulk of a row with so many elements before it."""
    return (length - head) // vector * vector


def most_in_bulk(length: int, vector: int) -> int:
    """The most elements of the bulk of a row, wherever the row starts."""
    return bulk(0, length, vector)


def edge_block(vector: int) -> int:
    """The elements of a block that holds both edges of a row, a power of two."""
    return 2 * vector


def row_start(op: Op, axis: Symbol) -> Expr | None:
    """The first element of a row that a load or store touches along an axis; None if it is not contiguous."""
    if not isinstance(op.attrs, Load | Store):
        return None
    index = expand(op.attrs.index)
    start = substitute(index, {axis: 0})
    is_contiguous = axis in free_symbols(index) and as_int(expand(index - start - axis)) == 0
    return start if is_contiguous and all(s.kind != "value" for s in free_symbols(start)) else None


def is_aligned_with(index: Expr, axis: Symbol, start: Expr, vector: int) -> bool:
    """Whether an index runs along rows that start as far from a multiple of `vector` as the row at `start` does."""
    apart = expand(index - start - axis)
    return axis not in free_symbols(apart) and divides(vector, apart)


def objection(kernel: Kernel, loop: Loop, around: Sequence[Step]) -> str:
    """Why bulk and edges of an aligned loop do not hold each element of its row once; "" if they do.

    `around`: the steps of the kernel, or of its part of a bundle, in which the loop stands.
    """
    axis = next(axis for axis in kernel.axes if axis.name == loop.axis)
    length, vector, ops = as_int(axis.extent), loop.aligned, kernel.body.ops
    others = [other for other in loops(around) if other is not loop]
    inside = [ops[p] for p in positions(loop.body)]
    reference = ops[loop.reference] if loop.reference in loop.body else None
    start = None if reference is None else row_start(reference, axis.symbol)
    if length is None:
        return "only the call knows its length"
    if vector < 2 or vector & (vector - 1):
        return f"{vector} elements are no vector"
    if length < vector:
        return "an element may be in both edges"
    if loop.block < most_in_bulk(length, vector):
        return f"a block of {loop.block} does not hold its bulk"
    if loop.kind != "tile" or any(other.kind != "grid" or other.block > 1 for other in others):
        return "one program computes more than one row"
    if kernel.schedule is not None and kernel.schedule.dots:
        return "a matrix product is computed in blocks"
    if start is None or all(s.kind != "axis" for s in free_symbols(start)):
        return f"%{loop.reference} runs along no rows"
    return next((text for op in inside if (text := _objection_to(op, axis.symbol))), "")


def _objection_to(op: Op, axis: Symbol) -> str:
    """Why an op cannot be computed for the bulk and then for the edges; "" if it can."""
    if isinstance(op.attrs, Scan):
        return "a scan runs in order"
    if op.reduced_axes and op.reduced_axes != (axis.name,):
        return "another axis is reduced too"
    for inner in all_ops(Body((op,))):
        if isinstance(inner.attrs, Atomic):
            return "an atomic may add each element"
        if isinstance(inner.attrs, Check) and axis.name in inner.axes:
            return "an index along the row is checked"
        if isinstance(inner.attrs, Load | Store) and axis.name in op.axes and not _is_even(inner.attrs, axis):
            return "the elements of a row are not evenly apart"
    return ""


def _is_even(access: Load | Store, axis: Symbol) -> bool:
    """Whether the elements that a load or store touches along an axis are equally far apart; for a store, not in one
    place.
    """
    index = expand(access.index)
    step = as_int(expand(substitute(index, {axis: axis + 1}) - index))
    return step is not None and (step != 0 or isinstance(access, Load))
