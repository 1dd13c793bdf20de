"""Estimates of sizes that only the call knows, by their hints or by their ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.expressions.expr import Expr, integer, minimum, symbol
from minductor.core.expressions.hints import MOST_ASSUMED, MOST_HINT, clamped, estimate

S, T = symbol("s0", "size", 2), symbol("s1", "size", 0, 100)
LIMITS = st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (integer(7), 7),
        (integer(0), 0),
        ((integer(3), integer(5)), 15),
        ((), 1),
        (S, MOST_ASSUMED),  # no upper limit
        (T, 10),  # 0 counts as 1: the middle of 1 and 100
        (symbol("s2", "size", 4, 64), 16),
        (symbol("s2", "size", 2, 1 << 40), MOST_ASSUMED),
        (symbol("s2", "size", 1 << 20), 1 << 20),  # no less than the range allows
        (symbol("u0", "size", -5, -5), 1),
        (symbol("u0", "size"), MOST_ASSUMED),
        ((S, integer(2), T), 2 * 10 * MOST_ASSUMED),
        (4 * S + T, 4 * MOST_ASSUMED + 10),
        (T - 50, 1),  # at least 1
        (minimum(S, T), 10),
        (S // 3, MOST_ASSUMED // 3),
    ],
)
def test_a_size_without_a_hint_is_in_the_middle_of_its_range(sizes: Expr, expected: int) -> None:
    assert estimate(sizes, ()) == expected


def test_a_hint_comes_first() -> None:
    assert estimate((S, 2 * S + T), ((S, 50),)) == 50 * 110
    assert estimate((S, 2 * S + T), ((S, 50), (T, 3))) == 50 * 103
    assert estimate(S, ((T, 3),)) == MOST_ASSUMED


@given(st.integers(-(1 << 70), 1 << 70), LIMITS, LIMITS)
def test_hints_and_estimates_are_in_the_range(value: int, low: int | None, high: int | None) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    size = symbol("s0", "size", low, high)
    for number in (clamped(size, value), estimate(size, ())):
        assert number >= 1 or (high is not None and number == high < 1)
        assert low is None or number >= low
        assert high is None or number <= max(high, 1)
        assert number <= MOST_HINT or number == low


@pytest.mark.parametrize(
    ("low", "high", "value", "hint"),
    [
        (0, None, 0, 1),
        (None, None, -3, 1),
        (2, None, 1 << 62, MOST_HINT),
        (2, 100, 1 << 62, 100),
        (5, None, 0, 5),
        (5, 9, 7, 7),
        (1 << 40, None, 1 << 40, 1 << 40),
    ],
)
def test_a_hint_is_neither_0_nor_too_large(low: int | None, high: int | None, value: int, hint: int) -> None:
    assert clamped(symbol("s0", "size", low, high), value) == hint
