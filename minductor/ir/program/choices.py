"""Decisions about a kernel that the tuner may change: the options, the default, and what another option affects.

Takes the options and the default. Gives frozen records. Refuses a default that is none of the options, with ValueError.

`affects` is "bits" if another option may change the bits of results, and "perf" if it changes the time only. If results
must be the same in every run (option `deterministic`), the tuner leaves choices that affect bits at their default.

>>> str(Choice("warps", "bits", (2, 4, 8), 4))
'choice warps bits 4 of (2, 4, 8)'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Affects: TypeAlias = Literal["bits", "perf"]
Option: TypeAlias = "int | str"
# The option that is taken for each choice, by the choice's id.
Config: TypeAlias = Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision.

    `id`: "warps", "stages", "registers", the name of an axis (its block size), or what differs between variants.
    """

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
    """The default of each choice, by id."""
    return {choice.id: choice.default for choice in choices}


def neighbours(choices: Sequence[Choice], *, is_deterministic: bool) -> Iterator[dict[str, Option]]:
    """Each config that differs from the defaults in one choice; with `is_deterministic`, in one that affects no bits.

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
