"""Simplifies index expressions with the extents of their axes, and finds the coordinates of a flat offset.

Takes: an expression and the extents of axes; or a flat offset and a strided layout.
Gives: an equal expression with fewer divisions; or the coordinates of the element at the offset.
Refuses (None): layouts whose elements overlap, or whose strides cannot be ordered.

>>> from minductor.core.expressions.expr import symbol, integer
>>> b, t, c = symbol("b", "axis"), symbol("t", "axis"), symbol("c", "axis")
>>> B, T, C = (symbol(name, "size", 1) for name in "BTC")
>>> extents = {b: B, t: T, c: C}
>>> str(simplify((T * b + t) // T, extents)), str(simplify(T * (c // T) + c % T))
('b', 'c')
>>> [str(at) for at in delinearize((b * T + t) * C + c, (B * T, C), (C, integer(1)), extents) or ()]
['T*b + t', 'c']
>>> [str(at) for at in delinearize(12 * t + c, [integer(n) for n in (5, 3, 4)], [integer(n) for n in (12, 4, 1)],
...     {t: integer(5), c: integer(12)}) or ()]
['t', 'c//4', 'c % 4']
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from minductor.core.expressions.algebra import factors_of, from_terms, product_of
from minductor.core.expressions.bounds import NO_EXTENTS, Extents, at_least, interval, relevant_extents
from minductor.core.expressions.division import divide
from minductor.core.expressions.expr import (
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Sum,
    Symbol,
    add,
    as_expr,
    as_int,
    children,
    const_and_terms,
    expand,
    floordiv,
    index_below,
    integer,
    linear,
    maximum,
    minimum,
    mod,
    rebuild,
    substitute,
)

# A limit in case two rules undo each other, so that the compiler does not hang; no two rules are known to.
_ROUNDS = 16


def simplify(expr: Expr | int, extents: Extents = NO_EXTENTS) -> Expr:
    """An equal expression, simplified until nothing changes, which takes two or three rounds."""
    expr = as_expr(expr)
    return _simplified(expr, relevant_extents(expr, extents))


def simplify_between(expr: Expr, axis: Symbol, start: Expr, stop: Expr, extents: Extents = NO_EXTENTS) -> Expr:
    """An expression that equals `expr` for start <= axis < stop.

    >>> from minductor.core.expressions.expr import symbol
    >>> i, n = symbol("i", "axis", 0, 69), symbol("n", "size", 2)
    >>> str(simplify_between(minimum(maximum(i - 3, 3 - i), 129 - i), i, integer(3), integer(66)))
    'i - 3'
    >>> [str(simplify_between((i + 5) % n, i, *ends)) for ends in ((integer(0), (-5) % n), ((-5) % n, n))]
    ['i + n - (-5) % n', 'i - (-5) % n']
    """
    if linear(expr, [axis]) is not None:
        return expr
    step = index_below(f"{axis.name}_step", "axis", stop - start)
    inner = {**extents, step: stop - start}
    found = substitute(simplify(substitute(expr, {axis: start + step}), inner), {step: axis - start})
    if linear(found, [axis]) is None:  # counted from the end of the piece, a remainder may be simpler
        last = stop - 1
        found = substitute(simplify(substitute(expr, {axis: last - step}), inner), {step: last - axis})
    return found


@functools.lru_cache(maxsize=4096)
def _simplified(expr: Expr, items: tuple[tuple[Symbol, Expr], ...]) -> Expr:
    extents = dict(items)
    for _ in range(_ROUNDS):
        simpler = _simplify(expr, extents, {})
        if simpler is expr:
            break
        expr = simpler
    return expr


def _simplify(expr: Expr, extents: Extents, memo: dict[Expr, Expr]) -> Expr:
    if isinstance(expr, Const):
        return expr
    if isinstance(expr, Symbol):
        return _point(expr, extents)
    if expr in memo:
        return memo[expr]
    inner = [_simplify(child, extents, memo) for child in children(expr)]
    if isinstance(expr, (FloorDiv, Mod)) and inner[1] == 0:
        return expr  # a division by zero has no value to simplify
    result = rebuild(expr, inner)
    match result:
        case FloorDiv(num, den):
            result = _floordiv(num, den, extents)
        case Mod(num, den):
            result = _mod(num, den, extents)
        case Sum():
            result = _recombine(result)
        case Min(args):
            result = minimum(*_without_dominated(args, 1, extents))
        case Max(args):
            result = maximum(*_without_dominated(args, -1, extents))
        case _:
            pass
    memo[expr] = result
    return result


def _point(s: Symbol, extents: Extents) -> Expr:
    low, high = interval(s, extents)
    return integer(low) if low is not None and low == high else s


def _without_dominated(args: Sequence[Expr], sign: int, extents: Extents) -> list[Expr]:
    """The arguments of a minimum (sign 1) or maximum (sign -1) that can be the result."""
    kept = list(args)
    for arg in args:
        if any(other is not arg and at_least(sign * (arg - other), 0, extents) for other in kept):
            kept.remove(arg)
    return kept


# Divisions.


def _floordiv(num: Expr, den: Expr, extents: Extents) -> Expr:
    whole = _known_quotient(num, den, extents)
    if whole is not None:
        return whole
    if isinstance(num, Mod):
        ratio, rest = divide(num.den, den)
        if as_int(rest) == 0 and at_least(den, 0, extents) and at_least(ratio, 0, extents):
            return mod(floordiv(num.num, den), ratio)
    for part in _common_parts(num, den):
        split = _split(num, part, extents)
        ratio = divide(den, part)[0]
        if split is not None and at_least(ratio, 0, extents):
            return floordiv(split[0], ratio)
    return floordiv(num, den)


def _mod(num: Expr, den: Expr, extents: Extents) -> Expr:
    whole = _known_quotient(num, den, extents)
    if whole is not None:
        return num - whole * den
    bare = _without_inner_mods(num, den)
    if bare is not num:
        return mod(bare, den)
    for part in _common_parts(num, den):
        split = _split(num, part, extents)
        ratio = divide(den, part)[0]
        if split is not None and at_least(ratio, 0, extents):
            return part * mod(split[0], ratio) + split[1]
    return mod(num, den)


def _known_quotient(num: Expr, den: Expr, extents: Extents) -> Expr | None:
    """num//den if it is proved to have the same value everywhere, else None."""
    if isinstance(den, Const):
        low, high = interval(num, extents)
        if low is None or high is None or low // den.value != high // den.value:
            return None
        return integer(low // den.value)
    for whole in (0, -1):
        rest = num - whole * den
        if at_least(rest, 0, extents) and at_least(den - rest, 1, extents):
            return integer(whole)
    return None


def _common_parts(num: Expr, den: Expr) -> list[Expr]:
    """Common factors of den and of terms of num, apart from den itself; `_split` tries to divide num by them."""
    den_const, den_terms = const_and_terms(den)
    if den_const and den_terms:
        return []
    den_factors = factors_of(den_terms[0][0]) if len(den_terms) == 1 else ()
    den_number = den_terms[0][1] if len(den_terms) == 1 else den_const
    if len(den_terms) > 1:
        return []
    found: dict[Expr, int] = {}
    for term, coefficient in const_and_terms(num)[1]:
        left = list(factors_of(term))
        shared: list[Expr] = []
        for factor in den_factors:
            if factor in left:
                left.remove(factor)
                shared.append(factor)
        part = product_of(shared) * _gcd(den_number, coefficient)
        if part != 1 and part != den:
            found[part] = len(shared)
    return sorted(
        found, key=lambda part: (-found[part], -(const_and_terms(part)[1] or ((part, as_int(part) or 0),))[0][1])
    )


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)


def _split(num: Expr, part: Expr, extents: Extents) -> tuple[Expr, Expr] | None:
    """The pair (a, b) for which num == part*a + b and 0 <= b < part; None if that is not proved."""
    const, terms = const_and_terms(num)
    multiples: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for term, coefficient in terms:
        is_multiple = as_int(divide(from_terms(0, {term: coefficient}), part)[1]) == 0
        (multiples if is_multiple else rest)[term] = coefficient
    if not multiples:
        return None
    inner = from_terms(const, rest)
    whole = _known_quotient(inner, part, extents)
    if whole is None:
        return None
    return divide(from_terms(0, multiples), part)[0] + whole, inner - whole * part


def _without_inner_mods(num: Expr, den: Expr) -> Expr:
    """num with k*(a % m) replaced by k*a if den divides k*m; the remainder by den stays the same."""
    const, terms = const_and_terms(num)
    kept: list[Expr | int] = [const]
    is_changed = False
    for term, coefficient in terms:
        inner = next((factor for factor in factors_of(term) if isinstance(factor, Mod)), None)
        if inner is not None:
            left = list(factors_of(term))
            left.remove(inner)
            scale = product_of(left) * coefficient
            if as_int(divide(expand(scale * inner.den), den)[1]) == 0:
                kept.append(scale * inner.num)
                is_changed = True
                continue
        kept.append(term * coefficient)
    return add(*kept) if is_changed else num


# Sums.


def _recombine(expr: Expr) -> Expr:
    """Applies d*(x//d) + x % d == x, and x - d*(x//d) == x % d."""
    for term, coefficient in const_and_terms(expr)[1]:
        for factor in factors_of(term):
            if not isinstance(factor, (FloorDiv, Mod)):
                continue
            left = list(factors_of(term))
            left.remove(factor)
            scale = product_of(left) * coefficient
            found = _join(expr, factor, scale) if isinstance(factor, Mod) else _remainder(expr, factor, scale)
            if found is not None:
                return found
    return expr


def _join(expr: Expr, rest: Mod, scale: Expr) -> Expr | None:
    """Applies scale*d*(x//d) + scale*(x % d) == scale*x; None if the terms are not there."""
    whole = scale * rest.den * floordiv(rest.num, rest.den)
    return expr - whole - scale * rest + scale * rest.num if _holds(expr, whole) else None


def _remainder(expr: Expr, quotient: FloorDiv, scale: Expr) -> Expr | None:
    """Applies scale*(-d)*(x//d) + scale*x == scale*(x % d); None if the terms are not there."""
    ratio, rest = divide(scale, -quotient.den)
    if as_int(rest) != 0:
        return None
    whole = ratio * quotient.num
    if not _holds(expr, whole):
        return None
    return expr - whole - scale * quotient + ratio * mod(quotient.num, quotient.den)


def _holds(expr: Expr, part: Expr) -> bool:
    """Whether expr has all terms of `part`, with the same coefficients."""
    const, terms = const_and_terms(part)
    have = dict(const_and_terms(expr)[1])
    return (not const or const == const_and_terms(expr)[0]) and all(have.get(term) == c for term, c in terms)


# Layouts.


def delinearize(
    index: Expr | int, size: Sequence[Expr], stride: Sequence[Expr], extents: Extents = NO_EXTENTS
) -> tuple[Expr, ...] | None:
    """The coordinates of the element at a storage offset, which is taken to be an offset of the layout."""
    index = as_expr(index)
    return _coordinates(index, tuple(size), tuple(stride), relevant_extents(index, extents))


@functools.lru_cache(maxsize=4096)
def _coordinates(
    index: Expr, size: tuple[Expr, ...], stride: tuple[Expr, ...], items: tuple[tuple[Symbol, Expr], ...]
) -> tuple[Expr, ...] | None:
    extents = dict(items)
    order = _by_stride([k for k in range(len(size)) if as_int(size[k]) != 1], size, stride, extents)
    if order is None:
        return None
    found: list[Expr] = [integer(0)] * len(size)
    sizes, strides = [size[k] for k in order], [stride[k] for k in order]
    coordinates = _digits(index, sizes, strides, extents) or _remainders(index, strides, extents)
    for k, at in zip(order, coordinates, strict=True):
        found[k] = at
    return tuple(found)


def _by_stride(dims: Sequence[int], size: Sequence[Expr], stride: Sequence[Expr], extents: Extents) -> list[int] | None:
    """The dims from the largest stride to the smallest, if each stride steps over all that lies within."""
    order: list[int] = []
    for k in dims:
        place = len(order)
        while place and not at_least(stride[order[place - 1]] - stride[k], 0, extents):
            place -= 1
        order.insert(place, k)
    span: Expr = integer(1)
    for k in reversed(order):
        if not at_least(stride[k] - span, 0, extents) or not at_least(stride[k], 1, extents):
            return None
        span = span + (size[k] - 1) * stride[k]
    return order


def _digits(index: Expr, size: Sequence[Expr], stride: Sequence[Expr], extents: Extents) -> list[Expr] | None:
    """The coordinates as the digits of an index, of which each stride is a place value; None if they are not known.

    A digit that may exceed its size is carried over to the digit of the next larger stride. The outermost digit needs
    no check: it is in range because the others are.
    """
    values: list[Expr] = []
    for step in stride:
        quotient, index = divide(index, step)
        offset, number = const_and_terms(index)[0], as_int(step)
        if number is not None and offset:
            quotient, index = quotient + offset // number, index - offset // number * number
        values.append(quotient)
    if as_int(index) != 0:
        return None
    carry: Expr = integer(0)
    for k in range(len(values) - 1, 0, -1):
        value = values[k] + carry
        radix, rest = divide(stride[k - 1], stride[k])
        is_exact = as_int(rest) == 0
        if at_least(value, 0, extents) and at_least((radix if is_exact else size[k]) - value, 1, extents):
            values[k], carry = value, integer(0)
        elif is_exact:
            values[k], carry = simplify(mod(value, radix), extents), simplify(floordiv(value, radix), extents)
        else:
            return None
    return [values[0] + carry, *values[1:]] if values else []


def _remainders(index: Expr, stride: Sequence[Expr], extents: Extents) -> list[Expr]:
    """The coordinates by quotients and remainders, for strides that are not multiples of each other."""
    found: list[Expr] = []
    rest = index
    for step in stride:
        found.append(simplify(floordiv(rest, step), extents))
        rest = simplify(mod(index, step), extents)
    return found
