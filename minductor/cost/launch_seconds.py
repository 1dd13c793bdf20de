"""What kernels that have schedules take in one launch, and what they take apart, in seconds.

Takes a program's buffers, a target, hints, and kernels. Gives for each launch the seconds that it takes, and for two
launches the reason, with figures, why one launch for both is not worth it. Refuses nothing.

One launch saves the seconds of a launch. On a GPU its kernels also share waves of programs, so that a kernel of few
programs does not leave multiprocessors idle. On a CPU its kernels run one after the other, each with its own threads.
Kernels with equal ops, extents and schedules on other tensors have the same price, which is computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

from minductor.core.expressions.hints import Hints
from minductor.cost.kernel_seconds import TIE, Slower
from minductor.cost.seconds import Demand, demand
from minductor.ir.program.nodes import Buffer, Kernel, Load, Op, Store
from minductor.target import NOMINAL, Target


class Launch(NamedTuple):
    """What one launch takes.

    `seconds`: on a CPU with one thread and with sixteen, where the sizes that only the call knows are large, and again
    where one of them is small; on a GPU one number, which follows from `demand`.
    """

    seconds: tuple[float, ...]
    demand: Demand | None = None


class LaunchPrices:
    """The prices of one program's launches; the table of buffers must not change meanwhile."""

    def __init__(self, table: Mapping[str, Buffer], target: Target, hints: Hints) -> None:
        self.table, self.target, self.hints = table, target, hints
        self._known: dict[Hashable, Launch] = {}

    def launch(self, kernel: Kernel) -> Launch:
        """The launch of one kernel."""
        key = self._key(kernel)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._priced(kernel)
        return found

    def together(self, one: Launch, other: Launch) -> Launch:
        """One launch that does the same as two."""
        if one.demand is None or other.demand is None:
            saved = self.target.cpu.launch
            return Launch(tuple(a + b - saved for a, b in zip(one.seconds, other.seconds, strict=True)))
        both = one.demand.plus(other.demand)
        return Launch((both.cost(self.target).seconds,), both)

    @staticmethod
    def too_little(one: Launch, other: Launch, whole: Launch) -> Slower | None:
        """Why the launch `whole` instead of the two saves hardly anything; None if it saves enough.

        What it saves is compared with the shorter of the two launches: a short kernel gains by joining a long one.
        """
        found = list(zip(whole.seconds, one.seconds, other.seconds, strict=True))
        shares = [(a + b - both) / min(a, b) for both, a, b in found]
        if max(shares) > TIE - 1 + max(0.0, -min(shares)):
            return None
        both, a, b = found[max(range(len(found)), key=shares.__getitem__)]
        return Slower("launches", both, a + b)

    def finished(self, one: Launch, other: Launch, alone: Launch, blocks: int) -> Slower:
        """One launch on a GPU, in which the last program of `one` does the work of `other`, beside `one` and `alone`.

        The last program has the machine for itself, as the programs of a small launch have. Each program first waits
        until its results are stored, then for the counter, of which each of the `blocks` of `other` has one.
        """
        assert one.demand is not None and other.demand is not None
        machine = self.target.machine or NOMINAL
        longest = other.demand.working / blocks
        last = other.demand._replace(programs=blocks, longest=longest).cost(self.target)
        counting = 2 * machine.cache_latency + one.demand.programs / blocks * machine.atomic
        together = (
            one.seconds[0] + counting + _second_wave(one.demand, blocks, self.target) + last.seconds - last.launch
        )
        return Slower("launches", together, one.seconds[0] + alone.seconds[0])

    def _priced(self, kernel: Kernel) -> Launch:
        if self.target.is_gpu:
            found = demand(kernel, self.table, self.target, self.hints)
            return Launch((found.cost(self.target).seconds,), found)
        from minductor.cost.cpu_seconds import cpu_seconds  # a program without equal kernels does not wait for it
        from minductor.cost.shape_cpu import THREADS

        costs = [cost.seconds for cost in cpu_seconds({"": kernel}, self.table, self.target.cpu)[""]]
        count = len(THREADS)
        small = (min(costs[n + count :: count], default=costs[n]) for n in range(count))
        return Launch((*costs[:count], *small))

    def _key(self, kernel: Kernel) -> Hashable:
        """What decides the price of a kernel."""
        numbers: dict[str, int] = {}
        ops = tuple(self._op_key(op, numbers) for op in kernel.body.ops)
        buffers = tuple((self.table[name].size, self.table[name].dtype) for name in numbers)
        return ops, buffers, tuple(axis.extent for axis in kernel.axes), kernel.schedule, kernel.choices

    def _op_key(self, op: Op, numbers: dict[str, int]) -> Hashable:
        """What decides the price of an op; `numbers`: of the storages, as the body first mentions them."""
        attrs = op.attrs
        if isinstance(attrs, Load | Store):
            number = numbers.setdefault(attrs.ref.storage, len(numbers))
            return op.name, op.args, op.axes, number, attrs.index
        return op


def _second_wave(demand: Demand, blocks: int, target: Target) -> float:
    """What it costs that a launch whose programs all run at once has a little less room, if that is so.

    What its programs do at the end takes registers of all of them. A sum of 1,000 columns, of 1,024 programs where
    1,056 have room, took 11.7 us on an H200, and 9.9 us in two launches.
    """
    room = demand.resident * target.multiprocessors
    return demand.longest if blocks > 1 and room - target.multiprocessors < demand.programs <= room else 0.0
