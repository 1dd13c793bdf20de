"""The steps of a recipe for a GPU: how many elements of which axes one program computes at once.

Each takes a `Draft` and gives it with more levels, or None where it is not legal. A program works on a tile: a block of
each axis that is reduced or scanned, and blocks of up to three of the other axes. The first of these is the axis along
which most bytes are contiguous. The next is one along which other accesses are contiguous, as in a transpose. Then come
inner axes, until the tile has enough elements. All other axes belong to the grid alone. Each axis has offsets of its
own, so no index needs a division.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from minductor.analysis.both_ways import both_ways
from minductor.cost.registers import alive_at_once, words
from minductor.ir.program.nodes import Body, Load, all_ops
from minductor.passes.rewriting.online import online
from minductor.passes.rewriting.welford import welford
from minductor.passes.schedule.draft import Draft, Level, power_of_two
from minductor.passes.schedule.gpu_place import walks
from minductor.passes.schedule.product_tiles import product_tiles
from minductor.target import LONGEST_HELD, MOST_HELD, WALKED, WARP_ROW

OUTER_PERSISTENT = 64  # rows that a program reduces at once, if columns are reduced and rows are contiguous
FEWEST_HELD = 2  # elements of a row for each thread
SHARED_WARPS = 4  # of a program that holds several short rows, at most
NARROW = 2  # bytes of a value of which one thread may add up many
SPARE_REGISTERS = 32  # of a thread, beside the values of its row
LONGEST_UNROLLED = 64  # elements of the reduced axes; a longer loop leaves too few loads in flight
AXES = 3  # of a tile, reduced ones not counted
SCRATCH = 16 * 1024  # bytes of shared memory through which the warps of a program exchange values, at most
NVIDIA = ("cuda", "interpret")  # the kinds of targets whose loads may go to shared memory by themselves


class Hold(NamedTuple):
    """Holds whole rows in registers: a persistent reduction. `warps`: of a program; 0 lets the size of the tile decide.

    Legal for rows of known length. With a number of warps it must be contiguous rows that are no shorter than two and
    no longer than 64 elements a thread. Four warps or fewer hold several rows, which are no shorter than two elements
    for each thread of one warp. Fewer than four hold rows of at most 16 bits only: wider values gain nothing, since
    memory takes longer to bring them, and each thread would add up more of them, which loses bits.
    """

    warps: int = 0

    def __call__(self, draft: Draft) -> Draft | None:
        extents = [draft.touches.extents[name] for name in draft.joined]
        known = [extent for extent in extents if extent is not None]
        if not known or len(known) < len(extents):
            return None
        row, threads, target = prod(map(power_of_two, known)), self.warps * draft.target.warp_size, draft.target
        if not self.warps:
            is_legal = row <= (OUTER_PERSISTENT if draft.is_outer else target.max_persistent_row)
        elif draft.is_outer or threads > target.max_threads:
            is_legal = False
        else:
            fewest = FEWEST_HELD * (target.warp_size if self.warps <= SHARED_WARPS else threads)
            is_legal = fewest <= row <= min(LONGEST_HELD, MOST_HELD * threads)
            is_legal = is_legal and (self.warps >= SHARED_WARPS or _is_narrow(draft))
        if not is_legal:
            return None
        held = (draft.level(n, "tile", block=power_of_two(e)) for n, e in zip(draft.joined, known, strict=True))
        return draft._replace(levels=(*draft.levels, *held), warps=self.warps, registers=self.registers(draft, row))

    def registers(self, draft: Draft, row: int) -> int:
        """The most registers of a thread with which two programs run at once, if it does not need more; else 0.

        Without a limit the compiler loads weights early, into registers that a second program needs.
        """
        target, threads = draft.target, self.warps * draft.target.warp_size
        if target.kind != "cuda" or not threads:
            return 0
        most = target.registers // (2 * threads)
        alive = max((sum(map(words, ops)) for ops in alive_at_once(draft.kernel.body, draft.joined)), default=0)
        return most if alive * row // threads + SPARE_REGISTERS <= most < target.thread_registers else 0


def _is_narrow(draft: Draft) -> bool:
    """Whether no loaded value has more than 16 bits."""
    loads = (op.attrs for op in draft.kernel.body.ops if isinstance(op.attrs, Load))
    return all(draft.touches.buffers[load.ref.storage].dtype.itemsize <= NARROW for load in loads)


class Walk(NamedTuple):
    """Walks rows block by block: a looped reduction. `elements`: of a block; 0 lets the target decide.

    `warps`: of a program; 0 lets the size of the block decide. Not legal for a row of one block that can be held, and
    with a number of warps alone only for contiguous rows of several blocks. `streams`: each point loads so many values,
    at least; with fewer, each thread would wait for one load.
    """

    elements: int = 0
    warps: int = 0
    streams: int = 0

    def __call__(self, draft: Draft) -> Draft | None:
        if not draft.joined or self.loads(draft) < self.streams:
            return None
        if self.warps and not self.elements and not self.is_long(draft):
            return None
        left = self.elements or self.warps * draft.target.warp_size * WALKED or self.usual(draft)
        last = draft.vector if draft.vector in draft.joined else draft.joined[-1]
        order = [*(name for name in draft.joined if name != last), last]
        blocks: dict[str, int] = {}
        for name in reversed(order):  # elements that a short inner axis leaves over go to the next axis
            extent = draft.touches.extents[name]
            most = draft.target.looped_block if extent is None else power_of_two(extent)
            blocks[name] = min(left, most, draft.limits.get(name, left))
            left //= blocks[name]
        is_one = all(e is not None and e <= blocks[n] for n, e in draft.touches.extents.items() if n in blocks)
        if is_one and Hold()(draft) is not None:
            return None
        walked = (draft.level(name, "serial", block=blocks[name]) for name in order)
        return draft._replace(levels=(*draft.levels, *walked), warps=self.warps)

    @staticmethod
    def loads(draft: Draft) -> int:
        """The values that each point loads."""
        loads = (op for op in draft.kernel.body.ops if isinstance(op.attrs, Load))
        return sum(set(draft.joined) <= set(op.axes) for op in loads)

    def is_long(self, draft: Draft) -> bool:
        """Whether rows are contiguous, and known to be longer than one block of these warps."""
        extents = [draft.touches.extents[name] for name in draft.joined]
        row, threads = prod(extent or 0 for extent in extents), self.warps * draft.target.warp_size
        return not draft.is_outer and threads <= draft.target.max_threads and row > threads * WALKED

    @staticmethod
    def usual(draft: Draft) -> int:
        """The elements of a block of a row; of several rows, if columns are reduced."""
        target = draft.target
        if not draft.is_outer:
            return target.looped_block
        known = None if draft.vector is None else draft.touches.extents[draft.vector]
        columns = target.columns_per_block if known is None else power_of_two(known)
        return max(OUTER_PERSISTENT, target.max_tile_values // columns)


class RowsBesideColumns(NamedTuple):
    """Reduces rows and columns in one walk over some rows, each of which it holds whole in registers.

    `values`: of each thread; then as many warps share a row as load each element of it once, so that no two warps add
    up parts of the same column. 0 lets the size of the tile decide.

    Legal for a kernel that reduces both ways, with rows of known length that are no longer than the registers hold.
    """

    values: int = 0

    def __call__(self, draft: Draft) -> Draft | None:
        ways = both_ways(draft.kernel.body, draft.kernel.axes, has_parts=True)
        if ways is None:  # else fusion has found that a row can be held
            return None
        extents = {name: draft.touches.extents[name] for name in draft.joined if name in ways.columns}
        known = {name: power_of_two(extent) for name, extent in extents.items() if extent is not None}
        row = prod(known.values())
        if len(known) < len(extents):
            return None
        warps = min(max(1, row // WARP_ROW), draft.target.max_warps) if self.values else 0
        values = self.values * warps * draft.target.warp_size or draft.target.max_persistent_row
        if values < row and self.values:
            return None
        left, walked = max(1, values // row), list[Level]()
        for name in reversed([name for name in draft.joined if name in ways.rows]):
            extent = draft.touches.extents[name]
            block = left if extent is None else min(left, power_of_two(extent))
            walked.insert(0, draft.level(name, "serial", block=block))
            left //= walked[0].block
        held = (draft.level(name, "tile", block=known[name]) for name in draft.joined if name in known)
        grid = (draft.level(name, "grid", block=1) for name in draft.kept)
        return draft._replace(levels=(*grid, *held, *walked), warps=warps)


def unroll(draft: Draft) -> Draft | None:
    """Walks short columns element by element: each thread adds up values of its own, and none moves to another one."""
    extents = [draft.touches.extents[name] for name in draft.joined]
    known = [extent for extent in extents if extent is not None]
    is_short = len(known) == len(extents) and prod(known) <= LONGEST_UNROLLED
    return Walk(1)(draft) if is_short and draft.is_outer else None


def one_walk(draft: Draft) -> Draft | None:
    """Computes in one walk a row's maximum and the sum of exp(x - maximum), or its mean and its variance.

    Legal if there is such a pair.
    """
    kernel = welford(online(draft.kernel, draft.joined))
    return None if kernel is draft.kernel else draft._replace(kernel=kernel)


class Spread(NamedTuple):
    """Gives the rest of the tile to the axes that are not reduced; they become the grid.

    `values`: of the whole tile. `side`: the largest block of an axis along which memory is contiguous, if there are two
    of them, or of the columns that are reduced. A 0 lets the target decide.
    """

    values: int = 0
    side: int = 0

    def __call__(self, draft: Draft) -> Draft | None:
        touches, target, row = draft.touches, draft.target, prod(draft.blocks.values())
        inner = draft.kept[::-1]
        by_bytes = [n for n in inner if touches.contiguous_bytes(n)]
        contiguous = sorted(by_bytes, key=touches.contiguous_bytes, reverse=True)
        rest = [n for n in inner if n not in contiguous]
        order = [*contiguous[:2], *(n for n in inner if n in rest or n in contiguous[2:])]
        values = self.values or target.max_tile_values
        side, room = self.side or values, max(1, values // row)
        if draft.is_outer:
            side = self.side or target.columns_per_block
            room = max(room, side)
        elif self.side and (len(contiguous) < 2 or draft.joined):
            return None
        blocks = dict.fromkeys(draft.kept, 1)
        for name in order[:AXES]:
            extent = touches.extents[name]
            most = values if extent is None else power_of_two(extent)
            blocks[name] = min(most, side if name in contiguous[:2] else room, room, draft.limits.get(name, most))
            room //= blocks[name]
        grid = (draft.level(name, "grid", block=block) for name, block in blocks.items())
        return draft._replace(levels=(*grid, *draft.levels))


class Pipelined(NamedTuple):
    """Loads blocks ahead: a software pipeline of so many stages, whose loads go to shared memory.

    Legal on NVIDIA's GPUs, for a walk of more blocks than stages that makes all loads once, if the blocks that are
    under way fit shared memory, beside what reductions need of it. Rows that are walked again would lose the cache to
    them.
    """

    stages: int

    def __call__(self, draft: Draft) -> Draft | None:
        *_, last = (level for level in draft.levels if level.kind == "serial")
        count = None if last.extent is None else -(-last.extent // last.block)
        if draft.target.kind not in NVIDIA or walks(draft) != 1 or (count is not None and count <= self.stages):
            return None
        if (self.stages - 1) * _loaded_bytes(draft, last.axis) + SCRATCH > draft.target.shared_memory:
            return None
        levels = (level._replace(stages=self.stages) if level is last else level for level in draft.levels)
        return draft._replace(levels=tuple(levels))


def _loaded_bytes(draft: Draft, walked: str) -> int:
    """The bytes of the blocks that one program loads in each step of a walk."""
    inside = [op for op in draft.kernel.body.ops if walked in op.axes]
    loads = ((op, each.attrs) for op in inside for each in all_ops(Body((op,))) if isinstance(each.attrs, Load))
    return sum(
        draft.touches.buffers[load.ref.storage].dtype.itemsize * prod(draft.blocks[axis] for axis in op.axes)
        for op, load in loads
    )


def product(draft: Draft) -> Draft | None:
    """The tile of a kernel of matrix products; legal for no other kernel."""
    if draft.dots is None:
        return None
    return draft._replace(levels=product_tiles(draft, draft.dots))
