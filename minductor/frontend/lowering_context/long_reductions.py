"""Cuts a reduction with few results and long rows in two kernels, so that a GPU has enough programs to run at once.

Takes a domain, the dimensions that are reduced and the values to reduce. Gives a smaller domain and its values: the
first kernel reduces the elements of each part of a row, the second one reduces the parts. Gives None if there are
enough results or if the rows are short. The cut depends on shapes, hints and the target only, so a sum has the same
bits in every call. Refuses nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minductor.core.dtypes import I64
from minductor.core.expressions.expr import Expr, as_int, floordiv, integer, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import element
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Load, all_ops
from minductor.target import Target

Values = Callable[[KernelBuilder, tuple[Expr, ...]], KernelValue | Sequence[KernelValue]]

LONG_ROW, LONG_COLUMN = 1 << 16, 1 << 10  # elements: a shorter row (or column) is reduced by one program
LEAST_ROW, LEAST_COLUMN = 1 << 12, 1 << 7  # elements: the smallest part of a row (or column)
ALIGNED = 16  # elements: a block whose size is a multiple of it starts where a thread can load several elements at once
WAVES = 2  # programs per multiprocessor that the first kernel should have


@dataclass(frozen=True, slots=True)
class Cut:
    """How reduced dimensions are cut: one part per index of the dimensions `whole` and per block of dimension `dim`.

    `dim` has `count` blocks of `block` elements; if not `is_exact`, the last block may be shorter.
    """

    whole: tuple[int, ...]
    dim: int
    count: Expr
    block: Expr
    is_exact: bool


def cut(extents: Sequence[Expr], reduced: Sequence[int], value: Values, target: Target, hints: Hints) -> Cut | None:
    """How to cut the reduced dimensions; None if the GPU has enough programs without a cut, or the rows are short."""
    sizes = [estimate(n, hints) for n in extents]
    length = math.prod(sizes[d] for d in reduced)
    if not target.is_gpu or not all(sizes) or length < LONG_COLUMN:
        return None
    columns = _columns(extents, reduced, value, hints)
    programs = math.prod(
        -(-n // target.columns_per_block) if d == columns else n for d, n in enumerate(sizes) if d not in reduced
    )
    least, most = (LONG_ROW, LEAST_ROW) if columns is None else (LONG_COLUMN, LEAST_COLUMN)
    if length < least or programs > target.multiprocessors:
        return None
    wanted = min(-(-WAVES * target.multiprocessors // programs), length // most)
    whole: list[int] = []
    for d in sorted(reduced):
        if sizes[d] > wanted > 1 and as_int(extents[d]) is None:
            return Cut(tuple(whole), d, integer(wanted), floordiv(extents[d] + (wanted - 1), wanted), is_exact=False)
        if sizes[d] > wanted > 1:
            return _blocks(tuple(whole), d, sizes[d], wanted)
        if wanted > 1:
            whole.append(d)
            wanted = -(-wanted // sizes[d])
    return Cut(tuple(whole[:-1]), whole[-1], extents[whole[-1]], integer(1), is_exact=True)


def _blocks(whole: tuple[int, ...], dim: int, size: int, wanted: int) -> Cut:
    """A cut of a dimension into about `wanted` blocks: equal ones if such a number of blocks divides the size."""
    near = [n for n in (*range(wanted, 4 * wanted), *range(wanted - 1, wanted // 2, -1)) if size % n == 0]
    if near:
        count = min(near, key=lambda n: size // n % ALIGNED != 0)
        return Cut(whole, dim, integer(count), integer(size // count), is_exact=True)
    block = -(-size // (wanted * ALIGNED)) * ALIGNED
    return Cut(whole, dim, integer(-(-size // block)), integer(block), is_exact=False)


def _columns(extents: Sequence[Expr], reduced: Sequence[int], value: Values, hints: Hints) -> int | None:
    """The dimension along which most loaded elements are contiguous; None if that dimension is reduced."""
    loop = KernelBuilder(extents)
    value(loop, loop.coords)
    by_symbol = {axis.symbol: loop.coords.index(axis.symbol) for axis in loop.axes}
    claims = dict.fromkeys(range(len(extents)), 0)
    for op in all_ops(loop.b.build()):
        if not isinstance(op.attrs, Load):
            continue
        found = linear(op.attrs.index, tuple(by_symbol))
        weight = estimate([extents[by_symbol[axis.symbol]] for axis in loop.axes if axis.name in op.axes], hints)
        for symbol, dim in by_symbol.items():
            if found is not None and as_int(found[0][symbol]) in (1, -1):
                claims[dim] += weight
    first = max(claims, key=claims.__getitem__, default=None)
    return None if first is None or first in reduced or not claims[first] else first


def partial(
    ctx: Lowering, extents: Sequence[Expr], reduced: Sequence[int], value: Values, how: str, parts: Cut
) -> tuple[tuple[Expr, ...], tuple[int, ...], Values]:
    """Adds the kernel that reduces each part; returns the second kernel's domain, reduced dimensions and values.

    The domain of the second kernel has the kept dimensions in order, then the parts.
    """
    kept = [d for d in range(len(extents)) if d not in reduced]
    inner = [d for d in reduced if d not in parts.whole]
    outer = [*(extents[d] for d in parts.whole), parts.count]
    sizes = [parts.block if d == parts.dim else extents[d] for d in inner]
    loop = KernelBuilder([*outer, *(extents[d] for d in kept), *sizes])
    at = dict(zip((*parts.whole, -1, *kept, *inner), loop.coords, strict=True))
    at[parts.dim] = at.pop(-1) * parts.block + at[parts.dim]
    terms = _values(loop, value, tuple(at[d] for d in range(len(extents))), how, parts, extents)
    start = len(outer) + len(kept)
    first = loop.reduce(terms, range(start, len(loop.extents)), how)
    size = loop.extents[:start]
    views = [ctx.buffer(term.dtype, size) for term in terms]
    for number, view in enumerate(views):
        joined = KernelValue(loop.b, loop.b.project(first.at, number)) if number else first
        loop.b.store(view.ref, element(view, loop.coords[:start]), joined.at)
    ctx.add_kernel(loop)

    def load(loop: KernelBuilder, at: tuple[Expr, ...]) -> Sequence[KernelValue]:
        place = (*at[len(kept) :], *at[: len(kept)])
        return [loop.load(view, place) for view in views]

    return (*(extents[d] for d in kept), *outer), tuple(range(len(kept), start)), load


def _values(
    loop: KernelBuilder, value: Values, at: tuple[Expr, ...], how: str, parts: Cut, extents: Sequence[Expr]
) -> Sequence[KernelValue]:
    """The values at a point of a part; the reduction's identity beyond the end of a shorter last block."""
    if parts.is_exact:
        return _terms(value(loop, at))
    region = copy.copy(loop)
    place = loop.index(at[parts.dim], I64)
    exists = place < place.size(extents[parts.dim])
    first = _terms(value(probe := KernelBuilder(extents), probe.coords))
    identity = combine(how, first[0].dtype).identity
    found: list[KernelValue] = []
    for number, other in enumerate(identity):
        region.b = loop.b.region()
        term = _terms(value(region, at))[number]
        body = region.b.build([term.at])
        found.append(loop.term(loop.b.masked(exists.at, (), body, other, term.dtype)))
    return found


def _terms(found: KernelValue | Sequence[KernelValue]) -> Sequence[KernelValue]:
    return [found] if isinstance(found, KernelValue) else list(found)
