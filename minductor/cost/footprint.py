"""What a kernel costs on a target beyond its accesses: rows that leave the cache, values that leave the registers, and
what is computed again.

Takes a kernel, the buffers and the target. Gives bytes, to be added to those of `traffic`. Refuses nothing: what a
target does not say costs nothing.

A row that is walked over again behind a reduce comes from a cache, as long as it lies there. A thread of a GPU holds
some values of each op at once; those for which it has no register are written to memory and read back, and threads
with that many registers are few. A CPU has few registers and spills all the time, into its first cache: that costs
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from minductor.analysis.domain import Solution, count_points, estimate
from minductor.core.expressions.expr import as_int, free_symbols, linear
from minductor.cost.traffic import access_bytes
from minductor.ir.program.nodes import Axis, Body, Buffer, Kernel, Load, Masked, Op, Project, Reduce
from minductor.ir.program.ops import op_cost
from minductor.target import Target

LAUNCH = 16384  # what one more kernel costs, in bytes moved
CHEAP = 4  # operations that hide behind the load of their operand
ADDRESSES = 12  # registers of a thread that hold no value; kernels compiled for sm_90 show about as many
WORD = 4
WIDEST = 16  # bytes of an element
SPILL = 4 * WORD  # a word is written and read back, and twice that for the threads that then do not fit beside this one


def read_again(kernel: Kernel, table: Mapping[str, Buffer], target: Target) -> int:
    """The bytes of rows that are read once more behind a reduce, if together they are longer than the cache keeps."""
    walked = {name for op in kernel.body.ops if isinstance(op.attrs, Reduce) for name in op.attrs.axes}
    longest = len(kernel.body.ops) * estimate(axis.extent for axis in kernel.axes if axis.name in walked)
    if not (walked and target.row_bytes) or WIDEST * longest <= target.row_bytes:  # as nearly always
        return 0
    columns = _columns(kernel.body)
    if target.is_gpu and estimate(a.extent for a in kernel.axes if a.name in columns) <= target.held_row:
        return 0  # the program holds its row
    row = again = 0
    for load, times in _times(kernel.body, columns).items():
        if times > 1 and _runs_along(load, kernel, columns):
            names = {s.name for s in free_symbols(load.index)}
            size = table[load.ref.storage].dtype.itemsize
            row += size * estimate(a.extent for a in kernel.axes if a.name in columns & names)
            again += (times - 1) * access_bytes(load.index, kernel, table[load.ref.storage])
    return again if row > target.row_bytes else 0


def _columns(body: Body) -> Set[str]:
    """The axes over which something varies that waits for a reduce over them: they are walked over again."""
    found: set[str] = set()
    done: list[frozenset[str]] = []  # the axes that reduces before an op have run over
    for op in body.ops:
        before = frozenset[str]().union(*(done[arg] for arg in op.args))
        found.update(before.intersection(op.axes))
        done.append(before.union(op.attrs.axes) if isinstance(op.attrs, Reduce) else before)
    return found


def _times(body: Body, columns: Set[str]) -> dict[Load, int]:
    """In how many walks along a row each load is needed: one before each reduce in a chain of them, and one behind."""
    level: list[int] = []
    for op in body.ops:
        level.append(max((level[a] + _is_reduced(body.ops[a], body) for a in op.args), default=0))
    walks = [0] * len(body.ops)  # bits of levels
    for position in range(len(body.ops) - 1, -1, -1):
        op = body.ops[position]
        if op.is_effect or isinstance(op.attrs, Reduce):
            walks[position] |= 1 << level[position]
        for arg in op.args:
            if not columns.isdisjoint(body.ops[arg].axes):
                walks[arg] |= walks[position]
    return {op.attrs: walks[n].bit_count() for n, op in enumerate(body.ops) if isinstance(op.attrs, Load)}


def _is_reduced(op: Op, body: Body) -> bool:
    return isinstance(body.ops[op.args[0]].attrs if isinstance(op.attrs, Project) else op.attrs, Reduce)


def _runs_along(load: Load, kernel: Kernel, columns: Set[str]) -> bool:
    """Whether a load walks along contiguous columns; what stands in strides is worked on in blocks of rows."""
    split = linear(load.index, [axis.symbol for axis in kernel.axes])
    return split is not None and any(as_int(step) == 1 for s, step in split[0].items() if s.name in columns)


def spilled(kernel: Kernel, target: Target) -> int:
    """What it costs, in bytes, that a point keeps more alive at once than a thread holds."""
    if not target.thread_registers:
        return 0
    room = (target.thread_registers - ADDRESSES) // target.thread_values
    return SPILL * max(0, alive(kernel.body) - room) * count_points(kernel)


def alive(body: Body) -> int:
    """The most words of values that a point keeps at once; what varies over fewer axes than others takes no room."""
    rank = max((len(op.axes) for op in body.ops), default=0)
    last = {arg: position for position, op in enumerate(body.ops) for arg in op.args}
    ends: dict[int, int] = {}
    now = most = 0
    for position, op in enumerate(body.ops):
        now -= ends.pop(position, 0)  # a result may take the place of an operand
        if position in last and op.dtype is not None and len(op.axes) == rank:
            words = max(1, op.dtype.itemsize // WORD)
            now += words
            ends[last[position]] = ends.get(last[position], 0) + words
        most = max(most, now)
    return most


def operations(body: Body) -> int:
    """What one point computes, accesses aside."""
    return sum(op_cost(op.name) for op in body.ops if op.attrs is None or isinstance(op.attrs, Masked))


def repeated(source: Kernel, axes: Sequence[Axis], solution: Solution, target: Target) -> int:
    """The operations, each as a byte, that a kernel does again in loops over `axes`, of which it has only some.

    It does them for each point of the axes outside of its own. The threads of a GPU do so while they wait for memory.
    """
    cost = operations(source.body)
    if target.is_gpu or cost <= CHEAP:
        return 0
    names = {symbol.name for place in solution.values() for symbol in free_symbols(place)}
    inner = max((number for number, axis in enumerate(axes) if axis.name in names), default=0)
    times = estimate(axis.extent for axis in axes[:inner] if axis.name not in names)
    return cost * count_points(source) * (times - 1)
