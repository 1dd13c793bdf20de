"""What a program of a GPU computes at once: the blocks of a kernel's axes.

Takes and gives plain data. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TypeAlias

# The largest block of an axis, where there is one.
Limits: TypeAlias = Mapping[str, int]
NO_LIMITS: Limits = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tiles:
    """Axes from the outermost to the innermost, and the elements of each that a program takes at once."""

    grid: tuple[str, ...]
    persistent: tuple[str, ...]  # reduced or scanned, each one block
    looped: tuple[str, ...]  # reduced or scanned, block by block
    blocks: dict[str, int]

    @property
    def values(self) -> int:
        """How many of each op a program computes at once."""
        return prod(self.blocks.values())


def power_of_two(count: int) -> int:
    """The least power of two that is not less.

    >>> [power_of_two(n) for n in (0, 1, 5, 64)]
    [1, 1, 8, 64]
    """
    return 1 << max(0, count - 1).bit_length()
