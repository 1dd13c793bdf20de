"""Bounds of an integer value of a body, as index expressions; with them a bounds check can be proved unnecessary.

Takes the ops of a body and a position. Gives the least and the greatest value, each None if it is not known.
Refuses nothing.

>>> from minductor.core.dtypes import I64
>>> from minductor.core.expressions.expr import symbol
>>> from minductor.ir.program.build import Builder
>>> from minductor.ir.program.nodes import Ref
>>> b = Builder((symbol("i0", "axis", 0, 7),))
>>> loaded = b.load(Ref("arg0", 0), b.axes[0], I64)
>>> _ = b.op("minimum", b.op("maximum", loaded, b.constant(0, I64)), b.index(symbol("s0", "size", 1) - 1))
>>> tuple(map(str, value_bounds(b.build().ops, len(b) - 1)))
('0', 's0 - 1')
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from minductor.core.dtypes import I64
from minductor.core.expressions.algebra import maximum, minimum
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, integer
from minductor.ir.program.nodes import Constant, Index, Op

Bounds = tuple[Expr | None, Expr | None]
NOTHING: Bounds = (None, None)
DEPTH = 8  # how many operators the search follows from the value towards its arguments


def value_bounds(ops: Sequence[Op], position: int, depth: int = DEPTH) -> Bounds:
    """The bounds (both included) of the value at that position."""
    op = ops[position]
    match op.attrs:
        case Index(expr):
            return expr, expr
        case Constant(value) if isinstance(value, int):
            return integer(int(value)), integer(int(value))
        case None if op.dtype is not None and op.dtype.kind in ("int", "uint") and depth:
            return _pointwise(ops, op, depth - 1)
        case _:
            return NOTHING


def _arithmetic(name: str, args: Sequence[Bounds]) -> Bounds:
    """The bounds of a sum, difference or product; of a product only if both factors are known exactly."""
    (low, high), (other_low, other_high) = args
    match name:
        case "add":
            return _both(low, other_low, Expr.__add__), _both(high, other_high, Expr.__add__)
        case "sub":
            return _both(low, other_high, Expr.__sub__), _both(high, other_low, Expr.__sub__)
        case _:
            exact = _both(low, other_low, Expr.__mul__) if low == high and other_low == other_high else None
            return exact, exact


def _are_exact(args: Sequence[Bounds]) -> bool:
    return all(low is not None and low == high for low, high in args)


def _divided(name: str, value: Expr | None, by: Expr) -> Bounds:
    """The bounds of a floor division or remainder of a known number by a positive known number."""
    if value is None or not at_least(by, 1):
        return NOTHING
    exact = value // by if name == "floordiv" else value % by
    return exact, exact


def _both(a: Expr | None, b: Expr | None, join: Callable[[Expr, Expr], Expr]) -> Expr | None:
    return None if a is None or b is None else join(a, b)


def _all(values: Sequence[Expr | None], choose: Callable[[Expr, Expr], Expr]) -> Expr | None:
    """A bound that holds if any of the values may be the result; None if one of them has no bound."""
    known = [value for value in values if value is not None]
    return reduce(choose, known) if known and len(known) == len(values) else None


def _tighter(values: Sequence[Expr | None], choose: Callable[[Expr, Expr], Expr]) -> Expr | None:
    """The tightest of the bounds that are known; None if none is."""
    known = [value for value in values if value is not None]
    return reduce(choose, known) if known else None


def _is_exact(before: Op, after: Op) -> bool:
    """Whether a cast keeps every value: from bool or integers to a dtype that has all of them."""
    a, b = before.dtype, after.dtype
    if a is None or b is None or a.kind not in ("bool", "int", "uint"):
        return False
    return a.kind == "bool" or (int(a.min_value) >= int(b.min_value) and int(a.max_value) <= int(b.max_value))


def _of_dtype(op: Op) -> Bounds:
    """The least and the greatest value of the op's dtype."""
    assert op.dtype is not None
    if op.dtype.kind == "bool":
        return integer(0), integer(1)
    return integer(int(op.dtype.min_value)), integer(int(op.dtype.max_value))


def _pointwise(ops: Sequence[Op], op: Op, depth: int) -> Bounds:
    args = [value_bounds(ops, a, depth) for a in op.args]
    lows, highs = [low for low, _ in args], [high for _, high in args]
    match op.name:
        case "maximum":
            return _tighter(lows, maximum), _all(highs, maximum)
        case "minimum":
            return _all(lows, minimum), _tighter(highs, minimum)
        case "where":
            return _all(lows[1:], minimum), _all(highs[1:], maximum)
        case "add" | "sub" | "mul" if op.dtype == I64:
            return _arithmetic(op.name, args)
        case "floordiv" | "mod" if op.dtype == I64 and _are_exact(args) and (by := lows[1]) is not None:
            return _divided(op.name, lows[0], by)
        case "mod" if lows[1] is not None and highs[1] is not None and at_least(lows[1], 1):
            return integer(0), highs[1] - 1
        case "bitwise_and":
            mask = next((high for low, high in args if low is not None and at_least(low, 0)), None)
            return (None, None) if mask is None else (integer(0), mask)
        case "cast" if _is_exact(ops[op.args[0]], op):
            return args[0] if args[0] != NOTHING else _of_dtype(ops[op.args[0]])
        case _:
            return NOTHING
