"""What bounds claims holds at every point; what passes rely on is found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.expressions.bounds import at_least, divides, fits_int32, interval, is_proved, known_factor
from minductor.core.expressions.expr import (
    Expr,
    Rel,
    Symbol,
    all_of,
    any_of,
    children,
    compare,
    eq,
    evaluate,
    evaluate_rel,
    ge,
    integer,
    le,
    lt,
    maximum,
    minimum,
    ne,
    negate,
    symbol,
)
from tests.core.strategies import DIVISORS, EXTENTS, POINTS, RECIPES, Recipe, cooked, value


@settings(max_examples=300, deadline=None)
@given(RECIPES, st.booleans(), POINTS)
def test_intervals_are_sound(recipe: Recipe, has_extents: bool, points: list[dict[str, int]]) -> None:
    expr = cooked(recipe)
    if expr is None:
        return
    low, high = interval(expr, EXTENTS if has_extents else {})
    for point in points:
        found = value(recipe, point)
        if found is not None:
            assert (low is None or low <= found) and (high is None or found <= high)


@settings(max_examples=300, deadline=None)
@given(RECIPES, RECIPES, st.sampled_from(["==", "!=", "<", "<="]), POINTS)
def test_known_relations_hold(left: Recipe, right: Recipe, op: str, points: list[dict[str, int]]) -> None:
    a, b = cooked(left), cooked(right)
    if a is None or b is None:
        return
    rel = compare(op, a, b)
    for claim in (rel, negate(rel)):
        if is_proved(claim, EXTENTS):
            for point in points:
                if value(left, point) is not None and value(right, point) is not None:
                    assert evaluate_rel(claim, point)


@settings(max_examples=300, deadline=None)
@given(RECIPES, DIVISORS, POINTS)
def test_divisibility_is_sound(recipe: Recipe, divisor: Recipe, points: list[dict[str, int]]) -> None:
    expr, by = cooked(recipe), cooked(divisor)
    if expr is None or by is None:
        return
    factor, is_multiple = known_factor(expr), divides(by, expr)
    for point in points:
        found, n = value(recipe, point), value(divisor, point)
        if found is None or n is None:
            continue
        assert found == 0 if factor == 0 else found % factor == 0
        if is_multiple:
            assert found == 0 if n == 0 else found % n == 0


@settings(max_examples=200, deadline=None)
@given(RECIPES, st.integers(0, 40), POINTS)
def test_what_fits_32_bits_does_so_on_the_way(recipe: Recipe, shift: int, points: list[dict[str, int]]) -> None:
    expr = cooked(("*", recipe, 1 << shift))
    if expr is None or not fits_int32(expr, EXTENTS):
        return
    for point in points:
        try:
            assert all(-(1 << 31) <= found < 1 << 31 for found in _values(expr, point))
        except ZeroDivisionError:
            continue


def _values(expr: Expr, point: dict[str, int]) -> list[int]:
    return [evaluate(expr, point), *(found for child in children(expr) for found in _values(child, point))]


i, j, k = symbol("i", "axis"), symbol("j", "axis"), symbol("k", "axis")
c = symbol("c", "axis", 0, 63)
a, b, d = symbol("a", "size", 1), symbol("b", "size", 1), symbol("d", "size", 1)
HERE: dict[Symbol, Expr] = {i: a, j: b, k: d}


@pytest.mark.parametrize(
    "rel",
    [
        lt(64 * i + c, 64 * a),
        lt(j + b * i, a * b),
        lt(k + d * (j + b * i), a * b * d),
        ge(a * b, b),
        ge(a * b * d, b * d),
        ge((a + 1) * (b + 2), a * b),
        ge(a - 1 - i, 0),
        ge(64 * ((a + 63) // 64), a),
        le((a + 1) // 2, a),
        ge(a - a // 2, 1),
        lt(i // 2, a),
        lt((j + b * i) // b, a),
        lt((i + 3) % a, a),
        le(minimum(i, j), i),
        ge(maximum(i, j), j),
        ne(2 * i, 2 * j + 1),
        eq(i * (a + b), a * i + b * i),
        all_of(lt(i, a), lt(j, b)),
        any_of(lt(a, i), lt(j, b)),
        negate(any_of(lt(a, i), eq(i, a))),
        negate(all_of(lt(a, i), eq(j, 3))),
    ],
    ids=str,
)
def test_is_known(rel: Rel) -> None:
    assert is_proved(rel, HERE)
    for point in ({"a": 1, "b": 1, "d": 1, "i": 0, "j": 0, "k": 0, "c": 63},):
        assert evaluate_rel(rel, point)


@pytest.mark.parametrize(
    "rel",
    [lt(i, a - 1), lt(64 * i + c, 64 * a - 1), ge(a, 2), le(a, b), eq(a, b), ne(a, b), lt(i, j), lt(i * b, a)],
    ids=str,
)
def test_is_not_known(rel: Rel) -> None:
    assert not is_proved(rel, HERE)


def test_without_extents_nothing_bounds_an_axis() -> None:
    assert not is_proved(lt(i, a)) and interval(i) == (0, None)
    assert interval(i, {i: integer(8)}) == (0, 7)
    assert interval(a - i, HERE) == (1, None)
    assert at_least(a - i, 1, HERE) and not at_least(a - i, 2, HERE)


def test_partial_sums_count_for_32_bits() -> None:
    big = symbol("big", "axis", 0, (1 << 31) - 1)
    assert fits_int32(big) and not fits_int32(big + 1) and not fits_int32(2 * big // 2 + big - big % 7)
    assert not fits_int32((big + 5) % 7)
    small = symbol("small", "axis", 10, 20)
    assert fits_int32(small - (1 << 31)) and not fits_int32(small - (1 << 31) - 5)


@pytest.mark.parametrize(
    ("n", "expr", "is_multiple"),
    [
        (4, 8 * i + 12, True),
        (4, 8 * i + 2, False),
        (4, 8 * i + j, False),
        (6, 6 * (i // 5) * j, True),
        (2, (6 * i) % 4, True),
        (3, (6 * i) % 4, False),
        (2, minimum(4 * i, 6 * j), True),
        (a, a * i + a * b, True),
        (a, a * i + b, False),
        (a + 1, i * a + i, True),
        (0, i - i, True),
        (0, i, False),
    ],
)
def test_divisibility(n: int | Expr, expr: Expr, is_multiple: bool) -> None:
    assert divides(n, expr) is is_multiple
