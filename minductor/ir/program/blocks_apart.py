"""Whether a block of what one part of a kernel reads is written by the same block of another part.

Takes the ops of a part that writes and of one that reads, and an axis of each, of the same number of elements. Gives
whether what the second part reads at an element of its axis was written at the same element of the other axis, and by
nothing else. Refuses (False) axes whose sizes are not known, atomic writes, and elements that lie otherwise.

The usual case is a sum of columns in parts. Part `i0` of column `i1` lies at `256*i0 + i1`: whatever the part, the
column is what is left over by 256.

>>> from minductor.core.expressions.expr import integer, symbol
>>> part, column = symbol("i0", "axis", 0), symbol("i1", "axis", 0)
>>> extents = {part: integer(49), column: integer(256)}
>>> [str(lies_at(index, column, extents)) for index in (256 * part + column, 49 * column + part, 64 * part + column)]
["('rows', 1, 256)", "('lines', 49, 256)", 'None']
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minductor.core.expressions.bounds import Extents, divides, interval
from minductor.core.expressions.expr import Expr, Symbol, as_int, integer, linear
from minductor.ir.program.nodes import Axis, Body, Store, body_reads, body_writes


class Part(NamedTuple):
    """Ops, the axis whose blocks are asked about, and all axes."""

    body: Body
    axis: Axis
    axes: Sequence[Axis]


def blocks_apart(writer: Part, reader: Part) -> bool:
    """Whether each block of the reader's axis needs only what the same block of the writer's axis has written."""
    written, read = ({axis.symbol: axis.extent for axis in part.axes} for part in (writer, reader))
    made = list(body_writes(writer.body))
    for load in body_reads(reader.body):
        stores = [write for write in made if write.ref == load.ref]
        places = {lies_at(store.index, writer.axis.symbol, written) for store in stores}
        if not stores:
            continue
        if not all(isinstance(store, Store) for store in stores) or None in places:
            return False
        if places != {lies_at(load.index, reader.axis.symbol, read)}:
            return False
    return True


def lies_at(index: Expr, axis: Symbol, extents: Extents) -> tuple[str, int, int] | None:
    """How the element of an axis follows from an index: a word, the step, and how many elements there are.

    "rows": by the step, from what is left over by as many; "lines": it is the whole quotient. None if it does not.
    """
    found = linear(index, [axis])
    if found is None or (count := as_int(extents[axis])) is None:
        return None
    steps, rest = found
    step = as_int(steps.get(axis, integer(0)))
    if not step or step < 0:
        return None
    if divides(step * count, rest):
        return "rows", step, count
    low, high = interval(rest, extents)
    return ("lines", step, count) if low is not None and low >= 0 and high is not None and high < step else None
