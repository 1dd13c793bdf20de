"""What a scheduled kernel costs on a machine, in seconds.

Takes a kernel with its schedule, the buffers, a target with machine numbers, and hints for unknown sizes. Gives a
`Cost`. Refuses nothing: a target that states no machine numbers is priced with those of an H200.

Four times are computed and then added as a norm, since each is partly hidden behind the others:

- `memory`: bytes that come from or go to main memory, at the bandwidth of a copy. A row that a later walk reads again
  comes from the cache if all rows that are read at once fit there.
- `cache`: what passes the second-level cache in all walks: bytes, pieces shorter than a sector, and accesses of a
  thread, which are more where rows are not aligned; and the results of reductions that change threads. A row that is
  walked again comes from the first-level cache as far as it fits there.
- `arithmetic`: operations of all points, at the rate of simple operations.
- `waiting`: how long one program takes, times how often the programs that run at once are replaced by the next ones.

The exponent of the norm is smaller where a multiprocessor has room for one program only that does not walk, and where
there are few programs; with no more of them than multiprocessors nothing hides, and the times are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from math import gcd, inf, prod
from typing import NamedTuple

from minductor.analysis.domain import buffer_bytes
from minductor.analysis.passes_over import longest_chain
from minductor.analysis.strides import constant_step
from minductor.analysis.walked_again import walked_again
from minductor.core.expressions.expr import Expr, free_symbols
from minductor.core.expressions.hints import Hints, estimate
from minductor.cost.registers import alive_at_once, double_rate, words
from minductor.ir.program.aligned_rows import is_aligned_with, row_start
from minductor.ir.program.loops import Loop, Step
from minductor.ir.program.nodes import Buffer, Kernel, Load, Op, Project, Reduce, Store
from minductor.ir.program.ops import op_cost
from minductor.target import NOMINAL, Machine, Target

NORM = 4.5  # the exponent with which times that hide behind each other are added; 1: none hides, infinity: all do
FIXED_REGISTERS = 20  # of a thread: addresses, masks and counters
# times as long main memory takes for loads by way of shared memory, where it decides: measured 1.02 to 1.09
AHEAD = 1.06
PIPELINE_REGISTERS = 16  # of a thread, for the places of the blocks that are under way
WORD = 4  # bytes of a register
LONE_NORM = 1.8  # as NORM, where a multiprocessor has room for one program at a time: little hides its waiting
SECTOR = 32  # bytes that the second-level cache gives at least
LINE = 128  # bytes that lie together in main memory: shorter pieces take `PIECES` times as long
PIECES = 1.3
WIDEST = 16  # bytes of the widest load of a thread
RAGGED = 1.5  # times as long narrow accesses take in a walk, where a mask of each block hides the end of a row
LONE = 4  # a multiprocessor draws so many times its share of the memory's bandwidth if the others are idle
# bytes for each register that does not fit: it is written and read back several times, and nothing else runs meanwhile
SPILL = 32 * WORD
FIRST_BYTES = 192 * 1024  # of the cache beside the units of a multiprocessor, for rows that are walked again
SPILLED_BYTES = 64 * 1024  # of that cache, for spilled registers
EXCHANGED = 0.2  # of `Machine.exchange` that each warp's part of a result takes, where warps share a reduction
NEARER = 8  # times as fast as the second-level cache is that cache


class Cost(NamedTuple):
    """The seconds of a kernel, and the four times that they are made of."""

    memory: float
    cache: float
    arithmetic: float
    waiting: float
    launch: float
    norm: float = NORM

    @property
    def seconds(self) -> float:
        memory, cache, arithmetic, waiting, launch, norm = self
        return (memory**norm + cache**norm + arithmetic**norm + waiting**norm) ** (1 / norm) + launch

    @property
    def bound(self) -> str:
        """The largest of the four times, by name."""
        return max(zip(self._fields[:4], self[:4], strict=True), key=lambda pair: pair[1])[0]


class Demand(NamedTuple):
    """What a launch takes of a GPU, whatever else the launch does.

    `memory`: bytes. `cache`: seconds of all caches together. `working`: seconds of its programs, one after the other;
    `longest`: of one of them. `resident`: the programs that one multiprocessor runs at once. `blocks`: how many blocks
    of memory it waits for at once, which are more where a program walks: it loads a block while it uses another one,
    unless the reduction of a row holds up all of its loads.
    """

    memory: float
    cache: float
    operations: float
    programs: int
    working: float
    longest: float
    resident: int
    blocks: int

    def plus(self, other: Demand) -> Demand:
        """What one launch takes that does both."""
        sums = [mine + theirs for mine, theirs in zip(self[:5], other[:5], strict=True)]
        memory, cache, operations, programs, working = sums
        longest, resident = max(self.longest, other.longest), min(self.resident, other.resident)
        blocks = min(self.blocks, other.blocks)
        return Demand(memory, cache, operations, int(programs), working, longest, resident, blocks)

    def cost(self, target: Target) -> Cost:
        """The cost of the launch. Its programs run in waves, and few programs leave multiprocessors idle."""
        machine, multiprocessors = target.machine or NOMINAL, max(1, target.multiprocessors)
        busy = min(1.0, max(1, self.programs) / multiprocessors)  # an axis may be empty
        return Cost(
            self.memory / machine.bandwidth / min(1.0, LONE * busy),
            self.cache / busy,
            self.operations / machine.operations / busy,
            max(self.longest, self.working / (self.resident * multiprocessors)),
            machine.launch,
            norm(self.programs, self.blocks, target),
        )


def norm(programs: int, blocks: int, target: Target) -> float:
    """The exponent with which the times of a kernel are added.

    `blocks`: those for which a multiprocessor waits at once: one of each program that it has room for, and one more of
    a program that walks. Where it is one, little hides behind another time: a program waits for its loads, then
    computes. With each more, more hides.
    """
    most = NORM if blocks > 1 else LONE_NORM
    share = (programs / max(1, target.multiprocessors) - 1) / max(1, blocks - 1)
    return 1 + (most - 1) * min(1.0, max(0.0, share))


def crossing(warps: int) -> float:
    """How many times as long as `Machine.join` a reduction over the threads of so many warps takes."""
    return 1.5 + warps / 32 if warps > 1 else 0.5  # within a warp no value passes through shared memory


def spill_seconds(registers: float, threads: int, resident: int, machine: Machine) -> float:
    """The seconds that one program takes of the caches for registers of each thread that do not fit."""
    if registers <= 0:
        return 0.0
    is_near = WORD * registers * threads * resident <= SPILLED_BYTES
    return SPILL * registers * threads / machine.cache_bandwidth / (NEARER if is_near else 1)


def seconds(kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> Cost:
    """The cost of a kernel whose schedule is one for a GPU."""
    return demand(kernel, table, target, hints).cost(target)


def demand(kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> Demand:
    """What a kernel takes whose schedule is one for a GPU."""
    return _Pricer(kernel, table, target, hints).demand()


class _Walk(NamedTuple):
    """Ops that run one after the other, `times` times. `stages`: of the software pipeline, if it is one."""

    times: int
    positions: Sequence[int]
    stages: int = 1

    @property
    def waits(self) -> float:
        """How often a program waits for loads that it makes: those of a pipeline are under way together."""
        return 1 + (self.times - 1) / self.stages


class _Access(NamedTuple):
    """A load or store. `size`: bytes of an element. `steps`: by axis of the tile, as those of a Touch."""

    op: Op
    attrs: Load | Store
    size: int
    steps: dict[str, int | None]


class _Pricer:
    """Prices one kernel. `blocks`: by axis the elements that a program computes at once."""

    def __init__(self, kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> None:
        assert kernel.schedule is not None
        self.kernel, self.table, self.target, self.machine = kernel, table, target, target.machine or NOMINAL
        self.hints = hints
        self.ops = kernel.body.ops
        self.extents = {axis.name: estimate(axis.extent, hints) for axis in kernel.axes}
        self.blocks = dict.fromkeys(self.extents, 1)
        self.programs = 1
        self.order: list[str] = []  # the axes of the tile, outermost first
        self.walked: set[str] = set()
        self.aligned: dict[str, Loop] = {}  # by axis, the loop over a row that is held in a bulk and edges
        self.reduced = {axis for op in self.ops for axis in op.reduced_axes}
        self.walks = list(self.flat(kernel.schedule.steps))
        accesses = ((p, op, op.attrs) for p, op in enumerate(self.ops) if isinstance(op.attrs, Load | Store))
        self.accesses = {p: self.access(op, attrs) for p, op, attrs in accesses}
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
            if step.aligned:
                self.aligned[step.axis] = step
            count = -(-self.extents[step.axis] // block)
            if step.kind == "grid":
                self.programs *= count
            elif step.kind == "serial":
                self.walked.add(step.axis)
            times = count if step.kind == "serial" else 1
            walks = self.flat(step.body)
            yield from (_Walk(times * w.times, w.positions, max(w.stages, step.stages)) for w in walks)
        if run:
            yield _Walk(1, run)

    def access(self, op: Op, attrs: Load | Store) -> _Access:
        """The facts of a load or store."""
        symbols = {axis.name: axis.symbol for axis in self.kernel.axes}
        steps = {name: constant_step(op, symbols[name]) for name in self.order}
        return _Access(op, attrs, self.table[attrs.ref.storage].dtype.itemsize, steps)

    def elements(self, op: Op) -> int:
        """The values of an op that one program computes at once; of the edges of a row each thread computes one."""
        return prod(self.blocks[axis] + (self.threads if axis in self.aligned else 0) for axis in op.loop_axes)

    def demand(self) -> Demand:
        """What the kernel takes."""
        cached = sum(walk.times * self.cached(walk, self.again(n)) for n, walk in enumerate(self.walks)) * self.programs
        spilled = spill_seconds(self.registers - self.most_registers, self.threads, self.resident, self.machine)
        cached += self.programs * spilled + self.exchanged() * self.machine.exchange
        work = sum(walk.times * self.work(walk) for walk in self.walks) * self.programs
        one = self.program_seconds()
        resident, blocks = self.resident, 1 if self.is_held_up else self.resident + bool(self.walked)
        return Demand(self.memory_bytes(), cached, work, self.programs, self.programs * one, one, resident, blocks)

    # --- bytes

    def cached(self, walk: _Walk, again: Set[int]) -> float:
        """The seconds that one run of a walk takes of the caches and of the units that load and store.

        `again`: its loads that an earlier walk made. Some of them find their values in the first-level cache.
        """
        total = 0.0
        for position, access in ((p, self.accesses[p]) for p in walk.positions if p in self.accesses):
            size, elements, run = access.size, self.elements(access.op), access.size * self.run(access)
            moved = elements * size / self.machine.cache_bandwidth
            moved *= 1 - self.near * (1 - 1 / NEARER) if position in again else 1
            alone = elements * size / run * self.machine.sector if run < SECTOR else 0.0
            width = self.width(access)
            ragged = RAGGED if self.walked and width * size < WIDEST else 1.0
            total += max(moved, alone, elements / width * self.machine.access * ragged)
        return total

    def again(self, number: int) -> Set[int]:
        """The loads of rows that the walk of this number makes after another walk."""
        return {p for p, numbers in self.rows.items() if number in numbers[1:]}

    @cached_property
    def rows(self) -> Mapping[int, tuple[int, ...]]:
        """By the position of each load of rows that are walked again, the numbers of the walks that make it."""
        apart = {a for a in self.order if self.extents[a] > self.blocks[a] and a not in self.walked}
        return walked_again(self.ops, [walk.positions for walk in self.walks], self.walked, apart)

    @cached_property
    def near(self) -> float:
        """The share of the rows that are walked again which the first-level cache still holds."""
        times = {p: self.walks[numbers[0]].times for p, numbers in self.rows.items()}
        rows = sum(n * self.elements(self.ops[p]) * self.accesses[p].size for p, n in times.items())
        return min(1.0, FIRST_BYTES / (rows * self.resident)) if rows else 0.0

    def run(self, access: _Access) -> int:
        """The elements that lie next to each other in memory, of those that one program loads or stores at once."""
        return max((self.blocks[axis] for axis, step in access.steps.items() if step in (1, -1)), default=1)

    def stretch(self, access: _Access) -> int:
        """The bytes that lie together in memory, of those that one program loads or stores at once in a walk.

        A walk along memory goes on where its block ends, so it has no end.
        """
        along = {abs(step): axis for axis, step in access.steps.items() if step}
        length, step = 1, 1
        while (axis := along.get(step)) is not None and self.blocks[axis] > 1:
            length *= self.blocks[axis]
            if self.blocks[axis] < self.extents[axis]:
                return LINE if axis in self.walked else length * access.size
            step *= self.extents[axis]
        return length * access.size

    def width(self, access: _Access) -> int:
        """The elements that one instruction of a thread loads or stores: fewer where rows are not aligned."""
        widest = max(1, WIDEST // access.size)
        along = next((axis for axis, step in access.steps.items() if step == 1 and self.blocks[axis] > 1), None)
        if along is None:
            return 1 if any(step != 0 for step in access.steps.values()) else widest
        if along in self.aligned:
            return gcd(widest, self.aligned_elements(access, self.aligned[along]))
        rest = (step for axis, step in access.steps.items() if axis != along)
        steps = [self.extents[along] if self.extents[along] % self.blocks[along] else 0, *(step or 0 for step in rest)]
        return gcd(widest, *steps)

    def aligned_elements(self, access: _Access, loop: Loop) -> int:
        """The elements of which the bulk of a row starts at a multiple, for one access."""
        axis = next(axis.symbol for axis in self.kernel.axes if axis.name == loop.axis)
        start = row_start(self.ops[loop.reference], axis)
        is_same = start is not None and is_aligned_with(access.attrs.index, axis, start, loop.aligned)
        return loop.aligned if is_same else 1

    def memory_bytes(self) -> float:
        """The bytes that pass main memory: each access once, and rows that left the cache and are read again."""
        once: dict[object, float] = {}
        rows = again = 0
        for position, access in self.accesses.items():
            op, attrs = access.op, access.attrs
            pieces = PIECES if SECTOR <= self.stretch(access) < LINE else 1.0
            by_way = AHEAD if position in self.ahead else 1.0
            once[attrs.ref.storage, attrs.index, type(attrs)] = self.touched(access) * pieces * by_way
            if position in self.rows:
                times = [self.walks[n].times for n in self.rows[position]]
                size = self.elements(op) * access.size
                rows += times[0] * size
                again += sum(times[1:]) * size
        at_once = min(self.programs, self.resident * self.target.multiprocessors)
        half = self.target.l2_bytes / 2
        missing = min(1.0, max(0.0, (rows * at_once - half) / half)) if half else 0.0
        return sum(once.values()) + missing * again * self.programs

    @cached_property
    def ahead(self) -> Set[int]:
        """The loads that go to shared memory before their values are used."""
        pipelined = (p for walk in self.walks if walk.stages > 1 for p in walk.positions)
        return {p for p in pipelined if isinstance(self.ops[p].attrs, Load)}

    def touched(self, access: _Access) -> float:
        """The bytes of memory that an access touches. Where data decide the index, each run is a piece of its own."""
        index, storage = access.attrs.index, access.attrs.ref.storage
        whole = access_bytes(index, self.kernel, self.table[storage], self.hints)
        if all(symbol.kind != "value" for symbol in free_symbols(index)):
            return whole
        points = prod(self.extents[axis] for axis in access.op.axes)
        return min(whole, points * max(access.size, SECTOR / self.run(access)))

    # --- registers and threads

    @cached_property
    def registers(self) -> float:
        """The registers of a thread: the values of a row that live at once, or the accumulators of a walk."""
        rows = self.reduced - self.walked  # that are held, in a walk over other axes as well
        alive = alive_at_once(self.kernel.body, rows) if rows or not self.walked else ()
        most = max((sum(words(op) * self.lanes(op) for op in ops) for ops in alive), default=0)
        carried = max(map(self.accumulators, self.walks)) if self.walked else 0
        is_pipelined = any(walk.stages > 1 for walk in self.walks)
        return FIXED_REGISTERS + PIPELINE_REGISTERS * is_pipelined + (most + carried) / self.threads

    def lanes(self, op: Op) -> int:
        """The values of an op for which registers are held: none for the part of a block behind the end of an axis."""
        whole = {axis: -(-self.extents[axis] // self.threads) * self.threads for axis in op.loop_axes}
        return prod(min(self.blocks[axis], count) for axis, count in whole.items())

    def accumulators(self, walk: _Walk) -> int:
        """The registers of all threads of a program that hold the accumulators of the reductions of a walk."""
        joins = (op for op in map(self.ops.__getitem__, walk.positions) if isinstance(op.attrs, Reduce))
        return sum(len(op.args) * words(op) * self.elements(op) for op in joins)

    @property
    def most_registers(self) -> float:
        """The registers that a thread may have; no limit if the target states none."""
        target = self.target
        limit = next((int(c.default) for c in self.kernel.choices if c.id == "registers"), 0)
        return min(limit or inf, target.thread_registers or inf, target.registers / self.threads or inf)

    @property
    def resident(self) -> int:
        """The programs that one multiprocessor runs at once."""
        machine, used = self.machine, min(self.registers, self.most_registers) * self.threads
        limits = [machine.resident_threads // self.threads, machine.resident_programs]
        if self.target.registers:
            limits.append(int(self.target.registers / used))
        if self.shared:
            limits.append(self.target.shared_memory // self.shared)
        return max(1, min(limits))

    @cached_property
    def shared(self) -> int:
        """The bytes of shared memory that one program holds blocks in whose loads are under way."""
        stages = {p: walk.stages for walk in self.walks for p in walk.positions}
        return sum((stages[p] - 1) * self.elements(self.ops[p]) * self.accesses[p].size for p in self.ahead)

    # --- time

    @property
    def is_held_up(self) -> bool:
        """Whether a walk completes a reduction at each step, and loads nothing meanwhile."""
        return any(
            walk.times > 1 and walk.stages == 1 and not self.walked.issuperset(self.ops[p].reduced_axes)
            for walk in self.walks
            for p in walk.positions
            if isinstance(self.ops[p].attrs, Reduce)
        )

    def program_seconds(self) -> float:
        """The time of one program that runs alone: loads that wait for each other, and reductions over its threads."""
        machine, seen = self.machine, set[int]()
        total = machine.program
        for walk in self.walks:
            # loads that wait for each other: two for a gather
            depth = longest_chain(self.ops, walk.positions, lambda p: isinstance(self.ops[p].attrs, Load))
            is_first = any(isinstance(self.ops[p].attrs, Load) and p not in seen for p in walk.positions)
            seen.update(walk.positions)
            known = machine.cache_latency * (1 - self.near * (1 - 1 / NEARER))
            total += walk.waits * depth * (machine.latency if is_first else known)
        warps = self.threads // self.target.warp_size
        for p, op in enumerate(self.ops):
            if prod(self.blocks[axis] for axis in op.reduced_axes) > 1:
                is_carried = not self.walked.isdisjoint(op.reduced_axes)  # complete behind the walk, else at each step
                times = 1 if is_carried else max(walk.times for walk in self.walks if p in walk.positions)
                total += times * machine.join * crossing(warps) * len(op.args) ** 0.5
        return total

    def work(self, walk: _Walk) -> float:
        """The operations of one run of a walk."""
        return sum(self.elements(self.ops[p]) * op_work(self.ops[p]) for p in walk.positions)

    def exchanged(self) -> float:
        """The results of reductions that change threads: memory is contiguous along another axis than they reduce.

        Where several warps have parts of one result, each part passes shared memory. `EXCHANGED` is a part's share.
        """
        loads = [access for access in self.accesses.values() if isinstance(access.attrs, Load)]
        moved, is_product = 0.0, self.kernel.schedule is not None and bool(self.kernel.schedule.dots)
        for op in () if is_product else self.ops:  # matrix units add up by themselves
            if not isinstance(op.attrs, Reduce) or prod(self.blocks[axis] for axis in op.reduced_axes) == 1:
                continue
            lanes = [n for each in loads if (n := self.lanes_beside(each, op.attrs.axes))]
            if lanes:
                parts = self.threads / max(self.target.warp_size, *lanes)
                moved += prod(self.blocks[axis] for axis in op.axes) * parts * EXCHANGED if parts > 1 else 0
        return self.programs * moved

    def lanes_beside(self, access: _Access, reduced: Sequence[str]) -> int:
        """The threads that load a stretch of memory along axes that are not reduced; 0 if it is along one that is."""
        along = [axis for axis, step in access.steps.items() if step in (1, -1) and self.blocks[axis] > 1]
        if not along or not set(along).isdisjoint(reduced):
            return 0
        return max(1, self.blocks[along[0]] * access.size // WIDEST)


def access_bytes(index: Expr, kernel: Kernel, buffer: Buffer, hints: Hints) -> int:
    """The bytes that one access touches: at most the whole buffer, and all of it if data decide the index."""
    names = free_symbols(index)
    whole = buffer_bytes(buffer, hints)
    if any(s.kind == "value" for s in names):
        return whole
    touched = estimate([axis.extent for axis in kernel.axes if axis.symbol in names], hints)
    return min(whole, touched * buffer.dtype.itemsize)


def op_work(op: Op) -> int:
    """The simple operations of an op at one point; for a reduction those that take in one more element."""
    if isinstance(op.attrs, Project):
        return 0
    if isinstance(op.attrs, Reduce):
        cost = sum(op_cost(inner.name) for inner in op.attrs.combine.body.ops if inner.attrs is None)
    else:
        cost = op_cost(op.name)
    return cost * double_rate(op)
