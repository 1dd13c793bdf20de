"""What a scheduled kernel costs on a CPU, in seconds.

Takes kernels with their schedules, the buffers and the machine of a CPU's target. Gives a `Cost` for each number of
threads. Refuses nothing. A price depends neither on the host nor on the sizes that a call is expected to bring: a size
that only the call knows is priced as a large one and as a small one.

What is counted, loop by loop:

- `arithmetic`: operations, by element in scalar loops and by vector in vector loops; what the elements of a gather or a
  strided access take beyond that; starting a vector loop and the elements that do not fill its last vector; joining the
  lanes of a reduction, its blocks and its parts.
- `cache`: cache lines that a core takes from its second-level cache and from the shared third-level cache.
- `memory`: cache lines that come from main memory or go there. A core fetches ahead along a long run; at first it waits
  for each line. An instruction that gathers waits for its lines, which are never fetched ahead.
- `launch`: starting the kernel, and starting and joining the threads of each parallel loop.

How many lines a cache misses follows from the loops. If what one iteration of a loop touches fits the cache, each line
that the whole loop touches is missed once; if not, each iteration misses its lines anew. A kernel whose data fit the
cache as a whole misses nothing: the kernel before it has left them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import gcd, log2, prod
from operator import add
from typing import NamedTuple

from minductor.analysis.domain import buffer_bytes
from minductor.analysis.passes_over import longest_chain
from minductor.analysis.strides import even_step, step_of
from minductor.core.dtypes import BF16, F16
from minductor.core.expressions.expr import Expr, Symbol, as_int, const_and_terms, free_symbols, linear
from minductor.core.expressions.hints import Hints, clamped, estimate
from minductor.cost.seconds import Cost, op_work
from minductor.cost.shape import CHECK, INTEGER_DIVISIONS, NAN_MAXIMUM, ROUND, WORD
from minductor.cost.shape_cpu import LINE, THREADS, WAYS, spread
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.ir.program.nodes import (
    Atomic,
    Body,
    Buffer,
    Check,
    Constant,
    Index,
    Kernel,
    Load,
    Op,
    Reduce,
    Scan,
    Store,
    all_ops,
)
from minductor.ir.program.ops import FUNCTION
from minductor.target import CpuMachine

MANY, FEW = 1 << 20, 512  # elements: sizes that stand for one that only the call knows
SMALL_CALL = (
    16 * 1024
)  # points of a kernel that runs on one thread, if only the call knows their number (`cpp_nest.py`)
OVERLAP = 0.5  # of the seconds of a join: what it takes if the next row does not wait for it
DIVISION = 4  # operations; the result of an op of so many is late
ALONE = 0.25  # the same, where a row has no other phase in its loop
# as `CpuMachine.norm`, of data from main memory where rows run phase by phase: the phases that load and store are not
# those that compute, so little of either time hides the other
PHASES_NORM = 1.2
SMALLEST_VECTOR = 16  # bytes; fewer are computed one by one
ROW_ELEMENT = 3  # operations of writing one element of a row, which a vector loop then reads


def cpu_seconds(
    made: Mapping[str, Kernel],
    table: Mapping[str, Buffer],
    machine: CpuMachine,
    threads: Sequence[int] = THREADS,
    hints: Hints = (),
) -> dict[str, tuple[Cost, ...]]:
    """By recipe the cost of one kernel's schedule for each number of threads.

    If only the call knows some sizes, and `hints` say nothing of them, costs with other sizes follow.
    """
    unknown = {s for kernel in made.values() for axis in kernel.axes for s in free_symbols(axis.extent)}
    prices = {name: list[Cost]() for name in made}
    assumed = [hints] if unknown <= dict(hints).keys() and unknown else _sizes(sorted(unknown, key=_by_name))
    for hints in assumed:
        facts: dict[int, list[_Fact]] = {}
        for name, kernel in made.items():
            if id(kernel.body) not in facts:  # most recipes leave the body as it is
                facts[id(kernel.body)] = _Reader(kernel, table, hints).facts
            pricer = _Pricer(kernel, facts[id(kernel.body)], machine, hints)
            is_small = bool(unknown) and prod(pricer.spans.values()) <= SMALL_CALL
            prices[name] += (pricer.cost(1 if is_small else count) for count in threads)
    return {name: tuple(each) for name, each in prices.items()}


def _by_name(symbol: Symbol) -> str:
    return symbol.name


def _sizes(unknown: Sequence[Symbol]) -> Iterator[Hints]:
    """Sizes for these symbols: many of all, then few of each in turn."""
    many = {symbol: clamped(symbol, MANY) for symbol in unknown}
    yield tuple(many.items())
    for symbol in unknown:
        yield tuple((many | {symbol: clamped(symbol, FEW)}).items())


class _Touched(NamedTuple):
    """What some points touch. `size`: bytes; `first` and `second`: bytes that are taken up of these levels of cache.

    `moved`: the lines, those that are stored counted twice; `places`: where runs of lines begin; `conflicts`: those of
    them that share few sets of the second level; `waiting`: seconds for lines of main memory that the core does not
    fetch ahead. The last three: the lines that each level of cache misses again, since data draw more of them than fit.
    """

    size: float = 0.0
    first: float = 0.0
    second: float = 0.0
    moved: float = 0.0
    places: float = 0.0
    conflicts: float = 0.0
    waiting: float = 0.0
    first_again: float = 0.0
    second_again: float = 0.0
    third_again: float = 0.0


class _Visit(NamedTuple):
    """How loops go through a storage. `run`: the bytes between two jumps. `is_gather`: by instructions that gather."""

    run: int
    is_gather: bool = False


class _Turns(NamedTuple):
    """A loop of a nest: so many iterations, of which each covers a block of the axis."""

    axis: str
    times: int
    block: int


class _Access(NamedTuple):
    """One load or store, or a value that is kept in an array (a row).

    `moves`: by distance in bytes, the axes along which it moves; the distance is 0 where data decide it. `bent`: the
    axes along which the distance is not constant. `whole`: the bytes of the storage; `reach`: of the part of it in
    which data decide on one element. `is_half`: of floats of 16 bits.
    """

    key: tuple[object, ...]
    moves: tuple[tuple[int, str], ...]
    bent: frozenset[str]
    itemsize: int
    whole: int
    reach: int = 0
    is_store: bool = False
    is_half: bool = False

    def along(self, axis: str) -> int:
        """The distance in bytes of two elements that are neighbours along the axis."""
        return next((distance for distance, each in self.moves if each == axis), self.itemsize)

    def is_gathered(self, loop: Loop) -> bool:
        """Whether a vector takes its elements from places that are computed one by one."""
        return not self.along(loop.axis) or (loop.axis in self.bent and not loop.cuts)

    def of_whole_rows(self) -> _Access:
        """The same where the row in which data decide on an element is asked into the cache before."""
        return self._replace(itemsize=self.reach, moves=tuple(move for move in self.moves if move[0]), reach=0)

    def run(self, around: Sequence[_Turns]) -> int:
        """The bytes that loops touch one after the other before they jump; `around`: the loops, outermost first."""
        run = self.itemsize
        for turns in reversed(around):
            distance = next((turns.block * each for each, axis in self.moves if axis == turns.axis), None)
            if distance is None or turns.times == 1:
                continue
            if not 0 < distance < run + LINE:
                break
            run += distance * (turns.times - 1)
        return run

    def touched(self, spans: Mapping[str, int], machine: CpuMachine, visit: _Visit) -> _Touched:
        """What these points touch.

        Runs of lines that are a power of two apart share few of the sets of a cache, and so take up more of it.
        """
        walks = [(distance, spans[axis]) for distance, axis in self.moves]
        moved, begun, again, runs, apart = spread(self.itemsize, walks, self.whole, self.reach)
        first = max(moved * LINE, runs * gcd(apart, machine.first_bytes // WAYS) if apart else 0)
        second = max(moved * LINE, runs * gcd(apart, machine.second_bytes // WAYS) if apart else 0)
        levels = (machine.first_bytes, machine.second_bytes, machine.third_bytes)
        missed = [again * (self.reach > cache) for cache in levels] if again else ()
        conflicts = begun if second > max(moved * LINE, machine.second_bytes) else 0
        points = prod(spans[axis] for _, axis in self.moves)
        waiting = self.waiting(moved, missed[-1] if missed else 0.0, points, visit, machine)
        return _Touched(moved * LINE, first, second, moved * (1 + self.is_store), begun, conflicts, waiting, *missed)

    def waiting(self, lines: float, again: float, points: int, visit: _Visit, machine: CpuMachine) -> float:
        """The seconds for lines of main memory that are not fetched ahead; `again`: those that data draw once more."""
        if visit.is_gather:  # one instruction waits for all its lines
            return machine.memory_gather * min(lines + again, points * self.itemsize / machine.vector_bytes)
        return machine.memory_wait * (lines * min(1.0, machine.ahead_bytes / max(visit.run, LINE)) + again)


class _Fact(NamedTuple):
    """One op: its accesses, its operations on a vector and on a scalar, and those for each element of a vector.

    `axes`: of the loops around it. `size`: bytes of an element.
    """

    accesses: tuple[_Access, ...]
    units: float
    divisions: int
    is_special: bool
    axes: tuple[str, ...]
    size: int

    def with_rows(self) -> _Fact:
        """The op whose loads find their rows in the cache."""
        return self._replace(accesses=tuple(access.of_whole_rows() for access in self.accesses))


class _Work(NamedTuple):
    """Seconds: operations, lines of the second and third level and of main memory, and starting threads.

    `memory`: what the bandwidth allows. `waiting`: what a core takes that waits for lines not fetched ahead.
    """

    arithmetic: float = 0.0
    second: float = 0.0
    third: float = 0.0
    memory: float = 0.0
    waiting: float = 0.0
    regions: float = 0.0

    def plus(self, other: _Work) -> _Work:
        return _Work(*map(add, self, other))

    def times(self, count: float) -> _Work:
        return _Work(*(count * each for each in self))


class _Around(NamedTuple):
    """The loops around a step.

    `spans`: by axis the elements that the loops further in run over. `carried`: the reductions that are running.
    `is_alone`: the loop around has no other step, and nothing that its iterations hand on.
    """

    spans: dict[str, int]
    carried: frozenset[int] = frozenset()
    is_parallel: bool = False
    is_alone: bool = False


class _Pricer:
    """Prices one kernel."""

    def __init__(self, kernel: Kernel, facts: Sequence[_Fact], machine: CpuMachine, hints: Hints) -> None:
        assert kernel.schedule is not None
        self.steps, self.machine, self.ops = kernel.schedule.steps, machine, kernel.body.ops
        fetched = {position for loop in loops(self.steps) for position in loop.fetched}
        self.facts = [fact.with_rows() if p in fetched else fact for p, fact in enumerate(facts)] if fetched else facts
        self.kept = frozenset(kernel.schedule.kept_rows)
        self.hints = hints
        self.spans = {axis.name: max(1, estimate(axis.extent, hints)) for axis in kernel.axes}
        self.threads = 1
        # operations for each element that is not beside the one before it
        self.is_reduced = any(isinstance(op.attrs, Reduce) for op in self.ops)
        self.strided = machine.gather if self.is_reduced else machine.strided
        # by the id of a loop the positions of its ops
        self.inside = {id(loop): frozenset(positions(loop.body)) for loop in loops(self.steps)}
        self.vectors_along = {loop.axis for loop in loops(self.steps) if loop.kind == "vector"}
        self.rows: dict[int, _Access] = {}
        self.visits: dict[tuple[object, ...], _Visit] = {}  # by the key of an access
        self.known: dict[tuple[frozenset[int], tuple[int, ...]], _Touched] = {}
        self.shared: dict[tuple[int, tuple[int, ...]], _Work] = {}  # the work of parallel loops on one core
        self.narrow: dict[int, int] = {}  # by the id of a vector loop
        if self.kept:
            self.prepare(self.steps, self.spans)
        self.visit(self.steps, self.spans, (), None)

    def overlap(self, around: _Around) -> float:
        """The share of the time of a join that the next row waits for."""
        return ALONE if around.is_alone else self.overlap_in_turn

    @cached_property
    def overlap_in_turn(self) -> float:
        """The same, where the phases of a row follow each other.

        What converts and rounds floats of 16 bits fills the window of instructions in which a core would start on the
        next row.
        """
        in_turn = longest_chain(self.ops, range(len(self.ops)), lambda p: isinstance(self.ops[p].attrs, Reduce))
        is_converting = any(access.is_half for fact in self.facts for access in fact.accesses)
        return (1.0 if in_turn > 1 else OVERLAP) * (2 if is_converting else 1)

    def cost(self, threads: int) -> Cost:
        """The cost with so many threads."""
        self.threads, machine = threads, self.machine
        work = self.all(self.steps, _Around(self.spans))
        used = threads if self.shared else 1
        size = self.touched(frozenset(range(len(self.ops))), self.spans).size
        memory = max(work.memory, work.waiting) if size > machine.third_bytes else 0.0
        third = work.third if size > machine.second_bytes * used else 0.0
        second = work.second if size > machine.first_bytes * used else 0.0
        norm = PHASES_NORM if memory and self.is_in_phases else machine.norm
        return Cost(memory, second + third, work.arithmetic, 0.0, machine.launch + work.regions, norm)

    @cached_property
    def is_in_phases(self) -> bool:
        """Whether each phase runs over all rows of a block before the next phase."""
        phases = ([each.kind for each in _inner(loop)].count("serial") for loop in loops(self.steps))
        return max(phases, default=0) > 1

    # --- what the loops touch

    def prepare(self, steps: Sequence[Step], spans: dict[str, int]) -> None:
        """Finds the array of each value that is kept: a step computes it and a later one reads it."""
        for p in self.kept - self.rows.keys():
            made = next((n for n, step in enumerate(steps) if p in self.inside_of(step)), len(steps))
            later = frozenset[int]().union(*(self.inside_of(step) for step in steps[made + 1 :]))
            if p not in later and any(p in self.ops[user].args for user in later):
                self.rows[p] = self.row(p, spans)
        for step in steps:
            if isinstance(step, Loop):
                self.prepare(step.body, {**spans, step.axis: _block(step, spans, self.hints)})

    def visit(
        self, steps: Sequence[Step], spans: Mapping[str, int], around: tuple[_Turns, ...], vector: Loop | None
    ) -> None:
        """Finds how the loops go through the storage of each access; the first pass over it counts."""
        for step in steps:
            if isinstance(step, Loop):
                block = _block(step, spans, self.hints)
                turns = _Turns(step.axis, -(-spans[step.axis] // block), block)
                within = step if step.kind == "vector" else vector
                # the rows that a vector loop adds up at once are walked side by side
                order = (*around, turns) if vector is None else (*around[:-1], turns, around[-1])
                self.visit(step.body, {**spans, step.axis: block}, order, within)
                continue
            for access in self.facts[step].accesses:
                is_gather = vector is not None and access.is_gathered(vector)
                visit = _Visit(access.run(around), is_gather)
                if is_gather and any(known.is_gather and key[0] == access.key[0] for key, known in self.visits.items()):
                    visit = _Visit(access.whole)  # the first gather of a storage has waited for its lines
                self.visits.setdefault(access.key, visit)

    def row(self, position: int, spans: Mapping[str, int]) -> _Access:
        """The array that keeps a value at all these points."""
        size, dtype, moves = self.facts[position].size, self.ops[position].dtype, list[tuple[int, str]]()
        if dtype is not None and dtype.kind != "float":  # floats of 16 bits are kept as wider ones
            size = dtype.itemsize
        distance = size
        for axis in sorted(reversed(self.ops[position].axes), key=lambda axis: axis not in self.vectors_along):
            moves.append((distance, axis))
            distance *= spans[axis]
        return _Access(("row", position), tuple(moves), frozenset(), size, distance)

    def inside_of(self, step: Step) -> frozenset[int]:
        """The positions that a step computes."""
        return self.inside[id(step)] if isinstance(step, Loop) else frozenset((step,))

    def touched(self, inside: frozenset[int], spans: dict[str, int]) -> _Touched:
        """What ops touch: each access once, at all points of the loops that are not open yet."""
        key = inside, tuple(spans.values())
        if key not in self.known:
            found = {each.key: each for p in inside for each in self.accesses(p)}
            each = (a.touched(spans, self.machine, self.visits.get(a.key, _Visit(a.whole))) for a in found.values())
            self.known[key] = _Touched(*map(sum, zip(_Touched(), *each, strict=True)))
        return self.known[key]

    def accesses(self, position: int) -> Iterator[_Access]:
        """The accesses of an op: its own, its row, and the rows that it reads."""
        yield from self.facts[position].accesses
        if self.rows:
            yield from (self.rows[p] for p in (position, *self.ops[position].args) if p in self.rows)

    # --- what the loops take

    def all(self, steps: Sequence[Step], around: _Around) -> _Work:
        """One run of steps."""
        here = tuple(step for step in steps if not isinstance(step, Loop))
        work = _Work(sum(self.scalar(p, here) for p in here) + self.results_wait(here, around))
        for step in steps:
            if isinstance(step, Loop):
                is_outermost = step.kind == "parallel" and not around.is_parallel
                work = work.plus(self.parallel(step, around) if is_outermost else self.loop(step, around))
        return work

    def parallel(self, loop: Loop, around: _Around) -> _Work:
        """One run of a parallel loop and the parallel loops directly in it, which threads share."""
        machine, key = self.machine, (id(loop), tuple(around.spans.values()))
        if key not in self.shared:
            self.shared[key] = self.loop(loop, around._replace(is_parallel=True))
        work, count, spans, inner = self.shared[key], 1, around.spans, loop
        while inner.kind == "parallel":
            count *= -(-spans[inner.axis] // _block(inner, spans, self.hints))
            spans = {**spans, inner.axis: _block(inner, spans, self.hints)}
            first = inner.body[0]
            if len(inner.body) > 1 or not isinstance(first, Loop):
                break
            inner = first
        used = count / -(-count // self.threads)
        joined = count * sum(self.additions(p, 0, around.spans) for p in loop.carries)
        return _Work(
            work.arithmetic / used + joined,
            work.second / used,
            work.third / min(used, machine.third_cores),
            work.memory / min(used, machine.memory_cores),
            work.waiting / used,
            machine.region * (1 + log2(self.threads)) / 5,
        )

    def loop(self, loop: Loop, around: _Around) -> _Work:
        """One run of a loop on one core."""
        block = _block(loop, around.spans, self.hints)
        count, spans = around.spans[loop.axis] / block, {**around.spans, loop.axis: block}
        if loop.kind == "vector":
            work = _Work(self.vectors(loop, around))
        else:
            is_alone = loop.kind == "serial" and len(loop.body) == 1 and not loop.carries
            inner = _Around(spans, around.carried.union(loop.carries), around.is_parallel, is_alone)
            work = self.all(loop.body, inner)
            work = work._replace(arithmetic=work.arithmetic + self.machine.scalar).times(count)
            if self.is_copy(loop):  # by tiles in registers: each line once, whatever the order of the loops
                work = _Work(work.arithmetic * WORD / self.machine.vector_bytes)
                spans = dict.fromkeys(spans, 1)
        work = work._replace(arithmetic=work.arithmetic + self.joins(loop, around))
        # threads may share the loops inside, and then take in the lines together
        cores = (
            1 if around.is_parallel or not any(each.kind == "parallel" for each in loops(loop.body)) else self.threads
        )
        return self.missed(loop, around.spans, spans, work, cores)

    def missed(self, loop: Loop, around: dict[str, int], spans: dict[str, int], work: _Work, cores: int) -> _Work:
        """The work of a loop with the lines that each cache misses: once if what one iteration touches fits."""
        machine, inside = self.machine, self.inside[id(loop)]
        once, whole = self.touched(inside, spans), self.touched(inside, around)
        if once.first <= machine.first_bytes:
            work = work._replace(second=(whole.moved + whole.first_again) * machine.second_line / cores)
        if once.second <= machine.second_bytes:
            lines, jumps = whole.moved + whole.second_again, whole.places + whole.second_again
            third = lines * machine.third_line + jumps * machine.third_jump + whole.conflicts * machine.conflict
            work = work._replace(third=third / min(cores, machine.third_cores))
        if once.size <= machine.third_bytes:
            memory = (whole.moved + whole.third_again) * machine.memory_line
            waiting = (memory + whole.waiting) / cores
            work = work._replace(memory=memory / min(cores, machine.memory_cores), waiting=waiting)
        return work

    # --- operations

    def vectors(self, loop: Loop, around: _Around) -> float:
        """The seconds of one run of a vector loop, and of the trees in it."""
        machine, spans = self.machine, around.spans
        length = spans[loop.axis]
        here = loop.own_positions
        accesses = (access for p in self.inside[id(loop)] for access in self.facts[p].accesses)
        slow = machine.gathering if any(access.is_gathered(loop) for access in accesses) else 1.0
        waits = self.waits(here)
        total = sum(self.vector(p, loop, length, here, slow * waits.get(p, 1.0)) for p in here)
        for tree in loop.body:
            if isinstance(tree, Loop):
                inside = tree.own_positions
                total += spans[tree.axis] * sum(self.vector(p, loop, length, inside, slow) for p in inside)
                total += sum(2 * length * WORD / machine.vector_bytes for _ in tree.carries)
        joined = any(isinstance(self.ops[p].attrs, Reduce) for p in here)
        lanes = machine.chain * -(-length // loop.lanes) if joined and loop.lanes else 0.0
        is_short = length * WORD <= 8 * machine.vector_bytes  # then the compiler unrolls it
        start = 0.0 if is_short else machine.loop
        if loop.lanes and length % loop.lanes:
            start += machine.ragged * self.overlap(around)
        return machine.operation * max(total, lanes) + start

    def results_wait(self, here: Sequence[int], around: _Around) -> float:
        """The seconds in which a row waits for divisions, roots and functions of its sums."""
        if not self.is_reduced:
            return 0.0
        slow = sum(self.facts[p].units >= DIVISION and not self.facts[p].accesses for p in here)
        return slow * self.machine.join * self.overlap(around)

    def waits(self, here: Sequence[int]) -> dict[int, float]:
        """By position of each function of a vector loop: how many times as long it takes as in a loop of its own.

        In a chain each function waits for the one before. Functions beside the chain run meanwhile.
        """
        found = [p for p in here if self.facts[p].is_special and not isinstance(self.ops[p].attrs, Reduce)]
        if len(found) < 2:
            return {}
        chain = longest_chain(self.ops, here, frozenset(found).__contains__)
        return dict.fromkeys(found, 1 + self.machine.waiting * log2(chain) * chain / len(found))

    def vector(self, position: int, loop: Loop, length: int, here: Sequence[int], slow: float) -> float:
        """The operations of an op of a vector loop, for one run of the loop; `slow`: times as long as alone."""
        fact, machine = self.facts[position], self.machine
        single = fact.divisions * machine.integer_division
        if loop.axis not in fact.axes:
            return fact.units + single
        for access in fact.accesses:
            if access.is_gathered(loop):
                single += machine.gather if access.itemsize >= WORD else machine.narrow_gather
            elif access.along(loop.axis) != access.itemsize:
                single += self.strided
        units = slow * fact.units + self.rows_of(position, here, loop.axis)
        if isinstance(self.ops[position].attrs, Reduce) and not loop.lanes:
            units += 1  # the accumulators are in an array
        whole, rest = divmod(length, max(1, machine.vector_bytes // fact.size))
        runs = whole + rest.bit_count()  # the rest are vectors of half the size, and so on
        if length * self.narrowest(loop) < SMALLEST_VECTOR:
            runs = length  # scalars
        return units * runs + single * length

    def narrowest(self, loop: Loop) -> int:
        """The bytes of the narrowest element that a vector loop loads or stores."""
        if id(loop) not in self.narrow:
            accesses = (access for p in self.inside[id(loop)] for access in self.facts[p].accesses)
            sizes = [access.itemsize for access in accesses if any(axis == loop.axis for _, axis in access.moves)]
            self.narrow[id(loop)] = min(sizes, default=WORD)
        return self.narrow[id(loop)]

    def scalar(self, position: int, here: Sequence[int]) -> float:
        """The seconds of an op for one element."""
        fact, machine = self.facts[position], self.machine
        units = fact.units * (machine.special if fact.is_special else 1) + self.rows_of(position, here)
        units += (ROW_ELEMENT - 1) * (position in self.rows)
        units += fact.divisions * machine.integer_division
        if isinstance(self.ops[position].attrs, Reduce | Scan):
            units += machine.chain
        return machine.scalar * units

    def rows_of(self, position: int, here: Sequence[int], axis: str = "") -> float:
        """The operations of reading and writing rows, of which wider elements than the op's own take more.

        `axis`: of the vector loop around; what is the same along it is read before it.
        """
        if not self.rows:
            return 0.0
        read = [a for a in self.ops[position].args if a in self.rows and a not in here]
        size, read = self.facts[position].size, [a for a in read if not axis or axis in self.ops[a].axes]
        return (position in self.rows) + sum(max(1.0, self.facts[a].size / size) for a in read)

    def joins(self, loop: Loop, around: _Around) -> float:
        """The seconds after a loop in which lanes and blocks of the reductions that it carries are joined."""
        total = 0.0
        for p in loop.carries:
            if isinstance(self.ops[p].attrs, Reduce):
                lanes = max(each.lanes for each in loops((loop,)) if p in self.inside[id(each)])
                if p in around.carried:
                    total += self.additions(p, lanes, around.spans)
                elif lanes and loop.kind == "serial" and loop.lanes:  # lanes for each element of a vector
                    total += (lanes - 1) * self.additions(p, 0, around.spans)
                elif lanes:
                    total += self.machine.join * self.overlap(around) * self.facts[p].units
        return total

    def additions(self, position: int, lanes: int, spans: Mapping[str, int]) -> float:
        """The seconds in which one set of accumulators is added to another."""
        op, machine = self.ops[position], self.machine
        count = len(op.args) * (lanes or prod(spans[axis] for axis in op.axes))
        return 3 * machine.operation * max(1.0, count * WORD / machine.vector_bytes)

    def is_copy(self, loop: Loop) -> bool:
        """Whether two nested loops only copy blocks between memory and rows, or from memory to memory, transposed."""
        inner = loop.body[0]
        if len(loop.body) > 1 or not isinstance(inner, Loop) or (loop.kind, inner.kind) != ("serial", "serial"):
            return False
        ops = {p: self.ops[p] for p in inner.own_positions}
        if len(ops) < len(inner.body):  # a loop in it: its elements are copied one by one
            return False
        if not all(isinstance(op.attrs, Load | Store) for op in ops.values()):
            return False
        rows = (op.args[0] if isinstance(op.attrs, Store) else p for p, op in ops.items())
        is_whole = len(ops) == 2 and all(op.args[0] in ops for op in ops.values() if isinstance(op.attrs, Store))
        return is_whole or self.rows.keys() >= {*rows}


def _inner(loop: Loop) -> Iterator[Loop]:
    """The loops of a loop over blocks that run over the elements of a block, one after the other."""
    return (step for step in loop.body if isinstance(step, Loop) and step.axis == loop.axis)


def _block(loop: Loop, spans: Mapping[str, int], hints: Hints) -> int:
    """The elements of the axis that one iteration of a loop covers."""
    if loop.parts:  # of which each is a multiple of 64 elements
        return max(1, min(spans[loop.axis], -(-spans[loop.axis] // (64 * loop.parts)) * 64))
    most = loop.block if loop.most is None else max(1, min(loop.block, estimate(loop.most, hints)))
    return min(most, spans[loop.axis]) if loop.block else 1


# --- facts about the ops of a body, whatever the loops


class _Reader:
    """Reads the facts of a kernel's ops. `sizes`: by the symbol of a checked index, the size it is checked against."""

    def __init__(self, kernel: Kernel, table: Mapping[str, Buffer], hints: Hints) -> None:
        self.symbols = {axis.name: axis.symbol for axis in kernel.axes}
        self.table, self.hints = table, hints
        checks = (op.attrs for op in kernel.body.ops if isinstance(op.attrs, Check))
        self.sizes = {check.symbol: estimate(check.size, hints) for check in checks}
        self.facts = [self.fact(op) for op in kernel.body.ops]

    def fact(self, op: Op) -> _Fact:
        """The fact of one op. A masked op has the accesses and operations of its body too."""
        inside = tuple(all_ops(Body((op,))))
        units = [self.units(each) for each in inside]
        accesses = (self.access(each) for each in inside if isinstance(each.attrs, Load | Store | Atomic))
        divisions = sum(_is_integer_division(each) for each in inside)
        size = WORD if op.dtype is None else max(WORD, op.dtype.itemsize)
        return _Fact(tuple(accesses), sum(units), divisions, max(units) >= FUNCTION, op.loop_axes, size)

    def units(self, op: Op) -> int:
        """The operations of one op."""
        match op.attrs:
            case Store(ref, _) | Atomic(ref, _, _) if self.table[ref.storage].dtype in (F16, BF16):
                return ROUND
            case Check():
                return CHECK
            case Reduce(_, how) if how.name in ("max", "min") and op.dtype is not None and op.dtype.kind == "float":
                return NAN_MAXIMUM
            case Constant() | Index():
                return 0
            case _:
                return op_work(op)

    def access(self, op: Op) -> _Access:
        """The access of a load, store or atomic."""
        assert isinstance(op.attrs, Load | Store | Atomic)
        buffer, is_store = self.table[op.attrs.ref.storage], not isinstance(op.attrs, Load)
        itemsize, whole = buffer.dtype.itemsize, buffer_bytes(buffer, self.hints)
        moves: list[tuple[int, str]] = []
        bent: set[str] = set()
        for axis in op.axes:
            found = step_of(op, self.symbols[axis])
            even = even_step(op, self.symbols[axis])
            if found is not None and even is None:
                bent.add(axis)
            step = 1 if axis in bent else 0 if even is None else self.distance(even)
            if step or found is None:
                moves.append((step * itemsize, axis))
        moves.sort()
        reach = self.reach(op.attrs.index, itemsize, whole) if moves and not moves[0][0] else 0
        # accesses that lie less than a line apart touch the same lines
        offset, _ = const_and_terms(op.attrs.index)
        key = op.attrs.ref.storage, op.attrs.index - offset % max(1, LINE // itemsize), is_store
        is_half = buffer.dtype in (F16, BF16)
        return _Access(key, tuple(moves), frozenset(bent), itemsize, whole, reach, is_store, is_half)

    def distance(self, step: Expr) -> int:
        """The elements of a step forwards or backwards."""
        return max(estimate(step, self.hints), estimate(-step, self.hints))

    def reach(self, index: Expr, itemsize: int, whole: int) -> int:
        """The bytes of the part of a storage in which data decide on one element."""
        drawn = [symbol for symbol in free_symbols(index) if symbol in self.sizes]
        split = linear(index, drawn)
        steps = [] if split is None else [as_int(split[0][symbol]) for symbol in drawn]
        if not steps or None in steps:
            return whole
        last = sum(abs(step or 0) * (self.sizes[symbol] - 1) for step, symbol in zip(steps, drawn, strict=True))
        return min(whole, itemsize * (1 + last))


def _is_integer_division(op: Op) -> bool:
    return op.name in INTEGER_DIVISIONS and op.dtype is not None and op.dtype.kind != "float"
