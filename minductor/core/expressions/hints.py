"""Estimates: the numbers that stand for sizes which only the call knows.

Takes sizes and hints. A hint is the value that a size symbol has in the example inputs. Gives `estimate`, the only
function that makes a number of an unknown size. Refuses nothing.

An estimate may choose between two right kernels. It proves nothing: `bounds.py` knows no hints.

>>> from minductor.core.expressions.expr import integer, symbol
>>> s = symbol("s0", "size", 2)
>>> estimate(4 * s, ((s, 100),)), estimate((s, integer(10)), ())
(400, 81920)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import isqrt
from typing import TypeAlias

from minductor.core.expressions.expr import Expr, Symbol, as_int, evaluate, free_symbols

Hints: TypeAlias = tuple[tuple[Symbol, int], ...]

MOST_ASSUMED = 8192  # an unknown size without a hint counts as no more than this, if its range allows so little
MOST_HINT = 1 << 32  # a larger hint counts as this: products of sizes then stay numbers that a float can hold


def estimate(sizes: Expr | Iterable[Expr], hints: Hints) -> int:
    """The product of sizes as a number, at least 1 if one of them is unknown.

    A symbol counts with its hint, or else with the geometric middle of its range and at most MOST_ASSUMED.
    """
    total = 1
    for size in (sizes,) if isinstance(sizes, Expr) else sizes:
        known = as_int(size)
        total *= _estimated(size, hints) if known is None else known
    return total


@lru_cache(maxsize=4096)  # fusion asks for the same few sizes again with each kernel that it tries
def _estimated(size: Expr, hints: Hints) -> int:
    given = dict(hints)
    return max(1, evaluate(size, {s.name: given.get(s) or _middle(s) for s in free_symbols(size)}))


def _middle(size: Symbol) -> int:
    """The geometric middle of a symbol's range, at most MOST_ASSUMED if the range allows so little; 0 counts as 1."""
    low = max(1, size.lo or 1)
    high = MOST_ASSUMED**2 if size.hi is None else max(low, size.hi)
    return max(low, min(MOST_ASSUMED, isqrt(low * high)))


def clamped(size: Symbol, value: int) -> int:
    """The hint for a symbol that has this value in the example inputs: 1 to MOST_HINT, and within the symbol's range.

    >>> from minductor.core.expressions.expr import symbol
    >>> s = symbol("s0", "size", 0, 1 << 40)
    >>> clamped(s, 0), clamped(s, 1 << 62) == MOST_HINT
    (1, True)
    """
    wanted = min(max(value, 1), MOST_HINT)
    wanted = wanted if size.hi is None else min(wanted, size.hi)
    return wanted if size.lo is None else max(wanted, size.lo)
