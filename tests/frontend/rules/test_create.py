"""Rules of ranges and constants against eager: truncated bounds, accuracy, numbers that do not fit the dtype."""

from __future__ import annotations

import pytest
import torch

from minductor.runtime.reference.reference import run_program
from tests.frontend.tracing import lowered, randn


def test_integer_ranges_cut_their_bounds() -> None:
    x = randn(3)
    lowered(lambda x: (torch.arange(0.1, -7.9, -2.6, dtype=torch.int64), torch.arange(4.7, dtype=torch.int32), x), x)


def test_linspace_is_even_near_zero() -> None:
    exact = torch.linspace(-2, 1, 50, dtype=torch.float64)
    (program,) = lowered(lambda x: torch.linspace(-2, 1, 50) * x, torch.tensor(1.0)).programs
    assert (run_program(program, [torch.tensor(1.0)])[0].double() - exact).abs().max() < 1e-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_spaces_between_numbers_and_tensors(dtype: torch.dtype, steps: int) -> None:
    low = torch.tensor(-1)
    for fn in (torch.linspace, torch.logspace):
        assert not lowered(lambda x, fn=fn: fn(x, 2.5, steps, dtype=dtype), low).externs
        assert not lowered(lambda x, fn=fn: fn(2.5, x, steps, dtype=dtype) + fn(0, 1, steps, dtype=dtype), low).externs


@pytest.mark.parametrize(
    ("value", "dtype", "is_call"),
    [
        (2**40, torch.int32, True),
        (300, torch.uint8, True),
        (1e40, torch.float32, True),
        (float("nan"), torch.int32, True),
        (-1, torch.uint8, False),
        (2.5, torch.int32, False),
        (float("inf"), torch.float16, False),
    ],
)
def test_a_number_that_an_element_does_not_hold_is_left_to_eager(
    value: float, dtype: torch.dtype, is_call: bool
) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.full((2,), value, dtype=dtype)

    if not is_call:
        assert not lowered(fn, randn(3)).externs
        return
    with pytest.raises(RuntimeError, match="cannot be converted"):
        torch.compile(fn, backend="minductor")(randn(3))
