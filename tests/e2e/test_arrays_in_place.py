"""Arrays of small kernels, which g++ up to 14 may misplace on the stack of a function that calls nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_plugin.oracle.compiled import Compile


def gathered(x: Tensor) -> Tensor:
    places = (x.abs() * 3).long() % x.shape[-1]
    return torch.take_along_dim(x, places % x.shape[-1], -1).sum(0)


@pytest.mark.devices("cpu")
@pytest.mark.parametrize("columns", [12, 17, 20, 33, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32], ids=str)
def test_sums_of_columns(compiled: Compile, columns: int, dtype: torch.dtype) -> None:
    """A sum for each column stands in an array; with 20 of float32 it was misplaced, and the process ended."""
    run = compiled(gathered, (torch.randn(3, 4, columns) * 9).to(dtype), grad=False)
    texts = [kernel.text for graph in run.graphs for kernel in graph.kernels if "sum" in kernel.text]
    assert texts and all("md_call_nothing();" in text or "#pragma omp parallel" in text for text in texts)
