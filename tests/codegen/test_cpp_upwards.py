"""argmax and argmin where loops walk upwards: ties, infinities and NaN, in lanes, in columns and in parts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from minductor.codegen.cpp.cpp_upwards import upwards
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import Expr, integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Op, Reduce
from pytest_plugin.oracle.compiled import Compile

ROW, COLUMN = symbol("i0", "axis"), symbol("i1", "axis")
GIVEN = {
    "ties": lambda x: x.round(),
    "the lowest": lambda x: torch.full_like(x, -math.inf),
    "the highest": lambda x: torch.full_like(x, math.inf),
    "one above the lowest": lambda x: torch.where(x == x.amax(), x, -math.inf),
    "NaN": lambda x: torch.where(x > 1, math.nan, x),
    "NaN alone": lambda x: torch.full_like(x, math.nan),
    "integers": lambda x: (3 * x).int(),
    "the lowest integer": lambda x: torch.full_like(x, torch.iinfo(torch.int32).min, dtype=torch.int32),
}


# the shapes, and what `make test` gives in them
SHAPES: dict[tuple[int, int], Iterable[str]] = {
    (5, 7): ("NaN",),
    (6, 64): GIVEN,
    (3, 1000): ("ties",),
    (300, 33): ("one above the lowest", "integers"),
    (2, 100_000): ("ties", "NaN", "the lowest integer"),
    (70_000, 2): (),
}


def extremes(x: Tensor) -> tuple[Tensor, ...]:
    return x.argmax(-1), x.argmin(-1), *x.max(-1), *x.min(0), x.argmax(0), x.argmin()


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        pytest.param(shape, given, marks=pytest.mark.long if given not in kept else (), id=f"{shape}-{given}")
        for shape, kept in SHAPES.items()
        for given in GIVEN
    ],
)
def test_the_first_of_the_largest(compiled: Compile, device: str, given: str, shape: tuple[int, int]) -> None:
    compiled(extremes, GIVEN[given](torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(device))


@pytest.mark.parametrize(
    ("place", "first"),
    [(ROW, 0), (2 * ROW + 5, 5), (integer(7), None), (7 - ROW, None), (ROW + COLUMN, None), (ROW * COLUMN, None)],
    ids=str,
)
def test_only_places_that_grow_from_a_known_one_are_not_compared(place: Expr, first: int | None) -> None:
    b = Builder()
    values = (b.constant(0.0, F32), b.index(place))
    own = combine("argmin", F32)
    made = upwards(Op("reduce", values, Reduce(("i0",), own), F32, ()), b.__getitem__)
    assert made == own if first is None else made.identity == (math.inf, first)
    assert ("lt" in [op.name for op in made.body.ops]) == (first is None)
