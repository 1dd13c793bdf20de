"""What a kernel costs beyond its loads and stores: rows read again, registers spilled, operations repeated.

Takes a kernel, the buffers and the target. Gives bytes, to be added to those of `traffic`. Refuses nothing: a cost is 0
if the target does not state the size that decides it.

- Rows: a kernel that reduces a row and then uses the row again reads it twice. The second time it comes from a cache if
  all such rows fit there; otherwise its bytes count again.
- Registers: a thread of a GPU computes several points at once and needs registers for the live values of each. Values
  beyond that are spilled to memory. CPUs spill as well, but to the first-level cache, so this costs nothing there.
- Operations: a producer that is fused into loops over more axes than its own is computed once for each of their points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from minductor.analysis.domain import Solution, count_points
from minductor.analysis.passes_over import is_reduced, pass_numbers
from minductor.core.expressions.expr import as_int, free_symbols, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.cost.traffic import access_bytes
from minductor.ir.program.nodes import Axis, Body, Buffer, Kernel, Load, Masked, Reduce
from minductor.ir.program.ops import op_cost
from minductor.target import Target

LAUNCH = 16384  # bytes: those that could be moved in the time that launching one more kernel takes
CHEAP = 4  # operations for each element, which take no longer than loading it
ADDRESSES = 12  # registers of a thread that hold addresses and counters: about as many as in kernels for sm_90
WORD = 4  # bytes of a register
WIDEST = 16  # bytes of the largest element
# bytes for each spilled register of a point: the value is written and read back, and as much again is lost because
# fewer threads run at once if each needs so many registers
SPILL = 4 * WORD


def read_again(kernel: Kernel, table: Mapping[str, Buffer], target: Target, hints: Hints) -> int:
    """The bytes of rows that are read again after a reduction, if they do not fit the cache; else 0.

    The rows of all operands count together, against `target.cached_row_bytes`. A persistent reduction of a GPU keeps
    its row in registers and reads nothing again.
    """
    walked = {name for op in kernel.body.ops for name in op.reduced_axes}
    longest = len(kernel.body.ops) * estimate([axis.extent for axis in kernel.axes if axis.name in walked], hints)
    if not (walked and target.cached_row_bytes) or WIDEST * longest <= target.cached_row_bytes:
        return 0  # the largest rows that there could be fit: the usual case, found quickly
    columns = _columns(kernel.body)
    held = target.max_persistent_row
    if target.is_gpu and estimate([a.extent for a in kernel.axes if a.name in columns], hints) <= held:
        return 0  # a persistent reduction
    row = again = 0
    for load, times in _times(kernel.body, columns).items():
        if times > 1 and _runs_along(load, kernel, columns):
            names = {s.name for s in free_symbols(load.index)}
            size = table[load.ref.storage].dtype.itemsize
            row += size * estimate([a.extent for a in kernel.axes if a.name in columns & names], hints)
            again += (times - 1) * access_bytes(load.index, kernel, table[load.ref.storage], hints)
    return again if row > target.cached_row_bytes else 0


def _columns(body: Body) -> Set[str]:
    """The axes that are walked over again: a value varies over them that depends on a reduction over them."""
    found: set[str] = set()
    done: list[frozenset[str]] = []  # for each op the axes of the reductions that it depends on
    for op in body.ops:
        before = frozenset[str]().union(*(done[arg] for arg in op.args))
        found.update(before.intersection(op.axes))
        done.append(before.union(op.reduced_axes))
    return found


def _times(body: Body, columns: Set[str]) -> dict[Load, int]:
    """In how many passes over the row each load is needed: one for each reduction in a chain, and one after them."""
    level = pass_numbers(body.ops, range(len(body.ops)), lambda p: is_reduced(body.ops[p], body.ops))
    walks = [0] * len(body.ops)  # the passes that need each op, as bits
    for position in range(len(body.ops) - 1, -1, -1):
        op = body.ops[position]
        if op.is_effect or isinstance(op.attrs, Reduce):
            walks[position] |= 1 << level[position]
        for arg in op.args:
            if not columns.isdisjoint(body.ops[arg].axes):
                walks[arg] |= walks[position]
    return {op.attrs: walks[n].bit_count() for n, op in enumerate(body.ops) if isinstance(op.attrs, Load)}


def _runs_along(load: Load, kernel: Kernel, columns: Set[str]) -> bool:
    """Whether a load is contiguous along a row. Rows that are not are processed in blocks, which fit the cache."""
    split = linear(load.index, [axis.symbol for axis in kernel.axes])
    return split is not None and any(as_int(step) == 1 for s, step in split[0].items() if s.name in columns)


def spilled(kernel: Kernel, target: Target, hints: Hints) -> int:
    """The bytes that spilling registers costs; 0 on targets without `thread_registers`."""
    if not target.thread_registers:
        return 0
    room = (target.thread_registers - ADDRESSES) // target.values_per_thread
    return SPILL * max(0, alive(kernel.body) - room) * count_points(kernel, hints)


def alive(body: Body) -> int:
    """The largest number of registers that live values of one point need at once.

    Only values that vary over all axes of the kernel count; the others are shared by many points.
    """
    rank = max((len(op.axes) for op in body.ops), default=0)
    last = {arg: position for position, op in enumerate(body.ops) for arg in op.args}
    ends: dict[int, int] = {}
    now = most = 0
    for position, op in enumerate(body.ops):
        now -= ends.pop(position, 0)  # a result may use the register of an operand that dies
        if position in last and op.dtype is not None and len(op.axes) == rank:
            words = max(1, op.dtype.itemsize // WORD)
            now += words
            ends[last[position]] = ends.get(last[position], 0) + words
        most = max(most, now)
    return most


def operations(body: Body) -> int:
    """The operations that one point computes, loads and stores not counted."""
    return sum(op_cost(op.name) for op in body.ops if op.attrs is None or isinstance(op.attrs, Masked))


def repeated(source: Kernel, axes: Sequence[Axis], solution: Solution, target: Target, hints: Hints) -> int:
    """The operations that `source` repeats if it is fused into loops over `axes`, counted as one byte each.

    `solution` places the axes of `source` among `axes`. A loop around them over an axis that they do not need repeats
    `source` at each of its steps. On a GPU this is free: its threads would wait for memory in that time.
    """
    cost = operations(source.body)
    if target.is_gpu or cost <= CHEAP:
        return 0
    names = {symbol.name for place in solution.values() for symbol in free_symbols(place)}
    inner = max((number for number, axis in enumerate(axes) if axis.name in names), default=0)
    times = estimate([axis.extent for axis in axes[:inner] if axis.name not in names], hints)
    return cost * count_points(source, hints) * (times - 1)
