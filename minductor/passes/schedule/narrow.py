"""Splits a reduction over a short contiguous axis and others in two: first over the others, then over the short one.

Takes the accesses of a kernel. Gives the short axis and the axis next to it in memory, and the kernel with its
reductions split. The loop nest can then run through memory in order, with an accumulator for each point of both axes.
This pays for a group norm in channels-last layout, whose groups are a few channels each. Refuses (None) reductions of
several values, kernels with checks, and kernels with other reductions or with one over a value that is the same for all
elements of the short axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minductor.analysis.touch import Touches
from minductor.ir.program.nodes import Body, Check, Kernel, Op, Reduce

NARROW = 16  # elements; a shorter axis does not fill a vector
MOST = 1024  # accumulators


def narrow(touches: Touches) -> tuple[str, str] | None:
    """The short vector axis and the axis next to it in memory, if all reductions run over the short one; else None."""
    vector = touches.vector_axis()
    few = None if vector is None else touches.extents[vector]
    ops = touches.kernel.body.ops
    reduces = [op for op in ops if isinstance(op.attrs, Reduce)]
    if vector is None or few is None or not 1 < few < NARROW or touches.scanned or not reduces:
        return None
    if any(isinstance(op.attrs, Check) for op in ops) or not all(_is_wide(ops, op, vector) for op in reduces):
        return None
    steps = max(touches.touches, key=lambda touch: touch.weight).steps
    for name, step in steps.items():
        extent = touches.extents[name]
        is_beside = steps[vector] == 1 and step == few and name not in touches.reduced
        if is_beside and extent is not None and 1 < extent * few <= MOST:
            return vector, name
    return None


def _is_wide(ops: Sequence[Op], op: Op, vector: str) -> bool:
    """Whether an op reduces one value over the vector axis and others, and the value differs along the vector axis."""
    assert isinstance(op.attrs, Reduce)
    takes_each = all(vector in ops[a].axes for a in op.args)  # a count of the elements does not
    return len(op.args) == 1 and takes_each and len(op.attrs.axes) > 1 and vector in op.attrs.axes


def in_two_steps(kernel: Kernel, vector: str) -> Kernel:
    """The kernel with each reduction over the vector axis and others split in two: the vector axis comes last."""
    made: list[Op] = []
    place: dict[int, int] = {}
    order = [axis.name for axis in kernel.axes]
    for position, old in enumerate(kernel.body.ops):
        op = replace(old, args=tuple(place[a] for a in old.args))
        if isinstance(op.attrs, Reduce):
            others = tuple(axis for axis in op.attrs.axes if axis != vector)
            axes = tuple(sorted((*op.axes, vector), key=order.index))
            made.append(replace(op, attrs=replace(op.attrs, axes=others), axes=axes))
            op = replace(op, args=(len(made) - 1,), attrs=replace(op.attrs, axes=(vector,)))
        place[position] = len(made)
        made.append(op)
    return replace(kernel, body=Body(tuple(made)))
