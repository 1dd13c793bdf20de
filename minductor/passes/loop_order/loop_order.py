"""Fuses kernels whose points match only after loops are split, merged or unrolled: a second round of fusion.

Takes the program that `fuse` gives. Gives a program with fewer kernels, or the same object; what `fuse` has fused stays
fused. Refuses, with a `FusionRefusal`, the pairs that still do not match. The order of a kernel's loops does not
matter: `join_kernels` solves the axes of one kernel in those of the other, in any order.

No kernel is changed on trial. A pair is tried in other forms, called views, and a view is kept only if it is fused.

>>> from minductor.core.expressions.expr import integer
>>> others = [(integer(12544), integer(768)), (integer(196), integer(64))]
>>> split_extents((integer(196), integer(384)), others), split_extents((integer(75264), integer(128)), others)
((6, 64), ())
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, TypeAlias

from minductor.analysis.domain import extents_of
from minductor.core.expressions.expr import Expr, Symbol, as_expr, as_int, linear
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Kernel, Program, Reduce, Scan
from minductor.passes.loop_order.whole_concat import whole_concat
from minductor.passes.rewriting.greedy_fusion import GreedyFusion
from minductor.passes.rewriting.join_kernels import common_accesses
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.rewriting.split_axes import with_split_axes
from minductor.target import Env

MAX_COPIES = 4  # of a body, when a loop is unrolled
MAX_ACCESS_PAIRS = 4  # pairs of accesses, of two kernels, whose loops are compared

Walk: TypeAlias = tuple[Expr, Expr]  # how an index runs along one axis: the stride in elements, and the extent


class _FinerLoops(NamedTuple):
    """A kernel some of whose loops are split, and the walk of an index along each axis that it moves along."""

    kernel: Kernel
    walks: dict[Symbol, Walk]


def loop_order(program: Program, env: Env) -> Program:
    """The program after a round of fusion with other loops; the program itself if an option switches that off."""
    if not (env.options.fuse and env.options.loop_order):
        return program
    return whole_concat(GreedyFusion(program, env, "loop_order", views).fused(), env)


def views(first: Kernel, second: Kernel) -> Iterator[tuple[Kernel, Kernel]]:
    """Forms of both kernels, with merged, split or unrolled loops, that may match where the kernels did not."""
    merged = merge_kernel_axes(first), merge_kernel_axes(second)
    given = first, second
    seen = [given]  # compared one by one: most share their bodies, and the hash of a body takes longer
    for pair in (given,) if merged == given else (given, merged):
        if pair not in seen:
            seen.append(pair)
            yield pair
        for index, other in common_accesses(*pair)[:MAX_ACCESS_PAIRS]:
            for view in _views_at(pair, index, other):
                if view not in seen:
                    seen.append(view)
                    yield view


def _views_at(pair: tuple[Kernel, Kernel], index: Expr, other: Expr) -> Iterator[tuple[Kernel, Kernel]]:
    """The pair with loops split where those of the other kernel end, for one pair of indices that touch an element.

    If one kernel then has loops that the other has not, first a form in which these are unrolled.
    """
    walks = _walks(pair[0], index), _walks(pair[1], other)
    if walks[0] is None or walks[1] is None:
        return
    a = _with_finer_loops(pair[0], walks[0], tuple(walks[1].values()))
    b = _with_finer_loops(pair[1], walks[1], tuple(walks[0].values()))
    if set(b.walks.values()) < set(a.walks.values()):
        yield _unrolled(a, b), b.kernel
    elif set(a.walks.values()) < set(b.walks.values()):
        yield a.kernel, _unrolled(b, a)
    yield a.kernel, b.kernel


# --- splitting ------------------------------------------------------------------------------------------------------


def _walks(kernel: Kernel, index: Expr) -> dict[Symbol, Walk] | None:
    """The walk of an index along each axis that it moves along; None if its strides are not constant."""
    found = linear(index, [axis.symbol for axis in kernel.axes])
    if found is None:
        return None
    return {axis.symbol: (step, axis.extent) for axis in kernel.axes if as_int(step := found[0][axis.symbol]) != 0}


def split_extents(walk: Walk, others: Sequence[Walk]) -> tuple[int, ...]:
    """The extents, outermost first, of the loops that a walk is split into where `others` begin or end; () if whole."""
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


def _with_finer_loops(kernel: Kernel, walks: dict[Symbol, Walk], others: Sequence[Walk]) -> _FinerLoops:
    """The kernel with the axes of an index split where `others` begin or end; the axis of a scan stays whole."""
    scanned = {op.attrs.axis for op in kernel.body.ops if isinstance(op.attrs, Scan)}
    found = {s: split_extents(walk, others) for s, walk in walks.items() if s.name not in scanned}
    sizes = {axis: [as_expr(part) for part in parts] for axis, parts in found.items() if parts}
    if not sizes:
        return _FinerLoops(kernel, walks)
    split, made = with_split_axes(kernel, sizes)
    finer: dict[Symbol, Walk] = {}
    for axis in kernel.axes:
        if axis.symbol not in walks:
            continue
        stride, extent = walks[axis.symbol]
        parts = sizes.get(axis.symbol, [extent])
        for place, (new, size) in enumerate(zip(made[axis.symbol], parts, strict=True)):
            finer[new] = prod(parts[place + 1 :], start=as_expr(1)) * stride, size
    return _FinerLoops(split, finer)


# --- unrolling ------------------------------------------------------------------------------------------------------


def _unrolled(more: _FinerLoops, less: _FinerLoops) -> Kernel:
    """The kernel of `more` with those axes unrolled that `less` does not have, if they are short; else unchanged."""
    known = set(less.walks.values())
    kernel, copies = more.kernel, 1
    for at, walk in more.walks.items():
        if walk in known:
            continue
        extent = as_int(walk[1])
        if extent is None or copies * extent > MAX_COPIES or not _can_unroll(kernel, at):
            return more.kernel
        copies *= extent
        axes = tuple(axis for axis in kernel.axes if axis.symbol != at)
        builder = Builder([axis.symbol for axis in axes], extents_of(axes))
        builder.unroll(kernel.body, at, extent)
        kernel = replace(kernel, axes=axes, body=builder.build())
    return kernel


def _can_unroll(kernel: Kernel, at: Symbol) -> bool:
    """Whether an axis can be unrolled: a scan must keep its axis, and a reduction at least one."""
    for op in kernel.body.ops:
        match op.attrs:
            case Scan(axis) if axis == at.name:
                return False
            case Reduce(axes) if axes == (at.name,):
                return False
            case _:
                pass
    return True
