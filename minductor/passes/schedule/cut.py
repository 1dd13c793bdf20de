"""Cuts vector loops where an index changes its formula, so that accesses are contiguous within each piece.

Takes a schedule and its kernel. Gives the schedule in which a vector loop names the points where it is cut: where a
minimum or maximum in an index changes to another argument (as in reflection padding), or an integer quotient to the
next number. Refuses nothing. A loop stays whole if it would need more than MOST_CUTS cuts, is longer than LONG
operations, sums along the loop, or if data decide the points.

A call may bring so short an axis that one cut lies before another: a window of three elements is cut at 1 and at n - 2.
The piece between them is then empty, and the next one begins where the pieces before it ended.

>>> from minductor.core.expressions.expr import integer, maximum, minimum, symbol
>>> i, n = symbol("i", "axis"), symbol("n", "size", 2)
>>> reflected = minimum(maximum(i - 3, 3 - i), 129 - i)
>>> [str(at) for at in points([reflected], Axis(i, integer(70)), {i: integer(70)})]
['3', '66']
>>> [str(at) for at in points([(i - 5) % n], Axis(i, n), {i: n})]
['5 % n']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from minductor.analysis.bends import MOST_CUTS
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import (
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    as_int,
    children,
    free_symbols,
    integer,
    linear,
)
from minductor.core.expressions.rewrite import simplify_between
from minductor.ir.program.loops import Loop, Schedule, edited
from minductor.ir.program.nodes import CALL_SYMBOL_KINDS, Atomic, Axis, Body, Kernel, Load, Store, all_ops

LONG = 64  # operations of a loop; the text of a longer one is not repeated for each piece

Extents = Mapping[Symbol, Expr]


def cut(schedule: Schedule, kernel: Kernel) -> Schedule:
    """The schedule with cuts in its vector loops; unchanged if no index changes its formula."""
    return replace(schedule, steps=edited(schedule.steps, partial(_cut, kernel=kernel)))


def _cut(loop: Loop, kernel: Kernel) -> tuple[Loop]:
    """The loop with cuts, if it is a vector loop."""
    inside = loop.own_positions
    if loop.kind != "vector" or loop.lanes or len(inside) < len(loop.body) or len(inside) > LONG:
        return (loop,)
    (axis,) = [axis for axis in kernel.axes if axis.name == loop.axis]
    extents = {axis.symbol: axis.extent for axis in kernel.axes}
    ops = (op.attrs for p in inside for op in all_ops(Body((kernel.body.ops[p],))))
    indices = [op.index for op in ops if isinstance(op, Load | Store | Atomic)]
    return (replace(loop, cuts=points(indices, axis, extents)),)


def points(indices: Sequence[Expr], axis: Axis, extents: Extents) -> tuple[Expr, ...]:
    """The points at which an axis is cut, in order; empty if they are more than MOST_CUTS."""
    bent = [index for index in indices if linear(index, [axis.symbol]) is None]
    for is_short in (True, False):
        found = _between(bent, axis.symbol, integer(0), axis.extent, extents, is_short=is_short)
        if len(found) <= MOST_CUTS:
            return tuple(found)
    return ()


def _between(
    indices: Sequence[Expr],
    axis: Symbol,
    start: Expr,
    stop: Expr,
    extents: Extents,
    deep: int = 0,
    *,
    is_short: bool,
) -> list[Expr]:
    """The cuts between `start` and `stop`. `deep`: how many cuts led here, so that the recursion ends.

    `is_short`: also cuts that a short axis has in another order, within pieces whose length only the call knows.
    """
    inside = [simplify_between(index, axis, start, stop, extents) for index in indices]
    for at in (at for index in inside for at in _turns(index, axis, start)):
        is_between = at not in (start, stop) and at_least(at - start, 0, extents) and at_least(stop - at, 0, extents)
        if not is_between and is_short and as_int(stop - start) is None:
            is_between = not at_least(start - at, 0, extents) and at_least(stop - at, 1, extents)
        if is_between and deep <= MOST_CUTS:
            before = _between(inside, axis, start, at, extents, deep + 1, is_short=is_short)
            return [*before, at, *_between(inside, axis, at, stop, extents, deep + 1, is_short=is_short)]
    return []


def _turns(expr: Expr, axis: Symbol, start: Expr) -> Iterator[Expr]:
    """The points at which a part of an expression changes its formula, innermost parts first."""
    for child in children(expr):
        yield from _turns(child, axis, start)
    match expr:
        case Min((first, *others)) | Max((first, *others)):
            for other in others:
                yield from _crossing(first - other, axis)
        case FloorDiv(num, den) | Mod(num, den):
            yield from _next_quotient(num, den, axis, start)
        case _:
            pass


def _crossing(difference: Expr, axis: Symbol) -> Iterator[Expr]:
    """The first point from which on a difference that is linear in the axis has changed its sign."""
    line = _line(difference, axis)
    if line is not None:
        slope, rest = line if line[0] > 0 else (-line[0], -line[1])
        yield -(rest // slope)


def _next_quotient(num: Expr, den: Expr, axis: Symbol, start: Expr) -> Iterator[Expr]:
    """The first point after `start` at which num // den has another value."""
    line = _line(num, axis)
    if line is None or _line(den + axis, axis) is None or not at_least(den, 1):
        return
    slope, rest = line
    quotient = as_int((slope * start + rest) // den)
    if slope == 1:
        ahead = -(rest + start) % den
        yield start + (den if as_int(ahead) == 0 else ahead)
    elif quotient is not None:
        yield from _crossing(num - (quotient + 1) * den if slope > 0 else quotient * den - 1 - num, axis)


def _line(expr: Expr, axis: Symbol) -> tuple[int, Expr] | None:
    """The slope of an expression along an axis and its value at 0; None if it is constant, not linear, or data."""
    split = linear(expr, [axis])
    slope = None if split is None else as_int(split[0][axis])
    if split is None or not slope or any(s.kind not in CALL_SYMBOL_KINDS for s in free_symbols(split[1])):
        return None
    return slope, split[1]
