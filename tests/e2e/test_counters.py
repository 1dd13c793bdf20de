"""Reductions in parts whose last program joins the parts: their values, whichever program is the last, and their text.

What one counter must bear is tested on a GPU: calls one after the other, on two streams, from two threads, in a
captured CUDA graph, and as the tuner tries other launches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.driver import Compiled, Compiler
from minductor.passes.bundle import finish
from minductor.runtime.launch.interpret import Interpreter
from pytest_plugin.adapters import FreshStore
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile

LAST = "tl.atomic_add(counter"
LASTS = ("tl.atomic_add(counter, ", "tl.atomic_add(counter + ")  # of all programs, and of those for a block of columns
LENGTH = 1 << 17
NEVER = 1e9  # as `finish.TIE`: no launch is worth saving

CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "sum": (lambda x: x.sum(), lambda: (torch.randn(LENGTH),)),
    "sum of an odd length": (lambda x: x.sum(), lambda: (torch.randn(300_007),)),
    "mean": (lambda x: (x * 2).mean(), lambda: (torch.randn(4 * LENGTH).bfloat16(),)),
    "amax": (lambda x: x.amax(), lambda: (torch.randn(LENGTH),)),
    "argmax": (lambda x: x.argmax(), lambda: (torch.randint(-5, 5, (LENGTH,)),)),
    "var": (lambda x: x.var(), lambda: (torch.randn(LENGTH) + 9,)),
    "any": (lambda x: (x > 4.5).any(), lambda: (torch.randn(LENGTH),)),
    "cross_entropy": (F.cross_entropy, lambda: (torch.randn(2048, 65), torch.randint(0, 65, (2048,)))),
    "mse_loss": (F.mse_loss, lambda: (torch.randn(512, 300), torch.randn(512, 300))),
    "two": (lambda x, y: (x.sum() * 2, y.amax()), lambda: (torch.randn(LENGTH), torch.randn(LENGTH))),
    "rows": (lambda x: x.sum(1), lambda: (torch.randn(4, LENGTH),)),
    "columns": (lambda x: x.sum(0), lambda: (torch.randn(4096, 192),)),
    "odd columns": (lambda x: (x * 2).sum(0), lambda: (torch.randn(4099, 77).bfloat16(),)),
    "variances of columns": (lambda x: x.var(0), lambda: (torch.randn(4100, 65),)),
    "greatest of columns": (lambda x: x.max(0), lambda: (torch.randint(-9, 9, (5000, 33)),)),
    "two of columns": (
        lambda x, y: (x.sum(0) + 1, (x * y).sum(0)),
        lambda: (torch.randn(3000, 70), torch.randn(3000, 70)),
    ),
    "channels": (
        lambda x, w, b: F.relu(F.batch_norm(x, None, None, w, b, True)),
        lambda: (torch.randn(8, 36, 24, 24).to(memory_format=torch.channels_last), torch.randn(36), torch.randn(36)),
    ),
    "normed": (lambda x: x / x.norm(), lambda: (torch.randn(LENGTH),)),
}


@pytest.fixture(scope="module")
def interpreting() -> Iterator[Compiler]:
    made = Compiler()
    yield made
    made.artefacts.interpreter.close()


def run(compiler: Compiler, fn: Callable[..., Any], given: tuple[Tensor, ...], folder: Path) -> Any:
    """The results of a function in Triton's interpreter; `folder` keeps the kernels."""
    options = {"target": "interpret", "verify": True, "cache_dir": str(folder)}
    torch._dynamo.reset()
    return torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options=options))(*given)


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_whichever_program_is_the_last(
    name: str, interpreting: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bits are those of two kernels."""
    torch.manual_seed(0)
    fn, inputs = CASES[name]
    given = inputs()
    texts: list[str] = []
    interpret = Interpreter._run

    def noted(self: Interpreter, *args: Any) -> None:
        texts.append(self.text)
        interpret(self, *args)

    def backwards(self: Interpreter, *args: Any) -> None:
        """Program 0 is the last one."""
        self.text = self.text.replace("tl.program_id(0)", "(tl.num_programs(0) - 1 - tl.program_id(0))")
        noted(self, *args)

    monkeypatch.setattr(Interpreter, "_run", noted)
    forwards = run(interpreting, fn, given, tmp_path / "one")
    assert any(LAST in text for text in texts)
    torch.testing.assert_close(forwards, fn(*given), rtol=2e-4, atol=2e-5)
    monkeypatch.setattr(Interpreter, "_run", backwards)
    torch.testing.assert_close(run(interpreting, fn, given, tmp_path / "one"), forwards, rtol=0, atol=0)
    assert any("(tl.num_programs(0) - 1 - " in text and LAST in text for text in texts)
    texts.clear()
    monkeypatch.setattr(finish, "TIE", NEVER)
    torch.testing.assert_close(run(interpreting, fn, given, tmp_path / "two"), forwards, rtol=0, atol=0)
    assert texts and not any(LAST in text for text in texts)


def test_an_atomic_of_one_point_beside_the_axes_of_other_parts(interpreting: Compiler, tmp_path: Path) -> None:
    """Each point of its own part adds a term: the verifier must not ask for axes of the other one."""

    def added(x: Tensor) -> tuple[Tensor, Tensor]:
        total = x.exp().sum(0, keepdim=True)
        return total, torch.zeros_like(total).scatter_add(0, total.long() % 1, total)

    x = torch.randn(5000)
    torch.testing.assert_close(run(interpreting, added, (x,), tmp_path), added(x))


def test_sizes_of_the_call(interpreting: Compiler) -> None:
    torch._dynamo.reset()
    options = {"target": "interpret", "verify": True}
    fn = torch.compile(
        lambda x: x.exp().sum(), backend=lambda gm, i: interpreting(gm, i, options=options), dynamic=True
    )
    for length in (LENGTH, 70_001, 2, LENGTH + 5):
        x = torch.randn(length)
        torch.testing.assert_close(fn(x), x.exp().sum(), rtol=2e-5, atol=0)


@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(kernels=1, spills=0, externs=0)
@pytest.mark.golden(level="canonical")
def test_text(compiled: Compile) -> None:
    compiled(lambda x: (x * x).mean(), torch.randn(1024, 1024))


@pytest.mark.devices("compile:sm_90")
@pytest.mark.counts(kernels=1, spills=0, externs=0)
@pytest.mark.golden(level="canonical")
def test_text_of_columns(compiled: Compile) -> None:
    compiled(lambda x: (x * x).sum(0), torch.randn(8192, 512))


# --- on a GPU -------------------------------------------------------------------------------------------------------


def loss(x: Tensor, y: Tensor) -> Tensor:
    """Two sums of parts: the one of all elements, the other of columns."""
    return F.mse_loss(x, y) + (x + 2 * y).view(-1, 256).sum(0).amax()


def whole(device: Device, length: int = 1 << 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Whole numbers, which any order adds to the same sum."""
    made = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(-1, 2, (length,), generator=made).float().to(device) for _ in range(2))  # type: ignore[return-value]


@pytest.fixture
def counted(fresh_store: FreshStore) -> Callable[..., Tensor]:
    """The loss with a counter for all programs, and one for each block of columns."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    compiler = Compiler(observer=seen.append)
    made = torch.compile(loss, backend=compiler)

    def call(x: Tensor, y: Tensor) -> Tensor:
        result = made(x, y)
        assert all(any(last in text for each in seen for text in each.sources.values()) for last in LASTS)
        return result

    return call


@pytest.mark.devices("cuda")
def test_calls_one_after_the_other(device: Device, counted: Callable[..., Tensor]) -> None:
    """Each call finds the counter at 0."""
    for seed in range(50):
        x, y = whole(device, seed=seed)
        assert torch.equal(counted(x, y), loss(x, y))


@pytest.mark.devices("cuda")
def test_two_streams_count_apart(device: Device, counted: Callable[..., Tensor]) -> None:
    """Long kernels on two streams overlap: with one counter for both, the last program would come too early."""
    pairs = [whole(device, 1 << 22, seed) for seed in range(2)]
    expected = [loss(x, y) for x, y in pairs]
    for x, y in pairs:
        counted(x, y)
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]
    for _ in range(200):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[number].append(counted(*pairs[number]))
    torch.cuda.synchronize()
    for results, wanted in zip(found, expected, strict=True):
        assert all(torch.equal(result, wanted) for result in results)


@pytest.mark.devices("cuda")
@pytest.mark.parametrize("is_shared", [True, False], ids=["one stream", "two streams"])
def test_two_threads(device: Device, counted: Callable[..., Tensor], is_shared: bool) -> None:
    pairs = [whole(device, 1 << 22, seed) for seed in range(2)]
    expected = [loss(x, y) for x, y in pairs]
    counted(*pairs[0])
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(device)] * 2 if is_shared else [torch.cuda.Stream(device) for _ in range(2)]
    found: list[list[Tensor]] = [[], []]

    def work(number: int) -> None:
        with torch.cuda.stream(streams[number]):
            found[number] += [counted(*pairs[number]) for _ in range(200)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    for results, wanted in zip(found, expected, strict=True):
        assert len(results) == 200 and all(torch.equal(result, wanted) for result in results)


@pytest.mark.devices("cuda")
def test_a_captured_graph_beside_other_calls(device: Device, counted: Callable[..., Tensor]) -> None:
    """The graph is replayed on another stream than the one on which it was captured, which has calls of its own."""
    x, y = whole(device, 1 << 22)
    other = whole(device, 1 << 22, 1)
    expected = [loss(x, y), loss(*other)]
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            counted(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        results = [counted(x, y) for _ in range(3)]
    calls: list[Tensor] = []
    replay = torch.cuda.Stream(device)
    for _ in range(100):
        with torch.cuda.stream(replay):
            graph.replay()
        with torch.cuda.stream(side):
            calls.append(counted(*other))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected[0]) for result in results)
    assert all(torch.equal(result, expected[1]) for result in calls)
    x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(result, loss(x, y)) for result in results)


@pytest.mark.devices("cuda")
def test_the_tuner_tries_other_launches(device: Device, fresh_store: FreshStore) -> None:
    made = torch.compile(loss, backend="minductor", mode="max-autotune-no-cudagraphs")
    for seed in range(3):
        x, y = whole(device, seed=seed)
        assert torch.equal(made(x, y), loss(x, y))


@pytest.mark.devices("cuda")
def test_one_launch_and_two_give_the_same_bits(device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inputs = [torch.randn(length, device=device) for length in (1 << 16, 100_003, 1 << 20, 1 << 22)]
    functions: list[Callable[[Tensor], Any]] = [
        torch.sum,
        torch.var,
        lambda x: (x.exp().mean(), x.argmax()),
    ]
    seen: list[Compiled] = []

    def result(fn: Callable[[Tensor], Any], x: Tensor, folder: str) -> Any:
        seen.clear()
        torch._dynamo.reset()
        compiler, options = Compiler(observer=seen.append), {"cache_dir": str(tmp_path / folder)}
        return torch.compile(fn, backend=lambda gm, i: compiler(gm, i, options=options))(x)

    for fn in functions:
        for x in inputs:
            one = result(fn, x, "one")
            assert any(LAST in text for each in seen for text in each.sources.values())
            with monkeypatch.context() as patch:
                patch.setattr(finish, "TIE", NEVER)
                two = result(fn, x, "two")
            assert not any(LAST in text for each in seen for text in each.sources.values())
            torch.testing.assert_close(one, two, rtol=0, atol=0)


@pytest.mark.devices("cuda")
def test_a_pointer_that_is_not_aligned(device: Device, counted: Callable[..., Tensor]) -> None:
    x, y = whole(device, (1 << 20) + 1)
    for a, b in ((x[:-1], y[:-1]), (x[1:], y[:-1]), (x[:-1], y[1:])):
        assert torch.equal(counted(a, b), loss(a, b))
