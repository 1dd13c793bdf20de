"""How one load or store of a kernel touches memory: contiguous, strided, one element, or a gather; and which block.

Takes index expressions and block sizes. Gives plain data: the stage `access` makes it, printers and the report read it.
Refuses nothing.

A tile of a GPU holds a block of B elements of an axis. These elements are a block of memory with one dimension for each
digit into which the index splits the axis. The index `16*(i//128) + 256*((i//16) % 8) + i % 16` splits i into three
digits, and 256 elements of i are a block of 2 x 8 x 16 elements of memory:

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
MAX_COORDINATE = 1 << 31  # block pointers and descriptors have 32-bit coordinates

# How Triton code addresses a block: by offsets and masks, a block pointer, or a tensor descriptor.
BlockForm: TypeAlias = Literal["offsets", "pointer", "descriptor"]
# When the cache of a GPU should evict what an access touches: before other memory, or after it.
Eviction: TypeAlias = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class BlockDim:
    """One dimension of a block: `size` elements that are `stride` apart in memory.

    The coordinate of a point of the axis is the digit `((axis - start) // slice) % size`. `slice` is the product of the
    sizes of the later dimensions of the same axis. The first dimension of an axis is not reduced modulo `size`, so its
    coordinate exceeds `size` where a tile reaches beyond the axis. With a `start`, or fewer elements than the axis has,
    the access happens in that window of the axis only.
    """

    axis: str
    size: Expr
    stride: Expr
    slice: Expr = ONE
    start: Expr = ZERO


@dataclass(frozen=True, slots=True)
class BlockConstraint:
    """A condition on the block size of an axis: it divides `length`, or is a multiple of it.

    Only then is the block of the axis a rectangular block of memory.

    >>> rule = BlockConstraint("i", integer(48))
    >>> [block for block in (8, 16, 32, 96) if rule.allows(block)], rule.largest()
    ([8, 16, 96], 16)
    """

    axis: str
    length: Expr

    def allows(self, block: int) -> bool:
        """Whether a block of that many elements meets the condition."""
        length = as_int(self.length)
        return divides(block, self.length) or (length is not None and length > 0 and block % length == 0)

    def largest(self) -> int | None:
        """The largest power of two such that it and all smaller ones are allowed; None if every power of two is."""
        length = as_int(self.length)
        if length is not None and not length & (length - 1):
            return None
        factor = known_factor(self.length)
        return factor & -factor


@dataclass(frozen=True, slots=True)
class BlockAccess:
    """A block of memory that begins at element `offset` and has these dimensions.

    The dimensions follow the axes of the tile from the outermost to the innermost; those of one axis follow each other,
    the leading digit first. An axis of the tile without a dimension is broadcast.
    """

    offset: Expr
    dims: tuple[BlockDim, ...]

    def is_leading(self, number: int) -> bool:
        """Whether dimension `number` is the first one of its axis."""
        return number == 0 or self.dims[number - 1].axis != self.dims[number].axis

    def shape(self, blocks: Mapping[str, int]) -> tuple[int, ...]:
        """The number of elements along each dimension, for tiles with these block sizes, by axis."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            width, step, size = blocks[dim.axis], as_int(dim.slice), as_int(dim.size)
            count = 1 if step is None else -(-width // max(step, 1))
            found.append(count if self.is_leading(number) or size is None else min(count, size))
        return tuple(found)

    def offsets(self, starts: Mapping[str, Expr]) -> tuple[Expr, ...]:
        """The coordinate along each dimension at which a tile begins; `starts`: the first element of its blocks."""
        return tuple(
            floordiv(at, dim.slice) if self.is_leading(number) else mod(floordiv(at, dim.slice), dim.size)
            for number, dim in enumerate(self.dims)
            for at in (starts[dim.axis] - dim.start,)
        )

    def moving(self) -> tuple[int, ...]:
        """The dimensions whose stride is not zero."""
        return tuple(number for number, dim in enumerate(self.dims) if dim.stride != ZERO)

    def innermost(self, blocks: Mapping[str, int]) -> int | None:
        """The contiguous dimension (stride 1), of several the one with most elements in a tile; None without any."""
        shape = self.shape(blocks)
        found = [number for number, dim in enumerate(self.dims) if dim.stride == ONE]
        return max(found, key=lambda number: shape[number], default=None)

    def index(self, points: Mapping[str, Expr]) -> Expr:
        """The element of memory at a point; `points`: the value of each axis."""
        return add(self.offset, *(d.stride * at for d, at in zip(self.dims, self.offsets(points), strict=True)))

    def checked(self, blocks: Mapping[str, int], extents: Mapping[str, Expr]) -> tuple[int, ...]:
        """The dimensions along which a tile may reach beyond the memory, so that the access needs a bounds check."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            is_whole = dim.start == ZERO and dim.size * dim.slice == extents[dim.axis]
            if self.is_leading(number) and not (is_whole and divides(blocks[dim.axis], extents[dim.axis])):
                found.append(number)
        return tuple(found)

    def far(self, blocks: Mapping[str, int], extents: Mapping[str, Expr]) -> tuple[int, ...]:
        """The dimensions whose coordinates are not proved to fit in 32 bits."""
        found: list[int] = []
        for number, dim in enumerate(self.dims):
            high = interval(extents[dim.axis])[1]
            if high is None or high + blocks[dim.axis] >= MAX_COORDINATE:
                found.append(number)
        return tuple(found)

    def constraints(self) -> tuple[BlockConstraint, ...]:
        """The conditions under which a tile is a rectangular block of memory."""
        return tuple(BlockConstraint(dim.axis, dim.slice) for dim in self.dims if dim.slice != ONE)

    def limits(self) -> dict[str, int]:
        """By axis, the largest power of two that is allowed as a block size; an axis that is left out allows all.

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
        """Whether a tile with these block sizes is a rectangular block of memory."""
        return all(rule.allows(blocks[rule.axis]) for rule in self.constraints())


@dataclass(frozen=True, slots=True)
class Access:
    """How the load or store at `position` of a kernel's body touches memory.

    kind "block": contiguous along the vector axis; "strided": with a constant stride along it; "scalar": the same
    element for the whole vector; "gather": anything else. `stride` is the step along the vector axis, in elements.
    On a GPU `block` is the block of memory of a tile, and `form` the way in which the code addresses it. For an op in
    the body of a masked op, `position` is that of the masked op, and `inside` leads from there to the op. `evictions`
    has a hint for the cache for each time that the schedule names the op, in that order, or none at all.
    """

    position: int
    kind: Literal["block", "strided", "scalar", "gather"]
    stride: Expr | None = None
    inside: tuple[int, ...] = ()
    block: BlockAccess | None = None
    form: BlockForm = "offsets"
    evictions: tuple[Eviction, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the code addresses the block by the tile's axes alone, for every block size."""
        return self.form == "offsets" and (self.block is None or all(dim.slice == ONE for dim in self.block.dims))

    @property
    def path(self) -> tuple[int, ...]:
        return (self.position, *self.inside)
