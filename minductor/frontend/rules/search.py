"""Rules of binary search in sorted rows: searchsorted and bucketize.

Takes one sorted row, or one row for each row of values; the row's length must be known when compiling. Gives one
kernel over the values. The known length fixes the number and the length of the search steps, so that the search is
straight-line code of loads and selects, which vectorizes. Refuses (to an extern call) rows of symbolic length, rows
longer than MAX_ROW_LENGTH, and bools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minductor.core.dtypes import BOOL, I64
from minductor.core.expressions.expr import Expr, as_int, integer
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Rule, Value, promoted, rules_for
from minductor.ir.program.nodes import View

MAX_ROW_LENGTH = 1 << 20  # elements: 20 steps of a handful of operations each, which is a large kernel already


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
    """Lowers searchsorted: for each value of `x`, how many elements of its row come before it.

    `right` (or side="right") counts equal elements too. `sorter` holds the indices that sort a row. Values and rows are
    compared in their promoted dtype; a NaN sorts behind all numbers, as in eager.
    """
    length = as_int(rows.size[-1]) if rows.size else None
    compared = promoted([rows, x])
    if length is None or length > MAX_ROW_LENGTH or compared == BOOL:
        return NotImplemented
    is_right = right or side == "right"

    def found(loop: KernelBuilder) -> KernelValue:
        # rounded to its dtype, as the row's elements in memory are: 16-bit values tie often, and ties decide the index
        value = loop.load(x, None, compared).cast(compared)
        row = loop.coords[:-1] if len(rows.size) > 1 else ()

        def is_before(place: Expr) -> KernelValue:
            at = place if sorter is None else _checked_index(loop, loop.load(sorter, (*row, place)), length)
            # negated, because a comparison with NaN is false and NaN has to come last
            element = loop.load(rows, (*row, at), compared).cast(compared)
            return element.op("gt" if is_right else "ge", value).op("logical_not")

        return _search(loop, length, is_before)

    return ctx.map(found)


def _search(loop: KernelBuilder, length: int, is_before: Callable[[Expr], KernelValue]) -> KernelValue:
    """How many of the first `length` elements satisfy `is_before`, which must hold for a prefix of them.

    Unrolled bisection: before each step the answer lies in [found, found + left].
    """
    found, left = loop.term(loop.b.constant(0, I64)), length
    while left:
        half = max(left // 2, 1)
        if left == length:
            place = integer(half - 1)
        else:
            place = _checked_index(loop, found + (half - 1) if half > 1 else found, length)
        found = is_before(place).where(found + half, found)
        left -= half
    return found


def _checked_index(loop: KernelBuilder, value: KernelValue, length: int) -> Expr:
    """A computed index into a row of that length; the call raises if it is out of range."""
    return loop.b.check(value.at, integer(length), wrap=False)


def bucketize(ctx: Lowering, x: Operand, boundaries: View, *, out_int32: bool = False, right: bool = False) -> Value:
    """Lowers bucketize: searchsorted in one row of boundaries."""
    if len(boundaries.size) != 1:  # eager raises
        return NotImplemented
    return searchsorted(ctx, boundaries, x, right=right)


RULES: Mapping[str, Rule] = {
    **rules_for("searchsorted.Tensor searchsorted.Scalar", searchsorted),
    **rules_for("bucketize.Tensor bucketize.Scalar", bucketize),
}
