"""Walks whose blocks are loaded ahead compute what others compute: sums of columns, alone and beside rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_plugin.oracle.compiled import Compile

pytestmark = pytest.mark.devices("cuda", "interpret", "compile:sm_80")
BESIDE = [f"rows_beside_columns{values}_pipelined" for values in (8, 16, 32)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("rows", [161, 640])
def test_sums_of_columns(compiled: Compile, device: str, dtype: torch.dtype, rows: int) -> None:
    x = torch.randn(rows, 100, device=device).mul(9).to(dtype)
    run = compiled(lambda x: (x * 2).sum(0), x, options={"variant": "columns64_pipelined"})
    assert "num_stages=4" in run.kernels[0]


@pytest.mark.parametrize("variant", BESIDE)
@pytest.mark.parametrize("length", [48, 129])
def test_rows_beside_columns(compiled: Compile, device: str, variant: str, length: int) -> None:
    def fn(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor, m: torch.Tensor, r: torch.Tensor) -> Any:
        return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], m, r, w, w, [True, True, True])

    # of few bits, since eight values a thread add up columns one row after the other
    x, g = (torch.randint(-8, 9, (101, length), device=device).float() for _ in range(2))
    mean, rstd = torch.randint(-2, 3, (101, 1), device=device).float(), torch.full((101, 1), 0.25, device=device)
    given = (x, g, torch.randn(length, device=device), mean, rstd)
    run = compiled(fn, *given, options={"variant": variant})
    assert any("num_stages=3" in text for text in run.kernels)


@pytest.mark.parametrize("variant", ["online16", "online32"])
@pytest.mark.parametrize("length", [16_385, 32_768])
def test_mean_and_variance_in_one_walk(compiled: Compile, device: str, variant: str, length: int) -> None:
    x = torch.randn(3, length, device=device) + 10
    run = compiled(lambda x: torch.layer_norm(x, x.shape[1:]), x, options={"variant": variant})
    assert any("welford" in text for text in run.kernels)


def test_mean_and_variance_of_rows_that_the_call_counts(compiled: Compile, device: str) -> None:
    x = torch.randn(3, 20, device=device)
    run = compiled(lambda x: torch.var_mean(x, 1, correction=0), x, options={"variant": "online"}, dynamic=True)
    assert any("welford" in text for text in run.kernels)


@pytest.mark.parametrize("length", [0, 20])
def test_mean_and_variance_of_rows_that_may_be_empty(compiled: Compile, device: str, length: int) -> None:
    def fn(x: torch.Tensor, size: torch.Tensor) -> Any:
        length = int(size.item())
        torch._check(length >= 0)
        torch._check(length <= x.shape[1])
        return torch.var_mean(x.narrow(1, 0, length), 1, correction=0)  # of no elements both are NaN

    x, size = torch.randn(3, 24, device=device), torch.tensor(length)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled(fn, x, size, options={"variant": "online"})
