"""Launches on NVIDIA GPUs, against a driver of the test's own: what it is asked, and in which form."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import math
import os
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from minductor.codegen.triton.triton_launch import postfix
from minductor.core.errors import CompileFailed, LoadFailed
from minductor.core.expressions.expr import evaluate as evaluate_expr
from minductor.core.expressions.expr import identity, integer, maximum, minimum, symbol
from minductor.driver import Compiler
from minductor.frontend.capture.captured_graph import Graph
from minductor.frontend.graph_passes.retarget import retarget
from minductor.ir.artefact.launch_metadata import (
    COUNTER,
    COUNTERS,
    INDEX_BITS,
    LAUNCHES,
    MOST_IN_INT32,
    LaunchMetadata,
    Postfix,
    print_launches,
)
from minductor.ir.artefact.winner import WINNER, Winner
from minductor.runtime.build.pool import Pool
from minductor.runtime.build.probe import find_compiler, probe
from minductor.runtime.build.toolchain import Toolchain
from minductor.runtime.build.triton_jobs import KernelFacts, compile_kernel, load_triton
from minductor.runtime.graphs import graph_driver
from minductor.runtime.launch import launch
from minductor.runtime.launch.counters import IN_GRAPHS, Counters
from minductor.runtime.launch.cuda import LATE_HINT, Driver, evaluate, lie_there, steps
from minductor.runtime.launch.gpu import (
    BINARIES,
    DESCRIPTOR,
    Binary,
    Gpu,
    Kernels,
    build_launcher,
    cubin_name,
    launch_of,
)
from minductor.runtime.launch.launch import KERNELS
from minductor.runtime.launch.load import Library, load_library
from minductor.runtime.store.store import Entry, Store
from minductor.runtime.tune.tune import Tuner
from minductor.target import Env, by_name

HERE = Path(__file__).parent
STREAM = 0x7E57
LAUNCH = LaunchMetadata(
    "k",
    {"in0": "*fp32", "out1": "*fp64", "n": "i64", "f1": "fp64", "XBLOCK": "constexpr"},
    ("n", 7, "+", 8, "//"),
    {},
    8,
)
BINARY = Binary("k_entry", threads=256, shared=1024)


@dataclass(frozen=True)
class Fake:
    """The driver of the test, and what it was asked."""

    driver: Driver
    state: ctypes.CDLL

    def number(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.state, name).value

    def words(self, count: int) -> tuple[int, ...]:
        return tuple((ctypes.c_uint64 * count).in_dll(self.state, "words"))

    def shape(self) -> tuple[int, ...]:
        return tuple((ctypes.c_uint64 * 7).in_dll(self.state, "shape"))

    def stream(self) -> int:
        return ctypes.c_uint64.in_dll(self.state, "stream_given").value

    def answer(self, *statuses: int) -> None:
        """What the next launches give."""
        row = (ctypes.c_int * 8).in_dll(self.state, "statuses")
        start = self.number("launches")
        for number in range(8):
            row[(start + number) % 8] = statuses[number] if number < len(statuses) else 0


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Fake:
    out = tmp_path_factory.mktemp("driver") / "libfake.so"
    command = [*find_compiler(os.environ).command, "-shared", "-fPIC", str(HERE / "fake_driver.cpp"), "-o", str(out)]
    subprocess.run(command, check=True)
    return Fake(Driver(str(out)), ctypes.CDLL(str(out)))


@pytest.fixture(scope="module")
def launcher(fake: Fake, tmp_path_factory: pytest.TempPathFactory) -> Library:
    out = tmp_path_factory.mktemp("launcher") / "launcher.so"
    build_launcher(Toolchain(probe(), os.environ), out)
    library = load_library(out)
    fake.driver.connect(library)
    return library


@pytest.fixture(params=["compiled", "by ctypes"])
def way(request: pytest.FixtureRequest, launcher: Library) -> Library | None:
    """The launcher, and the way without one."""
    return launcher if request.param == "compiled" else None


def refuse(launch: LaunchMetadata) -> Mapping[str, bytes]:
    raise AssertionError(f"nobody asked for {launch.name} with other pointers")


def files(binary: Binary, words: int = 6, launch: LaunchMetadata = LAUNCH) -> dict[str, bytes]:
    """An artefact of one kernel; the fake driver takes such binaries, and copies so many parameters."""
    return {
        "k.cubin": f"kernel {words}{binary.entry}".encode(),
        BINARIES: json.dumps({"k": asdict(binary)}).encode(),
        LAUNCHES: print_launches([launch]).encode(),
    }


def bound(
    fake: Fake,
    way: Library | None,
    binary: Binary = BINARY,
    other: Callable[[LaunchMetadata], Mapping[str, bytes]] = refuse,
) -> Callable[..., int]:
    return Kernels(files(binary), fake.driver, way, other).bind("k")


def test_a_launch_says_all_that_a_kernel_needs(fake: Fake, way: Library | None) -> None:
    a, b = torch.ones(4), torch.ones(4, dtype=torch.float64)
    assert bound(fake, way)(a, b, 2**33 + 3, -0.5, STREAM) == 0
    real = struct.unpack("<Q", struct.pack("<d", -0.5))[0]
    assert fake.words(6) == (a.data_ptr(), b.data_ptr(), 2**33 + 3, real, 0, 0)  # the last two: scratch memory
    assert fake.shape()[1:] == (1, 1, 256, 1, 1, 1024)
    assert fake.stream() == STREAM


def test_programs_follow_the_sizes_of_the_call(fake: Fake, way: Library | None) -> None:
    run = bound(fake, way)
    before = fake.number("launches")
    for n, programs in ((1, 1), (8, 1), (9, 2), (8000, 1000)):
        run(torch.ones(4), torch.ones(4), n, 0.0, STREAM)
        assert fake.shape()[0] == programs
    run(torch.ones(4), torch.ones(4), 0, 0.0, STREAM)
    run(torch.ones(4), torch.ones(4), -7, 0.0, STREAM)
    assert fake.number("launches") == before + 4  # nothing to do is no launch
    with pytest.raises(OverflowError, match=f"k would have {2**31} programs"):
        run(torch.ones(4), torch.ones(4), 2**34, 0.0, STREAM)


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ((1,), 1),
        (("a", "b", "*"), -21),
        (("a", "b", "//", "a", "b", "%", "+"), -7 // 3 + -7 % 3),
        (("a", "b", "min", 2, "min", 1, "b", "max", "-"), -10),
        ((0, "a", "-", 2, "//", "b", 1, "+", "*"), 12),
        (("a", 7, "+", "b", 3, "-", "//"), 0),
    ],
)
def test_counts_of_programs(fake: Fake, launcher: Library, programs: Postfix, expected: int) -> None:
    found = steps(programs, {"a": 1, "b": 2})
    assert evaluate(found, [None, -7, 3]) == expected
    about = LaunchMetadata("k", {"in0": "*fp32", "a": "i64", "b": "i64"}, (*programs, 1000, "+"), {}, 1)
    made = files(replace(BINARY, threads=32, shared=0), words=5, launch=about)
    Kernels(made, fake.driver, launcher, refuse).bind("k")(torch.ones(1), -7, 3, STREAM)
    assert fake.shape()[0] == expected + 1000


def test_index_expressions_become_counts_of_programs() -> None:
    a, b = symbol("a", "size", 1), symbol("b", "size", 1)
    for expr in (
        a * b,
        (2 * a + 7) // 8 - b,
        (a - b) % 5 * 3 + 1,
        minimum(a, b, 3) + maximum(2, b),
        integer(4) - a * b,
    ):
        found = steps(postfix(expr), {"a": 0, "b": 1})
        for given in ((1, 1), (17, 3), (4, 90)):
            assert evaluate(found, given) == evaluate_expr(expr, dict(zip("ab", given, strict=True)))
    with pytest.raises(ValueError, match="no number of programs: identity"):
        postfix(identity(a + b))


def test_what_is_no_count_of_programs_is_refused() -> None:
    with pytest.raises(KeyError, match="f"):
        steps(("f",), {"a": 0})
    with pytest.raises(ValueError, match="more than 64 open operands"):
        steps((*[1] * 70, *["+"] * 69), {})


def test_pointers_that_are_not_aligned_go_to_another_kernel(fake: Fake, way: Library | None) -> None:
    asked: list[str] = []

    def other(launch: LaunchMetadata) -> Mapping[str, bytes]:
        asked.append(launch.name)
        return files(replace(BINARY, entry="k_any", threads=64, is_aligned=False))

    run = bound(fake, way, BINARY, other)
    given = torch.ones(16)
    for offset in (0, 4, 1, 1, 3):
        run(given, given[offset:], 9, 0.0, STREAM)
        assert fake.words(2) == (given.data_ptr(), given.data_ptr() + 4 * offset)
        assert fake.shape()[3] == (256 if offset % 4 == 0 else 64)
        assert fake.shape()[0] == 2
    assert asked == ["k"]  # once


@pytest.mark.parametrize("has_counter", [False, True])
def test_sizes_whose_indices_need_64_bits_go_to_another_kernel(
    fake: Fake, way: Library | None, *, has_counter: bool
) -> None:
    """Each binary is asked for once: that for larger sizes, and each of the two for pointers that are not aligned."""
    kinds = {"in0": "*fp32", "out1": "*fp64", "n": "i32", "f1": "fp64"}
    kinds |= {**({COUNTER: "*i32"} if has_counter else {}), INDEX_BITS: "constexpr"}
    narrow = replace(LAUNCH, parameters=kinds, blocks={INDEX_BITS: 32}, greatest_index=("n", "n", "*"))
    asked: list[tuple[str, str]] = []

    def compiled(what: str, binary: Binary) -> Callable[[LaunchMetadata], Mapping[str, bytes]]:
        def give(launch: LaunchMetadata) -> Mapping[str, bytes]:
            asked.append((launch.name, what))
            made = replace(binary, entry=launch.symbol, threads=binary.threads + launch.blocks[INDEX_BITS])
            named = cubin_name(launch.name)
            return {
                named: b"kernel 6" + launch.symbol.encode(),
                BINARIES: json.dumps({launch.name: asdict(made)}).encode(),
            }

        return give

    unaligned = compiled("any pointers", replace(BINARY, threads=64, is_aligned=False))
    run = Kernels(files(BINARY, launch=narrow), fake.driver, way, unaligned, compiled("aligned", BINARY)).bind("k")
    given = torch.ones(16)
    largest = math.isqrt(MOST_IN_INT32)
    for size, offset, threads in (
        (largest, 0, 256),
        (largest + 1, 0, 256 + 64),
        (largest, 1, 64 + 32),
        (largest + 1, 1, 64 + 64),
        (largest + 1, 4, 256 + 64),
        (9, 0, 256),
    ):
        assert run(given, given[offset:], size, 0.0, STREAM) == 0
        assert fake.words(2) == (given.data_ptr(), given.data_ptr() + 4 * offset)
        assert (fake.shape()[0], fake.shape()[3]) == ((size + 7) // 8, threads)
    wide = f"k {INDEX_BITS}=64"
    assert asked == [(wide, "aligned"), ("k", "any pointers"), (wide, "any pointers")]


def test_sizes_without_a_factor_go_to_another_kernel(fake: Fake, way: Library | None) -> None:
    """What is compiled for multiples of 4 and of 16 takes no other sizes, whether pointers are aligned or not."""
    kinds = {"in0": "*fp32", "out1": "*fp64", "n": "i64", "f1": "fp64", "m": "i32"}
    factors = {"n": 4, "m": 16}
    launch = replace(LAUNCH, parameters=kinds, multiples=factors)
    asked: list[tuple[str, bool]] = []

    def compiled(other: LaunchMetadata, *, is_aligned: bool) -> Mapping[str, bytes]:
        asked.append((other.name, is_aligned))
        made = replace(BINARY, entry="k_any", threads=64 if is_aligned else 32, is_aligned=is_aligned)
        assert not other.multiples
        return {cubin_name(other.name): b"kernel 7k_any", BINARIES: json.dumps({other.name: asdict(made)}).encode()}

    unaligned, aligned = (partial(compiled, is_aligned=is_aligned) for is_aligned in (False, True))
    run = Kernels(files(BINARY, 7, launch), fake.driver, way, unaligned, aligned).bind("k")
    given = torch.ones(16)
    for n, m, offset, threads in ((12, 32, 0, 256), (12, 24, 0, 64), (14, 32, 0, 64), (13, 1, 1, 32), (0, 0, 4, 256)):
        assert run(given, given[offset:], n, 0.0, m, STREAM) == 0
        assert n == 0 or (fake.words(3)[2], fake.shape()[3]) == (n, threads)
    assert asked == [("k any sizes", True), ("k any sizes", False)]


@pytest.mark.parametrize("size", [1 << 21, 1 << 22, (1 << 22) + 9])
def test_a_bound_of_more_than_64_bits_is_a_large_one(fake: Fake, way: Library | None, size: int) -> None:
    """The bound of a quotient's multiple exceeds the index by far; modulo 2**64 it would be 0 or negative."""
    kinds = {"in0": "*fp32", "out1": "*fp64", "n": "i32", "f1": "fp64", INDEX_BITS: "constexpr"}
    narrow = replace(LAUNCH, parameters=kinds, blocks={INDEX_BITS: 32}, greatest_index=("n", "n", "n", "*", "*"))
    called: list[str] = []

    def wide(launch: LaunchMetadata) -> Mapping[str, bytes]:
        called.append(launch.name)
        binaries = json.dumps({launch.name: asdict(BINARY)})
        return {cubin_name(launch.name): f"kernel 6{BINARY.entry}".encode(), BINARIES: binaries.encode()}

    run = Kernels(files(BINARY, launch=narrow), fake.driver, way, refuse, wide).bind("k")
    given = torch.ones(16)
    assert run(given, given, 9, 0.0, STREAM) == 0 and called == []
    assert run(given, given, size, 0.0, STREAM) == 0 and called == [f"k {INDEX_BITS}=64"]


def test_descriptors_are_given_copies_of_what_is_not_aligned(fake: Fake, way: Library | None) -> None:
    """The first tensor is read, the second written: the fake driver writes nothing, so that it comes back as it was."""
    made = {**files(BINARY), KERNELS: f"x = {DESCRIPTOR}in0)".encode()}
    run = Kernels(made, fake.driver, way, refuse).bind("k")
    given = torch.arange(40.0)
    before = given.clone()
    for a, b in ((0, 20), (1, 20), (0, 21), (3, 23)):
        assert run(given[a : a + 8].view(2, 4).t(), given[b : b + 4], 9, 0.0, STREAM) == 0
        words = fake.words(2)
        assert all(word % 16 == 0 for word in words) and torch.equal(given, before)
        assert [word == given[n:].data_ptr() for word, n in zip(words, (a, b), strict=True)] == [a % 4 == 0, b % 4 == 0]


def test_more_shared_memory_than_usual_is_asked_for(fake: Fake, way: Library | None) -> None:
    for shared in (48 * 1024, 48 * 1024 + 1, 200 * 1024):
        bound(fake, way, replace(BINARY, shared=shared))(torch.ones(1), torch.ones(1), 1, 0.0, STREAM)
        at = ctypes.c_void_p.in_dll(fake.state, "launched").value
        assert at is not None
        allowed = ctypes.c_int.from_address(at + 64).value
        assert allowed == (shared if shared > 48 * 1024 else 0)
        assert fake.shape()[6] == shared


def test_scratch_memory_is_allocated_for_all_programs(fake: Fake, way: Library | None) -> None:
    sizes: list[int] = []
    made = torch.empty

    def empty(size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        sizes.append(size)
        return made(size, dtype=dtype, device=device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "empty", empty)
        bound(fake, way, replace(BINARY, scratch=128))(torch.ones(4), torch.ones(4), 17, 0.0, STREAM)
    assert sizes == [3 * 128]
    assert fake.words(6)[4] != 0 and fake.words(6)[5] == 0
    assert fake.stream() == STREAM


COUNTING = replace(LAUNCH, parameters={**LAUNCH.parameters, COUNTER: "*i32"})


@pytest.mark.parametrize("scratch", [0, 128])
def test_a_counter_of_the_stream_stands_behind_the_arguments(fake: Fake, way: Library | None, scratch: int) -> None:
    """Also for a binary that takes any pointers, which is called with the same counter."""
    asked: list[str] = []

    def other(launch: LaunchMetadata) -> Mapping[str, bytes]:
        asked.append(launch.name)
        return files(replace(BINARY, is_aligned=False, scratch=scratch), launch=COUNTING)

    counters = Counters()
    made = files(replace(BINARY, scratch=scratch), launch=COUNTING)
    run = Kernels(made, fake.driver, way, other, counters=counters).bind("k")
    given = torch.ones(16)
    for stream in (STREAM, STREAM + 8):
        for tensor in (given, given[1:]):
            assert run(tensor, given, 9, 0.5, stream) == 0
            held = counters.of(given.device, stream)
            assert fake.words(5)[4] == held.data_ptr() and not held.any()
            assert fake.words(2) == (tensor.data_ptr(), given.data_ptr())
            assert (fake.words(6)[5] != 0) == bool(scratch)
            assert fake.stream() == stream
    assert asked == ["k"]


def test_launches_in_cpp_have_as_many_counters() -> None:
    header = Path(inspect.getfile(Counters)).parent / "include" / "minductor_cuda.h"
    assert f"md_counters = {COUNTERS};" in header.read_text()


def test_each_stream_has_a_counter_and_each_launch_in_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    counters, device = Counters(), torch.device("cpu")
    one = counters.of(device, 1)
    assert counters.of(device, 1) is one
    assert counters.of(device, 2) is not one
    assert counters.of(torch.device("meta"), 1) is not one
    assert Counters().of(device, 1) is not one
    monkeypatch.setattr("minductor.runtime.launch.counters.is_captured", lambda device: True)
    captured = [counters.of(device, 1) for _ in range(IN_GRAPHS + 2)]
    assert len({tensor.data_ptr() for tensor in (one, *captured)}) == IN_GRAPHS + 3
    assert all(tensor.dtype == torch.int32 and len(tensor) == COUNTERS for tensor in (one, *captured))
    captured[0].fill_(1)
    assert not any(tensor.any() for tensor in (one, *captured[1:]))
    assert len({tensor.untyped_storage().data_ptr() for tensor in captured}) == 3  # one holds all but the last two
    assert len({Counters().of(device, 1).untyped_storage().nbytes() for _ in range(2)}) == 1  # none was made before


def test_what_the_driver_refuses_is_raised(fake: Fake, way: Library | None) -> None:
    run = bound(fake, way)
    fake.answer(1)
    with pytest.raises(RuntimeError, match=r"^CUDA error: invalid argument \(1, at the launch of k\)$"):
        run(torch.ones(4), torch.ones(4), 9, 0.0, STREAM)
    for late in (700, 719):
        fake.answer(late)
        with pytest.raises(RuntimeError, match=rf"at the launch of k\){LATE_HINT}$"):
            run(torch.ones(4), torch.ones(4), 9, 0.0, STREAM)
    run(torch.ones(4), torch.ones(4), 9, 0.0, STREAM)


def test_a_tensor_whose_memory_torch_refuses_is_an_error(fake: Fake, way: Library | None) -> None:
    """As of a result that a CUDA graph has overwritten; torch throws, and C++ must not let it through."""
    x, before = torch.ones(4), fake.number("launches")
    torch._C._set_throw_on_mutable_data_ptr(x)
    with pytest.raises(RuntimeError, match="data pointer"):
        bound(fake, way)(x, torch.ones(4), 9, 0.0, STREAM)
    assert fake.number("launches") == before


def test_whether_tensors_lie_where_they_lay(way: Library | None) -> None:
    xs = [torch.ones(4) for _ in range(5)]
    numbers, addresses = [3, 0, 4], [xs[number].data_ptr() for number in (3, 0, 4)]
    ask = graph_driver.lie_there(numbers, addresses) if way is None else lie_there(way, numbers, addresses)
    assert ask(*xs) is True
    assert ask(xs[0], torch.ones(4), 7, xs[3], xs[4]) is True  # nobody asked for the others
    for number in (0, 3, 4):
        others = [torch.ones(4) if place == number else x for place, x in enumerate(xs)]
        assert ask(*others) is False
    torch._C._set_throw_on_mutable_data_ptr(xs[4])
    with pytest.raises(RuntimeError, match="data pointer"):
        ask(*xs)


def test_a_thread_without_a_context_takes_the_one_of_the_tensors_device(fake: Fake, launcher: Library) -> None:
    before, contexts = fake.number("launches"), fake.number("contexts")
    fake.answer(201)
    assert bound(fake, launcher)(torch.ones(4), torch.ones(4), 9, 0.0, STREAM) == 0
    assert fake.number("launches") == before + 2
    assert fake.number("contexts") == contexts + 3  # the fake driver says that its memory is on device 3


def test_a_wrong_call_is_an_error_of_python(fake: Fake, way: Library | None) -> None:
    run = bound(fake, way)
    with pytest.raises(TypeError, match="k takes 5 arguments"):
        run(torch.ones(4), torch.ones(4), 9, STREAM)
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        run(torch.ones(4), torch.ones(4), "9", 0.0, STREAM)


def test_what_cannot_be_loaded_is_refused(fake: Fake) -> None:
    with pytest.raises(LoadFailed, match="no_such"):
        Driver("no_such_driver.so")
    with pytest.raises(LoadFailed, match="cuLibraryLoadData: device kernel image is invalid"):
        Kernels({**files(BINARY), "k.cubin": b"junk"}, fake.driver, None, refuse).bind("k")
    with pytest.raises(LoadFailed, match="cuLibraryGetKernel"):
        Kernels({**files(BINARY), "k.cubin": b"kernel 6another"}, fake.driver, None, refuse).bind("k")
    with pytest.raises(LoadFailed, match=r"it has no cuInit: a driver of CUDA 12 or later is needed"):
        Driver("libm.so.6").load(b"kernel 6k_entry", launch_of(LAUNCH, BINARY))
    with pytest.raises(KeyError):
        Kernels(files(BINARY), fake.driver, None, refuse).bind("other")


def test_a_launch_joins_what_codegen_and_the_compiler_know() -> None:
    kinds = {"in0": "*fp32", "s0": "i64", "f1": "fp64", "XBLOCK": "constexpr"}
    k = LaunchMetadata("k", kinds, ("s0", 3, "+", 4, "//", 5, "*"), {}, 2)
    found = launch_of(k, Binary("k_mangled", 64, 512, 16))
    assert (found.entry, found.kinds, found.threads, found.shared) == ("k_mangled", "pidpi", 64, 512)
    assert evaluate(found.programs, [None, 9, math.pi]) == 15
    other = launch_of(replace(k, parameters={"in0": "*i1", "out1": "*bf16"}, programs=(7,)), BINARY)
    assert (other.kinds, evaluate(other.programs, [])) == ("ppi", 7)


def test_workers_start_before_the_kernels_are_known(fake: Fake) -> None:
    jobs: list[object] = []

    class Noting(Pool):
        def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
            jobs.append(job)
            done: Future[Any] = Future()
            done.set_result(KernelFacts("m", {}, 4, "", b"", 8, 0, 0, "m", 128) if args else None)
            return done

    gpu = Gpu(lambda: Toolchain(probe(), os.environ), {}, fake.driver.path)
    gpu.workers = Noting(3)
    gpu.expect(2)
    gpu.expect(5)
    assert jobs == [load_triton] * 3
    gpu.build("", [LAUNCH], "90")
    gpu.expect(1)
    assert jobs == [*[load_triton] * 3, compile_kernel, load_triton]


def test_a_kernel_that_does_not_compile_is_kept(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Pool):
        def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
            failed: Future[Any] = Future()
            failed.set_exception(ValueError(f"at 1:2\n   quoted\nno such thing in {args[1].name}\n"))
            return failed

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    gpu = Gpu(lambda: Toolchain(probe(), os.environ), {}, fake.driver.path)
    gpu.workers = Failing(1)
    with pytest.raises(CompileFailed, match="does not compile: k: no such thing in k\n") as caught:
        gpu.build("the text", [LAUNCH], "90")
    assert Path(caught.value.kept).read_text() == "the text"


def test_the_launcher_is_compiled_once_for_a_machine(fake: Fake, tmp_path: Path) -> None:
    store = Store(tmp_path)
    toolchain = Toolchain(probe(), os.environ)
    assert Gpu(lambda: toolchain, os.environ, fake.driver.path).launcher(store) is not None
    assert (store.stats.puts, store.stats.hits) == (1, 0)
    found = Gpu(lambda: toolchain, os.environ, fake.driver.path).launcher(store)
    assert found is not None and found.address("md_launch") != 0
    assert (store.stats.puts, store.stats.hits) == (1, 1)


def test_without_a_compiler_there_is_no_launcher(fake: Fake, tmp_path: Path) -> None:
    toolchain = Toolchain(probe(), {"PATH": str(tmp_path)})
    assert Gpu(lambda: toolchain, {}, fake.driver.path).launcher(Store(tmp_path / "store")) is None


class Pretending(Compiler):
    """Takes graphs of the CPU for graphs of a GPU of the test's driver; notes what it has compiled."""

    def __init__(self, store: Store, fake: Fake, pool: Pool) -> None:
        super().__init__(store=store)
        self.artefacts.gpu = Gpu(lambda: self.artefacts.toolchain, {}, fake.driver.path)
        self.artefacts.gpu.workers = pool

    def _place(self, graph: Graph, env: Env) -> tuple[Graph, Env, bool]:
        return retarget(graph, "cuda:0"), replace(env, target=by_name("sm_90")), False


class Counted(Pool):
    """A pool that counts its jobs."""

    jobs = 0

    def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs += job is compile_kernel
        return super().submit(job, *args, **kwargs)


def test_the_way_from_the_graph_to_the_launch(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold, warm, and with a pointer that is not aligned: which is compiled when, and what the driver is given."""
    entered: list[int] = []

    class device(contextlib.nullcontext[None]):  # Dynamo asks whether objects are instances of it
        def __init__(self, number: int) -> None:
            super().__init__()
            entered.append(number)

    def empty_on_cpu(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(launch, "empty_strided_cuda", empty_on_cpu)
    monkeypatch.setattr(launch, "raw_stream", lambda number: STREAM + number)
    ctypes.c_int.in_dll(fake.state, "real_words").value = 5
    store, given, kernels = Store(tmp_path), torch.randn(5000), set[object]()

    def starts(pool: Counted, *offsets: int) -> None:
        """A process that calls the function with such windows, which are one graph to Dynamo."""
        torch._dynamo.reset()
        run = torch.compile(lambda x: torch.tanh(x) * 0.5, backend=Pretending(store, fake, pool), dynamic=True)
        for start in offsets:
            before = fake.number("launches")
            out = run(given[start : start + 4000])
            assert out.shape == (4000,) and entered.pop() == 0 and not entered
            assert fake.words(5) == (given[start:].data_ptr(), out.data_ptr(), 4000, 0, 0)
            assert fake.stream() == STREAM and fake.number("launches") == before + 1
            assert fake.shape()[1:3] == (1, 1) and fake.shape()[3] % 32 == 0
            kernels.add(ctypes.c_void_p.in_dll(fake.state, "launched").value)

    pool = Counted(1)
    with contextlib.closing(pool):
        for offsets, jobs, loaded in (((0, 1, 4, 2), 2, 2), ((0, 1), 2, 4), ((1, 0), 3, 5)):
            starts(pool, *offsets)
            assert (pool.jobs, len(kernels)) == (jobs, loaded)


def test_a_launch_is_chosen_by_measure(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cold, every number of warps is compiled and tried; warm, what won is loaded and nothing is measured.

    Another driver is another machine: the same launches are measured again.
    """
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(launch, "empty_strided_cuda", lambda *given: torch.empty_strided(*given[:2], dtype=given[2]))
    monkeypatch.setattr(launch, "raw_stream", lambda number: STREAM + number)
    ctypes.c_int.in_dll(fake.state, "real_words").value = 4
    version = ctypes.c_int.in_dll(fake.state, "version")
    asked: list[int] = []
    options = {"autotune": True, "trace": "1"}

    def clock(run: Callable[[], object]) -> float:
        run()
        asked.append(fake.shape()[3])
        return 1 / asked[-1]

    pool = Counted(1)
    with contextlib.closing(pool):
        for driver, is_measured in ((12080, True), (12080, False), (13000, True)):
            torch._dynamo.reset()
            asked.clear()
            version.value = driver
            compiler = Pretending(Store(tmp_path), fake, pool)
            compiler.artefacts.tuning_clock = clock
            run = torch.compile(
                lambda x: torch.tanh(x) * 0.5, backend=lambda gm, i, c=compiler: c(gm, i, options=options)
            )
            run(torch.randn(5000))
            assert fake.shape()[3] == 8 * 32, "most warps are the fastest by this clock"
            assert (pool.jobs, {*asked}) == (3, {64, 128, 256} if is_measured else set())
            lines = [line for line in capsys.readouterr().err.splitlines() if "minductor inference tune " in line]
            assert [line.endswith(f" ms measured={len(asked)}") for line in lines] == [True] * is_measured
    entries = [entry for entry in Store(tmp_path).entries() if WINNER in entry.contents]
    winners = [Winner.from_json(entry.text(WINNER)) for entry in entries]
    assert [(won.name, won.driver) for won in winners if won] == [("warps=8", "12080"), ("warps=8", "13000")]
    assert all(won and won.kernel.startswith("fused_tanh_mul") for won in winners)


def test_the_launches_of_a_step_are_compiled_side_by_side(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are begun before one is waited for, and the store keeps what was compiled."""
    order: list[str] = []

    class Noting(Pool):
        def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
            made: LaunchMetadata = args[1]
            order.append(f"begin {made.variant}")
            done: Future[Any] = Future()

            def result(timeout: float | None = None) -> KernelFacts:
                order.append(f"wait for {made.variant}")
                return KernelFacts(made.name, {}, made.warps, "", b"kernel 6k", 8, 0, 0, "k", 32 * made.warps)

            monkeypatch.setattr(done, "result", result)
            return done

    tuned = replace(LAUNCH, choices={"warps": (4, 8, 16)}, warps=8)
    contents = {**files(BINARY, launch=tuned), KERNELS: b"def k(): ..."}
    args = (torch.ones(4), torch.ones(4, dtype=torch.float64), 8, 1.0, STREAM)

    def clock(run: Callable[[], object]) -> float:
        run()
        return 1 / fake.shape()[3]

    for _ in range(2):
        gpu = Gpu(lambda: Toolchain(probe(), os.environ), {}, fake.driver.path)
        gpu.workers = Noting(1)
        entry, tuner = Entry("key", "main", tmp_path, contents), Tuner(clock)
        gpu.kernels(entry, "90", Store(tmp_path / "store"), tuner).bind("k")(*args)
        assert tuner.measured > 0 and fake.shape()[3] == 32 * 16
        assert order == ["begin warps=4", "begin warps=16", "wait for warps=4", "wait for warps=16"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_idle_workers_compile_what_tuning_measures_first(fake: Fake, tmp_path: Path, workers: int) -> None:
    """While a graph is built; a worker that has a kernel of the graph to compile does nothing else."""
    begun: list[str] = []

    class Noting(Pool):
        def submit(self, job: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
            made: LaunchMetadata = args[1]
            begun.append(made.variant)
            done: Future[Any] = Future()
            done.set_result(KernelFacts(made.name, {}, made.warps, "", b"kernel 6k", 8, 0, 0, "k", 32 * made.warps))
            return done

    tuned = replace(LAUNCH, choices={"warps": (4, 8, 16)}, warps=8)
    gpu = Gpu(lambda: Toolchain(probe(), os.environ), {}, fake.driver.path)
    gpu.workers = Noting(workers)
    made = gpu.build("def k(): ...", [tuned], "90")
    ahead = ["", "warps=4", "warps=16"][:workers]
    assert begun == ahead
    contents = {**made, KERNELS: b"def k(): ...", LAUNCHES: print_launches([tuned]).encode()}
    entry = Entry("key", "main", tmp_path, contents)
    tuner = Tuner(lambda run: (run(), 1 / fake.shape()[3])[1])
    run = gpu.kernels(entry, "90", Store(tmp_path / "store"), tuner).bind("k")
    run(torch.ones(4), torch.ones(4, dtype=torch.float64), 8, 1.0, STREAM)
    assert begun == ["", "warps=4", "warps=16"], "each once"
    assert fake.shape()[3] == 32 * 16


def test_a_launch_is_chosen_again_for_sizes_of_more_bits(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few warps are the fastest for few elements, and many for many."""
    monkeypatch.setattr(torch.cuda, "device", contextlib.nullcontext)
    monkeypatch.setattr(launch, "empty_strided_cuda", lambda *given: torch.empty_strided(*given[:2], dtype=given[2]))
    monkeypatch.setattr(launch, "raw_stream", lambda number: STREAM + number)
    asked: list[int] = []

    def clock(run: Callable[[], object]) -> float:
        run()
        asked.append(fake.shape()[3])
        return asked[-1] if fake.shape()[0] < 4 else 1 / asked[-1]

    with contextlib.closing(Counted(1)) as pool:
        compiler = Pretending(Store(tmp_path), fake, pool)
        compiler.artefacts.tuning_clock = clock
        run = torch.compile(
            lambda x: torch.tanh(x) * 0.5,
            backend=lambda gm, i: compiler(gm, i, options={"autotune": True}),
            dynamic=True,
        )
        warps: list[int] = []
        for size in (600, 60_000, 700, 40_000):
            run(torch.randn(size))
            warps.append(fake.shape()[3] // 32)
        assert warps == [2, 8, 2, 8] and len(asked) == 2 * 3 * 3
