"""Limits that a test may declare in place of an exact number: at_most and at_least.

Takes a number, or a text such as "2.1 MiB" or "inputs + output". Gives a Limit, which tells whether a value keeps to
it. Refuses any other text (ValueError).

>>> at_most("2.1 MiB"), at_most(3).holds(3), at_least(2).holds(1)
(at most 2.1 MiB, True, False)
>>> at_most("2 parsecs")
Traceback (most recent call last):
ValueError: '2 parsecs' is not a number, a number with a unit (B, kB, MB, GB, KiB, MiB, GiB), nor one of inputs, output
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

# Words for the bytes of the tensors that a run takes as arguments, and of those that it returns.
WORDS = ("inputs", "output")


@dataclass(frozen=True, slots=True)
class Limit:
    """An upper or a lower limit.

    Attributes:
        side: Whether a value must be at most or at least the bound.
        bound: The sum of the numbers in the text; bytes if they have a unit.
        text: The limit as its author wrote it.
        words: "inputs" and "output", if the text has them; the limit then also depends on the bytes of the run.
    """

    side: Literal["at most", "at least"]
    bound: float
    text: str
    words: tuple[str, ...] = ()

    def holds(self, value: float, sizes: Mapping[str, int] = MappingProxyType({})) -> bool:
        """Tells whether a value keeps to the limit.

        Args:
            value: The value found, in the unit of the limit.
            sizes: The bytes that each word stands for.

        Returns:
            True if the value is not beyond the limit.
        """
        bound = self.bound + sum(sizes[word] for word in self.words)
        return value <= bound if self.side == "at most" else value >= bound

    def __repr__(self) -> str:
        return f"{self.side} {self.text}"


def at_most(bound: float | str) -> Limit:
    """Makes an upper limit, for a marker such as `@pytest.mark.counts(bytes=at_most("2.1 MiB"))`.

    Args:
        bound: A number, or a text: numbers with or without a unit (B, kB, MB, GB, KiB, MiB, GiB), added up by "+". For
            `memory(peak=...)` the words "inputs" and "output" stand for the bytes of the arguments and of the results.

    Returns:
        The limit; the value itself is allowed.

    Raises:
        ValueError: The text has something else in it.
    """
    return Limit("at most", *_read_bound(bound))


def at_least(bound: float | str) -> Limit:
    """Makes a lower limit, for a marker such as `@pytest.mark.counts(block_accesses=at_least(1))`.

    Args:
        bound: A number, or a text such as "64 KiB"; see `at_most`.

    Returns:
        The limit; the value itself is allowed.

    Raises:
        ValueError: The text has something else in it.
    """
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
        raise ValueError(f"{text!r} is not a number, a number with a unit ({units}), nor one of {words}")
    return float(found[1]) * UNITS.get(found[2], 1)
