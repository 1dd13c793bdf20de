"""Whether a value of a body is x - maximum, the maximum being that of x: then it is at most 0, or NaN.

Takes the ops of a body and a position. Gives the position of the maximum, or None for another value. Refuses nothing.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import symbol
>>> from minductor.ir.program.build import Builder, combine
>>> from minductor.ir.program.nodes import Ref
>>> row = symbol("i0", "axis")
>>> b = Builder((row,))
>>> x = b.load(Ref("x", 0), row, F32)
>>> top = b.reduce([x], ["i0"], combine("max", F32))
>>> below = b.op("sub", x, top)
>>> maximum_above(below, b.build().ops) == top, maximum_above(top, b.build().ops)
(True, None)
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.ir.program.nodes import Op, Reduce


def maximum_above(position: int, ops: Sequence[Op]) -> int | None:
    """If the value at that position is x - maximum of x: the position of this maximum; else None."""
    below = ops[position]
    if below.name != "sub":
        return None
    x, top = below.args
    attrs = ops[top].attrs
    is_maximum = isinstance(attrs, Reduce) and attrs.combine.name == "max" and ops[top].args[0] == x
    return top if is_maximum else None
