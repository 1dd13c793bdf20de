"""Programs under `cudagraphs` in Triton's interpreter, with a driver in place of torch.cuda: training, state, sizes."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor.driver import Compiled, Compiler
from minductor.runtime.store.store import Store
from tests.recording_driver import RecordingDriver

OPTIONS: dict[str, Any] = {"target": "interpret", "cudagraphs": True}


class Net(nn.Module):
    """A hidden layer with dropout, whose calls are counted in a buffer."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.out(F.dropout(torch.tanh(self.hidden(x)), 0.3, self.training))


@pytest.fixture
def driver() -> RecordingDriver:
    return RecordingDriver()


@pytest.fixture
def compile_net(tmp_path: Path, driver: RecordingDriver) -> Iterator[Callable[..., Any]]:
    """Compiles a function with graphs, or without."""
    store = Store(tmp_path)

    def compiled(fn: Any, *, graphs: bool = True, **given: Any) -> Any:
        torch._dynamo.reset()
        backend = Compiler(store=store, graph_driver=driver)
        return torch.compile(fn, backend=backend, options={**OPTIONS, "cudagraphs": graphs}, **given)

    yield compiled
    torch._dynamo.reset()


def trained(compiled: Callable[..., Any], *, graphs: bool, accumulate: int = 1, steps: int = 5) -> list[Tensor]:
    """Losses, then weights and buffers, of some steps of SGD with momentum."""
    torch.manual_seed(0)
    net = Net()
    call = compiled(net, graphs=graphs)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    losses: list[Tensor] = []
    for _ in range(steps):
        for _ in range(accumulate):
            loss = call(torch.randn(5, 6)).square().mean()
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            losses.append(call(torch.ones(5, 6)))
        net.train()
    return [*losses, *net.state_dict().values()]


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.long), 2])
def test_training_is_the_same_bit_for_bit(
    compile_net: Callable[..., Any], driver: RecordingDriver, accumulate: int
) -> None:
    """Forward, backward, accumulated gradients, a mutated buffer, random numbers, and inference in turn."""
    plain = trained(compile_net, graphs=False, accumulate=accumulate)
    assert not driver.asked
    assert all(map(torch.equal, trained(compile_net, graphs=True, accumulate=accumulate), plain))
    records, replays = driver.did("record"), driver.did("replay")
    calls = 5 * (2 * accumulate + 1)
    # one recording each of forward, backward and inference, and more where the allocator moves a buffer
    assert 3 <= len(records) <= 6 and calls - 2 * len(records) <= len(replays) <= calls - 3
    assert len({pool for *_, pool in records}) == 2  # forward and backward share one; inference has another


def test_sizes_that_change(compile_net: Callable[..., Any], driver: RecordingDriver) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.softmax(x, 0) * x.shape[0]

    call = compile_net(fn, dynamic=True)
    for size in (4, 7, 4, 7, 9, 4):
        x = torch.randn(size, 3)
        assert torch.allclose(call(x), fn(x))
    assert len(driver.did("record")) == 2


def test_what_cannot_be_captured_runs_between(tmp_path: Path, driver: RecordingDriver) -> None:
    """Its reason is in the report; what it makes is an input that moves."""

    def fn(x: Tensor) -> Tensor:
        picked = torch.multinomial(torch.softmax(x, -1), 1)
        return (x * 2).gather(1, picked) + x

    seen: list[Compiled] = []
    backend = Compiler(store=Store(tmp_path), graph_driver=driver, observer=seen.append)
    call = torch.compile(fn, backend=backend, options=OPTIONS)
    x, calls = torch.empty(4, 5), 6
    for _ in range(calls):
        x.normal_()
        torch.manual_seed(1)
        made = call(x)
        torch.manual_seed(1)
        assert torch.allclose(made, fn(x))
    (report,) = (each.report for each in seen)
    assert [can for _, _, can in report.partitions] == [True, False, True]
    assert report.barriers[0][-1] == "the host waits for a check of its input"
    assert len(driver.did("replay")) == 2 * (
        calls - 1
    )  # where `picked` lies, and so who records again, is the allocator's
    assert driver.did("record")[:2] == [("record", 0, 1), ("record", 1, 1)]


def test_the_trace_tells_what_is_recorded_and_copied(
    tmp_path: Path, driver: RecordingDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = Compiler(store=Store(tmp_path), graph_driver=driver)
    call = torch.compile(lambda x: x.sin() * 2, backend=backend, options={**OPTIONS, "trace": "2"})
    held = [torch.randn(8) for _ in range(3)]
    for x in held:
        call(x)
    told = capsys.readouterr()
    assert "partition_0: recorded, 1 of 1 inputs copied" in told.out + told.err


def test_layers_that_are_compiled_one_by_one_have_recordings_each(tmp_path: Path, driver: RecordingDriver) -> None:
    """They share a compiled graph; their weights and the counts in their buffers are not copied."""
    torch.manual_seed(0)
    layers, seen = [Net().eval() for _ in range(3)], list[Compiled]()
    backend = Compiler(store=Store(tmp_path), graph_driver=driver, observer=seen.append)
    calls = [torch.compile(layer, backend=backend, options=OPTIONS) for layer in layers]
    held: list[Tensor] = []  # so that each input has another address
    with torch.no_grad():
        for _ in range(4):
            driver.asked.clear()
            for layer, call in zip(layers, calls, strict=True):
                held.append(torch.randn(5, 6))
                assert torch.allclose(call(held[-1]), layer(held[-1]), atol=1e-6)
    assert [each[:2] for each in driver.asked if each[0] == "copy"] == [("copy", 1)] * 3  # an input, and no result
    assert len(seen) == 1 and len(driver.did("replay")) == 3 and [float(layer.calls) for layer in layers] == [8.0] * 3


def test_a_decoder_writes_its_cache_where_it_lies(compile_net: Callable[..., Any], driver: RecordingDriver) -> None:
    def step(cache: Tensor, token: Tensor, place: Tensor) -> Tensor:
        cache.index_copy_(0, place, token)
        return cache.sum(0)

    call, cache, wanted = compile_net(step), torch.zeros(6, 4), torch.zeros(6, 4)
    for number in range(5):
        token, place = torch.randn(1, 4), torch.tensor([number])
        assert torch.allclose(call(cache, token, place), step(wanted, token, place), rtol=1e-5)
        assert torch.equal(cache, wanted)
    assert len(driver.did("record")) == 1
    assert driver.asked[1][0] == "copy" and driver.asked[1][1] <= 2  # the cache is not copied


def test_a_freed_function_frees_its_graphs(compile_net: Callable[..., Any], driver: RecordingDriver) -> None:
    call, x = compile_net(lambda x: x.sin() * 2), torch.randn(8)
    for _ in range(3):
        call(x)
    graph = weakref.ref(driver.recorded.pop())
    del call
    torch._dynamo.reset()
    gc.collect()
    assert graph() is None


def test_nothing_is_recorded_while_each_launch_waits(tmp_path: Path, driver: RecordingDriver) -> None:
    environ = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}
    backend = Compiler(store=Store(tmp_path), graph_driver=driver, environ=environ)
    call, x = torch.compile(lambda x: x.sin() * 2, backend=backend, options=OPTIONS), torch.randn(8)
    for _ in range(3):
        assert torch.allclose(call(x), x.sin() * 2)
    assert not driver.asked


def test_nothing_is_recorded_on_a_cpu(tmp_path: Path, driver: RecordingDriver) -> None:
    backend = Compiler(store=Store(tmp_path), graph_driver=driver)
    call: Any = torch.compile(lambda x: x.sin() * 2, backend=backend, options={"cudagraphs": True})
    with pytest.warns(UserWarning, match="CUDA graphs have no effect on cpu"):
        call(torch.randn(8))
    assert not driver.devices


@pytest.mark.parametrize("option", [{"nan_asserts": True}, {"verify_memory": "assert"}])
def test_checks_that_the_host_reads_run_without_graphs(
    option: dict[str, Any], tmp_path: Path, driver: RecordingDriver
) -> None:
    backend = Compiler(store=Store(tmp_path), graph_driver=driver)
    call = torch.compile(lambda x: x.sin() * 2, backend=backend, options={**OPTIONS, **option})
    x = torch.randn(8)
    with pytest.warns(UserWarning, match=f"CUDA graphs have no effect with {next(iter(option))}"):
        made = [call(x) for _ in range(3)]
    assert not driver.asked and torch.allclose(made[-1], x.sin() * 2)
