"""The steps of a recipe for a CPU: which loops run in parallel, which one is vectorised, and in what order.

Each takes a `Draft` and gives it with more levels, or None where it is not legal or cannot pay.

The vector loop runs along the axis along which most bytes are contiguous. If no reduction runs over this axis, the
kernel works on blocks of it: the loops over reduced axes are inside, with one accumulator for each element of the
block. If a reduction does run over it, the kernel works row by row, with a fixed number of accumulators along the row.
If that leaves too few rows or blocks for the threads, a reduced axis is cut into parts. Their number depends on the
shape alone, so bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.analysis.both_ways import both_ways, most_parts, objection
from minductor.analysis.strides import constant_step, step_of
from minductor.ir.program.nodes import Atomic, Load, Masked, Op, Reduce
from minductor.ir.program.ops import op_cost
from minductor.passes.schedule.draft import Draft, Level, Staged
from minductor.passes.schedule.gathers import places_of
from minductor.passes.schedule.narrow import in_two_steps, narrow

FEW = 16  # parallel steps; fewer leave threads idle
PARTS = 64  # the largest number of parts of a reduced axis
SERIAL_WORK = 16 * 1024  # operations of a kernel; starting threads for fewer costs more than it saves
PART_WORK = 16 * 1024  # elements of a part of a reduction that are worth a thread
POINTWISE_BLOCK = 4096  # elements of a block of the vector axis, in a kernel without reductions
GATHER_COST = 24  # operations; with more, vector arithmetic gains what the slow gathers of the vector unit lose
PLACES_COST = 8  # operations that compute where to gather; more are worth a vector loop with slow gathers
GATHERED_COST = 5  # operations with gathered values that are worth a vector loop of their own
GATHERED_STRIP = 256  # elements that are gathered before that loop
SHARED_COST = 6  # operations for an index that several rows share; fewer cost less than keeping the index
SHARED_BLOCK = 128  # such indices that are kept
SHARING_BLOCK = 64  # rows that use them
COLUMN_BLOCK = 256  # accumulators of a kernel that reduces columns, if there are enough blocks for the threads
WIDE_COLUMN_BLOCK = 1024  # accumulators, if the rows are cut into parts instead: reads are contiguous for longer
SCAN_BLOCK = 512  # elements of a row around a scan; values kept between its loops then fit the first-level cache
SCAN_BLOCKS = 32  # blocks of a scan in a block around them
CROSSING_BLOCK = 128  # elements along which a transposed load is contiguous: several whole cache lines
CROSSED_BLOCK = 16  # elements along the vector axis of a transposed load: one cache line of the result


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
    """Threads share blocks of the vector axis; pays if it is long and the other axes are few steps."""
    outer = _parallel(draft, draft.vector)
    if draft.vector is None or (outer and draft.size(*(level.axis for level in outer)) >= FEW):
        return None
    extent = draft.touches.extents[draft.vector]
    if extent is not None and extent < 2 * POINTWISE_BLOCK:
        return None
    split = draft.level(draft.vector, "parallel", block=POINTWISE_BLOCK)
    return draft._replace(levels=(*outer, split, draft.level(draft.vector, "vector")))


def transpose(draft: Draft) -> Draft | None:
    """Loads that are contiguous along another axis than the vector axis fill a staging buffer, block by block."""
    if draft.vector is None:
        return None
    for crossing in reversed([name for name in draft.kept if name != draft.vector]):
        if loads := _jumping(draft, crossing, draft.vector):
            break
    else:
        return None
    levels = (
        *_parallel(draft, crossing, draft.vector),
        draft.level(crossing, "parallel", block=CROSSING_BLOCK),
        draft.level(draft.vector, "parallel", block=CROSSED_BLOCK),
        draft.level(crossing, "serial"),
        draft.level(draft.vector, "vector"),
    )
    return draft._replace(levels=levels, staged=Staged(crossing, draft.vector, loads))


def _jumping(draft: Draft, crossing: str, vector: str) -> frozenset[int]:
    """The positions of the loads that are contiguous along `crossing` and strided along the vector axis."""
    found: set[int] = set()
    for position, op in enumerate(draft.kernel.body.ops):
        if isinstance(op.attrs, Load) and not op.args:
            along, across = (constant_step(op, draft.touches.axes[n].symbol) for n in (crossing, vector))
            if along == 1 and across not in (0, 1, None):
                found.add(position)
    return frozenset(found)


def share_indices(draft: Draft) -> Draft | None:
    """Gathers keep the indices that several rows use again; pays if computing these costs more than keeping them."""
    vector = draft.vector
    if vector is None or not _gathers(draft):
        return None
    kept = [name for name in draft.kept if name != vector]
    costs = {name: sum(op_cost(op.name) for op in _shared(draft, name)) for name in kept}
    worth = (name for name in kept if costs[name] >= SHARED_COST and draft.size(name) >= FEW)
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
    """A scalar loop over a strip loads what lies at loaded places; pays if the vector loop behind it does the work."""
    vector, ops = draft.vector, draft.kernel.body.ops
    gathers = _gathers(draft)
    if vector is None or not gathers or any(isinstance(op.attrs, Masked | Atomic) for op in ops):
        return None
    inside = [p for p, op in enumerate(ops) if vector in op.axes]
    first = places_of(inside, ops, gathers)
    rest = set(inside) - first
    before, behind = (sum(op_cost(ops[p].name) for p in part) for part in (first, rest))
    if before > PLACES_COST or behind < GATHERED_COST:
        return None
    made = blocks(draft) or elements(draft)
    extent = draft.touches.extents[vector]
    if extent is None or extent > GATHERED_STRIP:
        strip = draft.level(vector, "serial", block=GATHERED_STRIP)
        made = made._replace(levels=(*made.levels[:-1], strip, made.levels[-1]))
    return made._replace(gathers=gathers)


def _gathers(draft: Draft) -> frozenset[int]:
    """The positions of the loads that vary along the vector axis, at an index that data decide."""
    if draft.vector is None:
        return frozenset()
    axis = draft.touches.axes[draft.vector].symbol
    loads = ((p, op) for p, op in enumerate(draft.kernel.body.ops) if isinstance(op.attrs, Load))
    return frozenset(p for p, op in loads if draft.vector in op.axes and step_of(op, axis) is None)


def scatter(draft: Draft) -> Draft:
    """Axes along which two writes may hit one element run in order, on one thread; the others around or inside them."""
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
    if draft.size(*rest) < FEW and (extent is None or extent > COLUMN_BLOCK):
        outer.append(draft.level(vector, "parallel", block=COLUMN_BLOCK))
    return draft._replace(levels=(*outer, *in_order, draft.level(vector, "vector")))


# --- reductions and scans


def rows(draft: Draft) -> Draft:
    """Row by row: the vector loop runs along the row. Always legal where a reduction runs along the vector axis."""
    return draft._replace(levels=(*_parallel(draft), *_inner(draft, _joined(draft))))


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
    """Threads share parts of the longest reduced axis; pays if the parallel loops are few steps around much work."""
    vector = draft.vector
    if vector is None or draft.touches.scanned:
        return None
    outer = [level for level in draft.levels if level.kind == "parallel"]
    inner = draft.levels[len(outer) :]
    steps, work = (draft.size(*(each.axis for each in levels if each.axis != vector)) for levels in (outer, inner))
    width = draft.size(vector)
    if vector in draft.kept:
        # columns that only the call counts may be few, while parts of the rows keep the threads busy in any case
        steps *= 1 if draft.touches.extents[vector] is None else -(-width // COLUMN_BLOCK)
        width = min(width, WIDE_COLUMN_BLOCK)
    work *= width
    if steps >= FEW or work < 2 * PART_WORK:
        return None
    split = max(_split_axes(draft), key=draft.size, default=None)
    if split is None:
        return None
    part = _part(draft, split, min(PARTS, max(2, work // PART_WORK)))
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


def rows_and_columns(draft: Draft) -> Draft | None:
    """Reduces rows and columns in one pass, row by row; each part of the rows has accumulators for all columns."""
    kernel, touches = draft.kernel, draft.touches
    ways = both_ways(kernel.body, kernel.axes)
    if ways is None or objection(kernel.body, kernel.axes, ways, touches.hints) is not None:
        return None
    vector = max(reversed([n for n in touches.axes if n in ways.columns]), key=touches.contiguous_bytes)
    joined = touches.by_stride([n for n in touches.axes if n != vector])
    down = [n for n in joined if n in ways.rows]
    inner = [*down, *(n for n in joined if n in ways.columns)]
    most = most_parts(kernel.body, kernel.axes, ways, touches.hints) or 1
    count = min(PARTS, most, draft.size(*touches.axes) // PART_WORK)
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


def settle(draft: Draft) -> Draft:
    """A loop that does little but gather is not vectorised, and a small kernel runs on one thread."""
    touches, levels = draft.touches, draft.levels
    cost = sum(op_cost(op.name) for op in touches.kernel.body.ops)
    is_gather = not touches.reduced and not touches.scanned and cost <= GATHER_COST and bool(_gathers(draft))
    if is_gather and not draft.gathers:
        levels = tuple(each._replace(kind="scalar") if each.kind == "vector" else each for each in levels)
    if draft.size(*touches.axes) * cost < SERIAL_WORK:
        levels = tuple(each._replace(kind="serial") if each.kind == "parallel" else each for each in levels)
    return draft._replace(levels=levels)
