"""Sizes, conditions and scalar computations of a wrapper, in C++.

Takes index expressions, relations and bodies of scalars. Gives expressions in int64_t, double and bool. Refuses
(NotNative) operators whose Python results are unbounded, or that raise in Python and not in C++: such plans get the
Python wrapper.

>>> from minductor.core.expressions.expr import lt, symbol
>>> s = symbol("s0", "size", 1)
>>> relation(lt(s, 8)), literal(float("inf")), literal(2)
('s0 < 8', 'MD_INF', '2')
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.operator_spelling import BITWISE, INFIX
from minductor.core.errors import NotNative
from minductor.core.expressions.algebra import Product, Sum, children
from minductor.core.expressions.expr import And, Compare, Expr, FalseRel, Not, Or, Rel, Symbol, TrueRel
from minductor.ir.plan.plan import SizeOf
from minductor.ir.program.nodes import Body, Constant, Index

# The C++ type of a number, by the kind of its symbol; and the letter that `md_Graph` has for it.
TYPES: Mapping[str, str] = {"size": "int64_t", "real": "double", "truth": "bool"}
LETTERS: Mapping[str, str] = {"size": "i", "real": "d", "truth": "b"}
FIELDS: Mapping[str, str] = {"i": "integer", "d": "real", "b": "integer"}

_ARITHMETIC: Mapping[str, str] = {
    **{name: f"({{}} {sign} {{}})" for name, sign in INFIX.items()},
    "neg": "(-{})",
    "logical_and": "({} && {})",
    "logical_or": "({} || {})",
    "logical_not": "(!{})",
    "where": "({} ? {} : {})",
}
_INTEGER: Mapping[str, str] = {
    "maximum": "md_index_max({}, {})",
    "minimum": "md_index_min({}, {})",
    **{name: f"({{}} {sign} {{}})" for name, sign in BITWISE.items()},
}
_REAL: Mapping[str, str] = {
    "abs": "__builtin_fabs({})",
    "floor": "__builtin_floor({})",
    "ceil": "__builtin_ceil({})",
    "trunc": "__builtin_trunc({})",
    "round": "__builtin_rint({})",
}


def relation(rel: Rel) -> str:
    """A relation between index expressions, in C++."""
    match rel:
        case Compare(op, left, right):
            return f"{index_text(left)} {op} {index_text(right)}"
        case And(args) | Or(args):
            sign = " && " if isinstance(rel, And) else " || "
            return sign.join(f"({relation(arg)})" for arg in args)
        case Not(arg):
            return f"!({relation(arg)})"
        case TrueRel() | FalseRel():
            return "true" if isinstance(rel, TrueRel) else "false"
        case _:
            raise TypeError(f"not a relation: {rel}")


def magnitudes(expr: Expr) -> Iterator[str]:
    """Upper bounds of each sum and product in an expression, as doubles: integers are bounded in C++ only.

    >>> from minductor.core.expressions.expr import symbol
    >>> s = symbol("s0", "size")
    >>> list(magnitudes(s * s)), list(magnitudes(s))
    (['md_magnitude(s0) * md_magnitude(s0)'], [])
    """
    if isinstance(expr, Sum | Product):
        yield _magnitude(expr)
    for child in children(expr):
        yield from magnitudes(child)


def _magnitude(expr: Expr) -> str:
    match expr:
        case Sum(const, terms):
            return " + ".join([f"{abs(const)}.0", *(f"{abs(scale)}.0 * ({_magnitude(term)})" for term, scale in terms)])
        case Product(factors):
            return " * ".join(f"({_magnitude(f)})" if isinstance(f, Sum) else _magnitude(f) for f in factors)
        case _:
            return f"md_magnitude({index_text(expr)})"


def truth(condition: Rel | Body) -> str:
    """The condition of an assertion, in C++."""
    return scalar(condition, condition.results[0]) if isinstance(condition, Body) else relation(condition)


def source(value: str | SizeOf | Body) -> str:
    """The value that a symbol is defined as, in C++."""
    match value:
        case SizeOf(tensor, dim, scale, shift):
            size = f"md_size({tensor}, {dim})" if not shift else f"(md_size({tensor}, {dim}) - {shift})"
            return size if scale == 1 else f"md_index_div({size}, {scale})"
        case str():
            return value
        case Body(results=(result,)):
            return scalar(value, result)
        case Body():
            raise ValueError("a size is one number")


def scalar(body: Body, position: int) -> str:
    """A value of a body that reads no tensor, in C++."""
    op = body.ops[position]
    given = [scalar(body, a) for a in op.args]
    kinds = {found.kind for a in op.args if (found := body.ops[a].dtype) is not None}
    match op.attrs:
        case Constant(value) if isinstance(value, bool | int | float):
            return literal(value)
        case Index(expr):
            return f"({index_text(expr)})"
        case None if op.name == "cast" and op.dtype is not None and op.dtype.kind in ("float", "bool"):
            return f"({'double' if op.dtype.kind == 'float' else 'bool'})({given[0]})"
        case None if op.name == "cast" and op.dtype is not None and op.dtype.kind == "int" and kinds <= {"int", "bool"}:
            return f"(int64_t)({given[0]})"
        case None if op.name == "mul" and kinds == {"int"} and not any(_is_size(body, a) for a in op.args):
            raise NotNative("a product of numbers that may not fit in an int64")
        case None if op.name in _ARITHMETIC:
            return _ARITHMETIC[op.name].format(*given)
        case None if op.name in _INTEGER and kinds == {"int"}:
            return _INTEGER[op.name].format(*given)
        case None if op.name in _REAL and kinds == {"float"}:
            return _REAL[op.name].format(*given)
        case _:
            raise NotNative(f"a number that {op.name} computes")


def _is_size(body: Body, position: int) -> bool:
    """Whether a value is a constant or cannot be negative. Memory bounds the products of such values."""
    match body.ops[position].attrs:
        case Index(expr):
            return expr.range[0] is not None and expr.range[0] >= 0
        case Constant():
            return True
        case _:
            return False


def literal(value: bool | int | float) -> str:
    """A constant as C++ writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return "INT64_MIN" if value == -(1 << 63) else str(value)
        case float():
            if math.isfinite(value):
                return repr(value)
            return "MD_NAN" if math.isnan(value) else "MD_INF" if value > 0 else "-MD_INF"


def letter(symbol: Symbol) -> str:
    """The letter that `md_Graph` has for a number of this kind."""
    return LETTERS[symbol.kind]
