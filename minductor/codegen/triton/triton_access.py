"""Texts of loads and stores whose address is no plain sum over the tile's axes: digits, block pointers, descriptors.

Takes the accesses of a kernel and its tile. Gives the texts of loads and stores, and the lines that must precede them.
Refuses nothing: `passes/access/access.py` has only chosen forms that can be written.

Elements are loaded in the shape of a box, which has a dimension for each digit of an index. The box is then reshaped to
the tile. A digit on which the address does not depend is broadcast. Since a tile's block starts at a multiple of the
block size, most digits start at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from minductor.codegen.triton.triton_launch import Dim
from minductor.codegen.triton.triton_values import index_text
from minductor.core.expressions.expr import Expr, as_int, integer, linear, symbol
from minductor.ir.program.memory_access import ONE, Access, BlockAccess


def is_special(access: Access, tile: Sequence[Dim]) -> bool:
    """Whether an access is more than a sum over the tile's axes."""
    if access.block is None or access.is_plain:
        return False
    blocks = {dim.axis: dim.block if dim.parameter else 1 for dim in tile}
    return access.form != "offsets" or any(n > 1 for n in access.block.shape(blocks))


@dataclass(frozen=True, slots=True)
class Starts:
    """Where the tile's block of each axis starts: at a single element, or at a multiple of the block size."""

    tile: Sequence[Dim]
    extents: Mapping[str, Expr]
    whole: frozenset[str]  # axes that one block covers, which starts at 0
    looped: frozenset[str]  # axes whose blocks a loop of the program runs over
    wide: str  # converts the elements of an axis to int64; "" if 32 bits are enough

    def of(self, dim: Dim) -> Expr:
        if dim.axis in self.whole:
            return integer(0)
        if not dim.parameter:
            return symbol(dim.axis, "axis")
        return dim.block * symbol(f"{dim.axis}_block", "axis")

    def texts(self, block: BlockAccess, *, at_first: str = "") -> list[str]:
        """The coordinates of a block; `at_first`: as in the first iteration of the loop over that axis."""
        starts = {dim.axis: integer(0) if dim.axis == at_first else self.of(dim) for dim in self.tile}
        found: list[str] = []
        for dim, at in zip(block.dims, block.offsets(starts), strict=True):
            if dim.axis in self.looped and at != 0 and at == starts[dim.axis] - dim.start:
                at = symbol(f"{dim.axis}_start", "axis") - dim.start
            found.append(index_text(at))
        return found

    def counted(self, block: BlockAccess) -> set[str]:
        """The axes whose block numbers the coordinates are computed from."""
        text = " ".join(self.texts(block))
        return {dim.axis for dim in self.tile if f"{dim.axis}_block" in text}

    def narrow(self, text: str) -> str:
        """A coordinate in the integer type that pointers and descriptors take."""
        return f"({text}).to(tl.int32)" if self.wide and not text.lstrip("-").isdecimal() else text

    def steps(self, block: BlockAccess, axis: str) -> list[int] | None:
        """How much each coordinate grows from one block of an axis to the next; None if that is not a constant."""
        (dim,) = [dim for dim in self.tile if dim.axis == axis]
        found: list[int] = []
        for at in block.offsets({d.axis: self.of(d) for d in self.tile}):
            moving = symbol(f"{axis}_block", "axis")
            split = linear(at, [moving])
            step = None if split is None else as_int(split[0][moving])
            if step is None:
                return None
            found.append(step)
        return found if dim.parameter else None


@dataclass(frozen=True, slots=True)
class Box:
    """One access, with the shapes of its values between memory and tile."""

    block: BlockAccess
    tile: Sequence[Dim]
    dims: Sequence[Dim]  # the dimensions of the value: those of the tile that have a block, or some of them
    extents: Mapping[str, Expr]

    @classmethod
    def of(cls, block: BlockAccess, tile: Sequence[Dim], dims: Sequence[Dim], extents: Mapping[str, Expr]) -> Box:
        """The dimensions of a block, in the order of the value's dimensions."""
        order = [dim.axis for dim in dims]
        sorted_dims = sorted(block.dims, key=lambda dim: order.index(dim.axis) if dim.axis in order else -1)
        return cls(BlockAccess(block.offset, tuple(sorted_dims)), tile, dims, extents)

    @property
    def blocks(self) -> dict[str, int]:
        return {dim.axis: dim.block if dim.parameter else 1 for dim in self.tile}

    def places(self) -> list[int | None]:
        """The tile's dimension of each dimension of the box; None for an axis along which the box is broadcast."""
        found: list[int | None] = []
        for dim in self.dims:
            mine = [number for number, d in enumerate(self.block.dims) if d.axis == dim.axis]
            found += mine or [None]
        return found

    def shape(self, *, is_whole: bool) -> list[int]:
        """The shape of the box in memory or in the tile; dimensions that do not move are 1 in memory."""
        shape, moving = self.block.shape(self.blocks), self.block.moving()
        return [1 if p is None or not (is_whole or p in moving) else shape[p] for p in self.places()]

    def tile_shape(self) -> str:
        axes = {dim.axis for dim in self.block.dims}
        return f"[{', '.join(dim.parameter if dim.axis in axes else '1' for dim in self.dims)}]"

    def to_tile(self, value: str, given: Sequence[int]) -> str:
        """A loaded value of shape `given`, as a value of the tile."""
        part, whole = self.shape(is_whole=False), self.shape(is_whole=True)
        if part != whole:
            if list(given) != part:
                value = f"tl.reshape({value}, {part})"
            return f"tl.reshape(tl.broadcast_to({value}, {whole}), {self.tile_shape()})"
        flat = [dim.block if any(d.axis == dim.axis for d in self.block.dims) else 1 for dim in self.dims]
        return value if list(given) == flat else f"tl.reshape({value}, {self.tile_shape()})"

    def from_tile(self, value: str, wanted: Sequence[int]) -> str:
        """A value of the tile in the shape that memory takes."""
        value = f"tl.broadcast_to({value}, {self.tile_shape()})"
        flat = [dim.block if any(d.axis == dim.axis for d in self.block.dims) else 1 for dim in self.dims]
        return value if list(wanted) == flat else f"tl.reshape({value}, {list(wanted)})"

    def checked(self) -> tuple[int, ...]:
        return self.block.checked(self.blocks, self.extents)

    def far(self) -> tuple[int, ...]:
        """The dimensions of a block pointer that are counted in its base address, since its own block does not start at
        0.
        """
        return self.block.far(self.blocks, self.extents)


# --- sums of offsets ----------------------------------------------------------------------------------------------


def digit_address(box: Box, starts: Starts, pointer: str) -> tuple[str, str]:
    """The addresses of a box of digits, and the mask of the elements that exist ("" if all do)."""
    places = box.places()
    shape = box.block.shape(box.blocks)
    sums = [pointer] if box.block.offset == 0 else [pointer, index_text(box.block.offset)]
    masks: list[str] = []
    checked = box.checked()
    for number, (dim, start) in enumerate(zip(box.block.dims, starts.texts(box.block), strict=True)):
        at = start
        if shape[number] > 1:
            lanes = f"tl.arange(0, {shape[number]})"
            if len(places) > 1:
                lanes += f"[{', '.join(':' if p == number else 'None' for p in places)}]"
            lanes += starts.wide
            at = lanes if start == "0" else f"{start} + {lanes}"
        if number in checked and number in box.block.moving():
            masks.append(f"({at} < {index_text(dim.size)})")
            if dim.start != 0:
                masks.append(f"({at} >= 0)")
        if number in box.block.moving() and at != "0":
            sums.append(_times(dim.stride, at))
    return " + ".join(sums), " & ".join(masks)


# --- block pointers -----------------------------------------------------------------------------------------------


def pointed(box: Box) -> list[int]:
    """The dimensions of a block pointer. The block has one element in the other dimensions; the base address counts
    them.
    """
    shape, checked = box.block.shape(box.blocks), box.checked()
    return [n for n in box.block.moving() if shape[n] > 1 or n in checked]


def block_pointer(box: Box, starts: Starts, pointer: str, at_first: str = "") -> str:
    kept = pointed(box)
    dims, shape, at = box.block.dims, box.block.shape(box.blocks), starts.texts(box.block, at_first=at_first)
    sizes = [index_text(dim.size) for dim in dims]
    sums = [pointer] if box.block.offset == 0 else [pointer, index_text(box.block.offset)]
    for n in box.block.moving():
        if at[n] != "0" and (n in box.far() or n not in kept):
            sums.append(_times(dims[n].stride, at[n]))
            sizes[n], at[n] = f"{sizes[n]} - {at[n] if at[n].isidentifier() else f'({at[n]})'}", "0"
    return (
        f"tl.make_block_ptr({' + '.join(sums)}, shape=[{', '.join(sizes[n] for n in kept)}], "
        f"strides=[{_texts(dims[n].stride for n in kept)}], offsets=[{', '.join(starts.narrow(at[n]) for n in kept)}], "
        f"block_shape={[shape[n] for n in kept]}, order={_order([dims[n].stride for n in kept])})"
    )


def bounds(box: Box) -> str:
    """The argument that keeps a block pointer within the bounds of its dimensions."""
    checked = [place for place, number in enumerate(pointed(box)) if number in box.checked()]
    return f", boundary_check={checked}" if checked else ""


def pointer_shape(box: Box) -> list[int]:
    shape = box.block.shape(box.blocks)
    return [shape[n] for n in pointed(box)]


def _order(strides: Sequence[Expr]) -> list[int]:
    """The dimensions from the smallest stride to the largest, or from the last to the first if the strides are
    unknown.
    """
    known = [as_int(stride) for stride in strides]
    if None in known:
        return list(reversed(range(len(strides))))
    return sorted(range(len(strides)), key=lambda n: (known[n], -n))


# --- descriptors --------------------------------------------------------------------------------------------------


def described(box: Box) -> list[int]:
    """The dimensions of a descriptor in its order: the contiguous dimension comes last."""
    last = box.block.innermost(box.blocks)
    assert last is not None
    return [*(n for n in box.block.moving() if n != last), last]


def descriptor(box: Box, pointer: str) -> str:
    dims, shape, order = box.block.dims, box.block.shape(box.blocks), described(box)
    base = pointer if box.block.offset == 0 else f"{pointer} + {index_text(box.block.offset)}"
    return (
        f"tl.make_tensor_descriptor({base}, shape=[{_texts(dims[n].size for n in order)}], "
        f"strides=[{_texts(dims[n].stride for n in order)}], block_shape={[shape[n] for n in order]})"
    )


def descriptor_shape(box: Box) -> list[int]:
    """The shape of a loaded block, with its dimensions in the tile's order."""
    shape = box.block.shape(box.blocks)
    return [shape[n] for n in box.block.moving()]


def turned(box: Box, value: str, *, is_load: bool) -> str:
    """A value between the order of the descriptor and the order of the tile."""
    moving, order = list(box.block.moving()), described(box)
    if moving == order:
        return value
    turn = [order.index(n) for n in moving] if is_load else [moving.index(n) for n in order]
    return f"tl.trans({value}, {turn})"


def descriptor_offsets(box: Box, starts: Starts) -> str:
    at = starts.texts(box.block)
    return f"[{', '.join(starts.narrow(at[n]) for n in described(box))}]"


def _times(stride: Expr, at: str) -> str:
    if stride == ONE:
        return at
    factor = index_text(stride)
    is_bare = at.isidentifier() or (at.startswith("tl.arange(") and " + " not in at)
    return (
        f"{factor if factor.isidentifier() or factor.isdecimal() else f'({factor})'} * {at if is_bare else f'({at})'}"
    )


def _texts(values: Iterable[Expr]) -> str:
    return ", ".join(index_text(value) for value in values)
