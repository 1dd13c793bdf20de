"""The elements that sliding windows hold, and the windows that hold an element.

Takes the arguments of pooling operators. Gives `Taps`, which describe one dimension, with their conditions; conditions
that are known to hold are not tested, so that only the border of a padded window has masked loads. Refuses nothing.

A tap is one element of the source that counts for an element of the result: forward an element of the window, backward
a window that holds the element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

from minductor.core.dtypes import I64
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer, maximum, minimum
from minductor.core.expressions.rewrite import simplify
from minductor.frontend.capture.size_formulas import count, is_one
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.values import Coords, Value

MAX_UNROLLED = 27  # taps (3 x 3 x 3) that a kernel writes out one by one; more become reduction axes


@dataclass(frozen=True, slots=True)
class Taps:
    """The taps of one dimension.

    `tap(at, k)` gives, for index `at` of the result and 0 <= k < count, an index into the source and the expressions
    that must not be negative for the tap to count. `uneven` tells of elements that differ by one tap at most.
    """

    count: Expr
    tap: Callable[[Expr, Expr], tuple[Expr, tuple[Expr, ...]]]
    uneven: UnevenTaps | None = None


class UnevenTaps(NamedTuple):
    """Taps of which each element of a result has `certain` ones, and some elements may have one more.

    `first(at)` and `last(at)` are the indices of the first and the last tap of element `at`, between which lie all.
    """

    certain: Expr
    first: Callable[[Expr], Expr]
    last: Callable[[Expr], Expr]


class Window(NamedTuple):
    """The windows of one dimension: element k of window o is element o * stride - pad + k * dilation of the input.

    `size` is that of the input, and `number` how many windows there are.
    """

    size: Expr
    number: Expr
    kernel: int
    stride: int
    pad: int
    dilation: int = 1

    def start(self, at: Expr) -> Expr:
        """The index of a window's first element, which may lie in the padding."""
        return at * self.stride - self.pad

    def first(self, at: Expr) -> Expr:
        """The index of a window's first element that is not in the padding before the input."""
        start, step = self.start(at), self.dilation
        return start + maximum((step - 1 - start) // step, integer(0)) * step if self.pad else start

    def tap(self, at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """Element k of a window; it counts if it lies in the input."""
        place = self.start(at) + k * self.dilation
        return place, (place, self.size - 1 - place)

    def extent(self, at: Expr, *, is_padded: bool) -> Expr:
        """By how many elements a mean divides: those in the input or, if `is_padded`, those in the padding too."""
        start = self.start(at)
        if is_padded:
            return minimum(start + self.kernel, self.size + self.pad) - start
        return minimum(start + self.kernel, self.size) - maximum(start, integer(0))

    def forward(self) -> Taps:
        """The elements of a window."""
        return Taps(integer(self.kernel), self.tap)

    def for_maximum(self) -> Taps:
        """The elements of a window for a maximum: a tap in the padding reads the nearest element of the input instead.

        That element is in the window too, so the maximum stays. Masked loads of infinities would keep the C++ compiler
        from vectorizing the loop. In a dilated window the nearest element need not be in it, so masks stay.
        """
        if self.dilation > 1:
            return self.forward()
        return Taps(integer(self.kernel), lambda at, k: (clamped(self.start(at) + k, self.size - 1), ()))

    def backward(self) -> Taps:
        """The windows that hold an element of the input, first to last."""
        reach = -(-((self.kernel - 1) * self.dilation + 1) // self.stride)

        def tap(at: Expr, number: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            window = (at + self.pad) // self.stride - (reach - 1) + number
            distance = at + self.pad - window * self.stride
            k = distance // self.dilation
            return window, (window, self.number - 1 - window, self.kernel - 1 - k, -(distance % self.dilation))

        return Taps(integer(reach), tap)


class AdaptiveWindow(NamedTuple):
    """The windows of one dimension of adaptive pooling: `number` windows of nearly equal size over `size` elements.

    Window o is [floor(o * size / number), ceil((o + 1) * size / number)), as in eager.
    """

    size: Expr
    number: Expr

    @property
    def is_uneven(self) -> bool:
        """Whether windows may differ in length: there are neither one of all elements nor one of each element."""
        return not is_one(self.number) and self.size != self.number

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

        return Taps(_longest(self.size, self.number), tap, self._uneven())

    def for_maximum(self) -> Taps:
        def tap(at: Expr, k: Expr) -> tuple[Expr, tuple[Expr, ...]]:
            return minimum(self.first(at) + k, self.end(at) - 1), ()

        return Taps(_longest(self.size, self.number), tap, self._uneven())

    def backward(self) -> Taps:
        """The windows that hold an element of the input: as the elements of a window, with size and number changed."""
        swapped = AdaptiveWindow(self.number, self.size)
        return swapped.forward()

    def _uneven(self) -> UnevenTaps | None:
        """The taps of windows that may differ in length: by one element, as the ends of each are rounded outwards."""
        shortest = (self.size + self.number - 1) // self.number
        return UnevenTaps(shortest, self.first, lambda at: self.end(at) - 1) if self.is_uneven else None


AnyWindow: TypeAlias = Window | AdaptiveWindow
Windows: TypeAlias = Sequence[AnyWindow]


def clamped(place: Expr, last: Expr) -> Expr:
    """The index of the element nearest to `place` in a dimension whose last index is `last`."""
    return minimum(maximum(place, integer(0)), last)


def _longest(size: Expr, number: Expr) -> Expr:
    """The length of the longest of `number` adaptive windows over `size`; an upper bound if sizes are symbolic."""
    n, m = as_int(size), as_int(number)
    if m == 1 or size == number:
        return size // number
    if n is None or m is None:
        return (size + number - 1) // number + 1
    period = m // math.gcd(n, m)
    return integer(max(((o + 1) * n + m - 1) // m - o * n // m for o in range(period)))


def adaptive_window(size: Expr, number: Expr) -> AnyWindow:
    """The windows of adaptive pooling; plain windows if `number` divides `size`."""
    n, m = as_int(size), as_int(number)
    if n is not None and m is not None and n % m == 0:
        return Window(size, number, n // m, n // m, 0)
    return AdaptiveWindow(size, number)


def ints_per_dim(values: Value, rank: int, default: Sequence[int] = ()) -> list[int]:
    """An argument int[rank] as a list: a single number stands for all dimensions, an empty list for `default`."""
    given = values if isinstance(values, tuple | list) else (values,)
    numbers = [n for v in given if isinstance(v, int | Expr) and (n := as_int(as_expr(v))) is not None]
    return list(default) if not numbers else numbers * rank if len(numbers) == 1 else numbers


def tap_at(loop: KernelBuilder, taps: Sequence[Taps], at: Coords, ks: Coords) -> tuple[list[Expr], list[KernelValue]]:
    """The source indices of one tap in the windowed dimensions, and the conditions that need a test for it to count.

    An index is clamped only where the extents of the loop do not keep it inside.
    """
    extents = {axis.symbol: axis.extent for axis in loop.axes}
    places: list[Expr] = []
    tests: list[KernelValue] = []
    for tap_range, coord, k in zip(taps, at, ks, strict=True):
        place, conditions = tap_range.tap(coord, k)
        places.append(simplify(place, extents))
        tests += [loop.index(e, I64) >= 0 for e in conditions if not at_least(e, 0, extents)]
    return places, tests


def unrolled_numbers(taps: Sequence[Taps]) -> list[tuple[Expr, ...]] | None:
    """The numbers of all taps (one per dimension), if they are at most MAX_UNROLLED, else None."""
    total = as_int(count(tap_range.count for tap_range in taps))
    if total is None or total > MAX_UNROLLED:
        return None
    ranges = [[integer(k) for k in range(as_int(tap_range.count) or 0)] for tap_range in taps]
    return list(product(*ranges))


def reduced_dims(taps: Sequence[Taps], number: Coords) -> int:
    """How many of the windowed dimensions, from the first on, become reduction axes; the others are unrolled.

    `number` has the sizes of the result. If the last dimension is short it is unrolled, unless it has one window only:
    then reading along it is an ordinary reduction.
    """
    if unrolled_numbers(taps) is not None:
        return 0
    only_last = unrolled_numbers(taps[-1:]) is not None and not is_one(number[-1])
    return len(taps) - 1 if only_last else len(taps)
