"""What a node moves and computes, as data that adds up.

Takes nodes and buffers; gives bytes by one rule: a kernel reads and writes each distinct element of a
buffer once.
Refuses to guess: a size that is not a number counts by the caller's hint, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minductor.core.expr import Expr, as_int, free_symbols
from minductor.ir.nodes import Atomic, Body, Buffer, Kernel, Load, Store
from minductor.ir.ops import op_cost
from minductor.ir.signature import all_ops


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes read and written, and vector operations."""

    read: int = 0
    written: int = 0
    operations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.read + other.read, self.written + other.written, self.operations + other.operations)

    @property
    def bytes(self) -> int:
        return self.read + self.written


def body_cost(body: Body) -> int:
    """Operations of one evaluation of each op, regions included."""
    return sum(op_cost(op.name) for op in all_ops(body))


def kernel_cost(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Cost:
    """Bytes and operations of one launch with static sizes; unknown extents count as 1."""
    extents = {axis.name: as_int(axis.extent) or 1 for axis in kernel.axes}
    read: dict[str, int] = {}
    written: dict[str, int] = {}
    operations = 0
    for op in all_ops(kernel.body):
        points = 1
        for axis in op.axes:
            points *= extents.get(axis, 1)
        operations += op_cost(op.name) * points
        match op.attrs:
            case Load(ref, index):
                _count(read, ref.storage, index, extents, buffers)
            case Store(ref, index) | Atomic(ref, index, _):
                _count(written, ref.storage, index, extents, buffers)
            case _:
                pass
    return Cost(sum(read.values()), sum(written.values()), operations)


def _count(
    table: dict[str, int], storage: str, index: Expr, extents: Mapping[str, int], buffers: Mapping[str, Buffer]
) -> None:
    """Adds the elements that an index touches, at most the whole buffer."""
    buffer = buffers[storage]
    whole = 1
    for size in buffer.size:
        whole *= as_int(size) or 1
    touched = 1
    for symbol in free_symbols(index):
        touched *= extents.get(symbol.name, 1) if symbol.kind == "axis" else whole if symbol.kind == "value" else 1
    table[storage] = min(whole * buffer.dtype.itemsize, table.get(storage, 0) + touched * buffer.dtype.itemsize)
