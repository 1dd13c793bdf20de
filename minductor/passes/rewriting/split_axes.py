"""Gives a kernel finer axes: one for each part of an axis that its indices tell apart.

Takes a Kernel. Gives the same computation with axes split, such as one loop over 4 and one over 16 for a loop over 64
whose points are i // 16 and i % 16 somewhere. Each index is then linear, so that the loops can be ordered by stride. A
vector loop divides nothing for conditions either, as those of windows whose rows and columns a view has merged. Refuses
nothing: an axis stays whole if a scan runs along it, if its extent is no multiple of a part, or if parts are short.

>>> from minductor.core.expressions.expr import integer, symbol
>>> i, n, m = symbol("i0", "axis"), symbol("s0", "size", 2), symbol("s1", "size", 2)
>>> [str(size) for size in parts_of(i, integer(64), [100 * (i // 16) + i % 16])]
['4', '16']
>>> [str(size) for size in parts_of(i, n * m, [100 * (i // m) + i % m])], parts_of(i, n, [i // m])
(['s0', 's1'], ())
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod

from minductor.analysis.domain import extents_of, is_bent
from minductor.core.dtypes import DType
from minductor.core.expressions.algebra import children
from minductor.core.expressions.bounds import at_least, divides
from minductor.core.expressions.expr import Expr, FloorDiv, Mod, Symbol, as_int, floordiv, integer
from minductor.core.expressions.rewrite import simplify
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Atomic, Attrs, Axis, Index, Kernel, Load, Ref, Scan, Store, all_ops, axis_over

SHORTEST = 8  # elements of a part; a loop over fewer costs more than the division


def split_kernel_axes(kernel: Kernel) -> Kernel:
    """The kernel with an axis for each part of an axis; the kernel itself if no axis is split."""
    indices = (_index_of(op.attrs) for op in all_ops(kernel.body))
    bent = [index for index in indices if index is not None and is_bent(index)]
    scanned = {op.attrs.axis for op in kernel.body.ops if isinstance(op.attrs, Scan)}
    sizes: dict[Symbol, tuple[Expr, ...]] = {}
    for axis in kernel.axes if bent else ():
        if axis.name not in scanned and (parts := parts_of(axis.symbol, axis.extent, bent)):
            sizes[axis.symbol] = parts
    return with_split_axes(kernel, sizes)[0] if sizes else kernel


def _index_of(attrs: Attrs) -> Expr | None:
    """The index of an access, or that of which an op makes a value, such as the condition of a mask."""
    match attrs:
        case Load(_, index) | Store(_, index) | Atomic(_, index, _) | Index(index):
            return index
        case _:
            return None


def parts_of(axis: Symbol, extent: Expr, indices: Iterable[Expr]) -> tuple[Expr, ...]:
    """The extents, outermost first, of the axes that an axis becomes; () if it stays whole."""
    cuts = list(dict.fromkeys(cut for index in indices for cut in _divisors(index, axis)))
    known = [as_int(cut) for cut in cuts]
    if len(cuts) > 1 and None in known:
        return ()
    ends = [integer(1), *sorted(cuts, key=lambda cut: as_int(cut) or 0), extent]
    if not cuts or not all(divides(start, end) for start, end in pairwise(ends)):
        return ()
    outer, *inner = reversed([floordiv(end, start) for start, end in pairwise(ends)])
    short = any((size := as_int(each)) is not None and size < SHORTEST for each in inner)
    return () if short or as_int(outer) == 1 else (outer, *inner)


def _divisors(expr: Expr, axis: Symbol) -> Iterator[Expr]:
    """The sizes by which an expression divides an axis."""
    if isinstance(expr, FloorDiv | Mod) and expr.num == axis and at_least(expr.den, 1):
        yield expr.den
    for child in children(expr):
        yield from _divisors(child, axis)


def with_split_axes(
    kernel: Kernel, sizes: Mapping[Symbol, Sequence[Expr]]
) -> tuple[Kernel, Mapping[Symbol, tuple[Symbol, ...]]]:
    """The kernel with axes of these sizes in place of some of its axes, and the new axes of each of its axes."""
    axes: list[Axis] = []
    mapping: dict[Symbol, Expr] = {}
    made: dict[Symbol, tuple[Symbol, ...]] = {}
    for axis in kernel.axes:
        parts = sizes.get(axis.symbol, ())
        new = [axis_over(f"i{len(axes) + n}", size) for n, size in enumerate(parts or (axis.extent,))]
        axes += new
        made[axis.symbol] = tuple(each.symbol for each in new)
        at = integer(0)
        for n, each in enumerate(new):
            at = at + prod(parts[n + 1 :], start=integer(1)) * each.symbol
        mapping[axis.symbol] = at
    builder = _Simplifier([axis.symbol for axis in axes], extents_of(axes))
    builder.splice(kernel.body, mapping)
    return replace(kernel, axes=tuple(axes), body=builder.build()), made


class _Simplifier(Builder):
    """A builder that simplifies the indices of the ops that it appends, by the extents of its axes."""

    def region(self) -> Builder:
        return _Simplifier(self.axes, self.extents, around=self)

    def index(self, expr: Expr, dtype: DType | None = None) -> int:
        return super().index(self._simpler(expr), dtype)

    def load(self, ref: Ref, index: Expr, dtype: DType) -> int:
        return super().load(ref, self._simpler(index), dtype)

    def store(self, ref: Ref, index: Expr, value: int) -> int:
        return super().store(ref, self._simpler(index), value)

    def atomic(self, ref: Ref, index: Expr, value: int, kind: str) -> int:
        return super().atomic(ref, self._simpler(index), value, kind)

    def _simpler(self, index: Expr) -> Expr:
        return simplify(index, self.extents) if is_bent(index) else index
