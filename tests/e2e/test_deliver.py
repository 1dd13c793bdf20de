"""Products that the user copies somewhere are written there, and nowhere else than in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from minductor.driver import Compiled, Compiler

Function = Callable[[Tensor, Tensor, Tensor], object]


def into_a_window(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    x[1:5].copy_(a @ b)
    return x.sum()


def joined_columns(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a @ b, b.t() @ a.t()], 1)


def stacked(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([a @ b, b.t() @ a.t()], 1)


def batches(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    made = torch.zeros(2, 6, 4)
    made[:, 1:5] = torch.bmm(torch.stack([a, a]), torch.stack([b, b]))
    return made


def one_row(x: Tensor, a: Tensor, b: Tensor) -> None:
    x[1:2].copy_(a[:1] @ b)


def added(x: Tensor, a: Tensor, b: Tensor) -> None:
    x[4:].addmm_(a, b, beta=2, alpha=3)


def of_itself(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    x[:4].copy_(x[:4] @ x[:4])
    return x * 1


def added_to_a_factor(x: Tensor, a: Tensor, b: Tensor) -> None:
    x[:4].addmm_(x[:4], x[4:])


def turned(x: Tensor, a: Tensor, b: Tensor) -> None:
    x[:4].t().copy_(a @ b)


def operand_changes(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y = a @ b
    a.add_(1)
    x[:4].copy_(y)
    return a @ b


def also_read(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y = a @ b
    x[:4].copy_(y)
    return y


def old_value_is_read(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y, old = a @ b, x * 2
    x[:4].copy_(y)
    return old


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (into_a_window, 1),
        (joined_columns, 0),
        (stacked, 0),
        (batches, 2),
        (one_row, 0),
        (added, 0),
        (of_itself, 2),
        (added_to_a_factor, 1),
        (turned, 1),
        (operand_changes, 1),
        (also_read, 1),
        (old_value_is_read, 1),
    ],
)
def test_a_product_is_written_where_it_is_wanted(function: Function, kernels: int, dynamic: bool = False) -> None:
    seen: list[Compiled] = []
    options = {"verify_memory": "assert", "verify": True}
    compiled = torch.compile(function, backend=Compiler(observer=seen.append), options=options, dynamic=dynamic)
    theirs = torch.randn(8, 4), torch.randn(4, 3), torch.randn(3, 4)
    ours = tuple(x.clone() for x in theirs)
    torch.testing.assert_close(compiled(*ours), function(*theirs))
    torch.testing.assert_close(ours, theirs)
    assert seen[0].report.kernels == kernels


def test_so_it_is_with_sizes_that_vary() -> None:
    test_a_product_is_written_where_it_is_wanted(joined_columns, 0, dynamic=True)
    test_a_product_is_written_where_it_is_wanted(added, 0, dynamic=True)
