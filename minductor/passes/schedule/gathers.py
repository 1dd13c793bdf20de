"""Splits vector loops that gather: a scalar loop loads what lies at loaded places, and a vector loop computes with it.

Takes a placed schedule, the ops of its body and the loads at loaded places. Gives the schedule in which each vector
loop with such loads is two loops over the same elements: the scalar one computes the places and keeps the loaded values
in rows (arrays), and the vector one does the rest. Refuses nothing. Vector units gather elements about as slowly as
they are loaded one by one, but a scalar loop computes a sixteenth as fast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, edited
from minductor.ir.program.nodes import Op


def gather_first(schedule: Schedule, ops: Sequence[Op], gathers: frozenset[int]) -> Schedule:
    """The schedule in which loads at loaded places run before the vector loop that needs them."""
    kept = set(schedule.kept_rows)

    def split(loop: Loop) -> tuple[Loop, ...]:
        inside = loop.own_positions
        if loop.kind != "vector" or gathers.isdisjoint(inside):
            return (loop,)
        first = places_of(inside, ops, gathers)
        rest = tuple(p for p in inside if p not in first)
        kept.update(a for p in rest for a in ops[p].args if a in first)
        scalar = replace(loop, kind="scalar", body=tuple(sorted(first)))
        return (scalar, replace(loop, body=rest)) if rest else (scalar,)

    return replace(schedule, steps=edited(schedule.steps, split), kept_rows=tuple(sorted(kept)))


def places_of(inside: Collection[int], ops: Sequence[Op], gathers: Collection[int]) -> set[int]:
    """The ops among `inside` that the gathers need, with the gathers themselves."""
    found = {p for p in inside if p in gathers}
    for position in sorted(inside, reverse=True):
        if position in found:
            found.update(a for a in ops[position].args if a in inside)
    return found
