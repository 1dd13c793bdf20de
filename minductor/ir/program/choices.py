"""Decisions about a kernel that are made later: the options, the default, and what another option affects.

Takes the options and the default. Gives frozen records. Refuses what is none of the options, with ValueError.

`affects` is "bits" if another option may change the bits of results, and "perf" if it changes the time only. If results
must be the same in every run (option `deterministic`), the tuner leaves choices that affect bits at their default.
A choice is made by measuring, or by the sizes of a call if it has `by_size`.

>>> str(Choice("warps", "bits", (2, 4, 8), 4))
'choice warps bits 4 of (2, 4, 8)'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal, TypeAlias, TypeVar

Affects: TypeAlias = Literal["bits", "perf"]
Option: TypeAlias = "int | str"
Taken = TypeVar("Taken", int, str)
# The option that is taken for each choice, by the choice's id.
Config: TypeAlias = Mapping[str, Option]


VARIANT = "variant"  # the id of the choice between a kernel and its variants
NEARER = 1e-9  # a size is nearer only if its distance is less by this much: logarithms are rounded
Point: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BySize:
    """Which option a call takes by its sizes: that of the nearest point.

    `symbols`: the names of the sizes. `points`: a size for each of them, in ascending order, with the option there.

    >>> str(BySize(("s0",), (((64,), "rows"), ((4096,), "two_steps"))))
    'by (s0) at (64) rows at (4096) two_steps'
    """

    symbols: tuple[str, ...]
    points: tuple[tuple[Point, Option], ...]

    def __str__(self) -> str:
        at = " ".join(f"at ({', '.join(map(str, point))}) {option}" for point, option in self.points)
        return f"by ({', '.join(self.symbols)}) {at}"


def nearest(points: Sequence[Point], sizes: Sequence[int]) -> int:
    """The number of the point that is nearest to these sizes by the sum of the differences of binary logarithms.

    A size of 0 counts as 1. Of points that are equally near, the first is taken.

    >>> [nearest([(64,), (4096,)], [size]) for size in (0, 100, 512, 513, 2000)]
    [0, 0, 0, 1, 1]
    """
    logs = [log2(max(1, size)) for size in sizes]
    best, least = 0, float("inf")
    for number, point in enumerate(points):
        distance = sum(abs(log - log2(at)) for log, at in zip(logs, point, strict=True))
        if distance < least - NEARER:
            best, least = number, distance
    return best


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision.

    `id`: "warps", "stages", "registers", the name of an axis (its block size), or VARIANT.
    """

    id: str
    affects: Affects
    options: tuple[Option, ...]
    default: Option
    by_size: BySize | None = None

    def __post_init__(self) -> None:
        if self.default not in self.options:
            raise ValueError(f"the default of {self.id}, {self.default}, is none of {self.options}")
        taken = {option for _, option in self.by_size.points} if self.by_size else set[Option]()
        if not taken <= {*self.options}:
            raise ValueError(f"sizes select {taken - {*self.options}} of {self.id}, which are none of {self.options}")

    def __str__(self) -> str:
        by_size = f" {self.by_size}" if self.by_size else ""
        return f"choice {self.id} {self.affects} {self.default} of ({', '.join(map(str, self.options))}){by_size}"


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
