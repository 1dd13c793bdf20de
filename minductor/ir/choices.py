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
from itertools import product
from typing import Literal, TypeAlias

Affects: TypeAlias = Literal["bits", "perf"]
Option: TypeAlias = "int | str"
# an option of each choice, by id
Config: TypeAlias = Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision; `id` is a launch's parameter ("warps", "stages", a block) or names what its variants differ in."""

    id: str
    affects: Affects
    options: tuple[Option, ...]
    default: Option

    def __post_init__(self) -> None:
        if self.default not in self.options:
            raise ValueError(f"the default of {self.id}, {self.default}, is none of {self.options}")

    def __str__(self) -> str:
        return f"choice {self.id} {self.affects} {self.default} of ({', '.join(map(str, self.options))})"


@dataclass(frozen=True, slots=True)
class BlockConstraint:
    """What an access asks of a block: that it divides a length, or is a multiple of it."""

    block: str
    length: int


def is_allowed(config: Config, constraints: Sequence[BlockConstraint]) -> bool:
    """Whether every block of a config fits the accesses.

    >>> rule = BlockConstraint("XBLOCK", 48)
    >>> [n for n in (8, 16, 32, 96) if is_allowed({"XBLOCK": n}, [rule])]
    [8, 16, 96]
    """
    for rule in constraints:
        size = config.get(rule.block)
        if isinstance(size, int) and rule.length % size != 0 and size % rule.length != 0:
            return False
    return True


def defaults(choices: Sequence[Choice]) -> dict[str, Option]:
    """What is taken where nobody measures."""
    return {choice.id: choice.default for choice in choices}


def configs(
    choices: Sequence[Choice], constraints: Sequence[BlockConstraint] = (), *, is_deterministic: bool
) -> Iterator[dict[str, Option]]:
    """The defaults, then every other allowed combination; what affects bits stays at its default if it must.

    >>> warps, block = Choice("warps", "bits", (4, 8), 4), Choice("XBLOCK", "perf", (32, 64), 64)
    >>> [tuple(c.values()) for c in configs([warps, block], is_deterministic=True)]
    [(4, 64), (4, 32)]
    >>> len(list(configs([warps, block], is_deterministic=False)))
    4
    """
    first = defaults(choices)
    yield first
    open_options = [
        (choice.default,) if is_deterministic and choice.affects == "bits" else choice.options for choice in choices
    ]
    for values in product(*open_options):
        config = dict(zip((choice.id for choice in choices), values, strict=True))
        if config != first and is_allowed(config, constraints):
            yield config
