"""Sums and maxima of windows one dimension after the other, with a kernel for each dimension.

Takes the taps of several dimensions. Gives the result by way of intermediate buffers: windows of k x k elements take
2k additions for each element and not k * k, and all dimensions but the last are summed along contiguous rows. Refuses
nothing. A GPU keeps the sums in one kernel (`gather_taps`), since its kernels wait for memory and not for additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minductor.core.dtypes import I64, compute_dtype
from minductor.core.expressions.expr import Expr, integer, symbol
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import is_one, row_major
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue, without_negative_zero
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Coords
from minductor.frontend.rules.concat import masked_load
from minductor.frontend.rules.window_taps import Taps, tap_at, unrolled_numbers
from minductor.ir.program.nodes import View

MOST_WRITTEN = 16  # taps of one dimension that a kernel writes out one by one; more become a reduction axis

# loop, coordinates of a tap, its tests -> the value of the tap
TapValue = Callable[[KernelBuilder, Coords, list[KernelValue]], KernelValue]
Finish = Callable[[Coords, KernelValue, KernelBuilder], KernelValue]


def summed_dims(taps: Sequence[Taps], lead: int) -> list[int]:
    """The dimensions along which there is more to do than to read the element of the same index."""
    at = symbol("at", "axis", 0, None)
    return [lead + d for d, t in enumerate(taps) if not (is_one(t.count) and t.tap(at, integer(0)) == (at, ()))]


def in_passes(
    ctx: Lowering,
    meta: TensorMeta,
    source: Coords,
    taps: Sequence[Taps],
    value: TapValue,
    order: Sequence[int],
    finish: Finish = lambda at, total, loop: total,
    how: str = "sum",
) -> View:
    """The taps of each element of the result `meta`, combined by `how` along the dimensions `order` one by one.

    `source` is the size of what `value` reads, `finish` makes the stored value. Sums are kept in the compute dtype.
    """
    out = ctx.result(meta)
    dtype = compute_dtype(out.dtype) if how == "sum" else out.dtype
    lead, size = len(out.size) - len(taps), list(source)
    for number, dim in enumerate(order):
        size[dim] = out.size[dim]
        is_last = number == len(order) - 1
        made = out if is_last else ctx.buffer(dtype, size, strides_like(out, size))
        _combine_along(ctx, made, dim, taps[dim - lead], value, finish if is_last else _unchanged, how)
        value = load_from(made)
    return out


def _unchanged(at: Coords, total: KernelValue, loop: KernelBuilder) -> KernelValue:
    return total


def load_from(x: View, other: float = 0) -> TapValue:
    """A function that loads x at a tap, or gives `other` if the tap does not count."""
    return lambda loop, at, tests: masked_load(loop, tests, x, at, other)


def _combine_along(ctx: Lowering, out: View, dim: int, taps: Taps, value: TapValue, finish: Finish, how: str) -> None:
    """A kernel that combines the taps of one dimension."""
    rank = len(out.size)
    loop = loop_over_taps(out.size, taps)
    point = loop.coords[:rank]
    ctx.store(loop, out, point, finish(point, combined_along(loop, point, dim, taps, value, how), loop))


def loop_over_taps(size: Coords, taps: Taps) -> KernelBuilder:
    """A kernel over the elements of a result and, if there are many taps or sizes decide their number, over taps."""
    return KernelBuilder((*size, *(() if _written(taps) else (_tested(taps)[0],))))


def is_few(taps: Taps) -> bool:
    """Whether a kernel writes out the taps of one dimension, and needs no reduction axis for them."""
    return bool(_written(taps))


def _written(taps: Taps) -> list[Expr]:
    """The numbers of the taps that a kernel writes out one by one; none if a reduction axis runs over them."""
    numbers = unrolled_numbers([taps]) or []
    return [k for (k,) in numbers] if len(numbers) <= MOST_WRITTEN else []


def _tested(taps: Taps) -> tuple[Expr, bool]:
    """The taps of a reduction axis, and whether one more tap is combined with their result.

    Those that each element has need no test, which would keep the loop over them from being vectorised.
    """
    uneven = taps.uneven
    return (taps.count, False) if uneven is None else (uneven.certain, uneven.certain != taps.count)


def combined_along(loop: KernelBuilder, point: Coords, dim: int, taps: Taps, value: TapValue, how: str) -> KernelValue:
    """The value of the taps of dimension `dim` at a point, combined by `how`, in a kernel of `loop_over_taps`."""

    def at_place(place: Expr, tests: list[KernelValue]) -> KernelValue:
        return value(loop, [*point[:dim], place, *point[dim + 1 :]], tests)

    def tap(k: Expr) -> KernelValue:
        (place,), tests = tap_at(loop, [taps], [point[dim]], [k])
        return at_place(place, tests)

    op = "add" if how == "sum" else "maximum"
    if numbers := _written(taps):
        total = without_negative_zero(tap(numbers[0])) if how == "sum" else tap(numbers[0])
        for k in numbers[1:]:
            total = tap(k).op(op, total)
        return total
    rank, uneven = len(point), taps.uneven
    if uneven is None:
        return loop.reduce([tap(loop.coords[rank])], [rank], how)
    first, last = uneven.first(point[dim]), uneven.last(point[dim])
    total = loop.reduce([at_place(first + loop.coords[rank], [])], [rank], how)
    if not _tested(taps)[1]:
        return total
    more = at_place(last, [])
    if how == "sum":  # the last tap of a window without one more is in the sum already; a maximum may have it twice
        more = (loop.index(last - first - uneven.certain, I64) >= 0).where(more, more.number(0))
    return more.op(op, total)


def is_channels_last(size: Sequence[Expr], stride: Sequence[Expr]) -> bool:
    """Whether channels are innermost."""
    return len(size) > 3 and is_one(stride[1]) and not is_one(size[1])


def strides_like(out: View, size: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a buffer of that size without gaps: channels are innermost if they are so in `out`."""
    if not is_channels_last(out.size, out.stride):
        return row_major(size)
    batch, channels, *area = size
    strides = row_major((batch, *area, channels))
    return strides[0], strides[-1], *strides[1:-1]
