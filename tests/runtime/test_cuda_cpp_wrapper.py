"""Wrappers in C++ for GPUs, against a driver of the test's own whose kernels compute on CPU memory.

Each law is a function `check_...`, which the faults at the end are shown to break.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from minductor.codegen.wrapper.wrapper_cpp import wrapper_cpp
from minductor.core.errors import CorruptEntry, WrapperReplaced
from minductor.driver import Compiled
from minductor.ir.plan.plan import Plan
from minductor.runtime.build.toolchain import Toolchain, Unit
from minductor.runtime.graphs import graph_chain, graph_results
from minductor.runtime.launch import launch, launch_cpp_wrapper
from minductor.runtime.launch.cuda import LATE_HINT
from minductor.runtime.launch.gpu import Kernels, NativeKernel
from minductor.target import Env
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.mutants import mutated
from tests.recording_driver import RecordingDriver
from tests.runtime.fake_gpu import STREAM, FakeGpu, build_driver

ANY, WHOLE = "any sizes", 1 << 17


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(build_driver(tmp_path_factory.mktemp("driver")))


@pytest.fixture(autouse=True)
def _fresh(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]  pytest calls it
    gpu.forget()
    for module in (graph_results, graph_chain):
        monkeypatch.setattr(module, "new_result", on_cpu)


def made(
    gpu: FakeGpu,
    folder: Path,
    fn: Callable[..., Any],
    seen: list[Compiled] | None = None,
    *,
    dynamic: bool = False,
    clock: Callable[[Callable[[], object]], float] | None = None,
    **options: Any,
) -> Any:
    """The function, compiled for the GPU with a wrapper in C++. `clock`: for what is measured."""
    torch._dynamo.reset()
    compiler = gpu.compiler(folder, (seen if seen is not None else []).append)
    compiler.artefacts.tuning_clock = clock
    how = {"wrapper": "cpp", "verify": True, **options}
    return torch.compile(fn, backend=partial(compiler, options=how), fullgraph=True, dynamic=dynamic)


def halved(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 0.5


LINE = f"{Path(__file__).name}:{halved.__code__.co_firstlineno + 1}"


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a, b: (a * b).softmax(-1), lambda a, b: a / (b.abs() + 1), (x, y))


def mutated_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(y)
    y[1:3] = 0
    return x.sum(), x[1:3].t(), x, torch.cat([x, y]).view(-1), x.shape[0] * 2, x.new_zeros(x.shape[0] // 3)


def operators(x: torch.Tensor, y: torch.Tensor) -> Any:
    product = torch.addmm(x.sum(0), x, y.t() @ y)
    parts = torch.split(torch.sort(x)[0], 5, dim=1)
    drawn = F.dropout(x, 0.5), torch.rand_like(y) * 2, torch.randint(0, 9, (3,), device=x.device)
    return product.tanh(), [part * 2 for part in parts], y.topk(3), torch.linalg.qr(y), torch.histc(x), drawn


def of_data(x: torch.Tensor, y: torch.Tensor) -> Any:
    rows = torch.nonzero(x[:, 0] > -9)
    return x[rows[:, 0]] * 2, x * y.sum().item(), x + (y > 0).sum().item()


def check_results(gpu: FakeGpu, folder: Path, fn: Callable[..., Any]) -> None:
    """Eager's results, by wrappers in C++."""
    seen: list[Compiled] = []
    run = made(gpu, folder, fn, seen, dynamic=True)
    for rows in (6, 9, 20):
        given = torch.randn(rows, 16), torch.randn(rows, 16)
        copies = tuple(tensor.clone() for tensor in given)
        torch.manual_seed(1)
        expected = fn(*copies)
        torch.manual_seed(1)
        with gpu.computing():
            got = run(*given)
        for one, other in zip(tree_leaves((got, given)), tree_leaves((expected, copies)), strict=True):
            torch.testing.assert_close(one, other)
    assert seen and all("wrapper.cpp" in graph.sources for graph in seen)


@pytest.mark.parametrize("fn", [nested, mutated_views, operators, of_data])
def test_gives_what_eager_gives(gpu: FakeGpu, tmp_path: Path, fn: Callable[..., Any]) -> None:
    check_results(gpu, tmp_path, fn)


def change_header(patch: pytest.MonkeyPatch, folder: Path, file: str, old: str, new: str) -> None:
    """Compiles wrappers with a header in which a text, which occurs there once, is replaced."""
    copied = folder / "include"
    shutil.copytree(launch_cpp_wrapper.INCLUDE, copied)
    text = (copied / file).read_text()
    assert text.count(old) == 1
    (copied / file).write_text(text.replace(old, new))
    patch.setattr(launch_cpp_wrapper, "INCLUDE", copied)


@pytest.mark.parametrize("fn", [nested, of_data])
def test_torch_reads_a_number_out_of_memory_elsewhere(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fn: Callable[..., Any]
) -> None:
    here = "static inline bool md_is_here(const md_Tensor& tensor) {"
    change_header(monkeypatch, tmp_path, "minductor_torch.h", here, f"{here} return false;")
    check_results(gpu, tmp_path, fn)


def test_the_sizes_of_a_call_take_a_variant(gpu: FakeGpu, tmp_path: Path) -> None:
    hints = {"s0": (64, 4096), "s1": (8, 300)}
    run = made(gpu, tmp_path, lambda x: x.exp().sum(0), dynamic=True, size_hints=hints)
    kernels: list[int] = []
    for size in ((70, 9), (3000, 7)):
        x = torch.randn(size)
        with gpu.computing():
            torch.testing.assert_close(run(x), x.exp().sum(0), rtol=2e-5, atol=2e-5)
        kernels.append(len(gpu.launched))
        gpu.launched.clear()
    assert kernels == [1, 2], "whole rows, and rows in parts"


def test_training_goes_through_it_both_ways(gpu: FakeGpu, tmp_path: Path) -> None:
    seen: list[Compiled] = []
    run = made(gpu, tmp_path, lambda x, w: torch.softmax(x @ w, -1).square().sum(), seen)
    x, w = (torch.randn(9, 9, requires_grad=True) for _ in range(2))
    with gpu.computing():
        run(x, w).backward()
    expected = torch.autograd.grad(torch.softmax(x @ w, -1).square().sum(), (x, w))
    torch.testing.assert_close((x.grad, w.grad), expected)
    assert [graph.role for graph in seen] == ["forward", "backward"]
    assert all("wrapper.cpp" in graph.sources for graph in seen)


# --- CUDA graphs


def on_cpu(_: int, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, __: str) -> torch.Tensor:
    """`new_result` for a GPU whose memory is the CPU's."""
    return torch.empty_strided(size, stride, dtype=dtype)


def recording(
    gpu: FakeGpu, folder: Path, fn: Callable[..., Any], *, dynamic: bool = False
) -> tuple[Any, RecordingDriver, list[Compiled]]:
    """The function, compiled with a wrapper in C++ whose partitions a driver of the test's own records."""
    driver, seen = RecordingDriver(), list[Compiled]()
    torch._dynamo.reset()
    compiler = gpu.compiler(folder, seen.append, driver)
    how = {"wrapper": "cpp", "verify": True, "cudagraphs": True}
    return torch.compile(fn, backend=partial(compiler, options=how), fullgraph=True, dynamic=dynamic), driver, seen


def sampled(x: torch.Tensor, y: torch.Tensor) -> Any:
    picked = torch.multinomial(torch.softmax(x, -1), 1)
    return (x * y.sum(0)).gather(1, picked).exp(), x.shape[0] * 2


def check_partitions(gpu: FakeGpu, folder: Path) -> None:
    """Each partition is a function, what no graph captures runs between them, and results that are held are kept."""
    run, driver, seen = recording(gpu, folder, sampled)
    y, kept = torch.randn(4, 8), list[tuple[Any, Any]]()
    for _ in range(6):
        x = torch.randn(6, 8)
        torch.manual_seed(1)
        expected = sampled(x, y)
        torch.manual_seed(1)
        with gpu.computing():
            kept.append((run(x, y), expected))
    for made, expected in kept:
        torch.testing.assert_close(made, expected)
    text = seen[0].sources["wrapper.cpp"]
    assert "static bool partition_0(" in text and "md_captured(md, 2" in text
    # a take each, for two that are held; more if the rows happened to lie at one address in the first two calls
    assert len(driver.did("replay")) == 2 * 5 and len(driver.outside_places) >= 3


def test_partitions_are_recorded(gpu: FakeGpu, tmp_path: Path) -> None:
    check_partitions(gpu, tmp_path)


def test_each_size_is_recorded(gpu: FakeGpu, tmp_path: Path) -> None:
    run, driver, _ = recording(gpu, tmp_path, lambda x: torch.softmax(x, 0) * x.shape[0], dynamic=True)
    for size in (4, 7, 4, 7, 9, 4):
        x = torch.randn(size, 3)
        with gpu.computing():
            torch.testing.assert_close(run(x), torch.softmax(x, 0) * size)
    assert len(driver.did("record")) == 2


def test_a_cache_is_written_where_it_lies(gpu: FakeGpu, tmp_path: Path) -> None:
    def step(cache: torch.Tensor, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(0, place, token)
        return cache.sum(0)

    run, driver, _ = recording(gpu, tmp_path, step)
    cache, wanted = torch.zeros(6, 4), torch.zeros(6, 4)
    for number in range(5):
        token, place = torch.randn(1, 4), torch.tensor([number])
        with gpu.computing():
            torch.testing.assert_close(run(cache, token, place), step(wanted, token, place))
        assert torch.equal(cache, wanted)
    assert len(driver.did("record")) == 1


def test_training_is_recorded_both_ways(gpu: FakeGpu, tmp_path: Path) -> None:
    run, driver, _ = recording(gpu, tmp_path, lambda x, w: torch.softmax(x @ w, -1).square().sum())
    x, w = torch.randn(9, 9), torch.randn(9, 9, requires_grad=True)
    for _ in range(4):
        x.normal_()
        with gpu.computing():
            run(x, w).backward()
        (expected,) = torch.autograd.grad(torch.softmax(x @ w, -1).square().sum(), (w,))
        torch.testing.assert_close(w.grad, expected)
        w.grad = None
    assert len({pool for *_, pool in driver.did("record")}) == 1
    assert driver.asked[-1][0] == "replay"  # no gradient is copied


# --- laws of a launch


def check_launch(gpu: FakeGpu, folder: Path) -> None:
    """What the driver is given, on which stream of which device; the device is left again."""
    run, x = made(gpu, folder, halved, dynamic=True), torch.randn(5000)
    out = run(x)
    assert gpu.words(5) == (x.data_ptr(), out.data_ptr(), 5000, 0, 0)
    assert gpu.shape()[0] == -(-5000 // gpu.compiled[0][1].blocks["XBLOCK"]) and gpu.stream() == STREAM
    assert (gpu.number("entered"), gpu.number("left"), gpu.number("device")) == (1, 1, 0)
    for size in (5000, 15):
        run(torch.randn(size))
        assert gpu.words(3)[2] == size


def check_nothing_to_do(gpu: FakeGpu, folder: Path) -> None:
    """A launch without programs is none: the driver would refuse it."""
    run = made(gpu, folder, lambda x: torch.nonzero(x)[:, 0] * 2)
    for x, launches in ((torch.ones(3), 1), (torch.zeros(3), 1), (torch.ones(3), 2)):
        run(x)
        assert gpu.number("launches") == launches


def check_failed_launch(gpu: FakeGpu, folder: Path) -> None:
    """The error names kernel and line, and the device is left."""
    run, x = made(gpu, folder, halved), torch.randn(5000)
    gpu.answer(1)
    with pytest.raises(RuntimeError, match=r"CUDA error: invalid argument \(1, at the launch of fused_tanh") as caught:
        run(x)
    assert str(caught.value).endswith(f"{LINE})")
    assert (gpu.number("entered"), gpu.number("left")) == (1, 1)
    run(x)
    assert gpu.number("launches") == 2
    gpu.answer(700)
    with pytest.raises(RuntimeError, match=f"{LATE_HINT}.*{LINE}"):
        run(x)


def test_a_failed_launch_of_a_wrapper_in_python_names_the_line(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "empty_strided_cuda", lambda size, stride, dtype: on_cpu(0, size, stride, dtype, ""))
    monkeypatch.setattr(launch, "raw_stream", lambda number: STREAM)

    class device(contextlib.nullcontext[None]):  # Dynamo asks whether objects are instances of it
        pass

    monkeypatch.setattr(torch.cuda, "device", device)
    run, x = made(gpu, tmp_path, halved, wrapper="python"), torch.randn(5000)
    gpu.answer(700)
    with pytest.raises(RuntimeError, match=f"at the launch of fused_tanh.*{LATE_HINT} .*{LINE}"):
        run(x)
    gpu.answer()
    with gpu.computing():
        torch.testing.assert_close(run(x), halved(x))


def check_unaligned(gpu: FakeGpu, folder: Path) -> None:
    """Python launches another binary, which is compiled once."""
    run, held = made(gpu, folder, halved, dynamic=True), torch.randn(5000)
    for start in (0, 1, 4, 3):
        out = run(held[start : start + 4000])
        assert gpu.words(3) == (held[start:].data_ptr(), out.data_ptr(), 4000)
        assert gpu.last()[2] == (start % 4 == 0), "whether the binary relies on aligned pointers"
    assert [is_aligned for _, _, is_aligned in gpu.compiled] == [True, False]


def check_sizes(gpu: FakeGpu, folder: Path) -> None:
    """Python launches another binary for a size without the factors of the first one."""
    run = made(gpu, folder, lambda x: x.softmax(-1), dynamic=True)
    for columns, name in ((64, ""), (80, ""), (50, ANY), (33, ANY)):
        run(torch.randn(8, columns))
        assert gpu.last()[1].variant == name


def check_counter(gpu: FakeGpu, folder: Path) -> None:
    """A stream has one counter, which holds 0; each launch in a graph has its own."""
    run, x = made(gpu, folder, torch.sum), torch.randn(WHOLE)
    counters: list[int] = []

    def look(number: int, words: Any, programs: int) -> None:
        launch = gpu.compiled[number][1]
        assert launch.has_counter
        counters.append(words[len(launch.arguments)])
        held = ctypes.c_int32.from_address(counters[-1])
        assert held.value == 0
        held.value = capturing  # what a graph has counted is nobody else's

    with gpu.watching(look):
        for capturing in (0, 0, 1, 1, 0):
            gpu.set("capturing", capturing)
            run(x)
    assert counters[0] == counters[1] == counters[4] and counters[0] not in counters[2:4]


def check_scratch(gpu: FakeGpu, folder: Path) -> None:
    """Scratch memory for all programs stands behind the arguments."""
    gpu.scratch = 1 << 20
    run, x = made(gpu, folder, halved), torch.randn(5000)

    def look(number: int, words: Any, programs: int) -> None:
        assert programs > 1 and words[2] != 0 and words[3:5] == [0, 0]
        assert gpu.bytes_at(words[2]) >= programs << 20

    with gpu.watching(look):
        run(x)
    assert gpu.number("launches") == 1


def check_measured(gpu: FakeGpu, folder: Path) -> None:
    """Python measures at the first call; from the next one on, and after a warm start, C++ launches what won."""
    told: list[str] = []
    launch = Kernels.native

    def clock(run: Callable[[], object]) -> float:
        run()
        return 1 / gpu.shape()[3]

    def native(self: Kernels, symbol: str) -> NativeKernel:
        found = launch(self, symbol)
        told.append("Python" if found.record is None else "C++")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernels, "native", native)
        for expected in (["Python", "C++"], ["C++"]):
            run = made(gpu, folder, halved, clock=clock, autotune=True)
            for _ in range(3):
                run(torch.randn(5000))
                assert gpu.last()[1].variant == "warps=8"
            assert told == expected
            told.clear()


LAWS: dict[str, Callable[[FakeGpu, Path], None]] = {
    law.__name__: law
    for law in (
        *(check_launch, check_nothing_to_do, check_failed_launch, check_unaligned, check_sizes, check_counter),
        *(check_scratch, check_measured),
    )
}


@pytest.mark.parametrize("law", LAWS)
def test_a_launch(gpu: FakeGpu, tmp_path: Path, law: str) -> None:
    LAWS[law](gpu, tmp_path)


# --- what a call does beside launches


def check_no_python(gpu: FakeGpu, folder: Path) -> None:
    """Between the begin of a call and its end no function of Python runs."""
    plain: list[Callable[..., Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            launch_cpp_wrapper, "with_ranges", lambda call, *rest: (plain.append(call), lambda args: call(args))[1]
        )
        fn = made(gpu, folder, lambda x: (torch.softmax(x @ x, -1), x.sort()[0] + 1, x.sum() * 2))
        fn(x := torch.randn(64, 64))
    entered: list[str] = []
    sys.setprofile(lambda frame, what, arg: entered.append(what) if what == "call" else None)
    try:
        plain[0]([x])
    finally:
        sys.setprofile(None)
    assert not entered and gpu.number("launches") > 2


def test_nothing_is_compiled_on_a_warm_start(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass leads from the plan to the text, and what a store has is not compiled again."""
    built: list[str] = []
    build = Toolchain.compile

    def counted(self: Toolchain, units: Sequence[Unit], *rest: Any, **how: Any) -> None:
        built.extend(unit.name for unit in units)
        build(self, units, *rest, **how)

    def printed(plan: Plan, env: Env) -> str:
        built.append("text")
        return wrapper_cpp(plan, env)

    monkeypatch.setattr(Toolchain, "compile", counted)
    monkeypatch.setattr("minductor.codegen.wrapper.wrapper_cpp.wrapper_cpp", printed)
    for _ in range(2):
        made(gpu, tmp_path, halved)(torch.randn(5000))
        assert built == ["text", "wrapper", "cuda_launch"] and len(gpu.compiled) == 1


def test_a_call_enters_no_python(gpu: FakeGpu, tmp_path: Path) -> None:
    check_no_python(gpu, tmp_path)


def test_a_torch_without_a_function_is_refused(gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = "aoti_torch_get_current_cuda_stream"
    find = gpu.function
    monkeypatch.setattr(gpu, "function", lambda name: 0 if name == lacks else find(name))
    with pytest.warns(CorruptEntry), pytest.raises(BackendCompilerFailed, match=f"torch .* has no function {lacks}"):
        made(gpu, tmp_path, halved)(torch.randn(9))


def test_two_threads(gpu: FakeGpu, tmp_path: Path) -> None:
    run, results = made(gpu, tmp_path, halved), list[torch.Tensor]()
    x = torch.randn(300)
    with gpu.computing():
        run(x)
        threads = [threading.Thread(target=lambda: results.append(run(x))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 2
    for result in results:
        torch.testing.assert_close(result, torch.tanh(x) * 0.5)


def test_nothing_is_left_behind(gpu: FakeGpu, tmp_path: Path) -> None:
    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1])

    run = made(gpu, tmp_path, lambda x: (x.sin() @ x, x.view(-1), x.sum()))
    x = torch.randn(128, 128)  # 16 pages
    run(x)
    before, references = pages(), sys.getrefcount(x)
    for _ in range(200):
        run(x)
        gpu.answer(1)
        with pytest.raises(RuntimeError, match="CUDA error"):
            run(x)
    assert pages() - before < 200 * 16
    assert sys.getrefcount(x) == references


def test_what_cpp_has_no_form_for_is_pythons_with_a_warning(gpu: FakeGpu, tmp_path: Path) -> None:
    with pytest.warns(WrapperReplaced, match="nan_asserts on a GPU"), pytest.raises(RuntimeError, match="without CUDA"):
        made(gpu, tmp_path, halved, nan_asserts=True)(torch.randn(9))


# --- faults

FAULTS: dict[str, Callable[[FakeGpu, Path], None]] = {
    "native-winner-untold": check_measured,
    "native-scratch-untold": check_scratch,
    "native-result-in-pool": check_partitions,
}
HEADER, LAUNCH = "minductor_cuda.h", "minductor_launch.h"
# A fault of the headers: the file, a text that occurs in it once, what takes its place, and the law that breaks.
HEADER_FAULTS: dict[str, tuple[str, str, str, Callable[[FakeGpu, Path], None]]] = {
    "stream of nobody": (
        LAUNCH,
        "launch.shared, stream, parameters",
        "launch.shared, nullptr, parameters",
        check_launch,
    ),
    "empty launch": (HEADER, "if (programs <= 0) return true;", "", check_nothing_to_do),
    "device not left": (
        HEADER,
        "if (guard_ != nullptr) aoti_torch_delete_cuda_guard(guard_);",
        "",
        check_failed_launch,
    ),
    "error without a line": (
        HEADER,
        'md.node = node;\n  return md_fail(md, "RuntimeError", "CUDA',
        'return md_fail(md, "RuntimeError", "CUDA',
        check_failed_launch,
    ),
    "alignment unseen": (LAUNCH, "!launch.is_aligned || low_bits % ALIGNMENT == 0", "true", check_unaligned),
    "factors unseen": (
        LAUNCH,
        "(1 << (kind - '0')) != 0) return false",
        "(1 << (kind - '0')) != 0) continue",
        check_sizes,
    ),
    "counter of a graph shared": (HEADER, "if (is_capturing != 0) {", "if (false) {", check_counter),
    "counter for each launch": (HEADER, "if (each->stream == scope.stream) {", "if (false) {", check_counter),
    "counter not zero": (HEADER, "return md_torch(md, aoti_torch_zero_(made.handle));", "return true;", check_counter),
    "scratch of one program": (HEADER, "{programs * scratch}", "{scratch}", check_scratch),
    "scratch forgotten": (
        HEADER,
        "words[count++].pointer = memory.data<void>();",
        "words[count++].pointer = nullptr;",
        check_scratch,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_each_fault_of_a_header_is_noticed(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    file, old, new, law = HEADER_FAULTS[fault]
    change_header(monkeypatch, tmp_path, file, old, new)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        law(gpu, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_noticed(gpu: FakeGpu, tmp_path: Path, fault: str) -> None:
    (mutant,) = (each for each in MUTANTS if each.name == fault)
    with mutated(mutant) as was_reached:
        with pytest.raises(AssertionError):
            FAULTS[fault](gpu, tmp_path)
        assert was_reached()
