"""Bounds that a test may declare in place of a number.

Takes a number, or a text with a unit of memory. Gives a Limit, which a found value keeps or not. Refuses other text.

>>> at_most("2.1 MiB"), at_most(3).holds(3), at_least(2).holds(1)
(at most 2.1 MiB, True, False)
>>> at_most("2 parsecs")
Traceback (most recent call last):
ValueError: '2 parsecs' is not a number, nor a number with one of B, kB, MB, GB, KiB, MiB, GiB
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

UNITS: Mapping[str, int] = MappingProxyType(
    {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
)


@dataclass(frozen=True, slots=True)
class Limit:
    """One side of a range, and how its author wrote it."""

    side: Literal["at most", "at least"]
    bound: float
    text: str

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.side == "at most" else value >= self.bound

    def __repr__(self) -> str:
        return f"{self.side} {self.text}"


def at_most(bound: float | str) -> Limit:
    """A value of at most `bound`, a number or a text such as "2.1 MiB"."""
    return Limit("at most", _number(bound), str(bound))


def at_least(bound: float | str) -> Limit:
    """A value of at least `bound`, a number or a text such as "64 KiB"."""
    return Limit("at least", _number(bound), str(bound))


def _number(bound: float | str) -> float:
    if not isinstance(bound, str):
        return bound
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\w*)\s*", bound)
    if found is None or found[2] not in (*UNITS, ""):
        raise ValueError(f"{bound!r} is not a number, nor a number with one of {', '.join(UNITS)}")
    return float(found[1]) * UNITS.get(found[2], 1)
