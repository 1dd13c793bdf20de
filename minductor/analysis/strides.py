"""How far an index moves in memory when one axis moves by one.

Takes an index expression, or a load or store, and an axis. Gives the step in elements. The step is an expression that
still contains the axis if it is not the same everywhere. Refuses (None) an access whose index is loaded from a tensor
and changes along the axis, as in a gather.

>>> from minductor.core.expressions.expr import symbol
>>> i, j = symbol("i", "axis", 0, 7), symbol("j", "axis", 0, 63)
>>> str(step_along(64 * i + j, i)), str(step_along(j // 8, i)), str(step_along(j // 8, j))
('64', '0', '-(j//8) + (j + 1)//8')
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from minductor.core.expressions.algebra import const_and_terms
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, integer, substitute
from minductor.ir.program.nodes import Atomic, Check, Load, Op, Store


@lru_cache(4096)  # each draft of a kernel and each price asks for the same few indices again
def step_along(index: Expr, axis: Symbol) -> Expr:
    """The distance, in elements, from an index to the index at the next point of an axis."""
    if axis not in free_symbols(index):
        return integer(0)
    holding = [(term, factor) for term, factor in const_and_terms(index)[1] if axis in free_symbols(term)]
    if len(holding) == 1 and holding[0][0] == axis:
        return integer(holding[0][1])
    return substitute(index, {axis: axis + 1}) - index


def step_of(op: Op, axis: Symbol) -> Expr | None:
    """The step of a load, store or atomic along an axis; None if data decide it."""
    assert isinstance(op.attrs, Load | Store | Atomic)
    index = op.attrs.index
    if axis.name in op.axes and axis not in free_symbols(index) and any(s.kind == "value" for s in free_symbols(index)):
        return None
    return step_along(index, axis)


def constant_step(op: Op, axis: Symbol) -> int | None:
    """The step along an axis if it is a known number of elements, else None."""
    found = step_of(op, axis)
    return None if found is None else as_int(found)


def even_step(op: Op, axis: Symbol) -> Expr | None:
    """The step along an axis if it is the same at each point, an expression of sizes; else None."""
    found = step_of(op, axis)
    return found if found is not None and all(s.kind == "size" for s in free_symbols(found)) else None


def row_size(op: Op, ops: Sequence[Op]) -> Expr | None:
    """The elements of the row of memory that a load reads at loaded places; None if there is no such row."""
    assert isinstance(op.attrs, Load)
    values = [s for s in free_symbols(op.attrs.index) if s.kind == "value"]
    checks = [attrs for a in op.args if isinstance(attrs := ops[a].attrs, Check) and attrs.symbol in values]
    if len(values) != 1 or len(checks) != 1 or as_int(step_along(op.attrs.index, values[0])) != 1:
        return None
    return checks[0].size
