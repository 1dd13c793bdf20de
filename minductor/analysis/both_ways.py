"""Kernels that reduce along rows and along columns of a matrix in one pass over the data.

Takes a body and its axes. Gives the axes of the two reductions (`both_ways`), and in how many parts threads can share
the rows (`most_parts`). Refuses, with a reason (`objection`), bodies that such a kernel cannot compute. Whether one
pass is faster than two is a price (`cost/shape_cpu.py`).

The backward of a layer norm is the pattern. It sums along each row for the gradient of the input, and over all rows,
for each column, for the gradients of weight and bias. All these sums read the same two matrices. The kernel walks row
by row; the sums over the rows have an accumulator for each column. Each part of the rows has accumulators of its own,
which are added at the end: on a GPU by another kernel, which the stage `split` makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from minductor.core.expressions.expr import Symbol, as_int, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.nodes import Axis, Body, Reduce, body_reads, body_writes

ACCUMULATOR_BYTES = 512 * 1024  # of all parts together: they lie on the stack, and are added while in the cache
PART_ROWS = 8  # a part with fewer rows spends most of its time initialising and adding its accumulators
LONGEST_HELD = 1 << 13  # elements of a row that a program of a GPU holds in registers beside as many accumulators


class BothWays(NamedTuple):
    """`columns`: the axes that the reductions along a row run over. `rows`: the axes of the other reductions."""

    columns: frozenset[str]
    rows: frozenset[str]


def both_ways(body: Body, axes: Sequence[Axis], *, has_parts: bool = False) -> BothWays | None:
    """The two sets of axes of a body whose reductions run over one or the other of them; None for any other body.

    The sets must be disjoint and together be all axes. Those along which some access is contiguous are the columns.
    `has_parts`: there may be axes beside them over which nothing is reduced, of the parts of the rows.
    """
    groups = reduced_groups(body)
    if len(groups) != 2 or groups[0] & groups[1]:
        return None
    if not has_parts and len(groups[0] | groups[1]) != len(axes):
        return None
    first, second = groups
    contiguous = _contiguous(body, [axis.symbol for axis in axes], groups)
    if contiguous.isdisjoint(second) and not contiguous.isdisjoint(first):
        return BothWays(first, second)
    if contiguous.isdisjoint(first) and not contiguous.isdisjoint(second):
        return BothWays(second, first)
    return None


def reduced_groups(body: Body) -> list[frozenset[str]]:
    """The sets of axes that the reductions of a body run over, each once."""
    return list(dict.fromkeys(frozenset(op.attrs.axes) for op in body.ops if isinstance(op.attrs, Reduce)))


def _contiguous(body: Body, symbols: Sequence[Symbol], groups: Sequence[frozenset[str]]) -> frozenset[str]:
    """The axes along which an access that depends on both groups has stride 1."""
    found: set[str] = set()
    for access in (*body_reads(body), *body_writes(body)):
        split = linear(access.index, symbols)
        steps = {} if split is None else {s.name: as_int(c) for s, c in split[0].items()}
        moved = {name for name, step in steps.items() if step != 0}
        if not any(moved.isdisjoint(group) for group in groups):
            found.update(name for name in moved if steps[name] == 1)
    return frozenset(found)


def most_parts(body: Body, axes: Sequence[Axis], ways: BothWays, hints: Hints) -> int | None:
    """The largest number of parts of the rows, by the sizes above; None if the number of columns is not known."""
    carried = _accumulator_bytes(body, axes, ways)
    rows = estimate([axis.extent for axis in axes if axis.name in ways.rows], hints)
    return None if carried is None else min(rows // PART_ROWS, ACCUMULATOR_BYTES // max(1, carried))


def _accumulator_bytes(body: Body, axes: Sequence[Axis], ways: BothWays) -> int | None:
    """The bytes of the accumulators of one part; None if the number of columns is not known."""
    extents = [as_int(axis.extent) for axis in axes if axis.name in ways.columns]
    known = [extent for extent in extents if extent is not None]
    sums = [op for op in body.ops if isinstance(op.attrs, Reduce) and ways.rows == frozenset(op.attrs.axes)]
    carried = sum(d.itemsize for op in sums for a in op.args if (d := body.ops[a].dtype) is not None)
    return carried * prod(known) if len(known) == len(extents) else None


def objection(body: Body, axes: Sequence[Axis], ways: BothWays, *, is_gpu: bool = False) -> str | None:
    """The reason, shown to the user, why a body must not be one kernel that reduces both ways; None if it may."""
    every = ways.columns | ways.rows
    varying = _depends_on_reduction(body, ways.rows)
    for op, needs in zip(body.ops, varying, strict=True):
        if needs and not ways.rows.isdisjoint(op.loop_axes):
            return f"each row needs the result of a reduction over {_names(ways.rows)}"
        if op.is_effect and not (ways.columns.issubset(op.axes) or ways.rows.issubset(op.axes)):
            return f"would repeat a store or check that does not depend on {_names(every - set(op.axes))}"
        if isinstance(op.attrs, Reduce) and frozenset(op.loop_axes) != every:
            return "reduces the result of another reduction"
    carried = _accumulator_bytes(body, axes, ways)
    if carried is None:
        return f"needs an accumulator for each element of {_names(ways.columns)}, whose number is not known"
    if is_gpu:
        width = estimate([axis.extent for axis in axes if axis.name in ways.columns], ())
        return f"rows of {width} elements do not fit the registers of a program" if width > LONGEST_HELD else None
    if carried > ACCUMULATOR_BYTES:
        return f"needs {carried} bytes of accumulators for {_names(ways.columns)}; a stack has {ACCUMULATOR_BYTES}"
    return None


def _depends_on_reduction(body: Body, rows: frozenset[str]) -> list[bool]:
    """For each op whether its arguments depend on a reduction over the rows."""
    after: list[bool] = []
    found: list[bool] = []
    for op in body.ops:
        needs = any(after[a] for a in op.args)
        found.append(needs)
        after.append(needs or not rows.isdisjoint(op.reduced_axes))
    return found


def _names(axes: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(axes))
