"""Decisions that a compile leaves open: what they may be, what is taken unless somebody measures, and what they touch.

Takes and gives plain data. Refuses a default that is no option (ValueError).

`affects` says what another option may change: the bits of results, or how long they take. Where results have to be the
same each time, no choice that affects bits may be made by a clock.

>>> str(Choice("warps", "bits", (2, 4, 8), 4))
'choice warps bits 4 of (2, 4, 8)'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Affects: TypeAlias = Literal["bits", "perf"]
Option: TypeAlias = "int | str"
# an option of each choice, by id
Config: TypeAlias = Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision. `id`: of a launch "warps", "stages", or an axis (the size of its block); or what variants are."""

    id: str
    affects: Affects
    options: tuple[Option, ...]
    default: Option

    def __post_init__(self) -> None:
        if self.default not in self.options:
            raise ValueError(f"the default of {self.id}, {self.default}, is none of {self.options}")

    def __str__(self) -> str:
        return f"choice {self.id} {self.affects} {self.default} of ({', '.join(map(str, self.options))})"


def defaults(choices: Sequence[Choice]) -> dict[str, Option]:
    """What is taken where nobody measures."""
    return {choice.id: choice.default for choice in choices}


def neighbours(choices: Sequence[Choice], *, is_deterministic: bool) -> Iterator[dict[str, Option]]:
    """Each config that differs from the defaults in one choice; none that differs in bits if it must not.

    >>> warps, block = Choice("warps", "bits", (4, 8), 4), Choice("i0", "perf", (32, 64), 64)
    >>> [tuple(c.values()) for c in neighbours([warps, block], is_deterministic=True)]
    [(4, 32)]
    >>> [tuple(c.values()) for c in neighbours([warps, block], is_deterministic=False)]
    [(8, 64), (4, 32)]
    """
    first = defaults(choices)
    for choice in choices:
        if is_deterministic and choice.affects == "bits":
            continue
        for option in choice.options:
            if option != choice.default:
                yield {**first, choice.id: option}
