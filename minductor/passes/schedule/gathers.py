"""Splits vector loops that gather: a scalar loop loads what lies at loaded places, and a vector loop computes with it.

Takes a placed schedule, the ops of its body and the loads at loaded places. Gives the schedule in which each vector
loop with such loads is two loops over the same elements: the scalar one computes the places and keeps the loaded values
in rows (arrays), and the vector one does the rest. Refuses nothing. Vector units gather elements about as slowly as
they are loaded one by one, but a scalar loop computes a sixteenth as fast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.nodes import Op


def gather_first(schedule: Schedule, ops: Sequence[Op], gathers: Collection[int]) -> Schedule:
    """The schedule in which loads at loaded places run before the vector loop that needs them."""
    kept = set(schedule.kept_rows)
    steps = _split(schedule.steps, ops, gathers, kept)
    return replace(schedule, steps=steps, kept_rows=tuple(sorted(kept)))


def places_of(inside: Collection[int], ops: Sequence[Op], gathers: Collection[int]) -> set[int]:
    """The ops among `inside` that the gathers need, with the gathers themselves."""
    found = {p for p in inside if p in gathers}
    for position in sorted(inside, reverse=True):
        if position in found:
            found.update(a for a in ops[position].args if a in inside)
    return found


def _split(steps: Sequence[Step], ops: Sequence[Op], gathers: Collection[int], kept: set[int]) -> tuple[Step, ...]:
    made: list[Step] = []
    for step in steps:
        if not isinstance(step, Loop):
            made.append(step)
            continue
        inside = [p for p in step.body if isinstance(p, int)]
        if step.kind != "vector" or not any(p in gathers for p in inside):
            made.append(replace(step, body=_split(step.body, ops, gathers, kept)))
            continue
        first = places_of(inside, ops, gathers)
        rest = [p for p in inside if p not in first]
        kept.update(a for p in rest for a in ops[p].args if a in first)
        made += (replace(step, kind="scalar", body=tuple(sorted(first))), replace(step, body=tuple(rest)))
    return tuple(made)
