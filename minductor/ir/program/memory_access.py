"""How a kernel touches one buffer in one loop nest: block, strided, scalar or gather; and which block of memory.

Takes and gives plain data; `passes/access/access.py` computes it, printers and the Report read it. Refuses nothing.

A tile's block of an axis, B elements from `x` on, is a block of memory with as many dimensions as the index takes the
axis apart in. `16*(i//128) + 256*((i//16) % 8) + i % 16` has three, and 256 elements of it are 2 x 8 x 16:

>>> from minductor.core.expressions.expr import symbol
>>> dims = tuple(BlockDim("i", *map(integer, numbers)) for numbers in ((16, 16, 128), (8, 256, 16), (16, 1, 1)))
>>> block = BlockAccess(integer(0), dims)
>>> block.shape({"i": 256}), block.shape({"i": 16}), [str(at) for at in block.offsets({"i": symbol("x", "axis")})]
((2, 8, 16), (1, 1, 16), ['x//128', '(x//16) % 8', 'x % 16'])
>>> str(block.index({"i": symbol("i", "axis")}))
'16*(i//128) + i % 16 + 256*((i//16) % 8)'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from minductor.core.expressions.bounds import divides, interval, known_factor
from minductor.core.expressions.expr import Expr, add, as_int, floordiv, integer, mod

ONE, ZERO = integer(1), integer(0)
COORDINATES = 1 << 31  # what a block pointer and a descriptor count along a dimension

# How a kernel spells a block: sums of offsets with masks, a pointer to a block, or a descriptor of the whole tensor.
BlockForm: TypeAlias = Literal["offsets", "pointer", "descriptor"]


@dataclass(frozen=True, slots=True)
class BlockDim:
    """Elements `stride` apart in memory, of which there are `size`: the digit `((axis - start) // slice) % size`.

    The leading dimension of an axis has no remainder: its coordinates go beyond `size` where a tile goes beyond the
    axis. `slice` is the product of the sizes of the axis' later dimensions. What begins at another `start`, or ends
    before its axis, is a window: the access happens there only.
    """

    axis: str
    size: Expr
    stride: Expr
    slice: Expr = ONE
    start: Expr = ZERO


@dataclass(frozen=True, slots=True)
class BlockConstraint:
    """What a box of memory asks of the block of an axis: that it divides a length, or is a multiple of it.

    >>> rule = BlockConstraint("i", integer(48))
    >>> [block for block in (8, 16, 32, 96) if rule.allows(block)], rule.largest()
    ([8, 16, 96], 16)
    """

    axis: str
    length: Expr

    def allows(self, block: int) -> bool:
        """Whether blocks of so many elements are boxes."""
        length = as_int(self.length)
        return divides(block, self.length) or (length is not None and length > 0 and block % length == 0)

    def largest(self) -> int | None:
        """The largest power of two that is allowed with all smaller ones; None where each power of two is."""
        length = as_int(self.length)
        if length is not None and not length & (length - 1):
            return None
        factor = known_factor(self.length)
        return factor & -factor


@dataclass(frozen=True, slots=True)
class BlockAccess:
    """The element at `offset`, and from there on dimensions: axes from the outermost of the tile to the innermost, and
    the digits of an axis from its leading one. An axis of the tile that has none is broadcast over."""

    offset: Expr
    dims: tuple[BlockDim, ...]

    def is_leading(self, number: int) -> bool:
        """Whether a dimension is the first of its axis."""
        return number == 0 or self.dims[number - 1].axis != self.dims[number].axis

    def shape(self, blocks: Mapping[str, int]) -> tuple[int, ...]:
        """The elements of each dimension in a tile that has blocks of these sizes; their product is the blocks'."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            width, step, size = blocks[dim.axis], as_int(dim.slice), as_int(dim.size)
            count = 1 if step is None else -(-width // max(step, 1))
            found.append(count if self.is_leading(number) or size is None else min(count, size))
        return tuple(found)

    def offsets(self, starts: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """The coordinates of a tile whose blocks start there."""
        return tuple(
            floordiv(at, dim.slice) if self.is_leading(number) else mod(floordiv(at, dim.slice), dim.size)
            for number, dim in enumerate(self.dims)
            for at in (starts[dim.axis] - dim.start,)
        )

    def moving(self) -> tuple[int, ...]:
        """The dimensions that have more than one element of memory."""
        return tuple(number for number, dim in enumerate(self.dims) if dim.stride != ZERO)

    def innermost(self, blocks: Mapping[str, int]) -> int | None:
        """The dimension whose elements are next to each other; of several the one with most of them in a tile."""
        shape = self.shape(blocks)
        found = [number for number, dim in enumerate(self.dims) if dim.stride == ONE]
        return max(found, key=lambda number: shape[number], default=None)

    def index(self, points: Mapping[str, Expr]) -> Expr:
        """The element of a point."""
        return add(self.offset, *(d.stride * at for d, at in zip(self.dims, self.offsets(points), strict=True)))

    def checked(self, blocks: Mapping[str, int], extents: Mapping[str, Expr]) -> tuple[int, ...]:
        """The dimensions in which a tile may go beyond what there is."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            is_whole = dim.start == ZERO and dim.size * dim.slice == extents[dim.axis]
            if self.is_leading(number) and not (is_whole and divides(blocks[dim.axis], extents[dim.axis])):
                found.append(number)
        return tuple(found)

    def far(self, blocks: Mapping[str, int], extents: Mapping[str, Expr]) -> tuple[int, ...]:
        """The dimensions whose coordinates are not proved to fit 32 bits."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            high = interval(extents[dim.axis])[1]
            if high is None or high + blocks[dim.axis] >= COORDINATES:
                found.append(number)
        return tuple(found)

    def constraints(self) -> tuple[BlockConstraint, ...]:
        """What its digits ask of the axes' blocks, so that each block is a box."""
        return tuple(BlockConstraint(dim.axis, dim.slice) for dim in self.dims if dim.slice != ONE)

    def limits(self) -> dict[str, int]:
        """For an axis the largest power of two that is a block of boxes here; an axis that is left out takes any.

        >>> slices = [integer(20), integer(4), ONE]
        >>> BlockAccess(ZERO, tuple(BlockDim("i", integer(9), ONE, n) for n in slices)).limits()
        {'i': 4}
        """
        found: dict[str, int] = {}
        for rule in self.constraints():
            if (most := rule.largest()) is not None:
                found[rule.axis] = min(found.get(rule.axis, most), most)
        return found

    def is_exact(self, blocks: Mapping[str, int]) -> bool:
        """Whether tiles of these blocks are boxes."""
        return all(rule.allows(blocks[rule.axis]) for rule in self.constraints())


@dataclass(frozen=True, slots=True)
class Access:
    """The load or store at `position` of a body; `inside`: of the ops in its masked regions the one on that way.

    kind "block": contiguous along the vector axis; "strided": a constant stride along it; "scalar": the same element
    for the whole vector; "gather": anything else. `stride` is the step along the vector axis, in elements. In a tile
    of a GPU every block says which one it is, and in which form the kernel shall spell it.
    """

    position: int
    kind: Literal["block", "strided", "scalar", "gather"]
    stride: Expr | None = None
    inside: tuple[int, ...] = ()
    block: BlockAccess | None = None
    form: BlockForm = "offsets"

    @property
    def is_plain(self) -> bool:
        """Whether it is spelled by the tile's axes alone, whatever their blocks are."""
        return self.form == "offsets" and (self.block is None or all(dim.slice == ONE for dim in self.block.dims))

    @property
    def path(self) -> tuple[int, ...]:
        return (self.position, *self.inside)
