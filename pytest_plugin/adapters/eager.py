"""The adapter of no compiler at all: graphs run in eager as they were traced. It serves to test the plugin itself.

Takes a function. Gives one that Dynamo traces and eager runs. Each graph that computes something counts as one kernel,
whose text is the graph's Python code. Refuses options (ValueError).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_plugin.adapters.captured_graph import Facts, Graph, Kernel
from pytest_plugin.devices.device_choice import Device


class Session:
    """The graphs that one torch.compile traced."""

    def __init__(self) -> None:
        self.nonce = ""
        self.graphs: list[Graph] = []

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        """Returns the function, to be traced and run in eager. Raises ValueError if there are options."""
        import torch

        tools: Any = torch  # torch leaves its types open
        if options:
            raise ValueError(f"the eager compiler has no options: {', '.join(options)}")
        return tools.compile(fn, backend=self._backend, fullgraph=True, dynamic=dynamic)

    def _backend(self, gm: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
        text = str(gm.code).strip() + "\n"
        events: list[tuple[str, str]] = []

        def call(*args: Any) -> Any:
            events.append(("launch", "graph"))
            return gm(*args)

        if all(node.op in ("placeholder", "output") for node in gm.graph.nodes):
            self._note((), Facts(), text, events)
            return gm
        self._note((Kernel("graph", "py", text),), Facts(kernels=1, kernel_names=("graph",)), text, events)
        return call

    def _note(self, kernels: tuple[Kernel, ...], facts: Facts, text: str, events: list[tuple[str, str]]) -> None:
        stages = {"trace": lambda: text}
        self.graphs.append(Graph("forward", kernels, facts=facts, stages=stages, events=events, nonce=self.nonce))

    def capture(self) -> Sequence[Graph]:
        """Returns the graphs traced so far."""
        return self.graphs


@dataclass(frozen=True, slots=True)
class NoStore:
    """The store of eager, which keeps nothing on disk."""

    path: Path
    users: Path = Path("/nowhere")
    touched: tuple[Path, ...] = ()


class Eager:
    """The adapter of eager."""

    name = "eager"
    devices = ("cpu", "cuda")
    memory_options: Mapping[str, object] = MappingProxyType({})

    def version(self) -> str:
        """Returns torch's version."""
        import torch

        return str(torch.__version__)

    def session(self, folder: Path, device: Device) -> Session:
        """Makes a session; eager needs neither the folder nor the device."""
        return Session()

    @contextmanager
    def fresh_store(self, folder: Path) -> Generator[NoStore]:
        """Gives a store that is never used."""
        yield NoStore(folder)

    def distorted_clock(self) -> AbstractContextManager[None]:
        """Does nothing, since eager measures nothing."""
        return nullcontext()
