"""Bounds of index expressions, and proofs of relations, for all values of their symbols.

Takes: an expression or relation, and the extents of axes: ``{i: s0}`` says ``0 <= i <= s0 - 1``.
Gives: an interval, or whether a relation or a divisibility is proved. False means "not known", and not "false".
Refuses: nothing; it uses no size hints and adds no guards.

>>> from minductor.core.expressions.expr import symbol, lt
>>> t, c, s = symbol("t", "axis"), symbol("c", "axis", 0, 63), symbol("s", "size", 1)
>>> interval(64 * t + c, {t: integer(8)})
(0, 511)
>>> is_proved(lt(64 * t + c, 64 * s), {t: s}), is_proved(lt(64 * t + c, 64 * s))
(True, False)
>>> divides(4, 8 * t + 4 * (c % 8)), divides(s, s * t + 2 * s), divides(4, 4 * t + c)
(True, True, False)
>>> fits_int32(1024 * t + c, {t: integer(1 << 20)}), fits_int32(1024 * t, {t: integer(1 << 22)})
(True, False)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from minductor.core.expressions import intervals
from minductor.core.expressions.algebra import factors_of, from_terms, product_of, range_from
from minductor.core.expressions.division import divide
from minductor.core.expressions.expr import (
    And,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Identity,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Rel,
    Sum,
    Symbol,
    TrueRel,
    as_expr,
    as_int,
    children,
    const_and_terms,
    expand,
    floordiv,
    free_symbols,
    integer,
    linear,
    mod,
    negate,
)
from minductor.core.expressions.intervals import Range

Extents = Mapping[Symbol, Expr]
NO_EXTENTS: Extents = MappingProxyType({})

# How many symbols one proof may replace by their bounds. The indices of real programs need three or four.
_FUEL = 10


def interval(expr: Expr | int, extents: Extents = NO_EXTENTS) -> Range:
    """The least and the greatest value that are proved, both included; None for an end without a bound."""
    expr = as_expr(expr)
    low, high = _plain(expr, extents)
    if low is None:
        low = _proved_least(expr, relevant_extents(expr, extents))
    if high is None:
        least = _proved_least(-expr, relevant_extents(expr, extents))
        high = None if least is None else -least
    return low, high


def is_proved(rel: Rel, extents: Extents = NO_EXTENTS) -> bool:
    """Whether the relation is proved to hold for all values that the ranges and extents allow."""
    match rel:
        case Compare("<=", left, right):
            return at_least(right - left, 0, extents)
        case Compare("<", left, right):
            return at_least(right - left, 1, extents)
        case Compare("==", left, right):
            gap = expand(left - right, identity=True)
            return as_int(gap) == 0 or (at_least(gap, 0, extents) and at_least(-gap, 0, extents))
        case Compare(_, left, right):
            gap = expand(left - right, identity=True)
            return _is_never_zero(gap) or at_least(gap, 1, extents) or at_least(-gap, 1, extents)
        case And(args):
            return all(is_proved(arg, extents) for arg in args)
        case Or(args):
            return any(is_proved(arg, extents) for arg in args)
        case Not(And(args)):
            return any(is_proved(negate(arg), extents) for arg in args)
        case Not(Or(args)):
            return all(is_proved(negate(arg), extents) for arg in args)
        case _:
            return isinstance(rel, TrueRel)


def at_least(expr: Expr, bound: int, extents: Extents = NO_EXTENTS) -> bool:
    """Whether ``expr >= bound`` is proved."""
    low = _plain(expr, extents)[0]
    if low is not None and low >= bound:
        return True
    low = _proved_least(expr, relevant_extents(expr, extents))
    return low is not None and low >= bound


def relevant_extents(expr: Expr, extents: Extents) -> tuple[tuple[Symbol, Expr], ...]:
    """The extents of the axes in an expression; with the expression they are a key for caches."""
    return tuple([(s, extents[s]) for s in free_symbols(expr) if s in extents]) if extents else ()


# Cached because passes ask the same questions about the same indices many times.
@functools.lru_cache(maxsize=4096)
def _proved_least(expr: Expr, items: tuple[tuple[Symbol, Expr], ...]) -> int | None:
    return _least(expr, dict(items), _FUEL)


def divides(n: int | Expr, expr: Expr | int) -> bool:
    """Whether expr is proved to be a multiple of n."""
    n, expr = as_expr(n), as_expr(expr)
    if isinstance(n, Const):
        factor = known_factor(expr)
        return factor == 0 if n.value == 0 else factor % n.value == 0
    return as_int(divide(expand(expr, identity=True), n)[1]) == 0 or as_int(mod(expr, n)) == 0


def known_factor(expr: Expr) -> int:
    """The largest int that is proved to divide the value; 0 for the constant zero.

    >>> from minductor.core.expressions.expr import symbol
    >>> x = symbol("x", "axis")
    >>> known_factor(12 * x + 8), known_factor((6 * x) % 4), known_factor(x)
    (4, 2, 1)
    """
    match expr:
        case Const(value):
            return abs(value)
        case Sum(const, terms):
            return math.gcd(const, *(coefficient * known_factor(term) for term, coefficient in terms))
        case Product(args):
            return math.prod(map(known_factor, args))
        case Mod() | Min() | Max() | Identity():
            return math.gcd(*map(known_factor, children(expr)))
        case _:
            return 1


def fits_int32(expr: Expr | int, extents: Extents = NO_EXTENTS) -> bool:
    """Whether the value and all intermediate results are proved to fit in a signed 32-bit integer."""
    expr = as_expr(expr)
    if isinstance(expr, Sum):
        # The generated code may add the terms in any order.
        low, high = min(expr.const, 0), max(expr.const, 0)
        for term, coefficient in expr.terms:
            least, most = intervals.scale(interval(term, extents), coefficient)
            if least is None or most is None:
                return False
            low, high = low + min(least, 0), high + max(most, 0)
    else:
        low, high = interval(expr, extents)
    if low is None or high is None or low < -(1 << 31) or high >= 1 << 31:
        return False
    return all(fits_int32(child, extents) for child in children(expr))


def _is_never_zero(gap: Expr) -> bool:
    """Whether the value is never zero, because an int divides all terms and not the constant."""
    const, terms = const_and_terms(gap)
    factor = math.gcd(*(coefficient * known_factor(term) for term, coefficient in terms))
    return factor > 1 and const % factor != 0


# Plain interval arithmetic: it treats the terms as independent even if they contain the same symbol.


def _plain(expr: Expr, extents: Extents) -> Range:
    if not extents or not any(s in extents for s in free_symbols(expr)):
        return expr.range
    return _plain_inner(expr, extents, {})


def _plain_inner(expr: Expr, extents: Extents, memo: dict[Expr, Range]) -> Range:
    def symbol_range(s: Symbol) -> Range:
        if s not in extents:
            return s.range
        high = extents[s].range[1]
        return intervals.meet(s.range, (0, None if high is None else high - 1))

    def inner(child: Expr) -> Range:
        if child not in memo:
            memo[child] = range_from(child, symbol_range, inner)
        return memo[child]

    return inner(expr)


# Bounds by substitution: if expr == c*atom + rest and the sign of c is known, then expr >= c*bound + rest.


def _least(expr: Expr, extents: Extents, fuel: int) -> int | None:
    """The greatest lower bound that is found, or None."""
    expr = _open(expr)
    best = _plain(expr, extents)[0]
    if fuel <= 0:
        return best
    for atom in _targets(expr, extents):
        factor, rest = _split(expr, atom)
        if isinstance(atom, FloorDiv) and _has_fraction(factor, atom.den):
            # d*e holds d*(num//d), which is num - num % d
            den = cast(Const, atom.den).value
            low = _least(expr * den, extents, fuel - 1)
            return best if low is None else -(-low // den) if best is None else max(best, -(-low // den))
        products = _products(atom, factor, extents, fuel)
        for product in products:
            # the alternatives share the fuel, so that a proof costs no more for having many
            low = _least(product + rest, extents, (fuel - 1) // len(products))
            if low is not None and (best is None or low > best):
                best = low
        if products:
            break
    return best


def _open(expr: Expr) -> Expr:
    is_closed = any(
        isinstance(factor, (Sum, Identity)) for term, _ in const_and_terms(expr)[1] for factor in factors_of(term)
    )
    return expand(expr, identity=True) if is_closed else expr


def _targets(expr: Expr, extents: Extents) -> list[Expr]:
    """The atoms to replace by their bounds: composed ones, axes, then the symbols that bound axes.

    Axes come first whose extent holds composed atoms of the expression: those atoms may cancel.
    """
    found: dict[Expr, int] = {}
    for term, _ in const_and_terms(expr)[1]:
        factors = factors_of(term)
        for factor in factors:
            is_axis = factor in extents
            if len(factors) > 1 or not isinstance(factor, Symbol) or (is_axis and as_int(extents[factor]) is None):
                found.setdefault(factor, 1 if is_axis else 2 if isinstance(factor, Symbol) else 0)
    composed = [atom for atom, rank in found.items() if rank == 0]
    for axis, extent in extents.items() if composed else ():
        if found.get(axis) == 1 and any(_holds(extent, atom) for atom in composed):
            found[axis] = -1
    return sorted(found, key=found.__getitem__)


def _holds(extent: Expr, atom: Expr) -> bool:
    """Whether an atom is a factor of a term of an extent."""
    return any(atom in factors_of(term) for term, _ in const_and_terms(extent)[1])


def _has_fraction(factor: Expr, den: Expr) -> bool:
    value, divisor = as_int(factor), as_int(den)
    return value is not None and divisor is not None and value % divisor != 0


def _split(expr: Expr, atom: Expr) -> tuple[Expr, Expr]:
    """The pair (c, rest) for which expr == c*atom + rest."""
    const, terms = const_and_terms(expr)
    factor: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    offset = 0
    for term, coefficient in terms:
        args = list(factors_of(term))
        if atom not in args:
            rest[term] = coefficient
            continue
        args.remove(atom)
        if args:
            factor[product_of(args)] = coefficient
        else:
            offset = coefficient
    return from_terms(offset, factor), from_terms(const, rest)


def _products(atom: Expr, factor: Expr, extents: Extents, fuel: int) -> list[Expr]:
    """Expressions that are at most factor * atom."""
    if isinstance(atom, FloorDiv):
        scale, remainder = divide(factor, atom.den)
        if as_int(remainder) == 0:
            return [scale * (atom.num - mod(atom.num, atom.den))]
    if _is_natural(factor, extents, fuel):
        return [factor * bound for bound in _lower(atom, extents)]
    if _is_natural(-factor, extents, fuel):
        return [factor * bound for bound in _upper(atom, extents)]
    return []


def _is_natural(expr: Expr, extents: Extents, fuel: int) -> bool:
    low = _plain(expr, extents)[0]
    if low is None or low < 0:
        low = None if isinstance(expr, Const) else _least(expr, extents, fuel // 2)
    return low is not None and low >= 0


def _lower(atom: Expr, extents: Extents) -> list[Expr]:
    low = _plain(atom, extents)[0]
    found = [] if low is None else [integer(low)]
    return [*found, *atom.args] if isinstance(atom, Max) else found


def _upper(atom: Expr, extents: Extents) -> list[Expr]:
    high = _plain(atom, extents)[1]
    found = [] if high is None else [integer(high)]
    match atom:
        case Symbol():
            extent = extents.get(atom)
            return found if extent is None or isinstance(extent, Const) else [extent - 1]
        case Mod(_, den) if not isinstance(den, Const) and (_plain(den, extents)[0] or 0) > 0:
            return [den - 1]
        case FloorDiv(num, den) if not found:
            top = _top(num, extents)
            return [] if top is None or not at_least(den, 1) else [floordiv(top, den)]
        case Min(args):
            return [*found, *args]
        case _:
            return found


def _top(expr: Expr, extents: Extents) -> Expr | None:
    """An upper bound of the expression that contains no axis with an extent; None if none is found."""
    for axis in free_symbols(expr):
        if axis not in extents:
            continue
        split = linear(expr, (axis,))
        if split is None:
            return None
        factor = split[0][axis]
        if at_least(factor, 0):
            expr = split[1] + factor * (extents[axis] - 1)
        elif at_least(-factor, 0):
            expr = split[1]
        else:
            return None
    return expr
