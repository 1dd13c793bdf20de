"""A GPU that is not there: a driver of the test's own, whose kernels Triton's interpreter computes on CPU memory.

Takes a folder. Gives a driver (fake_driver.cpp), what stands for libtorch_cuda.so, and a Compiler that takes graphs of
the CPU for graphs of this GPU. Nothing is compiled: a binary is the number under which `FakeGpu.compiled` has the
kernel. Refuses nothing.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from minductor.driver import Compiled, Compiler
from minductor.frontend.capture.captured_graph import Graph
from minductor.frontend.graph_passes.retarget import retarget
from minductor.ir.artefact.launch_metadata import LaunchMetadata
from minductor.runtime.build.pool import Pool
from minductor.runtime.build.probe import find_compiler
from minductor.runtime.build.triton_jobs import KernelFacts, Memory, compile_kernel, interpret_kernel
from minductor.runtime.graphs.graph_driver import GraphDriver
from minductor.runtime.launch.cuda import Driver
from minductor.runtime.launch.gpu import Gpu
from minductor.runtime.launch.interpret import SETTINGS
from minductor.runtime.store.store import Store
from minductor.target import Env, by_name

STREAM = 0x7E57
_Run = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint)


def build_driver(folder: Path) -> Path:
    """The library that stands for the driver."""
    out = folder / "libfake.so"
    source = Path(__file__).with_name("fake_driver.cpp")
    subprocess.run([*find_compiler(os.environ).command, "-shared", "-fPIC", str(source), "-o", str(out)], check=True)
    return out


@dataclass
class FakeGpu:
    """A driver, what it was asked, and the memory that launches may read behind pointers that no allocator knows."""

    library: Path
    compiled: list[tuple[str, LaunchMetadata, bool]] = field(default_factory=list[Any])  # text, launch, is_aligned
    archs: list[str] = field(default_factory=list[str])  # of `compiled`: the architecture
    launched: list[str] = field(default_factory=list[str])  # the names of launches
    numbers: list[int] = field(default_factory=list[int])  # their numbers in `compiled`
    inputs: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    scratch: int = 0  # bytes that each program of a kernel uses

    def __post_init__(self) -> None:
        self.state = ctypes.CDLL(str(self.library))
        self.interpreter = Pool(1, environ=os.environ, settings=SETTINGS)
        self.pool = _Pool(self)

    def number(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.state, name).value

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.state, name).value = value

    def answer(self, *statuses: int) -> None:
        """What the next launches give."""
        row, start = (ctypes.c_int * 8).in_dll(self.state, "statuses"), self.number("launches")
        for number, status in enumerate(statuses):
            row[(start + number) % 8] = status

    def forget(self) -> None:
        """Forgets what it was asked."""
        for name in ("launches", "entered", "left", "capturing", "contexts"):
            self.set(name, 0)
        self.answer(*[0] * 8)
        for held in (self.compiled, self.archs, self.launched, self.numbers):
            held.clear()
        self.scratch = 0

    def last(self) -> tuple[str, LaunchMetadata, bool]:
        """The kernel of the last launch."""
        at = ctypes.c_void_p.in_dll(self.state, "launched").value
        assert at is not None
        return self.compiled[int(ctypes.string_at(at))]

    def shape(self) -> tuple[int, ...]:
        return tuple((ctypes.c_uint64 * 7).in_dll(self.state, "shape"))

    def stream(self) -> int:
        return ctypes.c_uint64.in_dll(self.state, "stream_given").value

    def words(self, count: int) -> tuple[int, ...]:
        """The first words of the last launch."""
        return tuple((ctypes.c_uint64 * count).in_dll(self.state, "words"))

    def computing(self) -> AbstractContextManager[None]:
        """A context in which launches compute."""
        return self.watching(self._run)

    @contextmanager
    def watching(self, look: Callable[[int, Any, int], object]) -> Iterator[None]:
        """Calls `look` in each launch with the kernel's number, the words and the number of programs. An error in it is
        raised at the end.
        """
        failed: list[BaseException] = []

        def run(name: bytes, words: Any, programs: int) -> None:
            try:
                look(int(name), words, programs)
            except BaseException as error:  # it cannot pass through C
                failed.append(error)

        function, place = _Run(run), ctypes.c_void_p.in_dll(self.state, "run")
        place.value = ctypes.cast(function, ctypes.c_void_p).value
        try:
            yield
        finally:
            place.value = None
        if failed:
            raise failed[0]

    def _run(self, number: int, words: Any, programs: int) -> None:
        text, launch, _ = self.compiled[number]
        self.launched.append(launch.name)
        self.numbers.append(number)
        kinds = list(launch.arguments.values())
        pointers = [words[n] for n, kind in enumerate(kinds) if kind[0] == "*"]
        numbers = [_number(words[n], kind) for n, kind in enumerate(kinds) if kind[0] != "*"]
        before = [ctypes.string_at(at, self.bytes_at(at)) for at in pointers]
        views = [Memory(n, _DTYPES[kind[1:]], 0) for n, kind in enumerate(kinds) if kind[0] == "*"]
        job = self.interpreter.submit(interpret_kernel, text, launch, programs, before, views, numbers)
        for at, old, new in zip(pointers, before, job.result(), strict=True):
            for place, (was, now) in enumerate(zip(old, new, strict=True)) if old != new else ():
                if was != now:
                    ctypes.memset(at + place, now, 1)

    def bytes_at(self, at: int) -> int:
        """The size of the memory behind a pointer: of an input of the test, or of a block of the allocator; else 0."""
        for tensor in self.inputs:
            start, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
            if start <= at < start + size:
                return start + size - at
        if at % 64:
            return 0  # torch's blocks on the CPU begin at multiples of 64
        usable = ctypes.CDLL(None).malloc_usable_size
        usable.argtypes, usable.restype = (ctypes.c_void_p,), ctypes.c_size_t
        return usable(at)

    def function(self, name: str) -> int:
        """What stands for a function of torch: the driver's own, or that for the CPU."""
        torchs = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        for library, asked in ((self.state, name), (torchs, name.replace("_cuda_", "_cpu_"))):
            if (found := getattr(library, asked, None)) is not None:
                return ctypes.cast(found, ctypes.c_void_p).value or 0
        return 0

    def compiler(
        self,
        folder: Path,
        observer: Callable[[Compiled], None] = lambda compiled: None,
        graph_driver: GraphDriver | None = None,
    ) -> Compiler:
        """A compiler for graphs of the CPU, as if they were on this GPU, with a store in the folder."""
        return _Imagining(self, Store(folder), observer, graph_driver)


_DTYPES = {
    **{"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "i1": "bool", "u8": "uint8"},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
}


def _number(word: int, kind: str) -> int | float:
    """A number of a launch from its 64 bits."""
    return (
        ctypes.c_double.from_buffer_copy(ctypes.c_uint64(word)).value if kind == "fp64" else ctypes.c_int64(word).value
    )


class _Pool(Pool):
    """Compiles nothing: a binary is a number."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__(1)
        self.gpu = gpu

    def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(self._made(*args, **kwargs) if job is compile_kernel else "12.8")  # `cuda_version`
        return done

    def _made(self, text: str, launch: LaunchMetadata, kind: str, arch: str, *, is_aligned: bool = True) -> KernelFacts:
        number, scratch = len(self.gpu.compiled), self.gpu.scratch
        self.gpu.compiled.append((text, launch, is_aligned))
        self.gpu.archs.append(arch)
        count = len(launch.arguments) + launch.has_counter + bool(scratch) + 2
        binary = b"kernel " + bytes([ord("0") + count]) + str(number).encode()
        return KernelFacts(
            *(launch.name, launch.blocks, launch.warps, "", binary, 8, 0, 0, str(number)),
            threads=32 * launch.warps,
            scratch=scratch,
            is_aligned=is_aligned,
        )


class _Imagining(Compiler):
    """Takes graphs of the CPU for graphs of a GPU that is not there."""

    def __init__(
        self, gpu: FakeGpu, store: Store, observer: Callable[[Compiled], None], graph_driver: GraphDriver | None
    ) -> None:
        super().__init__(store=store, observer=observer, graph_driver=graph_driver)
        self.artefacts.gpu = Gpu(lambda: self.artefacts.toolchain, {}, Driver(str(gpu.library)).path)
        self.artefacts.gpu.workers = gpu.pool
        self.artefacts.torch_function = gpu.function

    def _place(self, graph: Graph, env: Env) -> tuple[Graph, Env, bool]:
        return retarget(graph, "cuda:0"), replace(env, target=by_name("sm_90")), False
