"""Adds several rows at a time where columns are summed: sums lose fewer digits, and accumulators are loaded less often.

Takes a schedule, its body and the extents of the axes. Gives the schedule in which loops over rows run over groups of
rows instead. The vector loop inside adds the terms of one group as a tree, then the result to the accumulator. Refuses
(None) if a loop with a sum of floats cannot be grouped: it contains checks, reductions of several values, a maximum, or
too many operations outside of the vector loop. The caller then cuts the sum into blocks instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.nodes import Assert, Body, Check, Masked, Op, Reduce, Scan
from minductor.ir.program.ops import op_cost
from minductor.passes.schedule.short_sums import is_long_sum

GROUPED = ("sum", "prod")  # of floats
ROWS = 8  # of a group, if a term takes at most COSTLY operations
COSTLY_ROWS = 4  # of a group, if it takes more: the text of a term is repeated for each row
COSTLY = 24  # operations of a term
SCALARS = 16  # operations beside the vector loop that may move into it; the C++ compiler moves them out again


def group(schedule: Schedule, body: Body, extents: Mapping[str, int | None]) -> Schedule | None:
    """The schedule with grouped rows; the same object if there is nothing to group; None if a sum cannot be grouped."""
    grouper = _Grouper(schedule, body)
    steps = grouper.steps(schedule.steps, extents)
    return None if grouper.is_refused else replace(schedule, steps=steps)


class _Grouper:
    """Groups the rows of one schedule. `is_refused`: a sum of floats could not be grouped."""

    def __init__(self, schedule: Schedule, body: Body) -> None:
        self.ops = body.ops
        self.rows = frozenset(schedule.kept_rows)
        self.is_refused = False

    def steps(self, steps: tuple[Step, ...], spans: Mapping[str, int | None]) -> tuple[Step, ...]:
        return tuple(self.loop(step, spans) if isinstance(step, Loop) else step for step in steps)

    def loop(self, loop: Loop, spans: Mapping[str, int | None]) -> Loop:
        """The loop over groups of rows if it can be grouped, else the loop with its inner loops grouped."""
        inner = [step for step in loop.body if isinstance(step, Loop)]
        is_row = loop.kind == "serial" and not loop.is_blocked and len(inner) == 1 and inner[0].kind == "vector"
        body = inner[0].own_positions if is_row else ()
        is_row = is_row and spans[loop.axis] != 1
        if is_row and not inner[0].lanes and any(loop.axis in self.ops[p].reduced_axes for p in body):
            if self.is_simple(loop.own_positions, inner[0]):
                return self.grouped(loop, inner[0], spans[loop.axis])
            self.is_refused = self.is_refused or any(is_long_sum(self.ops[p], loop.axis) for p in body)
        span = loop.block or None if loop.is_blocked else 1
        return replace(loop, body=self.steps(loop.body, {**spans, loop.axis: span}))

    def is_simple(self, scalars: tuple[int, ...], vector: Loop) -> bool:
        """Whether a loop with these ops and this vector loop can be grouped."""
        inside = vector.own_positions
        if len(inside) < len(vector.body) or not self.rows.isdisjoint(scalars):
            return False
        if any(isinstance(self.ops[p].attrs, Reduce | Scan | Masked) or self.ops[p].is_effect for p in scalars):
            return False
        if sum(op_cost(self.ops[p].name) for p in scalars) > SCALARS:
            return False
        return not any(_stays(self.ops[p]) for p in (*scalars, *inside))

    def grouped(self, loop: Loop, vector: Loop, extent: int | None) -> Loop:
        """A loop over groups of rows, with all its ops moved into its vector loop."""
        inside = vector.own_positions
        terms = sorted({*loop.own_positions, *(p for p in inside if loop.axis in self.ops[p].loop_axes)})
        reduces = tuple(p for p in terms if isinstance(self.ops[p].attrs, Reduce))
        tree = Loop(loop.axis, "tree", tuple(terms), carries=reduces)
        whole = (*(p for p in inside if p not in terms), tree)
        count = self.count(terms, extent)
        return replace(loop, block=count, body=(replace(vector, body=whole),))

    def count(self, terms: list[int], extent: int | None) -> int:
        """How many rows a group has: the number for which groups and single rows at the end make the shortest chain."""
        cost = sum(op_cost(self.ops[p].name) for p in terms)
        most = ROWS if cost <= COSTLY else COSTLY_ROWS
        if extent is None:
            return most
        return min(range(most, 1, -1), key=lambda n: extent // n + extent % n)


def _stays(op: Op) -> bool:
    """Whether an op keeps a loop from being grouped."""
    match op.attrs:
        case Check() | Assert() | Scan():
            return True
        case Reduce(_, how):
            # A maximum loses no digits, and g++ compiles the NaN tests in a tree of maxima to branches.
            is_float = op.dtype is not None and op.dtype.kind == "float"
            return len(op.args) > 1 or (is_float and how.name not in GROUPED)
        case Masked(body, _):
            return any(_stays(inner) for inner in body.ops)
        case _:
            return False
