"""Running sums, products and extremes along each kind of dimension, their gradients, and what runs beside them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_plugin.oracle.compiled import Compile

SCANS: dict[str, Callable[[Tensor, int], Any]] = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: (1 + x / 16).cumprod(dim),
    "logcumsumexp": lambda x, dim: x.logcumsumexp(dim),
    "cummax": lambda x, dim: x.cummax(dim),
    "cummin": lambda x, dim: x.cummin(dim),
}


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.counts(externs=0)
def test_every_scan_along_every_dimension(compiled: Compile, device: str, name: str) -> None:
    scan = SCANS[name]
    compiled(lambda x: [scan(x, dim) for dim in (0, 1, -1)], torch.randn(5, 33, 70, device=device))


DTYPES = (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.counts(externs=0)
def test_dtypes(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    x = (torch.randn(6, 50, device=device) * 3).to(dtype)
    compiled(lambda x: (x.cumsum(1), x.cumsum(0, dtype=torch.int16), x.cummax(1), x.cummin(0)), x)


@pytest.mark.counts(externs=0)
def test_a_nan_beats_every_number_and_equals_give_the_last(compiled: Compile, device: str) -> None:
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([[1, nan, inf, -inf, 2, nan, -inf], [-inf, -inf, 2, inf, inf, -inf, 0]], device=device)
    compiled(lambda x: (x.cumsum(1), x.cummax(1), x.cummin(1), x.logcumsumexp(1)), x)


def test_sizes_without_a_loop(compiled: Compile, device: str) -> None:
    compiled(lambda x: (x.cumsum(0), x.cumprod(-1), x.logcumsumexp(0), x.cummax(0)), torch.tensor(-0.0, device=device))
    compiled(lambda x: (x.cumsum(0), x.cumprod(0), x.cummin(0)), torch.tensor([-0.0], device=device))
    compiled(lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(1)), torch.zeros(3, 0, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_what_is_around_a_scan_runs_in_vectors(compiled: Compile, device: str) -> None:
    compiled(lambda x: (x.exp().cumsum(1) / 8).tanh(), torch.randn(64, 1000, device=device))


@pytest.mark.counts(kernels=1, externs=0)
def test_scans_and_reductions_of_a_row_share_its_loops(compiled: Compile, device: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        made = torch.softmax(x, -1).cumsum(-1)
        return made, x.cummax(-1).values, made / made.amax(-1, keepdim=True)

    compiled(fn, torch.randn(48, 700, device=device))


@pytest.mark.counts(kernels=1, externs=0)
def test_flips_around_a_scan_cost_nothing(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.flip(1).cumsum(1).flip(1) * 2, torch.randn(40, 129, device=device))


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [pytest.param(0, marks=pytest.mark.long), 1])
def test_gradients(compiled: Compile, device: str, name: str, dim: int) -> None:
    scan = SCANS[name]

    def fn(x: Tensor) -> Tensor:
        made = scan(x.sin(), dim)
        return made if isinstance(made, Tensor) else made.values

    compiled(fn, torch.randn(9, 40, device=device), grad=True)


@pytest.mark.counts(externs=0)
def test_composites(compiled: Compile, device: str) -> None:
    x = torch.randn(12, 50, device=device)
    compiled(lambda x: (torch.trapezoid(x), torch.cumulative_trapezoid(x, dx=0.5), x.diff(n=2), x.diff(dim=0)), x)


def test_a_scan_of_any_length_that_two_passes_over_a_row_make(compiled: Compile, device: str) -> None:
    """Each keeps a block of it, and none the row."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(F.layer_norm(x, x.shape), torch.logcumsumexp(x, 0)).square().sum()

    compiled(fn, torch.randn(1000, device=device), dynamic=True)


@pytest.mark.counts(externs=0)
def test_blocks_of_a_long_row_run_in_parallel(compiled: Compile, device: str) -> None:
    x = torch.randn(2, 1 << 16, device=device)
    compiled(lambda x: (x.sin().cumsum(1) * 2, (x * 4).long().cumsum(1), x.logcumsumexp(1)), x)


def test_a_long_product_that_vanishes_stays_nothing(compiled: Compile, device: str) -> None:
    x = torch.full((1 << 16,), 4.0, device=device)
    x[: 1 << 15] = 0.125
    compiled(lambda x: x.cumprod(0), x)


@pytest.mark.counts(kernels=1, externs=0)
def test_places_of_a_scan_are_kept_for_a_loop_that_repeats_them(compiled: Compile, device: str) -> None:
    """Both results of a scan have arrays of their own, or neither has."""

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        made = x.sin().expand(2, *x.shape).neg().exp()
        return made, made.cummin(1)[1], *(made + 1).cummax(1)

    compiled(fn, torch.randn(4, 8, device=device).t())


@pytest.mark.counts(kernels=1, externs=0)
def test_many_operations_stand_before_and_behind_a_scan_in_their_order(compiled: Compile, device: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        square = x.square()
        third = square.neg() / 3
        curve = torch.nn.functional.hardswish(third)
        picked = torch.take_along_dim(third, (square * 3).long() % 7, 1)
        mixed = curve.cumsum(1) + picked * 2 * torch.lerp(square, picked, 0.25)
        return mixed, curve, square / 3, picked, square.neg().mean(1, keepdim=True)

    compiled(fn, torch.randn(2, 1, device=device).expand(2, 7))


@pytest.mark.parametrize("behind", ["a deviation", "rows of a softmax"])
def test_places_of_a_scan_are_read_where_its_values_are_kept_in_a_row(
    compiled: Compile, device: str, behind: str
) -> None:
    join = {"a deviation": lambda v: v.var(1), "rows of a softmax": lambda v: v.softmax(1)}[behind]

    def fn(x: Tensor) -> tuple[Tensor, ...]:
        made, places = x.cummax(1)
        return join(made), places, (places * 2).sum(1)

    compiled(fn, torch.randn(2, 8, device=device))
