"""The kernels of an artefact for an NVIDIA GPU: binaries that worker processes make, and the functions that run them.

Takes the text of a module of kernels and a pool of workers that see no GPU; later the files that came of it. Gives the
files (a cubin for each kernel, and a table); later a function for each symbol. Refuses nothing: what the workers or the
driver refuse is raised.

A start from the store reads the table and loads the binaries: it imports no Triton. Kernels are compiled for pointers
at multiples of 16 bytes; the first launch with others compiles that kernel once more, without that assumption, and
keeps it in the store too. Tensor descriptors know no other pointers: what is not aligned is copied for these.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from minductor.core.errors import CompileFailed, CompilerNotFound, LoadFailed
from minductor.ir.program.signature import pointer_role
from minductor.runtime.build.pool import Pool, pool_size
from minductor.runtime.build.probe import probe, version
from minductor.runtime.build.toolchain import Toolchain, Unit
from minductor.runtime.build.triton_jobs import KernelFacts, compile_kernel, launches, load_triton, other_launches
from minductor.runtime.launch.cuda import ALIGNMENT, DRIVER, Driver, Launch, Steps, bind, evaluate, launcher_text, steps
from minductor.runtime.launch.launch import KERNELS, LIBRARY
from minductor.runtime.launch.load import Library, load_library
from minductor.runtime.store.store import Entry, Store, digest
from minductor.runtime.tune.tune import Tuner

TABLE = "launches.json"
DESCRIPTOR = "tl.make_tensor_descriptor("


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of the table. `scratch`: bytes of global memory that each program wants beside its arguments."""

    entry: str
    kinds: str  # a letter for each argument but the stream
    programs: Steps
    threads: int
    shared: int
    scratch: int = 0
    is_aligned: bool = True  # it relies on pointers at multiples of 16 bytes
    written: Sequence[int] = ()  # arguments

    def launch(self) -> Launch:
        kinds = f"{self.kinds}{'p' * bool(self.scratch)}i"
        return Launch(self.entry, kinds, self.programs, self.threads, self.shared, self.is_aligned)


def row(text: str, facts: KernelFacts) -> Row:
    """What a launch of a compiled kernel needs to know."""
    names, programs, types = launch_table(text)[facts.symbol]
    pointers = sum(kind.startswith("*") for kind in types.values())
    kinds = "".join("p" if kind.startswith("*") else "d" if kind == "fp64" else "i" for kind in types.values())
    return Row(
        facts.entry,
        kinds,
        steps(programs, names, pointers),
        facts.threads,
        facts.shared,
        facts.scratch,
        facts.is_aligned,
        [number for number, name in enumerate(types) if number < pointers and pointer_role(name) != "in"],
    )


def launch_table(text: str) -> dict[str, tuple[list[str], str, dict[str, str]]]:
    """The table LAUNCHES as it is written: a launch's numbers, its count of programs, its parameters with types."""
    (table,) = ast.parse(text[text.index("LAUNCHES = {") :]).body
    assert isinstance(table, ast.Assign) and isinstance(table.value, ast.Dict)
    found: dict[str, tuple[list[str], str, dict[str, str]]] = {}
    for key, value in zip(table.value.keys, table.value.values, strict=True):
        match key, value:
            case ast.Constant(str(symbol)), ast.Tuple([ast.Lambda(given, body), ast.Dict() as types, *_]):
                kinds = {name: kind for name, kind in ast.literal_eval(types).items() if kind != "constexpr"}
                found[symbol] = ([arg.arg for arg in given.args], ast.unparse(body), kinds)
            case _:
                raise ValueError(f"no row of LAUNCHES: {ast.unparse(value)}")
    return found


class Gpu:
    """What a Compiler keeps for GPUs: worker processes, the driver, and the library that launches; each when needed."""

    def __init__(self, toolchain: Callable[[], Toolchain], environ: Mapping[str, str], driver: str = DRIVER) -> None:
        self._toolchain = toolchain
        self._environ = environ
        self._driver = driver
        self._starting: list[Future[None]] = []

    def expect(self, kernels: int) -> None:
        """Starts workers for so many kernels, which will be known later: loading Triton takes them a second."""
        wanted = min(kernels, self.workers.size) - len(self._starting)
        self._starting += [self.workers.submit(load_triton) for _ in range(wanted)]

    def build(self, text: str, symbols: Mapping[str, bool], arch: str) -> dict[str, bytes]:
        """The artefact's files: all kernels compiled side by side; of each, whether its pointers will be aligned."""
        while self._starting:
            self._starting.pop().result()  # a job that finds nobody idle would start yet another worker
        has_descriptors = DESCRIPTOR in text
        jobs = {
            symbol: self.workers.submit(
                compile_kernel, text, symbol, "cuda", arch, is_aligned=is_aligned or has_descriptors
            )
            for symbol, is_aligned in symbols.items()
        }
        try:
            return files(text, [job.result() for job in jobs.values()])
        except Exception as error:
            failed = next((symbol for symbol, job in jobs.items() if job.done() and job.exception() is error), "")
            kept = Path(tempfile.mkdtemp(prefix="minductor-failed-")) / KERNELS
            kept.write_text(text, encoding="utf-8")
            raise CompileFailed(f"{failed}: {_reason(error)}", kept=str(kept)) from error

    def kernels(self, entry: Entry, arch: str, store: Store, tuner: Tuner | None = None) -> Kernels:
        """The kernels of an artefact that `build` made; where it leaves their launches open, the tuner chooses."""
        text = entry.text(KERNELS)

        def unaligned(symbol: str) -> Mapping[str, bytes]:
            """The files of one kernel for any pointers, made when the first such pointer comes."""
            key = digest("unaligned", text, symbol, arch, version("triton"))
            with store.lock(key):
                found = store.get(key)
                if found is None:
                    found = store.put(key, self.build(text, {symbol: False}, arch))
            return found.contents

        def configured(row: str) -> Mapping[str, bytes]:
            """The files of one kernel as another row of the table has it; of each that is asked for, kept."""
            key = digest("configured", text, row, arch, version("triton"))
            found = store.get(key)
            if found is None:
                symbol, _, _ = row.partition(" ")
                rows = [name for name in other_launches(text, symbol) if name not in compiling]
                compiling.update({name: self.workers.submit(compile_kernel, text, name, "cuda", arch) for name in rows})
                found = store.put(key, files(text, [compiling[row].result()]))
            return found.contents

        compiling: dict[str, Future[KernelFacts]] = {}  # all of one kernel side by side
        return Kernels(entry.contents, self.driver, self.launcher(store), unaligned, configured, tuner)

    @cached_property
    def workers(self) -> Pool:
        """They see no GPU."""
        return Pool(pool_size(probe().cores, self._environ), environ=self._environ)

    @cached_property
    def driver(self) -> Driver:
        return Driver(self._driver)

    def launcher(self, store: Store) -> Library | None:
        """Compiled once for a machine; None without a C++ compiler."""
        if not hasattr(self, "_launcher"):
            self._launcher = self._load_launcher(store)
        return self._launcher

    def _load_launcher(self, store: Store) -> Library | None:
        text = launcher_text()
        try:
            key = digest("launcher", text, self._toolchain().identity())
        except CompilerNotFound:
            return None

        def compiled(folder: Path) -> bytes:
            self._toolchain().compile([Unit("cuda_launch", text)], folder / LIBRARY)
            return (folder / LIBRARY).read_bytes()

        def library() -> Library:
            with store.lock(key):
                found = store.get(key) or store.put(key, {LIBRARY: store.in_scratch(compiled)})
            try:
                return load_library(found.file(LIBRARY))
            except LoadFailed:
                store.remove(found)
                raise

        try:
            loaded = library()
        except LoadFailed:  # damaged or removed since the store read it
            loaded = library()
        self.driver.connect(loaded)
        return loaded


def files(text: str, made: Sequence[KernelFacts]) -> dict[str, bytes]:
    """A cubin for each kernel, and the table of how they are launched."""
    table = {facts.symbol: asdict(row(text, facts)) for facts in made}
    return {**{_file(facts.symbol): facts.binary for facts in made}, TABLE: json.dumps(table).encode()}


def _file(row: str) -> str:
    """The name of a binary's file."""
    return f"{row.replace(' ', '-').replace('=', '-')}.cubin"


class Kernels:
    """The kernels of one graph, by symbol."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        driver: Driver,
        launcher: Library | None,
        unaligned: Callable[[str], Mapping[str, bytes]],
        configured: Callable[[str], Mapping[str, bytes]] = lambda row: {},
        tuner: Tuner | None = None,
    ) -> None:
        """`unaligned` gives the files of one kernel for any pointers; it is asked when such a pointer comes.

        `configured` gives those of another row of the table of launches, which the tuner may choose.
        """
        self._files = files
        self._text = files.get(KERNELS, b"").decode()
        self._driver = driver
        self._launcher = launcher
        self._unaligned = unaligned
        self._configured = configured
        self._tuner = tuner

    def bind(self, symbol: str) -> Callable[..., int]:
        """The kernel as a function of its tensors, its numbers and a stream; KeyError if there is none."""
        is_open = self._tuner is not None and DESCRIPTOR not in self._text
        others = other_launches(self._text, symbol) if is_open else ()
        if self._tuner is None or not others:
            return self._plain(symbol)
        kinds = launches(self._text)[symbol][1]
        places = {role: [n for n, name in enumerate(kinds) if pointer_role(name) == role] for role in ("io", "out")}
        sizes = [number for number, kind in enumerate(kinds.values()) if kind == "i64"]
        made: dict[str, Callable[..., int]] = {}

        def make(row: str) -> Callable[..., int]:
            if row not in made:
                plain = self._plain(symbol)
                made[row] = plain if row == symbol else self._bound(row, self._configured(row), plain)
            return made[row]

        work = digest(self._text, symbol)
        # a row is there only if the options allow what it affects
        written = (*places["io"], *places["out"])
        return self._tuner.launch(work, "perf", symbol, (symbol, *others), make, places["io"], written, sizes)

    def _plain(self, symbol: str) -> Callable[..., int]:
        found: list[Callable[..., int]] = []
        if DESCRIPTOR in self._text:
            written = json.loads(self._files[TABLE])[symbol]["written"]
            found.append(_with_copies(self._bound(symbol, self._files, _never), written))

        def other(*args: Any) -> int:
            if not found:
                found.append(self._bound(symbol, self._unaligned(symbol), _never))
            return found[0](*args)

        return self._bound(symbol, self._files, other)

    def _bound(self, symbol: str, files: Mapping[str, bytes], other: Callable[..., int]) -> Callable[..., int]:
        fields = json.loads(files[TABLE])[symbol]
        about = Row(**{**fields, "programs": [tuple(step) for step in fields["programs"]]})
        launch = about.launch()
        kernel = self._driver.load(files[_file(symbol)], launch)
        # with scratch memory the call below has one argument more, and so has what is called instead of it
        instead = _without_scratch(other) if about.scratch else other
        if self._launcher is None:
            function = self._driver.slow(symbol, kernel, launch, instead)
        else:
            function = bind(self._launcher, symbol, kernel, launch, instead)
        return _with_scratch(function, about) if about.scratch else function


def _reason(error: Exception) -> str:
    """The last line that says something: Triton quotes the kernel before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _never(*args: Any) -> int:
    raise AssertionError("this kernel takes any pointers")


def _without_scratch(function: Callable[..., int]) -> Callable[..., int]:
    return lambda *args: function(*args[:-2], args[-1])


def _with_copies(function: Callable[..., int], written: Sequence[int]) -> Callable[..., int]:
    """A launch on copies of the tensors whose pointers are not aligned; what it writes is copied back."""

    def run(*args: Any) -> int:
        moved = [_aligned(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        status = function(*moved)
        for number in written:
            if moved[number] is not args[number]:
                args[number].copy_(moved[number])
        return status

    return run


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _with_scratch(function: Callable[..., int], about: Row) -> Callable[..., int]:
    """A launch with memory of its own, which torch's allocator may give to whatever the stream runs after it."""

    def run(*args: Any) -> int:
        size = max(1, evaluate(about.programs, args)) * about.scratch
        return function(*args[:-1], torch.empty(size, dtype=torch.uint8, device=args[0].device), args[-1])

    return run
