"""Marks vector loops that can run without masks after a test before the loop.

Takes a schedule and its body. Gives the schedule in which a vector loop names its masked ops if none of their
conditions varies along the loop. Codegen then prints the loop twice: without masks, for when all conditions hold, and
with them. Refuses nothing: a loop of more than LONG operations, and one with a condition that varies along it, stay as
they are.

Pooling in channels-last layout is the case that pays: the conditions depend on row and column only, and fail only at
the edge of the image.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from minductor.ir.program.loops import Loop, Schedule, edited
from minductor.ir.program.nodes import Body, Masked

LONG = 64  # operations of a loop; the text of a longer one is not printed twice


def unmask(schedule: Schedule, body: Body) -> Schedule:
    """The schedule with masked ops named in its vector loops; unchanged if there are none."""
    return replace(schedule, steps=edited(schedule.steps, partial(_unmasked, body=body)))


def _unmasked(loop: Loop, body: Body) -> tuple[Loop]:
    """The loop with the masked ops named that it may leave unmasked, if it is a vector loop."""
    inside = loop.own_positions
    if loop.kind != "vector" or len(inside) < len(loop.body) or len(inside) > LONG:
        return (loop,)
    masks = [p for p in sorted(inside) if isinstance(body.ops[p].attrs, Masked)]
    asked = [body.ops[p].args[0] for p in masks]
    # a condition that is kept in a row is not computed here, but may vary along the loop
    varies = any(p in inside or loop.axis in body.ops[p].axes for p in asked)
    return (loop if varies else replace(loop, unmasked=tuple(masks)),)
