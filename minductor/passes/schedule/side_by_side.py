"""A step for short rows on a CPU: blocks of rows are transposed, and the lanes of a vector run over the rows.

Takes a draft of a kernel that reduces contiguous rows. Gives it with loops over blocks of rows, along a row and over
the rows of a block, and with the loads and stores that go through staging buffers. Refuses (None) what cannot be
transposed or would gain nothing: longer rows, a single reduction, several reduced axes, loads at indices that data
decide, masked operations, and integers.

The sum of a row has the same bits as along a vector loop: it has the same lanes, which are joined in the same order.
"""

from __future__ import annotations

from minductor.core.dtypes import BF16, F16, F32
from minductor.ir.program.nodes import Constant, Load, Op, Reduce, Round, Store
from minductor.passes.schedule.draft import Draft, Staged

SIDE = 16  # rows of a block: the widest vector of four-byte values
FEW_ROWS = 64  # fewer are not worth blocks of rows
# A row by itself waits for the join of its lanes before each further reduction. That costs more than transposing if the
# row is short and has two reductions in turn.
SHORT_ROW = 40  # elements; a softmax of rows of 40 in the cache is a fifth faster so, one outside of it no slower
SHORT_ROW_OF_BF16 = 64  # as the elements are transposed, they are widened too: a softmax of 64 is a fifth faster
IN_TURN = 2  # reductions


def rows_side_by_side(draft: Draft) -> Draft | None:
    """Reduces short rows side by side."""
    row = draft.vector
    if row is None or draft.joined != (row,) or draft.touches.scanned:
        return None
    length = draft.touches.extents[row]
    is_narrow = any(touch.dtype == BF16 for touch in draft.touches.touches)
    most = SHORT_ROW_OF_BF16 if is_narrow else SHORT_ROW
    if length is None or not 1 < length <= most or _reductions_in_turn(draft) < IN_TURN:
        return None
    beside = max(draft.kept, key=lambda name: (_share_used(draft.size(name)), draft.kept.index(name)), default=None)
    if beside is None or draft.size(*draft.kept) < FEW_ROWS:
        return None
    staged = _staged(draft, row, beside)
    if staged is None:
        return None
    levels = (
        *(draft.level(name, "parallel") for name in draft.kept if name != beside),
        draft.level(beside, "parallel", block=SIDE),
        draft.level(row, "serial")._replace(has_lanes=True, is_shared=True),
        draft.level(beside, "vector"),
    )
    return draft._replace(levels=levels, staged=staged)


def _reductions_in_turn(draft: Draft) -> int:
    """The most reductions of which each needs the one before."""
    ops = draft.kernel.body.ops
    count: list[int] = []
    for op in ops:
        count.append(max((count[a] for a in op.args), default=0) + isinstance(op.attrs, Reduce))
    return max(count)


def _share_used(rows: int) -> float:
    """The share of the rows in blocks of SIDE that exist."""
    return rows / (-(-rows // SIDE) * SIDE)


def _staged(draft: Draft, row: str, beside: str) -> Staged | None:
    """The loads and stores that go through staging buffers; None if some access or op stands against them."""
    ops = draft.kernel.body.ops
    accesses = iter(draft.touches.touches)
    loads, stores = set[int](), set[int]()
    for position, op in enumerate(ops):
        if isinstance(op.attrs, Load | Store):
            touch = next(accesses)
            if touch.dtype not in (F32, BF16, F16):
                return None
            along, across = touch.steps[row], touch.steps[beside]
            if along == 0 or across == 0:
                continue
            if along != 1 or across in (1, None):
                return None
            if isinstance(op.attrs, Load) and not op.args:
                loads.add(position)
            elif isinstance(op.attrs, Store) and {row, beside} <= {*ops[op.args[0]].axes}:
                stores.add(position)
            else:
                return None
        elif not _is_simple(op):
            return None
    return Staged(row, beside, frozenset(loads), frozenset(stores)) if loads else None


def _is_simple(op: Op) -> bool:
    """Whether an op may be computed for rows that do not exist, and needs no C++ beside the vector loop."""
    match op.attrs:
        case Reduce():
            return len(op.args) == 1 and op.dtype is not None and op.dtype.kind == "float"
        case None | Constant() | Round():
            return op.dtype is not None and op.dtype.kind in ("float", "bool")
        case _:
            return False
