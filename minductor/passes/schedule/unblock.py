"""Removes loops over blocks that serve no purpose.

Takes a schedule. Gives it without serial loops over blocks whose body is only a loop through the block, without sums of
its own: both together are one loop. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, edited


def unblock(schedule: Schedule) -> Schedule:
    """The schedule without such loops; unchanged if there are none."""
    return replace(schedule, steps=edited(schedule.steps, _plain))


def _plain(loop: Loop) -> tuple[Loop]:
    """The loop; if it is one over blocks that only contains the loop through its block, that loop."""
    inner = loop.body[0]
    is_block_loop = loop.kind == "serial" and loop.is_blocked and len(loop.body) == 1
    if not is_block_loop or not isinstance(inner, Loop) or inner.axis != loop.axis or inner.carries:
        return (loop,)
    return (replace(inner, carries=loop.carries),)
