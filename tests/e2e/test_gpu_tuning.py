"""Sums into memory that holds something, where a GPU's launches are chosen by measure: each result counts one run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_plugin.adapters import FreshStore
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile

MODES = {"max-autotune-no-cudagraphs": {"autotune": True}, "max-autotune": {"autotune": True, "cudagraphs": True}}
ROWS, COLUMNS, PLACES = 7, 24, 60


def embedding(table: Tensor, ids: Tensor, by: Tensor) -> Tensor:
    return F.embedding(ids, table) * by


SUMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "index_add_": lambda table, ids, by: table.index_add_(0, ids, by) * 1.0,
    "index_put_": lambda table, ids, by: table.index_put_((ids,), by, accumulate=True) * 1.0,
    "scatter_add_": lambda table, ids, by: table.scatter_add_(0, ids[:, None].expand(by.shape), by) * 1.0,
    "scatter_reduce_": lambda table, ids, by: (
        table.long().scatter_reduce_(0, ids[:, None].expand(by.shape), (by * 9).long(), "amax") * 1.0
    ),
}
GRADIENTS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "embedding": embedding,
    "gather": lambda table, ids, by: table.gather(0, ids[:, None].expand(by.shape)) * by,
    "index_select": lambda table, ids, by: table.index_select(0, ids) * by,
}


def tensors(device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Small integers as floats, and few of them for each row: the order in which a GPU adds them hardly matters."""
    table, by = (torch.randint(-8, 9, (rows, COLUMNS)).float() for rows in (ROWS, PLACES))
    return tuple(x.to(device) for x in (table, torch.arange(PLACES) * 5 % ROWS, by))


@pytest.mark.filterwarnings("ignore:.*no effect on")
@pytest.mark.devices("interpret", "cuda")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_counts_once(compiled: Compile, device: Device, name: str, mode: str) -> None:
    compiled(SUMS[name], *tensors(device), options=MODES[mode])


@pytest.mark.filterwarnings("ignore:.*no effect on")
@pytest.mark.devices("interpret", "cuda")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_counts_once(compiled: Compile, device: Device, name: str, mode: str) -> None:
    compiled(GRADIENTS[name], *tensors(device), grad=True, options=MODES[mode])


@pytest.mark.devices("cuda")
def test_tuning_hardly_raises_the_peak(device: Device, fresh_store: FreshStore) -> None:
    """256 MiB are added to: their copies are kept by the host."""
    table, ids = torch.zeros(1 << 16, 1 << 10, device=device), torch.arange(1 << 10, device=device) * 3
    by = torch.ones(1 << 10, 1 << 10, device=device)
    run = torch.compile(
        lambda table, ids, by: table.index_add_(0, ids, by), backend="minductor", mode="max-autotune-no-cudagraphs"
    )
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(table, ids, by)
    assert torch.cuda.max_memory_allocated() - before < before // 10
    assert torch.equal(table[ids], by) and table.sum() == by.sum()


@pytest.mark.devices("cuda")
def test_each_size_is_measured(device: Device, fresh_store: FreshStore) -> None:
    run = torch.compile(
        lambda x: torch.softmax(x * 2, -1), backend="minductor", dynamic=True, mode="max-autotune-no-cudagraphs"
    )
    for rows in (3, 5, 2000, 2001, 4):
        x = torch.randn(rows, 300, device=device)
        torch.testing.assert_close(run(x), torch.softmax(x * 2, -1))
