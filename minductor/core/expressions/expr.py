"""The public names of index expressions and relations, and the functions that walk over them.

Takes: integers, symbols (each with a kind and a range), and the operators ``+ - * // %``, ``minimum``, ``maximum``.
Gives: immutable interned `Expr` and `Rel` values in canonical form (`==` compares structure), substitution,
evaluation, expansion and linear coefficients. `expr_parser.parse_expr` reads back what `str` prints.
Refuses: division by the constant zero.

>>> x, y, s = symbol("x", "axis", 0, 7), symbol("y", "axis", 0, 63), symbol("s", "size", 1)
>>> str(substitute(64 * x + y, {x: y // 8, y: s * (x + 1)}))
's*x + s + 64*(y//8)'
>>> evaluate(s * x + y % 5, {"s": 10, "x": 3, "y": 7})
32
>>> coefficients, rest = linear(s * x + 4 * y + s, (x, y))
>>> str(coefficients[x]), str(coefficients[y]), str(rest)
('s', '4', 's')
>>> str(lt(x, 8)), str(le(s, 128)), str(all_of(lt(x, y), le(s, 128)))
('true', 's <= 128', '(s <= 128) and (x < y)')
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from minductor.core.expressions.algebra import (
    Const,
    Expr,
    FloorDiv,
    Identity,
    Kind,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    add,
    as_expr,
    as_int,
    children,
    collect_into,
    const_and_terms,
    distribute,
    factors_of,
    from_terms,
    identity,
    index_below,
    integer,
    is_natural,
    maximum,
    minimum,
    mul,
    symbol,
)
from minductor.core.expressions.division import floordiv, mod
from minductor.core.expressions.relations import (
    FALSE,
    TRUE,
    And,
    Compare,
    CompareOp,
    FalseRel,
    Not,
    Or,
    Rel,
    TrueRel,
    all_of,
    any_of,
    compare,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    negate,
    rel_children,
)

__all__ = ["Const", "Expr", "FloorDiv", "Identity", "Kind", "Max", "Min", "Mod", "Product", "Sum", "Symbol"]
__all__ += ["And", "Compare", "CompareOp", "FALSE", "FalseRel", "Not", "Or", "Rel", "TRUE", "TrueRel"]
__all__ += ["as_expr", "as_int", "const_and_terms", "identity", "integer", "is_natural", "symbol", "index_below"]
__all__ += ["add", "floordiv", "maximum", "minimum", "mod", "mul"]
__all__ += ["all_of", "any_of", "compare", "eq", "ge", "gt", "le", "lt", "ne", "negate"]
__all__ += ["children", "evaluate", "evaluate_rel", "expand", "free_symbols", "linear", "substitute"]


def free_symbols(value: Expr | Rel) -> tuple[Symbol, ...]:
    """The symbols of an expression or relation, sorted and without repeats."""
    if isinstance(value, Symbol):
        return (value,)
    try:
        return value._free  # pyright: ignore[reportPrivateUsage]
    except AttributeError:
        found: dict[Symbol, None] = {}
        for child in children(value) if isinstance(value, Expr) else rel_children(value):
            found.update(dict.fromkeys(free_symbols(child)))
        value._free = tuple(sorted(found, key=lambda s: s.sort_key))  # pyright: ignore[reportPrivateUsage]
        return value._free  # pyright: ignore[reportPrivateUsage]


@overload
def substitute(value: Expr, mapping: Mapping[Symbol, Expr | int]) -> Expr: ...
@overload
def substitute(value: Rel, mapping: Mapping[Symbol, Expr | int]) -> Rel: ...
def substitute(value: Expr | Rel, mapping: Mapping[Symbol, Expr | int]) -> Expr | Rel:
    """The value with all symbols in `mapping` replaced at once, in canonical form."""
    memo: dict[Expr, Expr] = {key: as_expr(new) for key, new in mapping.items()}
    return _substitute(value, mapping, memo) if isinstance(value, Expr) else _substitute_rel(value, mapping, memo)


def _substitute(expr: Expr, mapping: Mapping[Symbol, Expr | int], memo: dict[Expr, Expr]) -> Expr:
    found = memo.get(expr)
    if found is not None:
        return found
    if mapping.keys().isdisjoint(free_symbols(expr)):
        return expr
    if isinstance(expr, Sum):
        acc: dict[Expr, int] = {}
        const = expr.const
        for term, factor in expr.terms:
            const += collect_into(acc, _substitute(term, mapping, memo), factor)
        result = from_terms(const, acc)
    else:
        result = rebuild(expr, tuple(_substitute(child, mapping, memo) for child in children(expr)))
    memo[expr] = result
    return result


def rebuild(expr: Expr, inner: Sequence[Expr]) -> Expr:
    """The operation of `expr` on other operands, in canonical form."""
    match expr:
        case Sum(const, terms):
            return add(const, *(child * factor for child, (_, factor) in zip(inner, terms, strict=True)))
        case Product():
            return mul(*inner)
        case FloorDiv():
            return floordiv(*inner)
        case Mod():
            return mod(*inner)
        case Min():
            return minimum(*inner)
        case Max():
            return maximum(*inner)
        case Identity():
            return identity(*inner)
        case _:
            return expr


def _substitute_rel(rel: Rel, mapping: Mapping[Symbol, Expr | int], memo: dict[Expr, Expr]) -> Rel:
    match rel:
        case Compare(op, left, right):
            return compare(op, _substitute(left, mapping, memo), _substitute(right, mapping, memo))
        case And(args):
            return all_of(*(_substitute_rel(arg, mapping, memo) for arg in args))
        case Or(args):
            return any_of(*(_substitute_rel(arg, mapping, memo) for arg in args))
        case Not(arg):
            return negate(_substitute_rel(arg, mapping, memo))
        case _:
            return rel


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    match expr:
        case Const(value):
            return value
        case Symbol(name):
            return values[name]
        case Sum(const, terms):
            return const + sum(factor * evaluate(term, values) for term, factor in terms)
        case Product(args):
            return math.prod(evaluate(arg, values) for arg in args)
        case FloorDiv(num, den):
            return evaluate(num, values) // evaluate(den, values)
        case Mod(num, den):
            return evaluate(num, values) % evaluate(den, values)
        case Min(args):
            return min(evaluate(arg, values) for arg in args)
        case Max(args):
            return max(evaluate(arg, values) for arg in args)
        case Identity(arg):
            return evaluate(arg, values)
        case _:
            raise TypeError(f"not an index expression: {type(expr).__name__}")


def evaluate_rel(rel: Rel, values: Mapping[str, int]) -> bool:
    match rel:
        case Compare(op, left, right):
            a, b = evaluate(left, values), evaluate(right, values)
            return {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b}[op]
        case And(args):
            return all(evaluate_rel(arg, values) for arg in args)
        case Or(args):
            return any(evaluate_rel(arg, values) for arg in args)
        case Not(arg):
            return not evaluate_rel(arg, values)
        case _:
            return isinstance(rel, TrueRel)


def expand(expr: Expr, *, identity: bool = False) -> Expr:
    """The expression with all products of sums multiplied out; identity=True also opens `Identity` nodes.

    >>> x, s, t = symbol("x", "axis"), symbol("s", "size"), symbol("t", "size")
    >>> str(expand((s + 1) * (t + x)))
    's*t + s*x + t + x'
    """
    inner = [expand(child, identity=identity) for child in children(expr)]
    if isinstance(expr, Product):
        return functools.reduce(distribute, inner)
    if isinstance(expr, Identity) and identity:
        return inner[0]
    if isinstance(expr, (FloorDiv, Mod)) and inner[1] == 0:
        return expr  # a division by zero has no value to simplify
    return rebuild(expr, inner)


def linear(expr: Expr, symbols: Iterable[Symbol]) -> tuple[dict[Symbol, Expr], Expr] | None:
    """The coefficients and the rest for which ``expr == sum(coefficient[s] * s) + rest``; None if it is not linear.

    No coefficient and no rest contains one of the symbols.
    """
    wanted = dict.fromkeys(symbols, None)
    found: dict[Symbol, list[Expr]] = {s: [] for s in wanted}
    const, terms = const_and_terms(expr)
    rest: list[Expr | int] = [const]
    for term, factor in terms:
        here = [s for s in free_symbols(term) if s in wanted]
        if not here:
            rest.append(term * factor)
            continue
        factors = list(factors_of(term))
        if len(here) == 1 and here[0] in factors:
            factors.remove(here[0])
            if all(here[0] not in free_symbols(left) for left in factors):
                found[here[0]].append(mul(factor, *factors))
                continue
        opened = expand(term)
        inner = None if opened == term else linear(opened * factor, wanted)
        if inner is None:
            return None
        for s, coefficient in inner[0].items():
            found[s].append(coefficient)
        rest.append(inner[1])
    return {s: add(*coefficients) for s, coefficients in found.items()}, add(*rest)
