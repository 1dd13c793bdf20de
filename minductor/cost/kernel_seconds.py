"""Which of two ways to compute the same takes less time, before the kernels have schedules.

Takes kernels, as they are and as a stage would make them. Gives the seconds of each way, and the reason, with figures,
why one of them is slower (`Slower`). Refuses nothing.

`inline`, `fuse`, `loop_order` and `split` ask nothing else. A price is memoised by what decides it (`shape.py`), so a
model of many equal layers prices each kind of kernel once. A CPU's kernels are priced with one thread and with sixteen,
and the way counts that loses least where it loses most, as for recipes (`fastest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, log2
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from minductor.core.expressions.hints import Hints
from minductor.cost.but_for_names import but_for_names
from minductor.cost.seconds import Cost
from minductor.cost.shape import KnownTouches, Shape, Touch, and_stored, merged, shape_of
from minductor.ir.program.nodes import Axis, Body, Buffer, Kernel
from minductor.target import NOMINAL, Target

if TYPE_CHECKING:
    from minductor.cost.shape_cpu import Demand

TIE = (
    1.03  # ways whose times differ by less are equally fast; the one with fewer kernels, or that stands first, is taken
)
SMALL = 12  # operations of a kernel that is compared with earlier ones before it is read: many differ in names only
MOST_LATEST = 4096  # shapes whose prices are found without a comparison
# by the names of the times in a Cost: what a way needs more of
NEEDS: Mapping[str, str] = MappingProxyType(
    {"memory": "time of main memory", "cache": "time of the caches", "arithmetic": "operations", "waiting": "waiting"}
)


class Slower(NamedTuple):
    """Why a way is slower: what it needs more of, and the seconds of this way and of the other."""

    needs: str
    this: float
    other: float

    def figures(self, this: str, other: str) -> str:
        """The seconds as text, by the names of the ways.

        >>> Slower("operations", 4.1e-05, 3.3e-05).figures("together", "apart")
        '41 us together, 33 us apart'
        """
        return f"{microseconds(self.this)} us {this}, {microseconds(self.other)} us {other}"


def microseconds(seconds: float) -> str:
    """Seconds as a number of microseconds, with three digits unless there are more before the point.

    >>> microseconds(1.23456e-3), microseconds(3.3e-05), microseconds(2.04e-07)
    ('1235', '33', '0.204')
    """
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def fastest(prices: Mapping[str, Sequence[float]]) -> str:
    """The way that loses least where it loses most: each of its prices is compared with the lowest of all ways.

    Among ways that lose nearly the same, the one that stands first.

    >>> fastest({"looped": (1.02,), "online": (1.0,)}), fastest({"looped": (1.1,), "held8": (1.01,), "held16": (1.0,)})
    ('looped', 'held8')
    >>> fastest({"rows": (1.0, 0.9), "rows_in_parts": (1.1, 0.1)})
    'rows_in_parts'
    """
    least = [min(each) for each in zip(*prices.values(), strict=True)]
    losses = {name: max(p / q for p, q in zip(each, least, strict=True)) for name, each in prices.items()}
    return next(name for name, loss in losses.items() if loss <= TIE * min(losses.values()))


class Alone(NamedTuple):
    """What a kernel costs that runs alone, on a CPU with the most threads.

    `touched`: bytes by storage. `byte`: the seconds in which it moves one of them. `crosses`: whether it transposes, so
    that an access jumps along the axis along which others are contiguous.
    """

    seconds: float
    launch: float
    byte: float
    touched: Mapping[str, int]
    crosses: bool

    def gain(self, other: Alone, saved: int) -> float:
        """The seconds that two kernels may gain as one, at most, if it moves `saved` bytes less."""
        return max(self.launch, other.launch) + saved * max(self.byte, other.byte)


class _Known(NamedTuple):
    """The shape of a kernel. The body stays alive, so that no other one gets its id."""

    body: Body
    axes: tuple[Axis, ...]
    shape: Shape


class _Price(NamedTuple):
    """What a kernel costs, on a CPU for each number of threads."""

    costs: tuple[Cost, ...]
    seconds: tuple[float, ...]


class _Kind(NamedTuple):
    """Shapes that cost the same: their costs by what is around, and the prices that are known already.

    `demand`: what they take of a CPU.
    """

    costs: Callable[[int], tuple[Cost, ...]]
    prices: dict[int, _Price]
    demand: Demand | None = None


class Prices:
    """The prices of one program's kernels on one target; the buffers in the table must not change meanwhile.

    `may_cut`: reductions are priced as `split` would cut them, if that is faster.
    """

    def __init__(self, table: Mapping[str, Buffer], target: Target, hints: Hints, *, may_cut: bool = True) -> None:
        self.table, self.target, self.hints, self.may_cut = table, target, hints, may_cut
        self._known: dict[int, _Known] = {}
        self._touches: KnownTouches = {}
        self._small: dict[object, tuple[list[str], Shape]] = {}  # by all but the names of the storages
        self._kinds: dict[object, _Kind] = {}  # by what decides the price of a shape
        self._latest: dict[int, tuple[Shape, _Kind]] = {}  # by the id of a shape, which stays alive

    def shape(self, kernel: Kernel) -> Shape:
        """The shape of a kernel, read once for each body."""
        known = self._known.get(id(kernel.body))
        if known is None or known.axes is not kernel.axes:
            shape = self._shape_like(kernel) if len(kernel.body.ops) <= SMALL else self._shape_of(kernel)
            known = self._known[id(kernel.body)] = _Known(kernel.body, kernel.axes, shape)
        return known.shape

    def _shape_of(self, kernel: Kernel) -> Shape:
        return shape_of(kernel, self.table, self.hints, is_gpu=self.target.is_gpu, known=self._touches)

    def _shape_like(self, kernel: Kernel) -> Shape:
        """The shape of a kernel; where another kernel differs in the names of its storages only, made of that one's."""
        found = but_for_names(kernel, self.table)
        if found is None:
            return self._shape_of(kernel)
        key, names = found
        like = self._small.get(key)
        if like is None:
            like = self._small[key] = names, self._shape_of(kernel)
        renamed, shape = dict(zip(like[0], names, strict=True)), like[1]
        touches = tuple([Touch(renamed[touch[0]], *touch[1:]) for touch in shape.touches])
        return Shape(shape.extents, touches, *shape[2:])

    def alone(self, kernel: Kernel) -> Alone:
        """What a kernel costs that shares nothing with the kernels around it."""
        touched: dict[str, int] = {}
        shape = self.shape(kernel)
        for touch in shape.touches:
            touched[touch.storage] = min(touch.storage_bytes, touched.get(touch.storage, 0) + touch.size)
        size = sum(touched.values())
        cost = self._cost(shape, size)[-1]
        along = shape.contiguous()[:1]
        crosses = any([touch.steps[axis] not in (-1, 0, 1, None) for touch in shape.touches for axis in along])
        return Alone(cost.seconds, cost.launch, (cost.memory + cost.cache) / max(1, size), touched, crosses)

    def slower(self, one: Sequence[Shape], other: Sequence[Shape], tie: float = TIE) -> Slower | None:
        """Why the kernels `one` take longer than the kernels `other`; None if they do not, or hardly.

        Args:
            one: the shapes of kernels that run one after the other.
            other: the shapes of kernels that compute the same.
            tie: how many times as long the first way may take.
        """
        mine, others = self._prices_of((one, other))
        pairs = list(zip(_sums(mine), _sums(others), strict=True))
        worst = max(range(len(pairs)), key=lambda n: pairs[n][0] / pairs[n][1])
        if pairs[worst][0] / pairs[worst][1] <= tie * max(b / a for a, b in pairs):
            return None
        more = {name: _sum(mine, name, worst) - _sum(others, name, worst) for name in NEEDS}
        return Slower(NEEDS[max(more, key=more.__getitem__)], *pairs[worst])

    def compared(self, one: Sequence[Shape], other: Sequence[Shape]) -> Slower:
        """The seconds of two ways, on a CPU with the threads with which the first is best beside the second."""
        pairs = zip(*self.seconds((one, other)), strict=True)
        return Slower("", *min(pairs, key=lambda pair: pair[0] / pair[1]))

    def seconds(self, ways: Sequence[Sequence[Shape]]) -> list[list[float]]:
        """The seconds of each of several ways to compute the same, on a CPU for each number of threads."""
        return [_sums(prices) for prices in self._prices_of(ways)]

    @property
    def launch(self) -> float:
        """The seconds of a launch."""
        return (self.target.machine or NOMINAL).launch if self.target.is_gpu else self.target.cpu.launch

    def sharers(self, shape: Shape) -> float:
        """How many programs of a GPU, or threads of a CPU, there is room for, for each that has work in a kernel."""
        if self.target.is_gpu:
            from minductor.cost.shape_gpu import sharers

            return sharers(shape, self.target)
        from minductor.cost.cpu_seconds import SMALL_CALL
        from minductor.cost.shape_cpu import THREADS

        is_serial = shape.points(shape.every) <= SMALL_CALL
        return 0.0 if is_serial else THREADS[-1] / shape.points(shape.every & ~shape.joined)

    def _prices_of(self, ways: Sequence[Sequence[Shape]]) -> list[list[_Price]]:
        around = self._power(max(map(_bytes, ways)))
        return [[self._price(shape, around) for shape in way] for way in ways]

    def _cost(self, shape: Shape, around: int) -> tuple[Cost, ...]:
        """What a shape costs between kernels that touch so many bytes, on a CPU for each number of threads."""
        return self._price(shape, self._power(around)).costs

    def _power(self, size: int) -> int:
        """The least power of 2 that is no less, by its exponent; on a GPU of the fourth root of 2."""
        if not self.target.is_gpu:
            return max(0, size - 1).bit_length()
        return ceil(4 * log2(max(1, size)))

    def _price(self, shape: Shape, around: int) -> _Price:
        """What a shape costs between kernels that touch so many bytes; `around` stands for them as in `_power`."""
        kind = self._latest_kind(shape)
        found = kind.prices.get(around)
        if found is None:
            costs = kind.costs(int(2 ** (around / 4)) if self.target.is_gpu else 1 << around)
            found = kind.prices[around] = _Price(costs, tuple([cost.seconds for cost in costs]))
        return found

    def and_stored(self, made: Shape, consumer: Shape, storage: str) -> Shape:
        """What `shape.and_stored` gives. On a CPU its price is that of `made` and a store, if the loops stay."""
        stored = and_stored(made, consumer, storage)
        known = self._latest_kind(made).demand
        if known is not None:
            from minductor.cost.shape_cpu import with_store

            demand = with_store(known, made, stored.touches[-1], self.target.cpu)
            if demand is not None:
                self._latest[id(stored)] = stored, self._of_cpu(demand)
        return stored

    def _latest_kind(self, shape: Shape) -> _Kind:
        """The kind of a shape, found without a comparison if the shape was asked for lately."""
        latest = self._latest.get(id(shape))
        if latest is None:
            if len(self._latest) >= MOST_LATEST:
                self._latest.clear()
            latest = self._latest[id(shape)] = shape, self._kind(shape)
        return latest[1]

    def _kind(self, shape: Shape) -> _Kind:
        """The kind of a shape."""
        key = _without_names(shape)
        found = self._kinds.get(key)
        if found is None:
            whole = merged(shape)
            same = key if whole is shape else _without_names(whole)
            if same not in self._kinds:
                self._kinds[same] = self._made_kind(whole)
            found = self._kinds[key] = self._kinds[same]
        return found

    def _made_kind(self, shape: Shape) -> _Kind:
        """A new kind of shapes."""
        if self.target.is_gpu:
            from minductor.cost.shape_gpu import gpu_cost  # a first call for a CPU does not wait for it

            def costs(around: int) -> tuple[Cost, ...]:
                return (gpu_cost(shape, self.target, around, may_cut=self.may_cut),)

            return _Kind(costs, {})
        from minductor.cost.shape_cpu import demand

        return self._of_cpu(demand(shape, self.target.cpu))

    def _of_cpu(self, demand: Demand) -> _Kind:
        """A new kind of shapes that take so much of a CPU."""
        return _Kind(partial(demand.costs, self.target.cpu), {}, demand)


def _without_names(shape: Shape) -> tuple[object, ...]:
    """What decides the price of a shape: all but the names of its storages, and where in them accesses begin."""
    extents, touches, *rest = shape
    return extents, tuple([touch[1:-1] for touch in touches]), *rest


def _bytes(shapes: Sequence[Shape]) -> int:
    """The bytes that kernels touch together."""
    sizes: dict[str, int] = {}
    for shape in shapes:
        for touch in shape.touches:
            if touch.size > sizes.get(touch.storage, 0):
                sizes[touch.storage] = touch.size
    return sum(sizes.values())


def _sums(prices: Sequence[_Price]) -> list[float]:
    """The seconds of kernels together, for each number of threads."""
    return list(map(sum, zip(*(price.seconds for price in prices), strict=True)))


def _sum(prices: Sequence[_Price], name: str, threads: int) -> float:
    """One of the times of kernels together."""
    return sum(getattr(price.costs[threads], name) for price in prices)
