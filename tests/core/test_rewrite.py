"""Simplified expressions keep their value; coordinates are those of the element."""

from __future__ import annotations

import itertools
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.expressions.expr import Expr, Symbol, as_expr, evaluate, integer, maximum, minimum, symbol
from minductor.core.expressions.rewrite import delinearize, simplify
from tests.core.strategies import EXTENTS, POINTS, RECIPES, Recipe, cooked, value


@settings(max_examples=200, deadline=None)
@given(RECIPES, st.booleans(), POINTS)
def test_simplifying_keeps_the_value_and_is_idempotent(
    recipe: Recipe, has_extents: bool, points: list[dict[str, int]]
) -> None:
    expr = cooked(recipe)
    if expr is None:
        return
    extents = EXTENTS if has_extents else {}
    result = simplify(expr, extents)
    assert simplify(result, extents) is result
    for point in points:
        expected = value(recipe, point)
        if expected is not None:
            assert evaluate(result, point) == expected


b, t, c, i, j = (symbol(name, "axis") for name in "btcij")
B, T, C, H = (symbol(name, "size", 1) for name in "BTCH")
ONE = integer(1)
SIZES: dict[Symbol, Expr] = {b: B, t: T, c: C, i: H, j: integer(64)}


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((T * b + t) // T, "b"),
        ((T * b + t) % T, "t"),
        ((C * (T * b + t) + c) // C % T, "t"),
        ((64 * i + j) // 32, "2*i + j//32"),
        ((128 * i + j) % 256, "j + 128*(i % 2)"),
        ((C * T * b + C * t + c) % (C * T), "C*t + c"),
        (j % 12 // 4, "(j//4) % 3"),
        (T * (c // T) + c % T, "c"),
        (12 * (c // 12) + 4 * (c // 4 % 3) + c % 4, "c"),
        (c - 4 * (c // 4), "c % 4"),
        ((T - 1 - t) % T, "T - t - 1"),
        ((T - 1 - t) // T, "0"),
        ((c % (4 * T) + b) % T, "(b + c) % T"),
        (minimum(t, T), "t"),
        (maximum(t - T, 0), "0"),
        (j // 64 + i, "i"),
    ],
)
def test_simplified_form(expr: Expr, text: str) -> None:
    assert str(simplify(expr, SIZES)) == text


def test_an_axis_of_one_point_is_zero() -> None:
    assert simplify(4 * b + t, {b: ONE, t: T}) is t


@pytest.mark.parametrize(
    ("index", "size", "stride", "coordinates"),
    [
        ((b * T + t) * C + c, (B * T, C), (C, 1), "T*b + t, c"),
        ((b * T + t) * C + c, (B, T, C), (T * C, C, 1), "b, t, c"),
        ((b * T + t) * C + c, (B, C, T), (T * C, 1, C), "b, c, t"),
        ((b * T + t) * C + c, (B, 1, T * C), (T * C, 7, 1), "b, 0, C*t + c"),
        ((b * 128 + t) * 64 + j, (4, 128, 64), (8192, 64, 1), "b + t//128, t % 128, j"),
        (64 * i + j, (4 * H, 16), (16, 1), "4*i + j//16, j % 16"),
        (t * C + C - 1 - c, (T, C), (C, 1), "t, C - c - 1"),
        (64 * t + (j + 3) % 64, (T, 64), (64, 1), "t, (j + 3) % 64"),
        (64 * t + 2 * i + 5, (T, 64), (64, 1), "t + (i + 2)//32, 2*((i + 2) % 32) + 1"),
        (80 * t + j, (T, 64), (80, 1), "t, j"),
        (80 * t + j + 3, (T, 70), (80, 1), "t, j + 3"),
        (b * (T + 1) * C + t * C + c, (B, T + 1, C), ((T + 1) * C, C, 1), "b, t, c"),
        (c, (T, C), (C, 1), "0, c"),
    ],
)
def test_coordinates(index: Expr, size: tuple, stride: tuple, coordinates: str) -> None:
    found = delinearize(index, tuple(map(as_expr, size)), tuple(map(as_expr, stride)), SIZES)
    assert found is not None
    assert ", ".join(map(str, found)) == coordinates


@pytest.mark.parametrize(
    ("size", "stride"),
    [((3, 4), (1, 1)), ((3, 4), (0, 1)), ((3, 4), (4, -1)), ((3, 4), (2, 1)), ((B, C), (T, 1)), ((B, C), (B, C))],
)
def test_refuses_layouts_that_may_overlap(size: tuple, stride: tuple) -> None:
    assert delinearize(c, tuple(map(as_expr, size)), tuple(map(as_expr, stride)), SIZES) is None


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Sizes and strides of a layout in which no two elements share a place, with gaps now and then."""
    size = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    stride = [0] * len(size)
    span = 1
    for dim in draw(st.permutations(range(len(size)))):
        stride[dim] = span + draw(st.sampled_from([0, 0, 0, 1, 3]))
        span = (size[dim] - 1) * stride[dim] + stride[dim]
    return size, stride


@settings(max_examples=150, deadline=None)
@given(layouts(), st.data())
def test_coordinates_name_the_element(layout: tuple[list[int], list[int]], data: st.DataObject) -> None:
    size, stride = layout
    elements = [
        sum(at * step for at, step in zip(place, stride, strict=True)) for place in itertools.product(*map(range, size))
    ]
    # an index is any way to run over elements: here over the dims, in an order, some of them merged or split
    axes = [symbol(f"i{n}", "axis") for n in range(len(size))]
    extents = {axis: integer(extent) for axis, extent in zip(axes, size, strict=True)}
    index: Expr = integer(0)
    for axis, step in zip(axes, stride, strict=True):
        index = index + axis * step
    if data.draw(st.booleans()):
        flat = symbol("flat", "axis")
        extents = {flat: integer(prod(size))}
        rest = integer(0) + flat
        index = integer(0)
        for extent, step in zip(reversed(size), reversed(stride), strict=True):
            index, rest = index + rest % extent * step, rest // extent
    found = delinearize(index, tuple(map(integer, size)), tuple(map(integer, stride)), extents)
    assert found is not None
    for values in itertools.product(*(range(evaluate(extent, {})) for extent in extents.values())):
        point = {axis.name: at for axis, at in zip(extents, values, strict=True)}
        place = [evaluate(at, point) for at in found]
        assert all(0 <= at < extent for at, extent in zip(place, size, strict=True))
        offset = evaluate(index, point)
        assert offset in elements
        assert sum(at * step for at, step in zip(place, stride, strict=True)) == offset


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_symbolic_layouts_have_the_same_coordinates(bs: int, ts: int, cs: int, which: int) -> None:
    index = (b * T + t) * C + c
    size, stride, expected = [
        ((B * T, C), (C, ONE), (b * T + t, c)),
        ((B, T * C), (T * C, ONE), (b, t * C + c)),
        ((B, C, T), (T * C, ONE, C), (b, c, t)),
        ((T, B, C), (C, T * C, ONE), (t, b, c)),
    ][which]
    found = delinearize(index, size, stride, SIZES)
    assert found == expected
    for bv, tv, cv in itertools.product(range(bs), range(ts), range(cs)):
        point = {"B": bs, "T": ts, "C": cs, "b": bv, "t": tv, "c": cv}
        offset = sum(evaluate(at * step, point) for at, step in zip(found, stride, strict=True))
        assert offset == evaluate(index, point)


def test_an_axis_is_shorter_than_its_extent_however_that_is_written() -> None:
    """The last third of a row whose length is no multiple of 3: the quotient in the extent must cancel."""
    n = symbol("n", "size", 2)
    last = n - 2 * ((n + 2) // 3)
    assert simplify(b % last, {b: last}) == b
    assert simplify((b + n // 3) % last, {b: last}) != b
