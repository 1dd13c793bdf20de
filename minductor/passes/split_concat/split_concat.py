"""Splits the consumer of a concatenation into one kernel for each slice, so that the concatenated buffer never exists.

Takes a program after inlining. Gives it with one copy of the consumer for each slice of a concatenation, which computes
the elements of this slice itself; `fuse` may fuse the copies again. Refuses (leaves as they are) concatenations that
other nodes read as well, those whose consumer is not one pointwise kernel with an axis along the concatenated dim, and
those whose copies would have more than MAX_OPS ops; and, with a `FusionRefusal`, those whose copies take longer than
the slices and the consumer (`cost/kernel_seconds.py`).

Rotary embedding is the case that pays. x * cos + cat(-b, a) * sin becomes two kernels with contiguous loads. One kernel
for both halves would select between a and b for each element, and could not be vectorised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from minductor.analysis.domain import extents_of, pure_store, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, integer, substitute
from minductor.core.expressions.rewrite import delinearize
from minductor.cost.kernel_seconds import Prices
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.passes.rewriting.concat_slices import Slice, StorageUses, moved_argument, with_versions
from minductor.passes.rewriting.prune import drop_effect, live_nodes, prune_body, with_nodes
from minductor.target import Env

MAX_OPS = 1024  # of all copies of a consumer: the time of compiling grows with them


class _Concat(NamedTuple):
    """A concatenation and its only consumer.

    `last`: the version that has all slices. `consumer`: its position. `axis`: the consumer's axis along the
    concatenated dim. `store`: what the consumer stores.
    """

    slices: tuple[Slice, ...]
    last: ir.Ref
    consumer: int
    axis: ir.Axis
    store: ir.Store


def split_concat(program: ir.Program, env: Env) -> ir.Program:
    """The program without the concatenations that can be avoided; the same object if there are none."""
    if not env.options.fuse or len({buffer.device for buffer in program.buffers}) > 1:
        return program
    uses = StorageUses(program)
    prices = Prices(uses.table, env.target, program.hints)
    notes: list[ir.FusionRefusal] = []
    gone: list[ir.MergedKernel] = []
    nodes: dict[int, tuple[_Concat, tuple[ir.Kernel, ...]]] = {}
    moved: dict[ir.Ref, ir.Ref] = {}
    for storage in dict.fromkeys(ref.storage for ref in uses.writer):
        concat = _find_concat(storage, uses)
        if concat is None or concat.consumer in nodes:
            continue
        consumer = program.nodes[concat.consumer]
        parts = _split_consumer(consumer, concat)
        assert isinstance(consumer, ir.Kernel)
        cut = [prices.shape(part) for part in parts]
        whole = [prices.shape(kernel) for kernel in (*(part.kernel for part in concat.slices), consumer)]
        slower = prices.slower(cut, whole)
        if slower is not None:
            first, figures = concat.slices[0].kernel.name, slower.figures("split", "whole")
            reason = f"split at its seams it would need more {slower.needs}"
            notes.append(ir.FusionRefusal("split_concat", first, consumer.name, reason, figures))
            continue
        nodes[concat.consumer] = concat, parts
        reason = "the concatenation is not stored", prices.compared(cut, whole).figures("split", "whole")
        gone += [
            ir.MergedKernel("split_concat", part.kernel.name, made.name, *reason)
            for part, made in zip(concat.slices, parts, strict=True)
        ]
        moved[concat.store.ref] = ir.Ref(concat.store.ref.storage, len(concat.slices) - 1)
    if not nodes:
        return replace(program, notes=(*program.notes, *notes)) if notes else program
    made = tuple(
        with_versions(node, moved)
        for position, old in enumerate(program.nodes)
        for node in (nodes[position][1] if position in nodes else (old,))
    )
    outputs = tuple(moved_argument(output, moved) for output in program.outputs)
    program = replace(program, nodes=made, outputs=outputs, notes=(*program.notes, *notes, *gone))
    return with_nodes(program, live_nodes(program))


def _find_concat(storage: str, uses: StorageUses) -> _Concat | None:
    """The concatenation that fills a storage, if its consumer can be split; else None."""
    count, table = uses.versions[storage], uses.table
    readers = tuple(uses.readers.get(storage, ()))
    if count < 2 or len(readers) != 1 or storage in uses.returned or table[storage].kind != "local":
        return None
    consumer = uses.nodes[readers[0]]
    if not isinstance(consumer, ir.Kernel) or count * len(consumer.body.ops) > MAX_OPS:
        return None
    last = ir.Ref(storage, count - 1)
    store = pure_store(consumer)
    if store is None or last not in ir.reads(consumer):
        return None
    if uses.versions[store.ref.storage] > 1 or table[store.ref.storage].kind != "local":
        return None
    if store.ref.storage in uses.awaited:
        return None
    if any(isinstance(uses.nodes[reader], ir.Kernel) for reader in uses.readers.get(store.ref.storage, ())):
        return None
    found = uses.slices(storage, readers[0])
    if found is None:
        return None
    axis = _concat_axis(consumer, last, table[storage], found[0])
    return None if axis is None else _Concat(found[1], last, readers[0], axis, store)


def _concat_axis(consumer: ir.Kernel, last: ir.Ref, buffer: ir.Buffer, dim: int) -> ir.Axis | None:
    """The consumer's axis that is the coordinate along the concatenated dim in each of its loads, or None."""
    if any(isinstance(op.attrs, ir.Masked) for op in consumer.body.ops):
        return None
    extents = extents_of(consumer.axes)
    found: dict[Expr, None] = {}
    for load in ir.body_reads(consumer.body):
        if load.ref == last:
            at = delinearize(load.index, buffer.size, buffer.stride, extents)
            if at is None:
                return None
            found[at[dim]] = None
    axes = [axis for axis in consumer.axes if axis.symbol in found and axis.extent == buffer.size[dim]]
    return axes[0] if len(found) == 1 and axes else None


def _split_consumer(consumer: ir.Node, concat: _Concat) -> tuple[ir.Kernel, ...]:
    """A copy of the consumer for each slice."""
    assert isinstance(consumer, ir.Kernel)
    return tuple(_consumer_of_slice(consumer, concat, version) for version in range(len(concat.slices)))


def _consumer_of_slice(consumer: ir.Kernel, concat: _Concat, version: int) -> ir.Kernel:
    """The consumer for one slice, which computes the slice and stores this version of the result."""
    part = concat.slices[version]
    slice_axis = ir.axis_over(concat.axis.name, integer(part.length))
    mapping: dict[Symbol, Expr] = {concat.axis.symbol: slice_axis.symbol + part.start}
    axes = tuple(slice_axis if axis == concat.axis else axis for axis in consumer.axes)
    extents = extents_of(axes)
    builder = Builder([axis.symbol for axis in axes], extents)
    value = next(op.args[0] for op in part.kernel.body.ops if op.attrs is part.store)

    def load(b: Builder, wanted: ir.Load, _: DType) -> int | None:
        if wanted.ref != concat.last:
            return None
        point = solve(part.store.index, part.kernel.axes, wanted.index, extents)
        if point is None:  # `find_slices` has solved the same layout
            raise ValueError(f"{wanted.ref}[{wanted.index}] is no element of its slice")
        return b.splice(part.kernel.body, point, effects=drop_effect)[value]

    places = builder.splice(consumer.body, mapping, load, effects=drop_effect)
    end = next(op for op in consumer.body.ops if op.attrs is concat.store)
    builder.node = end.node
    index = substitute(concat.store.index, mapping)
    builder.store(ir.Ref(concat.store.ref.storage, version), index, places[end.args[0]])
    origins = tuple(dict.fromkeys((*part.kernel.origins, *consumer.origins)))
    name = consumer.name if version == 0 else f"{consumer.name}_{version}"
    return replace(consumer, name=name, axes=axes, body=prune_body(builder.build()), origins=origins)
