"""The tiles of a matrix product on a GPU: blocks of rows, of columns, and of the inner (reduced) axis.

Takes a draft and its products. Gives the levels: rows and columns are the innermost axes of the grid; the inner axis is
walked block by block, or is one block if it is short. Refuses nothing.

A large tile reads each operand fewer times; a small tile makes more programs. The largest tile is taken that fits
shared memory and registers and makes at least one program for every second multiprocessor; if there is none, the
smallest.
"""

from __future__ import annotations

from minductor.ir.program.dots import Dots
from minductor.ir.program.nodes import Body, Round
from minductor.passes.schedule.draft import Draft, Level, power_of_two

SIDES = ((128, 128), (128, 64), (64, 64), (64, 32), (32, 32))  # rows and columns of a tile, the largest first
LEAST = 16  # elements of a block along each axis: what a matrix unit takes at least
INNER_BYTES = 128  # of a block along the inner axis: a cache line
STAGES = 3  # blocks of both operands that are loaded at the same time
ACCUMULATED = 128 * 128  # elements of the accumulators that fit the registers of one program


def product_tiles(draft: Draft, dots: Dots) -> tuple[Level, ...]:
    """The loops of a kernel of matrix products, outermost first."""
    target, touches = draft.target, draft.touches
    factors = [p for product in dots.products for p in (product.left, product.right)]
    size = max(operand_bytes(draft.kernel.body, p) for p in factors)
    inner = min(max(LEAST, INNER_BYTES // size), _block(draft, dots.inner))
    most = [_block(draft, name) for name in (dots.row, dots.column)]
    joined = [*(n for n in touches.axes if n in touches.reduced and n != dots.inner), dots.inner]
    kept = touches.by_stride([n for n in touches.axes if n not in joined and n not in (dots.row, dots.column)])
    count = len(dots.products)
    others = touches.size(list(kept))
    best = (LEAST, LEAST)  # if no tile fits
    for side in SIDES:
        row, column = map(min, side, most)
        if (row + column) * inner * size * STAGES * count > target.shared_memory or row * column * count > ACCUMULATED:
            continue
        best = (row, column)
        programs = others * _blocks(draft, dots.row, row) * _blocks(draft, dots.column, column)
        if 2 * programs >= target.multiprocessors:
            break
    blocks = dict.fromkeys((*kept, *joined), 1) | {dots.row: best[0], dots.column: best[1], dots.inner: inner}
    extent = touches.extents[dots.inner]
    is_whole = len(joined) == 1 and extent is not None and extent <= inner
    grid = (draft.level(name, "grid", block=blocks[name]) for name in (*kept, dots.row, dots.column))
    return (*grid, *(draft.level(name, "tile" if is_whole else "serial", block=blocks[name]) for name in joined))


def operand_bytes(body: Body, position: int) -> int:
    """The bytes of an element of an operand, in the dtype that the matrix unit takes."""
    op = body.ops[position]
    dtype = op.attrs.dtype if isinstance(op.attrs, Round) else op.dtype
    assert dtype is not None
    return dtype.itemsize


def _block(draft: Draft, name: str) -> int:
    """The largest block that an axis may have."""
    block = max(LEAST, power_of_two(draft.size(name)))
    return min(block, draft.limits.get(name, block))


def _blocks(draft: Draft, name: str, block: int) -> int:
    return -(-draft.size(name) // block)
