"""The maxima of windows with their indices, one dimension after the other, with kernels for each dimension.

Takes the taps of several dimensions. Gives the maxima and their row-major indices in the pooled dimensions, of equal
maxima the first one, and of NaN the last one, as eager does. Refuses nothing.

A kernel of one dimension finds the maximum of the taps; a second one combines a key for each tap that equals it. The
largest key wins, so the loop over taps compares no pairs of value and index: it is vectorised as that of a sum is. A
number with index n has the key -1 - n, and a NaN the key n.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.dtypes import I64
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Coords
from minductor.frontend.rules.index import ravel
from minductor.frontend.rules.window_passes import TapValue, combined_along, load_from, loop_over_taps, strides_like
from minductor.frontend.rules.window_taps import Taps
from minductor.ir.program.nodes import View


def places_in_passes(
    ctx: Lowering, metas: Sequence[TensorMeta], x: View, taps: Sequence[Taps], order: Sequence[int], lowest: float
) -> tuple[View, View]:
    """The maxima `metas[0]` and their indices `metas[1]`, along the dimensions `order`; no value is below `lowest`."""
    values, places = (ctx.result(meta) for meta in metas)
    lead, size = len(x.size) - len(taps), list(x.size)
    known, keys = x, None
    for number, dim in enumerate(order):
        size[dim] = values.size[dim]
        is_last = number == len(order) - 1
        top = values if is_last else ctx.buffer(x.dtype, size, strides_like(values, size))
        best = places if is_last else ctx.buffer(I64, size, strides_like(values, size))
        along = taps[dim - lead]
        _store_along(ctx, top, dim, along, load_from(known, lowest))
        key = _key(known, keys, top, dim, x.size[lead:], lead)
        _store_along(ctx, best, dim, along, key, is_last=is_last)
        known, keys = top, best
    return values, places


def _store_along(ctx: Lowering, out: View, dim: int, taps: Taps, value: TapValue, *, is_last: bool = False) -> None:
    """A kernel that stores the largest value of the taps of one dimension or, if `is_last`, the index of that key."""
    loop = loop_over_taps(out.size, taps)
    point = loop.coords[: len(out.size)]
    best = combined_along(loop, point, dim, taps, value, "max")
    ctx.store(loop, out, point, (best >= 0).where(best, -1 - best) if is_last else best)


def _key(known: View, keys: View | None, top: View, dim: int, area: Coords, lead: int) -> TapValue:
    """A function that gives the key of a tap of dimension `dim` if the tap is the maximum, else the least number.

    The maxima are in `top`, the values of taps in `known`, and their keys in `keys`, or their coordinates tell.
    """

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        point = loop.coords[: len(top.size)]
        largest = loop.load(top, point)
        tap = load_from(known, 0)(loop, at, tests)
        is_top = tap.equals(largest)
        if tap.dtype.kind == "float":
            is_top = is_top.either(tap.op("isnan"))
        for test in tests:
            is_top = is_top.both(test)
        if keys is None:
            place = loop.index(ravel(at[lead:], area), I64)
            key = largest.op("isnan").where(place, -1 - place) if tap.dtype.kind == "float" else -1 - place
        else:
            key = load_from(keys, 0)(loop, at, tests)
        return is_top.where(key, key.number(I64.min_value))

    return value
