"""Sums without rounding errors, and the verdicts that hang on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch

from pytest_plugin.oracle.exact_sums import exact_sums
from pytest_plugin.random_programs.programs import Input, Node, Program
from pytest_plugin.random_programs.verdict import judge

# what is left of the large ones is 3
LEFT = torch.tensor([1e16, 1.0, -1e16, 1.0, 1e17, 1.0, -1e17], dtype=torch.float64)


def batch_mean(x: torch.Tensor) -> torch.Tensor:
    """The running mean of a batch norm that forgets all before."""
    mean, var = torch.zeros_like(x[:1]), torch.ones_like(x[:1])
    torch.nn.functional.batch_norm(x[:, None], mean, var, training=True, momentum=1.0)
    return mean


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(),
        lambda x: torch.stack([x, x]).sum(-1)[1],
        lambda x: torch.stack([x, x], 1).sum(0, keepdim=True)[0, 1],
        lambda x: x.mean() * 7,
        lambda x: x.cumsum(0)[-1],
        lambda x: torch.stack([x, x], 1).cumsum(0)[-1, 1],
        lambda x: x @ torch.ones_like(x),
        lambda x: (x[None] @ torch.ones_like(x)[:, None])[0, 0],
        lambda x: torch.addmm(torch.zeros_like(x[:1]), x[None], torch.ones_like(x)[:, None])[0, 0],
        lambda x: x.clone().requires_grad_().sum(),
        lambda x: batch_mean(x) * 7,
        lambda x: torch.native_layer_norm(x, (7,), None, None, 0.0)[1] * 7,
    ],
)
def test_small_terms_stay(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with exact_sums():
        assert fn(LEFT).item() == pytest.approx(3, rel=1e-15)
    assert LEFT.sum().item() == 1  # the additions' own rounding


def test_products_are_exact_too() -> None:
    x = torch.tensor([[0.1, -1.0]], dtype=torch.float64)
    with exact_sums():
        found = x @ torch.tensor([[0.1], [0.1 * 0.1]], dtype=torch.float64)
    assert found.item() == float(Fraction(0.1) ** 2 - Fraction(0.1 * 0.1)) != 0


def test_sums_of_exponentials_are_exact_too() -> None:
    zeros = torch.zeros(2, 9000, dtype=torch.float64)
    truth = torch.arange(1.0, 9001.0, dtype=torch.float64).log()
    with exact_sums():
        assert torch.equal(torch.logcumsumexp(zeros, 1)[1], truth)
    assert not torch.allclose(torch.logcumsumexp(zeros, 1)[1], truth, rtol=1e-15, atol=0)


def test_the_rest_is_as_it_was() -> None:
    x = torch.tensor([[1.0, math.inf], [2.0, math.nan]], dtype=torch.float64)
    strides = x.t().cumsum(0).stride()
    empty = torch.zeros(0, 3, dtype=torch.float64)
    with exact_sums():
        assert x.sum(0).isnan().tolist() == [False, True] and x.sum(1)[0] == math.inf
        assert empty.sum(0).tolist() == [0.0] * 3 and empty.t().sum(0).shape == (0,)
        assert x.float().sum(0)[0] == 3 and x.bool().sum().item() == 4
        assert x.t().cumsum(0).stride() == strides


def test_a_result_nearer_to_the_truth_than_eager_is_right() -> None:
    """Eager adds the terms of a column of softmax in one chain; one that adds them better is far from it."""
    given = Input("x0", "tensor((5000, 2), torch.float64, 'a')")
    drawn = Program((given,), (Node("t0", "torch.softmax(x0, 0)", "statistics", rounds=True),), ("t0",))

    def better(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with exact_sums():
            return (torch.softmax(x, 0),)

    (x,) = drawn.arguments()
    assert not torch.allclose(better(x)[0], torch.softmax(x, 0), rtol=8 * 2**-52, atol=0)
    assert judge(drawn, lambda fn: better).word == "right"
    assert judge(drawn, lambda fn: lambda x: (better(x)[0] * (1 + 1e-13),)).word == "wrong"
