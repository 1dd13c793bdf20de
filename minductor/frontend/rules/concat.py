"""Rules of operators that move elements to other coordinates.

- cat and stack
- constant_pad_nd (reflection and replication are in `pad.py`)
- flip, roll, repeat
- select_backward and slice_backward, the gradients of views

Takes views. Gives one pointwise kernel per result. cat and stack make one kernel per piece, each of which writes its
slice of one buffer, so that a piece's producer can be fused into it and write there directly. Refuses rolls and repeats
without elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from minductor.core.dtypes import I64
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.size_formulas import count, is_zero, row_major
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Coords, Operand, Rule, Value, wrap_dim, wrap_index
from minductor.frontend.lowering_context.windows import slice_start
from minductor.ir.program.nodes import View


def cat(ctx: Lowering, tensors: Sequence[View], dim: int = 0) -> Value:
    """Lowers cat; pieces are cast to the result's dtype, and pieces without elements are left out."""
    pieces = [t for t in tensors if not any(is_zero(n) for n in t.size)]
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
    """Lowers stack: each tensor is one slice of the new dimension."""
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


# --- masked loads -------------------------------------------------------------------------------------------------


def masked_load(loop: KernelBuilder, tests: Sequence[KernelValue], x: View, at: Coords, other: float) -> KernelValue:
    """x's element at `at` where all tests hold, else `other`; memory is not read where a test is false."""
    if not tests:
        return loop.load(x, at)
    holds = reduce(KernelValue.both, tests)
    region = KernelBuilder(())
    region.b = loop.b.region()
    value = region.load(x, at)
    body = region.b.build([value.at])
    return loop.term(loop.b.masked(holds.at, (), body, other, value.dtype))


def in_bounds(loop: KernelBuilder, at: Expr, size: Expr, *, low: bool = True, high: bool = True) -> list[KernelValue]:
    """The conditions 0 <= at (if `low`) and at < size (if `high`)."""
    value = loop.index(at, I64)
    found = [value >= 0] if low else []
    return [*found, value < value.size(size)] if high else found


def constant_pad(ctx: Lowering, x: View, pad: Sequence[Operand], value: float = 0) -> Value:
    """Lowers constant_pad_nd; `pad` has a pair (before, after) per dimension, the last dimension first.

    Negative pads cut. A side that is not padded needs no condition.
    """
    rank = len(x.size)

    def fn(loop: KernelBuilder) -> KernelValue:
        coords, conditions = list(loop.coords), list[KernelValue]()
        for d in range(rank):
            place = 2 * (rank - 1 - d)
            if place >= len(pad):
                continue
            before, after = (as_expr(p) for p in pad[place : place + 2] if isinstance(p, int | Expr))
            coords[d] = loop.coords[d] - before
            conditions += in_bounds(loop, coords[d], x.size[d], low=not _is_empty(before), high=not _is_empty(after))
        return masked_load(loop, conditions, x, coords, value)

    if any(is_zero(n) for n in x.size):
        return ctx.pointwise(lambda v: v, value)
    return ctx.map(fn)


def _is_empty(pad: Expr) -> bool:
    """Whether a pad is known to be zero or negative."""
    known = as_int(pad)
    return known is not None and known <= 0


def flip(ctx: Lowering, x: View, dims: Sequence[int]) -> Value:
    """Lowers flip: reads n - 1 - c at coordinate c of each flipped dimension of size n."""
    flipped = {wrap_dim(d, len(x.size)) for d in dims}

    def fn(loop: KernelBuilder) -> KernelValue:
        rows = enumerate(zip(x.size, loop.coords, strict=True))
        return loop.load(x, [n - 1 - c if d in flipped else c for d, (n, c) in rows])

    return ctx.map(fn)


def roll(ctx: Lowering, x: View, shifts: Sequence[Operand], dims: Sequence[int] = ()) -> Value:
    """Lowers roll: reads (c - shift) mod n at coordinate c of each shifted dimension of size n."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    if not dims:
        return roll_flattened(ctx, x, shifts[0])
    by_dim: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        if not isinstance(shift, int | Expr):
            return NotImplemented
        d = wrap_dim(dim, len(x.size))
        by_dim[d] = by_dim.get(d, integer(0)) + as_expr(shift)

    def fn(loop: KernelBuilder) -> KernelValue:
        # n - shift % n is positive, so the remainder never has a negative numerator
        rows = enumerate(zip(x.size, loop.coords, strict=True))
        return loop.load(x, [(c + (n - by_dim[d] % n)) % n if d in by_dim else c for d, (n, c) in rows])

    return ctx.map(fn)


def roll_flattened(ctx: Lowering, x: View, shift: Operand) -> Value:
    """roll without dimensions: shifts the row-major sequence of all elements."""
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
    """Lowers repeat: reads c mod n at coordinate c of each of x's dimensions of size n."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        last = loop.coords[len(loop.coords) - len(x.size) :]
        return loop.load(x, [c % n for n, c in zip(x.size, last, strict=True)])

    return ctx.map(fn)


# --- gradients of views --------------------------------------------------------------------------------------------


def select_backward(ctx: Lowering, grad: View, size: Value, dim: int, index: Operand) -> Value:
    """Lowers select_backward: `grad` at one index of dimension `dim`, and zeros elsewhere."""

    def fn(loop: KernelBuilder) -> KernelValue:
        d = wrap_dim(dim, len(loop.coords))
        value = loop.load(grad, [c for k, c in enumerate(loop.coords) if k != d])
        return is_at_index(loop, d, index).where(value, value.number(0))

    return ctx.map(fn)


def is_at_index(loop: KernelBuilder, dim: int, index: Operand) -> KernelValue:
    """Whether the loop's coordinate of dimension `dim` is `index`, which may count from the end."""
    return loop.index(loop.coords[dim] - wrap_index(index, loop.extents[dim]), I64).equals(0)


def read_slice(
    loop: KernelBuilder, source: View, dim: int, start: Operand, step: Operand, other: float
) -> tuple[KernelValue, list[KernelValue]]:
    """The element of `source` that the loop's point shows, if `source` fills a slice of the loop's domain.

    Gives `other` outside of the slice, and the conditions for being inside. The slice begins at `start` and takes every
    `step`-th index of dimension `dim`.
    """
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


def slice_backward(
    ctx: Lowering, grad: View, size: Value, dim: int, start: Operand, end: Operand, step: Operand
) -> Value:
    """Lowers slice_backward: `grad` in a slice, and zeros elsewhere."""
    if any(is_zero(n) for n in grad.size):
        return filled_with_zero(ctx)
    return ctx.map(lambda loop: read_slice(loop, grad, wrap_dim(dim, len(loop.coords)), start, step, 0)[0])


def filled_with_zero(ctx: Lowering) -> Value:
    """The result filled with 0."""
    return ctx.pointwise(lambda x: x, 0)


RULES: Mapping[str, Rule] = {
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.constant_pad_nd.default": constant_pad,
    "aten.flip.default": flip,
    "aten.roll.default": roll,
    "aten.repeat.default": repeat,
    "aten.select_backward.default": select_backward,
    "aten.slice_backward.default": slice_backward,
}
