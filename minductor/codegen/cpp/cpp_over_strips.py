"""The call that computes one function for the elements of a strip.

Takes a loop, the ops by position and the arrays (rows) that are in scope. Gives the call that replaces a vector loop of
one function, whose operands and result are rows. Leaves out (refuses) every other loop. A unit has the function of a
strip once, which takes g++ a small part of the time that it needs for the function in every loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.codegen.cpp.cpp_arrays import Array
from minductor.codegen.cpp.cpp_math import over_strip
from minductor.codegen.cpp.cpp_values import Values
from minductor.ir.program.loops import Loop
from minductor.ir.program.nodes import Op
from minductor.ir.program.ops import FUNCTION, op_cost


def call_over_strip(
    loop: Loop, ops: Sequence[Op], rows: Mapping[int, Array], values: Values, ends: tuple[str, str]
) -> dict[int, str]:
    """By op the call that replaces a loop, which runs from the first of `ends` to the second; empty for other loops."""
    position = loop.body[0]
    if loop.kind != "vector" or loop.lanes or len(loop.body) > 1 or isinstance(position, Loop):
        return {}
    op = ops[position]
    places = [_place(rows.get(p), loop.axis, ends[0]) for p in (*op.args, position)]
    dtypes = [d for a in op.args if (d := ops[a].dtype) is not None]
    if op.attrs is not None or op_cost(op.name) < FUNCTION or not all(places) or {*dtypes} != {op.dtype}:
        return {}
    function, _, given = values.expression(op, ["x"] * len(dtypes), dtypes).partition("(")
    name = over_strip(function) if given == ", ".join("x" * len(dtypes)) + ")" else ""
    length = ends[1] if ends[0] == "0" else f"{ends[1]} - {ends[0]}"
    return {position: f"{name}({', '.join((*places, length))});"} if name else {}


def _place(row: Array | None, axis: str, start: str) -> str:
    """The address of a row's element at which a loop begins; "" if this is no row along the axis."""
    if row is None or not row.name or [dim.axis for dim in row.dims] != [axis]:
        return ""
    first = row.dims[0].start or "0"
    offset = "" if first == start else f" + {start}" if first == "0" else f" + {start} - {first}"
    return row.name + offset
