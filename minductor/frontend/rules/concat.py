"""Tensors from pieces and pieces of tensors: concatenation, padding, reversal, and the derivatives of views.

Takes views. Gives one kernel a result; a concatenation is one kernel a piece, each making a version of one storage, so
that a producer may write its slice in place. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from minductor.core.dtypes import I64
from minductor.core.expressions.algebra import maximum, minimum
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.size_formulas import count, is_zero, row_major
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Value, wrap_dim, wrap_index
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
Coords = Sequence[Expr]


def cat(ctx: Lowering, tensors: Sequence[View], dim: int = 0) -> Value:
    """The pieces in order along a dimension; a one-dimensional empty piece counts for nothing, as in torch."""
    pieces = [t for t in tensors if not (len(t.size) == 1 and is_zero(t.size[0]))]
    pieces = [t for t in pieces if not any(is_zero(n) for n in t.size)]
    out = ctx.result()
    if not pieces:
        return ctx.uninitialised(out)
    along = wrap_dim(dim, len(out.size))
    start = integer(0)
    for number, piece in enumerate(pieces):
        loop = KernelBuilder(piece.size)
        version = out if number == 0 else ctx.next_version(out)
        at = [c + start if d == along else c for d, c in enumerate(loop.coords)]
        ctx.store(loop, version, at, loop.load(piece, None, out.dtype))
        start = start + piece.size[along]
    return ctx.newest(out)


def stack(ctx: Lowering, tensors: Sequence[View], dim: int = 0) -> Value:
    out = ctx.result()
    if any(is_zero(n) for n in out.size):
        return ctx.uninitialised(out)
    along = wrap_dim(dim, len(out.size))
    for number, piece in enumerate(tensors):
        loop = KernelBuilder(piece.size)
        version = out if number == 0 else ctx.next_version(out)
        at = [*loop.coords[:along], integer(number), *loop.coords[along:]]
        ctx.store(loop, version, at, loop.load(piece, None, out.dtype))
    return ctx.newest(out)


# --- reads that some elements do not make -------------------------------------------------------------------------


def masked_load(
    loop: KernelBuilder, conditions: Sequence[KernelValue], x: View, coords: Coords, other: float
) -> KernelValue:
    """x at `coords` where all conditions hold, else `other`; the load does not run where they do not."""
    if not conditions:
        return loop.load(x, coords)
    holds = conditions[0]
    for condition in conditions[1:]:
        holds = holds.both(condition)
    region = KernelBuilder(())
    region.b = loop.b.region()
    value = region.load(x, coords)
    body = region.b.build([value.at])
    return loop.term(loop.b.masked(holds.at, (), body, other, value.dtype))


def in_bounds(
    loop: KernelBuilder, place: Expr, size: Expr, *, low: bool = True, high: bool = True
) -> list[KernelValue]:
    """The conditions for 0 <= place < size that are asked for."""
    value = loop.index(place, I64)
    found = [value >= 0] if low else []
    return [*found, value < value.size(size)] if high else found


def constant_pad(ctx: Lowering, x: View, pad: Sequence[Operand], value: float = 0) -> Value:
    """`pad` has a pair a dimension, the last dimension first; negative ones cut."""
    rank = len(x.size)

    def fn(loop: KernelBuilder) -> KernelValue:
        coords, conditions = list(loop.coords), list[KernelValue]()
        for d in range(rank):
            place = 2 * (rank - 1 - d)
            if place >= len(pad):
                continue
            before, after = (as_expr(p) for p in pad[place : place + 2] if isinstance(p, int | Expr))
            coords[d] = loop.coords[d] - before
            conditions += in_bounds(loop, coords[d], x.size[d], low=not _is_cut(before), high=not _is_cut(after))
        return masked_load(loop, conditions, x, coords, value)

    if any(is_zero(n) for n in x.size):
        return ctx.pointwise(lambda v: v, value)
    return ctx.map(fn)


def _is_cut(pad: Expr) -> bool:
    known = as_int(pad)
    return known is not None and known <= 0


def flip(ctx: Lowering, x: View, dims: Sequence[int]) -> Value:
    turned = {wrap_dim(d, len(x.size)) for d in dims}

    def fn(loop: KernelBuilder) -> KernelValue:
        return loop.load(
            x, [n - 1 - c if d in turned else c for d, (n, c) in enumerate(zip(x.size, loop.coords, strict=True))]
        )

    return ctx.map(fn)


def roll(ctx: Lowering, x: View, shifts: Sequence[Operand], dims: Sequence[int] = ()) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    if not dims:
        return roll_flat(ctx, x, shifts[0])
    by_dim: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        if not isinstance(shift, int | Expr):
            return NotImplemented
        d = wrap_dim(dim, len(x.size))
        by_dim[d] = by_dim.get(d, integer(0)) + as_expr(shift)

    def fn(loop: KernelBuilder) -> KernelValue:
        # a shift within the size keeps the numerator of the remainder from being negative
        places = [
            (c + (n - by_dim[d] % n)) % n if d in by_dim else c
            for d, (n, c) in enumerate(zip(x.size, loop.coords, strict=True))
        ]
        return loop.load(x, places)

    return ctx.map(fn)


def roll_flat(ctx: Lowering, x: View, shift: Operand) -> Value:
    """Without dimensions the elements move in their flattened order."""
    if not isinstance(shift, int | Expr):
        return NotImplemented
    total, strides = count(x.size), row_major(x.size)

    def fn(loop: KernelBuilder) -> KernelValue:
        place = total - as_expr(shift) % total
        for c, s in zip(loop.coords, strides, strict=True):
            place = place + c * s
        place = place % total
        return loop.load(x, [place // s % n for n, s in zip(x.size, strides, strict=True)])

    return ctx.map(fn)


def repeat(ctx: Lowering, x: View, repeats: Value) -> Value:
    if any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        own = loop.coords[len(loop.coords) - len(x.size) :]
        return loop.load(x, [c % n for n, c in zip(x.size, own, strict=True)])

    return ctx.map(fn)


# --- derivatives of views ------------------------------------------------------------------------------------------


def select_backward(ctx: Lowering, grad: View, size: Value, dim: int, index: Operand) -> Value:
    """Zeros but for one place along a dimension."""

    def fn(loop: KernelBuilder) -> KernelValue:
        d = wrap_dim(dim, len(loop.coords))
        value = loop.load(grad, [c for k, c in enumerate(loop.coords) if k != d])
        return is_at_index(loop, d, index).where(value, value.number(0))

    return ctx.map(fn)


def is_at_index(loop: KernelBuilder, dim: int, index: Operand) -> KernelValue:
    """Whether the coordinate is `index`, which may count from the end."""
    return loop.index(loop.coords[dim] - wrap_index(index, loop.extents[dim]), I64).equals(0)


def read_slice(
    loop: KernelBuilder, source: View, dim: int, start: Operand, step: Operand, other: float
) -> tuple[KernelValue, list[KernelValue]]:
    """What a slice of the domain holds if `source` is put there, and the conditions for being in the slice."""
    assert isinstance(step, int | Expr)
    size = loop.extents[dim]
    first = slice_start(start, size)
    distance = loop.coords[dim] - first
    place = distance // step
    low = as_int(first) != 0
    high = source.size[dim] * step + first != size
    conditions = in_bounds(loop, distance, source.size[dim] * step, low=low, high=high)
    if as_int(as_expr(step)) != 1:
        conditions.append(loop.index(distance % step, I64).equals(0))
    coords = [place if k == dim else c for k, c in enumerate(loop.coords)]
    return masked_load(loop, conditions, source, coords, other), conditions


def slice_start(start: Operand | None, size: Expr) -> Expr:
    """Where a slice begins: counted from the end if negative, and never outside."""
    place = maximum(wrap_index(0 if start is None else start, size), 0)
    return minimum(place, size) if as_int(size) is not None else place


def slice_backward(
    ctx: Lowering, grad: View, size: Value, dim: int, start: Operand, end: Operand, step: Operand
) -> Value:
    """Zeros but for a slice."""
    if any(is_zero(n) for n in grad.size):
        return filled_with_zero(ctx)
    return ctx.map(lambda loop: read_slice(loop, grad, wrap_dim(dim, len(loop.coords)), start, step, 0)[0])


def filled_with_zero(ctx: Lowering) -> Value:
    return ctx.pointwise(lambda x: x, 0)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.cat.default": cat,
        "aten.stack.default": stack,
        "aten.constant_pad_nd.default": constant_pad,
        "aten.flip.default": flip,
        "aten.roll.default": roll,
        "aten.repeat.default": repeat,
        "aten.select_backward.default": select_backward,
        "aten.slice_backward.default": slice_backward,
    }
)
