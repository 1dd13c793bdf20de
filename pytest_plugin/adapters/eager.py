"""The compiler that does nothing: graphs run as they were traced. It tests the plugin, and the plugin's tests.

Takes a function; gives one that Dynamo traces and eager runs. Each graph that computes is one kernel, whose text
is the graph's own Python code. Refuses options.
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
        return self.graphs


@dataclass(frozen=True, slots=True)
class NoStore:
    """Eager keeps nothing on disk."""

    path: Path
    users: Path = Path("/nowhere")
    touched: tuple[Path, ...] = ()


class Eager:
    """The adapter."""

    name = "eager"
    devices = ("cpu", "cuda")
    memory_options: Mapping[str, object] = MappingProxyType({})

    def version(self) -> str:
        import torch

        return str(torch.__version__)

    def session(self, folder: Path, device: Device) -> Session:
        return Session()

    @contextmanager
    def fresh_store(self, folder: Path) -> Generator[NoStore]:
        yield NoStore(folder)

    def distorted_clock(self) -> AbstractContextManager[None]:
        """Eager measures nothing."""
        return nullcontext()
