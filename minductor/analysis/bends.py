"""At how many points an index changes its formula along an axis.

Takes an index expression, an axis and its extent. Gives a number, no less than that of the points at which `cut.py`
cuts a vector loop, so that accesses are contiguous in each piece. Refuses (None) an index whose points are not plain.

>>> from minductor.core.expressions.expr import maximum, minimum, symbol
>>> i, j = symbol("i", "axis", 0, 63), symbol("j", "axis", 0, 63)
>>> bends(64 * i + maximum(0, j - 1), j, 64), bends(64 * i + j, j, 64), bends(j // 32 + j, j, 64), bends(j * j, j, 64)
(1, 0, 2, None)
"""

from __future__ import annotations

from minductor.core.expressions.expr import Expr, FloorDiv, Max, Min, Mod, Symbol, as_int, children, linear

MOST_CUTS = 4  # of a vector loop


def bends(index: Expr, axis: Symbol, extent: int) -> int | None:
    """At how many points at most an index changes its formula along an axis; None if that is not plain."""
    if linear(index, [axis]) is not None:
        return 0
    parts = children(index)
    inner = [bends(part, axis, extent) for part in parts]
    match index:
        case Min() | Max():
            own: int | None = len(parts) - 1
        case FloorDiv(num, den) | Mod(num, den):
            own = _quotients(num, den, axis, extent)
        case _:
            own = 0 if any(each != 0 for each in inner) else None
    known = [each for each in (own, *inner) if each is not None]
    return sum(known) if len(known) == len(inner) + 1 else None


def _quotients(num: Expr, den: Expr, axis: Symbol, extent: int) -> int | None:
    """How often num // den changes along an axis; None if that is not plain."""
    split, divisor = linear(num, [axis]), as_int(den)
    slope = None if split is None else as_int(split[0][axis])
    return None if slope is None or not divisor else -(-abs(slope) * extent // abs(divisor))
