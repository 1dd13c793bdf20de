"""The tile of a kernel on a GPU: how many elements of each axis one program computes at once.

Takes and gives plain data. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TypeAlias

# by axis, the largest block that it may have; other axes have no limit
Limits: TypeAlias = Mapping[str, int]
NO_LIMITS: Limits = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tiles:
    """The axes of a tile, outermost first, and the elements of each in a block."""

    grid: tuple[str, ...]
    persistent: tuple[str, ...]  # reduced or scanned axes that fit one block: a persistent reduction
    looped: tuple[str, ...]  # reduced or scanned axes that are walked block by block: a looped reduction
    blocks: dict[str, int]

    @property
    def values(self) -> int:
        """The elements of a tile: a program computes so many values of each op at once."""
        return prod(self.blocks.values())


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`.

    >>> [power_of_two(n) for n in (0, 1, 5, 64)]
    [1, 1, 8, 64]
    """
    return 1 << max(0, count - 1).bit_length()
