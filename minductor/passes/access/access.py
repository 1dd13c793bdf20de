"""Classifies every load and store: how it moves along the vector loop of a CPU, or which block a GPU's tile touches.

Takes a Program whose kernels have schedules. Gives it with an Access for each load, store and atomic of its kernels; on
a GPU also for those under a mask. `options.block_access` names the form in which blocks are addressed on a GPU: by
offsets, by block pointers, or by tensor descriptors. A block that this form cannot express is addressed by offsets, and
a note says why. Another note says if sizes decide how many bits a kernel's indices have. Loads and stores on a GPU also
get their hints for the cache (`evictions.py`). Refuses nothing: an access that is no block, no stride and no scalar is
a gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

from minductor.analysis.blocks import MaskContext, block_of, memory_ops
from minductor.analysis.greatest_index import greatest_index
from minductor.analysis.strides import step_of
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, as_int, free_symbols
from minductor.ir.artefact.launch_metadata import MOST_IN_INT32
from minductor.ir.program.loops import Schedule, loops, positions
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
from minductor.ir.program.variant_note import VariantNote
from minductor.passes.access.block_forms import TileShape, why_not_descriptor, why_not_pointer
from minductor.passes.access.evictions import with_evictions
from minductor.target import Env

# as notes for the user name them
FORM_NAMES: Mapping[str, str] = {"pointer": "block pointer", "descriptor": "tensor descriptor"}


def access(program: Program, env: Env) -> Program:
    """The program with its accesses. Kernels without a schedule, or with accesses already, stay as they are."""
    dtypes = {name: buffer.dtype for name, buffer in program.real_table().items()}
    notes: list[NodeNote | VariantNote] = []
    nodes = tuple(_classified(node, dtypes, env, notes) if isinstance(node, Kernel) else node for node in program.nodes)
    return program if nodes == program.nodes else replace(program, nodes=nodes, notes=(*program.notes, *notes))


def _classified(kernel: Kernel, dtypes: Mapping[str, DType], env: Env, notes: list[NodeNote | VariantNote]) -> Kernel:
    """The kernel with its accesses, and those of its variants.

    `notes` takes the refusals of a form, and what decides how many bits indices have.
    """
    variants: list[Variant] = []
    for variant in kernel.variants:
        inner = {**dtypes, **{buffer.name: buffer.dtype for buffer in variant.buffers}}
        nodes = (_classified(n, inner, env, notes) if isinstance(n, Kernel) else n for n in variant.nodes)
        variants.append(replace(variant, nodes=tuple(nodes)))
    if kernel.schedule is None or kernel.access:
        return replace(kernel, variants=tuple(variants))
    if not env.target.is_gpu:
        return replace(kernel, variants=tuple(variants), access=tuple(_cpu_accesses(kernel, kernel.schedule)))
    if (greatest := greatest_index(kernel)) is not None and as_int(greatest) is None:
        figures = f"int32 while {greatest} is at most {MOST_IN_INT32}"
        notes.append(VariantNote("access", kernel.name, "int32", "size", ("int32", "int64"), figures))
    tile = _GpuAccesses(kernel, dtypes, env)
    found = tuple(tile.access(*place) for place in memory_ops(kernel.body, tile.axes))
    notes += tile.notes
    return with_evictions(replace(kernel, variants=tuple(variants), access=found))


def _memory_ops(body: Body) -> Iterator[tuple[int, Op]]:
    """The loads, stores and atomics of a body, with their positions; those under a mask not included."""
    for position, op in enumerate(body.ops):
        if isinstance(op.attrs, Load | Store | Atomic):
            yield position, op


# --- CPU ----------------------------------------------------------------------------------------------------------


def _cpu_accesses(kernel: Kernel, schedule: Schedule) -> Iterator[Access]:
    """The accesses of a kernel for a CPU, by their step along the vector loop around them."""
    vector = vector_axes(schedule)
    symbols = {axis.name: axis.symbol for axis in kernel.axes}
    for position, op in _memory_ops(kernel.body):
        axis = vector.get(position)
        yield _cpu_access(position, ZERO if axis is None else step_of(op, symbols[axis]))


def vector_axes(schedule: Schedule) -> dict[int, str]:
    """By position the axis of the vector loop around an op, or of the scalar loop that stands in its place."""
    found: dict[int, str] = {}
    for loop in loops(schedule.steps):
        if loop.kind in ("vector", "scalar"):
            for position in positions((loop,)):  # with those of a tree loop inside
                found.setdefault(position, loop.axis)
    return found


def _cpu_access(position: int, step: Expr | None) -> Access:
    """The access of an op that moves by `step` elements along its vector loop; None: data decide where it is."""
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


class _GpuAccesses:
    """The accesses of one kernel for a GPU, with a note for each block that has not the wanted form."""

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
        # In the order of the tile. An axis along which nothing changes has no loop.
        self.axes = [axes[name] for name in blocks]
        self.tile = TileShape(blocks, {name: axes[name].extent for name in blocks})
        self.is_aligned = any(loop.aligned for loop in loops(kernel.schedule.steps))
        self.notes: list[NodeNote] = []

    def access(self, position: int, op: Op, context: MaskContext) -> Access:
        """The access of one load, store or atomic, which may stand under masks (`context`)."""
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
        found = Access(outer, "block", inside=tuple(inside), block=block, form=self.form(op, block, context))
        # the digits of a block that is not plain are those of one that starts where the bulk of a row does not
        is_gather = self.is_aligned and not found.is_plain
        return Access(outer, "gather", inside=tuple(inside)) if is_gather else found

    def form(self, op: Op, block: BlockAccess, context: MaskContext) -> BlockForm:
        """The form in which a block is addressed."""
        assert isinstance(op.attrs, Load | Store | Atomic)
        storage = op.attrs.ref.storage
        if self.wanted == "offsets":
            return "offsets"
        if self.is_aligned:
            reason = "its row has a bulk and edges"
        elif isinstance(op.attrs, Atomic):
            reason = "an atomic takes single addresses"
        elif not context.is_masked_by_bounds(block):
            reason = "its mask is not a range of each axis"
        elif isinstance(op.attrs, Store) and len(block.moving()) < len(block.dims):
            reason = "several points store one element"
        elif self.wanted == "pointer":
            reason = why_not_pointer(block, self.tile)
        elif not self.target.has_descriptors:
            reason = f"{self.target.name} has no tensor descriptors"
        else:
            reason = why_not_descriptor(block, self.tile, self.dtypes[storage])
        if not reason:
            return self.wanted
        self.notes.append(NodeNote("access", self.kernel.name, f"no {FORM_NAMES[self.wanted]} for {storage}: {reason}"))
        return "offsets"
