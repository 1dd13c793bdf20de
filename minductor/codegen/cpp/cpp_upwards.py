"""How an accumulator takes in the elements of an axis that a loop walks upwards.

Takes a reduction and the ops by position. Gives the combine for single elements: the reduction's own, or a shorter one
for argmax and argmin whose places are indices that grow along the axis. There no later element wins a tie, so places
need no comparison; and the first place is the result where no element beats the initial value. Accumulators are joined
with each other by the reduction's own combine. Refuses nothing.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import symbol
>>> from minductor.ir.program.build import Builder, combine
>>> b = Builder()
>>> values = (b.constant(0.0, F32), b.index(symbol("i0", "axis") + 3))
>>> reduction = Op("reduce", values, Reduce(("i0",), combine("argmax", F32)), F32, ())
>>> upwards(reduction, b.__getitem__).identity
(-inf, 3)
>>> [op.name for op in upwards(reduction, b.__getitem__).body.ops]
['parameter', 'parameter', 'parameter', 'parameter', 'le', 'isnan', 'logical_or', 'where', 'where']
"""

from __future__ import annotations

from collections.abc import Callable

from minductor.core.dtypes import I64
from minductor.core.expressions.expr import as_int, free_symbols, linear
from minductor.ir.program.build import Builder, is_standard_combine
from minductor.ir.program.nodes import Combine, Index, Op, Reduce, Scan


def upwards(op: Op, op_at: Callable[[int], Op]) -> Combine:
    """The combine that takes the next element of the axis into an accumulator."""
    assert isinstance(op.attrs, Reduce | Scan)
    how = op.attrs.combine
    if not isinstance(op.attrs, Reduce) or how.name not in ("argmax", "argmin") or len(op.attrs.axes) != 1:
        return how
    place, dtype = op_at(op.args[1]).attrs, op_at(op.args[0]).dtype
    first = _first_place(place, op.attrs.axes[0]) if isinstance(place, Index) else None
    if first is None or dtype is None or not is_standard_combine(how, dtype):
        return how
    b = Builder()
    v0, i0, v1, i1 = b.parameter(0, dtype), b.parameter(1, I64), b.parameter(2, dtype), b.parameter(3, I64)
    stays = b.op("le" if how.name == "argmax" else "ge", v1, v0)
    if dtype.kind == "float":
        stays = b.op("logical_or", stays, b.op("isnan", v0))
    body = b.build([b.op("where", stays, v0, v1), b.op("where", stays, i0, i1)])
    return Combine(how.name, (how.identity[0], first), body)


def _first_place(place: Index, axis: str) -> int | None:
    """The place at the axis' beginning, if it is a number and places grow along the axis."""
    along = [s for s in free_symbols(place.expr) if s.name == axis]
    split = linear(place.expr, along)
    if split is None or len(along) != 1 or (as_int(split[0][along[0]]) or 0) <= 0:
        return None
    return as_int(split[1])
