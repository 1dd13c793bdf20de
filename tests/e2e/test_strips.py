"""Functions that wait for each other, over strips: the bits of the plain recipe, and the values of eager in float64.

Takes the recipes `strips`, `strips_blocks` and `strips_rows`, forced, beside `elements` and `rows`. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Function = Callable[..., Any]
Row = tuple[Function, str, str]  # a function, a plain recipe, and one with strips


def in_turn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Functions of one and of two operands, beside each other and under a mask, and two results."""
    z = torch.tanh(torch.sin(x) + y.exp())
    padded = F.pad(torch.erf(z), (1, -1), value=0.5)
    return torch.where(x > 0, torch.atan2(z, y), y.sigmoid()) * padded, F.softplus(z)


def row_sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = torch.tanh(torch.sin(torch.sigmoid(x))) * y
    return z.sum(-1), z - z.exp().log1p().mean(-1, keepdim=True)


def softmax_of_functions(x: Tensor, y: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(torch.exp(torch.sin(x))) + y, -1)


ROWS: tuple[Row, ...] = ((in_turn, "elements", "strips"), (row_sums, "rows", "strips_rows"))


def compiled(fn: Function, variant: str, *, dynamic: bool = False) -> Function:
    torch._dynamo.reset()
    options = {"variant": variant, "fallback": "error", "verify": True}
    return torch.compile(lambda *args: fn(*args), backend="minductor", dynamic=dynamic, options=options)


def results(found: Any) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def assert_same(plain: Function, over_strips: Function, fn: Function, x: Tensor, y: Tensor) -> None:
    """Both compiled functions have the same bits, and eager's values."""
    exact = results(fn(x.double(), y.double()))
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 4e-2, torch.float16: 5e-3}[x.dtype]
    for one, other, wanted in zip(results(plain(x, y)), results(over_strips(x, y)), exact, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        torch.testing.assert_close(other.double(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def arguments(*size: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(len(size) + size[-1])
    x, y = (torch.randn(size, generator=generator).to(dtype) for _ in range(2))
    return x, y


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(d, marks=() if d in (torch.float32, torch.bfloat16) else pytest.mark.long, id=str(d))
        for d in DTYPES
    ],
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_strips_have_the_bits_of_the_plain_recipe(row: Row, dtype: torch.dtype) -> None:
    """Rows of 1301 elements end in a strip that is no multiple of a vector."""
    fn, plain, recipe = row
    assert_same(compiled(fn, plain), compiled(fn, recipe), fn, *arguments(3, 1301, dtype=dtype))


@pytest.mark.parametrize("length", [257, pytest.param(40_000, marks=pytest.mark.long)])
def test_rows_of_any_length_have_the_bits_of_the_plain_recipe(length: int) -> None:
    for fn in (row_sums, softmax_of_functions):
        assert_same(compiled(fn, "rows"), compiled(fn, "strips_rows"), fn, *arguments(3, length))


def test_blocks_have_strips_inside() -> None:
    assert_same(compiled(in_turn, "blocks"), compiled(in_turn, "strips_blocks"), in_turn, *arguments(2, 9001))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_sizes_that_only_the_call_knows(row: Row) -> None:
    fn, plain, recipe = row
    one, other = compiled(fn, plain, dynamic=True), compiled(fn, recipe, dynamic=True)
    for length in (700, 40, 512, 2, 5000):
        assert_same(one, other, fn, *arguments(3, length))


def test_values_that_are_not_finite() -> None:
    x, y = arguments(3, 600)
    x[:, ::7], x[:, ::11], y[:, ::5], y[:, ::13] = torch.nan, torch.inf, -torch.inf, -0.0
    assert_same(compiled(in_turn, "elements"), compiled(in_turn, "strips"), in_turn, x, y)


def test_an_argument_that_is_overwritten() -> None:
    def overwrite(x: Tensor, y: Tensor) -> Tensor:
        z = torch.sin(x)
        x.copy_(torch.tanh(z) * x + y)
        return torch.exp(z)

    given = arguments(700)
    wanted, plain, found = ((given[0].clone(), given[1]) for _ in range(3))
    torch.testing.assert_close(compiled(overwrite, "strips")(*found), overwrite(*wanted))
    torch.testing.assert_close(found, wanted)
    compiled(overwrite, "elements")(*plain)
    assert torch.equal(plain[0], found[0])
