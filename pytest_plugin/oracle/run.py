"""What `compiled` gives to a test: the checked results, and everything that the compiler generated on the way.

Takes the results that the oracle has checked and what the adapter captured. Gives a Run. Refuses, by NoNumbers, to give
results of a device that only compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_plugin.adapters import Assembly, Facts, Graph


class NoNumbers(RuntimeError):
    """A test asked for results on a device that only compiles."""


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a compiled function, after the oracle has accepted them.

    Attributes:
        out: What the function returned.
        grads: The gradients by the names of arguments and parameters; empty if none were taken.
        numerics: The worst error, as a share of the allowed one: at most 1.
        allocated: The most bytes that a GPU's allocator held during the call, beyond the arguments; None elsewhere.
    """

    out: Any
    grads: Mapping[str, Any]
    numerics: float
    allocated: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What `compiled` returns: results that the oracle has accepted, and everything that the compiler generated.

    Attributes:
        results: The results; None on a compile-only device.
        again: Calls the same compiled function with other arguments, compares the results likewise, and returns the
            output.
        capture: Returns the graphs compiled so far.
        sizes: The bytes of all tensors by word: "inputs" for the arguments, "output" for the results.
        count_measured: Returns how many times the compiler has asked a clock so far.
    """

    results: Results | None
    again: Callable[..., Any]
    capture: Callable[[], Sequence[Graph]]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    count_measured: Callable[[], int] = int

    @property
    def measured(self) -> int:
        """How many times the compiler has asked a clock so far, to choose between ways to compute the same.

        0 if it takes its choices from a store, and for compilers that do not tell.
        """
        return self.count_measured()

    def _found(self) -> Results:
        if self.results is None:
            raise NoNumbers(
                "compile-only: no numbers; a test on compile:<target> may use texts and counts, but no results"
            )
        return self.results

    @property
    def out(self) -> Any:
        """What the compiled function returned. Raises NoNumbers on a compile-only device."""
        return self._found().out

    @property
    def grads(self) -> Mapping[str, Any]:
        """The gradients by the names of arguments and parameters. Raises NoNumbers on a compile-only device."""
        return self._found().grads

    @property
    def numerics(self) -> float:
        """The worst error of all results, as a share of the allowed one. Raises NoNumbers on a compile-only device."""
        return self._found().numerics

    @property
    def allocated(self) -> int | None:
        """The most bytes that a GPU's allocator held during the call, beyond the arguments; None on other devices."""
        return self._found().allocated

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs compiled so far: a call of `again` may have added some."""
        return tuple(self.capture())

    @property
    def kernels(self) -> tuple[str, ...]:
        """The text of each kernel, of all graphs in order."""
        return tuple(kernel.text for graph in self.graphs for kernel in graph.kernels)

    @property
    def assembly(self) -> tuple[Assembly, ...]:
        """The assembly of each kernel, on a compile-only device."""
        return tuple(k.assembly for graph in self.graphs for k in graph.kernels if k.assembly is not None)

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The text of each graph's wrapper: the code that allocates and launches."""
        return tuple(graph.wrapper for graph in self.graphs)

    @property
    def report(self) -> Facts:
        """The counts of all graphs, added up."""
        facts = [graph.facts for graph in self.graphs]
        return sum(facts[1:], facts[0]) if facts else Facts()

    @property
    def stages(self) -> dict[str, str]:
        """The text of the program after each stage of the compiler, by role and stage: "forward.fuse"."""
        return {f"{graph.role}.{name}": text() for graph in self.graphs for name, text in graph.stages.items()}

    @property
    def plan(self) -> str:
        """The text of each graph after its last stage, from which the wrapper is printed."""
        return "\n\n".join(list(graph.stages.values())[-1]() for graph in self.graphs if graph.stages)

    @property
    def events(self) -> tuple[tuple[str, str], ...]:
        """What the compiled graphs did when they ran: ("launch", kernel), ("extern", operator) and so on."""
        return tuple(event for graph in self.graphs for event in graph.events)

    @property
    def seconds(self) -> float:
        """The seconds that compiling took, of all graphs."""
        return sum(graph.seconds for graph in self.graphs)
