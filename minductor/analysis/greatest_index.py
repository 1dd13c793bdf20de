"""The greatest index of a kernel: whether 32 bits hold all of its indices, always or for some sizes of a call.

Takes a Kernel. Gives an expression of sizes that no index, no extent and no operand of a division exceeds. Refuses
(None) kernels whose indices have no such bound, as for a number that may be negative. Sums and products may exceed it
on their way to a result that does not: they wrap around there and back.

Adding and multiplying numbers of 64 bits takes a GPU several instructions, and dividing them more than a hundred.

>>> from minductor.core.expressions.expr import symbol
>>> s0, s1 = symbol("s0", "size", 0), symbol("s1", "size", 0)
>>> i, j = symbol("i", "axis"), symbol("j", "axis")
>>> sorted(map(str, bounds([s1 * i + j], {i: s0, j: s1})))
['s0*s1 + s1']
>>> bounds([s1 * i + symbol("n", "size", None)], {i: s0}) is None
True
"""

from __future__ import annotations

from collections.abc import Iterable

from minductor.core.expressions.bounds import Extents, fits_int32
from minductor.core.expressions.expr import (
    Const,
    Expr,
    FloorDiv,
    Identity,
    Max,
    Min,
    Mod,
    Product,
    Sum,
    Symbol,
    integer,
    is_natural,
    maximum,
)
from minductor.ir.artefact.launch_metadata import MOST_IN_INT32
from minductor.ir.program.nodes import Atomic, Check, Index, Kernel, Load, Store, all_ops

# Elements of the largest block that Triton allows. The last block of an axis may reach so far beyond its end.
LARGEST_BLOCK = 1 << 20


def greatest_index(kernel: Kernel) -> Expr | None:
    """The bound of all indices of a kernel; 0 if 32 bits are proved to hold them; None if nothing bounds them."""
    limits = {axis.symbol: axis.extent for axis in kernel.axes}
    indices: list[Expr] = []
    for op in all_ops(kernel.body):
        match op.attrs:
            case Load(_, index) | Store(_, index) | Atomic(_, index, _):
                indices.append(index)
            case Index(expr) if not (isinstance(expr, Symbol) and expr.kind in ("real", "truth")):
                indices.append(expr)
            case Check(symbol, size):
                limits[symbol] = size
                indices.append(size)  # compared with the index, which may be multiplied by 0
            case _:
                pass
    needed = [*(axis.extent + LARGEST_BLOCK for axis in kernel.axes), *indices]
    found = bounds([expr for expr in needed if not fits_int32(expr, limits)], limits)
    if found is None:
        return None
    most = maximum(*found) if found else integer(0)
    if not isinstance(most, Const):
        return most
    return integer(0) if most.value <= MOST_IN_INT32 else None


class _Unbounded(Exception):
    """Nothing bounds an expression."""


def bounds(exprs: Iterable[Expr], limits: Extents) -> list[Expr] | None:
    """What the expressions, and the operands of divisions in them, do not exceed; None if nothing bounds them.

    `limits`: the extent of each axis, and the size that a checked index stays below.
    """
    found: dict[Expr, None] = {}
    try:
        for expr in exprs:
            found[_bound(expr, limits, found)] = None
    except _Unbounded:
        return None
    return list(found)


def _bound(expr: Expr, limits: Extents, found: dict[Expr, None]) -> Expr:
    """What the magnitude of an expression does not exceed.

    `found` takes the bounds of what is divided.
    """
    match expr:
        case Const(value):
            return integer(abs(value))
        case Symbol(kind="size") if is_natural(expr):
            return expr
        case Symbol() if expr in limits:
            return limits[expr]
        case Sum(const, terms):
            total = integer(abs(const))
            for term, coefficient in terms:
                total += abs(coefficient) * _bound(term, limits, found)
            return total
        case Product(args):
            product = integer(1)
            for arg in args:
                product *= _bound(arg, limits, found)
            return product
        case FloorDiv(num, den) | Mod(num, den):
            whole, divisor = (_bound(part, limits, found) for part in (num, den))
            found.update({whole: None, divisor: None})
            return whole if isinstance(expr, FloorDiv) else divisor
        case Min(args) | Max(args):
            return maximum(*(_bound(arg, limits, found) for arg in args))
        case Identity(inner):
            return _bound(inner, limits, found)
        case _:
            raise _Unbounded
