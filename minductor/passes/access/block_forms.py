"""The reasons why a block of memory cannot be addressed by a block pointer, or by a tensor descriptor, of Triton.

Takes a BlockAccess, the block sizes of the tile and the tensor's dtype. Gives the reason, which the user sees in a
note; "" if there is none. Refuses nothing.

A block pointer has no mask but the bounds of its dimensions, and 32-bit coordinates. If these may not suffice, the
pointer starts at the program's own block and counts from there; then it cannot check a lower bound. A tensor descriptor
is what the copy engine of the GPU (TMA) takes. It has at most five dimensions, of which one is contiguous. The strides
of the others, and the first element, are multiples of 16 bytes, and it copies rows of at least 16 bytes.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import as_expr
>>> from minductor.ir.program.memory_access import BlockDim
>>> rows = BlockDim("i", as_expr(8), as_expr(9)), BlockDim("j", as_expr(8), as_expr(1))
>>> tile = TileShape({"i": 8, "j": 8}, {"i": as_expr(8), "j": as_expr(8)})
>>> why_not_pointer(BlockAccess(as_expr(0), rows), tile), why_not_descriptor(BlockAccess(as_expr(0), rows), tile, F32)
('', 'the stride of 9 elements is not a multiple of 16 bytes')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr
from minductor.ir.program.memory_access import ZERO, BlockAccess

ALIGNMENT = 16  # bytes; the addresses and strides of a tensor descriptor are multiples of it
MAX_DIMS = 5  # the most dimensions of a tensor descriptor


class TileShape(NamedTuple):
    """The block size and the extent of each axis of a tile, in elements."""

    blocks: Mapping[str, int]
    extents: Mapping[str, Expr]


def why_not_pointer(block: BlockAccess, tile: TileShape) -> str:
    """Why a block pointer cannot address a block, or ""."""
    shape = block.shape(tile.blocks)
    if all(shape[number] == 1 for number in block.moving()):
        return "each program touches a single element"
    for dim in (block.dims[number] for number in block.far(tile.blocks, tile.extents)):
        if dim.start != ZERO:
            return f"coordinates along {dim.axis} begin at {dim.start} and may not fit 32 bits"
    return ""


def why_not_descriptor(block: BlockAccess, tile: TileShape, dtype: DType) -> str:
    """Why a tensor descriptor cannot address a block, or ""."""
    if reason := why_not_pointer(block, tile):
        return reason
    if far := block.far(tile.blocks, tile.extents):
        return f"coordinates along {block.dims[far[0]].axis} may not fit 32 bits"
    if dtype.kind == "bool":
        return "there are no tensor descriptors of bool"
    dims = block.moving()
    if len(dims) > MAX_DIMS:
        return f"a tensor descriptor has at most {MAX_DIMS} dimensions, not {len(dims)}"
    shape = block.shape(tile.blocks)
    inner = block.innermost(tile.blocks)
    if inner is None:
        return "no dimension is contiguous"
    if shape[inner] * dtype.itemsize < ALIGNMENT:
        return f"its rows of {shape[inner] * dtype.itemsize} bytes are shorter than {ALIGNMENT} bytes"
    unit = max(1, ALIGNMENT // dtype.itemsize)
    if not divides(unit, block.dims[inner].start):
        return f"{block.dims[inner].axis} begins at {block.dims[inner].start}, not on a multiple of {ALIGNMENT} bytes"
    for number in dims:
        dim = block.dims[number]
        if number != inner and not divides(unit, dim.stride):
            return f"the stride of {dim.stride} elements is not a multiple of {ALIGNMENT} bytes"
        if number != inner and not at_least(dim.stride, 1):
            return f"the stride along {dim.axis} is not positive"
        if not at_least(dim.size, 1):
            return f"{dim.axis} may be empty"
    if not divides(unit, block.offset):
        return f"its first element, {block.offset}, does not lie at a multiple of {ALIGNMENT} bytes"
    return ""
