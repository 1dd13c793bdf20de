"""Interval arithmetic encloses every value, and ends that are reached are tight."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.expressions import intervals
from minductor.core.expressions.intervals import Range

OPS: dict[str, tuple[Callable[[Range, Range], Range], Callable[[int, int], int]]] = {
    "mul": (intervals.mul, operator.mul),
    "floordiv": (intervals.floordiv, operator.floordiv),
    "mod": (intervals.mod, operator.mod),
    "minimum": (intervals.minimum, min),
    "maximum": (intervals.maximum, max),
}


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    low = draw(st.integers(-7, 7))
    return low, low + draw(st.integers(0, 6))


@pytest.mark.parametrize("name", OPS)
@given(a=spans(), b=spans(), open_ends=st.tuples(*[st.booleans()] * 4))
def test_encloses_every_value(name: str, a: tuple[int, int], b: tuple[int, int], open_ends: tuple[bool, ...]) -> None:
    of_ranges, of_ints = OPS[name]
    ends = [None if is_open else end for end, is_open in zip((*a, *b), open_ends, strict=True)]
    low, high = of_ranges((ends[0], ends[1]), (ends[2], ends[3]))
    values = [
        of_ints(x, y)
        for x, y in itertools.product(range(a[0], a[1] + 1), range(b[0], b[1] + 1))
        if y or name not in ("floordiv", "mod")
    ]
    assert all((low is None or low <= v) and (high is None or v <= high) for v in values)
    if values and not any(open_ends) and name not in ("floordiv", "mod"):
        assert (low, high) == (min(values), max(values))
    if values and not any(open_ends) and name == "floordiv" and b[0] > 0:
        assert (low, high) == (min(values), max(values))


def test_scale_and_meet() -> None:
    assert intervals.scale((1, None), -2) == (None, -2) and intervals.scale((None, None), 0) == (0, 0)
    assert intervals.meet((0, None), (None, 5)) == (0, 5) and intervals.meet((0, 9), (3, 5)) == (3, 5)
