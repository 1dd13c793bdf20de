"""C++ wrappers and packages on a GPU: results, streams, captured graphs, counters, memory, errors.

The same laws are tested on any machine against a driver of the test's own: tests/runtime/test_cuda_cpp_wrapper.py and
test_export_gpu.py.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import minductor
from minductor.core.errors import WrongInput
from minductor.driver import Compiled, Compiler
from minductor.runtime.launch.cuda import target_of
from minductor.runtime.store.store import Store
from minductor.target import TARGETS
from pytest_plugin.devices.device_choice import Device

pytestmark = pytest.mark.devices("cuda")


def made(fn: Callable[..., Any], folder: Path, seen: list[Compiled] | None = None, **how: Any) -> Callable[..., Any]:
    """The function, compiled with a wrapper in C++ that must not become one in Python."""
    torch._dynamo.reset()
    graphs: list[Compiled] = [] if seen is None else seen
    options = {"wrapper": "cpp", **how.pop("options", {})}
    backend = partial(Compiler(store=Store(folder), observer=graphs.append), options=options)
    compiled = torch.compile(fn, backend=backend, **how)

    def call(*args: Any) -> Any:
        result = compiled(*args)
        assert graphs and all("wrapper.cpp" in graph.sources for graph in graphs)
        return result

    return call


def nested(x: Tensor, y: Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a, b: (a * b).softmax(-1), lambda a, b: a / (b.abs() + 1), (x, y))


def mutated_views(x: Tensor, y: Tensor) -> Any:
    x.add_(y)
    y[1:3] = 0
    return x.sum(), x[1:3].t(), x, torch.cat([x, y]).view(-1), x.shape[0] * 2, x.new_zeros(x.shape[0] // 3)


def operators(x: Tensor, y: Tensor) -> Any:
    product = torch.addmm(x.sum(0), x, y.t() @ y)
    heads = (x.view(-1, 2, 8).transpose(0, 1)[None], y.view(-1, 2, 8).transpose(0, 1)[None])
    attention = F.scaled_dot_product_attention(heads[0], heads[1], heads[1])
    parts = torch.split(torch.sort(x)[0], 5, dim=1)
    return (
        product.tanh(),
        attention * 2,
        [part * 2 for part in parts],
        y.topk(3),
        torch.histc(x),
        x.double() @ y.double().t(),
    )


def of_data(x: Tensor, y: Tensor) -> Any:
    rows = torch.nonzero(x[:, 0] > -9)
    return x[rows[:, 0]] * 2, x * y.sum().item(), x + (y > 0).sum().item()


@pytest.mark.parametrize("fn", [nested, mutated_views, operators, of_data])
def test_gives_what_eager_gives(device: Device, tmp_path: Path, fn: Callable[..., Any]) -> None:
    run = made(fn, tmp_path, dynamic=True)
    for rows in (6, 9, 20):
        given = torch.randn(rows, 16, device=device), torch.randn(rows, 16, device=device)
        copies = tuple(tensor.clone() for tensor in given)
        for one, other in zip(tree_leaves((run(*given), given)), tree_leaves((fn(*copies), copies)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_draws_eagers_numbers(device: Device, tmp_path: Path) -> None:
    def fn(x: Tensor) -> Any:
        return F.dropout(x, 0.5), torch.rand_like(x) * 2, torch.randint(0, 9, (3,), device=x.device)

    run, x = made(fn, tmp_path), torch.randn(1000, device=device)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = fn(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(run(x), expected)


def test_training_goes_through_it_both_ways(device: Device, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).to(device)
    other = copy.deepcopy(model)
    seen: list[Compiled] = []
    step = made(lambda x: model(x).square().mean(), tmp_path, seen)
    for _ in range(5):
        x = torch.randn(32, 64, device=device)
        step(x).backward()
        other(x).square().mean().backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)
    assert {graph.role for graph in seen} == {"forward", "backward"}


def halved(x: Tensor) -> Tensor:
    return torch.tanh(x) * 0.5


def test_pointers_that_are_not_aligned(device: Device, tmp_path: Path) -> None:
    run, held = made(halved, tmp_path, dynamic=True), torch.randn(5000, device=device)
    for start in (0, 1, 4, 3, 0):
        torch.testing.assert_close(run(held[start : start + 4000]), halved(held[start : start + 4000]))


def loss(x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(x, y) + (x * y).sum()


def whole(device: Device, seed: int) -> tuple[Tensor, Tensor]:
    """Whole numbers, which any order adds to the same sum."""
    drawn = torch.Generator().manual_seed(seed)
    x, y = (torch.randint(-1, 2, (1 << 22,), generator=drawn).float().to(device) for _ in range(2))
    return x, y


def test_two_streams_count_apart_and_overlap(device: Device, tmp_path: Path) -> None:
    """Long kernels on two streams overlap: with one counter for both, the last program would come too early."""
    run, pairs = made(loss, tmp_path), [whole(device, seed) for seed in range(2)]
    expected = [loss(*pair) for pair in pairs]
    run(*pairs[0])
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = [[], []]
    for _ in range(100):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[number].append(run(*pairs[number]))
    torch.cuda.synchronize()
    for results, wanted in zip(found, expected, strict=True):
        assert all(torch.equal(result, wanted) for result in results)


def test_a_graph_that_the_user_captures(device: Device, tmp_path: Path) -> None:
    """Replayed beside calls on another stream; each launch in the graph has a counter of its own."""
    run, (x, y), other = made(loss, tmp_path), whole(device, 0), whole(device, 1)
    expected = [loss(x, y), loss(*other)]
    side, replay = torch.cuda.Stream(device), torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        results = [run(x, y) for _ in range(3)]
    calls: list[Tensor] = []
    for _ in range(50):
        with torch.cuda.stream(replay):
            graph.replay()
        with torch.cuda.stream(side):
            calls.append(run(*other))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected[0]) for result in results)
    assert all(torch.equal(result, expected[1]) for result in calls)


def test_the_device_of_the_caller_stays_current(device: Device, tmp_path: Path) -> None:
    run, x = made(halved, tmp_path), torch.randn(1000, device=device)
    for number in range(torch.cuda.device_count()):
        with torch.cuda.device(number):
            torch.testing.assert_close(run(x), halved(x))
            assert torch.cuda.current_device() == number


def test_no_memory_is_eagers_error(device: Device, tmp_path: Path) -> None:
    run = made(lambda x: x.expand(1 << 16, 1 << 16, -1) * 2, tmp_path)
    with pytest.raises(torch.OutOfMemoryError):
        run(torch.randn(1 << 10, device=device))


def test_a_freed_function_gives_its_memory_back(device: Device, tmp_path: Path) -> None:
    x = torch.randn(1 << 20, device=device)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(device)
    run = made(lambda x: (x.sin().sum(), x * 2), tmp_path)
    for _ in range(5):
        run(x)
    del run
    torch._dynamo.reset()
    gc.collect()
    assert torch.cuda.memory_allocated(device) - before <= 4096, "a counter for the stream stays"


@pytest.mark.parametrize("dynamic", [False, True])
def test_launches_are_measured(device: Device, tmp_path: Path, *, dynamic: bool) -> None:
    run = made(lambda x: torch.softmax(x, -1), tmp_path, dynamic=dynamic, options={"autotune": True})
    x = torch.randn(512, 1000, device=device)
    for _ in range(3):
        torch.testing.assert_close(run(x), torch.softmax(x, -1))


# --- packages


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(64, 64), nn.LayerNorm(64)
        self.last = nn.Linear(64, 64)
        self.last.weight = self.first.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Any:
        self.get_buffer("calls").add_(1)
        return F.gelu(self.last(self.norm(self.first(x)))), torch.sort(x)[0], x.shape[0]


@pytest.mark.parametrize("is_traced_here", [False, True], ids=["traced on the CPU", "traced on the GPU"])
def test_a_package(device: Device, tmp_path: Path, *, is_traced_here: bool) -> None:
    here, model, path = target_of(str(device)), Layer(), tmp_path / "a.zip"
    given = (torch.randn(8, 64),)
    if is_traced_here:
        model, given = model.to(device), (given[0].to(device),)
    assert here is not None
    targets = ("sm_80", *(name for name, row in TARGETS.items() if here.runs(row)))
    shapes = ({0: Dim("rows", min=2, max=256)},)
    minductor.export(model, given, path, dynamic_shapes=shapes, target=targets)
    with torch.cuda.device(torch.device(device)):
        loaded = minductor.load(path)
    eager = copy.deepcopy(model).to(device)
    for rows in (8, 5, 256):
        held = torch.randn(rows * 64 + 1, device=device)
        for start in (0, 1):
            x = held[start : start + rows * 64].view(rows, 64)
            for one, other in zip(tree_leaves(loaded(x)), tree_leaves(eager(x)), strict=True):
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    with pytest.raises(WrongInput, match="it is on cpu"):
        loaded(torch.randn(8, 64))
