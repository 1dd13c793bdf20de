"""What a matrix unit asks of fusion: that products stay products, and how often their operands are computed.

Takes kernels, before and after two are joined. Gives what speaks against it, and how often a kernel of products asks
for an element of an operand. Refuses nothing.

A program computes one block of the result. What it computes of an operand is computed once for each block along the
other side, and not once for each element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.core.expressions.expr import Expr, as_int
from minductor.ir.program.dots import Dots, find_dots
from minductor.ir.program.nodes import Kernel, Reduce
from minductor.ir.program.ops import op_cost

KEPT = 16  # operations that an element may cost instead of being written and read, four bytes each
BLOCK = 64  # rows or columns of a block, of those that large products are cut into


def product_objection(kernels: Sequence[Kernel], joined: Kernel) -> str | None:
    """Why two kernels, of which one has products, are better apart."""
    if all(find_dots(kernel) is None for kernel in kernels):
        return None
    dots = find_dots(joined)
    if dots is None:
        return "it would be no matrix product any more"
    extents = {axis.name: axis.extent for axis in joined.axes}
    for number, op in enumerate(joined.body.ops):
        if not isinstance(op.attrs, Reduce) or number in dots.reduces:
            continue
        other = dots.row if dots.column in op.axes else dots.column
        if _blocks(extents[other]) > 1:
            return f"would reduce each of its rows again for {_blocks(extents[other])} blocks of a matrix product"
    more = _again(joined, dots) - sum(_again(kernel, old) for kernel in kernels if (old := find_dots(kernel)))
    return None if more <= KEPT else "an operand would be computed again for each block of a matrix product"


def _again(kernel: Kernel, dots: Dots) -> int:
    """Operations for each element of the operands that are done once more for each block beyond the first."""
    blocks = block_counts(kernel)
    muls = {kernel.body.ops[reduce].args[0] for reduce in dots.reduces}
    return sum(
        op_cost(op.name) * (blocks[dots.row if dots.column in op.axes else dots.column] - 1)
        for number, op in enumerate(kernel.body.ops)
        if dots.inner in op.axes and op.attrs is None and number not in muls
    )


def block_counts(kernel: Kernel) -> Mapping[str, int]:
    """The rows and columns of a kernel of products, and how many blocks there are of each; nothing for others."""
    dots = find_dots(kernel)
    if dots is None:
        return {}
    return {axis.name: _blocks(axis.extent) for axis in kernel.axes if axis.name in (dots.row, dots.column)}


def _blocks(extent: Expr) -> int:
    known = as_int(extent)
    return BLOCK if known is None else -(-known // BLOCK)
