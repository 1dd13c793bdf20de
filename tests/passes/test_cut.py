"""Loops in pieces: each index is what it was, at every point, and a straight line where the cuts can make it one.

Takes random indices with extremes, quotients and remainders. Refuses a piece in which an index differs.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.analysis.bends import MOST_CUTS
from minductor.core.expressions.expr import Expr, evaluate, integer, linear, maximum, minimum, symbol
from minductor.core.expressions.rewrite import simplify_between
from minductor.ir.program.nodes import Axis
from minductor.passes.schedule.cut import points

AXIS, OTHER = symbol("i", "axis"), symbol("j", "axis", 0, 3)
SIZE = symbol("s", "size", 1)
LINES = st.builds(lambda a, b, c: a * AXIS + b + c * SIZE, *(st.integers(low, 9) for low in (-3, -40, -1)))


def joined(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    divisors = st.one_of(st.integers(1, 40).map(integer), st.just(SIZE))
    return st.one_of(
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(Expr.__floordiv__, inner, divisors),
        st.builds(Expr.__mod__, inner, divisors),
        st.builds(lambda a, b: 7 * a + b + 100 * OTHER, inner, inner),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(LINES, joined, max_leaves=4), st.one_of(st.integers(0, 60).map(integer), st.just(SIZE + 6)))
def test_each_piece_has_the_same_places(index: Expr, extent: Expr) -> None:
    extents = {AXIS: extent, OTHER: integer(4)}
    cuts = points([index], Axis(AXIS, extent), extents)
    assert len(cuts) <= MOST_CUTS
    pieces = [(*ends, simplify_between(index, AXIS, *ends, extents)) for ends in pairwise((integer(0), *cuts, extent))]
    for size in (1, 2, 5, 33):
        done = 0
        assert all(evaluate(at, {"s": size}) <= evaluate(extent, {"s": size}) for at in cuts)
        for start, stop, piece in pieces:
            for i in range(max(done, evaluate(start, {"s": size})), evaluate(stop, {"s": size})):
                assert i == done
                done += 1
                point = {"i": i, "j": 2, "s": size}
                assert evaluate(piece, point) == evaluate(index, point)
        assert done == evaluate(extent, {"s": size})


def test_pads_and_rolls_are_straight_lines() -> None:
    inner = maximum(AXIS - 3, 3 - AXIS)
    for index, extent, count in (
        (minimum(inner, 126 - inner), integer(70), 3),
        (minimum(maximum(AXIS - 3, integer(0)), SIZE - 1), SIZE + 6, 3),
        ((AXIS - 5) % SIZE, SIZE, 2),
        ((AXIS + 5) % SIZE, SIZE, 2),
        (minimum(AXIS + 1, SIZE - 1), SIZE, 2),
        (minimum(maximum(AXIS - 1, integer(0)), SIZE - 3), SIZE, 3),
    ):
        cuts = points([index], Axis(AXIS, extent), {AXIS: extent})
        ends = (integer(0), *cuts, extent)
        assert len(cuts) == count - 1
        made = [simplify_between(index, AXIS, *piece, {AXIS: extent}) for piece in pairwise(ends)]
        assert all(linear(line, [AXIS]) is not None for line in made)
