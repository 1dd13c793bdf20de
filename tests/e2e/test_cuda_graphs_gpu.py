"""CUDA graphs on a GPU: a small GPT, inputs that move, sizes, random numbers, mutation, threads, streams, results.

The same laws are tested on any machine against a driver that records: test_cuda_graphs.py and, in tests/runtime/,
test_graphs.py.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor.driver import Compiler
from minductor.runtime.graphs.graph_driver import Stream, Tensors, TorchDriver
from minductor.runtime.store.store import Store
from pytest_plugin.devices.device_choice import Device

pytestmark = pytest.mark.devices("cuda")
WIDTH, HEADS, WORDS, LENGTH = 64, 4, 97, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        scores = (split[0] @ split[1].mT) * (WIDTH // HEADS) ** -0.5
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        weights = F.dropout(torch.softmax(scores.masked_fill(~mask, -1e9), -1), 0.1, self.training)
        x = x + self.out((weights @ split[2]).transpose(1, 2).flatten(2))
        return x + F.dropout(self.narrow(F.gelu(self.wide(self.after(x)))), 0.1, self.training)


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class CountingDriver(TorchDriver):
    """torch.cuda, with the number of recordings and replays."""

    def __init__(self) -> None:
        super().__init__()
        self.records = self.replays = self.copies = 0

    def record(self, run: Callable[[], Tensors], pool: Any, stream: Stream) -> tuple[Any, Tensors]:
        made = super().record(run, pool, stream)
        self.records += 1
        return made

    def copy(self, into: Tensors, values: Tensors) -> None:
        self.copies += 1
        super().copy(into, values)

    def replay(self, graph: Any) -> None:
        self.replays += 1
        super().replay(graph)


@pytest.fixture
def driver() -> CountingDriver:
    return CountingDriver()


@pytest.fixture
def compiled(tmp_path: Path, driver: CountingDriver) -> Iterator[Callable[..., Any]]:
    """Compiles a function with graphs, or without."""
    store = Store(tmp_path)

    def compile_with(fn: Any, *, graphs: bool = True, wrapper: str = "python", **given: Any) -> Any:
        torch._dynamo.reset()
        backend = Compiler(store=store, graph_driver=driver)
        return torch.compile(fn, backend=backend, options={"cudagraphs": graphs, "wrapper": wrapper}, **given)

    yield compile_with
    torch._dynamo.reset()


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def trained(compile_with: Callable[..., Any], device: Device, accumulate: int, **how: Any) -> list[Tensor]:
    """The losses and weights of 200 steps of a GPT with dropout."""
    torch.manual_seed(0)
    net = Gpt().to(device)
    call = compile_with(net, **how)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    losses: list[Tensor] = []
    for step in range(200):
        for _ in range(accumulate):
            ids = torch.randint(WORDS, (4, LENGTH + 1), device=device)
            loss = F.cross_entropy(call(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            losses.append(loss.detach())
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    return [*losses, *net.state_dict().values()]


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize(("accumulate", "wrapper"), [(1, "python"), (2, "python"), (1, "cpp")])
def test_a_gpt_trains_the_same_bit_for_bit(
    compiled: Callable[..., Any],
    driver: CountingDriver,
    device: Device,
    accumulate: int,
    wrapper: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    plain = trained(compiled, device, accumulate, graphs=False)
    found = trained(compiled, device, accumulate, wrapper=wrapper)
    assert all(map(torch.equal, found, plain))
    assert driver.records >= 2 and driver.replays >= 2 * 190 * accumulate


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes_use_graphs(tmp_path: Path, driver: CountingDriver, device: Device, mode: str) -> None:
    torch._dynamo.reset()
    call = torch.compile(torch.softmax, backend=Compiler(store=Store(tmp_path), graph_driver=driver), mode=mode)
    x = torch.randn(64, 256, device=device)
    for _ in range(4):
        torch.testing.assert_close(call(x, -1), torch.softmax(x, -1))
    assert driver.records == 1 and driver.replays == 3


def test_layers_that_train_one_by_one_have_recordings_each(
    tmp_path: Path, driver: CountingDriver, device: Device
) -> None:
    """They share a compiled graph. Each gradient is that of a net in eager."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    blocks = [Block().to(device).eval() for _ in range(3)]
    backend = Compiler(store=Store(tmp_path), graph_driver=driver)
    calls = [torch.compile(block, backend=backend, options={"cudagraphs": True}) for block in blocks]
    before = 0
    for _ in range(6):
        before, x = driver.records, torch.randn(2, LENGTH, WIDTH, device=device)
        found: list[list[Tensor]] = []
        for layers in (calls, blocks):
            y = x
            for layer in layers:
                y = layer(y)
            y.square().mean().backward()
            parameters = [parameter for block in blocks for parameter in block.parameters()]
            found.append([parameter.grad.clone() for parameter in parameters if parameter.grad is not None])
            for parameter in parameters:
                parameter.grad = None
        for mine, eager in zip(*found, strict=True):
            torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-5)
    assert driver.records == before and driver.replays >= 6 * 3


def test_moved_inputs_are_copied(compiled: Callable[..., Any], driver: CountingDriver, device: Device) -> None:
    weight = torch.randn(64, 64, device=device)
    call = compiled(lambda x: torch.softmax(x @ weight, -1))
    xs = [torch.randn(32, 64, device=device) for _ in range(8)]
    held = [call(x) for x in xs]
    for out, x in zip(held, xs, strict=True):
        torch.testing.assert_close(out, torch.softmax(x @ weight, -1), rtol=1e-3, atol=1e-3)
    assert driver.records == 3 and driver.replays == 7  # results that are held have takes of their own


def test_results_are_copied_only_if_two_are_held(
    compiled: Callable[..., Any], driver: CountingDriver, device: Device
) -> None:
    call, x = compiled(lambda x: torch.softmax(x, -1)), torch.randn(64, 512, device=device)
    made = call(x)
    for _ in range(8):
        x.normal_()
        made = call(x)
        torch.testing.assert_close(made, torch.softmax(x, -1))
    assert (driver.records, driver.replays, driver.copies) == (2, 8, 0)
    kept = [(x.normal_().clone(), call(x)) for _ in range(6)]
    for given, made in kept:
        torch.testing.assert_close(made, torch.softmax(given, -1))
    assert driver.records == 3 and driver.copies in {4, 5}  # `made` is held at first


def test_an_overwritten_result_is_an_error_for_another_compiled_function(
    compiled: Callable[..., Any], device: Device
) -> None:
    """Kernels find the memory of their inputs in C, where torch throws."""
    call, x = compiled(lambda x: x.sin() * 2), torch.randn(64, device=device)
    other = torch.compile(lambda x: x.cos() + 1, backend="minductor")
    held: list[Tensor] = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        held.append(call(x))
    torch.testing.assert_close(other(held[-1]), held[-1].cos() + 1)
    with pytest.raises(RuntimeError, match="was overwritten by the replay of a CUDA graph"):
        other(held[1])


def test_changing_sizes(compiled: Callable[..., Any], driver: CountingDriver, device: Device) -> None:
    call = compiled(lambda x: torch.softmax(x, -1) * x.shape[0], dynamic=True)
    for size in (5, 300, 5, 300, 17, 5, 17):
        x = torch.randn(size, 129, device=device)
        torch.testing.assert_close(call(x), torch.softmax(x, -1) * size)
    assert driver.replays == 4  # where the inputs lie, and so who records again, is the allocator's
    assert driver.records in {3, 4}


@pytest.mark.parametrize("is_fused", [True, False])
def test_random_numbers(compiled: Callable[..., Any], tmp_path: Path, device: Device, *, is_fused: bool) -> None:
    """Each replay draws new numbers, and a seed repeats those of a run without graphs."""
    x, found = torch.ones(4096, device=device), dict[bool, list[Tensor]]()
    for graphs in (False, True):
        torch._dynamo.reset()
        options: dict[str, Any] = {"cudagraphs": graphs, "fuse_random": is_fused}
        backend = Compiler(store=Store(tmp_path / "random"))
        call = torch.compile(lambda x: F.dropout(x, 0.5) + torch.rand_like(x), backend=backend, options=options)
        torch.manual_seed(3)
        found[graphs] = [call(x) for _ in range(6)]
    assert all(map(torch.equal, found[True], found[False]))
    assert not any(torch.equal(one, two) for one, two in zip(found[True], found[True][1:], strict=False))


def test_mutation(compiled: Callable[..., Any], driver: CountingDriver, device: Device) -> None:
    """A cache that stays is written where it lies; one that moves is copied in and back."""

    def step(cache: Tensor, token: Tensor, place: Tensor) -> Tensor:
        cache.index_copy_(0, place, token)
        return cache.sum(0)

    call, wanted = compiled(step), torch.zeros(16, 64, device=device)
    cache = wanted.clone()
    for number in range(12):
        token, place = torch.randn(1, 64, device=device), torch.tensor([number], device=device)
        cache = cache.clone() if number > 8 else cache
        torch.testing.assert_close(call(cache, token, place), step(wanted, token, place))
        assert torch.equal(cache, wanted)
    assert driver.replays >= 10


def test_two_threads(compiled: Callable[..., Any], device: Device) -> None:
    weight = torch.randn(64, 64, device=device)
    call = compiled(lambda x: torch.tanh(x @ weight).sum(-1))
    wrong: list[int] = []
    call(torch.randn(32, 64, device=device))

    def work(seed: int) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        for number in range(100):
            x = torch.randn(32, 64, device=device, generator=generator)
            if not torch.allclose(call(x), torch.tanh(x @ weight).sum(-1), rtol=1e-2, atol=1e-2):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_streams(compiled: Callable[..., Any], driver: CountingDriver, device: Device) -> None:
    call = compiled(lambda x: torch.softmax(x, -1).cumsum(-1))
    pairs = [torch.randn(512, 4096, device=device) for _ in range(2)]
    streams = [torch.cuda.Stream(device) for _ in pairs]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]
    for _ in range(20):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[number].append(call(pairs[number]).sum())
    torch.cuda.synchronize()
    assert driver.records == 2
    for results in found:
        assert all(torch.equal(result, results[0]) for result in results)


def test_results_of_marked_steps_are_overwritten_with_an_error(compiled: Callable[..., Any], device: Device) -> None:
    call, x = compiled(lambda x: x.sin() * 2), torch.randn(64, device=device)
    held: list[Tensor] = []
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        held.append(call(x))
        torch.testing.assert_close(held[-1], x.sin() * 2)
    with pytest.raises(RuntimeError, match="was overwritten by the replay of a CUDA graph"):
        held[1].add(1)
    with pytest.raises(RuntimeError, match=Path(__file__).name):
        held[1][2:].sum()
    torch.testing.assert_close(held[-1], x.sin() * 2)


def test_two_forwards_before_their_backwards(compiled: Callable[..., Any], device: Device) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    call = compiled(net)
    for _ in range(5):
        xs = [torch.randn(16, 64, device=device) for _ in range(2)]
        sum(call(x).sum() for x in xs).backward()  # pyright: ignore
        found = [p.grad for p in net.parameters()]
        net.zero_grad()
        sum(net(x).sum() for x in xs).backward()  # pyright: ignore
        for made, parameter in zip(found, net.parameters(), strict=True):
            torch.testing.assert_close(made, parameter.grad, rtol=1e-3, atol=1e-3)
        net.zero_grad()


def test_a_freed_model_gives_its_memory_back(compiled: Callable[..., Any], device: Device) -> None:
    torch.compiler.reset()  # what earlier tests compiled holds memory
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    net = Gpt().to(device)
    call = compiled(net)
    for _ in range(4):
        call(torch.randint(WORDS, (4, LENGTH), device=device)).sum().backward()
        net.zero_grad()
    held = torch.cuda.memory_reserved()
    del net, call
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held
    assert torch.cuda.memory_reserved() <= before + (40 << 20)  # cuBLAS keeps its workspaces


class GreedyDriver(CountingDriver):
    """A driver whose recordings want more memory than there is."""

    def record(self, run: Callable[[], Tensors], pool: Any, stream: Stream) -> tuple[Any, Tensors]:
        def greedy() -> Tensors:
            torch.empty(1 << 46, dtype=torch.uint8, device="cuda")
            return run()

        return super().record(greedy, pool, stream)


def test_no_room_in_capture_runs_without_a_graph(tmp_path: Path, device: Device) -> None:
    driver = GreedyDriver()
    backend = Compiler(store=Store(tmp_path), graph_driver=driver)
    call = torch.compile(lambda x: torch.softmax(x, -1), backend=backend, options={"cudagraphs": True})
    x = torch.randn(64, 4096, device=device)
    wanted = call(x)
    with pytest.warns(UserWarning, match="no room"):
        found = call(x)
    assert torch.equal(found, wanted) and torch.equal(call(x), wanted) and driver.records == 0


FAULT = """
import sys
import torch

def look_up(table, rows):
    return table[rows] * 2  # this line

call = torch.compile(look_up, backend="minductor", options={"cudagraphs": True, "wrapper": sys.argv[1]})
table, rows = torch.randn(8, 4, device="cuda"), torch.tensor([1, 2, 3], device="cuda")
for _ in range(3):
    call(table, rows)
rows[1] = 99
call(table, rows)
torch.cuda.synchronize()
"""


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_a_kernel_that_faults_is_named_if_launches_wait(tmp_path: Path, device: Device, wrapper: str) -> None:
    """In a process of its own, whose context is lost. Without waiting, the error says how to find the kernel."""
    (tmp_path / "fault.py").write_text(FAULT)
    line = next(number for number, text in enumerate(FAULT.splitlines(), 1) if "# this line" in text)
    for waits in ("1", "0"):
        environ = {**os.environ, "CUDA_LAUNCH_BLOCKING": waits, "MINDUCTOR_CACHE_DIR": str(tmp_path / "store")}
        command = [sys.executable, str(tmp_path / "fault.py"), wrapper]
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert ran.returncode != 0 and "CUDA_LAUNCH_BLOCKING=1" in ran.stderr
        if waits == "1":
            assert re.search(rf"CUDA error: .*at the launch of .*\(at .*fault\.py:{line}\)", ran.stderr), ran.stderr
