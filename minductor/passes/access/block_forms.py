"""Why a block of memory cannot be spelled as a pointer to a block, or as a tensor descriptor.

Takes a BlockAccess, the blocks of the tile it stands in and the tensor's dtype. Gives a reason, "" if nothing is in the
way. Refuses nothing.

A block pointer has no mask but the bounds of its dimensions, and counts coordinates in 32 bits. Where those may not be
enough it begins at the program's block and counts from there, which knows no bound below. A descriptor is what the
hardware that copies tensors takes: up to five dimensions, elements of the last one next to each other, all other
steps and the first element on multiples of 16 bytes, at least 16 bytes at a time.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import as_expr
>>> from minductor.ir.program.memory_access import BlockDim
>>> rows = BlockDim("i", as_expr(8), as_expr(9)), BlockDim("j", as_expr(8), as_expr(1))
>>> tile = Tile({"i": 8, "j": 8}, {"i": as_expr(8), "j": as_expr(8)})
>>> why_not_pointer(BlockAccess(as_expr(0), rows), tile), why_not_descriptor(BlockAccess(as_expr(0), rows), tile, F32)
('', 'rows 9 elements apart do not begin on multiples of 16 bytes')
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr
from minductor.ir.program.memory_access import ZERO, BlockAccess

ALIGNED = 16  # bytes
DESCRIBED = 5  # dimensions


@dataclass(frozen=True, slots=True)
class Tile:
    """The block and the extent of each axis of a tile."""

    blocks: Mapping[str, int]
    extents: Mapping[str, Expr]


def why_not_pointer(block: BlockAccess, tile: Tile) -> str:
    shape = block.shape(tile.blocks)
    if all(shape[number] == 1 for number in block.moving()):
        return "a program touches one element"
    for dim in (block.dims[number] for number in block.far(tile.blocks, tile.extents)):
        if dim.start != ZERO:
            return f"coordinates along {dim.axis} begin at {dim.start} and may not fit 32 bits"
    return ""


def why_not_descriptor(block: BlockAccess, tile: Tile, dtype: DType) -> str:
    if reason := why_not_pointer(block, tile):
        return reason
    if far := block.far(tile.blocks, tile.extents):
        return f"coordinates along {block.dims[far[0]].axis} may not fit 32 bits"
    if dtype.kind == "bool":
        return "there are no descriptors of truth values"
    dims = block.moving()
    if len(dims) > DESCRIBED:
        return f"a descriptor has no {len(dims)} dimensions"
    shape = block.shape(tile.blocks)
    inner = block.innermost(tile.blocks)
    if inner is None:
        return "no dimension has its elements next to each other"
    if shape[inner] * dtype.itemsize < ALIGNED:
        return f"{shape[inner] * dtype.itemsize} bytes at a time are fewer than {ALIGNED}"
    unit = max(1, ALIGNED // dtype.itemsize)
    if not divides(unit, block.dims[inner].start):
        return f"{block.dims[inner].axis} begins at {block.dims[inner].start}, not on a multiple of {ALIGNED} bytes"
    for number in dims:
        dim = block.dims[number]
        if number != inner and not divides(unit, dim.stride):
            return f"rows {dim.stride} elements apart do not begin on multiples of {ALIGNED} bytes"
        if number != inner and not at_least(dim.stride, 1):
            return f"{dim.axis} is walked backwards"
        if not at_least(dim.size, 1):
            return f"{dim.axis} may be empty"
    if not divides(unit, block.offset):
        return f"element {block.offset} does not lie on a multiple of {ALIGNED} bytes"
    return ""
