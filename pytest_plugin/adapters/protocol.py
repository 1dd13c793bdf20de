"""What the plugin asks of a compiler under test, as protocols that an adapter follows.

Takes nothing. Gives the protocols Adapter, Session and FreshStore, and Mutant, a row of an adapter's table of faults.
Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_plugin.adapters.captured_graph import Graph
from pytest_plugin.devices.device_choice import Device


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in a function of a module, by its qualified name, `old` becomes `new`."""

    name: str
    module: str
    function: str
    old: str
    new: str


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
