"""Copies transposed blocks by way of small arrays (staging buffers), so that each cache line is used whole.

Takes a schedule with loops over blocks of an axis (`vector`), its kernel, and loads and stores that are contiguous
along another axis (`crossing`) and strided along this one. Gives the schedule in which these loads run first in each
block, along their contiguous axis, and the stores last. Vector loops that touch arrays only run through whole blocks:
the C++ compiler knows how long they are. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from minductor.core.expressions.expr import as_int
from minductor.ir.program.loops import Loop, Schedule, Step, edited, loops, positions
from minductor.ir.program.nodes import Kernel, Load, Masked, Op
from minductor.passes.schedule.draft import Staged


def stage(schedule: Schedule, kernel: Kernel, staged: Staged) -> Schedule:
    """The schedule in which loads fill rows (arrays) at the start of each block, and stores empty rows at its end."""
    ops = kernel.body.ops
    stored = (ops[p].args[0] for p in staged.stores)
    steps = _in_blocks(schedule.steps, kernel, staged, frozenset(), frozenset())
    return Schedule(steps, tuple(sorted({*schedule.kept_rows, *staged.loads, *stored})))


def _in_blocks(
    steps: tuple[Step, ...], kernel: Kernel, staged: Staged, blocked: frozenset[str], own: frozenset[int]
) -> tuple[Step, ...]:
    """The steps with copies in each loop in which both axes are blocked first.

    `blocked`: the axes of loops around. `own`: the ops in the block of `staged.vector` around.
    """
    made: list[Step] = []
    for step in steps:
        if not isinstance(step, Loop):
            made.append(step)
            continue
        around = blocked | {step.axis} if step.is_blocked else blocked
        here = frozenset(positions(step.body)) if _is_block(step, staged.vector) else own
        is_open = staged.crossing in around or not any(_is_block(each, staged.crossing) for each in loops(step.body))
        if staged.vector in around and is_open:
            made.append(_staged(step, kernel, staged, here))
        else:
            made.append(replace(step, body=_in_blocks(step.body, kernel, staged, around, here)))
    return tuple(made)


def _is_block(loop: Loop, axis: str) -> bool:
    return loop.is_blocked and loop.axis == axis


def _staged(loop: Loop, kernel: Kernel, staged: Staged, own: frozenset[int]) -> Loop:
    """A loop over blocks, with the loads before its other loops, and the stores behind them."""
    ops = kernel.body.ops
    here = frozenset(positions(loop.body))  # others are in loops of their own, over more axes
    loads, stores = staged.loads & here, staged.stores & here
    if not (loads or stores):
        return loop
    body = edited(loop.body, partial(_without, gone=loads | stores))
    (extent,) = [as_int(axis.extent) for axis in kernel.axes if axis.name == staged.vector]
    if extent is None or extent % loop.block:
        late = frozenset(a for p, op in enumerate(ops) if p not in own for a in op.args)
        body = edited(body, partial(_whole, axis=staged.vector, ops=ops, late=late))
    return replace(loop, body=(*_copies(staged, loads), *body, *_copies(staged, stores)))


def _copies(staged: Staged, positions: frozenset[int]) -> tuple[Loop, ...]:
    """The loops that copy between memory and rows."""
    along = Loop(staged.crossing, "serial", tuple(sorted(positions)))
    return (Loop(staged.vector, "serial", (along,)),) if positions else ()


def _without(loop: Loop, gone: frozenset[int]) -> tuple[Loop, ...]:
    """The loop without these positions; nothing if they leave it empty."""
    body = tuple(step for step in loop.body if isinstance(step, Loop) or step not in gone)
    return (replace(loop, body=body),) if body else ()


def _whole(loop: Loop, axis: str, ops: tuple[Op, ...], late: frozenset[int]) -> tuple[Loop]:
    """The loop, as a whole one if it is a vector loop over the axis whose ops touch no memory and cannot fail.

    `late`: the values that other blocks of loops read. Their rows are as long as the axis, and not as a block.
    """
    here = tuple(positions(loop.body))
    inside = [ops[p] for p in here]
    # what stands in rows that do not exist may be no index, and no divisor
    is_safe = all(
        op.dtype is not None
        and op.dtype.kind in ("float", "bool")
        and not (isinstance(op.attrs, Load | Masked) and axis in op.axes)
        for op in inside
    )
    is_own = late.isdisjoint(here)
    return (replace(loop, is_whole=loop.axis == axis and loop.kind == "vector" and is_safe and is_own),)
