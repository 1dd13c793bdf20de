"""Removes loops over blocks that serve no purpose.

Takes a schedule. Gives it without serial loops over blocks whose body is only a loop through the block, without sums of
its own: both together are one loop. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, Step


def unblock(schedule: Schedule) -> Schedule:
    """The schedule without such loops; unchanged if there are none."""
    return replace(schedule, steps=tuple(_plain(step) for step in schedule.steps))


def _plain(step: Step) -> Step:
    """The step without loops over blocks that only contain the loop through their block."""
    if not isinstance(step, Loop):
        return step
    loop = replace(step, body=tuple(_plain(inner) for inner in step.body))
    if loop.kind != "serial" or not loop.is_blocked or len(loop.body) != 1:
        return loop
    inner = loop.body[0]
    if not isinstance(inner, Loop) or inner.axis != loop.axis or inner.carries:
        return loop
    return replace(inner, carries=loop.carries)
