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
from typing import Literal, TypeAlias, TypeVar

Affects: TypeAlias = Literal["bits", "perf"]
Option: TypeAlias = "int | str"
Taken = TypeVar("Taken", int, str)
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


def open_choices(choices: Sequence[Choice], *, is_deterministic: bool) -> tuple[Choice, ...]:
    """The choices that measuring may change: those with several options; with `is_deterministic`, that affect no bits.

    >>> warps, block = Choice("warps", "bits", (4, 8), 4), Choice("i0", "perf", (32, 64), 64)
    >>> [choice.id for choice in open_choices([warps, block], is_deterministic=True)]
    ['i0']
    """
    return tuple(c for c in choices if len(c.options) > 1 and not (is_deterministic and c.affects == "bits"))


def neighbours(options: Mapping[str, Sequence[Taken]], config: Mapping[str, Taken]) -> Iterator[dict[str, Taken]]:
    """Each config that differs from `config` in one choice, by the option before or behind the one of `config`.

    >>> [tuple(c.values()) for c in neighbours({"warps": (2, 4, 8), "i0": (32, 64)}, {"warps": 4, "i0": 64})]
    [(2, 64), (8, 64), (4, 32)]
    """
    for name, known in options.items():
        place = known.index(config[name])
        for option in (*known[max(0, place - 1) : place], *known[place + 1 : place + 2]):
            yield {**config, name: option}
