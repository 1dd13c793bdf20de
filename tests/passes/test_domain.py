"""Solving an access for the axes, and telling bijections from what only looks like one."""

from __future__ import annotations

import pytest

from minductor.analysis.domain import extents_of, has_division, is_bijection, solve
from minductor.core.expressions.expr import Expr, integer, symbol
from minductor.ir.program.nodes import Axis

A, B, N = symbol("i0", "axis", 0, 3), symbol("i1", "axis", 0, 7), symbol("j0", "axis", 0, 31)
P, Q = symbol("p0", "axis", 0, 3), symbol("p1", "axis", 0, 7)
S = symbol("s0", "size", 2)
ROWS = symbol("r0", "axis", 0)
SOURCE = (Axis(A, integer(4)), Axis(B, integer(8)))
TARGET = {P: integer(4), Q: integer(8), N: integer(32)}


def test_a_solution_addresses_the_same_element() -> None:
    found = solve(8 * A + B, SOURCE, 8 * P + Q, TARGET)
    assert found == {A: P, B: Q}
    assert solve(A + 4 * B, SOURCE, P + 4 * Q, TARGET) == {A: P, B: Q}
    assert solve(8 * A + B + 5, SOURCE, 8 * P + Q + 5, TARGET) == {A: P, B: Q}


def test_only_mentioned_axes_are_solved() -> None:
    assert solve(integer(0) + A, SOURCE, P, TARGET) == {A: P}


def test_an_overlapping_layout_has_no_solution() -> None:
    assert solve(A + B, SOURCE, P, TARGET) is None
    assert solve(A * B, SOURCE, P, TARGET) is None


def test_unknown_sizes() -> None:
    axes = (Axis(ROWS, S), Axis(B, integer(8)))
    assert solve(8 * ROWS + B, axes, 8 * P + Q, {**TARGET, P: S}) == {ROWS: P, B: Q}


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        ({A: P, B: Q}, True),
        ({A: P, B: P}, False),
        ({A: Q, B: P}, False),  # the extents differ
        ({A: N // 8, B: N % 8}, True),
        ({A: P, B: N // 4}, False),  # more points than the source has
        ({A: 3 - P, B: Q}, False),  # it is one, but nothing that a body should be written in
        ({A: integer(0), B: Q}, False),
        ({A: integer(0), B: N}, False),  # as many points, but outside the axis
    ],
)
def test_bijections(solution: dict[Expr, Expr], expected: bool) -> None:
    found = is_bijection(solution, extents_of(SOURCE), TARGET)  # pyright: ignore[reportArgumentType]  symbols
    assert found is expected


def test_has_division() -> None:
    assert has_division(3 * (N // 8) + 1)
    assert has_division(N % 8 * P)
    assert not has_division(8 * P + Q)
