"""Splits the kernel of a bundle into the independent kernels that the stage `bundle` put together.

Takes a scheduled Kernel. Gives its kernels, each with axes named i0, i1, ..., so that equal ones differ in their
storages only. Refuses nothing: a kernel that is no bundle gives itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.loops import Schedule, Step, moved, positions
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import Body, Kernel, axis_over


def bundled_kernels(kernel: Kernel) -> tuple[Kernel, ...]:
    """The kernels whose launches do the same as one launch of `kernel`: in any order, but those that finish it last."""
    return tuple(part for part, _ in bundled_parts(kernel))


def bundled_parts(kernel: Kernel) -> tuple[tuple[Kernel, Mapping[int, Sequence[int]]], ...]:
    """The same kernels; of each, by the position of an op, the positions of the ops of `kernel` that it stands for."""
    if kernel.schedule is None or not kernel.schedule.parts:
        return ((kernel, {position: (position,) for position in range(len(kernel.body.ops))}),)
    bounds = (0, *kernel.schedule.parts, len(kernel.schedule.steps))
    return tuple(_part(kernel, kernel.schedule.steps[start:stop]) for start, stop in pairwise(bounds))


def _part(kernel: Kernel, steps: tuple[Step, ...]) -> tuple[Kernel, Mapping[int, Sequence[int]]]:
    ops = kernel.body.ops
    order = needed(positions(steps), lambda p: ops[p].args)
    # A reduction over an axis that its value does not vary over still depends on the length of that axis.
    named = {axis for p in order for axis in ops[p].loop_axes}
    old = [axis for axis in kernel.axes if axis.name in named]
    axes = [axis_over(f"i{number}", axis.extent) for number, axis in enumerate(old)]
    mapping: dict[Symbol, Expr] = {a.symbol: b.symbol for a, b in zip(old, axes, strict=True)}
    place = {p: n for n, p in enumerate(order)}
    own = Body(tuple(replace(ops[p], args=tuple(place[a] for a in ops[p].args)) for p in order))
    builder = Builder([axis.symbol for axis in axes])
    where = builder.splice(own, mapping)
    assert kernel.schedule is not None
    rows = tuple(p for p in kernel.schedule.kept_rows if p in place)
    pairs = tuple(pair for pair in kernel.schedule.rows_in_results if pair[0] in place)
    names = {a.name: b.name for a, b in zip(old, axes, strict=True)}
    schedule = moved(Schedule(steps, rows, pairs), {p: where[n] for p, n in place.items()}, names)
    places: dict[int, list[int]] = {}
    for p, n in place.items():
        places.setdefault(where[n], []).append(p)
    return replace(kernel, axes=tuple(axes), body=builder.build(), schedule=schedule, access=()), places
