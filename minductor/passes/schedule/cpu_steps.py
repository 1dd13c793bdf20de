"""The steps of a recipe for a CPU: which loops run in parallel, which one is vectorised, and in what order.

Each takes a `Draft` and gives it with more levels, or None where it is not legal.

The vector loop runs along the axis along which most bytes are contiguous. If no reduction runs over this axis, the
kernel works on blocks of it: the loops over reduced axes are inside, with one accumulator for each element of the
block. If a reduction does run over it, the kernel works row by row, with a fixed number of accumulators along the row.
If that leaves too few rows or blocks for the threads, a reduced axis is cut into parts. Their number depends on the
shape alone, so bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minductor.analysis.both_ways import BothWays, both_ways, most_parts, objection
from minductor.analysis.function_chains import function_chain
from minductor.analysis.strides import even_step, step_of
from minductor.core.dtypes import BF16, F16
from minductor.core.expressions.expr import integer, maximum
from minductor.cost.shape import WORD
from minductor.cost.shape_cpu import FEW_ACROSS, LINE
from minductor.ir.program.nodes import Atomic, Check, Load, Masked, Op, Project, Reduce, Store
from minductor.ir.program.ops import op_cost
from minductor.passes.schedule.draft import Draft, Level, Staged
from minductor.passes.schedule.gathers import places_of
from minductor.passes.schedule.in_phases import FEWEST_ROWS, MOST_ROWS, UNKNOWN_BYTES, rows_of_block
from minductor.passes.schedule.narrow import in_two_steps, narrow
from minductor.passes.schedule.side_by_side import FEW_ROWS
from minductor.passes.schedule.strips import CHAIN, SHORT

PARTS = 64  # the largest number of parts of a reduced axis
SERIAL_WORK = 16 * 1024  # operations of a kernel; starting threads for fewer costs more than it saves
SHARED_ITERATIONS = 256  # of loops; threads share them evenly enough
PART = 16 * 1024  # elements of a part of a reduction, unless there are more than PARTS
POINTWISE_BLOCK = 4096  # elements of a block of the vector axis, in a kernel without reductions
POINTS_BLOCK = 1024  # the same, of points of a few coordinates
GATHERED_STRIP = 256  # elements that are gathered before a vector loop
SHARED_BLOCK = 128  # indices that are kept for the rows that share them
SHARING_BLOCK = 64  # rows that share kept indices
COLUMN_BLOCK = 256  # accumulators of a kernel that reduces columns
WIDE_COLUMN_BLOCK = 1024  # accumulators, if the rows are cut into parts instead: reads are contiguous for longer
ACROSS = 64  # elements of a row; longer ones fill vectors by themselves
IN_ANY_ORDER = ("max", "min", "argmax", "argmin", "last_max", "last_min", "any", "all")  # reductions
SCAN_BLOCK = 512  # elements of a row around a scan; values kept between its loops then fit the first-level cache
SCAN_BLOCKS = 32  # blocks of a scan in a block around them
# Elements of the sides of a block that is transposed: several whole cache lines of the memory on either side. The first
# is that along which transposed loads are contiguous, of elements of four bytes or more and of fewer.
CROSSING_BLOCK, NARROW_CROSSING_BLOCK, CROSSED_BLOCK = 64, 128, 64
BUFFER_BYTES = 16 * 1024  # of one staging buffer: half of the first-level cache
STAGED_BYTES = 256 * 1024  # of all staging buffers; blocks are smaller beyond it
LONGEST_IN_PHASES = 1024  # elements of a row; longer ones wait for a small part of their time
COPY_BLOCK, LINE_BLOCK = 64, 16  # elements of a block of a transposed copy, along both axes


def _parallel(draft: Draft, *apart: str | None) -> list[Level]:
    """Parallel loops over the axes that are neither reduced nor scanned, but for those `apart`."""
    return [draft.level(name, "parallel") for name in draft.kept if name not in apart]


def _joined(draft: Draft) -> list[str]:
    """The axes that are reduced or scanned, without the vector axis."""
    return [name for name in draft.joined if name != draft.vector]


def _inner(draft: Draft, names: Sequence[str]) -> list[Level]:
    """Serial loops over axes and the vector loop in them."""
    assert draft.vector is not None
    return [*(draft.level(name, "serial") for name in names), draft.level(draft.vector, "vector")]


# --- kernels without reductions and scans


def elements(draft: Draft) -> Draft:
    """One vector loop inside parallel loops. Always legal."""
    if draft.vector is None:
        return draft
    return draft._replace(levels=(*_parallel(draft, draft.vector), draft.level(draft.vector, "vector")))


def blocks(draft: Draft) -> Draft | None:
    """Threads share blocks of the vector axis. Legal if there are at least two."""
    return _in_blocks(draft, POINTWISE_BLOCK)


def blocks_of_points(draft: Draft) -> Draft | None:
    """As `blocks`, where each element of the vector axis is a point of a few coordinates (`short_axis.py`)."""
    return _in_blocks(draft, POINTS_BLOCK)


def _in_blocks(draft: Draft, size: int) -> Draft | None:
    if draft.vector is None:
        return None
    extent = draft.touches.extents[draft.vector]
    if extent is not None and extent < 2 * size:
        return None
    split = draft.level(draft.vector, "parallel", block=size)
    return draft._replace(levels=(*_parallel(draft, draft.vector), split, draft.level(draft.vector, "vector")))


def transpose(draft: Draft) -> Draft | None:
    """Loads and stores that are contiguous along another axis than the vector axis go through staging buffers."""
    if draft.vector is None:
        return None
    for crossing in reversed([name for name in draft.kept if name != draft.vector]):
        loads, stores = _jumping(draft, crossing, draft.vector), _jumping_stores(draft, crossing, draft.vector)
        if loads or stores:
            break
    else:
        return None
    is_copy = _is_copy(draft)
    along, across = _sides_of_copy(draft) if is_copy else _sides(draft, loads, stores)
    inner = [draft.level(crossing, "serial"), draft.level(draft.vector, "serial" if is_copy else "vector")]
    levels = (
        *_parallel(draft, crossing, draft.vector),
        draft.level(crossing, "parallel", block=along),
        draft.level(draft.vector, "parallel", block=across),
        *(reversed(inner) if is_copy else inner),
    )
    return draft._replace(levels=levels, staged=None if is_copy else Staged(crossing, draft.vector, loads, stores))


def _is_copy(draft: Draft) -> bool:
    """Whether a kernel only copies elements, as they are: its blocks need no staging buffer."""
    ops, dtypes = draft.kernel.body.ops, [touch.dtype for touch in draft.touches.touches]
    is_pair = len(ops) == 2 and isinstance(ops[0].attrs, Load) and isinstance(ops[1].attrs, Store)
    return is_pair and not ops[0].args and dtypes[0] == dtypes[1]


def _sides_of_copy(draft: Draft) -> tuple[int, int]:
    """The elements of a block of a copy along both axes: of one line each, where each row of a block is a line.

    Then no line is visited twice, though rows that are a power of two apart share few sets of the cache.
    """
    line = LINE // draft.touches.touches[0].dtype.itemsize
    steps = [step for touch in draft.touches.touches for step in touch.steps.values()]
    is_of_lines = all(step is not None and (abs(step) <= 1 or step % line == 0) for step in steps)
    side = LINE_BLOCK if is_of_lines and line <= LINE_BLOCK else COPY_BLOCK
    return side, side


def _sides(draft: Draft, loads: Iterable[int], stores: Iterable[int]) -> tuple[int, int]:
    """The elements of a block along the crossing axis and along the other, for staging buffers of these accesses."""
    ops = draft.kernel.body.ops
    staged = {*loads, *(ops[p].args[0] for p in stores)}
    sizes = [dtype.itemsize for p in staged if (dtype := ops[p].dtype)]
    crossing, crossed = CROSSING_BLOCK if max(sizes) >= 4 else NARROW_CROSSING_BLOCK, CROSSED_BLOCK
    while crossing * crossed * max(sizes) > BUFFER_BYTES:
        crossed //= 2
    while crossing * crossed * sum(sizes) > STAGED_BYTES and crossed > 16:
        crossing, crossed = crossing // 2, crossed // 2
    return crossing, crossed


def _jumping(draft: Draft, crossing: str, vector: str) -> frozenset[int]:
    """The positions of the loads that are contiguous along `crossing` and strided along the vector axis."""
    loads = ((p, op) for p, op in enumerate(draft.kernel.body.ops) if isinstance(op.attrs, Load) and not op.args)
    return frozenset(p for p, op in loads if _jumps(draft, op, crossing, vector))


def _jumping_stores(draft: Draft, crossing: str, vector: str) -> frozenset[int]:
    """The same of stores of values that vary along both axes."""
    ops, found = draft.kernel.body.ops, set[int]()
    for position, op in enumerate(ops):
        if isinstance(op.attrs, Store) and _jumps(draft, op, crossing, vector):
            value, dtype = ops[op.args[0]], draft.touches.dtypes[op.attrs.ref.storage]
            if {crossing, vector} <= {*value.axes} and dtype in (value.dtype, BF16, F16):
                found.add(position)
    return frozenset(found)


def _jumps(draft: Draft, op: Op, crossing: str, vector: str) -> bool:
    """Whether an access is contiguous along one axis and strided along the other."""
    along, across = (even_step(op, draft.touches.axes[name].symbol) for name in (crossing, vector))
    return along == integer(1) and across not in (integer(0), integer(1), None)


def share_indices(draft: Draft) -> Draft | None:
    """Gathers keep the indices that several rows use again."""
    vector = draft.vector
    if vector is None or not _gathers(draft):
        return None
    kept = [name for name in draft.kept if name != vector]
    costs = {name: sum(op_cost(op.name) for op in _shared(draft, name)) for name in kept}
    worth = (name for name in kept if costs[name] and draft.size(name) > 1)
    shared = max(worth, key=lambda name: (costs[name], draft.size(name)), default=None)
    if shared is None:
        return None
    cut = [(n, block) for n, block in ((shared, SHARING_BLOCK), (vector, SHARED_BLOCK)) if draft.size(n) > block]
    levels = (
        *_parallel(draft, shared, vector),
        *(draft.level(name, "parallel", block=block) for name, block in cut),
        draft.level(shared, "serial")._replace(is_shared=True),
        draft.level(vector, "vector"),
    )
    return draft._replace(levels=levels)


def _shared(draft: Draft, name: str) -> list[Op]:
    """The ops that vary along the vector axis and not along the axis `name`."""
    ops = draft.kernel.body.ops
    return [op for op in ops if draft.vector in op.axes and name not in op.axes and not op.is_effect]


def gathers_first(draft: Draft) -> Draft | None:
    """A scalar loop over a strip loads what lies at loaded places, and the vector loop computes with it."""
    vector, ops = draft.vector, draft.kernel.body.ops
    gathers = _gathers(draft)
    if vector is None or not gathers or any(isinstance(op.attrs, Masked | Atomic) for op in ops):
        return None
    inside = [p for p, op in enumerate(ops) if vector in op.axes]
    rest = set(inside) - places_of(inside, ops, gathers)
    if all(ops[p].is_effect for p in rest):
        return None  # nothing is computed with the values
    *outer, inner = draft.levels
    extent = draft.touches.extents[vector]
    if extent is None or extent > GATHERED_STRIP:
        outer.append(draft.level(vector, "serial", block=GATHERED_STRIP))
    return draft._replace(levels=(*outer, inner), gathers=gathers)


def _gathers(draft: Draft) -> frozenset[int]:
    """The positions of the loads that vary along the vector axis, at an index that data decide."""
    if draft.vector is None:
        return frozenset()
    axis = draft.touches.axes[draft.vector].symbol
    loads = ((p, op) for p, op in enumerate(draft.kernel.body.ops) if isinstance(op.attrs, Load))
    return frozenset(p for p, op in loads if draft.vector in op.axes and step_of(op, axis) is None)


def strips(draft: Draft) -> Draft | None:
    """Functions that wait for each other run over strips of the vector loop, one after the other (`strips.py`)."""
    ops, extent = draft.kernel.body.ops, draft.touches.extents.get(draft.vector or "")
    inside = [p for p, op in enumerate(ops) if draft.vector in op.axes]
    is_short = extent is not None and extent <= SHORT
    return None if is_short or function_chain(ops, inside) < CHAIN else draft._replace(is_in_strips=True)


def scatter(draft: Draft) -> Draft:
    """Axes along which two writes may hit one element run in order, on one thread; the others around or inside them."""
    return _scatter(draft, 0)


def scatter_blocks(draft: Draft) -> Draft | None:
    """As `scatter`, and threads share blocks of the vector axis. Legal if there are at least two."""
    made = _scatter(draft, COLUMN_BLOCK)
    return made if any(level.block for level in made.levels) else None


def _scatter(draft: Draft, block: int) -> Draft:
    touches = draft.touches
    free = [name for name in touches.axes if name not in draft.ordered]
    in_order = [draft.level(name, "serial") for name in touches.axes if name in draft.ordered]
    vector = max(reversed(free), key=touches.contiguous_bytes, default=None)
    if vector is None or not touches.contiguous_bytes(vector):
        outer = [draft.level(name, "parallel") for name in touches.by_stride(free)]
        return draft._replace(levels=(*outer, *in_order))
    rest = touches.by_stride([name for name in free if name != vector])
    outer = [draft.level(name, "parallel") for name in rest]
    extent = touches.extents[vector]
    if block and (extent is None or extent > block):
        outer.append(draft.level(vector, "parallel", block=block))
    return draft._replace(levels=(*outer, *in_order, draft.level(vector, "vector")))


# --- reductions and scans


def rows(draft: Draft) -> Draft | None:
    """Row by row: the vector loop runs along the row. Legal unless the kernel reduces rows and columns in one pass."""
    return None if _both_ways(draft) else draft._replace(levels=(*_parallel(draft), *_inner(draft, _joined(draft))))


def phases(draft: Draft) -> Draft | None:
    """Blocks of rows run through each phase of a row together. Legal for rows with several phases that may be short."""
    ops, row = draft.kernel.body.ops, draft.vector
    length = None if row is None else draft.touches.extents[row]
    if row is None or (length or 0) > LONGEST_IN_PHASES or draft.joined != (row,) or draft.touches.scanned:
        return None
    outer = [level for level in draft.levels if level.kind == "parallel"]
    waiting = set[int]()  # what the result of a reduction decides
    for position, op in enumerate(ops):
        if isinstance(op.attrs, Reduce) or not waiting.isdisjoint(op.args):
            waiting.add(position)
    is_in_turn = any(row in ops[p].loop_axes and not waiting.isdisjoint(ops[p].args) for p in waiting)
    is_simple = not any(isinstance(op.attrs, Check | Project) for op in ops)
    if not outer or not is_in_turn or not is_simple or draft.size(*draft.kept) < FEW_ROWS:
        return None
    itemsize = max(WORD, *(touch.dtype.itemsize for touch in draft.touches.touches))
    block, most = MOST_ROWS, None
    if length is None:
        most = integer(UNKNOWN_BYTES) // (itemsize * maximum(draft.touches.axes[row].extent, integer(1)))
    else:
        block = rows_of_block(length * itemsize)
    rows = max(outer, key=lambda level: (min(block, draft.size(level.axis)), outer.index(level)))
    if draft.size(rows.axis) < FEWEST_ROWS:
        return None
    inner = (rows._replace(block=block, most=most), rows._replace(kind="serial"), *draft.levels[len(outer) :])
    return draft._replace(levels=(*(level for level in outer if level != rows), *inner), phased=rows.axis)


def across_rows(draft: Draft) -> Draft | None:
    """Short rows side by side: the vector loop runs over rows, with strided loads and an accumulator for each row.

    Legal for reductions whose result does not depend on the order. Sums do: with another recipe they have other bits.
    """
    row, short = draft.vector, draft.touches.extents.get(draft.vector or "")
    reduces = [op.attrs for op in draft.kernel.body.ops if isinstance(op.attrs, Reduce)]
    if row is None or draft.joined != (row,) or short is None or short > ACROSS or draft.touches.scanned:
        return None
    if not draft.kept or any(each.combine.name not in IN_ANY_ORDER for each in reduces):
        return None
    return _columns(draft._replace(vector=max(draft.kept, key=draft.size)), COLUMN_BLOCK)


def columns(draft: Draft) -> Draft:
    """Columns side by side, with an accumulator for each element of a block of the vector axis."""
    return _columns(draft, COLUMN_BLOCK)


def wide_columns(draft: Draft) -> Draft:
    """As `columns`, with wider blocks: reads are contiguous for longer."""
    return _columns(draft, WIDE_COLUMN_BLOCK)


def _columns(draft: Draft, block: int) -> Draft:
    assert draft.vector is not None
    extent = draft.touches.extents[draft.vector]
    outer = _parallel(draft, draft.vector)
    if extent is None or extent > block:
        outer.append(draft.level(draft.vector, "parallel", block=block))
    return draft._replace(levels=(*outer, *_inner(draft, _joined(draft))))


def transposed_columns(draft: Draft) -> Draft | None:
    """As `columns`, where loads or stores that are contiguous down the columns go through staging buffers."""
    touches = draft.touches
    if draft.vector is None or len(draft.joined) != 1 or not draft.kept or touches.scanned:
        return None
    down = draft.joined[-1]
    vector = max(reversed(draft.kept), key=touches.contiguous_bytes)
    loads, stores = _jumping(draft, down, vector), _jumping_stores(draft, down, vector)
    few = touches.contiguous_bytes(vector) * FEW_ACROSS < touches.contiguous_bytes(down)
    if few or not (loads or stores):
        return None
    along, across = _sides(draft, loads, stores)
    levels = (
        *_parallel(draft, vector),
        draft.level(vector, "parallel", block=across),
        draft.level(down, "serial", block=along),
        draft.level(down, "serial"),
        draft.level(vector, "vector"),
    )
    return draft._replace(levels=levels, vector=vector, staged=Staged(down, vector, loads, stores))


def two_steps(draft: Draft) -> Draft | None:
    """Reduces a short contiguous axis last, with accumulators for each point of it and of the axis next to it."""
    found = narrow(draft.touches)
    if found is None:
        return None
    vector, beside = found
    kernel = in_two_steps(draft.kernel, vector)
    levels = (*_parallel(draft, beside), *_inner(draft, [*_joined(draft), beside]))
    return draft._replace(kernel=kernel, levels=levels)


def parts(draft: Draft) -> Draft | None:
    """Threads share parts of the longest reduced axis. Legal if there are at least two."""
    vector = draft.vector
    if vector is None or draft.touches.scanned:
        return None
    outer = [level for level in draft.levels if level.kind == "parallel"]
    inner = draft.levels[len(outer) :]
    width = min(draft.size(vector), WIDE_COLUMN_BLOCK) if vector in draft.kept else draft.size(vector)
    count = draft.size(*(level.axis for level in inner if level.axis != vector)) * width // PART
    if count < 2:
        return None
    split = max(_split_axes(draft), key=draft.size, default=None)
    if split is None:
        return None
    part = _part(draft, split, min(PARTS, count))
    return draft._replace(levels=(*(each._replace(kind="serial") for each in outer), part, *inner))


def _split_axes(draft: Draft) -> list[str]:
    """The reduced axes of which parts may be made: the vector axis first, if it is reduced and not in two steps."""
    is_two_steps = any(level.axis in draft.kept and level.kind == "serial" for level in draft.levels)
    if draft.vector is None or draft.vector not in draft.joined or is_two_steps:
        return _joined(draft)
    # A reduction along the vector axis has lanes, so a part cannot have accumulators for each element of other axes.
    reduces = [(op.axes, op.attrs.axes) for op in draft.kernel.body.ops if isinstance(op.attrs, Reduce)]
    rows = [over for kept, over in reduces if draft.vector in over and not set(kept).isdisjoint(draft.joined)]
    return [name for name in (draft.vector, *_joined(draft)) if all(name not in over for over in rows)]


def _part(draft: Draft, name: str, count: int) -> Level:
    """A parallel loop over parts of an axis; parts of the vector axis are multiples of 64 elements."""
    level = draft.level(name, "parallel", parts=count)
    if level.block and name == draft.vector:
        return level._replace(block=-(-level.block // 64) * 64)
    return level


def _both_ways(draft: Draft) -> BothWays | None:
    """The axes of rows and columns, if the kernel reduces both in one pass."""
    kernel = draft.kernel
    ways = both_ways(kernel.body, kernel.axes)
    return None if ways is None or objection(kernel.body, kernel.axes, ways) is not None else ways


def rows_and_columns(draft: Draft) -> Draft | None:
    """Reduces rows and columns in one pass, row by row; each part of the rows has accumulators for all columns."""
    kernel, touches, ways = draft.kernel, draft.touches, _both_ways(draft)
    if ways is None:
        return None
    vector = max(reversed([n for n in touches.axes if n in ways.columns]), key=touches.contiguous_bytes)
    joined = touches.by_stride([n for n in touches.axes if n != vector])
    down = [n for n in joined if n in ways.rows]
    inner = [*down, *(n for n in joined if n in ways.columns)]
    most = most_parts(kernel.body, kernel.axes, ways, touches.hints) or 1
    count = min(PARTS, most, draft.size(*touches.axes) // PART)
    split = max(down, key=draft.size)
    outer = [draft.level(split, "parallel", parts=count)] if count > 1 else []
    levels = (*outer, *(draft.level(n, "serial") for n in inner), draft.level(vector, "vector"))
    return draft._replace(levels=levels, is_both_ways=True)


def scan(draft: Draft) -> Draft:
    """Scans contiguous rows in blocks, within which ops before and after the scan are vectorised."""
    assert draft.vector is not None
    inner = [draft.level(name, "serial") for name in _joined(draft)]
    block = SCAN_BLOCK
    around: list[Level] = []
    while draft.size(draft.vector) > block or (draft.touches.extents[draft.vector] is None and not around):
        around.append(draft.level(draft.vector, "serial", block=block)._replace(is_partial=True))
        block *= SCAN_BLOCKS
    levels = (*_parallel(draft), *inner, *around[::-1], draft.level(draft.vector, "vector"))
    return draft._replace(levels=levels)


# --- the end of every recipe


def scalar(draft: Draft) -> Draft | None:
    """The vector loop becomes a scalar one. Legal if data decide what it loads, and if it reduces and scans nothing."""
    if draft.joined or not _gathers(draft):
        return None
    levels = (each._replace(kind="scalar") if each.kind == "vector" else each for each in draft.levels)
    return draft._replace(levels=tuple(levels))


def settle(draft: Draft) -> Draft:
    """A small kernel runs on one thread. Of a large one, threads share no more loops than they need.

    OpenMP counts the loops that threads share as one, which costs more than a short loop inside.
    """
    touches = draft.touches
    cost = sum(op_cost(op.name) for op in touches.kernel.body.ops)
    is_small = draft.size(*touches.axes) * cost < SERIAL_WORK
    levels, shared = list[Level](), 1
    for level in draft.levels:
        if level.kind == "parallel" and (is_small or shared >= SHARED_ITERATIONS):
            levels.append(level._replace(kind="serial"))
            continue
        if level.kind == "parallel" and level.extent is not None:
            shared *= level.parts or -(-level.extent // max(1, level.block))
        levels.append(level)
    return draft._replace(levels=tuple(levels))
