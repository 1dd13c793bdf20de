"""Which of two ways to compute the same takes less time, before the kernels have schedules.

Takes kernels, as they are and as a stage would make them. Gives the seconds of each way, and the reason, with figures,
why one of them is slower (`Slower`). Refuses nothing.

`inline`, `fuse` and `loop_order` ask nothing else. A price is memoised by what decides it (`shape.py`), so a model of
many equal layers prices each kind of kernel once. A CPU's kernels are priced with one thread and with sixteen, and the
way counts that loses least where it loses most, as for recipes (`passes/schedule`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from minductor.core.expressions.hints import Hints
from minductor.cost.seconds import Cost
from minductor.cost.shape import Shape, merged, shape_of
from minductor.ir.program.nodes import Axis, Body, Buffer, Kernel
from minductor.target import Target

TIE = 1.03  # ways whose times differ by less are equally fast; the one with fewer kernels is taken
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
        return f"{_microseconds(self.this)} us {this}, {_microseconds(self.other)} us {other}"


def _microseconds(seconds: float) -> str:
    """Three digits at most.

    >>> _microseconds(1.23456e-3), _microseconds(3.3e-05), _microseconds(2.04e-07)
    ('1235', '33', '0.204')
    """
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


class _Known(NamedTuple):
    """The shape of a kernel. The body stays alive, so that no other one gets its id."""

    body: Body
    axes: tuple[Axis, ...]
    shape: Shape


class Prices:
    """The prices of one program's kernels on one target; the table of buffers must not change meanwhile."""

    def __init__(self, table: Mapping[str, Buffer], target: Target, hints: Hints) -> None:
        self.table, self.target, self.hints = table, target, hints
        self._known: dict[int, _Known] = {}
        self._costs: dict[tuple[Shape, int], tuple[Cost, ...]] = {}

    def shape(self, kernel: Kernel) -> Shape:
        """The shape of a kernel, read once for each body."""
        known = self._known.get(id(kernel.body))
        if known is None or known.axes is not kernel.axes:
            shape = shape_of(kernel, self.table, self.hints, is_gpu=self.target.is_gpu)
            known = self._known[id(kernel.body)] = _Known(kernel.body, kernel.axes, shape)
        return known.shape

    def slower(self, one: Sequence[Shape], other: Sequence[Shape], tie: float = TIE) -> Slower | None:
        """Why the kernels `one` take longer than the kernels `other`; None if they do not, or hardly.

        Args:
            one: the shapes of kernels that run one after the other.
            other: the shapes of kernels that compute the same.
            tie: how many times as long the first way may take.
        """
        around = max(_bytes(one), _bytes(other))
        mine, others = ([self._cost(shape, around) for shape in shapes] for shapes in (one, other))
        pairs = list(zip(_sums(mine), _sums(others), strict=True))
        worst = max(range(len(pairs)), key=lambda n: pairs[n][0] / pairs[n][1])
        if pairs[worst][0] / pairs[worst][1] <= tie * max(b / a for a, b in pairs):
            return None
        more = {name: _sum(mine, name, worst) - _sum(others, name, worst) for name in NEEDS}
        return Slower(NEEDS[max(more, key=more.__getitem__)], *pairs[worst])

    def _cost(self, shape: Shape, around: int) -> tuple[Cost, ...]:
        """The costs of a shape, on a CPU for each number of threads. `around` counts as a power of two."""
        power = max(0, around - 1).bit_length()
        found = self._costs.get((shape, power))
        if found is None:
            nameless = tuple(touch._replace(storage="") for touch in shape.touches)
            key = merged(shape._replace(touches=nameless)), power
            if key not in self._costs:
                self._costs[key] = self._priced(key[0], 1 << power)
            found = self._costs[shape, power] = self._costs[key]
        return found

    def _priced(self, shape: Shape, around: int) -> tuple[Cost, ...]:
        if self.target.is_gpu:
            from minductor.cost.shape_gpu import gpu_cost  # a first call for a CPU does not wait for it

            return (gpu_cost(shape, self.target, around),)
        from minductor.cost.shape_cpu import cpu_costs

        return cpu_costs(shape, self.target.cpu, around)


def _bytes(shapes: Sequence[Shape]) -> int:
    """The bytes that kernels touch together."""
    sizes: dict[str, int] = {}
    for shape in shapes:
        for touch in shape.touches:
            sizes[touch.storage] = max(sizes.get(touch.storage, 0), touch.size)
    return sum(sizes.values())


def _sums(costs: Sequence[tuple[Cost, ...]]) -> list[float]:
    """The seconds of kernels together, for each number of threads."""
    return [sum(cost.seconds for cost in each) for each in zip(*costs, strict=True)]


def _sum(costs: Sequence[tuple[Cost, ...]], name: str, threads: int) -> float:
    """One of the times of kernels together."""
    return sum(getattr(each[threads], name) for each in costs)
