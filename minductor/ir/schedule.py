"""The loop nest that `tile` chose for a kernel, as data that codegen prints without deciding anything.

Takes and gives plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop over a kernel axis, outermost first; a blocked axis occurs twice, first with its block size."""

    axis: str
    kind: Literal["parallel", "serial", "vector"]
    block: int = 1


@dataclass(frozen=True, slots=True)
class Keep:
    """Where the value at `position` lives when it is used on both sides of a reduce over its axes."""

    position: int
    where: Literal["recompute", "register", "row"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Loops from the outside in, and the values kept across phases."""

    loops: tuple[Loop, ...]
    keeps: tuple[Keep, ...] = ()
