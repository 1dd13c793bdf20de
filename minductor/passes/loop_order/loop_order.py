"""Joins kernels whose points match once loops are split, merged or unrolled: a round of its own, the last.

Takes what fuse gives. Gives a program with fewer kernels, or the same object: it only joins, so it loses nothing that
fuse has found. Refuses, with a FusionRefusal, the pairs that still do not match. The order of loops needs no care here:
`join` solves the axes of one kernel in those of the other, in whatever order they stand.

No kernel is changed on trial: a pair is tried in other views of it, and a view is kept only if the pair is joined.

>>> from minductor.core.expressions.expr import integer
>>> others = [(integer(12544), integer(768)), (integer(196), integer(64))]
>>> split((integer(196), integer(384)), others), split((integer(75264), integer(128)), others)
((6, 64), ())
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from minductor.analysis.domain import extents_of, has_division
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, as_expr, as_int, linear, symbol
from minductor.core.expressions.rewrite import simplify
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Axis, Kernel, Load, Program, Reduce, Scan
from minductor.passes.rewriting.greedy_fusion import GreedyFusion
from minductor.passes.rewriting.join_kernels import common_accesses
from minductor.passes.rewriting.merge_axes import merge_axes
from minductor.target import Env

MOST_COPIES = 4  # of a body that is unrolled
TRIED = 4  # accesses of one pair that loops are held against

Walk: TypeAlias = tuple[Expr, Expr]  # an axis in one index: its stride and its extent


@dataclass(frozen=True, slots=True)
class _Split:
    """A kernel with finer loops, and which of them an index walks over in which way."""

    kernel: Kernel
    walks: dict[Symbol, Walk]


def loop_order(program: Program, env: Env) -> Program:
    """One program in, one out; see above."""
    if not (env.options.fuse and env.options.loop_order):
        return program
    return GreedyFusion(program, env, "loop_order", views).fused()


def views(first: Kernel, second: Kernel) -> Iterator[tuple[Kernel, Kernel]]:
    """Both with other loops that do the same, such that they may match where they did not."""
    merged = merge_axes(first), merge_axes(second)
    seen: dict[tuple[Kernel, Kernel], None] = {(first, second): None}
    for pair in dict.fromkeys(((first, second), merged)):
        if pair not in seen:
            seen[pair] = None
            yield pair
        for index, other in common_accesses(*pair)[:TRIED]:
            for view in _views_by(pair, index, other):
                if view not in seen:
                    seen[view] = None
                    yield view


def _views_by(pair: tuple[Kernel, Kernel], index: Expr, other: Expr) -> Iterator[tuple[Kernel, Kernel]]:
    """The pair with loops that end where the other's do, where both touch an element; and with the rest unrolled."""
    walks = _walks(pair[0], index), _walks(pair[1], other)
    if walks[0] is None or walks[1] is None:
        return
    a = _split(pair[0], walks[0], tuple(walks[1].values()))
    b = _split(pair[1], walks[1], tuple(walks[0].values()))
    if set(b.walks.values()) < set(a.walks.values()):
        yield _unrolled(a, b), b.kernel
    elif set(a.walks.values()) < set(b.walks.values()):
        yield a.kernel, _unrolled(b, a)
    yield a.kernel, b.kernel


# --- splitting ------------------------------------------------------------------------------------------------------


def _walks(kernel: Kernel, index: Expr) -> dict[Symbol, Walk] | None:
    """How an index walks over each axis that it moves along; None if that is by no fixed steps."""
    found = linear(index, [axis.symbol for axis in kernel.axes])
    if found is None:
        return None
    return {axis.symbol: (step, axis.extent) for axis in kernel.axes if as_int(step := found[0][axis.symbol]) != 0}


def split(walk: Walk, others: Sequence[Walk]) -> tuple[int, ...]:
    """The extents, outermost first, of the loops that a walk falls into where others begin or end; none if it stays."""
    stride, extent = as_int(walk[0]), as_int(walk[1])
    if stride is None or extent is None or stride < 0:
        return ()
    bounds = {as_int(bound) for step, count in others for bound in (step, step * count)}
    sizes: list[int] = []
    start, end = stride, stride * extent
    for cut in sorted(bound for bound in bounds if bound is not None):
        if start < cut < end and cut % start == 0 and end % cut == 0:
            sizes.append(cut // start)
            start = cut
    return (end // start, *reversed(sizes)) if sizes else ()


def _split(kernel: Kernel, walks: dict[Symbol, Walk], others: Sequence[Walk]) -> _Split:
    """The kernel with the axes of an index in parts; a scan's axis stays whole."""
    scanned = {op.attrs.axis for op in kernel.body.ops if isinstance(op.attrs, Scan)}
    axes: list[Axis] = []
    mapping: dict[Symbol, Expr] = {}
    finer: dict[Symbol, Walk] = {}
    for axis in kernel.axes:
        walk = walks.get(axis.symbol)
        sizes = () if walk is None or axis.name in scanned else split(walk, others)
        at = as_expr(0)
        for place, size in enumerate(sizes):
            made = symbol(f"i{len(axes)}", "axis", 0, size - 1)
            axes.append(Axis(made, as_expr(size)))
            step = prod(sizes[place + 1 :])
            at = at + step * made
            finer[made] = step * walks[axis.symbol][0], as_expr(size)
        if not sizes:
            known = as_int(axis.extent)
            at = symbol(f"i{len(axes)}", "axis", 0, None if known is None else max(known - 1, 0))
            axes.append(Axis(at, axis.extent))
            if walk is not None:
                finer[at] = walk
        mapping[axis.symbol] = at
    if len(axes) == len(kernel.axes):
        return _Split(kernel, walks)
    extents = extents_of(axes)
    builder = Builder([axis.symbol for axis in axes], extents)

    def load(b: Builder, wanted: Load, dtype: DType) -> int | None:
        return b.load(wanted.ref, simplify(wanted.index, extents), dtype) if has_division(wanted.index) else None

    builder.splice(kernel.body, mapping, load)
    return _Split(replace(kernel, axes=tuple(axes), body=builder.build()), finer)


# --- unrolling ------------------------------------------------------------------------------------------------------


def _unrolled(more: _Split, less: _Split) -> Kernel:
    """Without the axes that only the one walks over, where they are short: a point of it is then one of the other's."""
    known = set(less.walks.values())
    kernel, copies = more.kernel, 1
    for at, walk in more.walks.items():
        if walk in known:
            continue
        extent = as_int(walk[1])
        if extent is None or copies * extent > MOST_COPIES or not _may_unroll(kernel, at):
            return more.kernel
        copies *= extent
        axes = tuple(axis for axis in kernel.axes if axis.symbol != at)
        builder = Builder([axis.symbol for axis in axes], extents_of(axes))
        builder.unroll(kernel.body, at, extent)
        kernel = replace(kernel, axes=axes, body=builder.build())
    return kernel


def _may_unroll(kernel: Kernel, at: Symbol) -> bool:
    """A scan needs its axis, and a reduce one at least."""
    for op in kernel.body.ops:
        match op.attrs:
            case Scan(axis) if axis == at.name:
                return False
            case Reduce(axes) if axes == (at.name,):
                return False
            case _:
                pass
    return True
