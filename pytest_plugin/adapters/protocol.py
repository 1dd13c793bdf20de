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
    """A named fault: in the text of one function, `old` is replaced by `new` while a test runs.

    Attributes:
        name: The name that tests and the option `--mutants` use.
        module: The module of the function.
        function: The qualified name of the function in the module.
        old: A text that occurs exactly once in the function's source.
        new: The faulty text.
    """

    name: str
    module: str
    function: str
    old: str
    new: str


class Session(Protocol):
    """One call of `compiled`: a compiler with a store of its own, and the graphs that it compiled.

    Attributes:
        nonce: A random text that the plugin sets before anything is compiled. Each captured Graph must carry it.

    A session may have `measured`: how many times the compiler has asked a clock, to choose between ways to compute the
    same.
    """

    nonce: str

    def compile(self, fn: Callable[..., Any], options: Mapping[str, object], dynamic: bool | None) -> Any:
        """Returns a callable that compiles `fn` when it is first called.

        Args:
            fn: The user's function or module. This call does not run it.
            options: Options of the compiler, as torch.compile takes them.
            dynamic: Whether sizes are symbolic, as torch.compile takes it.

        Returns:
            A callable with the arguments and the results of `fn`.
        """
        ...

    def capture(self) -> Sequence[Graph]:
        """Returns the graphs compiled so far, each with the events of all its calls so far."""
        ...


class FreshStore(Protocol):
    """A private artefact store that is in use, and a record of the stores that were used since."""

    @property
    def path(self) -> Path:
        """The folder of the private store."""
        ...

    @property
    def touched(self) -> Sequence[Path]:
        """The folders of the stores that were read or written since the private store came into use."""
        ...

    @property
    def users(self) -> Path:
        """The folder of the user's own store, which no test may use."""
        ...


class Adapter(Protocol):
    """A compiler under test.

    An adapter may have more than this protocol asks for:

        mutants                     a sequence of Mutant: faults that tests must notice
        settings                    options that it always compiles with, for the scripts of failing tests and of
        `--fuzz` size_context()              the value of the fixture `size_context`
        distorted_clock()           a context in which everything that the compiler measures is wrong
        device_options(device)      the options of torch.compile with which a script compiles for the device
        torch_devices               for devices of its own: torch's device type of the tensors, by id ("cpu" or another)
        has_variants                whether graphs name the `variants` of kernels, which the option `variant` forces
        capabilities                for devices of its own: what the marker `needs` may name, by id
        explain_wrong(fn, args, kwargs, options, dynamic, script)
                                    for a test with wrong numbers: the first stage of the compile that moved them, or
        an empty text; and the path of a file that shows the compile, written beside `script`
        absence(id)                 for devices of its own: why this machine has none, or an empty text
    """

    @property
    def name(self) -> str:
        """The name that `--compiler` takes, and the folder of the compiler's golden files."""
        ...

    @property
    def devices(self) -> Sequence[str]:
        """The ids of the devices that it compiles for: cpu, cuda, interpret, compile:<target>, or ids of its own."""
        ...

    @property
    def memory_options(self) -> Mapping[str, object]:
        """Options with which a compiled graph reports how it uses memory.

        The graph then has `storages`, and adds to its `events` what was not planned: ("fault", text), ("leak",
        storage), and ("held", storage) for a donated storage that is kept after its last use.
        """
        ...

    def version(self) -> str:
        """Returns the version of the compiler."""
        ...

    def session(self, folder: Path, device: Device) -> Session:
        """Makes a session.

        Args:
            folder: The folder below which everything that the session stores must lie.
            device: The device to compile for. On a compile-only device, the compiled function returns eager's results,
                and `capture` raises the error of what does not compile.

        Returns:
            A new session.
        """
        ...

    def fresh_store(self, folder: Path) -> AbstractContextManager[FreshStore]:
        """Makes a folder the store of everything that is compiled in the context, by child processes too.

        Args:
            folder: An empty folder.

        Returns:
            A context that gives a FreshStore.
        """
        ...
