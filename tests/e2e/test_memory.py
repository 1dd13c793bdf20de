"""What whole functions hold: mutation is an alias, fusion does not raise the peak, what dies is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.backends import find_backend
from minductor.driver import Compiled, Compiler
from minductor.frontend.capture.capture import capture
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.ir.report.report import Report
from minductor.options import Options
from minductor.runtime.store.store import Store
from minductor.target import Env, by_name

ENV = Env(Options(verify=True), by_name("cpu"))


def planned(fn: Callable[..., Any], *sizes: tuple[int, ...]) -> Report:
    """The facts of a graph on tensors that nobody allocates."""
    with FakeTensorMode():
        given = [torch.empty(size) for size in sizes]
        traced = make_fx(fn, decomposition_table=decompositions())(*given)
        graph = capture(traced, "inference")
    return Compiler().compile_program(graph, ENV, find_backend("cpu"))[2]


def watched(fn: Callable[..., Any], *args: Any, folder: Path, **options: bool) -> tuple[Any, Compiled]:
    """Runs it with its memory held against the plan."""
    torch._dynamo.reset()
    told: list[Compiled] = []
    backend = Compiler(store=Store(folder), observer=told.append)
    call = torch.compile(fn, backend=backend, fullgraph=True, options={"verify_memory": "assert", **options})
    with torch.no_grad():
        return call(*args), told[0]


def owned(report: Report) -> list[tuple[str, ...]]:
    """The names of each storage that the graph makes."""
    return [names for owner, _, _, _, _, *names in report.storages if owner == "own"]


@pytest.fixture
def copy_to() -> Iterator[Callable[[Tensor, Tensor], None]]:
    """A kernel of somebody else's that writes one of its arguments."""

    @torch.library.custom_op("minductor_test_memory::copy_to", mutates_args={"out"})
    def copy_to(x: Tensor, out: Tensor) -> None:
        out.copy_(x)

    yield copy_to
    copy_to._lib._destroy()


def test_a_mutated_buffer_is_counted_once(copy_to: Callable[[Tensor, Tensor], None], tmp_path: Path) -> None:
    def loop(p: Tensor, e: Tensor) -> Tensor:
        for _ in range(4):
            narrow = torch.empty(32, 32, dtype=torch.bfloat16)
            copy_to(p, narrow)
            p = (narrow @ e).float()
        return p

    torch.manual_seed(0)
    p, e = torch.randn(32, 32), torch.randn(32, 32).bfloat16()
    out, told = watched(loop, p, e, folder=tmp_path, reuse_storage=False, rewrites="-widen_products")
    torch.testing.assert_close(out, loop(p, e), rtol=0.02, atol=0.02)
    halves = [row for row in told.report.storages if row[0] == "own" and row[1] == 2048]
    # what is written is the storage that was made for it: 4 of them, and 4 products
    assert len(halves) == 8
    assert all(last is not None for _, _, _, last, *_ in halves)


def test_views_that_are_written_keep_their_base_and_add_nothing(tmp_path: Path) -> None:
    def halves(x: Tensor) -> Tensor:
        made = x @ x
        first, second = made.view(2, 128, 256).unbind(0)
        torch._foreach_add_([first, second], 1)
        return made

    x = torch.randn(256, 256)
    out, told = watched(halves, x, folder=tmp_path, reuse_storage=False)
    torch.testing.assert_close(out, halves(x))
    assert [names[0] for names in owned(told.report)] == ["buf0"]
    assert told.report.peak == 256 * 256 * 4


def test_two_reductions_of_products_do_not_wait_for_each_other() -> None:
    """Joined, both products would be alive: 8 GiB instead of 4."""

    def sums(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a @ c).sum(-1) + (b @ c).sum(-1)

    n = 32768
    report = planned(sums, (n, 16), (n, 16), (16, n))
    assert any("more bytes alive at once" in reason for *_, reason in report.refusals)
    assert report.peak is not None
    assert report.peak < 2 * n * n * 4
    assert report.peak <= n * n * 4 + 3 * n * 4


def test_what_many_readers_share_is_not_held_for_all_of_them() -> None:
    """Products that are added up one after the other: three are alive at a time, whatever is fused."""

    def added(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        total = torch.zeros(128, 128)
        for _ in range(4):
            total = total + (x @ y + z)
        return total

    report = planned(added, (128, 128), (128, 128), (128, 128))
    assert report.peak is not None
    assert report.peak <= 5 * 128 * 128 * 4


def test_a_row_needs_one_column_at_a_time() -> None:
    """As many products as there are weights, each summed at once."""

    def wide(x: Tensor, *weights: Tensor) -> list[Tensor]:
        return [(x @ w).sum(1) for w in weights]

    n = 4096
    report = planned(wide, (n, n), *[(n, n)] * 16)
    assert report.peak is not None
    assert report.peak <= n * n * 4 + 16 * n * 4
