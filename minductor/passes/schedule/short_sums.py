"""Cuts long sums into blocks with sums of their own, since errors grow with the length of a sum.

Takes the levels of a draft for a CPU. Gives them with a level for each length of block. Refuses nothing. The blocks
follow from shapes alone, so that the bits of a sum depend neither on threads nor on the sizes that a call is expected
to bring: a length that only the call knows counts as a very long one, and codegen skips the blocks of short rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.ir.program.nodes import Op, Reduce
from minductor.passes.schedule.draft import Draft, Level

LANES = 64  # accumulators of a vector loop along a reduced axis, as it is assumed here
LONG_RUN = 16  # additions into one accumulator, one after the other; more are summed in blocks of so many
LANE_RUN = 32  # as LONG_RUN, along a row, whose lanes are added as a tree; and for a kernel that reduces both ways
SHORT_RUN = 8  # additions; fewer are not worth an accumulator of their own
LONGEST_ROW = 1 << 26  # elements of a row whose length only the call knows
LONGEST_COLUMN = 1 << 15  # as LONGEST_ROW, of a column
SUMS = ("sum", "welford", "online_softmax")


def short_sums(draft: Draft, rows: int) -> list[Level]:
    """The levels of a draft with blocks around long sums. `rows`: how many rows `group` adds at a time."""
    levels, reduced = draft.levels, draft.touches.reduced
    made: list[Level] = []
    run = 1
    for number, level in reversed(list(enumerate(levels))):
        if level.axis not in reduced or level.is_blocked:
            made.append(level)
            continue
        most = LANE_RUN if _has_lanes(level) or draft.is_both_ways else LONG_RUN
        group = rows if number == len(levels) - 2 else 1
        is_inmost = not any(inner.axis in reduced for inner in levels[number + 1 :])
        count = -(-_run_length(draft, level, levels[:number], is_inmost=is_inmost) // group)
        if run * count > LONG_RUN and run >= SHORT_RUN:
            last = next(n for n in reversed(range(len(made))) if made[n].axis in reduced)
            made[last] = made[last]._replace(is_partial=True)
            run = 1
        if count > most:
            width = LANES if _has_lanes(level) else group
            made.append(level._replace(is_partial=True))
            while count > most:
                width, count = width * most, -(-count // most)
                made.append(draft.level(level.axis, "serial", block=width)._replace(is_partial=count > most))
            run = count
        else:
            made.append(level)
            run *= count
    return made[::-1]


def _run_length(draft: Draft, level: Level, outside: Sequence[Level], *, is_inmost: bool) -> int:
    """How many elements one run of a loop adds to each accumulator."""
    around = next((outer for outer in outside if outer.axis == level.axis), None)
    if around is not None and around.block:
        extent = around.block
    elif is_inmost and level.extent is None:
        extent = LONGEST_ROW if _has_lanes(level) else LONGEST_COLUMN
    else:
        extent = draft.size(level.axis)
    return -(-extent // LANES) if _has_lanes(level) else extent


def _has_lanes(level: Level) -> bool:
    """Whether a reduction along the loop has several accumulators."""
    return level.kind == "vector" or level.has_lanes


def is_long_sum(op: Op, axis: str) -> bool:
    """Whether an op is a sum of floats along an axis, whose rounding error grows with its length."""
    is_rounded = op.dtype is not None and op.dtype.kind == "float"
    return is_rounded and isinstance(op.attrs, Reduce) and axis in op.attrs.axes and op.attrs.combine.name in SUMS
