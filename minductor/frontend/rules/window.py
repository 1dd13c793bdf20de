"""Windows that slide over the last dimensions: pooling, im2col and col2im, forward and backward.

Takes what ATen's operators take. Gives one kernel a result. A gradient is gathered: each element of the input asks the
windows that may hold it, so that no two of them write one place. Refuses (to an extern call) the places of maxima in
windows of more than `UNROLLED` elements.

A `Span` says for one dimension which places of the source count for a place of the result. What its conditions prove
to hold is not tested: only the taps at the border of a padded window have masks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import MappingProxyType

from minductor.core.dtypes import I64, DType
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer, maximum, minimum
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue, without_negative_zero
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Value, is_zero_sized
from minductor.frontend.rules.concat import masked_load
from minductor.frontend.rules.index import ravel
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
Coords = Sequence[Expr]

UNROLLED = 27  # taps, as of 3 x 3 x 3, that are written one by one; more are a loop


@dataclass(frozen=True, slots=True)
class Taps:
    """`tap(at, number)` is a place in the source, and what must not be negative for it to count; `number < count`."""

    count: Expr
    tap: Callable[[Expr, Expr], tuple[Expr, tuple[Expr, ...]]]


@dataclass(frozen=True, slots=True)
class Window:
    """One dimension: element k of window o is element o * stride - pad + k * dilation of the input."""

    size: Expr
    number: Expr
    kernel: int
    stride: int
    pad: int
    dilation: int = 1

    def start(self, at: Expr) -> Expr:
        return at * self.stride - self.pad

    def first(self, at: Expr) -> Expr:
        """The first place of a window that is not before the input."""
        start, step = self.start(at), self.dilation
        return start + maximum((step - 1 - start) // step, integer(0)) * step if self.pad else start

    def tap(self, at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        place = self.start(at) + k * self.dilation
        return place, (place, self.size - 1 - place)

    def extent(self, at: Expr, *, is_padded: bool) -> Expr:
        """How many elements count in a mean: those inside, or also those of the padding."""
        start = self.start(at)
        if is_padded:
            return minimum(start + self.kernel, self.size + self.pad) - start
        return minimum(start + self.kernel, self.size) - maximum(start, integer(0))

    def forward(self) -> Taps:
        return Taps(integer(self.kernel), self.tap)

    def inner(self) -> Taps:
        """For what may count twice: a tap outside reads the nearest element inside, which the window has as well.

        Masks that yield infinities keep a loop of maxima from being vectorised. Dilated windows need them.
        """
        if self.dilation > 1:
            return self.forward()
        return Taps(integer(self.kernel), lambda at, k: (clamped(self.start(at) + k, self.size - 1), ()))

    def backward(self) -> Taps:
        """The windows that hold an element, first to last: those that begin within its reach."""
        reach = -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

        def tap(at: Expr, number: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            window = (at + self.pad) // self.stride - (reach - 1) + number
            distance = at + self.pad - window * self.stride
            k = distance // self.dilation
            return window, (window, self.number - 1 - window, self.kernel - 1 - k, -(distance % self.dilation))

        return Taps(integer(reach), tap)


@dataclass(frozen=True, slots=True)
class Share:
    """One dimension of adaptive pooling: window o is the o-th of `number` shares of the input, rounded outwards."""

    size: Expr
    number: Expr

    def first(self, at: Expr) -> Expr:
        return at * self.size // self.number

    def end(self, at: Expr) -> Expr:
        return ((at + 1) * self.size + self.number - 1) // self.number

    def extent(self, at: Expr, *, is_padded: bool = False) -> Expr:
        return self.end(at) - self.first(at)

    def forward(self) -> Taps:
        def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            place = self.first(at) + k
            return place, (self.end(at) - 1 - place,)

        return Taps(_longest(self.size, self.number), tap)

    def inner(self) -> Taps:
        return Taps(_longest(self.size, self.number), lambda at, k: (minimum(self.first(at) + k, self.end(at) - 1), ()))

    def backward(self) -> Taps:
        def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            window = at * self.number // self.size + k
            return window, (((at + 1) * self.number - 1) // self.size - window,)

        return Taps(_longest(self.number, self.size), tap)


def clamped(place: Expr, last: Expr) -> Expr:
    """The nearest place that exists."""
    return minimum(maximum(place, integer(0)), last)


def _longest(size: Expr, number: Expr) -> Expr:
    """The length of the longest of `number` shares of `size`, rounded outwards; not below it where sizes vary."""
    n, m = as_int(size), as_int(number)
    if m == 1 or size == number:
        return size // number
    if n is None or m is None:
        return (size + number - 1) // number + 1
    period = m // math.gcd(n, m)
    return integer(max(((o + 1) * n + m - 1) // m - o * n // m for o in range(period)))


def shares(size: Expr, number: Expr) -> Window | Share:
    """Equal shares are plain windows."""
    n, m = as_int(size), as_int(number)
    if n is not None and m is not None and n % m == 0:
        return Window(size, number, n // m, n // m, 0)
    return Share(size, number)


def along(values: Value, rank: int, default: Sequence[int] = ()) -> list[int]:
    """An int[rank] argument: one number may stand for all, none at all for `default`."""
    given = values if isinstance(values, tuple | list) else (values,)
    numbers = [n for v in given if isinstance(v, int | Expr) and (n := as_int(as_expr(v))) is not None]
    return list(default) if not numbers else numbers * rank if len(numbers) == 1 else numbers


# --- gathering ----------------------------------------------------------------------------------------------------


def tap_at(
    loop: KernelBuilder, spans: Sequence[Taps], at: Coords, numbers: Coords
) -> tuple[list[Expr], list[KernelValue]]:
    """The places of one tap, and the tests that it takes to know that it counts."""
    extents = {axis.symbol: axis.extent for axis in loop.axes}
    places: list[Expr] = []
    tests: list[KernelValue] = []
    for span, coord, number in zip(spans, at, numbers, strict=True):
        place, natural = span.tap(coord, number)
        places.append(place)
        tests += [loop.index(e, I64) >= 0 for e in natural if not at_least(e, 0, extents)]
    return places, tests


def numbers_of(spans: Sequence[Taps]) -> list[tuple[Expr, ...]] | None:
    """The number of each tap, if they are few enough to be written one by one."""
    total = as_int(count(span.count for span in spans))
    if total is None or total > UNROLLED:
        return None
    ranges = [[integer(k) for k in range(as_int(span.count) or 0)] for span in spans]
    return list(product(*ranges))


def looped(spans: Sequence[Taps], number: Coords) -> int:
    """How many of the spans, the first ones, are loops; the taps of the others are written one by one.

    A last dimension with one window is read along, as other reductions are.
    """
    if numbers_of(spans) is not None:
        return 0
    only_last = numbers_of(spans[-1:]) is not None and not is_one(number[-1])
    return len(spans) - 1 if only_last else len(spans)


def gather_taps(
    ctx: Lowering,
    meta: TensorMeta,
    spans: Sequence[Taps],
    value: Callable[[KernelBuilder, Coords, list[KernelValue]], KernelValue],
    how: str = "sum",
    finish: Callable[[Coords, KernelValue, KernelBuilder], KernelValue] = lambda at, total, loop: total,
) -> Value:
    """For each element of the result, the values of its taps joined; `value` is given a place in the source.

    The spans belong to the last dimensions; in the others source and result agree.
    """
    out = ctx.result(meta)
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    rank = len(out.size)
    lead, loops = rank - len(spans), looped(spans, out.size)
    loop = KernelBuilder((*out.size, *(span.count for span in spans[:loops])))
    own = loop.coords[:rank]

    def one(number: Coords) -> KernelValue:
        places, tests = tap_at(loop, spans, own[lead:], [*loop.coords[rank:], *number])
        return value(loop, [*own[:lead], *places], tests)

    first, *others = numbers_of(spans[loops:]) or [()]
    joined = without_negative_zero(one(first)) if how == "sum" and not loops else one(first)
    for number in others:
        # the accumulator comes second: a maximum of a maximum that is its first argument becomes a branch
        joined = one(number).op("add" if how == "sum" else "maximum", joined)
    if loops:
        joined = loop.reduce([joined], range(rank, rank + loops), how)
    return ctx.store(loop, out, own, finish(own, joined, loop))


def load_tap(x: View, other: float) -> Callable[[KernelBuilder, Coords, list[KernelValue]], KernelValue]:
    """The element of a tap, or `other` where it does not count."""
    return lambda loop, at, tests: masked_load(loop, tests, x, at, other)


# --- maxima -------------------------------------------------------------------------------------------------------


def lowest(dtype: DType) -> float:
    return -float("inf") if dtype.kind == "float" else dtype.min_value


def maxima(ctx: Lowering, x: View, windows: Sequence[Window | Share]) -> Value:
    """The maximum of each window and where it is: the first of equals, but the last NaN, as in eager."""
    values, places = ctx.metas
    spans = [w.inner() for w in windows]
    if not ctx.is_result_used(1):
        return gather_taps(ctx, values, spans, load_tap(x, lowest(x.dtype)), "max"), None
    numbers = numbers_of(spans)
    if numbers is None:
        return NotImplemented
    lead, area = len(x.size) - len(spans), x.size[len(x.size) - len(spans) :]

    def found(loop: KernelBuilder) -> tuple[KernelValue, KernelValue]:
        own, other = loop.coords, lowest(x.dtype)
        at, tests = tap_at(loop, spans, own[lead:], numbers[0])
        best = masked_load(loop, tests, x, [*own[:lead], *at], other)
        if tests:
            at = [w.first(o) for w, o in zip(windows, own[lead:], strict=True)]
        place = loop.index(ravel(at, area), I64)
        for number in numbers[1:]:
            at, tests = tap_at(loop, spans, own[lead:], number)
            value = masked_load(loop, tests, x, [*own[:lead], *at], other)
            is_better = value > best
            if value.dtype.kind == "float":
                is_better = is_better.either(value.op("isnan"))
            best = is_better.where(value, best)
            place = is_better.where(loop.index(ravel(at, area), I64), place)
        return best, place

    top = ctx.map(lambda loop: found(loop)[0], values) if ctx.is_result_used(0) else None
    return top, ctx.map(lambda loop: found(loop)[1], places)


def maxima_backward(ctx: Lowering, grad: View, places: View, windows: Sequence[Window | Share]) -> Value:
    """An element gets the gradients of the windows that name it as their maximum."""

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        rank = len(grad.size)
        own, area = loop.coords[rank - len(windows) : rank], [w.size for w in windows]
        is_named = masked_load(loop, tests, places, at, -1).equals(loop.index(ravel(own, area), I64))
        return is_named.where(masked_load(loop, tests, grad, at, 0), 0.0)

    return gather_taps(ctx, ctx.meta, [w.backward() for w in windows], value)


def windows_of(
    rank: int, size: Coords, number: Coords, kernel: Value, stride: Value, pad: Value, dilation: Value = 1
) -> list[Window]:
    """The windows of the last `rank` dimensions; a stride that is not given is the kernel's size."""
    kernels = along(kernel, rank)
    strides = along(stride, rank, kernels)
    pads = along(pad, rank)
    steps = along(dilation, rank)
    rows = zip(size[-rank:], number[-rank:], kernels, strides, pads, steps, strict=True)
    return [Window(*row) for row in rows]


def max_pool(
    rank: int,
    ctx: Lowering,
    x: View,
    kernel: Value,
    stride: Value = (),
    pad: Value = 0,
    dilation: Value = 1,
    ceil_mode: bool = False,
) -> Value:
    return maxima(ctx, x, windows_of(rank, x.size, _number(ctx), kernel, stride, pad, dilation))


def _number(ctx: Lowering) -> list[Expr]:
    """The sizes of the (first) result."""
    meta = ctx.node.meta
    return [as_expr(n) for n in (meta.size if isinstance(meta, TensorMeta) else ctx.metas[0].size)]


def max_pool_backward(
    rank: int,
    ctx: Lowering,
    grad: View,
    x: View,
    kernel: Value,
    stride: Value,
    pad: Value,
    dilation: Value,
    ceil_mode: bool,
    places: View,
) -> Value:
    return maxima_backward(ctx, grad, places, windows_of(rank, x.size, grad.size, kernel, stride, pad, dilation))


def adaptive_max_pool(rank: int, ctx: Lowering, x: View, number: Value) -> Value:
    windows = _shares(rank, x.size, _number(ctx))
    return maxima(ctx, x, windows) if windows else NotImplemented


def adaptive_max_pool_backward(rank: int, ctx: Lowering, grad: View, x: View, places: View) -> Value:
    windows = _shares(rank, x.size, grad.size)
    return maxima_backward(ctx, grad, places, windows) if windows else NotImplemented


def _shares(rank: int, size: Coords, number: Coords) -> list[Window | Share]:
    """None of them if there is nothing to share, or nobody."""
    rows = list(zip(size[-rank:], number[-rank:], strict=True))
    return [] if any(is_zero(n) for row in rows for n in row) else [shares(n, m) for n, m in rows]


# --- means --------------------------------------------------------------------------------------------------------


def divided(total: KernelValue, divisor: Expr) -> KernelValue:
    """Integers round towards zero, as in eager."""
    return total.op("truncdiv" if total.dtype.kind in ("int", "uint") else "div", total.size(divisor))


def means(ctx: Lowering, x: View, windows: Sequence[Window | Share], divisor: Callable[[Coords], Expr]) -> Value:
    spans = [w.forward() for w in windows]
    return gather_taps(ctx, ctx.meta, spans, load_tap(x, 0), finish=lambda at, total, loop: divided(total, divisor(at)))


def means_backward(
    ctx: Lowering, grad: View, windows: Sequence[Window | Share], divisor: Callable[[Coords], Expr]
) -> Value:
    """An element gets its share of the gradient of each window that holds it; one divisor for all divides the sum."""
    spans = [w.backward() for w in windows]
    constant = as_int(divisor([integer(0)] * len(grad.size)))
    if constant is not None and as_int(divisor(KernelBuilder(grad.size).coords)) == constant:
        shared = integer(constant)
        return gather_taps(
            ctx, ctx.meta, spans, load_tap(grad, 0), finish=lambda at, total, loop: divided(total, shared)
        )

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        share = divided(masked_load(loop, tests, grad, at, 0), divisor(at))
        holds = tests[:1]
        for test in tests[1:]:
            holds = [holds[0].both(test)]
        return holds[0].where(share, share.number(0)) if holds else share

    return gather_taps(ctx, ctx.meta, spans, value)


def counted(
    windows: Sequence[Window | Share], *, is_padded: bool = False, override: int | None = None
) -> Callable[[Coords], Expr]:
    """How many elements a window has, at a point of the result."""

    def divisor(at: Coords) -> Expr:
        if override is not None:
            return integer(override)
        last = at[len(at) - len(windows) :]
        return count(_extent(w, o, is_padded=is_padded) for w, o in zip(windows, last, strict=True))

    return divisor


def _extent(window: Window | Share, at: Expr, *, is_padded: bool) -> Expr:
    """Written as the kernel's size where all windows are whole."""
    if isinstance(window, Window):
        end = (window.number - 1) * window.stride - window.pad + window.kernel
        limit = window.size + (window.pad if is_padded else 0)
        if (is_padded or window.pad == 0) and at_least(limit - end, 0):
            return integer(window.kernel)
    return window.extent(at, is_padded=is_padded)


def avg_pool(
    rank: int,
    ctx: Lowering,
    x: View,
    kernel: Value,
    stride: Value = (),
    pad: Value = 0,
    ceil_mode: bool = False,
    is_padded: bool = True,
    override: int | None = None,
) -> Value:
    windows = windows_of(rank, x.size, _number(ctx), kernel, stride, pad)
    return means(ctx, x, windows, counted(windows, is_padded=is_padded, override=override))


def avg_pool_backward(
    rank: int,
    ctx: Lowering,
    grad: View,
    x: View,
    kernel: Value,
    stride: Value,
    pad: Value,
    ceil_mode: bool,
    is_padded: bool,
    override: int | None,
) -> Value:
    windows = windows_of(rank, x.size, grad.size, kernel, stride, pad)
    return means_backward(ctx, grad, windows, counted(windows, is_padded=is_padded, override=override))


def adaptive_avg_pool(rank: int, ctx: Lowering, x: View, number: Value) -> Value:
    windows = _shares(rank, x.size, _number(ctx))
    return means(ctx, x, windows, counted(windows)) if windows else NotImplemented


def adaptive_avg_pool_backward(rank: int, ctx: Lowering, grad: View, x: View) -> Value:
    windows = _shares(rank, x.size, grad.size)
    return means_backward(ctx, grad, windows, counted(windows)) if windows else NotImplemented


# --- windows as columns -------------------------------------------------------------------------------------------


def im2col(ctx: Lowering, x: View, kernel: Value, dilation: Value, pad: Value, stride: Value) -> Value:
    """Each window as a column: rows are (channel, k, l), columns are windows in row-major order."""
    out = ctx.result()
    if is_zero_sized(out):
        return ctx.uninitialised(out)
    windows = _columns(x.size, kernel, dilation, pad, stride)
    numbers, kernels = [w.number for w in windows], [integer(w.kernel) for w in windows]
    lead = len(x.size) - 2
    loop = KernelBuilder((*x.size[:lead], *kernels, *numbers))
    own = loop.coords
    places, tests = tap_at(loop, [w.forward() for w in windows], own[lead + 2 :], own[lead : lead + 2])
    value = masked_load(loop, tests, x, [*own[:lead], *places], 0)
    rows = ravel(own[lead - 1 : lead + 2], (x.size[lead - 1], *kernels))
    return ctx.store(loop, out, [*own[: lead - 1], rows, ravel(own[lead + 2 :], numbers)], value)


def _columns(size: Coords, kernel: Value, dilation: Value, pad: Value, stride: Value) -> list[Window]:
    found = windows_of(2, size, size, kernel, stride, pad, dilation)
    return [
        Window(w.size, (w.size + 2 * w.pad - w.dilation * (w.kernel - 1) - 1) // w.stride + 1, *_shape(w))
        for w in found
    ]


def _shape(window: Window) -> tuple[int, int, int, int]:
    return window.kernel, window.stride, window.pad, window.dilation


def col2im(ctx: Lowering, x: View, size: Value, kernel: Value, dilation: Value, pad: Value, stride: Value) -> Value:
    """The sum of what the windows that hold an element have in its place."""
    windows = _columns(_number(ctx), kernel, dilation, pad, stride)
    numbers, kernels = [w.number for w in windows], [integer(w.kernel) for w in windows]

    def value(loop: KernelBuilder, at: Coords, tests: list[KernelValue]) -> KernelValue:
        rank = len(ctx.meta.size)
        inner = [
            (own + w.pad - o * w.stride) // w.dilation
            for w, own, o in zip(windows, loop.coords[rank - 2 : rank], at[-2:], strict=True)
        ]
        rows = ravel([at[-3], *inner], (integer(1), *kernels))
        return masked_load(loop, tests, x, [*at[:-3], rows, ravel(at[-2:], numbers)], 0)

    return gather_taps(ctx, ctx.meta, [w.backward() for w in windows], value)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"aten.max_pool{d}d_with_indices.default": partial(max_pool, d) for d in (2, 3)},
        **{f"aten.max_pool{d}d_with_indices_backward.default": partial(max_pool_backward, d) for d in (2, 3)},
        **{f"aten.adaptive_max_pool{d}d.default": partial(adaptive_max_pool, d) for d in (2, 3)},
        **{f"aten.adaptive_max_pool{d}d_backward.default": partial(adaptive_max_pool_backward, d) for d in (2, 3)},
        **{f"aten.avg_pool{d}d.default": partial(avg_pool, d) for d in (2, 3)},
        **{f"aten.avg_pool{d}d_backward.default": partial(avg_pool_backward, d) for d in (2, 3)},
        **{f"aten._adaptive_avg_pool{d}d.default": partial(adaptive_avg_pool, d) for d in (2, 3)},
        **{f"aten._adaptive_avg_pool{d}d_backward.default": partial(adaptive_avg_pool_backward, d) for d in (2, 3)},
        "aten.im2col.default": im2col,
        "aten.col2im.default": col2im,
    }
)
