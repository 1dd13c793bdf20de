"""Index expressions: a small closed algebra of integers, and the relations over it.

Takes: integers and symbols that carry a kind and a range.
Gives: interned, immutable nodes in canonical form: a constructor applies only laws that hold for every value the
symbols' ranges allow, so `==` is structural and usually proves equality. `//` and `%` are floor, as in Python.
Refuses: division by the constant zero; anything that is not an integer. A division counts only where it is defined.

>>> x, y = symbol("x", "axis", 0, 7), symbol("y", "axis", 0, 3)
>>> str(4 * (x + 1) + y)
'4*x + y + 4'
>>> str((4 * x + y) // 4), str((4 * x + y) % 4)
('x', 'y')
>>> s = symbol("s", "size", 1)
>>> str((s * x + s) // s), str((6 * x + 4 * y) // 8), str((x // 2) // 3)
('x + 1', '(3*x + 2*y)//4', 'x//6')
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from minductor.core import ranges
from minductor.core.interning import TABLE, Node, intern, node
from minductor.core.ranges import Range

Kind: TypeAlias = Literal["axis", "size", "value", "block"]
Factors: TypeAlias = "tuple[Expr, ...]"
Terms: TypeAlias = "tuple[tuple[Expr, int], ...]"


class Expr(Node):
    __slots__ = ("_key", "_range")
    _key: tuple[Any, ...]
    _range: Range

    def __add__(self, other: Expr | int) -> Expr:
        return _plus(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Expr | int) -> Expr:
        return _plus(self, other, -1)

    def __rsub__(self, other: Expr | int) -> Expr:
        return _plus(_scale(self, -1), other, 1)

    def __neg__(self) -> Expr:
        return _scale(self, -1)

    def __mul__(self, other: Expr | int) -> Expr:
        return _scale(self, other) if isinstance(other, int) else _times(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Expr | int) -> Expr:
        return floordiv(other, self)

    def __mod__(self, other: Expr | int) -> Expr:
        return mod(self, other)

    def __rmod__(self, other: Expr | int) -> Expr:
        return mod(other, self)

    def __str__(self) -> str:
        from minductor.core.text import expr_text  # the printer matches on these classes

        return expr_text(self)

    @property
    def range(self) -> Range:
        """An interval from the ranges of the symbols alone; `bounds.interval` knows more."""
        try:
            return self._range
        except AttributeError:
            self._range = _own_range(self)
            return self._range

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """A structural total order: constants, products, symbols, then the others."""
        try:
            return self._key
        except AttributeError:
            self._key = _sort_key(self)
            return self._key


class Const(Expr):
    """Equal to its int, and hashed like it."""

    __slots__ = ("value",)
    __match_args__ = ("value",)
    value: int

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, int) and other == self.value)

    def __hash__(self) -> int:
        return hash(self.value)


class Symbol(Expr):
    __slots__ = ("hi", "kind", "lo", "name")
    __match_args__ = ("name", "kind", "lo", "hi")
    name: str
    kind: Kind
    lo: int | None
    hi: int | None


class Sum(Expr):
    """``const + sum(coefficient * term)``; terms sorted, none a Const or a Sum, no coefficient zero."""

    __slots__ = ("const", "terms")
    __match_args__ = ("const", "terms")
    const: int
    terms: Terms


class _Many(Expr):
    """A node over a sorted tuple of at least two arguments."""

    __slots__ = ("args",)
    __match_args__ = ("args",)
    args: Factors


class Product(_Many):
    """At least two factors, none a Const; repeats allowed."""

    __slots__ = ()

    @property
    def factors(self) -> Factors:
        return self.args


class Min(_Many):
    __slots__ = ()


class Max(_Many):
    __slots__ = ()


class _Division(Expr):
    __slots__ = ("den", "num")
    __match_args__ = ("num", "den")
    num: Expr
    den: Expr


class FloorDiv(_Division):
    __slots__ = ()


class Mod(_Division):
    __slots__ = ()


class Identity(Expr):
    """Groups its argument: nothing simplifies across it."""

    __slots__ = ("arg",)
    __match_args__ = ("arg",)
    arg: Expr


def _const(value: int) -> Const:
    return node(Const, value)


def _sum(const: int, terms: Terms) -> Sum:
    # `node`, unrolled: most of all nodes are made here
    key = (Sum, const, terms)
    entry = TABLE.get(key)
    if entry is not None:
        found = entry()
        if found is not None:
            return found
    made = object.__new__(Sum)
    made.const = const
    made.terms = terms
    return intern(key, made)


# Constructors. These are the only way to make a node; the classes themselves take what is already canonical.


def integer(value: int) -> Expr:
    return _const(int(value))


def symbol(name: str, kind: Kind, lo: int | None = 0, hi: int | None = None) -> Symbol:
    return node(Symbol, name, kind, lo, hi)


def as_expr(value: Expr | int) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, int):
        return _const(int(value))
    raise TypeError(f"an index expression is made of ints and Exprs, not {type(value).__name__}")


def as_int(expr: Expr | int) -> int | None:
    """The value of a constant, else None."""
    if isinstance(expr, Const):
        return expr.value
    return expr if isinstance(expr, int) else None


def add(*args: Expr | int) -> Expr:
    acc: dict[Expr, int] = {}
    return _from_terms(sum(_collect(acc, as_expr(arg), 1) for arg in args), acc)


def mul(*args: Expr | int) -> Expr:
    result: Expr = _const(1)
    for arg in args:
        result = result * arg
    return result


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return _floordiv_const(a, b.value) if isinstance(b, Const) else _floordiv_symbolic(a, b)


def mod(a: Expr | int, b: Expr | int) -> Expr:
    a, b = as_expr(a), as_expr(b)
    return _mod_const(a, b.value) if isinstance(b, Const) else _mod_symbolic(a, b)


def minimum(*args: Expr | int) -> Expr:
    return _extreme(Min, args, 1)


def maximum(*args: Expr | int) -> Expr:
    return _extreme(Max, args, -1)


def identity(a: Expr | int) -> Expr:
    a = as_expr(a)
    return a if isinstance(a, (Const, Symbol, Identity)) else node(Identity, a)


# Sums.


def _by_term(item: tuple[Expr, int]) -> tuple[Any, ...]:
    return item[0].sort_key


def _from_terms(const: int, acc: Mapping[Expr, int]) -> Expr:
    items = [item for item in acc.items() if item[1]]
    if len(items) > 1:
        items.sort(key=_by_term)
    return _from_sorted(const, tuple(items))


def _from_sorted(const: int, terms: Terms) -> Expr:
    if not terms:
        return _const(const)
    if const == 0 and len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    return _sum(const, terms)


def _collect(acc: dict[Expr, int], expr: Expr, factor: int) -> int:
    """Adds the terms of ``factor * expr`` to acc; its constant is the result."""
    if isinstance(expr, Sum):
        for term, coefficient in expr.terms:
            acc[term] = acc.get(term, 0) + factor * coefficient
        return factor * expr.const
    if isinstance(expr, Const):
        return factor * expr.value
    acc[expr] = acc.get(expr, 0) + factor
    return 0


def _plus(a: Expr, b: Expr | int, sign: int) -> Expr:
    if isinstance(b, (int, Const)):
        n = sign * (b if isinstance(b, int) else b.value)
        const, terms = parts(a)
        return _from_sorted(const + n, terms) if n else a
    if type(a) is Const:
        return _plus(_scale(b, sign), a, 1)
    if type(b) is Sum:
        const, terms = parts(a)
        acc = dict(terms)
        return _from_terms(const + _collect(acc, b, sign), acc)
    return _with_term(a, b, sign)


def _with_term(a: Expr, term: Expr, coefficient: int) -> Expr:
    const, terms = parts(a)
    for place, (other, present) in enumerate(terms):
        if other is term:
            coefficient += present
            new = ((term, coefficient),) if coefficient else ()
            return _from_sorted(const, terms[:place] + new + terms[place + 1 :])
    key = term.sort_key
    place = len(terms)
    while place and terms[place - 1][0].sort_key > key:
        place -= 1
    return _sum(const, (*terms[:place], (term, coefficient), *terms[place:]))


def _scale(a: Expr, n: int) -> Expr:
    if n == 1:
        return a
    if n == 0 or type(a) is Const:
        return _const(n * a.value if type(a) is Const else 0)
    if type(a) is Sum:
        return _from_sorted(n * a.const, tuple([(term, n * coefficient) for term, coefficient in a.terms]))
    return _sum(0, ((a, n),))


def parts(expr: Expr) -> tuple[int, Terms]:
    """Any expression as a constant and (term, coefficient) pairs.

    >>> x = symbol("x", "axis")
    >>> parts(4 * x + 3) == (3, ((x, 4),)), parts(x) == (0, ((x, 1),))
    (True, True)
    """
    if isinstance(expr, Sum):
        return expr.const, expr.terms
    if isinstance(expr, Const):
        return expr.value, ()
    return 0, ((expr, 1),)


# Products.


def factors_of(term: Expr) -> Factors:
    return term.args if isinstance(term, Product) else (term,)


def _by_key(expr: Expr) -> tuple[Any, ...]:
    return expr.sort_key


def _product(factors: Iterable[Expr]) -> Expr:
    args = sorted(factors, key=_by_key)
    if len(args) > 1:
        return node(Product, tuple(args))
    return args[0] if args else _const(1)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const):
        return _scale(b, a.value)
    if isinstance(b, Const):
        return _scale(a, b.value)
    if isinstance(b, Sum) and not isinstance(a, Sum):
        a, b = b, a
    if isinstance(a, Sum):
        if len(a.terms) == 1 and a.const == 0:
            return _scale(_times(a.terms[0][0], b), a.terms[0][1])
        if isinstance(b, Sum) and len(b.terms) == 1 and b.const == 0:
            return _scale(_times(a, b.terms[0][0]), b.terms[0][1])
        if any(isinstance(factor, Sum) for factor in factors_of(b)):
            return _times_sums(a, b)
        return distribute(a, b)
    return _product((*factors_of(a), *factors_of(b)))


def distribute(a: Expr, b: Expr) -> Expr:
    """a * b with no product of sums left at the top, when no term of a or b is one."""
    acc: dict[Expr, int] = {}
    const, right = parts(b)
    total = _collect(acc, a, const)
    constant, left = parts(a)
    for term, coefficient in right:
        acc[term] = acc.get(term, 0) + constant * coefficient
        for other, factor in left:
            product = _product((*factors_of(other), *factors_of(term)))
            acc[product] = acc.get(product, 0) + factor * coefficient
    return _from_terms(total, acc)


def _times_sums(a: Sum, b: Expr) -> Expr:
    """A product of sums stays one, of sums without a common factor: else (x*y + x)*(z + 1) had two forms."""
    factors: list[Expr] = []
    scale = 1
    for arg in (a, *factors_of(b)):
        if isinstance(arg, Sum):
            coefficient, common, rest = content(arg)
            scale *= coefficient
            factors += [*common, rest]
        else:
            factors.append(arg)
    return _scale(_product(factors), scale)


def content(expr: Expr) -> tuple[int, Factors, Expr]:
    """The common integer, the common factors and what is left; the first coefficient left is positive.

    >>> x, y = symbol("x", "axis"), symbol("y", "axis")
    >>> [str(part) for part in content(-2 * x * y - 4 * x)]
    ['-2', '(Symbol<x>,)', 'y + 2']
    """
    const, terms = parts(expr)
    if not terms:
        return (const, (), _const(1)) if const else (1, (), expr)
    number = math.gcd(const, *(coefficient for _, coefficient in terms))
    common: list[Expr] = [] if const else list(factors_of(terms[0][0]))
    for term, _ in terms[1:]:
        theirs = list(factors_of(term))
        common = [factor for factor in common if _take(theirs, factor)]
    acc: dict[Expr, int] = {}
    const //= number
    for term, coefficient in terms:
        left = list(factors_of(term))
        for factor in common:
            left.remove(factor)
        if left:
            acc[_product(left)] = coefficient // number
        else:
            const += coefficient // number
    rest = _from_terms(const, acc)
    if parts(rest)[1] and parts(rest)[1][0][1] < 0:
        return -number, tuple(common), -rest
    return number, tuple(common), rest


def _take(factors: list[Expr], factor: Expr) -> bool:
    if factor not in factors:
        return False
    factors.remove(factor)
    return True


# Division.


def _floordiv_const(a: Expr, n: int) -> Expr:
    if n == 0:
        raise ZeroDivisionError(f"({a})//0")
    if n < 0:
        return _floordiv_const(_scale(a, -1), -n)
    if n == 1:
        return a
    const, terms = parts(a)
    whole = {term: c // n for term, c in terms if c % n == 0}
    rest = [(term, c) for term, c in terms if c % n]
    if not rest:
        return _from_terms(const // n, whole)
    quotient, const = divmod(const, n)
    # (g*a + c)//(g*m) == (a + c//g)//m, whatever c is
    g = math.gcd(n, *(c for _, c in rest))
    part = _quotient(_from_sorted(const // g, tuple([(term, c // g) for term, c in rest])), _const(n // g))
    return _from_terms(quotient + _collect(whole, part, 1), whole)


def _quotient(a: Expr, b: Expr) -> Expr:
    """a//b for b > 0, after what divides exactly is out."""
    const, terms = parts(a)
    if len(terms) == 1 and terms[0][1] == 1 and isinstance(inner := terms[0][0], FloorDiv):
        return floordiv(inner.num + inner.den * const, inner.den * b)
    low, high = ranges.floordiv(a.range, b.range)
    return _const(low) if low is not None and low == high else node(FloorDiv, a, b)


def _mod_const(a: Expr, n: int) -> Expr:
    if n == 0:
        raise ZeroDivisionError(f"({a}) % 0")
    if n < 0:
        return -_mod_const(_scale(a, -1), -n)
    low, high = a.range
    if low is not None and high is not None and low // n == high // n:
        return a - n * (low // n)
    const, terms = parts(a)
    acc: dict[Expr, int] = {}
    for term, c in terms:
        c = int(math.copysign(abs(c) % n, c))
        if isinstance(term, Mod) and isinstance(term.den, Const) and (c * term.den.value) % n == 0:
            const += _collect(acc, term.num, c)
        else:
            acc[term] = acc.get(term, 0) + c
    rest = _from_terms(const % n, acc)
    if rest != a:
        return _mod_const(rest, n)
    # (g*a + g*q + r) % (g*m) == g*((a + q) % m) + r, for 0 <= r < g
    g = math.gcd(n, *(c for _, c in terms))
    if g == 1:
        return node(Mod, a, _const(n))
    q, r = divmod(const, g)
    return g * _mod_const(_from_sorted(q, tuple([(term, c // g) for term, c in terms])), n // g) + r


def _is_positive(expr: Expr) -> bool:
    low = expr.range[0]
    return low is not None and low > 0


def _is_reversed(expr: Expr) -> bool:
    low, high = expr.range
    return high is not None and high <= 0 and low != 0


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Exact division of polynomials: (q, r) with a == q*b + r, and r == 0 where b divides a term by term.

    >>> x, y, s = symbol("x", "axis"), symbol("y", "axis"), symbol("s", "size", 1)
    >>> [str(part) for part in divide(x * s + x + y, s + 1)]
    ['x', 'y']
    """
    const, terms = parts(b)
    if not terms:
        quotient = {term: c // const for term, c in parts(a)[1] if c % const == 0}
        whole = _from_terms(parts(a)[0] // const if parts(a)[0] % const == 0 else 0, quotient)
        return whole, a - whole * const
    lead, coefficient = max(terms, key=lambda item: (len(factors_of(item[0])), item[0].sort_key))
    quotient = {}
    total = 0
    remainder = a
    for term, c in parts(a)[1]:
        left = list(factors_of(term))
        if c % coefficient or not all(_take(left, factor) for factor in factors_of(lead)):
            continue
        step = _scale(_product(left), c // coefficient)
        product = step * b
        if len(terms) > 1 or const:
            # a step must not leave more than it takes away: s//(s + 1) is not 1 + -1//(s + 1)
            have_const, have = parts(remainder)[0], dict(parts(remainder)[1])
            want_const, want = parts(product)
            if (
                any(have.get(t, 0) * k <= 0 for t, k in want)
                or want_const * have_const < 0
                or (want_const != 0 and not have_const)
            ):
                continue
        total += _collect(quotient, step, 1)
        remainder = remainder - product
    return _from_terms(total, quotient), remainder


def _cancel(a: Expr, b: Expr) -> tuple[int, Factors, Expr, Expr]:
    """The number and factors that a and b share, and a and b without them."""
    number, left, _ = content(a)
    other, right, _ = content(b)
    theirs = list(right)
    shared = tuple(factor for factor in left if _take(theirs, factor))
    number = math.gcd(number, other)
    if number == 1 and not shared:
        return 1, (), a, b
    common = _scale(_product(shared), number)
    return number, shared, divide(a, common)[0], divide(b, common)[0]


def _floordiv_symbolic(a: Expr, b: Expr) -> Expr:
    if _is_reversed(b):
        a, b = -a, -b
    whole, rest = divide(a, b)
    if isinstance(rest, Const) and rest.value == 0:
        return whole
    _, _, num, den = _cancel(rest, b)
    if isinstance(den, Const):
        return whole + _floordiv_const(num, den.value)
    if not _is_positive(den):
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
    return _scale(_product(shared), number) * mod(num, den)


def _is_within(a: Expr, b: Expr) -> bool:
    low = a.range[0]
    return low is not None and low >= 0 and _is_positive(b - a)


# Minimum and maximum.


def _extreme(cls: type[Min] | type[Max], args: Iterable[Expr | int], sign: int) -> Expr:
    flat: list[Expr] = []
    for arg in map(as_expr, args):
        flat += arg.args if isinstance(arg, cls) else (arg,)
    if not flat:
        raise ValueError("a minimum or maximum of nothing")
    kept: list[Expr] = []
    for arg in flat:
        if any(_is_not_less(sign * (arg - other)) for other in kept):
            continue
        kept = [other for other in kept if not _is_not_less(sign * (other - arg))]
        kept.append(arg)
    return kept[0] if len(kept) == 1 else node(cls, tuple(sorted(kept, key=_by_key)))


def _is_not_less(difference: Expr) -> bool:
    low = difference.range[0]
    return low is not None and low >= 0


# What a node says about itself.


def children(expr: Expr) -> Factors:
    """The expressions that a node is made of."""
    match expr:
        case Sum():
            return tuple(term for term, _ in expr.terms)
        case Product() | Min() | Max():
            return expr.args
        case FloorDiv() | Mod():
            return expr.num, expr.den
        case Identity():
            return (expr.arg,)
        case _:
            return ()


def range_from(expr: Expr, symbol_range: Callable[[Symbol], Range], inner: Callable[[Expr], Range]) -> Range:
    """One step of interval arithmetic: `inner` gives the ranges of the children."""
    match expr:
        case Const(value):
            return value, value
        case Symbol():
            return symbol_range(expr)
        case Sum(const, terms):
            result: Range = (const, const)
            for term, coefficient in terms:
                result = ranges.add(result, ranges.scale(inner(term), coefficient))
            return result
        case Product(factors):
            return functools.reduce(ranges.mul, map(inner, factors))
        case FloorDiv(num, den):
            return ranges.floordiv(inner(num), inner(den))
        case Mod(num, den):
            return ranges.mod(inner(num), inner(den))
        case Min(args):
            return functools.reduce(ranges.minimum, map(inner, args))
        case Max(args):
            return functools.reduce(ranges.maximum, map(inner, args))
        case Identity(arg):
            return inner(arg)
        case _:
            raise TypeError(f"not an index expression: {type(expr).__name__}")


def _own_range(expr: Expr) -> Range:
    return range_from(expr, lambda s: (s.lo, s.hi), lambda child: child.range)


def _sort_key(expr: Expr) -> tuple[Any, ...]:
    match expr:
        case Const(value):
            return 0, value
        case Symbol(name, kind, lo, hi):
            stem = name.rstrip("0123456789")
            number = int(name[len(stem) :] or -1)
            return 2, stem, number, name, kind, lo is None, lo or 0, hi is None, hi or 0
        case Sum(const, terms):
            return 8, tuple((term.sort_key, coefficient) for term, coefficient in terms), const
        case _:
            return _RANKS[type(expr)], tuple(child.sort_key for child in children(expr))


_RANKS: Mapping[type[Expr], int] = MappingProxyType({Product: 1, FloorDiv: 3, Mod: 4, Min: 5, Max: 6, Identity: 7})
