"""Floor division and remainder of index expressions, rounded as in Python: the operators `//` and `%` of `Expr`.

Takes: a numerator and a denominator in canonical form. A denominator may be a symbol's value.
Gives: the quotient and the remainder in canonical form, with every term that divides exactly taken out of the division.
A rule here may assume that the denominator is not zero.
Refuses: the constant denominator zero, with ZeroDivisionError.

>>> from minductor.core.expressions.algebra import symbol
>>> x, y, s = symbol("x", "axis", 0, 7), symbol("y", "axis", 0, 3), symbol("s", "size", 1)
>>> str(floordiv(4 * x + y, 4)), str(mod(4 * x + y, 4)), str(mod(4 * x + 2 * y + 1, 8))
('x', 'y', '2*((2*x + y) % 4) + 1')
>>> str(floordiv(s * x + s * y + x, s)), str(mod(s * x + y, s)), str(floordiv(floordiv(x, 2), 3))
('x + y + x//s', 'y % s', 'x//6')
"""

from __future__ import annotations

import math

from minductor.core.expressions import intervals
from minductor.core.expressions.algebra import (
    Const,
    Expr,
    Factors,
    FloorDiv,
    Mod,
    as_expr,
    collect_into,
    const_and_terms,
    constant,
    content,
    divide_out,
    factors_of,
    from_sorted,
    from_terms,
    is_natural,
    product_of,
    scaled,
    take_out,
)
from minductor.core.expressions.interning import node


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return _floordiv_const(a, b.value) if isinstance(b, Const) else _floordiv_symbolic(a, b)


def mod(a: Expr | int, b: Expr | int) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return _mod_const(a, b.value) if isinstance(b, Const) else _mod_symbolic(a, b)


def _floordiv_const(a: Expr, n: int) -> Expr:
    if n == 0:
        raise ZeroDivisionError(f"({a})//0")
    if n < 0:
        return _floordiv_const(scaled(a, -1), -n)
    if n == 1:
        return a
    const, terms = const_and_terms(a)
    whole = {term: c // n for term, c in terms if c % n == 0}
    rest = [(term, c) for term, c in terms if c % n]
    if not rest:
        return from_terms(const // n, whole)
    quotient, const = divmod(const, n)
    # (g*a + c)//(g*m) == (a + c//g)//m, whatever c is
    g = math.gcd(n, *(c for _, c in rest))
    part = _quotient(from_sorted(const // g, tuple([(term, c // g) for term, c in rest])), constant(n // g))
    return from_terms(quotient + collect_into(whole, part, 1), whole)


def _quotient(a: Expr, b: Expr) -> Expr:
    """a//b for b > 0, where no term of a is a multiple of b."""
    const, terms = const_and_terms(a)
    if len(terms) == 1 and terms[0][1] == 1 and isinstance(inner := terms[0][0], FloorDiv):
        return floordiv(inner.num + inner.den * const, inner.den * b)
    low, high = intervals.floordiv(a.range, b.range)
    return constant(low) if low is not None and low == high else node(FloorDiv, a, b)


def _mod_const(a: Expr, n: int) -> Expr:
    if n == 0:
        raise ZeroDivisionError(f"({a}) % 0")
    if n < 0:
        return -_mod_const(scaled(a, -1), -n)
    low, high = a.range
    if low is not None and high is not None and low // n == high // n:
        return a - n * (low // n)
    const, terms = const_and_terms(a)
    acc: dict[Expr, int] = {}
    for term, c in terms:
        c = int(math.copysign(abs(c) % n, c))
        if isinstance(term, Mod) and isinstance(term.den, Const) and (c * term.den.value) % n == 0:
            const += collect_into(acc, term.num, c)
        else:
            acc[term] = acc.get(term, 0) + c
    rest = from_terms(const % n, acc)
    if rest != a:
        return _mod_const(rest, n)
    # (g*a + g*q + r) % (g*m) == g*((a + q) % m) + r, for 0 <= r < g
    g = math.gcd(n, *(c for _, c in terms))
    if g == 1:
        return node(Mod, a, constant(n))
    q, r = divmod(const, g)
    return g * _mod_const(from_sorted(q, tuple([(term, c // g) for term, c in terms])), n // g) + r


def _is_reversed(expr: Expr) -> bool:
    low, high = expr.range
    return high is not None and high <= 0 and low != 0


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Division of polynomials: (q, r) with a == q*b + r, and r == 0 if b divides a term by term.

    >>> from minductor.core.expressions.algebra import symbol
    >>> x, y, s = symbol("x", "axis"), symbol("y", "axis"), symbol("s", "size", 1)
    >>> [str(part) for part in divide(x * s + x + y, s + 1)]
    ['x', 'y']
    """
    const, terms = const_and_terms(b)
    if not terms:
        quotient = {term: c // const for term, c in const_and_terms(a)[1] if c % const == 0}
        whole = from_terms(const_and_terms(a)[0] // const if const_and_terms(a)[0] % const == 0 else 0, quotient)
        return whole, a - whole * const
    lead, coefficient = max(terms, key=lambda item: (len(factors_of(item[0])), item[0].sort_key))
    quotient: dict[Expr, int] = {}
    total = 0
    remainder = a
    for term, c in const_and_terms(a)[1]:
        left = list(factors_of(term))
        if c % coefficient or not all(take_out(left, factor) for factor in factors_of(lead)):
            continue
        step = scaled(product_of(left), c // coefficient)
        product = step * b
        if len(terms) > 1 or const:
            # Skip a step that adds terms to the remainder: s//(s + 1) must not become 1 + -1//(s + 1).
            have_const, have = const_and_terms(remainder)[0], dict(const_and_terms(remainder)[1])
            want_const, want = const_and_terms(product)
            if (
                any(have.get(t, 0) * k <= 0 for t, k in want)
                or want_const * have_const < 0
                or (want_const != 0 and not have_const)
            ):
                continue
        total += collect_into(quotient, step, 1)
        remainder = remainder - product
    return from_terms(total, quotient), remainder


def _cancel(a: Expr, b: Expr) -> tuple[int, Factors, Expr, Expr]:
    """The common number and factors of a and b, and a and b divided by them."""
    number, left, _ = content(a)
    other, right, _ = content(b)
    theirs = list(right)
    shared = tuple(factor for factor in left if take_out(theirs, factor))
    number = math.gcd(number, other)
    if number == 1 and not shared:
        return 1, (), a, b
    return number, shared, divide_out(a, number, shared), divide_out(b, number, shared)


def _floordiv_symbolic(a: Expr, b: Expr) -> Expr:
    if _is_reversed(b):
        a, b = -a, -b
    whole, rest = divide(a, b)
    if isinstance(rest, Const) and rest.value == 0:
        return whole
    _, _, num, den = _cancel(rest, b)
    if isinstance(den, Const):
        return whole + _floordiv_const(num, den.value)
    if not is_natural(den):  # a denominator that is at least zero is positive, since it is never zero
        return whole + node(FloorDiv, num, den)
    if _is_within(num, den):
        return whole
    return whole + _quotient(num, den)


def _mod_symbolic(a: Expr, b: Expr) -> Expr:
    if _is_reversed(b):
        return -mod(-a, -b)
    _, rest = divide(a, b)
    if isinstance(rest, Mod) and divide(rest.den, b)[1] == 0:
        return mod(rest.num, b)
    if rest == 0 or _is_within(rest, b):
        return rest
    number, shared, num, den = _cancel(rest, b)
    if number == 1 and not shared:
        return node(Mod, rest, b)
    return scaled(product_of(shared), number) * mod(num, den)


def _is_within(a: Expr, b: Expr) -> bool:
    return is_natural(a) and is_natural(b - a - 1)


# `algebra` cannot import this file, which is written in terms of its nodes: the operators are added from here.
Expr.__floordiv__ = floordiv
Expr.__rfloordiv__ = lambda self, other, /: floordiv(other, self)
Expr.__mod__ = mod
Expr.__rmod__ = lambda self, other, /: mod(other, self)
