"""Kernels for NVIDIA GPUs: compiles them in worker processes, and launches the binaries.

First takes the text of a module of kernels with their launches, and gives the files of an artefact: a cubin for each
kernel, and `binaries.json`. Later takes these files, and gives a function for each kernel. Refuses nothing itself:
errors of the workers and of the driver are raised.

A start from the store reads the launches and loads the binaries: it imports no Triton. Kernels are compiled for
pointers at multiples of 16 bytes. The first launch with another pointer compiles the kernel once more, without the
assumption, and keeps the result in the store. So does the first launch for sizes whose indices need 64 bits, if the
kernel is compiled for sizes whose indices fit 32 bits, and the first launch for sizes that have not the powers of
two as factors that those of the first call have. Tensor descriptors require aligned pointers: a kernel that uses
them is given copies of the tensors that are not aligned.
"""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from minductor.core.errors import CompileFailed, CompilerNotFound, LoadFailed
from minductor.ir.artefact.launch_metadata import LAUNCHES, LaunchMetadata, default_launches
from minductor.ir.program.choices import neighbours
from minductor.ir.program.signature import pointer_role
from minductor.runtime.build.pool import Pool, pool_size
from minductor.runtime.build.probe import probe, version
from minductor.runtime.build.toolchain import Toolchain, Unit
from minductor.runtime.build.triton_jobs import (
    KernelFacts,
    compile_kernel,
    cuda_version,
    functions_of,
    kernel_text,
    load_triton,
)
from minductor.runtime.graphs import graph_driver
from minductor.runtime.launch.counters import Counters
from minductor.runtime.launch.cuda import (
    ALIGNMENT,
    DRIVER,
    Driver,
    Launch,
    LaunchRecord,
    bind,
    evaluate,
    launcher_text,
    lie_there,
    record,
    steps,
)
from minductor.runtime.launch.launch import KERNELS, LIBRARY
from minductor.runtime.launch.load import Library, load_library
from minductor.runtime.store.store import Entry, Store, digest
from minductor.runtime.tune.tune import DEFAULT, Candidates, Tuner

BINARIES = "binaries.json"
DESCRIPTOR = "tl.make_tensor_descriptor("


@dataclass(frozen=True, slots=True)
class Binary:
    """One kernel's machine code: what a launch has to know of it beside the LaunchMetadata."""

    entry: str  # the kernel's name in the binary
    threads: int  # of a program
    shared: int  # bytes of shared memory of a program
    scratch: int = 0  # bytes of global memory that each program uses beside the kernel's arguments
    is_aligned: bool = True  # the code relies on pointers at multiples of 16 bytes


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """What a wrapper in C++ needs to launch a kernel.

    `other`: launches it for arguments that the machine code does not take, as Python would. `record`: None if `other`
    makes all launches, since it measures them. `scratch` and `has_counter`: see Binary and LaunchMetadata.
    """

    other: Callable[..., int]
    record: LaunchRecord | None = None
    scratch: int = 0
    has_counter: bool = False


def launch_of(metadata: LaunchMetadata, binary: Binary) -> Launch:
    """What the driver needs for a launch."""
    arguments = metadata.arguments
    twos = {name: str(factor.bit_length() - 1) for name, factor in metadata.multiples.items()}
    kinds = "".join(
        "p" if kind[0] == "*" else "d" if kind == "fp64" else twos.get(name, "i") for name, kind in arguments.items()
    )
    numbers = {name: number for number, name in enumerate(arguments)}
    counted, greatest = steps(metadata.programs, numbers), steps(metadata.greatest_index, numbers)
    # behind the kernel's own arguments: the counter, the scratch memory, and the stream
    kinds = f"{kinds}{'p' * (metadata.has_counter + bool(binary.scratch))}i"
    return Launch(binary.entry, kinds, counted, binary.threads, binary.shared, binary.is_aligned, greatest)


class Gpu:
    """The worker processes, the driver and the launcher's library of a Compiler. Each is made when first needed."""

    def __init__(self, toolchain: Callable[[], Toolchain], environ: Mapping[str, str], driver: str = DRIVER) -> None:
        self._toolchain = toolchain
        self._environ = environ
        self._driver = driver
        self._starting: list[Future[None]] = []
        self._ahead: dict[tuple[str, str], Future[KernelFacts]] = {}  # by the module's text and the launch's
        self._counters = Counters()

    def expect(self, kernels: int) -> None:
        """Starts workers for so many kernels before they are known, since importing Triton takes a second."""
        wanted = min(kernels, self.workers.size) - len(self._starting)
        self._starting += [self.workers.submit(load_triton) for _ in range(wanted)]

    def build(
        self, text: str, launches: Iterable[LaunchMetadata], arch: str, unaligned: Container[str] = ()
    ) -> dict[str, bytes]:
        """Compiles kernels of the module `text` side by side. Returns the artefact's files.

        `unaligned`: the symbols of the kernels that may be given pointers that are not aligned.
        """
        while self._starting:
            self._starting.pop().result()  # a job that finds nobody idle would start yet another worker
        has_descriptors, launches = DESCRIPTOR in text, tuple(launches)
        jobs = {
            launch.name: self.workers.submit(
                compile_kernel, text, launch, "cuda", arch, is_aligned=launch.symbol not in unaligned or has_descriptors
            )
            for launch in launches
        }
        self._compile_ahead(text, launches, arch)
        try:
            return files([job.result() for job in jobs.values()])
        except Exception as error:
            failed = next((name for name, job in jobs.items() if job.done() and job.exception() is error), "")
            kept = Path(tempfile.mkdtemp(prefix="minductor-failed-")) / KERNELS
            kept.write_text(text, encoding="utf-8")
            raise CompileFailed(f"{failed}: {_reason(error)}", kept=str(kept)) from error

    def _compile_ahead(self, text: str, launches: Sequence[LaunchMetadata], arch: str) -> None:
        """Begins to compile the launches that tuning measures first, on workers that have nothing else to do."""
        steps = (launch.configured(near) for launch in launches for near in neighbours(launch.choices, launch.config))
        for step in islice(steps, max(0, self.workers.size - len(launches))):
            self._ahead[text, str(step)] = self.workers.submit(compile_kernel, text, step, "cuda", arch)

    def cuda_version(self, arch: str) -> str:
        """The version of CUDA whose assembler makes the machine code, such as "12.8"; "" if Triton does not say it."""
        return self.workers.submit(cuda_version, arch).result()

    def kernels(self, entry: Entry, arch: str, store: Store, tuner: Tuner | None = None) -> Kernels:
        """The kernels of an artefact from `build`. The tuner chooses between launches if there are several."""
        text, table = entry.text(KERNELS), entry.text(LAUNCHES)

        def unaligned(launch: LaunchMetadata) -> Mapping[str, bytes]:
            """The files of one kernel for any pointers, made when the first pointer comes that is not aligned."""
            key = digest("unaligned", text, table, launch.name, arch, version("triton"))
            with store.lock(key):
                found = store.get(key)
                if found is None:
                    found = store.put(key, self.build(text, [launch], arch, [launch.symbol]))
            return found.contents

        def key_of(launch: LaunchMetadata) -> str:
            return digest("configured", text, table, launch.name, arch, version("triton"))

        def prepare(wanted: Sequence[LaunchMetadata]) -> None:
            """Starts to compile launches side by side, but for those that the store has."""
            for launch in wanted:
                if launch.name not in compiling and store.get(key_of(launch)) is None:
                    begun = self._ahead.pop((text, str(launch)), None)
                    compiling[launch.name] = begun or self.workers.submit(compile_kernel, text, launch, "cuda", arch)

        def configured(launch: LaunchMetadata) -> Mapping[str, bytes]:
            """The files of one kernel for a launch that is not the default one. They are kept in the store."""
            found = None if launch.name in compiling else store.get(key_of(launch))
            if found is None:
                prepare([launch])
                found = store.put(key_of(launch), files([compiling[launch.name].result()]))
            return found.contents

        compiling: dict[str, Future[KernelFacts]] = {}  # by the names of launches
        launcher = self.launcher(store)
        return Kernels(entry.contents, self.driver, launcher, unaligned, configured, tuner, self._counters, prepare)

    @cached_property
    def workers(self) -> Pool:
        """The worker processes, which see no GPU."""
        return Pool(pool_size(probe().cores, self._environ), environ=self._environ)

    @cached_property
    def driver(self) -> Driver:
        return Driver(self._driver)

    def launcher(self, store: Store) -> Library | None:
        """The library that launches, compiled once per machine; None without a C++ compiler."""
        if not hasattr(self, "_launcher"):
            self._launcher = self._load_launcher(store)
        return self._launcher

    def lie_there(self, store: Store, numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
        """A function of a call's arguments: whether the tensors with these numbers begin at these addresses."""
        if (launcher := self.launcher(store)) is None:
            return graph_driver.lie_there(numbers, addresses)
        return lie_there(launcher, numbers, addresses)

    def _load_launcher(self, store: Store) -> Library | None:
        text = launcher_text()
        try:
            key = digest("launcher", text, self._toolchain().identity())
        except CompilerNotFound:
            return None

        def compiled(folder: Path) -> bytes:
            build_launcher(self._toolchain(), folder / LIBRARY)
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


def build_launcher(toolchain: Toolchain, out: Path) -> None:
    """Compiles the library that `Gpu.launcher` loads. It catches what torch throws, so it needs C++'s library."""
    unit = Unit("cuda_launch", launcher_text())
    toolchain.compile([unit], out, more_flags=("-fexceptions",), link_with=("libstdc++.so.6",))


def files(made: Sequence[KernelFacts]) -> dict[str, bytes]:
    """A cubin for each compiled kernel, and BINARIES: a Binary by the name of each launch."""
    table = {k.symbol: asdict(Binary(k.entry, k.threads, k.shared, k.scratch, k.is_aligned)) for k in made}
    return {**{cubin_name(facts.symbol): facts.binary for facts in made}, BINARIES: json.dumps(table).encode()}


def cubin_name(launch: str) -> str:
    """The name of the file that holds the machine code of a launch.

    >>> cubin_name("k_0 XBLOCK=512")
    'k_0-XBLOCK-512.cubin'
    """
    return f"{launch.replace(' ', '-').replace('=', '-')}.cubin"


class Kernels:
    """The kernels of one graph, by symbol."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        driver: Driver,
        launcher: Library | None,
        unaligned: Callable[[LaunchMetadata], Mapping[str, bytes]],
        configured: Callable[[LaunchMetadata], Mapping[str, bytes]] = lambda launch: {},
        tuner: Tuner | None = None,
        counters: Counters | None = None,
        prepare: Callable[[Sequence[LaunchMetadata]], object] = lambda launches: None,
    ) -> None:
        """`unaligned` gives the files of one kernel for any pointers; it is called when the first such pointer comes.

        `configured` gives the files of a launch that is not the default one, which the tuner may choose. `prepare` is
        called with several such launches before their files are asked for.
        """
        self._files = files
        self._launches = default_launches(files[LAUNCHES].decode())
        self._text = files.get(KERNELS, b"").decode()
        self._driver = driver
        self._launcher = launcher
        self._counters = counters or Counters()
        self._unaligned = unaligned
        self._configured = configured
        self._tuner = tuner
        self._prepare = prepare

    def bind(self, symbol: str) -> Callable[..., int]:
        """The kernel as a function of its tensors, its numbers and a stream; KeyError if there is none."""
        launch = self._launches[symbol]
        if self._tuner is None or not self._is_measured(launch):
            return self._plain(launch)
        # codegen lists the choices that affect bits only if the options allow that
        about = (_with_role(launch, "io"), _written(launch), _sizes(launch))
        return self._tuner.launch(self._work(launch), "perf", self._candidates(launch), *about)

    def kinds(self, symbol: str) -> str:
        """See `kind_letters`; KeyError if there is no such kernel."""
        return kind_letters(self._launches[symbol])

    def native(self, symbol: str) -> NativeKernel:
        """The kernel for a wrapper in C++; KeyError if there is none."""
        launch = self._launches[symbol]
        if self._tuner is None or not self._is_measured(launch):
            return self._native(launch, self._files, self._other(launch, self._files, self._general(launch)))
        run = self.bind(symbol)
        won = "" if _sizes(launch) else self._tuner.winners.get(self._work(launch), "")
        if won == DEFAULT:
            return self._native(launch, self._files, self._other(launch, self._files, self._general(launch)))
        if not won or (config := launch.config_of(won)) is None:
            return NativeKernel(run)
        chosen = launch.configured(config)
        return self._native(chosen, self._configured(chosen), self._where_not_tuned(chosen, self._plain(launch)))

    def _is_measured(self, launch: LaunchMetadata) -> bool:
        """Whether the launches of a kernel are measured, if there is a tuner."""
        return bool(launch.choices) and DESCRIPTOR not in self._text

    def _work(self, launch: LaunchMetadata) -> str:
        """What the tuner calls the work of a kernel."""
        counted = launch.grid or launch.programs
        return digest(kernel_text(self._functions, launch), str(counted), str(launch.choices))

    def _candidates(self, launch: LaunchMetadata) -> Candidates:
        """The launches of a kernel by their labels, such as "warps=8"; the default one is DEFAULT."""
        made: dict[str, Callable[..., int]] = {}

        def config(name: str) -> dict[str, int] | None:
            return launch.config if name == DEFAULT else launch.config_of(name) if name else None

        def launch_of_name(name: str) -> LaunchMetadata:
            return launch.configured(config(name) or launch.config)

        def make(name: str) -> Callable[..., int]:
            if name not in made:
                plain = self._plain(launch)
                made[name] = plain if name == DEFAULT else self._tuned(launch_of_name(name), plain)
            return made[name]

        def steps(name: str) -> Iterator[str]:
            for near in neighbours(launch.choices, config(name) or launch.config):
                yield launch.label(near) or DEFAULT

        def prepare(names: Sequence[str]) -> None:
            self._prepare([launch_of_name(name) for name in names if name != DEFAULT])

        return Candidates(DEFAULT, make, steps, lambda name: config(name) is not None, prepare, launch.symbol)

    @cached_property
    def _functions(self) -> Mapping[str, ast.FunctionDef]:
        """The functions of the kernels' module."""
        return functions_of(self._text)

    def _plain(self, launch: LaunchMetadata) -> Callable[..., int]:
        """The default launch of a kernel, which takes any pointers and sizes."""
        return self._of_any_pointers(launch, self._files, self._general(launch))

    def _general(self, launch: LaunchMetadata) -> Callable[..., int]:
        """What is called where the default launch of a kernel does not take the sizes."""
        wide, other = launch.wide(), launch.of_any_sizes()
        larger = _unreachable
        if launch.greatest_index:
            larger = _when_called(lambda: self._of_any_pointers(wide, self._configured(wide), _unreachable))
        if not launch.multiples:
            return larger
        return _when_called(lambda: self._of_any_pointers(other, self._configured(other), larger))

    def _tuned(self, launch: LaunchMetadata, plain: Callable[..., int]) -> Callable[..., int]:
        """A launch that is not the default one, which is `plain`: that takes what no binary of this one takes."""
        return self._bound(launch, self._configured(launch), self._where_not_tuned(launch, plain))

    def _where_not_tuned(self, launch: LaunchMetadata, plain: Callable[..., int]) -> Callable[..., int]:
        """What is called where a launch that is not the default one does not take the arguments."""
        if not launch.multiples:
            return plain
        other = launch.of_any_sizes()
        return _when_called(lambda: self._bound(other, self._configured(other), plain))

    def _of_any_pointers(
        self, launch: LaunchMetadata, files: Mapping[str, bytes], general: Callable[..., int]
    ) -> Callable[..., int]:
        """A launch of a binary among the files, and of another one for pointers that are not aligned.

        `general` is called for sizes that the binary does not take.
        """
        return self._bound(launch, files, self._other(launch, files, general))

    def _other(
        self, launch: LaunchMetadata, files: Mapping[str, bytes], general: Callable[..., int]
    ) -> Callable[..., int]:
        """What is called where a binary among the files does not take pointers or sizes."""
        if DESCRIPTOR in self._text:
            unaligned = _with_copies(self._bound(launch, files, general), _written(launch))
        else:
            slow = launch.of_any_sizes() if launch.multiples else launch
            unaligned = _when_called(lambda: self._bound(slow, self._unaligned(slow), general))

        def other(*args: Any) -> int:
            is_aligned = not any(isinstance(arg, torch.Tensor) and arg.data_ptr() % ALIGNMENT for arg in args)
            return general(*args) if is_aligned else unaligned(*args)

        return other

    def _bound(
        self, metadata: LaunchMetadata, files: Mapping[str, bytes], other: Callable[..., int]
    ) -> Callable[..., int]:
        """The launch of a binary among the files. `other` is called where the binary does not take the pointers."""
        name = metadata.name
        binary, launch, kernel = self._loaded(metadata, files)
        # with a counter or scratch memory the call below has more arguments, and so has what is called instead of it
        more = metadata.has_counter + bool(binary.scratch)
        instead = _without(other, more) if more else other
        if self._launcher is None:
            function = self._driver.slow(name, kernel, launch, instead)
        else:
            function = bind(self._launcher, name, kernel, launch, instead)
        if binary.scratch:
            function = _with_scratch(function, launch, binary.scratch)
        return _with_counter(function, self._counters) if metadata.has_counter else function

    def _native(self, metadata: LaunchMetadata, files: Mapping[str, bytes], other: Callable[..., int]) -> NativeKernel:
        """A binary among the files for a wrapper in C++."""
        binary, launch, kernel = self._loaded(metadata, files)
        made = record(metadata.name, kernel, launch)
        return NativeKernel(other, made, binary.scratch, metadata.has_counter)

    def _loaded(self, metadata: LaunchMetadata, files: Mapping[str, bytes]) -> tuple[Binary, Launch, int]:
        """A binary among the files, how it is launched, and the driver's handle of its kernel."""
        binary = Binary(**json.loads(files[BINARIES])[metadata.name])
        launch = launch_of(metadata, binary)
        return binary, launch, self._driver.load(files[cubin_name(metadata.name)], launch)


def kind_letters(launch: LaunchMetadata) -> str:
    """A letter for each argument of a kernel: t a tensor, i an integer, d a float."""
    kinds = launch.arguments.values()
    return "".join("t" if kind[0] == "*" else "d" if kind == "fp64" else "i" for kind in kinds)


def _sizes(launch: LaunchMetadata) -> list[int]:
    """The numbers of the arguments of a kernel that are sizes."""
    return [number for number, kind in enumerate(launch.arguments.values()) if kind in ("i32", "i64")]


def _with_role(launch: LaunchMetadata, *roles: str) -> list[int]:
    """The numbers of the tensors that a kernel treats so: "in", "out" or "io"."""
    return [number for number, name in enumerate(launch.arguments) if pointer_role(name) in roles]


def _written(launch: LaunchMetadata) -> list[int]:
    """The numbers of the tensors that a kernel writes."""
    return _with_role(launch, "io", "out")


def _reason(error: Exception) -> str:
    """The last line of an error that is not blank: Triton quotes the kernel before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _unreachable(*args: Any) -> int:
    raise AssertionError("this kernel takes any pointers and sizes")


def _when_called(make: Callable[[], Callable[..., int]]) -> Callable[..., int]:
    """The function that `make` gives, which is made at the first call."""
    made: list[Callable[..., int]] = []

    def call(*args: Any) -> int:
        if not made:
            made.append(make())
        return made[0](*args)

    return call


def _without(function: Callable[..., int], count: int) -> Callable[..., int]:
    """The function of all its arguments but the `count` that stand before the stream."""
    return lambda *args: function(*args[: -1 - count], args[-1])


def _with_copies(function: Callable[..., int], written: Sequence[int]) -> Callable[..., int]:
    """A launch with copies of the tensors that are not aligned. Results are copied back."""

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


def _with_counter(function: Callable[..., int], counters: Counters) -> Callable[..., int]:
    """A launch with the counter of its stream."""
    return lambda *args: function(*args[:-1], counters.of(args[0].device, args[-1]), args[-1])


def _with_scratch(function: Callable[..., int], launch: Launch, scratch: int) -> Callable[..., int]:
    """A launch with scratch memory, which torch's allocator may reuse for later work of the same stream."""

    def run(*args: Any) -> int:
        size = max(1, evaluate(launch.programs, args)) * scratch
        return function(*args[:-1], torch.empty(size, dtype=torch.uint8, device=args[0].device), args[-1])

    return run
