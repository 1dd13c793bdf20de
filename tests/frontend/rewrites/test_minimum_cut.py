"""The cheapest sides are those that trying all choices finds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from minductor.frontend.rewrites.minimum_cut import ALWAYS, TwoSides

COUNT = 5
COST = st.integers(0, 6).map(float)
PAIR = st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1), COST).filter(lambda pair: pair[0] != pair[1])
Prices = Sequence[tuple[float, float]]


def cost(prices: Prices, pairs: Sequence[tuple[int, int, float]], second: Sequence[bool]) -> float:
    own = sum(price[is_second] for price, is_second in zip(prices, second, strict=True))
    return own + sum(each for a, b, each in pairs if second[a] != second[b])


@given(st.lists(st.tuples(COST, COST), min_size=COUNT, max_size=COUNT), st.lists(PAIR, max_size=10))
def test_no_choice_is_cheaper(prices: Prices, pairs: Sequence[tuple[int, int, float]]) -> None:
    sides = TwoSides()
    for node, (first, second) in enumerate(prices):
        sides.price(node, first=first, second=second)
    for a, b, each in pairs:
        sides.join(a, b, each)
    found = sides.second()
    least = min(cost(prices, pairs, second) for second in product((False, True), repeat=COUNT))
    assert cost(prices, pairs, [node in found for node in range(COUNT)]) == least


def test_a_side_that_is_not_allowed_is_not_taken() -> None:
    sides = TwoSides()
    sides.price("pinned", second=ALWAYS)
    sides.price("free", first=100.0)
    sides.join("pinned", "free", 1e3)
    assert sides.second() == set()
