"""The step that holds a row in two blocks: a bulk that starts at a multiple of a vector, and the edges beside it.

Takes a draft that holds rows. Gives it with an aligned level. Refuses (None) rows that start at multiples of a vector
anyway, and kernels that cannot be computed for the bulk and then for the edges (see aligned_rows.py).

Where rows start at any element, as rows of 4097, no thread can load two neighbours at once. With a bulk that is aligned
each load and store that is aligned with the reference moves 16 bytes; the others stay as they are. The block of the
bulk is also smaller where a row is a little longer than a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minductor.core.expressions.bounds import divides
from minductor.core.expressions.expr import Expr
from minductor.ir.program.aligned_rows import is_aligned_with, most_in_bulk, objection, row_start
from minductor.ir.program.nodes import Axis, Load, Store, all_ops
from minductor.passes.schedule.draft import Draft, power_of_two
from minductor.passes.schedule.gpu_place import held_loop
from minductor.passes.schedule.gpu_steps import Hold

WIDEST = 16  # bytes of the widest load of a thread


class _Reference(NamedTuple):
    """A load or store that may decide where the bulk starts. `moved`: the bytes of all accesses aligned with it."""

    moved: int
    vector: int
    position: int
    start: Expr


def align(draft: Draft) -> Draft | None:
    """Holds one row in a bulk and edges; legal for one held axis with a start that is not aligned, on NVIDIA's GPUs."""
    if draft.target.kind == "hip" or len(draft.levels) != 1:
        return None
    (level,) = draft.levels
    axis = draft.touches.axes[level.axis]
    found = max(_references(draft, axis), key=lambda each: (each.moved, each.vector), default=None)
    if found is None or level.extent is None or divides(found.vector, found.start):
        return None
    block = power_of_two(most_in_bulk(level.extent, found.vector))
    made = level._replace(block=block, aligned=found.vector, reference=found.position)
    loop = held_loop(made, tuple(range(len(draft.kernel.body.ops))))
    if objection(draft.kernel, loop, (loop,)):
        return None
    registers = Hold(draft.warps).registers(draft, block)
    return draft._replace(levels=(made,), limits=dict.fromkeys(draft.kept, 1), registers=registers)


def _references(draft: Draft, axis: Axis) -> Iterator[_Reference]:
    """The accesses that are contiguous along the rows, and not masked."""
    touches = draft.touches
    accesses = [op for op in all_ops(draft.kernel.body) if isinstance(op.attrs, Load | Store)]
    for position, op in enumerate(draft.kernel.body.ops):
        start = row_start(op, axis.symbol)
        if start is None:
            continue
        assert isinstance(op.attrs, Load | Store)
        vector = WIDEST // touches.dtypes[op.attrs.ref.storage].itemsize
        moved = 0
        for other in accesses:
            assert isinstance(other.attrs, Load | Store)
            if is_aligned_with(other.attrs.index, axis.symbol, start, vector):
                moved += touches.touch(other, touches.buffers).weight
        yield _Reference(moved, vector, position, start)
