"""Rules of grid_sample: grid_sampler_2d, grid_sampler_3d and their gradients.

Takes an image (sample, channel, *area) and a grid of positions in [-1, 1], whose last dimension lists the coordinates
with the image's last dimension first; the modes and paddings have ATen's numbers. Gives one pointwise kernel over the
samples; positions outside of the image read zero, the border, or the reflected image. The gradient of the image is a
scatter, the gradient of the grid one reduction over the channels per dimension. Refuses (to an extern call) tensors
without elements, and the gradients of bicubic samples.

The formulas are those of ATen (aten/src/ATen/native/GridSampler.h). Positions are floats in units of elements; a
position that is NaN or far outside reads zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

from minductor.core.dtypes import F32, F64, I64, compute_dtype
from minductor.core.expressions.expr import Expr, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Coords, Rule, Value, rules_for
from minductor.frontend.rules.scatter import accumulate_in_zeros
from minductor.ir.program.nodes import View

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


def to_position(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
    """A grid coordinate as a position: -1 and 1 are the centers (`align_corners`) or edges of the outer elements."""
    n = place.size(size)
    return (place + 1.0) / 2.0 * (n - 1.0) if align_corners else ((place + 1.0) * n - 1.0) / 2.0


def padded(place: KernelValue, size: Expr, padding: int, *, align_corners: bool) -> KernelValue:
    """The position to read for a position that may lie outside, under the mode of padding."""
    if padding == ZEROS:
        return place
    if padding == REFLECTION:
        place = reflected_position(place, size, align_corners=align_corners)
    return place.op("maximum", 0.0).op("minimum", place.size(size) - 1.0)


def reflected_position(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
    """A position reflected at both ends until it lies inside."""
    low = 0.0 if align_corners else -0.5
    span = place.size(size) - 1.0 if align_corners else place.size(size)
    distance = (place - low).op("abs")
    extra = distance.op("fmod", span)
    is_even = (distance / span).op("floor").op("fmod", 2.0).equals(0.0)
    inside = is_even.where(extra + low, span - extra + low)
    return span.equals(0.0).where(0.0, inside) if align_corners else inside


class Sampler:
    """Reads an image at positions that are floats with integer values.

    `lead` are the coordinates of the sample and the channel.
    """

    def __init__(self, loop: KernelBuilder, x: View, lead: Sequence[Expr]) -> None:
        self.loop, self.x, self.lead = loop, x, tuple(lead)
        self.area = x.size[len(lead) :]

    def read(self, places: Sequence[KernelValue]) -> KernelValue:
        """The element at a position, or 0 outside of the image."""
        at, holds = self.find(places)
        return holds.where(self.loop.load(self.x, [*self.lead, *at]), 0.0)

    def find(self, places: Sequence[KernelValue]) -> tuple[list[Expr], KernelValue]:
        """The checked indices of a position (of some element if it is outside), and whether it is inside."""
        at: list[Expr] = []
        tests: list[KernelValue] = []
        for place, size in zip(places, self.area, strict=True):
            is_inside = (place >= 0.0).both(place < place.size(size))  # false for NaN
            whole = is_inside.where(place, 0.0).cast(I64)
            tests.append(is_inside)
            # float32 may round a large size up, so that the comparison lets an index of that size pass
            last = whole.size(size - 1)
            at.append(self.loop.b.check(whole.op("maximum", 0).op("minimum", last).at, size, wrap=False))
        return at, reduce(KernelValue.both, tests)


def grid_positions(loop: KernelBuilder, x: View, grid: View, at: Coords, *, align_corners: bool) -> list[KernelValue]:
    """The position that the grid has at `at`, one value per dimension of the image."""
    area = x.size[2:]
    return [
        to_position(
            loop.load(grid, [*at, integer(len(area) - 1 - d)], compute_dtype(x.dtype)), n, align_corners=align_corners
        )
        for d, n in enumerate(area)
    ]


def grid_sampler(ctx: Lowering, x: View, grid: View, mode: int, padding: int, align_corners: bool) -> Value:
    """Lowers grid_sampler_2d and grid_sampler_3d; nearest rounds half to even, as in eager."""
    if any(is_zero(n) for n in (*x.size, *grid.size)) or (len(x.size) == 4 and is_for_library(ctx, x)):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        sample, channel, *at = loop.coords
        reader = Sampler(loop, x, (sample, channel))
        places = grid_positions(loop, x, grid, (sample, *at), align_corners=align_corners)
        if mode == BICUBIC:
            return bicubic(reader, places, padding, align_corners=align_corners)
        inside = [padded(p, n, padding, align_corners=align_corners) for p, n in zip(places, reader.area, strict=True)]
        return reader.read([p.op("round") for p in inside]) if mode == NEAREST else linear(reader, inside)

    return ctx.map(fn)


def is_for_library(ctx: Lowering, x: View) -> bool:
    """Whether ATen is called, which gathers with vector instructions on a CPU; eager has no 16-bit samples there."""
    return not ctx.env.target.is_gpu and x.dtype in (F32, F64)


def linear(reader: Sampler, places: Sequence[KernelValue], along: int | None = None) -> KernelValue:
    """Linear interpolation of the 2**rank elements around a position; with `along` its derivative in that dimension."""
    low = [p.op("floor") for p in places]

    def shares(corner: Sequence[int]) -> Iterator[KernelValue]:
        for d, (side, place, floor) in reversed(list(enumerate(zip(corner, places, low, strict=True)))):
            share = place - floor if side else floor + 1.0 - place
            yield place.number(1.0 if side else -1.0) if d == along else share

    def weighted(corner: Sequence[int]) -> KernelValue:
        weight = reduce(KernelValue.__mul__, shares(corner))
        return reader.read([floor + float(side) for side, floor in zip(corner, low, strict=True)]) * weight

    return reduce(KernelValue.__add__, map(weighted, product((0, 1), repeat=len(places))))


# --- gradients ----------------------------------------------------------------------------------------------------


def grid_sampler_backward(
    ctx: Lowering, grad: View, x: View, grid: View, mode: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> Value:
    """Lowers the gradients of grid_sampler_2d and grid_sampler_3d with respect to the image and the grid."""
    if mode == BICUBIC or any(is_zero(n) for n in (*x.size, *grid.size)) or is_for_library(ctx, x):
        return NotImplemented
    sampled = SampleGradients(ctx, grad, x, grid, mode, padding, align_corners)
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    pairs = enumerate(zip(metas, (sampled.image_gradient, sampled.grid_gradient), strict=True))
    return tuple(make(m) if isinstance(m, TensorMeta) and ctx.is_result_used(n) else None for n, (m, make) in pairs)


class SampleGradients(NamedTuple):
    """The arguments of a gradient of grid_sample; each kernel computes the positions again."""

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
        """The position of the sample at `at` = (sample, *coordinates), after padding."""
        named = grid_positions(loop, self.x, self.grid, at, align_corners=self.align_corners)
        pairs = zip(named, self.x.size[2:], strict=True)
        return [padded(p, n, self.padding, align_corners=self.align_corners) for p, n in pairs]

    def image_gradient(self, meta: TensorMeta) -> View:
        """The gradient of the image: a scatter that adds each sample's weighted gradient to the elements around it.

        The last axes of the kernel count these 2**rank elements.
        """
        corners = () if self.mode == NEAREST else (integer(2),) * self.rank

        def contribution(loop: KernelBuilder) -> tuple[list[Expr], KernelValue, KernelValue]:
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
            return contribution(loop)[0]

        def what(loop: KernelBuilder) -> KernelValue:
            _, holds, value = contribution(loop)
            return holds.where(value, 0.0)

        with self.ctx.with_single_result(meta):
            return accumulate_in_zeros(self.ctx, (*self.grad.size, *corners), where, what)

    def grid_gradient(self, meta: TensorMeta) -> View:
        """The gradient of the grid: grad times the image's slope, summed over the channels; 0 for nearest samples."""
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
        """The gradient of the grid's coordinate for dimension `dim` of the image: a reduction over the channels."""
        sample, channels, *area = self.grad.size
        out = self.ctx.buffer(compute_dtype(self.x.dtype), (sample, *area))

        def value(loop: KernelBuilder, point: Coords) -> KernelValue:
            *at, channel = point
            reader = Sampler(loop, self.x, (at[0], channel))
            grad = loop.load(self.grad, (at[0], channel, *at[1:]))
            return grad * linear(reader, self.places(loop, at), along=dim) * self.position_slope(loop, at, dim)

        return store_reduction(self.ctx, out, (sample, *area, channels), (len(out.size),), value, "sum")

    def position_slope(self, loop: KernelBuilder, at: Coords, dim: int) -> KernelValue:
        """The derivative of the position with respect to the grid's coordinate; 0 where padding clamps the position."""
        size, is_aligned = self.x.size[2 + dim], self.align_corners
        place = grid_positions(loop, self.x, self.grid, at, align_corners=is_aligned)[dim]
        n = place.size(size)
        speed = (n - 1.0) / 2.0 if is_aligned else n / 2.0
        if self.padding == ZEROS:
            return speed
        if self.padding == REFLECTION:
            speed = reflection_sign(place, size, align_corners=is_aligned) * speed
            place = reflected_position(place, size, align_corners=is_aligned)
        return (place > 0.0).both(place < n - 1.0).where(speed, 0.0)


def reflection_sign(place: KernelValue, size: Expr, *, align_corners: bool) -> KernelValue:
    """The derivative of `reflected_position`: 1, or -1 after an odd number of reflections."""
    low = 0.0 if align_corners else -0.5
    span = place.size(size) - 1.0 if align_corners else place.size(size)
    distance = place - low
    is_even = (distance.op("abs") / span).op("floor").op("fmod", 2.0).equals(0.0)
    ahead = (distance < 0.0).where(distance.number(-1.0), distance.number(1.0))
    return is_even.where(ahead, -ahead)


# Cubic convolution (Keys, "Cubic convolution interpolation for digital image processing", 1981) with torch's parameter.
CUBIC_PARAMETER = -0.75


def _inner_weight(t: KernelValue) -> KernelValue:
    """The weight of an element at a distance t of at most 1."""
    return ((t * (CUBIC_PARAMETER + 2.0)) - (CUBIC_PARAMETER + 3.0)) * t * t + 1.0


def _outer_weight(t: KernelValue) -> KernelValue:
    """The weight of an element at a distance t from 1 to 2."""
    return ((t * CUBIC_PARAMETER - 5.0 * CUBIC_PARAMETER) * t + 8.0 * CUBIC_PARAMETER) * t - 4.0 * CUBIC_PARAMETER


def cubic_weights(t: KernelValue) -> list[KernelValue]:
    """The weights of the four elements around a position that lies t behind the second one, 0 <= t < 1."""
    rest = 1.0 - t
    return [_outer_weight(t + 1.0), _inner_weight(t), _inner_weight(rest), _outer_weight(rest + 1.0)]


def bicubic(reader: Sampler, places: Sequence[KernelValue], padding: int, *, align_corners: bool) -> KernelValue:
    """Bicubic interpolation: rows first, as in eager; padding applies to each of the 16 elements by itself."""
    low = [p.op("floor") for p in places]
    weights = [cubic_weights(p - f) for p, f in zip(places, low, strict=True)]

    def element(dim: int, step: int) -> KernelValue:
        return padded(low[dim] + float(step - 1), reader.area[dim], padding, align_corners=align_corners)

    def read(row: int, column: int) -> KernelValue:
        # reflected positions are integers but for rounding, which `trunc` removes
        return reader.read([element(0, row).op("trunc"), element(1, column).op("trunc")]) * weights[1][column]

    rows = (reduce(KernelValue.__add__, (read(i, j) for j in range(4))) * weights[0][i] for i in range(4))
    return reduce(KernelValue.__add__, rows)


RULES: Mapping[str, Rule] = {
    **rules_for("grid_sampler_2d grid_sampler_3d", grid_sampler),
    **rules_for("grid_sampler_2d_backward grid_sampler_3d_backward", grid_sampler_backward),
}
