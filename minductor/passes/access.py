"""Says of every load and store how it moves along the vector loop that it stands in.

Takes a Program whose kernels have schedules; gives it with an Access for each load, store and atomic of a kernel's body
(not for those in masked regions, which may not run). Refuses nothing: what fits no kind is a gather.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minductor.core.expr import Expr, as_int, free_symbols, integer, linear
from minductor.ir.access import Access
from minductor.ir.nodes import Atomic, Kernel, Load, Op, Program, Store, Variant
from minductor.ir.schedule import Schedule, loops, positions
from minductor.passes.strides import step_of
from minductor.target import Env


def access(program: Program, env: Env) -> Program:
    """Kernels without a schedule, and those that are classified already, stay."""
    del env  # a fact of index and loop alone
    nodes = tuple(classified(node) if isinstance(node, Kernel) else node for node in program.nodes)
    return program if nodes == program.nodes else replace(program, nodes=nodes)


def classified(kernel: Kernel) -> Kernel:
    """The kernel with its accesses."""
    if kernel.variants:
        kernel = replace(kernel, variants=tuple(_variant(variant) for variant in kernel.variants))
    if kernel.schedule is None:
        return kernel
    if any(loop.kind == "grid" for loop in loops(kernel.schedule.steps)):
        return replace(kernel, access=tuple(_tile_access(p, op) for p, op in _touching(kernel)))
    vector = vector_axes(kernel.schedule)
    symbols = {axis.name: axis.symbol for axis in kernel.axes}
    found: list[Access] = []
    for position, op in _touching(kernel):
        axis = vector.get(position)
        step = integer(0) if axis is None else step_of(op, symbols[axis])
        found.append(_access(position, step))
    return replace(kernel, access=tuple(found))


def _variant(variant: Variant) -> Variant:
    nodes = tuple(classified(node) if isinstance(node, Kernel) else node for node in variant.nodes)
    return replace(variant, nodes=nodes)


def _touching(kernel: Kernel) -> Iterator[tuple[int, Op]]:
    for position, op in enumerate(kernel.body.ops):
        if isinstance(op.attrs, Load | Store | Atomic):
            yield position, op


def _tile_access(position: int, op: Op) -> Access:
    """A tile of a GPU is a block of memory where the index is a sum of multiples of axes."""
    assert isinstance(op.attrs, Load | Store | Atomic)
    index = op.attrs.index
    moving = [s for s in free_symbols(index) if s.kind not in ("size", "real", "truth")]
    split = linear(index, moving)
    if any(s.kind != "axis" for s in moving) or split is None:
        return Access(position, "gather")
    return Access(position, "block" if moving else "scalar")


def vector_axes(schedule: Schedule) -> dict[int, str]:
    """The axis of the vector loop that each position stands in, or of the scalar one that it would be."""
    found: dict[int, str] = {}
    for loop in loops(schedule.steps):
        if loop.kind in ("vector", "scalar"):
            for position in positions((loop,)):  # what a tree inside computes, too
                found.setdefault(position, loop.axis)
    return found


def _access(position: int, step: Expr | None) -> Access:
    if step is None:
        return Access(position, "gather")
    count = as_int(step)
    if count == 0:
        return Access(position, "scalar")
    if count == 1:
        return Access(position, "block", step)
    if count is not None or all(s.kind == "size" for s in free_symbols(step)):
        return Access(position, "strided", step)
    return Access(position, "gather")
