"""The adapter of the toy backend: what minductor's pytest plugin asks of a compiler, in one file.

`pytest --compiler=tiny` finds it by the entry point in pyproject.toml. docs/testing.md lists what else it may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from pytest_plugin.adapters import Facts, Graph, Kernel, Mutant
from tiny_compiler import tiny


class Adapter:
    """One for each run of pytest."""

    name = "tiny"
    devices = ("cpu",)
    memory_options: Mapping[str, object] = {}  # it tells nothing about memory
    # Faults that its tests have to notice: in this function this text becomes that one.
    mutants = (
        Mutant("dtype-forgotten", "tiny_compiler", "does_nothing", "before.dtype == after.dtype", "True"),
        Mutant("result-shared", "tiny_compiler", "does_nothing", "has_same_dtype and is_only_read", "has_same_dtype"),
        Mutant("any-number", "tiny_compiler", "does_nothing", "number != NEUTRAL[node.target]", "False"),
        Mutant("removes-nothing", "tiny_compiler", "tiny", "if does_nothing(node):", "if False:"),
    )

    def version(self) -> str:
        return "1.0"

    def session(self, folder: Path, device: Any) -> Session:
        return Session()

    @contextmanager
    def fresh_store(self, folder: Path) -> Iterator[Any]:
        """The toy keeps nothing on disk."""
        yield SimpleNamespace(path=folder, users=folder / "none", touched=())


class Session:
    """One for each call of the fixture `compiled`: it compiles, and reports each graph that was compiled."""

    nonce = ""  # set by the plugin before anything is compiled; a graph that carries another one is of another run

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        return torch.compile(fn, backend=self._backend, fullgraph=True, dynamic=dynamic)

    def _backend(self, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        events: list[tuple[str, str]] = []
        return partial(_launch, tiny(gm, inputs, observer=partial(self._note, events)), events)

    def _note(self, events: list[tuple[str, str]], gm: Any) -> None:
        """Reports a graph: each operation that is left counts as a kernel, and the graph's code is its text."""
        left = [node.name for node in gm.graph.nodes if node.op.startswith("call")]
        facts = Facts(kernels=len(left), externs=0, kernel_names=tuple(left))
        text = gm.code.strip() + "\n"
        kernels = (Kernel("graph", "py", text),)
        self.graphs.append(Graph("forward", kernels, facts=facts, events=events, nonce=self.nonce))

    def capture(self) -> Sequence[Graph]:
        return self.graphs


def _launch(run: Callable[..., Any], events: list[tuple[str, str]], *args: Any) -> Any:
    events.append(("launch", "graph"))  # evidence that the compiled graph ran, and not eager
    return run(*args)
