"""Splits the consumer of a concatenation at its seams, so that the joined buffer never exists.

Takes a program after inlining. Gives it with, for each storage that several kernels fill slice by slice for one
pointwise consumer, a copy of the consumer for each slice, which computes the slice itself; fuse may join the copies.
Refuses (leaves as they are) concatenations whose consumer is no loop over the joined dim, or that others read as well.

Rotary embedding is the case that pays: x * cos + cat(-b, a) * sin becomes two halves of straight loads, where a select
per element would keep the loop from being vectorised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minductor.analysis.domain import extents_of, pure_store, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import interval
from minductor.core.expressions.expr import Expr, Symbol, as_int, integer, substitute, symbol
from minductor.core.expressions.rewrite import delinearize
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import (
    Argument,
    Axis,
    Buffer,
    Extern,
    Kernel,
    Load,
    Masked,
    MergedKernel,
    Node,
    Op,
    Program,
    Ref,
    Store,
    View,
    awaited_refs,
    body_reads,
    reads,
    views_of,
    writes,
)
from minductor.passes.rewriting.prune import live_nodes, prune_body, with_nodes

MOST = 4  # slices: each becomes a kernel, until fuse


@dataclass(frozen=True, slots=True)
class _Slice:
    """One part of the joined storage: who makes it, and which coordinates of the seam's dim it has."""

    kernel: Kernel
    store: Store
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _Seam:
    """A concatenation with its only consumer, and the consumer's axis that runs along the joined dim."""

    slices: tuple[_Slice, ...]
    last: Ref
    consumer: int
    axis: Axis
    store: Store


def split_concat(program: Program) -> Program:
    """The program without the concatenations that can be split away; the same object if there are none."""
    table = program.real_table()
    uses = _Uses(program)
    nodes: dict[int, tuple[_Seam, tuple[Kernel, ...]]] = {}
    moved: dict[Ref, Ref] = {}
    for storage in dict.fromkeys(ref.storage for ref in uses.writer):
        seam = _seam(storage, uses, table) if table[storage].kind == "local" else None
        if seam is not None and seam.consumer not in nodes:
            nodes[seam.consumer] = (seam, _parts(program.nodes[seam.consumer], seam))
            moved[seam.store.ref] = Ref(seam.store.ref.storage, len(seam.slices) - 1)
    if not nodes:
        return program
    gone = [
        MergedKernel("inline", part.kernel.name, made.name)
        for seam, parts in nodes.values()
        for part, made in zip(seam.slices, parts, strict=True)
    ]
    made = tuple(
        _renamed(node, moved)
        for position, old in enumerate(program.nodes)
        for node in (nodes[position][1] if position in nodes else (old,))
    )
    outputs = tuple(_moved(output, moved) for output in program.outputs)
    program = replace(program, nodes=made, outputs=outputs, notes=(*program.notes, *gone))
    return with_nodes(program, live_nodes(program))


class _Uses:
    """Who reads and writes what, by position."""

    def __init__(self, program: Program) -> None:
        self.nodes = program.nodes
        self.readers: dict[str, dict[int, None]] = {}
        self.writer: dict[Ref, int] = {}
        self.versions: dict[str, int] = {}
        self.returned = {view.ref.storage for output in program.outputs for view in views_of(output)}
        self.awaited = {ref.storage for node in program.nodes for ref in awaited_refs(node)}
        for position, node in enumerate(program.nodes):
            for ref in reads(node):
                self.readers.setdefault(ref.storage, {})[position] = None
            for ref in writes(node):
                self.writer[ref] = position
                self.versions[ref.storage] = self.versions.get(ref.storage, 0) + 1


def _seam(storage: str, uses: _Uses, table: Mapping[str, Buffer]) -> _Seam | None:
    """What there is to split, if it can be."""
    count = uses.versions[storage]
    readers = tuple(uses.readers.get(storage, ()))
    if not 2 <= count <= MOST or len(readers) != 1 or storage in uses.returned or storage in uses.awaited:
        return None
    consumer = uses.nodes[readers[0]]
    last = Ref(storage, count - 1)
    store = pure_store(consumer) if isinstance(consumer, Kernel) else None
    if not isinstance(consumer, Kernel) or store is None or last not in reads(consumer):
        return None
    if uses.versions[store.ref.storage] > 1 or table[store.ref.storage].kind != "local":
        return None
    if store.ref.storage in uses.awaited:
        return None
    if any(isinstance(uses.nodes[reader], Kernel) for reader in uses.readers.get(store.ref.storage, ())):
        return None
    writers = [uses.nodes[uses.writer[Ref(storage, version)]] for version in range(count)]
    if any(awaited_refs(writer) for writer in writers):
        return None
    found = _slices(writers, table[storage])
    if found is None or any(_is_overwritten(part.kernel, readers[0], uses) for part in found[1]):
        return None
    axis = _axis(consumer, last, table[storage], found[0])
    return None if axis is None else _Seam(found[1], last, readers[0], axis, store)


def _slices(writers: Sequence[Node], buffer: Buffer) -> tuple[int, tuple[_Slice, ...]] | None:
    """The dim along which the slices lie, and the slices in that order; None if they do not fill the buffer."""
    slices: list[_Slice] = []
    seams: dict[int, None] = {}
    for writer in writers:
        store = pure_store(writer) if isinstance(writer, Kernel) else None
        if not isinstance(writer, Kernel) or store is None:
            return None
        extents = extents_of(writer.axes)
        at = delinearize(store.index, buffer.size, buffer.stride, extents)
        if at is None:
            return None
        part = (0, 0)
        for dim, (coordinate, size) in enumerate(zip(at, buffer.size, strict=True)):
            # what runs over the whole dim is an axis of that extent; in the seam's dim it is shifted or shorter
            if as_int(size) == 1 or (isinstance(coordinate, Symbol) and extents[coordinate] == size):
                continue
            low, high = interval(coordinate, extents)
            if low is None or high is None:
                return None
            seams[dim] = None
            part = (low, high + 1 - low)
        slices.append(_Slice(writer, store, *part))
    if len(seams) != 1:
        return None
    (dim,) = seams
    slices.sort(key=lambda s: s.start)
    ends = [0, *(s.start + s.length for s in slices)]
    whole = all(s.start == end and s.length > 0 for s, end in zip(slices, ends, strict=False))
    return (dim, tuple(slices)) if whole and as_int(buffer.size[dim]) == ends[-1] else None


def _is_overwritten(kernel: Kernel, position: int, uses: _Uses) -> bool:
    """Whether something that a kernel reads has been overwritten by the time of another node."""
    following = [Ref(ref.storage, ref.version + 1) for ref in reads(kernel)]
    return any(uses.writer.get(ref, position + 1) <= position for ref in following)


def _axis(consumer: Kernel, last: Ref, buffer: Buffer, dim: int) -> Axis | None:
    """The axis that is the joined dim's coordinate in every load of the joined storage, outside regions."""
    if any(isinstance(op.attrs, Masked) for op in consumer.body.ops):
        return None
    extents = extents_of(consumer.axes)
    found: dict[Expr, None] = {}
    for load in body_reads(consumer.body):
        if load.ref == last:
            at = delinearize(load.index, buffer.size, buffer.stride, extents)
            if at is None:
                return None
            found[at[dim]] = None
    axes = [axis for axis in consumer.axes if axis.symbol in found and axis.extent == buffer.size[dim]]
    return axes[0] if len(found) == 1 and axes else None


def _parts(consumer: Node, seam: _Seam) -> tuple[Kernel, ...]:
    """The consumer once for each slice."""
    assert isinstance(consumer, Kernel)
    return tuple(_part(consumer, seam, version) for version in range(len(seam.slices)))


def _part(consumer: Kernel, seam: _Seam, version: int) -> Kernel:
    part = seam.slices[version]
    short = symbol(seam.axis.name, "axis", 0, part.length - 1)
    mapping: dict[Symbol, Expr] = {seam.axis.symbol: short + part.start}
    axes = tuple(Axis(short, integer(part.length)) if axis == seam.axis else axis for axis in consumer.axes)
    extents = extents_of(axes)
    builder = Builder([axis.symbol for axis in axes], extents)
    value = next(op.args[0] for op in part.kernel.body.ops if op.attrs is part.store)

    def load(b: Builder, wanted: Load, _: DType) -> int | None:
        if wanted.ref != seam.last:
            return None
        point = solve(part.store.index, part.kernel.axes, wanted.index, extents)
        if point is None:  # _slices has read the same layout
            raise ValueError(f"{wanted.ref}[{wanted.index}] is no element of its slice")
        return b.splice(part.kernel.body, point, effects=_none, node=part.kernel.only_node)[value]

    places = builder.splice(consumer.body, mapping, load, effects=_none, node=consumer.only_node)
    made = next(places[op.args[0]] for op in consumer.body.ops if op.attrs is seam.store)
    builder.store(Ref(seam.store.ref.storage, version), substitute(seam.store.index, mapping), made)
    origins = tuple(dict.fromkeys((*part.kernel.origins, *consumer.origins)))
    name = consumer.name if version == 0 else f"{consumer.name}_{version}"
    return replace(consumer, name=name, axes=axes, body=prune_body(builder.build()), origins=origins)


def _none(_: Op) -> bool:
    return False


def _renamed(node: Node, moved: Mapping[Ref, Ref]) -> Node:
    """An extern that reads the last version where there was only one."""
    if not isinstance(node, Extern) or moved.keys().isdisjoint(reads(node)):
        return node
    args = tuple(_moved(arg, moved) for arg in node.args)
    return replace(node, args=args, kwargs=tuple((name, _moved(value, moved)) for name, value in node.kwargs))


def _moved(value: Argument, moved: Mapping[Ref, Ref]) -> Argument:
    match value:
        case View(ref=ref) if ref in moved:
            return replace(value, ref=moved[ref])
        case tuple():
            return tuple(_moved(item, moved) for item in value)
        case _:
            return value
