"""What a scheduled kernel costs on a machine, in seconds.

Takes a kernel with its schedule, the buffers and a target with machine numbers. Gives a `Cost`. Refuses nothing: a
target without machine numbers is priced with the nominal ones of its kind.

Four times are computed and then added as a norm, since each is partly hidden behind the others:

- `memory`: bytes that come from or go to main memory, at the bandwidth of a copy. A row that a later walk reads again
  comes from the cache if all rows that are read at once fit there.
- `cache`: bytes of all walks, at the bandwidth of the second-level cache, and the elements that change threads.
- `arithmetic`: operations of all points, at the rate of simple operations.
- `waiting`: how long one program takes, times how often the programs that run at once are replaced by the next ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf, prod
from typing import NamedTuple

from minductor.analysis.strides import constant_step
from minductor.core.expressions.hints import Hints, estimate
from minductor.cost.traffic import access_bytes
from minductor.ir.program.loops import Loop, Step
from minductor.ir.program.nodes import Buffer, Kernel, Load, Op, Project, Reduce, Store
from minductor.ir.program.ops import op_cost
from minductor.target import Target

NORM = 4.0  # the exponent with which times that hide behind each other are added; 1: none hides, infinity: all do
FIXED_REGISTERS = 20  # of a thread: addresses, masks and counters
WORD = 4  # bytes of a register
LONE = 4  # a multiprocessor draws so many times its share of the memory's bandwidth if the others are idle
# bytes for each register that does not fit: it is written and read back several times, and nothing else runs meanwhile
SPILL = 32 * WORD


class Cost(NamedTuple):
    """The seconds of a kernel, and the four times that they are made of."""

    memory: float
    cache: float
    arithmetic: float
    waiting: float
    launch: float

    @property
    def seconds(self) -> float:
        return sum(time**NORM for time in self[:4]) ** (1 / NORM) + self.launch

    @property
    def bound(self) -> str:
        """The largest of the four times, by name."""
        return max(zip(self._fields[:4], self[:4], strict=True), key=lambda pair: pair[1])[0]


def seconds(kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> Cost:
    """The cost of a kernel whose schedule is one for a GPU."""
    return _Pricer(kernel, table, target, hints).cost()


class _Walk(NamedTuple):
    """Ops that run one after the other, `times` times."""

    times: int
    positions: Sequence[int]


class _Pricer:
    """Prices one kernel. `blocks`: by axis the elements that a program computes at once."""

    def __init__(self, kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> None:
        assert kernel.schedule is not None
        self.kernel, self.table, self.target, self.machine = kernel, table, target, target.machine
        self.hints = hints
        self.ops = kernel.body.ops
        self.extents = {axis.name: estimate(axis.extent, hints) for axis in kernel.axes}
        self.blocks = dict.fromkeys(self.extents, 1)
        self.programs = 1
        self.order: list[str] = []  # the axes of the tile, outermost first
        self.walked: set[str] = set()
        self.walks = list(self.flat(kernel.schedule.steps))
        self.threads = target.warp_size * next(int(c.default) for c in kernel.choices if c.id == "warps")

    def flat(self, steps: Sequence[Step]) -> Iterator[_Walk]:
        """The walks of the steps, in order."""
        run: list[int] = []
        for step in steps:
            if not isinstance(step, Loop):
                run.append(step)
                continue
            if run:
                yield _Walk(1, run)
                run = []
            block = max(1, step.block)
            self.blocks[step.axis] = block
            if step.axis not in self.order:
                self.order.append(step.axis)
            count = -(-self.extents[step.axis] // block)
            if step.kind == "grid":
                self.programs *= count
            elif step.kind == "serial":
                self.walked.add(step.axis)
            times = count if step.kind == "serial" else 1
            yield from (_Walk(times * walk.times, walk.positions) for walk in self.flat(step.body))
        if run:
            yield _Walk(1, run)

    def elements(self, op: Op) -> int:
        """The values of an op that one program computes at once."""
        axes = set(op.axes)
        if isinstance(op.attrs, Reduce):
            axes.update(op.attrs.axes)
        return prod(self.blocks[axis] for axis in axes)

    def cost(self) -> Cost:
        machine = self.machine
        cached = sum(walk.times * self.bytes_of(walk) for walk in self.walks) * self.programs
        work = sum(walk.times * self.work(walk) for walk in self.walks) * self.programs
        busy = min(1.0, max(1, self.programs) / max(1, self.target.multiprocessors))  # an axis may be empty
        return Cost(
            self.memory_bytes() / machine.bandwidth / min(1.0, LONE * busy),
            ((cached + self.spilled_bytes()) / machine.cache_bandwidth + self.exchanged() * machine.exchange) / busy,
            work / machine.operations / busy,
            self.waves * self.program_seconds(),
            machine.launch,
        )

    # --- bytes

    def bytes_of(self, walk: _Walk) -> int:
        """The bytes that one run of a walk loads and stores."""
        return sum(
            self.elements(op) * self.table[op.attrs.ref.storage].dtype.itemsize
            for op in (self.ops[p] for p in walk.positions)
            if isinstance(op.attrs, Load | Store)
        )

    def memory_bytes(self) -> float:
        """The bytes that pass main memory: each access once, and rows that left the cache and are read again."""
        once: dict[object, int] = {}
        for op in self.ops:
            if isinstance(op.attrs, Load | Store):
                key = (op.attrs.ref.storage, op.attrs.index, isinstance(op.attrs, Store))
                once[key] = access_bytes(op.attrs.index, self.kernel, self.table[op.attrs.ref.storage], self.hints)
        rows = again = 0
        for position, op in enumerate(self.ops):
            if isinstance(op.attrs, Load) and self.walked.intersection(op.axes):
                times = [walk.times for walk in self.walks if position in walk.positions]
                size = self.elements(op) * self.table[op.attrs.ref.storage].dtype.itemsize
                if len(times) > 1 and self.is_own(op):
                    rows += times[0] * size
                    again += sum(times[1:]) * size
        at_once = min(self.programs, self.resident * self.target.multiprocessors)
        half = self.target.l2_bytes / 2
        missing = min(1.0, max(0.0, (rows * at_once - half) / half)) if half else 0.0
        return sum(once.values()) + missing * again * self.programs

    def is_own(self, op: Op) -> bool:
        """Whether no other program loads the same values."""
        return all(
            axis in op.axes for axis in self.order if self.extents[axis] > self.blocks[axis] and axis not in self.walked
        )

    # --- registers and threads

    @cached_property
    def registers(self) -> float:
        """The registers of a thread: values that live across a reduction, and accumulators."""
        tile = set(self.order)
        last: dict[int, int] = {}
        for position, op in enumerate(self.ops):
            last.update(dict.fromkeys(op.args, position))
        most = 0.0
        for position, op in enumerate(self.ops):
            if not isinstance(op.attrs, Reduce):
                continue
            if self.walked:
                most = max(most, len(op.args) * self.elements(op) / self.threads)
                continue
            alive = 0.0
            for earlier in range(position):
                value = self.ops[earlier]
                if last.get(earlier, 0) > position and tile & set(value.axes) and value.dtype is not None:
                    size = value.dtype.itemsize
                    if isinstance(value.attrs, Load):
                        size = min(size, self.table[value.attrs.ref.storage].dtype.itemsize)
                    alive += self.elements(value) * size / WORD / self.threads
            most = max(most, alive)
        return FIXED_REGISTERS + most

    @property
    def most_registers(self) -> float:
        """The registers that a thread may have; no limit if the target states none."""
        target = self.target
        return min(target.thread_registers or inf, target.registers / self.threads or inf)

    def spilled_bytes(self) -> float:
        """The bytes of registers that do not fit, written and read back by each thread."""
        return SPILL * max(0.0, self.registers - self.most_registers) * self.threads * self.programs

    @property
    def resident(self) -> int:
        """The programs that one multiprocessor runs at once."""
        machine, used = self.machine, min(self.registers, self.most_registers) * self.threads
        limits = [machine.resident_threads // self.threads, machine.resident_programs]
        if self.target.registers:
            limits.append(int(self.target.registers / used))
        return max(1, min(limits))

    # --- time

    @property
    def waves(self) -> float:
        return max(1.0, self.programs / (self.resident * max(1, self.target.multiprocessors)))

    def program_seconds(self) -> float:
        """The time of one program that runs alone: loads that wait for each other, and reductions over its threads."""
        machine, seen = self.machine, set[int]()
        total = machine.program
        for walk in self.walks:
            depth = self.depth(walk.positions)
            is_first = any(isinstance(self.ops[p].attrs, Load) and p not in seen for p in walk.positions)
            seen.update(walk.positions)
            total += walk.times * depth * (machine.latency if is_first else machine.cache_latency)
        warps = self.threads // self.target.warp_size
        for op in self.ops:
            if isinstance(op.attrs, Reduce) and prod(self.blocks[axis] for axis in op.attrs.axes) > 1:
                total += machine.join * (1 + warps / 16) * len(op.args) ** 0.5
        return total

    def depth(self, positions: Sequence[int]) -> int:
        """The number of loads that wait for each other: two for a gather."""
        here: dict[int, int] = {}
        for p in positions:
            here[p] = max((here.get(a, 0) for a in self.ops[p].args), default=0) + isinstance(self.ops[p].attrs, Load)
        return max(here.values(), default=0)

    def work(self, walk: _Walk) -> float:
        """The operations of one run of a walk."""
        return sum(self.elements(self.ops[p]) * self.op_work(self.ops[p]) for p in walk.positions)

    def op_work(self, op: Op) -> int:
        if isinstance(op.attrs, Reduce):
            return sum(op_cost(inner.name) for inner in op.attrs.combine.body.ops if inner.attrs is None)
        return 0 if isinstance(op.attrs, Project) else op_cost(op.name)

    def exchanged(self) -> int:
        """The elements that change threads: memory is contiguous along another axis than the innermost of the tile."""
        inner = next((axis for axis in reversed(self.order) if self.blocks[axis] > 1), None)
        if inner is None:
            return 0
        symbol = {axis.name: axis.symbol for axis in self.kernel.axes}
        walks = prod(-(-self.extents[axis] // self.blocks[axis]) for axis in self.walked)
        total = 0
        for op in self.ops:
            if not isinstance(op.attrs, Load | Store) or inner not in op.axes:
                continue
            steps = {axis: constant_step(op, symbol[axis]) for axis in self.order if self.blocks[axis] > 1}
            if steps[inner] not in (0, 1, -1) and any(step in (1, -1) for step in steps.values()):
                total += self.elements(op) * self.programs * walks
        return total
