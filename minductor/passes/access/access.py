"""Says of every load and store how it moves: along the vector loop that it stands in, or as a block of a GPU's tile.

Takes a Program whose kernels have schedules; gives it with an Access for each load, store and atomic of a kernel. On a
GPU those in masked regions are among them, and `options.block_access` says in which form blocks are to be spelled; what
that form cannot say is spelled by offsets, with a note that says why. Refuses nothing: what fits no kind is a gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from minductor.analysis.blocks import MaskContext, block_of, memory_ops
from minductor.analysis.strides import step_of
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, as_int, free_symbols
from minductor.ir.program.memory_access import ZERO, Access, BlockAccess, BlockForm
from minductor.ir.program.nodes import (
    CALL_SYMBOL_KINDS,
    Atomic,
    Body,
    Kernel,
    Load,
    NodeNote,
    Op,
    Program,
    Store,
    Variant,
)
from minductor.ir.program.schedule import Schedule, loops, positions
from minductor.passes.access.block_forms import Tile, why_not_descriptor, why_not_pointer
from minductor.target import Env


def access(program: Program, env: Env) -> Program:
    """Kernels without a schedule, and those that are classified already, stay."""
    dtypes = {name: buffer.dtype for name, buffer in program.real_table().items()}
    notes: list[NodeNote] = []
    nodes = tuple(_classified(node, dtypes, env, notes) if isinstance(node, Kernel) else node for node in program.nodes)
    return program if nodes == program.nodes else replace(program, nodes=nodes, notes=(*program.notes, *notes))


def _classified(kernel: Kernel, dtypes: Mapping[str, DType], env: Env, notes: list[NodeNote]) -> Kernel:
    """The kernel with its accesses, and its variants with theirs."""
    variants: list[Variant] = []
    for variant in kernel.variants:
        inner = {**dtypes, **{buffer.name: buffer.dtype for buffer in variant.buffers}}
        nodes = (_classified(n, inner, env, notes) if isinstance(n, Kernel) else n for n in variant.nodes)
        variants.append(replace(variant, nodes=tuple(nodes)))
    if kernel.schedule is None or kernel.access:
        return replace(kernel, variants=tuple(variants))
    if not env.target.is_gpu:
        return replace(kernel, variants=tuple(variants), access=tuple(_along_vectors(kernel, kernel.schedule)))
    tile = _TileAccesses(kernel, dtypes, env)
    found = tuple(tile.access(*place) for place in memory_ops(kernel.body, tile.axes))
    notes += tile.notes
    return replace(kernel, variants=tuple(variants), access=found)


def _touching(body: Body) -> Iterator[tuple[int, Op]]:
    for position, op in enumerate(body.ops):
        if isinstance(op.attrs, Load | Store | Atomic):
            yield position, op


# --- CPU ----------------------------------------------------------------------------------------------------------


def _along_vectors(kernel: Kernel, schedule: Schedule) -> Iterator[Access]:
    vector = vector_axes(schedule)
    symbols = {axis.name: axis.symbol for axis in kernel.axes}
    for position, op in _touching(kernel.body):
        axis = vector.get(position)
        yield _access(position, ZERO if axis is None else step_of(op, symbols[axis]))


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


# --- GPUs ---------------------------------------------------------------------------------------------------------


class _TileAccesses:
    """The accesses of one kernel."""

    def __init__(self, kernel: Kernel, dtypes: Mapping[str, DType], env: Env) -> None:
        assert kernel.schedule is not None
        self.kernel = kernel
        self.dtypes = dtypes
        self.target = env.target
        self.wanted: BlockForm = cast("BlockForm", env.options.block_access)
        axes = {axis.name: axis for axis in kernel.axes}
        blocks: dict[str, int] = {}
        for loop in loops(kernel.schedule.steps):
            blocks.setdefault(loop.axis, max(1, loop.block))
        # in the order of the tile; an axis that nothing moves along has no loop
        self.axes = [axes[name] for name in blocks]
        self.tile = Tile(blocks, {name: axes[name].extent for name in blocks})
        self.notes: list[NodeNote] = []

    def access(self, position: int, op: Op, context: MaskContext) -> Access:
        assert isinstance(op.attrs, Load | Store | Atomic)
        outer, *inside = (*context.path, position)
        index = op.attrs.index
        if not any(s.kind not in CALL_SYMBOL_KINDS for s in free_symbols(index)):
            return Access(outer, "scalar", inside=tuple(inside))
        block = block_of(op, self.axes, context)
        if block is None or not block.is_exact(self.tile.blocks):
            return Access(outer, "gather", inside=tuple(inside))
        if not block.dims:
            return Access(outer, "scalar", inside=tuple(inside))
        form = self.form(op, block, context)
        return Access(outer, "block", inside=tuple(inside), block=block, form=form)

    def form(self, op: Op, block: BlockAccess, context: MaskContext) -> BlockForm:
        """How it is spelled."""
        assert isinstance(op.attrs, Load | Store | Atomic)
        storage = op.attrs.ref.storage
        if self.wanted == "offsets":
            return "offsets"
        if isinstance(op.attrs, Atomic):
            reason = "an atomic takes addresses"
        elif not context.is_masked_by_bounds(block):
            reason = "what it depends on is no window of its axes"
        elif isinstance(op.attrs, Store) and len(block.moving()) < len(block.dims):
            reason = "several points store one element"
        elif self.wanted == "pointer":
            reason = why_not_pointer(block, self.tile)
        elif not self.target.has_descriptors:
            reason = f"{self.target.name} has no descriptors"
        else:
            reason = why_not_descriptor(block, self.tile, self.dtypes[storage])
        if not reason:
            return self.wanted
        self.notes.append(NodeNote("access", self.kernel.name, f"{storage} is no {self.wanted}: {reason}"))
        return "offsets"
