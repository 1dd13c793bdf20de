"""Copies transposed blocks by way of small arrays (staging buffers), so that each cache line is used whole.

Takes a schedule with loops over blocks of an axis (`vector`), its kernel, and loads and stores that are contiguous
along another axis (`crossing`) and strided along this one. Gives the schedule in which these loads run first in each
block, along their contiguous axis, and the stores last. Vector loops that touch arrays only run through whole blocks:
the C++ compiler knows how long they are. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minductor.core.expressions.expr import as_int
from minductor.ir.program.loops import Loop, Schedule, Step, positions
from minductor.ir.program.nodes import Kernel, Load, Op
from minductor.passes.schedule.draft import Staged


def stage(schedule: Schedule, kernel: Kernel, staged: Staged) -> Schedule:
    """The schedule in which loads fill rows (arrays) at the start of each block, and stores empty rows at its end."""
    ops = kernel.body.ops
    (extent,) = [as_int(axis.extent) for axis in kernel.axes if axis.name == staged.vector]
    steps = tuple(_staged(step, staged, ops, extent) for step in schedule.steps)
    stored = (ops[p].args[0] for p in staged.stores)
    return Schedule(steps, tuple(sorted({*schedule.kept_rows, *staged.loads, *stored})))


def _staged(step: Step, staged: Staged, ops: tuple[Op, ...], extent: int | None) -> Step:
    """The step with the loads before the other loops of each block, and the stores behind them."""
    if not isinstance(step, Loop):
        return step
    if step.axis == staged.vector and step.is_blocked:
        here = set(positions(step.body))  # others are in loops of their own, over more axes
        loads, stores = staged.loads & here, staged.stores & here
        if not loads and not stores:
            return step
        body = _without(step.body, loads | stores)
        if extent is None or extent % step.block:
            body = _whole(body, staged.vector, ops)
        return replace(step, body=(*_copies(staged, loads), *body, *_copies(staged, stores)))
    return replace(step, body=tuple(_staged(inner, staged, ops, extent) for inner in step.body))


def _copies(staged: Staged, positions: frozenset[int]) -> tuple[Loop, ...]:
    """The loops that copy between memory and rows."""
    along = Loop(staged.crossing, "serial", tuple(sorted(positions)))
    return (Loop(staged.vector, "serial", (along,)),) if positions else ()


def _without(steps: Iterable[Step], gone: frozenset[int]) -> tuple[Step, ...]:
    """The steps without these positions, and without loops that they leave empty."""
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            body = _without(step.body, gone)
            kept += [replace(step, body=body)] if body else []
        elif step not in gone:
            kept.append(step)
    return tuple(kept)


def _whole(steps: Iterable[Step], axis: str, ops: tuple[Op, ...]) -> tuple[Step, ...]:
    """The steps with whole vector loops over the axis, where no op in them varies along it and touches memory."""
    made: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            inside = [ops[p] for p in positions(step.body)]
            in_memory = any(op.is_effect or (isinstance(op.attrs, Load) and axis in op.axes) for op in inside)
            is_whole = step.axis == axis and step.kind == "vector" and not in_memory
            step = replace(step, body=_whole(step.body, axis, ops), is_whole=is_whole)
        made.append(step)
    return tuple(made)
