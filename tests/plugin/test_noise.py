"""Eager with its results moved as far as its own error: the measure of programs that sit on an edge."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pytest_plugin.random_programs.noise import NOISY_RUNS, Leaves, Noise, explains, noisy_runs
from pytest_plugin.random_programs.programs import Input, Node, Program
from pytest_plugin.random_programs.verdict import judge

EQUAL = "tensor((1,), torch.float32, 'a').expand(50)"


def run(program: Program, call: Any) -> Leaves:
    return {f"output {n}": out for n, out in enumerate(call(*program.arguments()))}


def moved(text: str, given: str = EQUAL) -> list[torch.Tensor]:
    line = Node("t0", text, "arithmetic", rounds=True)
    return [found["output 0"] for found in noisy_runs(Program((Input("x0", given),), (line,), ("t0",)), run)]


def test_each_line_moves_by_a_unit() -> None:
    runs, (x,) = moved("x0 * 3.1"), Program((Input("x0", EQUAL),), (), ()).arguments()
    far = torch.stack([(found - x * 3.1).abs() for found in runs]).amax()
    assert len(runs) == NOISY_RUNS and 0 < far <= (x * 3.1).abs().max() * 2.0**-22


def test_equal_values_are_moved_alike_in_every_other_run() -> None:
    spread = [found.unique().numel() > 1 for found in moved("x0 * 3.1")]
    assert spread == [True, False] * (NOISY_RUNS // 2)


def test_a_write_to_some_of_an_expanded_tensor_moves_what_all_of_it_is() -> None:
    given, grown = Input("x0", "tensor((8,), torch.float32, 'a')"), Node("t0", "x0.exp()", "unary", rounds=True)
    line = Node("t1", "t0.expand(2, *t0.shape)", "views")
    write = Node("t1", "t1[::2].mul_(-1)", "writes", writes=True, rounds=True)
    runs = list(noisy_runs(Program((given,), (grown, line, write), ("t1",)), run))
    assert len(runs) == NOISY_RUNS
    assert all(torch.equal(*found["output 0"]) for found in runs)


def test_what_a_log_softmax_takes_from_a_row_may_be_as_wrong_for_the_largest_as_for_the_others() -> None:
    """The sum of exponentials is 1 and six times 2e-8, which another order may round to 1."""
    given = "torch.tensor([[0.25, 0.0, 0.5625, 0.0, 18.0625, 0.25, 0.5625]])"
    line = Node("t0", "torch.log_softmax(x0, 1)", "statistics", rounds=True)
    lines = (line, Node("t1", "t0 != 0", "comparisons"))
    runs = [found["output 0"] for found in noisy_runs(Program((Input("x0", given),), lines, ("t1",)), run)]
    assert {bool(found[0, 4]) for found in runs} == {True, False}
    assert all(bool(found[0, :4].all()) for found in runs)


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


def test_float64_may_be_off_by_some_units_of_the_largest_element() -> None:
    """A sum that cancels, as near 0 here, is as far off as its terms: eager's fused x + 2 x x has no such error."""
    eager = torch.tensor([1.0, 1e-6], dtype=torch.float64)
    off = torch.tensor([0.0, 5e-17], dtype=torch.float64)
    assert explains([eager], eager + off, eager, eager, eager)
    assert not explains([eager], eager + 100 * off, eager, eager, eager)
    small = eager.float()
    assert not explains([small], small + 100_000 * off.float(), small, small.double(), small.double())


def test_the_sign_of_a_nan_is_a_coins() -> None:
    signs = [found.signbit().item() for found in moved("x0.sum() * torch.nan")]
    assert 0 < sum(signs) < NOISY_RUNS


def test_a_product_is_taken_in_every_order() -> None:
    line, given = Node("t0", "x0.prod(0)", "reductions", rounds=True), Input("x0", "torch.tensor([0.0, 1e30, 1e30])")
    runs = [left["output 0"] for left in noisy_runs(Program((given,), (line,), ("t0",)), run)]
    nan, zero = torch.tensor(math.nan), torch.tensor(0.0)
    assert explains(runs, nan, zero, zero, zero) and not explains([zero], nan, zero, zero, zero)


def test_what_may_have_either_sign_may_be_zero() -> None:
    """The mean of a layer norm is nothing but rounding; without that it is 0."""
    lines = (
        Node("t0", "F.layer_norm(x0, (16,))", "statistics", rounds=True),
        Node("t1", "t0.mean(1, dtype=torch.float32)", "reductions", rounds=True),
        Node("t2", "t1.bool()", "casts"),
        Node("t3", "x0.abs().mean(1) == 0", "comparison"),
    )
    given = Input("x0", "tensor((2, 16), torch.bfloat16, 'c')")
    runs = list(noisy_runs(Program((given,), lines, ("t2", "t3")), run))
    assert {truth for found in runs for truth in found["output 0"].tolist()} == {True, False}
    assert not any(bool(found["output 1"].any()) for found in runs)


class Tanh(torch.autograd.Function):
    """Its gradient without the cancellation in 1 - tanh(x)**2; `off` is what it is wrong by."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, off: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.off = off
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[0] / x.cosh().square() * ctx.off, None


@pytest.mark.parametrize(("off", "word"), [(1.0, "unstable"), (1 + 1e-6, "wrong")])
def test_gradients_are_moved_by_what_the_forward_rounds(off: float, word: str) -> None:
    line = Node("t0", "torch.tanh(x0) * 1.5", "functions", rounds=True)
    given = Input("x0", "tensor((8,), torch.float64, 'a').abs() + 5")
    drawn = Program((given,), (line,), ("t0",), differentiable=True)
    assert judge(drawn, lambda fn: lambda x: (Tanh.apply(x, off) * 1.5,), reference=lambda fn: fn).word == word


def test_what_an_operator_only_copies_is_not_moved() -> None:
    x = torch.randn(9, 5, dtype=torch.float64)

    def copied() -> list[torch.Tensor]:
        return [x.clone(), -x, x.t().flip(0), x.relu(), torch.cat([x, x]), x.amax(1), x.gather(0, x.argsort(0))]

    def rounded() -> list[torch.Tensor]:
        return [x + 1, x.sum(0), x.exp(), x.float()]

    with Noise(torch.Generator().manual_seed(0), alike=False).of_operators():
        found = copied(), rounded()
    assert all(map(torch.equal, found[0], copied())) and not any(map(torch.equal, found[1], rounded()))
