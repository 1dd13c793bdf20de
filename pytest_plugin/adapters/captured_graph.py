"""What an adapter reports of each compiled graph: its kernels, its counts, its events and its storages.

Takes what a compiler generated and reported. Gives Graph values; the Facts of several graphs add up. Refuses nothing.

>>> Facts(kernels=1, externs=2, bytes=64) + Facts(kernels=2, externs=0, bytes=None)
Facts(kernels=3, externs=2, bytes=None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from pytest_plugin.vocabulary import COUNTS

MAXIMA = ("peak", "registers")  # of several graphs, the largest of these counts; the others are added


@dataclass(frozen=True, slots=True, repr=False)
class Facts:
    """The counts of one graph or of several; a count that the compiler does not know is None.

    Attributes:
        kernels: Kernels that are launched.
        externs: Operators of torch that are called.
        bytes: Bytes that the kernels read and write, as the compiler planned them.
        operations: Arithmetic operations.
        peak: The most bytes that a graph holds at a time; of several graphs the largest.
        block_accesses: Loads and stores of whole blocks, by block pointers or tensor descriptors.
        block_pointers: Those by block pointers.
        descriptors: Those by tensor descriptors.
        tiles: Kernels that are tiled.
        registers: Registers per thread of the kernel that has most; compile-only devices.
        spills: Bytes per thread that do not fit in registers; compile-only devices.
        kernel_names: The names of the kernels in the order of their launches.
        extern_reasons: Pairs of an operator that is called and the reason why no kernel was generated for it.
        refusals: (stage, kernel, kernel, reason) for each pair of kernels that was not fused.
        rewrites: (rewrite, node, place, why not) for each rewrite of the graph that was applied, or nearly was.
        askers: For each graph, a function that tells why two kernels were not fused, or raises LookupError.
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
    rewrites: tuple[tuple[str, str, str, str], ...] = ()
    askers: tuple[Callable[[str, str], tuple[str, ...]], ...] = field(default=(), compare=False)

    def __add__(self, other: Facts) -> Facts:
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in COUNTS}
        numbers = {name: _joined(max if name in MAXIMA else sum, pair) for name, pair in pairs.items()}
        return Facts(
            **numbers,
            kernel_names=self.kernel_names + other.kernel_names,
            extern_reasons=self.extern_reasons + other.extern_reasons,
            refusals=self.refusals + other.refusals,
            rewrites=self.rewrites + other.rewrites,
            askers=self.askers + other.askers,
        )

    def why_not(self, first: str, second: str) -> tuple[str, ...]:
        """Tells why two kernels were not fused.

        Args:
            first: The name of a kernel.
            second: The name of another kernel.

        Returns:
            The reasons, from each graph that has both kernels.

        Raises:
            LookupError: No graph has both, or the compiler does not tell.
        """
        found: list[str] = []
        failure: LookupError | None = None
        for ask in self.askers:
            try:
                found += ask(first, second)
            except LookupError as error:
                failure = failure or error
        if not found:
            raise failure or LookupError("this compiler does not tell why two kernels were not fused")
        return tuple(found)

    def known(self) -> dict[str, int]:
        """Returns the counts that are not None, in the order of `vocabulary.COUNTS`."""
        return {name: value for name in COUNTS if (value := getattr(self, name)) is not None}

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name in COUNTS[:3]}
        return f"Facts({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _joined(how: Callable[[Iterable[int]], int], pair: tuple[int | None, int | None]) -> int | None:
    """Returns the sum or maximum of two counts, or None if one of them is not known."""
    known = [number for number in pair if number is not None]
    return how(known) if len(known) == len(pair) else None


@dataclass(frozen=True, slots=True)
class Assembly:
    """What the tools of a GPU made of one kernel.

    Attributes:
        text: PTX, or the assembly of an AMD GPU.
        binary: The binary that a GPU loads.
        warps: Warps per block.
        registers: Registers per thread; None if the tools do not tell.
        spills: Bytes per thread that do not fit in registers; None if the tools do not tell.
        shared: Bytes of shared memory per block.
    """

    text: str
    binary: bytes
    warps: int
    registers: int | None
    spills: int | None
    shared: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated kernel.

    Attributes:
        name: The name by which it is launched.
        language: The file ending of its golden file: "cpp" or "py".
        text: Its source.
        assembly: What the GPU's tools made of it, on a compile-only device.
    """

    name: str
    language: str
    text: str
    assembly: Assembly | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """One piece of memory in the life of a graph.

    The calls of kernels and operators are numbered from 1; 0 is the start of the graph.

    Attributes:
        owner: own (the graph allocates it), donated (an input that the graph may free) or lent (another input).
        bytes: Its size; None if only a call decides it.
        first: The call from which on it is held.
        last: The last call during which it is held; None if it is returned or lent.
        is_returned: Whether the graph returns it.
        names: The names of the values that use it, one after the other.
    """

    owner: str
    bytes: int | None
    first: int
    last: int | None
    is_returned: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """One compiled graph, as the adapter captured it.

    Attributes:
        role: inference, forward or backward.
        kernels: Its kernels.
        wrapper: The text that allocates memory and launches the kernels.
        facts: Its counts.
        stages: For each stage of the compiler, in order, a function that returns the program after it as text.
        events: What the graph did when it ran: ("launch", kernel), ("extern", operator). The adapter may add to it
            later.
        was_hit: Whether the graph came from a store and was not compiled.
        seconds: The time that compiling took.
        calls: The kernels and operators that it calls, in order.
        storages: The life of its memory; None if the compiler does not tell.
        nonce: The nonce of the session that compiled it.
        variants: The names of the other ways in which its kernels can be computed, for the marker `each_variant`.
    """

    role: str
    kernels: tuple[Kernel, ...]
    wrapper: str = ""
    facts: Facts = Facts()
    stages: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    events: Sequence[tuple[str, str]] = ()
    was_hit: bool = False
    seconds: float = 0.0
    calls: tuple[str, ...] = ()
    storages: tuple[Storage, ...] | None = None
    nonce: str = ""
    variants: tuple[str, ...] = ()
