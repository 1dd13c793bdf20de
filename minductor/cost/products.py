"""What fusion into a matrix product costs: whether it still is one, and how often its operands are computed.

Takes the kernels before and after a fusion. Gives the reason why the fusion does not pay, and the number of blocks of a
product. Refuses nothing: a kernel without products has no objection and no blocks.

A program of a GPU computes one block of the result, from a block of rows of one operand and a block of columns of the
other. So what it computes for an element of an operand (a prologue) is repeated for each block along the other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.core.expressions.expr import Expr
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.dots import Dots, find_dots
from minductor.ir.program.nodes import Kernel, Reduce
from minductor.ir.program.ops import op_cost

KEPT = 16  # repeated operations for each element that cost as much as writing and reading it, 4 bytes each
BLOCK = 64  # rows or columns of a block of the result, as it is assumed here


def product_objection(kernels: Sequence[Kernel], joined: Kernel, hints: Hints) -> str | None:
    """The reason, shown to the user, why `kernels` should not become `joined`; None if they may."""
    if all(find_dots(kernel) is None for kernel in kernels):
        return None
    dots = find_dots(joined)
    if dots is None:
        return "the fused kernel would no longer be a matrix product"
    extents = {axis.name: axis.extent for axis in joined.axes}
    for number, op in enumerate(joined.body.ops):
        if not isinstance(op.attrs, Reduce) or number in dots.reduces:
            continue
        other = dots.row if dots.column in op.axes else dots.column
        if (count := _blocks(extents[other], hints)) > 1:
            return f"a reduction would be repeated for each of {count} blocks of the matrix product"
    more = _again(joined, dots, hints) - sum(
        _again(kernel, old, hints) for kernel in kernels if (old := find_dots(kernel))
    )
    return None if more <= KEPT else "an operand would be computed again for each block of the matrix product"


def _again(kernel: Kernel, dots: Dots, hints: Hints) -> int:
    """The operations for each element of the operands, times the number of blocks beyond the first that repeat them."""
    blocks = block_counts(kernel, hints)
    muls = {kernel.body.ops[reduce].args[0] for reduce in dots.reduces}
    return sum(
        op_cost(op.name) * (blocks[dots.row if dots.column in op.axes else dots.column] - 1)
        for number, op in enumerate(kernel.body.ops)
        if dots.inner in op.axes and op.attrs is None and number not in muls
    )


def block_counts(kernel: Kernel, hints: Hints) -> Mapping[str, int]:
    """The number of blocks along the row axis and the column axis of a matrix product; empty for other kernels."""
    dots = find_dots(kernel)
    if dots is None:
        return {}
    return {axis.name: _blocks(axis.extent, hints) for axis in kernel.axes if axis.name in (dots.row, dots.column)}


def _blocks(extent: Expr, hints: Hints) -> int:
    """The number of blocks along an axis, with an unknown extent estimated."""
    return -(-estimate(extent, hints) // BLOCK)
