"""searchsorted and bucketize against eager: sides, sorters, batches, dtypes, NaN, and rows of every small length."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.tracing import compiled, integers, lowered, randn

NAN, INF = torch.nan, torch.inf
BOUNDARIES = torch.tensor([-1.0, 0.0, 0.0, 0.5, 2.0, INF])
VALUES = torch.cat([randn(40), BOUNDARIES, torch.tensor([NAN, -INF])])


@pytest.mark.parametrize("right", [False, True])
def test_sides(right: bool) -> None:
    def fn(x: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        side = "right" if right else "left"
        return torch.bucketize(x, b, right=right), torch.searchsorted(b, x, side=side, out_int32=True)

    made = lowered(fn, VALUES, BOUNDARIES)
    assert not made.externs
    assert len(made.kernels) == 2


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 8, 100])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.uint8])
def test_lengths_and_dtypes(length: int, dtype: torch.dtype) -> None:
    row = integers(0, 100, length, seed=length).to(dtype).sort().values
    made = lowered(
        lambda x, b: (torch.bucketize(x, b), torch.searchsorted(b, 50.5)), integers(0, 120, 60).to(dtype), row
    )
    assert not made.externs


def test_rows_that_match_and_sorters() -> None:
    rows, x = randn(4, 9), randn(4, 5, seed=1)
    made = lowered(lambda r, s, x: torch.searchsorted(r, x, sorter=s), rows, rows.argsort(1), x)
    assert not made.externs
    assert not lowered(lambda r, x: torch.searchsorted(r, x, right=True), rows.sort(1).values, x).externs


def test_a_row_of_unknown_length_is_a_call() -> None:
    made = compiled(lambda x, b: torch.bucketize(x, b), VALUES, BOUNDARIES, dynamic=True)
    assert made.externs == ["aten.bucketize.Tensor"]
