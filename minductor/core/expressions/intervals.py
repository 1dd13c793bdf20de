"""Intervals of integers, without symbols.

Takes: pairs ``(low, high)``, both inclusive; None is an open end.
Gives: an interval that contains every product, quotient or remainder of values in the two intervals.
Refuses: nothing; an unbounded result is ``(None, None)``. Divisions by zero are left out of account.

>>> scale((0, 7), 4)
(0, 28)
>>> floordiv((0, 31), (4, 4))
(0, 7)
>>> mod((0, None), (8, 8))
(0, 7)
"""

from __future__ import annotations

import math
from typing import TypeAlias

Range: TypeAlias = "tuple[int | None, int | None]"

EVERYTHING: Range = (None, None)


def scale(a: Range, factor: int) -> Range:
    if factor == 0:
        return 0, 0
    low = None if a[0] is None else a[0] * factor
    high = None if a[1] is None else a[1] * factor
    return (low, high) if factor > 0 else (high, low)


def mul(a: Range, b: Range) -> Range:
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        if a[1] == 0 or b[1] == 0:
            return 0, 0
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    corners = [_times(x, y) for x in _ends(a) for y in _ends(b)]
    return _finite(min(corners)), _finite(max(corners))


def floordiv(a: Range, b: Range) -> Range:
    if b[1] is not None and b[1] <= 0:
        a, b = scale(a, -1), scale(b, -1)
    if b[0] is None or b[0] < 0:
        return EVERYTHING
    least, most = max(b[0], 1), b[1]
    low, high = a
    if low is not None:
        low = low // least if low < 0 else (0 if most is None else low // max(most, 1))
    if high is not None:
        high = high // least if high >= 0 else (-1 if most is None else high // max(most, 1))
    return low, high


def mod(a: Range, b: Range) -> Range:
    if b[1] is not None and b[1] <= 0 and b[0] != 0:
        return scale(mod(scale(a, -1), scale(b, -1)), -1)
    if b[0] is None or b[0] < 0:
        low = None if b[0] is None else b[0] + 1
        return low, None if b[1] is None else max(b[1] - 1, 0)
    high = None if b[1] is None else max(b[1] - 1, 0)
    if a[0] is None or a[0] < 0:
        return 0, high
    if a[1] is not None and a[1] < b[0]:
        return a
    return 0, high if a[1] is None else (a[1] if high is None else min(high, a[1]))


def minimum(a: Range, b: Range) -> Range:
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    high = b[1] if a[1] is None else (a[1] if b[1] is None else min(a[1], b[1]))
    return low, high


def maximum(a: Range, b: Range) -> Range:
    return scale(minimum(scale(a, -1), scale(b, -1)), -1)


def meet(a: Range, b: Range) -> Range:
    """The interval of the values that are in both intervals."""
    low = b[0] if a[0] is None else (a[0] if b[0] is None else max(a[0], b[0]))
    high = b[1] if a[1] is None else (a[1] if b[1] is None else min(a[1], b[1]))
    return low, high


def _ends(a: Range) -> tuple[float, float]:
    return -math.inf if a[0] is None else a[0], math.inf if a[1] is None else a[1]


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y


def _finite(x: float) -> int | None:
    return None if x in (math.inf, -math.inf) else int(x)
