"""What an adapter says of each compiled graph: its kernels, its counts, its events and its storages.

Takes what a compiler generated and reported. Gives Graph values; the Facts of several graphs add up. Refuses nothing.

>>> Facts(kernels=1, externs=2, bytes=64) + Facts(kernels=2, externs=0, bytes=None)
Facts(kernels=3, externs=2, bytes=None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from pytest_plugin.vocabulary import COUNTS

MOST = ("peak", "registers")  # of these the whole has what its largest part has


@dataclass(frozen=True, slots=True, repr=False)
class Facts:
    """Counts over graphs; None where the compiler cannot say. `peak` is that of the hungriest graph, and `registers`
    are those of the hungriest kernel; `spills` are bytes a thread.
    """

    kernels: int | None = 0
    externs: int | None = 0
    bytes: int | None = None
    operations: int | None = None
    peak: int | None = None
    block_accesses: int | None = None
    block_pointers: int | None = None
    descriptors: int | None = None
    tiles: int | None = None
    registers: int | None = None
    spills: int | None = None
    kernel_names: tuple[str, ...] = ()
    extern_reasons: tuple[tuple[str, str], ...] = ()
    refusals: tuple[tuple[str, str, str, str], ...] = ()
    # one for each graph: what the compiler answers to "why are these two kernels not one", or LookupError
    askers: tuple[Callable[[str, str], tuple[str, ...]], ...] = field(default=(), compare=False)

    def __add__(self, other: Facts) -> Facts:
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in COUNTS}
        numbers = {name: _joined(max if name in MOST else sum, pair) for name, pair in pairs.items()}
        return Facts(
            **numbers,
            kernel_names=self.kernel_names + other.kernel_names,
            extern_reasons=self.extern_reasons + other.extern_reasons,
            refusals=self.refusals + other.refusals,
            askers=self.askers + other.askers,
        )

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """Why two kernels were not joined, in the graphs that have both; LookupError if none has."""
        found: list[str] = []
        failure: LookupError | None = None
        for ask in self.askers:
            try:
                found += ask(first, second)
            except LookupError as error:
                failure = failure or error
        if not found:
            raise failure or LookupError("this compiler does not say why kernels stay apart")
        return tuple(found)

    def known(self) -> dict[str, int]:
        """The counts that have a value, in the order of the table."""
        return {name: value for name in COUNTS if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name in COUNTS[:3]}
        return f"Facts({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _joined(how: Callable[[Iterable[int]], int], pair: tuple[int | None, int | None]) -> int | None:
    known = [number for number in pair if number is not None]
    return how(known) if len(known) == len(pair) else None


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a GPU's tools made of a kernel: `spills` in bytes a thread, `shared` in bytes; None: they do not say."""

    text: str  # PTX, or AMD's assembly
    binary: bytes
    warps: int
    registers: int | None
    spills: int | None
    shared: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel as generated; `language` is the ending of its golden file."""

    name: str
    language: str
    text: str
    assembly: Assembly | None = None  # compile-only devices


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of memory in the life of a graph: there during the calls `first` to `last`, counted from 1.

    No `last`: it is returned, or lent to the graph. Owner: own, donated (an input left to the graph) or lent.
    """

    owner: str
    bytes: int | None
    first: int
    last: int | None
    is_returned: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph, as the adapter captured it. `storages`: None from a compiler that does not tell."""

    role: str  # inference, forward or backward
    kernels: tuple[Kernel, ...]
    wrapper: str = ""
    facts: Facts = Facts()
    # the text of each stage's value, in order
    stages: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    events: Sequence[tuple[str, str]] = ()  # what it did when it ran: ("launch", kernel), ("extern", operator)
    was_hit: bool = False  # from a store, without being compiled
    seconds: float = 0.0
    calls: tuple[str, ...] = ()  # kernels and operators, in order
    storages: tuple[Storage, ...] | None = None
    nonce: str = ""  # of the run that it was compiled for
