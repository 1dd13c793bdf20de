"""Arrays on the stack of a C++ kernel: their names, and the index of the loops' current point in them.

Takes the axes of an array, where the open block of each axis begins, and how many elements each has. Gives the text
that names an element. Refuses nothing.

>>> row = Array("x0_row", (Dim("i0", "i0_start", 8), Dim("i1", "", 64)))
>>> row.element(), row.count()
('x0_row[(i0 - i0_start) * 64 + i1]', 512)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from minductor.codegen.cpp.cpp_text import literal
from minductor.core.dtypes import DType
from minductor.ir.program.nodes import Combine


class Block(NamedTuple):
    """The block of an axis that the loops are in: where it begins, its size, and whether the last block is full too.

    Size 0 means that only the call knows it.
    """

    start: str
    size: int
    is_whole: bool = False

    @property
    def end(self) -> str:
        return self.start.replace("_start", "_end")


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of an array: its axis, the index at which it starts to count, and its number of elements.

    `used`: the text of how many of the elements the open block has, if only the call knows it; else "".
    """

    axis: str
    start: str
    count: int
    used: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """An array of values that later loops read: one element for each point of its dimensions."""

    name: str
    dims: tuple[Dim, ...]

    def element(self) -> str:
        """The element at the current point of the loops."""
        if not self.dims:
            return self.name
        text = ""
        for dim in self.dims:
            point = f"{dim.axis} - {dim.start}" if dim.start else dim.axis
            text = f"({text}) * {dim.count} + {point}" if text else point
        return f"{self.name}[{text}]"

    def count(self) -> int:
        total = 1
        for dim in self.dims:
            total *= dim.count
        return total

    def used(self) -> str:
        """How many elements have a value: fewer than `count` if the block of the only dimension may be short.

        >>> Array("sum0", (Dim("i0", "i0_start", 256, "i0_end - i0_start"),)).used()
        'i0_end - i0_start'
        """
        return (len(self.dims) == 1 and self.dims[0].used) or str(self.count())


@dataclass(frozen=True, slots=True)
class ResultRow(Array):
    """A row that is kept in memory, where a store writes after the last reader of the row. `place`: its element."""

    place: Callable[[], str]

    def element(self) -> str:
        return self.place()


@dataclass(frozen=True, slots=True)
class Carry:
    """The accumulators of one reduction or scan: an array for each carried value, by lane or by dimensions."""

    position: int
    how: Combine  # joins accumulators
    upwards: Combine  # takes in the next element
    names: tuple[str, ...]  # of the results
    arrays: tuple[Array, ...]
    dtypes: tuple[DType, ...]
    lanes: int
    is_beside: bool = False  # the first dimension of the arrays is the lane of a serial loop
    is_filled: bool = False  # each accumulator takes one value, so that none needs an initial one

    def elements(self) -> list[str]:
        return [f"{array.name}[l]" if self.lanes else array.element() for array in self.arrays]

    def at(self, index: str) -> list[str]:
        return [f"{array.name}[{index}]" for array in self.arrays]

    def identities(self) -> list[str]:
        """The initial values of the accumulators."""
        return [literal(value, dtype) for value, dtype in zip(self.upwards.identity, self.dtypes, strict=True)]

    @property
    def size(self) -> int:
        """The number of elements of each array; 0 for a single variable."""
        if self.lanes:
            return self.lanes
        return self.arrays[0].count() if self.arrays[0].dims else 0

    @property
    def used(self) -> str:
        """How many elements of each array have a value."""
        return str(self.lanes) if self.lanes else self.arrays[0].used()
