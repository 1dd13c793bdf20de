"""Eager with its results moved as far as its own error: the measure of programs that sit on an edge."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pytest_plugin.noise import RUNS, Leaves, explains, noisy_runs
from pytest_plugin.programs import Input, Node, Program

EQUAL = "tensor((1,), torch.float32, 'a').expand(50)"


def run(program: Program, call: Any) -> Leaves:
    return {f"output {n}": out for n, out in enumerate(call(*program.arguments()))}


def moved(text: str, given: str = EQUAL) -> list[torch.Tensor]:
    line = Node("t0", text, "arithmetic", rounds=True)
    return [found["output 0"] for found in noisy_runs(Program((Input("x0", given),), (line,), ("t0",)), run)]


def test_each_line_moves_by_a_unit() -> None:
    runs, (x,) = moved("x0 * 3.1"), Program((Input("x0", EQUAL),), (), ()).arguments()
    far = torch.stack([(found - x * 3.1).abs() for found in runs]).amax()
    assert len(runs) == RUNS and 0 < far <= (x * 3.1).abs().max() * 2.0**-22


def test_equal_values_are_moved_alike_in_every_other_run() -> None:
    spread = [found.unique().numel() > 1 for found in moved("x0 * 3.1")]
    assert spread == [True, False] * (RUNS // 2)


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_a_line_that_eager_gives_badly_moves_as_far_as_another_that_is_as_good(dtype: str) -> None:
    """Of the rounding to bfloat16 the exact run knows nothing; so it is the error of this line."""
    given = f"tensor((64,), torch.{dtype}, 'a')"
    (x,) = Program((Input("x0", given),), (), ()).arguments()
    runs = moved(f"x0.bfloat16().{dtype}() * 1", given)
    rounded = x.bfloat16().to(x.dtype)
    far = torch.stack([(found - rounded).abs() for found in runs]).amax(0)
    assert bool((far > 1.2 * (rounded - x).abs()).all()) and bool((far <= 2.01 * (rounded - x).abs() + 1e-6).all())


def test_what_no_run_does_is_not_explained() -> None:
    eager, truth = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64)
    runs = [eager + torch.tensor([1e-6, 0.0])]
    assert explains(runs, torch.tensor([1 - 3e-6, 2.0]), eager, truth, truth)
    assert not explains(runs, torch.tensor([1 + 6e-6, 2.0]), eager, truth, truth)
    assert not explains(runs, torch.tensor([1.0, 2 + 3e-6]), eager, truth, truth)
    choices = [torch.tensor([1, 5])]
    whole = torch.tensor([1, 2])
    assert explains(choices, torch.tensor([1, 3]), whole, whole, whole)
    assert not explains(choices, torch.tensor([2, 2]), whole, whole, whole)
    # unless float64 decides it so, or, where float64 does not, eager
    assert explains(choices, torch.tensor([2, 2]), whole, torch.tensor([2, 2]), whole)
    assert explains(choices, whole, whole, torch.tensor([2, 2]), torch.tensor([2, 2]))


def test_the_sign_of_a_nan_is_a_coins() -> None:
    signs = [found.signbit().item() for found in moved("x0.sum() * torch.nan")]
    assert 0 < sum(signs) < RUNS


def test_a_product_is_taken_in_every_order() -> None:
    line, given = Node("t0", "x0.prod(0)", "reductions", rounds=True), Input("x0", "torch.tensor([0.0, 1e30, 1e30])")
    runs = [left["output 0"] for left in noisy_runs(Program((given,), (line,), ("t0",)), run)]
    nan, zero = torch.tensor(math.nan), torch.tensor(0.0)
    assert explains(runs, nan, zero, zero, zero) and not explains([zero], nan, zero, zero, zero)
