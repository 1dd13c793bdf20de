"""Collectives, DDP, FSDP2 and DTensor, on two processes with gloo: equal to eager."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

distributed = pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")

SECONDS = 120  # for one test's processes, from their start


def collectives(rank: int) -> None:
    import torch.distributed._functional_collectives as funcol

    is_strict = torch.__version__ < (2, 12)  # eager then refuses to gather what is not contiguous

    def fn(x: torch.Tensor) -> Any:
        y = x.sin() * 2
        total = funcol.all_reduce(y, "sum", [0, 1])
        late = y * 3  # while it is on its way
        rows = funcol.all_gather_tensor(y.t().contiguous() if is_strict else y.t(), 0, [0, 1])
        part = funcol.reduce_scatter_tensor(rows * 2, "sum", 0, [0, 1])
        first = funcol.broadcast(late, 1, [0, 1])
        across = funcol.all_reduce(y.t(), "max", [0, 1])  # of other strides than its result
        return total + late, rows + 1, part.cos(), first.clone(), across.t() + y

    compare(fn, torch.randn(4, 4) + rank)
    compare(fn, torch.randn(6, 4) + rank, dynamic=True)


def written_while_it_is_sent(rank: int) -> None:
    import torch.distributed._functional_collectives as funcol

    def fn(x: torch.Tensor) -> Any:
        rows = funcol.all_gather_tensor(x, 0, [0, 1]) + 0
        x.add_(1)
        again = funcol.all_gather_tensor(x, 0, [0, 1])
        return rows, again * 2

    compare(fn, torch.randn(300) + rank)


def in_place(rank: int) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.distributed.all_reduce(y)
        return y + 1

    compare(fn, torch.randn(5) + rank)


def ddp(rank: int) -> None:
    def steps(net: torch.nn.Module) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(rank + 1)
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in net.parameters()]

    torch._dynamo.reset()
    plain = steps(torch.nn.parallel.DistributedDataParallel(network()))
    fast = steps(torch.compile(torch.nn.parallel.DistributedDataParallel(network()), backend="minductor"))
    torch.testing.assert_close(fast, plain)


def fsdp(rank: int) -> None:
    from torch.distributed.fsdp import fully_shard

    def steps(net: Any, *, fast: bool) -> list[torch.Tensor]:
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        run = torch.compile(net, backend="minductor") if fast else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(rank + 1)
        for _ in range(3):
            optimizer.zero_grad()
            run(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach().full_tensor() for p in net.parameters()]

    torch._dynamo.reset()
    torch.testing.assert_close(steps(network(), fast=True), steps(network(), fast=False))


def dtensor(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    x = distribute_tensor(torch.randn(6, 8), mesh, [Shard(1)])
    w = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)])

    def fn(x: Any, w: Any) -> Any:
        return (x @ w).redistribute(mesh, [Replicate()]).relu().to_local() * 2

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(fn, backend="minductor")(x, w), fn(x, w))


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))


def compare(fn: Callable[[torch.Tensor], Any], x: torch.Tensor, *, dynamic: bool = False) -> None:
    torch._dynamo.reset()
    mine, theirs = x.clone(), x.clone()
    expected = fn(theirs)
    found = torch.compile(fn, backend="minductor", dynamic=dynamic, fullgraph=True, options={"verify": True})(mine)
    torch.testing.assert_close((found, mine), (expected, theirs))


def start(names: Sequence[str], rank: int, folder: str) -> None:
    """One process of a test; what it raises is left in a file."""
    import traceback
    import warnings

    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MINDUCTOR_CACHE_DIR=f"{folder}/cache{rank}")
    torch.set_num_threads(1)
    try:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*this graph runs in eager")
        distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
        for name in names:
            globals()[name](rank)
        distributed.destroy_process_group()
        Path(folder, f"{rank}.done").touch()
    except BaseException:
        Path(folder, f"{rank}.failed").write_text(traceback.format_exc())
        os._exit(1)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("collectives", "written_while_it_is_sent", "in_place"), id="collectives"),
        *(pytest.param((name,), id=name, marks=pytest.mark.long) for name in ("ddp", "fsdp", "dtensor")),
    ],
)
def test_two_processes(names: Sequence[str]) -> None:
    # one process imports torch, and both are forked from it
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([__name__, "torch._dynamo", "minductor.driver"])
    with tempfile.TemporaryDirectory() as folder:
        pair = [forks.Process(target=start, args=(names, rank, folder), daemon=True) for rank in range(2)]
        for process in pair:
            process.start()
        try:
            for process in pair:
                process.join(SECONDS)
        finally:
            for process in pair:
                process.kill()
                process.join()
        failures = "\n".join(p.read_text() for p in Path(folder).glob("*.failed"))
        assert not failures, failures
        assert len(list(Path(folder).glob("*.done"))) == 2, f"not done in {SECONDS} s"
