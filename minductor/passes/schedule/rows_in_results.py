"""Keeps rows where a store writes later, and not in arrays of their own.

Takes a placed schedule and its draft. Gives the schedule in which a row is paired with a store that writes each of its
elements after the last reader of the row. Refuses nothing: a row stays in its array if it is short, if the store
converts it, if an op reads it after the store, or if the kernel loads what it writes. It also stays if a load behind it
has the index of the store: stage `memory` could not put the result in place of that operand any more.

The lines of a result are then in the cache when the result is written: they were fetched while the row was computed,
which takes longer than to fetch them. A softmax of long rows takes three quarters of the time (benchmarks/paired.md).
Arrays of short rows stay in the first-level cache, and cost nothing. Rows of a length that only the call knows fit no
array, and are computed again where no result holds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minductor.ir.program.loops import Loop, Schedule, Step, loops, positions
from minductor.ir.program.nodes import Atomic, Load, Op, Store, all_ops, body_reads
from minductor.passes.schedule.draft import Draft

SHORT = 3 * 1024  # bytes of a row, up to which it stays in an array


def keep_in_results(schedule: Schedule, draft: Draft, held: frozenset[int] = frozenset()) -> Schedule:
    """The schedule with rows paired with stores; each store is of one row. `held`: those that may have any length."""
    pairs: dict[int, int] = {}
    length = None if draft.vector is None else draft.touches.extents[draft.vector]
    kept = [p for p in reversed(schedule.kept_rows) if length is not None or p in held]
    for store in _stores(draft):
        rows = (p for p in kept if p not in pairs and _fits(p, store, schedule.steps, draft))
        if (row := next(rows, None)) is not None:
            pairs[row] = store
    return replace(schedule, rows_in_results=tuple(sorted(pairs.items())))


def held_by_results(draft: Draft) -> frozenset[int]:
    """The values of which a row may lie where a store writes, if only the call knows how long rows are."""
    if draft.vector is None or draft.touches.extents[draft.vector] is not None or draft.touches.scanned:
        return frozenset()
    ops = draft.kernel.body.ops
    stores = [ops[p] for p in _stores(draft)]
    alike = {(ops[store.args[0]].dtype, frozenset(store.axes)) for store in stores}
    return frozenset(p for p, op in enumerate(ops) if op.attrs is None and (op.dtype, frozenset(op.axes)) in alike)


def _stores(draft: Draft) -> Iterator[int]:
    """The stores that write floats as they are computed, along the vector axis, to storages that nothing else uses."""
    kernel = draft.kernel
    accesses = [op for op in all_ops(kernel.body) if isinstance(op.attrs, Load | Store | Atomic)]
    touches = {id(op): touch for op, touch in zip(accesses, draft.touches.touches, strict=True)}
    written = [op.attrs.ref.storage for op in accesses if isinstance(op.attrs, Store | Atomic)]
    loaded = {load.ref.storage for load in body_reads(kernel.body)}
    for position, op in enumerate(kernel.body.ops):
        if not isinstance(op.attrs, Store) or draft.vector is None:
            continue
        touch, storage = touches[id(op)], op.attrs.ref.storage
        is_alone = written.count(storage) == 1 and storage not in loaded
        is_same = touch.dtype.kind == "float" and touch.dtype == kernel.body.ops[op.args[0]].dtype
        if is_alone and is_same and touch.steps[draft.vector] == 1:
            yield position


def _fits(row: int, store: int, steps: Sequence[Step], draft: Draft) -> bool:
    """Whether the elements of a row may lie where the store writes."""
    ops, extents = draft.kernel.body.ops, draft.touches.extents
    value, dtype = ops[row], ops[row].dtype
    if dtype is None or draft.vector not in value.axes or set(value.axes) != set(ops[store].axes):
        return False
    extent = extents[draft.vector]
    if extent is not None and extent * dtype.itemsize <= SHORT:
        return False
    return dtype == ops[ops[store].args[0]].dtype and _is_read_before(row, store, steps, ops)


def _is_read_before(row: int, store: int, steps: Sequence[Step], ops: Sequence[Op]) -> bool:
    """Whether the store runs after all readers of the row, and after the loads of what it may be written in place of.

    One step computes the row, a later one stores, and no loop runs past the end of its axis.
    """
    inside = [set(positions((step,))) for step in steps]
    computed = [n for n, here in enumerate(inside) if row in here]
    (stored,) = [n for n, here in enumerate(inside) if store in here]
    if computed == [stored]:
        step = steps[stored]
        return isinstance(step, Loop) and _is_read_before(row, store, step.body, ops)
    if len(computed) != 1 or computed[0] > stored or any(loop.is_whole for loop in loops(steps)):
        return False
    last = next((loop for loop in loops(steps[stored : stored + 1]) if store in loop.own_positions), None)
    if last is None:  # one loop computes the row and stores
        return False
    before = {p for p in last.own_positions if p < store}
    users = {p for p, op in enumerate(ops) if row in op.args}
    index = ops[store].attrs
    assert isinstance(index, Store)
    later = set(positions(steps[computed[0] + 1 :]))
    reloads = any(isinstance(attrs := ops[p].attrs, Load) and attrs.index == index.index for p in later)
    return not reloads and users.isdisjoint(set(positions(steps[stored + 1 :]))) and users & inside[stored] <= before
