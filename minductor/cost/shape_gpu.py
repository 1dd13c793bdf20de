"""What a kernel without a schedule costs on a GPU, in seconds.

Takes a `Shape` and a target. Gives a `Cost`. Refuses nothing. It is what `seconds.py` says of the best of the usual
recipes, found from the shape alone: a tile of the elements that lie beside each other, a row that is held in registers
or walked block by block, and the tiles of a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod
from typing import NamedTuple

from minductor.cost.seconds import (
    EXCHANGED,
    FIRST_BYTES,
    FIXED_REGISTERS,
    LONE,
    NEARER,
    RAGGED,
    SECTOR,
    WIDEST,
    Cost,
    crossing,
    norm,
    spill_seconds,
)
from minductor.cost.shape import WORD, Shape, Touch
from minductor.target import FEW_PER_THREAD, LONGEST_HELD, MOST_HELD, NOMINAL, WALKED, WARP_ROW, Target

SIDE = 64  # elements along each of two axes, if some accesses are contiguous along one and some along the other
SQUARE = SIDE * SIDE  # elements of such a tile
COLUMNS, ROWS = 32, 64  # columns that a program reduces side by side, and elements of each that it takes at once
CUT = 2  # launches of a reduction in parts: of the parts, and of the kernel that joins them
USUALLY_HELD = 32  # elements of a row for each thread
HELD_BESIDE = (8, 16, 32)  # values that a thread holds of rows that are reduced beside their columns
WALKERS = (512, 1024)  # threads that walk a long row, `WALKED` elements of a block each
NEAR_NORM = 1.5  # at least, as the norm of a Cost, where all data fit half of the second-level cache: waits are short
PRODUCT_SIDE = 128  # rows and columns of a tile of a matrix product, at most
PRODUCT_THREADS = 256


class _Tile(NamedTuple):
    """What one program computes at once. `blocks`: elements by axis. `walks`: blocks of the row that it walks over.

    `parts`: how many programs share a row, as the stage `split` cuts it. `down`: the axes of the rows that it walks
    over while it holds each whole, where rows and columns are reduced; else 0.
    """

    blocks: tuple[int, ...]
    threads: int
    walks: int = 1
    parts: int = 1
    down: int = 0


def gpu_cost(shape: Shape, target: Target, around: int, *, may_cut: bool = True) -> Cost:
    """The cost of the cheapest tile; `around`: the bytes that the kernels before and after it touch as well.

    `may_cut`: several programs may share a row.
    """
    if not all(shape.extents):
        return Cost(0.0, 0.0, 0.0, 0.0, (target.machine or NOMINAL).launch)
    tiles = _product_tiles(shape, target) if shape.product else _tiles(shape, target)
    if may_cut and shape.joins and not (shape.product or shape.scans):
        tiles += [cut for tile in tiles if (cut := _cut(shape, target, tile)) is not None]
    return min((_Pricer(shape, target, tile, around).cost() for tile in tiles), key=lambda cost: cost.seconds)


def sharers(shape: Shape, target: Target) -> float:
    """The multiprocessors for each program of the usual recipe that has most of them."""
    return target.multiprocessors / max(_programs(shape, tile) for tile in _tiles(shape, target))


def _tiles(shape: Shape, target: Target) -> list[_Tile]:
    """The tiles of the usual recipes."""
    contiguous = shape.contiguous()
    joined = [n for n in range(len(shape.extents)) if shape.joined >> n & 1]
    row = prod(_power_of_two(shape.extents[n]) for n in joined)
    first = contiguous[0] if contiguous else None
    if down := _down(shape, first):
        return [_both_ways(shape, target, down, values) for values in HELD_BESIDE]
    if not joined:
        values = target.tile_values(shape.points(shape.every))
        sizes = [(values, values), *([(SQUARE, SIDE)] if len(contiguous) > 1 else [])]
        return [_tile(shape, target, contiguous, {}, values, side) for values, side in sizes]
    if first is not None and not shape.joined >> first & 1:  # columns side by side
        length = min(row, ROWS)
        held = _split(shape, joined, length)
        walks = -(-shape.points(shape.joined) // max(1, prod(held.values())))
        return [_tile(shape, target, contiguous, held, COLUMNS * max(1, length), COLUMNS)._replace(walks=walks)]
    found: list[_Tile] = []
    if row <= LONGEST_HELD:
        held = {n: _power_of_two(shape.extents[n]) for n in joined}
        tile = _tile(shape, target, contiguous, held, target.max_tile_values, target.max_tile_values)
        if row > target.max_persistent_row:
            tile = tile._replace(threads=min(target.max_threads, max(tile.threads, row // MOST_HELD)))
        found.append(tile)
        few = max(target.warp_size, _power_of_two(prod(tile.blocks) // USUALLY_HELD))
        if few < tile.threads and not shape.scans:
            found.append(tile._replace(threads=few))
    if row > target.looped_block or not found:
        found.append(_walked(shape, target, contiguous, joined, target.looped_block))
    for threads in WALKERS if not shape.scans else ():
        if threads * WALKED < shape.points(shape.joined) and threads <= target.max_threads:
            tile = _walked(shape, target, contiguous, joined, threads * WALKED)
            found.append(tile._replace(threads=threads))
    return found


def _walked(shape: Shape, target: Target, contiguous: list[int], joined: list[int], block: int) -> _Tile:
    """The tile of a row that is walked in blocks of so many elements."""
    held = _split(shape, joined, block)
    walks = prod(-(-shape.extents[n] // size) for n, size in held.items())
    return _tile(shape, target, contiguous, held, block, 1)._replace(walks=walks)


def _down(shape: Shape, contiguous: int | None) -> int:
    """The axes of the rows, of a kernel that reduces rows and columns; 0 for any other kernel."""
    groups = {join.reduced for join in shape.joins}
    if len(groups) != 2 or contiguous is None:
        return 0
    one, other = groups
    return 0 if one & other else one if other >> contiguous & 1 else other if one >> contiguous & 1 else 0


def _both_ways(shape: Shape, target: Target, down: int, values: int) -> _Tile:
    """The tile of a kernel that reduces rows and columns: some rows, whole, of which a thread holds so many values."""
    across = [n for n in range(len(shape.extents)) if (shape.joined & ~down) >> n & 1]
    blocks = {n: _power_of_two(shape.extents[n]) for n in across}
    row, rows = prod(blocks.values()), [n for n in range(len(shape.extents)) if down >> n & 1]
    threads = target.warp_size * min(max(1, row // WARP_ROW), target.max_warps)
    held = blocks | _split(shape, rows, max(1, values * threads // row))
    walks = prod(-(-shape.extents[n] // held[n]) for n in rows)
    return _tile(shape, target, [], held, 1, 1)._replace(threads=threads, walks=walks, down=down)


def _cut(shape: Shape, target: Target, tile: _Tile) -> _Tile | None:
    """The tile of a row that several programs share; None if the row is short, or if there are enough programs."""
    programs = _programs(shape, tile)
    parts = min(-(-2 * target.multiprocessors // programs), tile.walks)
    return tile._replace(walks=-(-tile.walks // parts), parts=parts) if parts > 1 else None


def _programs(shape: Shape, tile: _Tile) -> int:
    """The number of tiles that do not share a row."""
    sizes = zip(shape.extents, tile.blocks, strict=True)
    return prod(-(-extent // block) for n, (extent, block) in enumerate(sizes) if not shape.joined >> n & 1)


def _split(shape: Shape, joined: list[int], length: int) -> dict[int, int]:
    """By axis the elements of a row that a program takes at once: the innermost axes first."""
    blocks: dict[int, int] = {}
    for axis in reversed(joined):
        blocks[axis] = min(length, _power_of_two(shape.extents[axis]))
        length //= blocks[axis]
    return blocks


def _tile(
    shape: Shape, target: Target, contiguous: list[int], held: Mapping[int, int], values: int, side: int
) -> _Tile:
    """The tile of `values` elements: those of the row that are held, then the axes along which memory is contiguous."""
    blocks = [held.get(n, 1) for n in range(len(shape.extents))]
    room = max(1, values // max(1, prod(held.values())))
    kept = [n for n in reversed(range(len(shape.extents))) if not shape.joined >> n & 1]
    order = [*(n for n in contiguous[:2] if n in kept), *(n for n in kept if n not in contiguous[:2])]
    for axis in order[:3]:
        most = min(room, side) if axis in contiguous[:2] else room
        blocks[axis] = min(most, _power_of_two(shape.extents[axis]))
        room //= blocks[axis]
    is_small = prod(blocks) < target.max_tile_values and not shape.joined
    warps = prod(blocks) // (target.warp_size * (FEW_PER_THREAD if is_small else target.values_per_thread))
    return _Tile(tuple(blocks), target.warp_size * max(1, min(target.max_warps, warps)))


def _product_tiles(shape: Shape, target: Target) -> list[_Tile]:
    """Tiles of a matrix product, the largest first; smaller ones make more programs."""
    product = shape.product
    assert product is not None
    found: list[_Tile] = []
    for side in (PRODUCT_SIDE, PRODUCT_SIDE // 2, PRODUCT_SIDE // 4):
        blocks = [1] * len(shape.extents)
        for axis in (product.row, product.column):
            blocks[axis] = min(side, _power_of_two(shape.extents[axis]))
        blocks[product.inner] = min(SECTOR, _power_of_two(shape.extents[product.inner]))
        walks = -(-shape.points(shape.joined) // blocks[product.inner])
        found.append(_Tile(tuple(blocks), PRODUCT_THREADS if side > SIDE else PRODUCT_THREADS // 2, walks))
    return found


def _power_of_two(size: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(0, size - 1).bit_length()


class _Pricer:
    """Prices one tile of one shape."""

    def __init__(self, shape: Shape, target: Target, tile: _Tile, around: int) -> None:
        self.shape, self.target, self.tile, self.machine = shape, target, tile, target.machine or NOMINAL
        self.around = around
        sizes = zip(shape.extents, tile.blocks, strict=True)
        self.counts = [-(-extent // block) for extent, block in sizes]
        self.programs = _programs(shape, tile) * tile.parts
        self.is_walked = tile.walks > 1 and not tile.down

    def cost(self) -> Cost:
        shape, machine, target = self.shape, self.machine, self.target
        multiprocessors = max(1, target.multiprocessors)
        busy = min(1.0, self.programs / multiprocessors)
        waves = max(1.0, self.programs / (self.resident * multiprocessors))
        spilled = spill_seconds(self.registers - self.most_registers, self.tile.threads, self.resident, machine)
        cached = sum(map(self.cached, shape.touches)) + self.programs * (spilled + self.exchanged())
        corner = self.corner
        rest = (work for work in shape.work if not corner or work.axes & corner != corner)
        work = sum(self.runs(w.axes) * w.operations * (w.passes if self.is_walked else 1) for w in rest)
        return Cost(
            self.memory_bytes() / machine.bandwidth / min(1.0, LONE * busy),
            cached / busy,
            (work / machine.operations + self.matrix_seconds()) / busy,
            waves * self.program_seconds(),
            machine.launch * (1 if self.tile.parts == 1 else CUT + bool(shape.walked_again and not self.tile.down)),
            max(NEAR_NORM if self.is_near else 1, norm(self.programs, self.resident + self.is_walked, target)),
        )

    @property
    def corner(self) -> int:
        """The axes over which only the factors of products vary together, which the matrix units take; else 0."""
        product = self.shape.product
        return 0 if product is None else 1 << product.row | 1 << product.column | 1 << product.inner

    def runs(self, axes: int) -> int:
        """How often an op of these axes runs: each program repeats what does not vary over its axes of the grid."""
        total = 1
        for n, extent in enumerate(self.shape.extents):
            if axes >> n & 1:
                total *= extent
            elif not self.shape.joined >> n & 1:
                total *= self.counts[n]
        return total

    # --- bytes

    def cached(self, touch: Touch) -> float:
        """The seconds that an access takes of the caches and of the units that load and store."""
        passes = touch.passes if self.is_walked else 1
        elements = self.runs(touch.axes) * touch.times * passes
        run, width, machine = self.run(touch), self.width(touch), self.machine
        moved = elements * touch.itemsize / machine.cache_bandwidth * (1 - self.near(touch) * (passes - 1) / passes)
        alone = elements * touch.itemsize / run * machine.sector * self.unlike(touch) if run < SECTOR else 0.0
        ragged = RAGGED if self.is_walked and width * touch.itemsize < WIDEST else 1.0
        return max(moved, alone, elements / width * machine.access * ragged)

    def near(self, touch: Touch) -> float:
        """The share of the time that a row saves which is read again, since the first-level cache still holds a part.

        As `seconds.py` counts it.
        """
        if not self.is_walked or touch.passes < 2 or not self.is_own(touch):
            return 0.0
        row = touch.itemsize * self.shape.points(self.shape.joined & touch.axes)
        return min(1.0, FIRST_BYTES / (row * self.resident)) * (1 - 1 / NEARER)

    def exchanged(self) -> float:
        """The seconds in which a program adds up the parts that its warps have of the columns' sums."""
        first = next(iter(self.shape.contiguous()), None)
        if first is None or self.tile.down or self.shape.product:
            return 0.0  # as many warps as hold a row have no parts of one column, and matrix units add up by themselves
        moved = 0.0
        for join in self.shape.joins:
            if not join.reduced >> first & 1:
                size = min(touch.itemsize for touch in self.shape.along(first))
                lanes = max(self.target.warp_size, self.tile.blocks[first] * size // WIDEST)
                results = prod(block for n, block in enumerate(self.tile.blocks) if join.kept >> n & 1)
                moved += results * join.values * self.tile.threads / lanes
        return moved * EXCHANGED * self.machine.exchange

    def unlike(self, touch: Touch) -> float:
        """The pieces of memory that a tile needs where data decide, by element: it may need some again and again.

        Those come from the cache beside the units. A tile has few values of a span along axes of which it has few
        elements. Loads that are not the same, as the four of a bilinear image, differ alike in all their spans; those
        that differ in spans along the tile are near each other.
        """
        if not touch.spans:
            return 1.0
        blocks, places, near = self.tile.blocks, 1.0, 0
        for span in touch.spans:
            elements = prod(block for n, block in enumerate(blocks) if span.axes >> n & 1)
            near += elements > 1
            places *= min(span.values, elements, 1 + (span.values - 1) * span.step / SECTOR)
        steps = [each for n, each in enumerate(zip(blocks, touch.steps, strict=True)) if touch.axes >> n & 1]
        share = places * prod(block for block, step in steps if step) / prod(block for block, _ in steps)
        return min(1.0, share) * touch.times ** -(near / len(touch.spans))

    def run(self, touch: Touch) -> int:
        """The bytes that lie next to each other in memory, of those that one program loads or stores at once.

        Of elements at a distance that is not constant, as of a pooling's, those of a sector are beside each other.
        """
        steps = list(zip(self.tile.blocks, touch.steps, strict=True))
        run = touch.itemsize * max((block for block, step in steps if step in (1, -1)), default=1)
        uneven = touch.itemsize * max((block for block, step in steps if step is None), default=1)
        return run if touch.drawn else max(run, min(SECTOR, uneven))

    def width(self, touch: Touch) -> int:
        """The elements that one instruction of a thread loads or stores: fewer where rows are not aligned."""
        widest, blocks = max(1, WIDEST // touch.itemsize), self.tile.blocks
        along = next((n for n, step in enumerate(touch.steps) if step == 1 and blocks[n] > 1), None)
        if along is None:
            return 1 if any(step != 0 for step in touch.steps) else widest
        extent = self.shape.extents[along]
        rest = [step or 0 for n, step in enumerate(touch.steps) if n != along]
        width = gcd(widest, extent if extent % blocks[along] else 0, *rest)
        # a held row that does not start at such a multiple has a bulk that does, and what all rows read has not
        is_row = self.shape.joined == 1 << along and not self.is_walked and self.target.kind == "cuda"
        return width if not is_row or width == widest else widest if any(rest) else 1

    def memory_bytes(self) -> float:
        """The bytes that pass main memory: each element once, and rows that left the cache and are read again.

        What all the kernels around touch together stays in the cache if it fits there.
        """
        once = rows = again = 0.0
        if self.tile.parts > 1 and self.tile.down:
            once += 2 * WORD * self.tile.parts * self.columns
        for touch in self.shape.touches:
            size = self.touched(touch)
            once += size
            if touch.passes > 1 and self.is_walked and self.is_own(touch):
                beside = (b for n, b in enumerate(self.tile.blocks) if (touch.axes & ~self.shape.joined) >> n & 1)
                rows += touch.itemsize * prod(beside) * self.shape.points(self.shape.joined & touch.axes)
                again += (touch.passes - 1) * size
        half = self.target.l2_bytes / 2
        if self.is_near:
            return 0.0
        at_once = rows * min(self.programs, self.resident * self.target.multiprocessors)
        missing = min(1.0, max(0.0, (at_once - half) / half)) if half else 0.0
        return once + missing * again

    @property
    def is_near(self) -> bool:
        """Whether all that the kernels around touch fits half of the second-level cache."""
        return self.around <= self.target.l2_bytes / 2

    @property
    def columns(self) -> int:
        """The results of the reductions of columns, where rows are reduced too."""
        joins = (join for join in self.shape.joins if join.reduced == self.tile.down)
        return sum(join.values * self.shape.points(join.kept) for join in joins)

    def touched(self, touch: Touch) -> float:
        """The bytes that an access touches. Where data decide the index, each run is a piece of its own."""
        if not touch.drawn:
            return touch.size
        points = self.shape.points(touch.axes) * touch.times
        return min(touch.size, points * touch.itemsize * max(1.0, SECTOR / self.run(touch)))

    def is_own(self, touch: Touch) -> bool:
        """Whether no other program loads the same values."""
        shape = self.shape
        return all(
            touch.axes >> n & 1 or shape.joined >> n & 1 or self.counts[n] == 1 for n in range(len(shape.extents))
        )

    # --- registers and time

    @property
    def registers(self) -> float:
        """The registers of a thread: values that live across a reduction, or accumulators."""
        threads, sizes = self.tile.threads, zip(self.tile.blocks, self.shape.extents, strict=True)
        # no register is held for the part of a block behind the end of an axis
        values = prod(min(block, -(-extent // threads) * threads) for block, extent in sizes) / threads
        if product := self.shape.product:
            values /= self.tile.blocks[product.inner]
        if self.tile.down:  # each element has an accumulator for each sum of its column
            sums = sum(join.values for join in self.shape.joins if join.reduced == self.tile.down)
            return FIXED_REGISTERS + (max(1, self.shape.alive) + sums) * values
        if self.is_walked:
            each = [join.registers for join in self.shape.joins]  # reductions that need no other share a walk
            return FIXED_REGISTERS + max(*each, sum(each) / max(1, self.shape.in_turn), 0) * values
        return FIXED_REGISTERS + self.shape.alive * values

    @property
    def most_registers(self) -> float:
        limits = (self.target.thread_registers, self.target.registers / self.tile.threads)
        return min(limit or float("inf") for limit in limits)

    @property
    def resident(self) -> int:
        """The programs that one multiprocessor runs at once."""
        machine, used = self.machine, min(self.registers, self.most_registers) * self.tile.threads
        limits = [machine.resident_threads // self.tile.threads, machine.resident_programs]
        if self.target.registers:
            limits.append(int(self.target.registers / used))
        return max(1, min(limits))

    def program_seconds(self) -> float:
        """The time of one program that runs alone: loads that wait for each other, and reductions over its threads."""
        machine, shape = self.machine, self.shape
        depth = 2 if any(touch.drawn for touch in shape.touches) else 1
        once, again = machine.latency, machine.cache_latency
        if self.is_near:
            once = again = machine.near_latency
        total = machine.program + depth * self.tile.walks * once
        if self.is_walked:
            passes = max((touch.passes for touch in shape.touches), default=1)
            total += (passes - 1) * depth * self.tile.walks * again
        warps = self.tile.threads // self.target.warp_size
        products = shape.product.products if shape.product else 0
        for join in shape.joins[products:]:
            times = self.tile.walks if self.tile.down and join.reduced != self.tile.down else 1
            total += times * machine.join * crossing(warps) * join.values**0.5
        return total

    def matrix_seconds(self) -> float:
        """The seconds of the matrix units."""
        product = self.shape.product
        if product is None:
            return 0.0
        operations = 2 * product.products * self.shape.points(self.shape.every)
        return operations / self.machine.matrix * product.itemsize / 2
