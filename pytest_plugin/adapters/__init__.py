"""Adapters: what the plugin asks of a compiler, and how one is found by its name.

Takes a name; gives the adapter. Refuses unknown names, with the known ones, and incomplete adapters (ValueError).
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from pytest_plugin.devices.devices import Device
from pytest_plugin.oracle.facts import Graph
from pytest_plugin.vocabulary import ADAPTERS, ENTRY_POINTS

PARTS = ("name", "devices", "memory_options", "version", "session", "fresh_store")


class Session(Protocol):
    """One `compiled` call: a compiler with a store of its own, and what it compiled.

    `nonce` is set before anything is compiled, and each graph that is captured has to carry it.
    """

    nonce: str

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        """A callable that compiles when it is called."""
        ...

    def capture(self) -> Sequence[Graph]:
        """The graphs compiled so far, with the events so far."""
        ...


class FreshStore(Protocol):
    """A private store in use, and which stores were touched since."""

    @property
    def path(self) -> Path: ...

    @property
    def touched(self) -> Sequence[Path]: ...

    @property
    def users(self) -> Path: ...


class Adapter(Protocol):
    """A compiler under test.

    One may have more: `mutants`, faults of it by name; `size_context()`; `distorted_clock()`, a context in which what
    it measures is wrong; `device_options(device)`, what a script has to give torch.compile; and for devices of its own
    `torch_devices`, torch's name of the memory by id ("cpu" or a name that torch was given), `capabilities` by id, and
    `absence(id)`, why this machine has none.
    """

    @property
    def name(self) -> str: ...

    @property
    def devices(self) -> Sequence[str]:
        """The ids of devices that it compiles for: cpu, cuda, interpret, compile:<target>, or its own."""
        ...

    @property
    def memory_options(self) -> Mapping[str, object]:
        """Options of a compile whose graphs tell what they do to memory, and say in `events` what was not planned:
        ("fault", text), ("leak", storage), and ("held", storage) for a donated one that outlives its last use.
        """
        ...

    def version(self) -> str: ...

    def session(self, folder: Path, device: Device) -> Session:
        """A session for a device, whose artefacts lie below the folder. On compile-only ones its functions give what
        eager gives, and `capture` raises what does not compile.
        """
        ...

    def fresh_store(self, folder: Path) -> AbstractContextManager[FreshStore]:
        """Makes the folder the store of everything compiled inside the block, child processes included."""
        ...


def find_adapter(name: str) -> Adapter:
    """The adapter of that name: one of ours, or one that an installed package brings."""
    if name in ADAPTERS:
        module, _, attribute = ADAPTERS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    others = _brought()
    if name not in others:
        raise ValueError(f"no compiler is called {name!r}; the compilers are {', '.join(compilers())}")
    adapter = others[name].load()()
    missing = [part for part in PARTS if not hasattr(adapter, part)]
    if missing:
        raise ValueError(f"the adapter {name!r} of {others[name].value} has no {', '.join(missing)}")
    return adapter


def compilers() -> tuple[str, ...]:
    """The names of all adapters that are installed."""
    return (*ADAPTERS, *_brought())


def _brought() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
