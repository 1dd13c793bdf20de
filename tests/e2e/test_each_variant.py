"""Reductions, scans and matrix products in each way in which their kernels can be computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile

ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "sum": lambda x: x.exp().sum(-1),
    "greatest": lambda x: x.amax(-1),
    "mean of all": lambda x: x.square().mean(),
    "columns": lambda x: x[:, : x.shape[1] // 1000 * 1000].reshape(-1, 1000).exp().sum(0),
}
LONG = ("layer_norm", "greatest", "mean of all")


def rows(device: Device) -> Tensor:
    return torch.randn(8, 40000) if device.id == "cpu" else torch.randn(8, 3001, device=str(device))


@pytest.mark.each_variant
@pytest.mark.devices("cpu", "interpret", "compile:sm_90", "cuda")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in ROWS])
def test_a_reduction(compiled: Compile, device: Device, name: str) -> None:
    compiled(ROWS[name], rows(device))


@pytest.mark.each_variant
@pytest.mark.devices("interpret", "compile:sm_90", "cuda")
def test_rows_of_symbolic_sizes(compiled: Compile, device: Device) -> None:
    """How many bits indices have is no variant to force."""
    compiled(ROWS["softmax"], rows(device), dynamic=True)


@pytest.mark.each_variant
@pytest.mark.devices("cpu", "compile:sm_90", "cuda")
def test_a_scan(compiled: Compile, device: Device) -> None:
    """In Triton's interpreter, whose launches are dear, no scan is weighed."""
    compiled(lambda x: x.cumsum(-1), torch.randn(400001, device=str(device)))


@pytest.mark.each_variant
@pytest.mark.devices("interpret", "compile:sm_90", "cuda")
def test_a_matrix_product(compiled: Compile, device: Device) -> None:
    a, b = torch.randn(48, 64, device=str(device)), torch.randn(64, 32, device=str(device))
    compiled(lambda a, b: F.gelu(a @ b) + 1, a, b, options={"autotune": True})
