"""Ranges: their bounds, and how even they are."""

from __future__ import annotations

import torch

from minductor.runtime.reference import run_program
from tests.frontend.tracing import lowered, randn


def test_integer_ranges_cut_their_bounds() -> None:
    x = randn(3)
    lowered(lambda x: (torch.arange(0.1, -7.9, -2.6, dtype=torch.int64), torch.arange(4.7, dtype=torch.int32), x), x)


def test_linspace_is_even_near_zero() -> None:
    exact = torch.linspace(-2, 1, 50, dtype=torch.float64)
    (program,) = lowered(lambda x: torch.linspace(-2, 1, 50) * x, torch.tensor(1.0)).programs
    assert (run_program(program, [torch.tensor(1.0)])[0].double() - exact).abs().max() < 1e-7
