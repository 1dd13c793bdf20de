"""The step that holds a row in two blocks: a bulk that starts at a multiple of a vector, and the edges beside it.

Takes a draft that holds rows. Gives it with an aligned level. Refuses (None) rows that start at multiples of a vector
anyway, and kernels that cannot be computed for the bulk and then for the edges (see aligned_rows.py).

Where rows start at any element, as rows of 4097, no thread can load two neighbours at once. With a bulk that is aligned
each load and store that is aligned with the reference moves 16 bytes; the others stay as they are. The block of the
bulk is also smaller where a row is a little longer than a power of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from minductor.core.expressions.bounds import divides
from minductor.core.expressions.expr import Expr
from minductor.cost.seconds import WIDEST
from minductor.ir.program.aligned_rows import is_aligned_with, most_in_bulk, objection, row_start
from minductor.ir.program.nodes import Axis, Load, Store, all_ops
from minductor.passes.schedule.draft import Draft, power_of_two
from minductor.passes.schedule.gpu_place import held_loop
from minductor.passes.schedule.gpu_steps import Hold

KINDS = ("cuda", "interpret")  # of targets whose generated code knows such rows, and for which they were measured


class _Reference(NamedTuple):
    """A load or store that may decide where the bulk starts."""

    position: int
    vector: int
    start: Expr

    @property
    def is_needless(self) -> bool:
        """Whether its rows start at multiples of a vector anyway."""
        return divides(self.vector, self.start)


def align(draft: Draft) -> Draft | None:
    """Holds one row in a bulk and edges; legal for one held axis along which rows start at any element."""
    if draft.target.kind not in KINDS or len(draft.levels) != 1:
        return None
    (level,) = draft.levels
    axis = draft.touches.axes[level.axis]
    references = list(_references(draft, axis))
    if level.extent is None or all(each.is_needless for each in references):
        return None
    found = _most_shared(references, draft, axis)
    block = power_of_two(most_in_bulk(level.extent, found.vector))
    made = level._replace(block=block, aligned=found.vector, reference=found.position)
    loop = held_loop(made, tuple(range(len(draft.kernel.body.ops))))
    if found.is_needless or objection(draft.kernel, loop, (loop,)):
        return None
    registers = Hold(draft.warps).registers(draft, block)
    return draft._replace(levels=(made,), limits=dict.fromkeys(draft.kept, 1), registers=registers)


def _references(draft: Draft, axis: Axis) -> Iterator[_Reference]:
    """The accesses that are contiguous along the rows, and not masked."""
    for position, op in enumerate(draft.kernel.body.ops):
        start = row_start(op, axis.symbol)
        if start is not None:
            assert isinstance(op.attrs, Load | Store)
            yield _Reference(position, WIDEST // draft.touches.dtypes[op.attrs.ref.storage].itemsize, start)


def _most_shared(references: Sequence[_Reference], draft: Draft, axis: Axis) -> _Reference:
    """The reference with which accesses of most bytes are aligned; of several that with the longest vector."""
    touches = draft.touches
    weights: list[tuple[Expr, int]] = []
    for op in all_ops(draft.kernel.body):
        if isinstance(op.attrs, Load | Store):
            weights.append((op.attrs.index, touches.touch(op, touches.buffers).weight))

    def shared(one: _Reference) -> int:
        return sum(w for index, w in weights if is_aligned_with(index, axis.symbol, one.start, one.vector))

    return max(references, key=lambda one: (shared(one), one.vector))
