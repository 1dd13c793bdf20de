"""Makes vector loops without masks where a test before the loop can tell that none is needed.

Takes a schedule and its body. Gives the schedule in which a vector loop names its masked operations if no condition of
theirs varies along it: the loop runs without these masks wherever all conditions hold. Refuses nothing: a long loop,
which would be compiled twice, and one with a condition of its own stay as they are.

A window of a pool over channels is the case that pays: its tests are about rows and columns, and only at the image's
edge does one of them fail.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.nodes import Body, Masked
from minductor.ir.program.schedule import Loop, Schedule, Step

LONG = 64  # operations of a loop: more are not worth a second copy


def unmask(schedule: Schedule, body: Body) -> Schedule:
    """The schedule itself if no loop has such masks."""
    return replace(schedule, steps=tuple(_unmasked(step, body) for step in schedule.steps))


def _unmasked(step: Step, body: Body) -> Step:
    if not isinstance(step, Loop):
        return step
    if step.kind != "vector":
        return replace(step, body=tuple(_unmasked(inner, body) for inner in step.body))
    inside = {inner for inner in step.body if not isinstance(inner, Loop)}
    if len(inside) < len(step.body) or len(inside) > LONG:
        return step
    masks = [p for p in sorted(inside) if isinstance(body.ops[p].attrs, Masked)]
    asked = [body.ops[p].args[0] for p in masks]
    # what a row keeps is not computed here, and may vary all the same
    varies = any(p in inside or step.axis in body.ops[p].axes for p in asked)
    return step if varies else replace(step, unmasked=tuple(masks))
