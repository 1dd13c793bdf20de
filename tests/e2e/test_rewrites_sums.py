"""Sums that autograd writes for values that are read many times: recurrent nets, parts of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytest_plugin.oracle.compiled import Compile

pytestmark = pytest.mark.devices("cpu")
PRODUCTS, PARTS = "join_added_products", "join_added_parts"


def reasons(run: Any, row: str) -> list[str]:
    """For each sum that was tried, "" or the reason why it stayed."""
    return [why for rewrite, _, _, why in run.report.rewrites if rewrite == row]


class Recurrent(nn.Module):
    """A net that reads the steps of a sequence one by one."""

    def __init__(self, width: int, *, has_bias: bool = True) -> None:
        super().__init__()
        self.inputs, self.hidden = nn.Linear(width, width), nn.Linear(width, width, bias=has_bias)

    def forward(self, x: Tensor) -> Tensor:
        gates = self.inputs(x)
        state = x.new_zeros(x.shape[0], x.shape[2])
        for step in range(x.shape[1]):
            state = torch.tanh(gates[:, step] + self.hidden(state))
        return state


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_recurrent_net(compiled: Compile, wrapper: str, has_bias: bool) -> None:
    model = Recurrent(64, has_bias=has_bias)
    run = compiled(model, torch.randn(4, 9, 64), options={"wrapper": wrapper, "verify": True}, grad=True)
    assert reasons(run, PRODUCTS) == [""] and "" in reasons(run, PARTS)
    assert run.wrappers[1].count("mm(") < 9 + 4  # of each step one product remains


def test_sizes_that_change(compiled: Compile) -> None:
    run = compiled(Recurrent(128), torch.randn(4, 9, 128), dynamic=True, grad=True)
    assert reasons(run, PRODUCTS) == [""] and "" in reasons(run, PARTS)


# --- products

# Whole numbers: their sums are the same in each order, so a result that differs is wrong.
# no zeros: of a sum of zeros, a joined product has another sign
MATRICES = [(torch.randint(-4, 4, (64, 3)) * 2 + 1).float() for _ in range(5)]


def added(*x: Tensor) -> Tensor:
    """The products of pairs of matrices, added up."""
    return reduce(torch.add, [a @ b.t() for a, b in pairwise(x)])


ADDED: dict[str, Callable[..., Tensor]] = {
    "in a row": added,
    "as a tree": lambda a, b, c, d, e: (a @ b.t() + b @ c.t()) + (c @ d.t() + d @ e.t()),
    "transposed": lambda a, b, c, d, e: (a @ b.t()).t() + (b @ c.t()).t() + (d @ e.t()).t(),
    "some transposed": lambda a, b, c, d, e: (a @ b.t()).t() + b @ c.t() + (d @ e.t()).t() + (c @ e.t()).t(),
    "with other terms": lambda a, b, c, d, e: a.sum() + a @ b.t() + b @ c.t() + a[:, :1] + c @ d.t() + e[0, 0],
    "factors as they lie": lambda a, b, c, d, e: a @ b[:3, :3] + c @ d[:3, :3] + d @ e[:3, :3] + a,
    "columns": lambda a, b, c, d, e: a[:, :1] @ b[:, :1].t() + c[:, :2] @ d[:, 1:].t() + e[:, :1] @ a[:, 1:2].t(),
    "read beside the sum": lambda a, b, c, d, e: torch.cat(((y := a @ b.t()) + b @ c.t() + c @ d.t() + d @ e.t(), y)),
}


@pytest.mark.parametrize("name", [name for name in ADDED if name != "factors as they lie"])
def test_added_products(compiled: Compile, name: str) -> None:
    run = compiled(ADDED[name], *MATRICES, grad=False)
    assert reasons(run, PRODUCTS) == [""]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64], ids=str)
def test_dtypes(compiled: Compile, dtype: torch.dtype) -> None:
    assert reasons(compiled(added, *[x.to(dtype) for x in MATRICES], grad=False), PRODUCTS) == [""]


def test_nan_and_infinity(compiled: Compile) -> None:
    x = [each.clone() for each in MATRICES]
    x[1][0, 0], x[2][1, 2] = torch.nan, torch.inf
    assert reasons(compiled(added, *x, grad=False), PRODUCTS) == [""]


def test_a_sum_that_is_read_twice_is_joined_whole(compiled: Compile) -> None:
    run = compiled(lambda *x: ((y := added(*x)) * 2, y + x[0].sum()), *MATRICES, grad=False)
    assert reasons(run, PRODUCTS) == [""]
    assert run.wrappers[0].count("mm(") == 1


def test_columns_that_are_permuted_as_they_are(compiled: Compile) -> None:
    """Sizes and strides of n x 1 do not tell a transposed view from one that is not."""

    def fn(*x: Tensor) -> Tensor:
        return added(*(torch.permute(each[:, :1].contiguous(), (0, 1)) for each in x))

    assert reasons(compiled(fn, *MATRICES, grad=False), PRODUCTS) == [""]


def test_a_value_that_is_doubled_again_and_again(compiled: Compile) -> None:
    def fn(x: Tensor) -> Tensor:
        for _ in range(40):
            x = x + x
        return x

    compiled(lambda x, y: fn(x @ y.t() + y @ x.t()), *MATRICES[:2], grad=False)


def test_batches_of_products_are_not_joined(compiled: Compile) -> None:
    x = [each.unflatten(0, (2, 32)) for each in MATRICES]
    run = compiled(lambda a, b, c, d, e: a @ b.mT + b @ c.mT + c @ d.mT + d @ e.mT, *x, grad=False)
    assert reasons(run, PRODUCTS) == []


@pytest.mark.must_fail_under("added-large-factors")
def test_factors_as_large_as_the_results(compiled: Compile) -> None:
    run = compiled(ADDED["factors as they lie"], *MATRICES, grad=False)
    (why,) = reasons(run, PRODUCTS)
    assert why.startswith("joining moves ")


@pytest.mark.must_fail_under("added-scaled")
def test_a_scaled_term_is_one_of_the_others(compiled: Compile) -> None:
    def fn(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.add(torch.add(a @ b.t(), b @ c.t(), alpha=2), c @ a.t()) + a @ a.t() + b @ b.t() + c @ c.t()

    run = compiled(fn, *MATRICES[:3], grad=False)
    assert reasons(run, PRODUCTS) == [""]


# --- parts

Parts = Callable[[Tensor], Sequence[Tensor]]
READ: dict[str, Parts] = {
    "steps": lambda x: [x[:, n] for n in range(6)],
    "from behind": lambda x: [x[:, -n] for n in range(1, 7)],
    "some steps": lambda x: [x[:, n] for n in (1, 2, 4, 5)],
    "slices": lambda x: [x[:, :1], x[:, 1:3], x[:, 3:4], x[:, -2:]],
    "slices with gaps": lambda x: [x[:, 1:2], x[:, 2:3], x[:, 4:5], x[:, 5:]],
    "steps and slices": lambda x: [x[:, 0], x[:, 1:3], x[:, 3], x[:, 4:]],
    "of the last dimension": lambda x: [x[..., n] for n in range(5)],
    "and all of it": lambda x: [*(x[:, n] for n in range(6)), x],
    "along two dimensions": lambda x: [*(x[:, n] for n in range(5)), x[..., 0], x[..., 2:]],
    "past the end": lambda x: [x[:, 0], x[:, 1], x[:, 2], x[:, 3:99]],
}


def weighted(parts: Parts) -> Callable[[Tensor], Tensor]:
    """A function whose gradient adds up the gradients of parts."""
    return lambda x: torch.cat([(part * n).sin().flatten() for n, part in enumerate(parts(x), 1)])


@pytest.mark.parametrize("name", READ)
def test_parts_that_are_read_one_by_one(compiled: Compile, name: str) -> None:
    run = compiled(weighted(READ[name]), torch.randn(3, 6, 5, requires_grad=True))
    assert "" in reasons(run, PARTS)


def test_a_part_that_is_infinite(compiled: Compile) -> None:
    x = torch.zeros(3, 6, 5)
    x[:, 1:3] = 1
    compiled(lambda x: torch.cat([x[:, n].rsqrt() for n in range(6)]), x.requires_grad_())


STAYING: dict[str, tuple[Parts, str]] = {
    "few": (lambda x: [x[:, :2], x[:, 2:5], x[:, 5]], "3 parts are computed where they are read"),
    "overlap": (lambda x: [x[:, :2], x[:, 1:3], x[:, 3], x[:, 4:]], "share elements"),
    "one step twice": (lambda x: [x[:, 0], x[:, 1], x[:, 2], x[:, 1]], "share elements"),
}
FAULTS = {"few": "added-few-parts", "overlap": "added-parts-that-overlap", "one step twice": "added-parts-that-overlap"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.must_fail_under(FAULTS[name])) for name in STAYING]
)
def test_near_misses(compiled: Compile, name: str) -> None:
    parts, why = STAYING[name]
    run = compiled(weighted(parts), torch.randn(3, 6, 5, requires_grad=True))
    assert any(why in reason for reason in reasons(run, PARTS))


def test_every_other_element_is_no_part(compiled: Compile) -> None:
    run = compiled(weighted(lambda x: [x[:, n::3] for n in range(3)]), torch.randn(3, 6, 5, requires_grad=True))
    assert reasons(run, PARTS) == []
