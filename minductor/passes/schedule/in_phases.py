"""Runs each phase of a row over a whole block of rows, before the next phase.

Takes a placed schedule with a serial loop over the rows of a block, and its draft. Gives the schedule in which each
step of that loop has a loop over the rows of its own: a vector loop over a row stays as it is, and what is computed
once for each row (the logarithm of its sum) becomes a vector loop over the rows. Values that a later loop needs are
kept in arrays (rows), one element for each row of the block, or the whole rows. If only the call knows how long rows
are, it decides how many are in a block: long rows run one by one. Refuses nothing: the schedule stays as it is if
these arrays would be too large for a thread's stack.

A row waits for its maximum before it computes exponentials, and for their sum before it divides. A processor that runs
through one phase of all rows starts on the next row meanwhile. The rows are read again from the first-level cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

from minductor.ir.program.loops import Loop, Schedule, Step, edited, loops, positions
from minductor.passes.schedule.draft import Draft

BLOCK_BYTES = 8 * 1024  # of a value of the rows of a block; a few values stay in the first-level cache
MOST_BYTES = 256 * 1024  # of the arrays of a block, on a thread's stack
MOST_ROWS, FEWEST_ROWS = 32, 8  # of a block
UNKNOWN_BYTES = 32 * 1024  # of the rows of a block whose length only the call knows


def rows_of_block(row_bytes: int) -> int:
    """The rows of a block, for rows of so many bytes: a power of two.

    >>> [rows_of_block(n) for n in (64, 512, 600, 4096)]
    [32, 16, 8, 8]
    """
    rows = MOST_ROWS
    while rows > FEWEST_ROWS and rows * row_bytes > BLOCK_BYTES:
        rows //= 2
    return rows


def in_phases(schedule: Schedule, draft: Draft) -> Schedule:
    """The schedule with a loop for each phase of the rows along the axis `draft.phased`."""
    kept, axis, ops = set(schedule.kept_rows), draft.phased, draft.kernel.body.ops

    def split(loop: Loop) -> tuple[Loop, ...]:
        if loop.axis != axis or loop.is_blocked or loop.kind != "serial" or len(loop.body) == 1:
            return (loop,)
        phases = [replace(loop, kind="serial" if any(loops(run)) else "vector", body=run) for run in _runs(loop.body)]
        inside = [set(positions(phase.body)) for phase in phases]
        for number, phase in enumerate(inside):
            wanted = {a for p in phase for a in ops[p].args} - phase
            kept.update(a for a in wanted if any(a in earlier for earlier in inside[:number]))
        return tuple(phases)

    steps = edited(schedule.steps, split)
    made = replace(schedule, steps=steps, kept_rows=tuple(sorted(kept)))
    return made if _array_bytes(made, draft) <= MOST_BYTES else schedule


def _array_bytes(schedule: Schedule, draft: Draft) -> int:
    """The bytes of the arrays that keep values of all rows of a block."""
    ops = draft.kernel.body.ops
    block = max(level.block for level in draft.levels if level.axis == draft.phased)
    sizes = {**draft.touches.extents, draft.phased: block}
    inside = {draft.phased, draft.vector}
    total = 0
    for op in (ops[p] for p in schedule.kept_rows):
        total += prod(sizes[name] or 1 for name in op.axes if name in inside) * (op.dtype.itemsize if op.dtype else 0)
    return total


def _runs(body: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """The steps that share a loop: one loop alone, or neighbours that are no loops."""
    for is_loop, steps in groupby(body, key=lambda step: isinstance(step, Loop)):
        run = tuple(steps)
        yield from ((step,) for step in run) if is_loop else (run,)
