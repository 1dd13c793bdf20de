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
    """A result was asked for of a device that only compiles."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a compiled function gave, and the worst error of it, as a share of what was allowed."""

    out: Any
    grads: Mapping[str, Any]
    numerics: float
    allocated: int | None = None  # bytes that a GPU's allocator held at most for it


@dataclass(frozen=True, slots=True)
class Run:
    """What `compiled` gives: results that the oracle has passed, and how they came about."""

    results: Results | None  # None on a compile-only device
    again: Callable[..., Any]  # the same compiled function on other arguments, checked likewise; gives its output
    capture: Callable[[], Sequence[Graph]]
    # bytes of the tensors given and gained: "inputs", "output"
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def _found(self) -> Results:
        if self.results is None:
            raise NoNumbers("compile-only: no numbers; a test on compile:<target> may ask for texts, counts and facts")
        return self.results

    @property
    def out(self) -> Any:
        return self._found().out

    @property
    def grads(self) -> Mapping[str, Any]:
        return self._found().grads

    @property
    def numerics(self) -> float:
        """The worst error, as a share of what was allowed."""
        return self._found().numerics

    @property
    def allocated(self) -> int | None:
        """The bytes that the allocator held at most during the call, beyond the arguments; None but on a GPU."""
        return self._found().allocated

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """What is compiled by now: `again` may have added graphs."""
        return tuple(self.capture())

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(kernel.text for graph in self.graphs for kernel in graph.kernels)

    @property
    def assembly(self) -> tuple[Assembly, ...]:
        """Of each kernel, on a compile-only device."""
        return tuple(k.assembly for graph in self.graphs for k in graph.kernels if k.assembly is not None)

    @property
    def wrappers(self) -> tuple[str, ...]:
        return tuple(graph.wrapper for graph in self.graphs)

    @property
    def report(self) -> Facts:
        facts = [graph.facts for graph in self.graphs]
        return sum(facts[1:], facts[0]) if facts else Facts()

    @property
    def stages(self) -> dict[str, str]:
        """The text of each stage's value, by role and stage: "forward.fuse"."""
        return {f"{graph.role}.{name}": text() for graph in self.graphs for name, text in graph.stages.items()}

    @property
    def plan(self) -> str:
        """The last stage's value of each graph: what the wrapper is written from."""
        return "\n\n".join(list(graph.stages.values())[-1]() for graph in self.graphs if graph.stages)

    @property
    def events(self) -> tuple[tuple[str, str], ...]:
        """What the compiled graphs did when they ran, in the order of each graph: (launch, kernel) and so on."""
        return tuple(event for graph in self.graphs for event in graph.events)

    @property
    def seconds(self) -> float:
        return sum(graph.seconds for graph in self.graphs)
