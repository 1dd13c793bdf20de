"""Samples of an image at places that a grid names: grid_sample in two and three dimensions.

Takes an image and a grid of places from -1 to 1. Gives one kernel; what lies outside is zero, the border, or reflected.
Gradients stay calls: they add to the places that the grid names. Refuses (to an extern call) images without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType

from minductor.core.dtypes import I64, compute_dtype
from minductor.core.expr import Expr, integer
from minductor.frontend.loop import Loop
from minductor.frontend.lower import Lowering
from minductor.frontend.values import Term, Value, is_zero
from minductor.ir.nodes import View

Rule = Callable[..., Value]

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def unnormalised(place: Term, size: Expr, *, align_corners: bool) -> Term:
    """-1 and 1 are the centres of the outermost elements, or their outer edges."""
    n = place.size(size)
    return (place + 1.0) / 2.0 * (n - 1.0) if align_corners else ((place + 1.0) * n - 1.0) / 2.0


def bounded(place: Term, size: Expr, padding: int, *, align_corners: bool) -> Term:
    """The place inside that stands for one outside."""
    if padding == ZEROS:
        return place
    if padding == REFLECTION:
        place = mirrored(place, size, align_corners=align_corners)
    return place.op("maximum", 0.0).op("minimum", place.size(size) - 1.0)


def mirrored(place: Term, size: Expr, *, align_corners: bool) -> Term:
    """Reflected at both ends, as often as it takes."""
    low = 0.0 if align_corners else -0.5
    span = place.size(size) - 1.0 if align_corners else place.size(size)
    distance = (place - low).op("abs")
    extra = distance.op("fmod", span)
    is_even = (distance / span).op("floor").op("fmod", 2.0).equals(0.0)
    inside = is_even.where(extra + low, span - extra + low)
    return span.equals(0.0).where(0.0, inside) if align_corners else inside


class Sampler:
    """Reads of an image at places that are floats with integer values; one outside yields 0."""

    def __init__(self, loop: Loop, x: View, lead: Sequence[Expr]) -> None:
        self.loop, self.x, self.lead = loop, x, tuple(lead)
        self.area = x.size[len(lead) :]

    def read(self, places: Sequence[Term]) -> Term:
        at: list[Expr] = []
        tests: list[Term] = []
        for place, size in zip(places, self.area, strict=True):
            is_inside = (place >= 0.0).both(place < place.size(size))  # false for NaN
            whole = is_inside.where(place, 0.0).cast(I64)
            tests.append(is_inside)
            # a size that float32 does not hold may round up to a place that does not exist
            last = whole.size(size - 1)
            at.append(self.loop.b.check(whole.op("maximum", 0).op("minimum", last).at, size, wrap=False))
        value = self.loop.load(self.x, [*self.lead, *at])
        holds = tests[0]
        for test in tests[1:]:
            holds = holds.both(test)
        return holds.where(value, 0.0)


def grid_sampler(ctx: Lowering, x: View, grid: View, mode: int, padding: int, align_corners: bool) -> Value:
    if any(is_zero(n) for n in (*x.size, *grid.size)):
        return NotImplemented
    rank = len(x.size) - 2

    def fn(loop: Loop) -> Term:
        sample, channel, *at = loop.coords
        reader = Sampler(loop, x, (sample, channel))
        # the grid names the last dimension first
        places = [
            unnormalised(
                loop.load(grid, [sample, *at, integer(rank - 1 - d)], compute_dtype(x.dtype)),
                reader.area[d],
                align_corners=align_corners,
            )
            for d in range(rank)
        ]
        if mode == BICUBIC:
            return bicubic(reader, places, padding, align_corners=align_corners)
        inside = [bounded(p, n, padding, align_corners=align_corners) for p, n in zip(places, reader.area, strict=True)]
        return reader.read([p.op("round") for p in inside]) if mode == NEAREST else linear(reader, inside)

    return ctx.map(fn)


def linear(reader: Sampler, places: Sequence[Term]) -> Term:
    """The corners around a place, each weighted by the volume opposite to it."""
    low = [p.op("floor") for p in places]
    total: Term | None = None
    for corner in product((0, 1), repeat=len(places)):
        weight: Term | None = None
        for side, place, floor in reversed(list(zip(corner, places, low, strict=True))):
            share = place - floor if side else floor + 1.0 - place
            weight = share if weight is None else weight * share
        assert weight is not None
        part = reader.read([floor + float(side) for side, floor in zip(corner, low, strict=True)]) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


# the cubic convolution of Keys (1981), with the slope that torch uses
SLOPE = -0.75


def _near(t: Term) -> Term:
    """The weight at a distance of at most 1."""
    return ((t * (SLOPE + 2.0)) - (SLOPE + 3.0)) * t * t + 1.0


def _far(t: Term) -> Term:
    """The weight at a distance from 1 to 2."""
    return ((t * SLOPE - 5.0 * SLOPE) * t + 8.0 * SLOPE) * t - 4.0 * SLOPE


def cubic_weights(t: Term) -> list[Term]:
    """Of the four elements around a place that lies `t` behind the second of them."""
    rest = 1.0 - t
    return [_far(t + 1.0), _near(t), _near(rest), _far(rest + 1.0)]


def bicubic(reader: Sampler, places: Sequence[Term], padding: int, *, align_corners: bool) -> Term:
    """Rows first; each of the sixteen places is brought inside by itself."""
    low = [p.op("floor") for p in places]
    weights = [cubic_weights(p - f) for p, f in zip(places, low, strict=True)]

    def element(dim: int, step: int) -> Term:
        return bounded(low[dim] + float(step - 1), reader.area[dim], padding, align_corners=align_corners)

    total: Term | None = None
    for i in range(4):
        row: Term | None = None
        for j in range(4):
            # reflected places lie on elements, but for rounding
            part = reader.read([_whole(element(0, i)), _whole(element(1, j))]) * weights[1][j]
            row = part if row is None else row + part
        assert row is not None
        total = row * weights[0][i] if total is None else total + row * weights[0][i]
    assert total is not None
    return total


def _whole(place: Term) -> Term:
    return place.op("trunc")


RULES: Mapping[str, Rule] = MappingProxyType(
    {"aten.grid_sampler_2d.default": grid_sampler, "aten.grid_sampler_3d.default": grid_sampler}
)
