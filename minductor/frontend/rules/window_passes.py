"""Sums over windows one dimension after the other, with a kernel for each dimension.

Takes the taps of several dimensions. Gives the result by way of intermediate buffers: windows of k x k elements take
2k additions for each element and not k * k, and all dimensions but the last are summed along contiguous rows. Refuses
nothing. A GPU keeps the sums in one kernel (`gather_taps`), since its kernels wait for memory and not for additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minductor.core.dtypes import compute_dtype
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


def sum_in_passes(
    ctx: Lowering,
    meta: TensorMeta,
    source: Coords,
    taps: Sequence[Taps],
    value: TapValue,
    order: Sequence[int],
    finish: Finish,
) -> View:
    """The sums of the taps of each element of the result `meta`, along the dimensions `order`, one after the other.

    `source` is the size of what `value` reads, `finish` makes the stored value of a sum.
    """
    out = ctx.result(meta)
    lead, size = len(out.size) - len(taps), list(source)
    for number, dim in enumerate(order):
        size[dim] = out.size[dim]
        is_last = number == len(order) - 1
        made = out if is_last else ctx.buffer(compute_dtype(out.dtype), size, strides_like(out, size))
        _sum_along(ctx, made, dim, taps[dim - lead], value, finish if is_last else lambda at, total, loop: total)
        value = _load_from(made)
    return out


def _load_from(x: View) -> TapValue:
    return lambda loop, at, tests: masked_load(loop, tests, x, at, 0)


def _sum_along(ctx: Lowering, out: View, dim: int, taps: Taps, value: TapValue, finish: Finish) -> None:
    """A kernel that sums the taps of one dimension."""
    rank = len(out.size)
    numbers = unrolled_numbers([taps])
    if numbers is not None and len(numbers) > MOST_WRITTEN:
        numbers = None
    loop = KernelBuilder((*out.size, *(() if numbers else (taps.count,))))
    point = loop.coords[:rank]

    def tap(k: Expr) -> KernelValue:
        (place,), tests = tap_at(loop, [taps], [point[dim]], [k])
        return value(loop, [*point[:dim], place, *point[dim + 1 :]], tests)

    if numbers is None:
        total = loop.reduce([tap(loop.coords[rank])], [rank], "sum")
    else:
        total = without_negative_zero(tap(integer(0)))
        for (k,) in numbers[1:]:
            total = tap(k).op("add", total)
    ctx.store(loop, out, point, finish(point, total, loop))


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
