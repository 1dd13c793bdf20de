"""Counts the bytes that a kernel reads and writes, and its operations.

Takes kernels and buffers. Gives a `Cost`; costs can be added. The rule: a kernel reads and writes each distinct element
of a buffer once. `minductor bench --counts` applies the same rule to the kernels of another compiler. Refuses nothing:
a size that only the call knows is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from minductor.core.expressions.bounds import interval
from minductor.core.expressions.expr import Expr, as_int, free_symbols, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.nodes import Atomic, Buffer, Kernel, Load, Store, all_ops
from minductor.ir.program.ops import op_cost


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes read, bytes written, and vector operations (the unit of `ops.py`)."""

    read: int = 0
    written: int = 0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.read + other.read, self.written + other.written, self.operations + other.operations)

    @property
    def bytes(self) -> int:
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class ElementSet:
    """A set of elements of a buffer: from `start`, loops of (stride, length), the innermost first; `count` elements.

    `count` is None if data decide the elements. Equal sets are the same elements; unequal sets count as disjoint.
    """

    start: object
    loops: tuple[tuple[int, int], ...]
    count: int | None


def element_set(start: Any, loops: Iterable[tuple[int, int]]) -> ElementSet:
    """The elements that affine loops reach, in canonical form: ascending strides, contiguous loops merged into one.

    >>> element_set(0, [(64, 8), (1, 64)])
    ElementSet(start=0, loops=((1, 512),), count=512)
    >>> element_set(511, [(-1, 512)]) == element_set(0, [(64, 8), (1, 64)])
    True
    >>> element_set(0, [(2, 16), (1, 3)]).count  # windows that overlap
    33
    """
    joined: list[tuple[int, int]] = []
    ascending: list[tuple[int, int]] = []
    for stride, length in loops:
        if stride < 0:
            start = start + stride * (length - 1)
        if stride and length > 1:
            ascending.append((abs(stride), length))
    for stride, length in sorted(ascending):
        below = joined[-1] if joined else (0, 0)
        if below[0] and stride % below[0] == 0 and stride <= below[0] * below[1]:
            joined[-1] = (below[0], below[1] + stride // below[0] * (length - 1))
        else:
            joined.append((stride, length))
    return ElementSet(start, tuple(joined), prod(length for _, length in joined))


def distinct_elements(regions: Iterable[ElementSet], elements: int) -> int:
    """The number of a buffer's elements in the union of these sets; `elements`: the size of the buffer."""
    return min(elements, sum(elements if each.count is None else each.count for each in set(regions)))


def kernel_cost(kernel: Kernel, buffers: Mapping[str, Buffer], hints: Hints) -> Cost:
    """Bytes and operations of one launch, with unknown sizes estimated."""
    extents = {axis.name: estimate(axis.extent, hints) for axis in kernel.axes}
    read: dict[str, set[ElementSet]] = {}
    written: dict[str, set[ElementSet]] = {}
    operations = 0
    for op in all_ops(kernel.body):
        points = 1
        for axis in op.axes:
            points *= extents.get(axis, 1)
        operations += op_cost(op.name) * points
        match op.attrs:
            case Load(ref, index):
                read.setdefault(ref.storage, set()).add(_region(index, kernel, extents))
            case Store(ref, index) | Atomic(ref, index, _):
                written.setdefault(ref.storage, set()).add(_region(index, kernel, extents))
            case _:
                pass
    return Cost(_bytes(read, buffers, hints), _bytes(written, buffers, hints), operations)


def _bytes(table: Mapping[str, set[ElementSet]], buffers: Mapping[str, Buffer], hints: Hints) -> int:
    return sum(
        distinct_elements(regions, estimate(buffers[name].size, hints)) * buffers[name].dtype.itemsize
        for name, regions in table.items()
    )


def _region(index: Expr, kernel: Kernel, extents: Mapping[str, int]) -> ElementSet:
    """The elements that an index of a kernel reaches; data may decide an index, which then may be any element."""
    symbols = [axis.symbol for axis in kernel.axes]
    used = free_symbols(index)
    if any(symbol.kind == "value" for symbol in used):
        return ElementSet(str(index), (), None)
    split = linear(index, symbols)
    if split is not None:
        loops = [(as_int(c), extents[axis.name]) for axis, c in split[0].items()]
        known = [(c, n) for c, n in loops if c is not None]
        if len(known) == len(loops):
            return element_set(split[1], known)
    points = prod(extents.get(symbol.name, 1) for symbol in used)
    low, high = interval(index, {axis.symbol: axis.extent for axis in kernel.axes})
    span = points if low is None or high is None else high - low + 1
    return ElementSet(str(index), (), min(points, span))
