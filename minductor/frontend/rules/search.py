"""Binary search in sorted rows: searchsorted and bucketize.

Takes a row of a size that is known, or rows that match those of the values. Gives one kernel: since the size is known,
so is each step's length, and the search is a straight line of loads and selects that vectorises. Refuses (to an extern
call) sizes that are not known, rows longer than LONGEST, and bools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import BOOL, I64
from minductor.core.expressions.expr import Expr, as_int, integer
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Operand, Term, Value, promoted
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
LONGEST = 1 << 20  # a step is a handful of operations, and a kernel has a few hundred


def searchsorted(
    ctx: Lowering,
    rows: View,
    x: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: View | None = None,
) -> Value:
    """For each value, how many elements of its row are before it; `sorter` is the order that sorts the row."""
    length = as_int(rows.size[-1]) if rows.size else None
    compared = promoted([rows, x])
    if length is None or length > LONGEST or compared == BOOL:
        return NotImplemented
    is_right = right or side == "right"

    def found(loop: Loop) -> Term:
        # as memory holds it, as the elements of the row are: ties are many among 16-bit values
        value = loop.load(x, None, compared).cast(compared)
        row = loop.coords[:-1] if len(rows.size) > 1 else ()

        def is_before(place: Expr) -> Term:
            at = place if sorter is None else _place(loop, loop.load(sorter, (*row, place)), length)
            # a NaN stands behind all: the comparison is false
            return (
                loop.load(rows, (*row, at), compared)
                .cast(compared)
                .op("gt" if is_right else "ge", value)
                .op("logical_not")
            )

        return _search(loop, length, is_before)

    return ctx.map(found)


def _search(loop: Loop, length: int, is_before: Callable[[Expr], Term]) -> Term:
    """How many of `length` elements are before: those that are come first. The answer lies in [found, found + left]."""
    found, left = loop.term(loop.b.constant(0, I64)), length
    while left:
        half = max(left // 2, 1)
        if left == length:
            place = integer(half - 1)
        else:
            place = _place(loop, found + (half - 1) if half > 1 else found, length)
        found = is_before(place).where(found + half, found)
        left -= half
    return found


def _place(loop: Loop, value: Term, length: int) -> Expr:
    return loop.b.check(value.at, integer(length), wrap=False)


def bucketize(ctx: Lowering, x: Operand, boundaries: View, *, out_int32: bool = False, right: bool = False) -> Value:
    if len(boundaries.size) != 1:  # the call raises
        return NotImplemented
    return searchsorted(ctx, boundaries, x, right=right)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.searchsorted.Tensor": searchsorted,
        "aten.searchsorted.Scalar": searchsorted,
        "aten.bucketize.Tensor": bucketize,
        "aten.bucketize.Scalar": bucketize,
    }
)
