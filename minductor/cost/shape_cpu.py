"""What a kernel without a schedule costs on a CPU, in seconds, with one thread and with sixteen.

Takes a `Shape` and the machine of a CPU's target. Gives a `Cost` for each number of threads. Refuses nothing. It is
what `cpu_seconds.py` says of the best of the usual recipes, found from the shape alone: a vector loop along the axis
along which most bytes are contiguous, in blocks that fit the cache, or short rows as the lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import gcd, log2
from typing import NamedTuple

from minductor.analysis.both_ways import ACCUMULATOR_BYTES, PART_ROWS
from minductor.cost.seconds import Cost
from minductor.cost.shape import ROUND, WORD, Shape, Steps, Touch, Work
from minductor.target import CpuMachine

THREADS = (1, 16)  # with which a kernel is priced
LINE = 64  # bytes of a cache line
WAYS = 8  # lines that a cache holds at addresses that differ by multiples of its size divided by WAYS
LANES = 256  # bytes of the lanes of a reduction
BLOCK = 4096  # elements along the vector axis that one thread takes at least, where nothing is reduced
COLUMNS = 256  # the same where the other axes are reduced
FEW_ACROSS = 4  # times as many bytes contiguous along reduced rows as across them; then rows are not transposed
CROSSING = 64  # elements of a side of a block that is transposed; all accesses of the kernel are cut in such pieces
GROUP = 8  # rows that a reduction of columns adds to each other before it adds them to the sum
WIDE_COLUMNS = 1024  # the same where parts of the other axes are reduced
PART, PARTS = 16 * 1024, 64  # elements of a part of a reduction, and the most parts
SHORT_ROW = 40  # elements of a row; as many rows as a vector has lanes are reduced at once
KEPT_ROW = 512 * 1024  # bytes of a row of values that is kept; of longer ones a later pass computes them again
KEPT = 2  # operations of a value that is kept for a later pass over the row
CHEAP = 4  # operations; a later pass computes a value of no more again
EXPENSIVE = 10  # operations of a value that is kept rather than computed again in each run of a loop that it lacks
SMALL_ROWS = 16 * 1024  # bytes of the array in which it is kept
SHARED = 256  # iterations of the outer loops; threads share no more loops than these need
SHORT_AXIS = 4  # elements of a contiguous axis that is unrolled: the vector loop runs along another one
SHARING = 64  # rows that share the indices of gathers
ONCE, NEVER = (1, 1, 1), (0.0, 0.0, 0.0)  # how often each level takes in the lines of most accesses, and draws them
OVERLAP = 0.5  # of the seconds of a join: the next row does not wait for it


class Spread(NamedTuple):
    """The cache lines that an access touches, the places at which runs of them begin, and those that data draw anew.

    `runs`: the places that data do not decide. `apart`: bytes of which their distances are multiples.
    """

    lines: float
    places: float
    again: float
    runs: float
    apart: int


class _Lines(NamedTuple):
    """The cache lines of a kernel: those of each level, with the places at which runs of them begin."""

    size: float = 0.0  # bytes of all lines
    second: float = 0.0
    third: float = 0.0
    third_places: float = 0.0
    conflicts: float = 0.0  # places that share few sets of the second level
    memory: float = 0.0
    unforeseen: float = 0.0  # lines of main memory that the core does not fetch ahead


class _Sharing(NamedTuple):
    """How threads share a kernel: how many of them have something to do, and how many parallel loops it has."""

    used: float
    regions: int = 1


class Demand(NamedTuple):
    """What a kernel takes of a CPU, whatever is around it.

    `work`: seconds of the operations on one core. `lines`: None for a kernel without elements. `ways`: how threads may
    share the kernel.
    """

    work: float
    lines: _Lines | None
    ways: tuple[_Sharing, ...] = ()

    def costs(self, machine: CpuMachine, around: int) -> tuple[Cost, ...]:
        """The cost for each number of THREADS; `around`: the bytes that the kernels before and after touch as well."""
        work, lines, ways = self
        if lines is None:
            return tuple(Cost(0.0, 0.0, 0.0, 0.0, machine.launch) for _ in THREADS)
        size = max(around, lines.size)
        alone = _cost(work, lines, size, 1, machine)
        region = machine.region * (1 + log2(THREADS[1])) / 5
        shared = [_cost(work, lines, size, used, machine, regions * region) for used, regions in ways]
        return alone, min(alone, *shared, key=lambda cost: cost.seconds)


def demand(shape: Shape, machine: CpuMachine) -> Demand:
    """What a kernel of this shape takes."""
    if not all(shape.extents):
        return Demand(0.0, None)
    made = _demand(shape, machine, _vector_axis(shape), is_staged=False)
    across = _across_rows(shape)
    if across is None:
        return made
    return min(made, _demand(shape, machine, across, is_staged=True), key=lambda d: d.costs(machine, 0)[0].seconds)


def _demand(shape: Shape, machine: CpuMachine, vector: int | None, *, is_staged: bool) -> Demand:
    """What a kernel takes whose vector loop runs along this axis. `is_staged`: what jumps along it is transposed."""
    work = _arithmetic(shape, machine, vector, is_staged=is_staged)
    return Demand(
        work, _lines(shape, machine, vector, is_staged=is_staged), tuple(_ways(shape, machine, vector, THREADS[1]))
    )


def _across_rows(shape: Shape) -> int | None:
    """The axis of the vector loop of a kernel that reduces one axis, along which it reads or writes rows, while others
    of its accesses are contiguous across these rows (the recipe `transposed_columns`); None for any other kernel.
    """
    if shape.joined.bit_count() != 1 or shape.scans:
        return None
    claims = shape.claims()
    down = shape.joined.bit_length() - 1
    across = max(range(len(claims)), key=lambda axis: (axis != down, claims[axis], axis))
    is_worth = across != down and claims[across] and claims[across] * FEW_ACROSS >= claims[down] > 0
    return across if is_worth else None


def with_store(known: Demand, shape: Shape, store: Touch, machine: CpuMachine) -> Demand | None:
    """What a kernel takes that also stores, given what it takes without; None where its loops might be others."""
    vector, lines = next(iter(shape.contiguous()), None), known.lines
    is_alike = any(touch.steps == store.steps for touch in shape.touches)
    is_other = shape.joined or store.drawn or _is_transposed_copy(shape)
    if lines is None or vector is None or is_other or store.steps[vector] != 1 or not is_alike:
        return None
    fixed = store.itemsize, store.steps, store.storage_bytes, store.drawn, store.times
    count, places, *_ = _touched(shape.extents, *fixed)
    if _is_blocked(shape, vector):
        places = _in_blocks(shape, store, places)
    moved, more = 2 * count, min(count, places * machine.ahead_bytes / LINE)
    size, second, third, third_places, conflicts, memory, unforeseen = lines
    rest = third + moved, third_places + places, conflicts, memory + moved, unforeseen + more
    return known._replace(lines=_Lines(size + count * LINE, second + moved, *rest))


def _cost(work: float, lines: _Lines, size: float, used: float, machine: CpuMachine, region: float = 0.0) -> Cost:
    """The cost if so many threads are used: what fits a cache comes from it. `region`: seconds in which they start."""
    memory = third = second = 0.0
    if size > machine.third_bytes:
        memory = lines.memory * machine.memory_line
        waiting = memory + lines.unforeseen * machine.memory_wait  # each core waits for its own lines
        memory = max(memory / min(used, machine.memory_cores), waiting / used)
    if size > machine.second_bytes * used:
        third = lines.third * machine.third_line + lines.third_places * machine.third_jump
        third += lines.conflicts * machine.conflict
    if size > machine.first_bytes * used:
        second = lines.second * machine.second_line
    cache = second / used + third / min(used, machine.third_cores)
    return Cost(memory, cache, work / used, 0.0, machine.launch + region, machine.norm)


def _vector_axis(shape: Shape) -> int | None:
    """The axis of the vector loop: the last one if nothing is contiguous; None if there are no axes."""
    return next(iter((*shape.contiguous(), *reversed(range(len(shape.extents))))), None)


def _ways(shape: Shape, machine: CpuMachine, vector: int | None, threads: int) -> Iterator[_Sharing]:
    """How so many threads may share a kernel."""
    kept = shape.every & ~shape.joined
    count = float(shape.points(kept))
    if across := _across(shape, vector):  # threads share the rows
        most = ACCUMULATOR_BYTES // max(1, _accumulator_bytes(shape, across))
        parts = min(shape.points(across) // PART_ROWS, most, shape.points(shape.every) // PART)
        yield _shared(count * max(1, min(PARTS, parts)), threads)
        return
    is_along = vector is not None and kept >> vector & 1
    length = shape.extents[vector] if vector is not None and is_along else 1
    yield _shared(count / length * -(-length // (COLUMNS if shape.joined else BLOCK)), threads)
    wide = min(length, WIDE_COLUMNS)
    parts = min(PARTS, shape.points(shape.joined) * wide // PART)
    if not shape.joins or shape.scans or parts < 2:
        return
    if not shape.walked_again:
        yield _shared(parts, threads)
    elif _walked_bytes(shape, vector, wide) <= machine.second_bytes:  # else each pass finds them in no cache of a core
        blocks = shape.points(kept) // length * -(-length // wide)  # one after the other
        yield _shared(parts, threads, blocks * (shape.in_turn + 1))


def _shared(count: float, threads: int, regions: int = 1) -> _Sharing:
    """How threads share so many equal pieces, in so many parallel loops."""
    return _Sharing(max(1.0, count / -(-count // threads)), regions)


def _across(shape: Shape, vector: int | None) -> int:
    """The rows of a kernel that reduces along rows and along columns in one walk; 0 for any other kernel."""
    if len(shape.joins) < 2 or vector is None:
        return 0
    groups = {join.reduced for join in shape.joins}
    if len(groups) != 2:
        return 0
    one, other = groups
    return 0 if one & other else one if other >> vector & 1 else other


def _accumulator_bytes(shape: Shape, across: int) -> int:
    """The bytes of the accumulators of the reductions over the rows `across`."""
    return sum(WORD * join.values * shape.points(join.kept) for join in shape.joins if join.reduced == across)


# --- operations


def _arithmetic(shape: Shape, machine: CpuMachine, vector: int | None, *, is_staged: bool) -> float:
    """The seconds of all operations on one core, in the best of the usual loops."""
    if vector is None or (shape.scans and not shape.joined >> vector & 1):
        return _scalar(shape, machine, vector)
    if _is_transposed_copy(shape):
        return _scalar(shape, machine, vector) * WORD / machine.vector_bytes
    chained = shape.scans * machine.chain * machine.scalar * shape.points(shape.every)
    found = [_vectors(shape, machine, vector, is_staged=is_staged) + chained]
    if _gathers(shape, vector):
        found.append(_scalar(shape, machine, vector))
        drawn = max(touch.drawn for touch in shape.touches)
        if SHARING * drawn <= machine.second_bytes:
            found.append(_scalar(shape, machine, vector, SHARING))
    row = shape.extents[vector]
    beside = max((n for n, extent in enumerate(shape.extents) if n != vector and extent > 1), default=None)
    if 1 < row <= SHORT_AXIS and beside is not None and not shape.joined and not any([t.drawn for t in shape.touches]):
        found.append(_vectors(shape, machine, beside, unrolled=vector))
    if shape.joined == 1 << vector and shape.in_turn > 1 and row <= SHORT_ROW:
        rows = (n for n in range(len(shape.extents)) if not shape.joined >> n & 1)
        found += (_vectors(shape, machine, n) for n in rows if shape.extents[n] >= SHORT_ROW)
    return min(found)


def _is_transposed_copy(shape: Shape) -> bool:
    """Whether a kernel only copies elements and transposes them, which is done by tiles in registers."""
    if shape.joined or len(shape.touches) != 2:
        return False
    one, other = shape.touches
    steps = (*one.steps, *other.steps)
    is_plain = one.times == other.times == 1 and all([step is not None and step >= 0 for step in steps])
    if not is_plain or one.is_store == other.is_store or 1 not in one.steps or 1 not in other.steps:
        return False
    rounding = ROUND if min(one.itemsize, other.itemsize) < WORD else 1
    is_copy = sum([work.operations for work in shape.work]) in (2, 1 + rounding)
    along, across = one.steps.index(1), other.steps.index(1)  # an element that is repeated along one of them: no tiles
    return is_copy and along != across and 0 not in (one.steps[across], other.steps[along])


def _scalar(shape: Shape, machine: CpuMachine, vector: int | None, sharing: int = 1) -> float:
    """The seconds in scalar loops, of which so many share what they compute of the same indices."""
    total, order = 0.0, _order(shape, vector)
    for work in shape.work:
        units = work.operations + (machine.special - 1) * work.functions + work.divisions * machine.integer_division
        points, times = shape.points(work.axes), _times(shape, work.axes, order)
        kept = KEPT if points < times and sharing > 1 else 0
        total += max(points, times / sharing) * units + times * kept if kept else times * units
    every = shape.points(shape.every)
    chained = sum(shape.points(join.reduced | join.kept) for join in shape.joins) + shape.scans * every
    return machine.scalar * (total + machine.chain * chained + every)


def _gathers(shape: Shape, vector: int) -> bool:
    """Whether a vector takes elements from places that are computed one by one."""
    return any([_is_gathered(shape, touch, vector) for touch in shape.touches])


def _is_gathered(shape: Shape, touch: Touch, vector: int) -> bool:
    """Whether an access is one of these; a loop is cut where few points bend it, unless it reduces along the axis."""
    return touch.steps[vector] is None and (not touch.is_bent or bool(shape.joined >> vector & 1))


def _vectors(
    shape: Shape, machine: CpuMachine, vector: int, *, is_staged: bool = False, unrolled: int | None = None
) -> float:
    """The seconds if the vector loop runs along this axis. `unrolled`: a short axis in it, without a loop."""
    length = shape.extents[vector]
    strided = machine.gather if shape.joins and not is_staged else machine.strided
    slow = machine.gathering if _gathers(shape, vector) else 1.0
    order = _order(shape, vector) if unrolled is None else _order(shape, vector, unrolled)
    without = _passes_without_gathers(shape, vector)
    total = 0.0
    for work in shape.work:
        points, reads = _runs(shape, work, order)
        total += machine.operation * reads * work.size / machine.vector_bytes
        if not work.axes >> vector & 1:
            units = work.operations + (machine.special - 1) * work.functions + work.divisions * machine.integer_division
            total += points * units * machine.scalar
            continue
        whole, rest = divmod(length, max(1, machine.vector_bytes // work.size))
        later = min(work.operations, KEPT) if _is_kept(shape, work, vector) else work.operations
        fast = min(without, work.passes - 1)
        again = (work.passes - 1 - fast + fast / slow) * later
        units = points / length * slow * (work.operations + again) * (whole + rest.bit_count())
        total += machine.operation * (units + points * work.divisions * machine.integer_division)
    for touch in shape.touches:
        step = touch.steps[vector]
        if not touch.axes >> vector & 1 or step in (0, 1):
            continue
        points = _times(shape, touch.axes, order) * touch.times
        if step is not None:
            total += points * touch.passes * strided * machine.operation
        elif _is_gathered(shape, touch, vector):
            narrow = touch.itemsize < WORD
            points *= max(1, touch.passes - without)
            total += points * (machine.narrow_gather if narrow else machine.gather) * machine.operation
    return (
        total
        + _loops(shape, machine, vector, is_staged=is_staged) / (1 if unrolled is None else shape.extents[unrolled])
        + sum(_joins(shape, machine, vector, is_staged=is_staged))
    )


def _passes_without_gathers(shape: Shape, vector: int) -> int:
    """The later passes over a row that gather nothing: what is made of the elements is kept, or the last one does not
    reduce, and is cut where few points bend an index.
    """
    gathers = [touch for touch in shape.touches if touch.steps[vector] is None]
    rows = [work for work in shape.work if all([not touch.axes & ~work.axes for touch in gathers])]
    kept = [work.passes - 1 for work in rows if work.operations > CHEAP and _is_kept(shape, work, vector)]
    is_cut = shape.walked_again and all([touch.is_bent for touch in gathers])
    return max(bool(is_cut), *kept, 0)


def _is_kept(shape: Shape, work: Work, vector: int) -> bool:
    """Whether values that a later pass over the row needs are kept, of columns for a block of neighbours."""
    beside = 1 if shape.joined >> vector & 1 else min(shape.extents[vector], COLUMNS)
    return work.size * shape.points(shape.walked_again & work.axes) * beside <= KEPT_ROW


def _order(shape: Shape, *inner: int | None) -> list[int]:
    """The axes in the order of their loops, outermost first; `inner`: the last ones, as the axis of the vector loop."""
    places = {axis: n for n, axis in enumerate(inner)}
    return sorted(range(len(shape.extents)), key=lambda axis: (places.get(axis, -1), shape.joined >> axis & 1))


def _times(shape: Shape, axes: int, order: Sequence[int]) -> int:
    """How often an op of these axes runs: a loop around them over an axis that they lack repeats it."""
    times = points = 1
    outside = 0 if axes & shape.joined else shape.joined  # what needs no element of a row runs before or after it
    for axis in order:
        if not outside >> axis & 1:
            points *= shape.extents[axis]
        if axes >> axis & 1:
            times = points
    return times


def _runs(shape: Shape, work: Work, order: Sequence[int]) -> tuple[int, int]:
    """How often operations run in vector loops, and how often their value is read where it is kept in an array.

    A loop over an axis that they lack repeats them, unless the array is small and the value takes long to compute.
    There is none between two loops that threads share.
    """
    axes, times, rest, shared = work.axes, 1, shape.points(work.axes), 1
    outside = 0 if axes & shape.joined or work.is_inside else shape.joined
    is_kept = work.operations >= EXPENSIVE
    for axis in order:
        extent = shape.extents[axis]
        is_between = shared > 1 and shared < SHARED and not shape.joined >> axis & 1
        shared *= 1 if shape.joined >> axis & 1 else extent
        if axes >> axis & 1:
            rest //= extent
        elif rest == 1 or outside >> axis & 1:  # it runs before the loop, or after it
            continue
        elif is_kept and not is_between and work.size * rest <= SMALL_ROWS:
            return times * rest, _times(shape, axes, order)
        times *= extent
    return times, 0


def _loops(shape: Shape, machine: CpuMachine, vector: int, *, is_staged: bool) -> float:
    """The seconds in which vector loops start, and of the loops around them."""
    length = shape.extents[vector]
    runs = (shape.in_turn + bool(shape.walked_again) if shape.joined >> vector & 1 else 1) or 1
    block = COLUMNS if shape.joined and not shape.joined >> vector & 1 else BLOCK
    count = shape.points(shape.every) / length * -(-length // block) * runs
    is_short = is_staged or length * WORD <= 8 * machine.vector_bytes  # then the compiler unrolls it
    return count * (machine.scalar + (0.0 if is_short else machine.loop))


def _joins(shape: Shape, machine: CpuMachine, vector: int, *, is_staged: bool) -> Iterator[float]:
    """The seconds of each reduction beside its operations: waiting for its lanes, and joining them."""
    length = shape.extents[vector]
    lanes = min(LANES // WORD, 1 << (length.bit_length() - 1))
    times = (
        2 if is_staged or _across(shape, vector) else 1
    )  # else several rows are added before they are added to the accumulators
    for join in shape.joins:
        results = shape.points(join.kept)
        if not join.reduced >> vector & 1:  # an accumulator for each element of the vector
            points = shape.points(join.kept | join.reduced)
            yield times * points * WORD / machine.vector_bytes * machine.operation * join.values
            continue
        yield results * machine.join * OVERLAP * join.operations
        if length % lanes:
            yield results * shape.points(join.reduced & ~(1 << vector)) * machine.ragged * OVERLAP


# --- cache lines


def _lines(shape: Shape, machine: CpuMachine, vector: int | None, *, is_staged: bool) -> _Lines:
    """The cache lines that each level takes in: rows that left it come again in each pass."""
    row = _row_bytes(shape, vector)
    reached = [_scattered(shape, touch, vector, is_staged=is_staged) for touch in shape.touches]
    scattered = {n: reach for n, reach in enumerate(reached) if reach}
    is_far = [
        scattered != {}
        and sum(reach * _apart(shape.touches[n], vector, cache) for n, reach in scattered.items()) > cache
        for cache in machine[:2]
    ]
    size = third = third_places = conflicts = memory = unforeseen = 0.0
    second = _buffered(shape, vector, is_staged=is_staged)
    is_blocked = _is_blocked(shape, vector, is_staged=is_staged)
    around, ahead = 0, machine.ahead_bytes / LINE
    if across := _across(shape, vector):  # each row passes the accumulators of all columns
        accumulators = _accumulator_bytes(shape, across)
        around = accumulators + sum(t.itemsize * shape.points(t.axes & ~across) for t in shape.touches if t.passes == 1)
        missed = 2 * accumulators / LINE * shape.points(across)
        second += missed * (row + around > machine.first_bytes)
        third += missed * (row + around > machine.second_bytes)
    for n, touch in enumerate(shape.touches):
        fixed = touch.itemsize, touch.steps, touch.storage_bytes, touch.drawn, touch.times
        lines, places, drawn, *_ = _touched(shape.extents, *fixed)
        size += lines * LINE
        moved = lines * (1 + touch.is_store)
        if is_blocked:
            places = _in_blocks(shape, touch, places)
        if touch.passes == 1 and not (drawn or scattered or shape.joined):  # what most accesses are
            second += moved
            third += moved
            third_places += places
            memory += moved
            unforeseen += min(lines, places * ahead)
            continue
        if n in scattered and (touch.is_store or shape.joined):
            missed = shape.points(touch.axes) * touch.times * touch.passes / _at_once(shape, touch, vector) - lines
            second += missed * (1 + touch.is_store) * is_far[0]
            third += missed * (1 + touch.is_store) * is_far[1]
            third_places += missed * is_far[1]
            if is_far[1] and _apart(touch, vector, machine.second_bytes) > LINE:
                conflicts += missed + lines
        passes = ONCE
        if touch.passes > 1:
            passes = [touch.passes if row + around > cache else 1 for cache in machine[:3]]
        pieces = max(places, _pieces(shape, touch, vector))
        again = [drawn * (touch.drawn > cache) for cache in machine[:3]] if drawn else NEVER
        second += moved * passes[0] + again[0]
        third += moved * passes[1] + again[1]
        third_places += pieces * passes[1] + again[1]
        memory += moved * passes[2] + again[2]
        unforeseen += min(lines, pieces * ahead) * passes[2] + again[2]
    return _Lines(size, second, third, third_places, conflicts, memory, unforeseen)


def _is_transposed(shape: Shape, touch: Touch, vector: int | None, *, is_staged: bool) -> bool:
    """Whether an access goes through a staging buffer."""
    if vector is None or not (is_staged or not shape.joined):
        return False
    return (touch.steps[vector] or 0) > 1 and 1 in touch.steps


def _is_blocked(shape: Shape, vector: int | None, *, is_staged: bool = False) -> bool:
    """Whether blocks are transposed, in which all accesses run."""
    return any([_is_transposed(shape, touch, vector, is_staged=is_staged) for touch in shape.touches])


def _in_blocks(shape: Shape, touch: Touch, places: float) -> float:
    """The places at which runs of lines begin in such blocks, of so many elsewhere."""
    return max(places, shape.points(touch.axes) * touch.times / CROSSING)


def _buffered(shape: Shape, vector: int | None, *, is_staged: bool) -> float:
    """The lines of staging buffers that the second level gives and takes. One buffer stays in the first level."""
    if vector is None:
        return 0.0
    found = [touch for touch in shape.touches if _is_transposed(shape, touch, vector, is_staged=is_staged)]
    return 3 * WORD / LINE * sum(shape.points(touch.axes) for touch in found) if len(found) > 1 else 0.0


def _scattered(shape: Shape, touch: Touch, vector: int | None, *, is_staged: bool) -> int:
    """How many lines a vector loop touches before it comes to one of them again; 0 if it walks along its lines.

    A staged access walks along its lines; accesses are staged where nothing is reduced (the recipe `transposed`).
    """
    step = None if vector is None else touch.steps[vector]
    if vector is None or not step or abs(step) * touch.itemsize <= LINE or touch.drawn:
        return 0
    if all(abs(step or LINE) * touch.itemsize >= LINE for axis, step in enumerate(touch.steps) if axis != vector):
        return 0  # no line is used twice
    if _is_transposed(shape, touch, vector, is_staged=is_staged):
        return 0
    is_row = not shape.joined or shape.joined >> vector & 1
    return shape.extents[vector] if is_row else min(COLUMNS, shape.extents[vector])


def _at_once(shape: Shape, touch: Touch, vector: int | None) -> int:
    """How many elements of one line a loop takes at once: a reduction of columns adds some rows to each other first."""
    is_grouped = vector is not None and not shape.joined >> vector & 1
    along = (step for n, step in enumerate(touch.steps) if shape.joined >> n & 1)
    return GROUP if is_grouped and any(step in (1, -1) for step in along) else 1


def _apart(touch: Touch, vector: int | None, cache: int) -> int:
    """The bytes of a cache that each line of a strided access takes up: lines a power of two apart share few sets."""
    step = 0 if vector is None else touch.steps[vector] or 0
    return max(LINE, gcd(step * touch.itemsize, cache // WAYS))


def _pieces(shape: Shape, touch: Touch, vector: int | None) -> float:
    """The places at which a walk down columns begins: one in each row of a block of neighbouring columns."""
    if vector is None or not shape.joined or shape.joined >> vector & 1 or touch.steps[vector] not in (1, -1):
        return 0.0
    wide = COLUMNS if shape.walked_again else WIDE_COLUMNS
    length = shape.extents[vector]
    return shape.points(touch.axes) / length * -(-length // wide) if length > wide else 0.0


def _row_bytes(shape: Shape, vector: int | None) -> float:
    """The bytes of a row that is read again; of a block of rows beside each other where columns are reduced."""
    return _walked_bytes(shape, vector, COLUMNS)


def _walked_bytes(shape: Shape, vector: int | None, wide: int) -> float:
    """The bytes of a row that is read again; of so many rows beside each other where columns are reduced."""
    total = 0.0
    for touch in shape.touches:
        if touch.passes > 1:
            size = touch.itemsize * shape.points(shape.walked_again & touch.axes)
            if vector is not None and not shape.joined >> vector & 1 and touch.axes >> vector & 1:
                size *= min(shape.extents[vector], wide)
            total += size
    return total


@lru_cache(1024)  # kernels move in the same few ways
def _touched(extents: Sequence[int], itemsize: int, steps: Steps, storage_bytes: int, drawn: int, times: int) -> Spread:
    """The lines that an access touches."""
    moves = sorted(
        (0 if drawn and step is None else abs(itemsize if step is None else step * itemsize), n)
        for n, step in enumerate(steps)
        if step != 0
    )
    walks = [(distance, extents[axis]) for distance, axis in moves]
    return spread(itemsize, walks, storage_bytes, drawn, times)


def spread(itemsize: int, walks: Iterable[tuple[int, int]], whole: int, reach: int, times: int = 1) -> Spread:
    """The lines that an access touches.

    Args:
        itemsize: bytes of an element, or of what lies beside each other.
        walks: along each axis the bytes of a step, 0 where data decide, and the number of steps; short steps first.
        whole: bytes of the storage.
        reach: bytes of the part in which data decide.
        times: how many such accesses there are at different places.
    """
    run, places, drawn, apart = itemsize, 1, 1, 0
    for distance, count in walks:
        if not distance:
            drawn *= count
        elif distance < run + LINE:  # what is left out is part of a line of the run
            run += distance * (count - 1)
        elif count > 1:
            places *= count
            apart = gcd(apart, distance)
    lines, most = max(1.0, run / LINE), max(1.0, whole / LINE)
    near = min(drawn, max(1.0, reach / LINE / lines)) if drawn > 1 else 1
    moved = min(places * near * lines * times, most)
    again = places * drawn * lines - moved if drawn > 1 else 0.0
    return Spread(moved, min(places * near, most), max(0.0, again), min(places, most), apart)
