"""Gives a kernel fewer and longer axes: merges axes that all indices run through as one, and drops axes of extent 1.

Takes a Kernel. Gives the same computation over fewer axes, such as one loop over 4096 elements for two over 64 x 64.
Refuses nothing: axes that cannot be merged stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, integer, substitute, symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Atomic, Axis, Body, Check, Index, Kernel, Load, Masked, Reduce, Scan, Store


def merge_kernel_axes(kernel: Kernel) -> Kernel:
    """The kernel with merged axes, or the kernel itself if nothing merges."""
    mapping: dict[Symbol, Expr] = {}
    axes = list(kernel.axes)
    indices = list(dict.fromkeys(_indices(kernel.body)))
    groups = list(_reduced_axes(kernel.body))
    joined = {name for group in groups for name in group}
    for axis in kernel.axes:
        if as_int(axis.extent) == 1 and axis.name not in joined:
            mapping[axis.symbol] = integer(0)
            axes.remove(axis)
            indices = [substitute(e, {axis.symbol: integer(0)}) for e in indices]
    is_ordered = any(isinstance(op.attrs, Atomic) for op in kernel.body.ops)
    while (pair := _mergeable_pair(axes, indices, groups, is_ordered=is_ordered)) is not None:
        outer, inner = pair
        extent = outer.extent * inner.extent
        count = as_int(extent)
        merged = Axis(symbol(inner.name, "axis", 0, None if count is None else count - 1), extent)
        step: dict[Symbol, Expr] = {outer.symbol: integer(0), inner.symbol: merged.symbol}
        mapping = {old: substitute(new, step) for old, new in mapping.items()} | step
        indices = [substitute(e, step) for e in indices]
        groups = [group - {outer.name} for group in groups]
        axes[axes.index(inner)] = merged
        axes.remove(outer)
    if not mapping:
        return kernel
    builder = Builder([axis.symbol for axis in axes], {axis.symbol: axis.extent for axis in axes})
    builder.splice(kernel.body, mapping)
    return replace(kernel, axes=tuple(axes), body=builder.build())


def _indices(body: Body) -> Iterator[Expr]:
    """All index expressions of a body, those under masks included."""
    for op in body.ops:
        match op.attrs:
            case Load(_, index) | Store(_, index) | Atomic(_, index, _) | Index(index):
                yield index
            case Check(_, size, _):
                yield size
            case Masked(inner, _):
                yield from _indices(inner)
            case _:
                pass


def _reduced_axes(body: Body) -> Iterator[frozenset[str]]:
    """The sets of axes of each reduction and scan. An axis may merge only with one that is in the same sets."""
    for op in body.ops:
        match op.attrs:
            case Reduce(axes, _):
                yield frozenset(axes)
            case Scan(axis, _, _):
                yield frozenset((axis,))
            case _:
                pass


def _mergeable_pair(
    axes: list[Axis], indices: list[Expr], groups: list[frozenset[str]], *, is_ordered: bool
) -> tuple[Axis, Axis] | None:
    """Two axes, outer and inner, that can be merged. If the order of points matters, they must be neighbours."""
    for place, outer in enumerate(axes):
        for inner in axes[place + 1 : place + 2] if is_ordered else axes:
            if outer is inner or any((outer.name in g) != (inner.name in g) for g in groups):
                continue
            if _can_merge(outer, inner, indices):
                return outer, inner
    return None


def _can_merge(outer: Axis, inner: Axis, indices: list[Expr]) -> bool:
    """Whether all indices depend on m = outer * extent(inner) + inner alone.

    Then `outer` disappears from them if m - outer * extent(inner) is substituted for `inner`.
    """
    whole: Mapping[Symbol, Expr] = {inner.symbol: symbol("m", "axis") - outer.symbol * inner.extent}
    for index in indices:
        names = free_symbols(index)
        if outer.symbol not in names and inner.symbol not in names:
            continue
        if outer.symbol in free_symbols(substitute(index, whole)):
            return False
    return True
