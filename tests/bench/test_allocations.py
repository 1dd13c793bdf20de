"""The peak of a Report is what torch's allocator sees, to the byte, but for what an operator takes for one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from minductor.bench import allocations
from minductor.bench.allocations import Event
from minductor.bench.cases import Program
from minductor.ir.report.report import Report
from minductor.runtime.store.store import Store


def chain(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(torch.tanh(x @ w) @ w)


def shrinking(x: Tensor, w: Tensor) -> Tensor:
    return sum(((x * n) @ w).sum(1) for n in range(3))


def with_results_of_operators(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    values, places = torch.topk(x @ w, 3)
    return values + 1, places, torch.linalg.qr(x)[1].sum(0)


def mutating(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    y[:8].add_(1)
    return torch.cat([y, x.flip(0)]) @ w


def attention(x: Tensor, w: Tensor) -> Tensor:
    q = (x @ w).view(1, 2, 16, 16)
    return F.scaled_dot_product_attention(q, q, x.view(1, 2, 16, 16)).sum(0)


@pytest.mark.parametrize("options", [{}, {"reuse_storage": False, "inplace": False}], ids=["shared", "apart"])
@pytest.mark.parametrize("fn", [chain, shrinking, with_results_of_operators, mutating, attention])
def test_what_is_planned_is_measured(fn: Callable[..., object], options: dict[str, bool], tmp_path: Path) -> None:
    trains = fn in (chain, attention)
    torch.manual_seed(0)
    x, w = torch.randn(32, 16), torch.randn(16, 16)
    if fn is not attention:
        x, w = torch.randn(16, 16), torch.randn(16, 16)
    leaves = (w.requires_grad_(),) if trains else ()
    program = Program(fn, (x, w), leaves, (), torch.ones_like(fn(x, w)) if trains else None)
    graphs = allocations.allocations(program, store=Store(tmp_path), options={"verify": True, **options})
    assert [graph.role for graph in graphs] == (["forward", "backward"] if trains else ["inference"])
    assert [graph.planned for graph in graphs] == [graph.measured for graph in graphs]
    assert all(graph.measured > 0 for graph in graphs)


def branches(x: Tensor, w: Tensor) -> Tensor:
    def wide(y: Tensor, v: Tensor) -> Tensor:
        return torch.tanh(torch.cat([y, y, y]) @ v)[:16] @ v

    return torch.cond(x.sum() > 1e6, lambda y, v: y + v, wide, (x @ w, w)) + x


def rounds(x: Tensor, w: Tensor) -> Tensor:
    def step(n: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return n + 1, torch.tanh(torch.cat([y @ w, y @ w]) @ w)[:16].clone()

    return while_loop(lambda n, _: n < 3, step, (torch.zeros((), dtype=torch.int64), x @ w))[1] @ w


def rows(x: Tensor, w: Tensor) -> Tensor:
    def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        made = (total @ w) + row
        return made, torch.outer(made, row)

    return scan(step, x[0] * 1, x * 2)[1].sum(0)


@pytest.mark.parametrize("fn", [branches, rounds, rows])
def test_what_a_region_holds_counts(fn: Callable[..., Tensor], tmp_path: Path) -> None:
    torch.manual_seed(0)
    program = Program(fn, (torch.randn(16, 16), torch.randn(16, 16)), (), (), None)
    (graph,) = allocations.allocations(program, store=Store(tmp_path), options={"verify": True})
    assert graph.planned == graph.measured


def test_a_wrong_estimate_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Report.from_json
    monkeypatch.setattr(Report, "from_json", lambda data: replace(read(data), peak=read(data).peak + 4))
    (graph,) = allocations.allocations(Program(lambda x: x + 1, (torch.ones(8),), (), (), None), store=Store(tmp_path))
    assert (graph.planned, graph.measured) == (36, 32)


def test_only_what_one_call_took_and_gave_back_is_set_aside() -> None:
    events = [
        Event(1, 8, None, ""),
        Event(2, 100, 3, "aten::mm"),  # for the time of the call
        Event(3, 16, 3, "aten::mm"),  # its result
        Event(4, 50, 3, "aten::mm"),
        Event(4, -50, 3, "aten::mm"),
        Event(2, -100, 3, "aten::mm"),
        Event(1, -8, None, ""),
        Event(9, -64, None, ""),  # left to us
        Event(7, -7, None, ""),  # lent
        Event(3, -16, 5, "aten::sum"),
    ]
    assert allocations._peak(events, {9: 64}) == (64 + 8 + 16, (("aten::mm", 150, 1),))
