"""Bounds that a test may declare in place of a number.

Takes a number, or a text: numbers with units of memory, and words for what the test's run took and gave, with a plus
between. Gives a Limit, which a found value keeps or not. Refuses other text.

>>> at_most("2.1 MiB"), at_most(3).holds(3), at_least(2).holds(1)
(at most 2.1 MiB, True, False)
>>> at_most("2 parsecs")
Traceback (most recent call last):
ValueError: '2 parsecs' is not a number, nor one with B, kB, MB, GB, KiB, MiB, GiB, nor one of inputs, output
>>> at_most("inputs + output + 1 KiB").holds(1100, {"inputs": 40, "output": 40})
True
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

# the bytes of the tensors that a run was given, and of those that it gave
WORDS = ("inputs", "output")


@dataclass(frozen=True, slots=True)
class Limit:
    """One side of a range, and how its author wrote it; each of the words adds what a run says of it."""

    side: Literal["at most", "at least"]
    bound: float
    text: str
    words: tuple[str, ...] = ()

    def holds(self, value: float, sizes: Mapping[str, int] = MappingProxyType({})) -> bool:
        bound = self.bound + sum(sizes[word] for word in self.words)
        return value <= bound if self.side == "at most" else value >= bound

    def __repr__(self) -> str:
        return f"{self.side} {self.text}"


def at_most(bound: float | str) -> Limit:
    """A value of at most `bound`: a number, or a text such as "2.1 MiB" or "inputs + output"."""
    return Limit("at most", *_read_bound(bound))


def at_least(bound: float | str) -> Limit:
    """A value of at least `bound`: a number, or a text such as "64 KiB"."""
    return Limit("at least", *_read_bound(bound))


def _read_bound(bound: float | str) -> tuple[float, str, tuple[str, ...]]:
    if not isinstance(bound, str):
        return bound, str(bound), ()
    parts = [part.strip() for part in bound.split("+")]
    return sum(_read_number(part) for part in parts if part not in WORDS), bound, tuple(p for p in parts if p in WORDS)


def _read_number(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\w*)\s*", text)
    if found is None or found[2] not in (*UNITS, ""):
        units, words = ", ".join(UNITS), ", ".join(WORDS)
        raise ValueError(f"{text!r} is not a number, nor one with {units}, nor one of {words}")
    return float(found[1]) * UNITS.get(found[2], 1)
