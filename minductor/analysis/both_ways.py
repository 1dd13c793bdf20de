"""Kernels that reduce both ways: along each row, and down the rows for each column, in one pass over the data.

Takes a body over axes; gives which of them are a row's columns and which are the rows, and in how many parts the rows
are walked: the columns have accumulators in each part. Says of a kernel why it must not be made.

The gradient of a layer norm is the pattern: sums along a row give the gradient of the input, sums down the rows those
of weight and bias, and all read the same two matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minductor.analysis.domain import estimate
from minductor.core.expressions.expr import Symbol, as_int, linear
from minductor.ir.program.nodes import Axis, Body, Op, Reduce, body_reads, body_writes

ACCUMULATOR_BYTES = 512 * 1024  # of all parts together: they stand on the stack, and are joined while in the cache
PART_ROWS = 8  # a part with fewer spends its time in setting accumulators up and joining them
FEW_PARTS = 8  # with fewer, threads idle,
MANY_POINTS = 1 << 15  # if there is enough to do


@dataclass(frozen=True, slots=True)
class BothWays:
    """The axes that reduces along a row run over, and those that reduces down the rows run over."""

    columns: frozenset[str]
    rows: frozenset[str]


def both_ways(body: Body, axes: Sequence[Axis]) -> BothWays | None:
    """The ways of a body that reduces over two disjoint sets of axes, which are all; None for any other.

    A row is contiguous: some access moves by one along its axes.
    """
    groups = reduced_groups(body)
    if len(groups) != 2 or groups[0] & groups[1] or len(groups[0] | groups[1]) != len(axes):
        return None
    first, second = groups
    contiguous = _contiguous(body, [axis.symbol for axis in axes], groups)
    if contiguous.isdisjoint(second) and not contiguous.isdisjoint(first):
        return BothWays(first, second)
    if contiguous.isdisjoint(first) and not contiguous.isdisjoint(second):
        return BothWays(second, first)
    return None


def reduced_groups(body: Body) -> list[frozenset[str]]:
    """The sets of axes that reduces run over, each once."""
    return list(dict.fromkeys(frozenset(op.attrs.axes) for op in body.ops if isinstance(op.attrs, Reduce)))


def _contiguous(body: Body, symbols: Sequence[Symbol], groups: Sequence[frozenset[str]]) -> frozenset[str]:
    """Axes along which an access to the whole matrix moves by one."""
    found: set[str] = set()
    for access in (*body_reads(body), *body_writes(body)):
        split = linear(access.index, symbols)
        steps = {} if split is None else {s.name: as_int(c) for s, c in split[0].items()}
        moved = {name for name, step in steps.items() if step != 0}
        if not any(moved.isdisjoint(group) for group in groups):
            found.update(name for name in moved if steps[name] == 1)
    return frozenset(found)


def most_parts(body: Body, axes: Sequence[Axis], ways: BothWays) -> int | None:
    """In how many parts the rows may be walked; None if the columns are not bounded."""
    width = 1
    for axis in axes:
        if axis.name in ways.columns:
            extent = as_int(axis.extent)
            if extent is None:
                return None
            width *= extent
    sums = [op for op in body.ops if isinstance(op.attrs, Reduce) and ways.rows == frozenset(op.attrs.axes)]
    carried = sum(d.itemsize for op in sums for a in op.args if (d := body.ops[a].dtype) is not None)
    rows = estimate(axis.extent for axis in axes if axis.name in ways.rows)
    return min(rows // PART_ROWS, ACCUMULATOR_BYTES // max(1, carried * width))


def objection(body: Body, axes: Sequence[Axis], ways: BothWays) -> str | None:
    """What speaks against one pass both ways, or None."""
    every = ways.columns | ways.rows
    varying = _needs(body, ways.rows)
    for op, needs in zip(body.ops, varying, strict=True):
        if needs and not ways.rows.isdisjoint(_runs_over(op, body)):
            return f"needs a reduce over {_names(ways.rows)} in each row"
        if op.is_effect and not (ways.columns.issubset(op.axes) or ways.rows.issubset(op.axes)):
            return f"would repeat what does not vary over {_names(every - set(op.axes))}"
        if isinstance(op.attrs, Reduce) and _runs_over(op, body) != every:
            return "reduces what a reduce gives"
    parts = most_parts(body, axes, ways)
    if parts is None:
        return f"the extent of {_names(ways.columns)} is not known, and accumulators stand for each of its elements"
    if parts < FEW_PARTS and estimate(axis.extent for axis in axes) > MANY_POINTS:
        return f"only {parts} parts of {_names(ways.rows)} could run in parallel"
    return None


def _needs(body: Body, rows: frozenset[str]) -> list[bool]:
    """Of each op, whether an argument needs a reduce down the rows."""
    after: list[bool] = []
    found: list[bool] = []
    for op in body.ops:
        needs = any(after[a] for a in op.args)
        found.append(needs)
        after.append(needs or (isinstance(op.attrs, Reduce) and not rows.isdisjoint(op.attrs.axes)))
    return found


def _runs_over(op: Op, body: Body) -> frozenset[str]:
    """The axes over which an op varies, or a reduce's arguments do."""
    if not isinstance(op.attrs, Reduce):
        return frozenset(op.axes)
    return frozenset(op.attrs.axes).union(*(body.ops[a].axes for a in op.args))


def _names(axes: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(axes))
