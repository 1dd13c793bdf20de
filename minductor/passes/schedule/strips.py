"""Splits vector loops in which functions wait for each other: each function runs over a strip of elements by itself.

Takes a placed schedule and its kernel. Gives the schedule in which each vector loop with a chain of functions (the tanh
of a sine) is several vector loops over one strip of its elements. Each function has a loop of its own, which reads rows
(arrays) and keeps a row. What lies between functions has loops of its own too. Effects and reductions are in the last
loop. Refuses nothing: other loops stay as they are.

A processor starts on the next elements before a function has its result, but not on elements that are hundreds of
instructions away. In a loop of one function the next elements are near. The C++ of such a loop is one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minductor.analysis.function_chains import function_chain, functions
from minductor.analysis.passes_over import moved_to_use
from minductor.core.expressions.expr import as_int
from minductor.ir.program.loops import Loop, Schedule, edited, loops
from minductor.ir.program.nodes import Kernel, Op, Reduce, Scan

STRIP = 512  # elements
SHORT = 256  # elements; g++ unrolls each loop over so few completely, for which it takes three times as long
CHAIN = 2  # functions of which each needs the one before; fewer do not wait


def in_strips(schedule: Schedule, kernel: Kernel) -> Schedule:
    """The schedule in which functions that wait for each other run over strips; unchanged if none do."""
    ops, kept = kernel.body.ops, set(schedule.kept_rows)
    sizes = {axis.name: as_int(axis.extent) for axis in kernel.axes}
    around = {id(i): o.block for o in loops(schedule.steps) for i in loops(o.body) if i.axis == o.axis}

    def split(loop: Loop) -> tuple[Loop, ...]:
        inside = loop.own_positions
        is_mixed = len(inside) < len(loop.body) or any(isinstance(ops[p].attrs, Scan) for p in inside)
        size = around[id(loop)] or None if id(loop) in around else sizes[loop.axis]
        is_short = size is not None and size <= SHORT
        if loop.kind != "vector" or is_mixed or is_short or function_chain(ops, inside) < CHAIN:
            return (loop,)
        groups = in_turn(ops, inside)
        turn = {p: n for n, group in enumerate(groups) for p in group}
        kept.update(a for p in inside for a in ops[p].args if turn.get(a, turn[p]) != turn[p])
        *first, last = (replace(loop, body=group, lanes=0, carries=()) for group in groups)
        last = replace(last, lanes=loop.lanes)
        if size is not None and size <= STRIP:
            return (*first, replace(last, carries=loop.carries))
        return (Loop(loop.axis, "serial", (*first, last), STRIP, carries=loop.carries),)

    steps = edited(schedule.steps, split)
    return replace(schedule, steps=steps, kept_rows=tuple(sorted(kept)))


def in_turn(ops: Sequence[Op], inside: Sequence[int]) -> list[tuple[int, ...]]:
    """The ops of a vector loop by the loop over a strip that computes them, in order.

    The numbers of functions are odd. The other ops have even numbers, as late as their users allow.
    """
    alone = frozenset(functions(ops, inside))
    fixed = [p for p in inside if ops[p].is_effect or isinstance(ops[p].attrs, Reduce)]
    number: dict[int, int] = {}
    for p in inside:
        before = max((number[a] for a in ops[p].args if a in number), default=0)
        number[p] = before + before % 2 + (p in alone)
    last = max(number.values())
    number |= dict.fromkeys(fixed, last + last % 2)
    number = moved_to_use(ops, number, lambda p: p not in alone)
    made: dict[tuple[int, int], list[int]] = {}  # by number, and by position for a function
    for p in inside:
        made.setdefault((number[p], p if p in alone else -1), []).append(p)
    return [tuple(made[key]) for key in sorted(made)]
