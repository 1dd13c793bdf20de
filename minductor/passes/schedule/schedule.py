"""Chooses the loop nest of every kernel for a CPU: which loops run in parallel, which one is vectorised, in what order.

Takes a Program. Gives it with axes merged and a Schedule on each Kernel; `tile_gpu.py` makes those for a GPU. Refuses
nothing.

The vector loop runs along the axis along which most bytes are contiguous. If no reduction runs over this axis, the
kernel works on blocks of it: the loops over reduced axes are inside, with one accumulator for each element of the
block. If a reduction does run over it, the kernel works row by row, with a fixed number of accumulators along the row.
If that leaves too few rows or blocks for the threads, a reduced axis is cut into parts. Their number depends on the
shape alone, so bits do not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.analysis.both_ways import BothWays, both_ways, most_parts, objection
from minductor.analysis.strides import constant_step, step_of
from minductor.analysis.touch import ASSUMED, Touches
from minductor.ir.program.choices import Choice
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Buffer, Kernel, Load, NodeNote, Op, Program
from minductor.ir.program.ops import op_cost
from minductor.passes.rewriting.merge_axes import merge_axes
from minductor.passes.schedule.cut import cut
from minductor.passes.schedule.group import ROWS, group
from minductor.passes.schedule.narrow import in_two_steps, narrow
from minductor.passes.schedule.nest import Level, nest
from minductor.passes.schedule.ordered_axes import ordered_axes
from minductor.passes.schedule.stage import stage
from minductor.passes.schedule.unblock import unblock
from minductor.passes.schedule.unmask import unmask
from minductor.target import Env

FEW = 16  # parallel steps; fewer leave threads idle
PARTS = 64  # the largest number of parts of a reduced axis
SERIAL_WORK = 16 * 1024  # operations of a kernel; starting threads for fewer costs more than it saves
PART_WORK = 16 * 1024  # elements of a part of a reduction that are worth a thread
POINTWISE_BLOCK = 4096  # elements of a block of the vector axis, in a kernel without reductions
GATHER_COST = 24  # operations; with more, vector arithmetic gains what the slow gathers of the vector unit lose
SHARED_COST = 6  # operations for an index that several rows share; fewer cost less than keeping the index
SHARED_BLOCK = 128  # such indices that are kept
SHARING_BLOCK = 64  # rows that use them
COLUMN_BLOCK = 256  # accumulators of a kernel that reduces columns, if there are enough blocks for the threads
LANES = 64  # accumulators of a vector loop along a reduced axis, as it is assumed here
LONG_RUN = 16  # additions into one accumulator, one after the other; more are summed in blocks of so many
# elements that an extent counts as if only the call knows it; codegen skips the blocks for short rows
LONG_ROW = 1 << 26
LONG_COLUMN = 1 << 15
LANE_RUN = 32  # as LONG_RUN, along a row, whose lanes are added as a tree; and for a kernel that reduces both ways
SCAN_BLOCK = 512  # elements of a row around a scan; values kept between its loops then fit the first-level cache
SHORT_RUN = 8  # additions; fewer are not worth an accumulator of their own
WIDE_COLUMN_BLOCK = 1024  # accumulators, if the rows are cut into parts instead: reads are contiguous for longer
CROSSING_BLOCK = 128  # elements along which a transposed load is contiguous: several whole cache lines
CROSSED_BLOCK = 16  # elements along the vector axis of a transposed load: one cache line of the result


def schedule(program: Program, env: Env) -> Program:
    """The program with a schedule on each kernel; a kernel that has a schedule already keeps it."""
    table, notes = program.real_table(), list[NodeNote]()
    nodes = tuple(
        schedule_kernel(node, table, env, notes) if isinstance(node, Kernel) and node.schedule is None else node
        for node in program.nodes
    )
    return program if nodes == program.nodes else replace(program, nodes=nodes, notes=(*program.notes, *notes))


def schedule_kernel(kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: list[NodeNote]) -> Kernel:
    """One kernel with merged axes and its schedule. `notes` takes what each recipe would cost."""
    kernel = merge_axes(kernel)
    if env.target.is_gpu:
        from minductor.passes.schedule.tile_gpu import tile_gpu  # a first call for a CPU does not wait for it

        made = tile_gpu(kernel, buffers, env, notes)
        return with_library(made, kernel, buffers, env, notes) if env.options.autotune else made
    if env.options.variant not in ("", "classic"):
        notes.append(NodeNote("schedule", kernel.name, f"the recipe {env.options.variant} is not legal on a CPU"))
    chooser = _Chooser(kernel, buffers)
    if chooser.narrow is not None:
        kernel = in_two_steps(kernel, chooser.narrow[0])
    lanes = {size: env.target.lanes(max(size, 4)) for size in (1, 2, 4, 8, 16)}
    schedule = chooser.is_columns() and group(
        nest(kernel.body, chooser.levels(rows=ROWS), lanes), kernel.body, chooser.extents
    )
    schedule = unblock(schedule or nest(kernel.body, chooser.levels(rows=1), lanes))
    schedule = stage(schedule, *chooser.staged) if chooser.staged else schedule
    return replace(kernel, schedule=cut(unmask(schedule, kernel.body), kernel))


def with_library(made: Kernel, kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: list[NodeNote]) -> Kernel:
    """The kernel `made`; if it computes matrix products, with the library's way as a variant to choose from."""
    from minductor.passes.schedule.by_library import by_library

    dots = find_dots(kernel) if env.options.matmul == "auto" else None
    variant = None if dots is None else by_library(kernel, dots, buffers)
    if variant is None:
        return made
    table = buffers | {buffer.name: buffer for buffer in variant.buffers}
    nodes = tuple(
        schedule_kernel(node, table, env, notes) if isinstance(node, Kernel) else node for node in variant.nodes
    )
    choice = Choice("matmul", "bits", ("extern", "native"), "extern")
    return replace(made, choices=(*made.choices, choice), variants=(replace(variant, nodes=nodes),))


class _Chooser(Touches):
    """Chooses the loops (`Level`s, outermost first) of one kernel for a CPU."""

    def __init__(self, kernel: Kernel, buffers: dict[str, Buffer]) -> None:
        super().__init__(kernel, buffers)
        self.ordered = ordered_axes(kernel, buffers)
        self.is_both_ways = False
        self.staged: tuple[str, str, frozenset[int]] | None = None
        self.narrow = narrow(self)

    def cost(self) -> int:
        """The operations of one point."""
        return sum(op_cost(op.name) for op in self.kernel.body.ops)

    def is_serial(self) -> bool:
        """Whether a kernel is too small for threads."""
        return self.size(list(self.axes)) * self.cost() < SERIAL_WORK

    def is_columns(self) -> bool:
        """Whether the kernel reduces columns: no reduction runs over the vector axis, and there are no scans."""
        vector = self.vector_axis()
        return vector is not None and vector not in self.reduced and bool(self.reduced) and not self.scanned

    def levels(self, *, rows: int) -> list[Level]:
        """The loops of the kernel. `rows`: how many rows `group` adds at a time if columns are summed."""
        vector = self.vector_axis()
        kept = self.by_stride([n for n in self.axes if n not in self.reduced and n != vector and n not in self.scanned])
        joined = self.by_stride([n for n in self.axes if (n in self.reduced or n in self.scanned) and n != vector])
        if vector is None:
            found: list[Level] = []
        elif self.ordered:
            found = self.scattered()
        elif self.narrow is not None:
            found = self.side_by_side(kept, joined, *self.narrow)
        elif vector in self.scanned:
            found = self.scans(kept, joined, vector)
        elif vector in self.reduced:
            found = self.rows(kept, joined, vector)
        elif self.reduced or self.scanned:
            found = self.columns(kept, joined, vector)
        else:
            found = self.pointwise(kept, vector)
        found = self.shortened(found, rows)
        if self.is_gather(vector):
            found = [replace(level, kind="scalar") if level.kind == "vector" else level for level in found]
        if self.is_serial():
            found = [replace(level, kind="serial") if level.kind == "parallel" else level for level in found]
        return found

    def shortened(self, levels: list[Level], rows: int) -> list[Level]:
        """The levels with long sums cut into blocks with sums of their own: errors grow with the length of a sum."""
        made: list[Level] = []
        run = 1
        for number, level in reversed(list(enumerate(levels))):
            if level.axis not in self.reduced or level.is_blocked:
                made.append(level)
                continue
            most = LANE_RUN if level.kind == "vector" or self.is_both_ways else LONG_RUN
            group = rows if number == len(levels) - 2 else 1
            is_inmost = not any(inner.axis in self.reduced for inner in levels[number + 1 :])
            count = -(-self.run_length(level, levels[:number], is_inmost=is_inmost) // group)
            if run * count > LONG_RUN and run >= SHORT_RUN:
                last = next(n for n in reversed(range(len(made))) if made[n].axis in self.reduced)
                made[last] = replace(made[last], is_partial=True)
                run = 1
            if count > most:
                width = LANES if level.kind == "vector" else group
                made.append(replace(level, is_partial=True))
                while count > most:
                    width, count = width * most, -(-count // most)
                    made.append(replace(self.level(level.axis, "serial", block=width), is_partial=count > most))
                run = count
            else:
                made.append(level)
                run *= count
        return made[::-1]

    def run_length(self, level: Level, outside: list[Level], *, is_inmost: bool) -> int:
        """How many elements one run of a loop adds to each accumulator; an unknown extent counts as a long one."""
        around = next((outer for outer in outside if outer.axis == level.axis), None)
        if around is not None and around.block:
            extent = around.block
        elif is_inmost and self.extents[level.axis] is None:
            extent = LONG_ROW if level.kind == "vector" else LONG_COLUMN
        else:
            extent = self.size([level.axis])
        return -(-extent // LANES) if level.kind == "vector" else extent

    def is_gather(self, vector: str | None) -> bool:
        """Whether the vector loop does little but gather: then it is not vectorised."""
        if vector is None or self.reduced or self.scanned or self.cost() > GATHER_COST:
            return False
        return self.has_gathers(vector)

    def has_gathers(self, vector: str) -> bool:
        """Whether data decide the index of some load that varies along the vector axis."""
        axis = self.axes[vector].symbol
        loads = [op for op in self.kernel.body.ops if isinstance(op.attrs, Load) and vector in op.axes]
        return any(step_of(op, axis) is None for op in loads)

    def level(self, name: str, kind: str, *, block: int = 0, parts: int = 0) -> Level:
        """A loop over an axis. If its extent is known, `parts` become blocks of equal size."""
        extent = self.extents[name]
        if parts and extent is not None:
            block, parts = max(1, -(-extent // parts)), 0
        assert kind in ("parallel", "serial", "vector")
        return Level(name, kind, extent, block, parts)

    def pointwise(self, kept: list[str], vector: str) -> list[Level]:
        """The loops of a kernel without reductions and scans."""
        crossing = self.crossing_axis(kept, vector)
        if crossing is not None:
            rest = [n for n in kept if n != crossing]
            self.staged = (crossing, vector, self.jumping(crossing, vector))
            return [
                *(self.level(n, "parallel") for n in rest),
                self.level(crossing, "parallel", block=CROSSING_BLOCK),
                self.level(vector, "parallel", block=CROSSED_BLOCK),
                self.level(crossing, "serial"),
                self.level(vector, "vector"),
            ]
        shared = self.sharing_axis(kept, vector)
        if shared is not None:
            blocks = ((shared, SHARING_BLOCK), (vector, SHARED_BLOCK))
            return [
                *(self.level(n, "parallel") for n in kept if n != shared),
                *(self.level(n, "parallel", block=block) for n, block in blocks if self.size([n]) > block),
                replace(self.level(shared, "serial"), is_shared=True),
                self.level(vector, "vector"),
            ]
        extent = self.extents[vector]
        is_long = extent is None or extent >= 2 * POINTWISE_BLOCK
        outer = [self.level(n, "parallel") for n in kept]
        if is_long and (not kept or self.size(kept) < FEW):
            outer.append(self.level(vector, "parallel", block=POINTWISE_BLOCK))
        return [*outer, self.level(vector, "vector")]

    def sharing_axis(self, kept: list[str], vector: str) -> str | None:
        """An axis along which gathers use the same indices again, if computing these costs more than keeping them."""
        if not self.has_gathers(vector):
            return None
        costs = {name: sum(op_cost(op.name) for op in self.shared(name, vector)) for name in kept}
        return max(
            (name for name in kept if costs[name] >= SHARED_COST and self.size([name]) >= FEW),
            key=lambda name: (costs[name], self.size([name])),
            default=None,
        )

    def shared(self, name: str, vector: str) -> list[Op]:
        """The ops that vary along the vector axis and not along the axis `name`."""
        return [op for op in self.kernel.body.ops if vector in op.axes and name not in op.axes and not op.is_effect]

    def scattered(self) -> list[Level]:
        """The loops of a scatter. Axes along which two writes may hit one element run in order, on one thread."""
        free = [n for n in self.axes if n not in self.ordered]
        vector = max(reversed(free), key=self.contiguous_bytes, default=None)
        if vector is None or not self.contiguous_bytes(vector):
            return [*(self.level(n, "parallel") for n in self.by_stride(free)), *self.in_order()]
        outer = [self.level(n, "parallel") for n in self.by_stride([n for n in free if n != vector])]
        extent = self.extents[vector]
        if self.size([level.axis for level in outer]) < FEW and (extent is None or extent > COLUMN_BLOCK):
            outer.append(self.level(vector, "parallel", block=COLUMN_BLOCK))
        return [*outer, *self.in_order(), self.level(vector, "vector")]

    def in_order(self) -> list[Level]:
        """The loops over axes whose order matters, on one thread."""
        return [self.level(n, "serial") for n in self.axes if n in self.ordered]

    def crossing_axis(self, kept: list[str], vector: str) -> str | None:
        """An axis along which loads are contiguous that are strided along the vector axis (a transpose); or None."""
        for name in reversed(kept):
            if self.jumping(name, vector):
                return name
        return None

    def jumping(self, crossing: str, vector: str) -> frozenset[int]:
        """The positions of the loads that are contiguous along `crossing` and strided along the vector axis."""
        found: set[int] = set()
        for position, op in enumerate(self.kernel.body.ops):
            if isinstance(op.attrs, Load) and not op.args:
                along, across = (constant_step(op, self.axes[n].symbol) for n in (crossing, vector))
                if along == 1 and across not in (0, 1, None):
                    found.add(position)
        return frozenset(found)

    def scans(self, kept: list[str], joined: list[str], vector: str) -> list[Level]:
        """The loops of a scan along contiguous rows: in blocks, within which ops before and after it are vectorised."""
        inner = [self.level(n, "serial") for n in joined]
        block = SCAN_BLOCK
        blocks: list[Level] = []
        while self.size([vector]) > block or (self.extents[vector] is None and not blocks):
            blocks.append(replace(self.level(vector, "serial", block=block), is_partial=True))
            block *= LANE_RUN
        return [*(self.level(n, "parallel") for n in kept), *inner, *blocks[::-1], self.level(vector, "vector")]

    def rows(self, kept: list[str], joined: list[str], vector: str) -> list[Level]:
        """The loops of a kernel that reduces contiguous rows."""
        ways = both_ways(self.kernel.body, self.kernel.axes)
        if ways is not None and objection(self.kernel.body, self.kernel.axes, ways) is None:
            return self.both_ways(ways)
        inner = [*(self.level(n, "serial") for n in joined), self.level(vector, "vector")]
        work = self.size([*joined, vector])
        if self.size(kept) >= FEW or work < 2 * PART_WORK:
            return [*(self.level(n, "parallel") for n in kept), *inner]
        split = max([vector, *joined], key=lambda n: self.size([n]))
        parts = min(PARTS, max(2, work // PART_WORK))
        return [
            *(self.level(n, "serial") for n in kept),
            self.part_level(split, parts, is_vector=split == vector),
            *inner,
        ]

    def both_ways(self, ways: BothWays) -> list[Level]:
        """The loops of a kernel that reduces both ways: row by row; each part has accumulators for all columns."""
        self.is_both_ways = True
        vector = max(reversed([n for n in self.axes if n in ways.columns]), key=self.contiguous_bytes)
        joined = self.by_stride([n for n in self.axes if n != vector])
        down = [n for n in joined if n in ways.rows]
        split = max(down, key=lambda n: self.size([n]))
        inner = [*down, *(n for n in joined if n in ways.columns)]
        most = most_parts(self.kernel.body, self.kernel.axes, ways) or 1
        parts = min(PARTS, most, self.size(list(self.axes)) // PART_WORK)
        levels = [*(self.level(n, "serial") for n in inner), self.level(vector, "vector")]
        return [self.part_level(split, parts, is_vector=False), *levels] if parts > 1 else levels

    def part_level(self, name: str, parts: int, *, is_vector: bool) -> Level:
        """A parallel loop over parts of an axis; parts of the vector axis are multiples of 64 elements."""
        level = self.level(name, "parallel", parts=parts)
        if level.block and is_vector:
            return replace(level, block=-(-level.block // 64) * 64)
        return level

    def side_by_side(self, kept: list[str], joined: list[str], vector: str, beside: str) -> list[Level]:
        """The loops after `in_two_steps`: with accumulators for each point of the vector axis and another."""
        outer = [self.level(n, "parallel") for n in kept if n != beside]
        inner = [*(self.level(n, "serial") for n in (*joined, beside)), self.level(vector, "vector")]
        work = self.size([*joined, beside, vector])
        if self.size([level.axis for level in outer]) >= FEW or work < 2 * PART_WORK:
            return [*outer, *inner]
        split = max(joined, key=lambda n: self.size([n]))
        parts = self.part_level(split, min(PARTS, work // PART_WORK), is_vector=False)
        return [*(replace(level, kind="serial") for level in outer), parts, *inner]

    def columns(self, kept: list[str], joined: list[str], vector: str) -> list[Level]:
        """The loops of a kernel that reduces columns, with an accumulator for each element of a vector block."""
        extent = self.extents[vector]
        width = ASSUMED if extent is None else extent
        outer = [self.level(n, "parallel") for n in kept]
        inner = [*(self.level(n, "serial") for n in joined), self.level(vector, "vector")]
        work = self.size(joined) * min(width, WIDE_COLUMN_BLOCK)
        is_split = self.size(kept) * -(-width // COLUMN_BLOCK) < FEW and work >= 2 * PART_WORK and not self.scanned
        block = WIDE_COLUMN_BLOCK if is_split else COLUMN_BLOCK
        if extent is None or extent > block:
            outer.append(self.level(vector, "parallel", block=block))
        if not is_split:
            return [*outer, *inner]
        split = max(joined, key=lambda n: self.size([n]))
        parts = self.part_level(split, min(PARTS, max(2, work // PART_WORK)), is_vector=False)
        return [*(replace(level, kind="serial") for level in outer), parts, *inner]
