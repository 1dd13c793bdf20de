"""Marks scalar loops before which the row of memory is fetched that they read at loaded places.

Takes a schedule and its kernel. Gives the schedule in which such a loop names its loads. Refuses nothing: a loop stays
as it is if the row does not change with the loops around it, if fewer than two reads fall on a line of it, or if it
does not fit half of the first-level cache. Where only the call knows the sizes, it decides (`md_fetch_short`).

A processor foresees neither the order of such reads nor that the next row follows. If it is asked for all lines at
once, before it waits for the first, a gather along the rows of a large matrix takes two thirds of the time
(benchmarks/paired.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minductor.analysis.strides import row_size
from minductor.core.expressions.expr import Expr, as_int, free_symbols
from minductor.ir.program.loops import Loop, Schedule, edited
from minductor.ir.program.nodes import Kernel, Load, Op

LINE = 64  # bytes that a processor fetches at once
LARGEST = 16 * 1024  # bytes of a row, half of a first-level cache


def fetch_rows(schedule: Schedule, kernel: Kernel) -> Schedule:
    """The schedule in which scalar loops name the loads whose rows are fetched before them."""
    ops = kernel.body.ops
    extents = {axis.name: axis.extent for axis in kernel.axes}

    def marked(loop: Loop) -> tuple[Loop]:
        count = extents[loop.axis]
        if loop.kind != "scalar" or loop.is_blocked:
            return (loop,)
        loads = (p for p in loop.own_positions if isinstance(ops[p].attrs, Load))
        return (replace(loop, fetched=tuple(p for p in loads if _reads_a_row(ops[p], loop.axis, count, ops))),)

    return replace(schedule, steps=edited(schedule.steps, marked))


def _reads_a_row(op: Op, along: str, count: Expr, ops: Sequence[Op]) -> bool:
    """Whether a load reads `count` loaded places in a row that other loops choose, so that most lines may be read."""
    assert isinstance(op.attrs, Load) and op.dtype is not None
    size = row_size(op, ops)
    axes = [s.name for s in free_symbols(op.attrs.index) if s.kind == "axis"]
    if size is None or not axes or along in axes:
        return False
    known, reads = as_int(size), as_int(count)
    if known is None or reads is None:
        return True
    return known * op.dtype.itemsize <= min(LARGEST, LINE * reads // 2)
