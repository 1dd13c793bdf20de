"""Samples of an image at places that a grid names: grid_sample in two and three dimensions.

Takes an image and a grid of places from -1 to 1. Gives one kernel; what lies outside is zero, the border, or reflected.
The image's gradient is added to the places that the grid names, one after the other. Refuses (to an extern call) images
without elements, and gradients of bicubic samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from minductor.core.dtypes import I64, compute_dtype
from minductor.core.expressions.expr import Expr, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Value
from minductor.frontend.rules.index import Coords
from minductor.frontend.rules.scatter import accumulate_in_zeros
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def unnormalised(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
    """-1 and 1 are the centres of the outermost elements, or their outer edges."""
    n = place.size(size)
    return (place + 1.0) / 2.0 * (n - 1.0) if align_corners else ((place + 1.0) * n - 1.0) / 2.0


def bounded(place: KernelValue, size: Expr, padding: int, *, align_corners: bool) -> KernelValue:
    """The place inside that stands for one outside."""
    if padding == ZEROS:
        return place
    if padding == REFLECTION:
        place = mirrored(place, size, align_corners=align_corners)
    return place.op("maximum", 0.0).op("minimum", place.size(size) - 1.0)


def mirrored(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
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

    def __init__(self, loop: KernelBuilder, x: View, lead: Sequence[Expr]) -> None:
        self.loop, self.x, self.lead = loop, x, tuple(lead)
        self.area = x.size[len(lead) :]

    def read(self, places: Sequence[KernelValue]) -> KernelValue:
        at, holds = self.find(places)
        return holds.where(self.loop.load(self.x, [*self.lead, *at]), 0.0)

    def find(self, places: Sequence[KernelValue]) -> tuple[list[Expr], KernelValue]:
        """Where in the image that is, and whether it is there at all."""
        at: list[Expr] = []
        tests: list[KernelValue] = []
        for place, size in zip(places, self.area, strict=True):
            is_inside = (place >= 0.0).both(place < place.size(size))  # false for NaN
            whole = is_inside.where(place, 0.0).cast(I64)
            tests.append(is_inside)
            # a size that float32 does not hold may round up to a place that does not exist
            last = whole.size(size - 1)
            at.append(self.loop.b.check(whole.op("maximum", 0).op("minimum", last).at, size, wrap=False))
        holds = tests[0]
        for test in tests[1:]:
            holds = holds.both(test)
        return at, holds


def named_places(loop: KernelBuilder, x: View, grid: View, at: Coords, *, align_corners: bool) -> list[KernelValue]:
    """The place that the grid names for a result, in each dimension of the image; the grid has the last one first."""
    area = x.size[2:]
    return [
        unnormalised(
            loop.load(grid, [*at, integer(len(area) - 1 - d)], compute_dtype(x.dtype)), n, align_corners=align_corners
        )
        for d, n in enumerate(area)
    ]


def grid_sampler(ctx: Lowering, x: View, grid: View, mode: int, padding: int, align_corners: bool) -> Value:
    if any(is_zero(n) for n in (*x.size, *grid.size)):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        sample, channel, *at = loop.coords
        reader = Sampler(loop, x, (sample, channel))
        places = named_places(loop, x, grid, (sample, *at), align_corners=align_corners)
        if mode == BICUBIC:
            return bicubic(reader, places, padding, align_corners=align_corners)
        inside = [bounded(p, n, padding, align_corners=align_corners) for p, n in zip(places, reader.area, strict=True)]
        return reader.read([p.op("round") for p in inside]) if mode == NEAREST else linear(reader, inside)

    return ctx.map(fn)


def linear(reader: Sampler, places: Sequence[KernelValue], along: int | None = None) -> KernelValue:
    """The corners around a place, each weighted by the volume opposite to it; or the slope along a dimension."""
    low = [p.op("floor") for p in places]
    total: KernelValue | None = None
    for corner in product((0, 1), repeat=len(places)):
        weight: KernelValue | None = None
        for d, (side, place, floor) in reversed(list(enumerate(zip(corner, places, low, strict=True)))):
            share = place - floor if side else floor + 1.0 - place
            if d == along:
                share = place.number(1.0 if side else -1.0)
            weight = share if weight is None else weight * share
        assert weight is not None
        part = reader.read([floor + float(side) for side, floor in zip(corner, low, strict=True)]) * weight
        total = part if total is None else total + part
    assert total is not None
    return total


# --- gradients ----------------------------------------------------------------------------------------------------


def grid_sampler_backward(
    ctx: Lowering, grad: View, x: View, grid: View, mode: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> Value:
    if mode == BICUBIC or any(is_zero(n) for n in (*x.size, *grid.size)):
        return NotImplemented
    sampled = Sampled(ctx, grad, x, grid, mode, padding, align_corners)
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    pairs = enumerate(zip(metas, (sampled.of_image, sampled.of_grid), strict=True))
    return tuple(
        make(meta) if isinstance(meta, TensorMeta) and ctx.is_result_used(n) else None for n, (meta, make) in pairs
    )


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a sample was made of; each kernel computes its places again."""

    ctx: Lowering
    grad: View
    x: View
    grid: View
    mode: int
    padding: int
    align_corners: bool

    @property
    def rank(self) -> int:
        return len(self.x.size) - 2

    def places(self, loop: KernelBuilder, at: Coords) -> list[KernelValue]:
        named = named_places(loop, self.x, self.grid, at, align_corners=self.align_corners)
        pairs = zip(named, self.x.size[2:], strict=True)
        return [bounded(p, n, self.padding, align_corners=self.align_corners) for p, n in pairs]

    def of_image(self, meta: TensorMeta) -> View:
        """Each sample's gradient goes to the corners around its place, by their weights; the last axes count these."""
        corners = () if self.mode == NEAREST else (integer(2),) * self.rank

        def ways(loop: KernelBuilder) -> tuple[list[Expr], KernelValue, KernelValue]:
            sample, channel, *rest = loop.coords
            at, sides = rest[: self.rank], rest[self.rank :]
            places = self.places(loop, (sample, *at))
            weight: KernelValue | None = None
            for d, side in reversed(list(enumerate(sides))):
                low = places[d].op("floor")
                is_upper = places[d].size(side).equals(1.0)
                share = is_upper.where(places[d] - low, low + 1.0 - places[d])
                weight = share if weight is None else weight * share
            ends = [p.op("floor") + p.size(s) for p, s in zip(places, sides, strict=False)]
            found, holds = Sampler(loop, self.x, (sample, channel)).find(ends or [p.op("round") for p in places])
            value = loop.load(self.grad, (sample, channel, *at))
            return [sample, channel, *found], holds, value if weight is None else value * weight

        def where(loop: KernelBuilder) -> Coords:
            return ways(loop)[0]

        def what(loop: KernelBuilder) -> KernelValue:
            _, holds, value = ways(loop)
            return holds.where(value, 0.0)

        with self.ctx.with_single_result(meta):
            return accumulate_in_zeros(self.ctx, (*self.grad.size, *corners), where, what)

    def of_grid(self, meta: TensorMeta) -> View:
        """By how much a sample would change with its place, over all channels; nothing for the nearest element."""
        ctx = self.ctx
        if self.mode == NEAREST:
            return ctx.pointwise(lambda zero: zero, 0, meta=meta)
        slopes = [self.slope(d) for d in reversed(range(self.rank))]

        def fn(loop: KernelBuilder) -> KernelValue:
            *at, which = loop.coords
            value = loop.load(slopes[-1], at)
            for number, slope in reversed(list(enumerate(slopes[:-1]))):
                value = loop.index(which, I64).equals(number).where(loop.load(slope, at), value)
            return value

        return ctx.map(fn, meta)

    def slope(self, dim: int) -> View:
        """Along one dimension of the image."""
        sample, channels, *area = self.grad.size
        out = self.ctx.buffer(compute_dtype(self.x.dtype), (sample, *area))

        def value(loop: KernelBuilder, point: Coords) -> KernelValue:
            *at, channel = point
            reader = Sampler(loop, self.x, (at[0], channel))
            grad = loop.load(self.grad, (at[0], channel, *at[1:]))
            return grad * linear(reader, self.places(loop, at), along=dim) * self.outer(loop, at, dim)

        return store_reduction(self.ctx, out, (sample, *area, channels), (len(out.size),), value, "sum")

    def outer(self, loop: KernelBuilder, at: Coords, dim: int) -> KernelValue:
        """How fast a place moves with the number in the grid; 0 where it is held at a border."""
        size, is_aligned = self.x.size[2 + dim], self.align_corners
        place = named_places(loop, self.x, self.grid, at, align_corners=is_aligned)[dim]
        n = place.size(size)
        speed = (n - 1.0) / 2.0 if is_aligned else n / 2.0
        if self.padding == ZEROS:
            return speed
        if self.padding == REFLECTION:
            speed = direction(place, size, align_corners=is_aligned) * speed
            place = mirrored(place, size, align_corners=is_aligned)
        return (place > 0.0).both(place < n - 1.0).where(speed, 0.0)


def direction(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
    """1 or -1: whether a reflected place moves as the place itself does."""
    low = 0.0 if align_corners else -0.5
    span = place.size(size) - 1.0 if align_corners else place.size(size)
    distance = place - low
    is_even = (distance.op("abs") / span).op("floor").op("fmod", 2.0).equals(0.0)
    ahead = (distance < 0.0).where(distance.number(-1.0), distance.number(1.0))
    return is_even.where(ahead, -ahead)


# the cubic convolution of Keys (1981), with the slope that torch uses
SLOPE = -0.75


def _near(t: KernelValue) -> KernelValue:
    """The weight at a distance of at most 1."""
    return ((t * (SLOPE + 2.0)) - (SLOPE + 3.0)) * t * t + 1.0


def _far(t: KernelValue) -> KernelValue:
    """The weight at a distance from 1 to 2."""
    return ((t * SLOPE - 5.0 * SLOPE) * t + 8.0 * SLOPE) * t - 4.0 * SLOPE


def cubic_weights(t: KernelValue) -> list[KernelValue]:
    """Of the four elements around a place that lies `t` behind the second of them."""
    rest = 1.0 - t
    return [_far(t + 1.0), _near(t), _near(rest), _far(rest + 1.0)]


def bicubic(reader: Sampler, places: Sequence[KernelValue], padding: int, *, align_corners: bool) -> KernelValue:
    """Rows first; each of the sixteen places is brought inside by itself."""
    low = [p.op("floor") for p in places]
    weights = [cubic_weights(p - f) for p, f in zip(places, low, strict=True)]

    def element(dim: int, step: int) -> KernelValue:
        return bounded(low[dim] + float(step - 1), reader.area[dim], padding, align_corners=align_corners)

    total: KernelValue | None = None
    for i in range(4):
        row: KernelValue | None = None
        for j in range(4):
            # reflected places lie on elements, but for rounding
            part = reader.read([_whole(element(0, i)), _whole(element(1, j))]) * weights[1][j]
            row = part if row is None else row + part
        assert row is not None
        total = row * weights[0][i] if total is None else total + row * weights[0][i]
    assert total is not None
    return total


def _whole(place: KernelValue) -> KernelValue:
    return place.op("trunc")


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.grid_sampler_2d.default": grid_sampler,
        "aten.grid_sampler_2d_backward.default": grid_sampler_backward,
        "aten.grid_sampler_3d.default": grid_sampler,
        "aten.grid_sampler_3d_backward.default": grid_sampler_backward,
    }
)
