"""Loads transposed blocks into a small array (a staging buffer) first, so that each cache line is read once, in order.

Takes a schedule with loops over blocks of two axes, and loads that are contiguous along one of them (`crossing`) and
strided along the other (`vector`). Gives the schedule in which these loads run first in each block, along their
contiguous axis. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, Step, positions


def stage(schedule: Schedule, crossing: str, vector: str, loads: frozenset[int]) -> Schedule:
    """The schedule in which the loads fill rows (arrays) at the start of each block."""
    steps = tuple(_staged(step, crossing, vector, loads) for step in schedule.steps)
    return Schedule(steps, tuple(sorted({*schedule.kept_rows, *loads})))


def _staged(step: Step, crossing: str, vector: str, loads: frozenset[int]) -> Step:
    """The step with the loads before the other loops of each block."""
    if not isinstance(step, Loop):
        return step
    if step.axis == vector and step.is_blocked:
        here = loads.intersection(positions(step.body))  # others are in loops of their own, over more axes
        if not here:
            return step
        along = Loop(crossing, "serial", tuple(sorted(here)))
        return replace(step, body=(Loop(vector, "serial", (along,)), *_without(step.body, here)))
    return replace(step, body=tuple(_staged(inner, crossing, vector, loads) for inner in step.body))


def _without(steps: Iterable[Step], loads: frozenset[int]) -> tuple[Step, ...]:
    """The steps without the loads."""
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            kept.append(replace(step, body=_without(step.body, loads)))
        elif step not in loads:
            kept.append(step)
    return tuple(kept)
