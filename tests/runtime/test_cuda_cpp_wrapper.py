"""Wrappers in C++ for GPUs, against a driver of the test's own whose kernels compute on CPU memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from minductor.driver import Compiled
from tests.runtime.fake_gpu import FakeGpu, build_driver


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(build_driver(tmp_path_factory.mktemp("driver")))


def made(
    gpu: FakeGpu,
    folder: Path,
    fn: Callable[..., Any],
    seen: list[Compiled] | None = None,
    *,
    dynamic: bool = False,
    **options: Any,
) -> Any:
    """The function, compiled for the GPU with a wrapper in C++."""
    torch._dynamo.reset()
    compiler = gpu.compiler(folder, (seen if seen is not None else []).append)
    how = {"wrapper": "cpp", **options}
    return torch.compile(fn, backend=partial(compiler, options=how), fullgraph=True, dynamic=dynamic)


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a, b: (a * b).softmax(-1), lambda a, b: a / (b.abs() + 1), (x, y))


def mutated(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(y)
    y[1:3] = 0
    return x * 2


def operators(x: torch.Tensor, y: torch.Tensor) -> Any:
    product = torch.addmm(x.sum(0), x, y.t() @ y)
    parts = torch.split(torch.sort(x)[0], 5, dim=1)
    return product.tanh(), [part * 2 for part in parts], y.topk(3), torch.linalg.qr(y), torch.histc(x)


def of_data(x: torch.Tensor, y: torch.Tensor) -> Any:
    rows = torch.nonzero(x[:, 0] > -9)
    return x[rows[:, 0]] * 2, x * y.sum().item()


def drawn(x: torch.Tensor, y: torch.Tensor) -> Any:
    return F.dropout(x, 0.5), torch.rand_like(y) * 2, torch.randint(0, 9, (3,), device=x.device)


CASES: list[Callable[..., Any]] = [
    lambda x, y: torch.softmax(x, -1) + F.gelu(y),
    lambda x, y: (x.sum(), x[1:3].t(), x, (x + y, y * 2)),
    lambda x, y: (torch.cat([x, y]).view(-1), x.shape[0] * 2, x.new_zeros(x.shape[0] // 3)),
    nested,
    mutated,
    operators,
    of_data,
    drawn,
]


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_gives_what_eager_gives(gpu: FakeGpu, tmp_path: Path, fn: Callable[..., Any]) -> None:
    seen: list[Compiled] = []
    run = made(gpu, tmp_path, fn, seen, dynamic=True)
    for rows in (6, 9, 20):
        given = torch.randn(rows, 16), torch.randn(rows, 16)
        copies = tuple(tensor.clone() for tensor in given)
        torch.manual_seed(1)
        expected = fn(*copies)
        torch.manual_seed(1)
        with gpu.computing():
            got = run(*given)
        for one, other in zip(tree_leaves((got, given)), tree_leaves((expected, copies)), strict=True):
            torch.testing.assert_close(one, other)
    assert all("wrapper.cpp" in graph.sources for graph in seen) and seen
