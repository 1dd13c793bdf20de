"""Concatenations of a program: a storage whose versions are slices of it, each stored by a kernel of its own.

Takes a program and a storage. Gives who reads and writes it, its slices along the concatenated dim, and
the program's nodes and outputs with one version in place of another. Gives None where the writers do not fill the
storage exactly, element by element. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from minductor.analysis.domain import extents_of, pure_store
from minductor.core.expressions.bounds import interval
from minductor.core.expressions.expr import Symbol, as_int
from minductor.core.expressions.rewrite import delinearize
from minductor.ir.program import nodes as ir


class Slice(NamedTuple):
    """One slice of a concatenation: the kernel that stores it, and its coordinates along the concatenated dim."""

    kernel: ir.Kernel
    store: ir.Store
    start: int
    length: int


class StorageUses:
    """Which nodes, by position, read and write each storage."""

    def __init__(self, program: ir.Program) -> None:
        self.nodes, self.table = program.nodes, program.real_table()
        self.readers: dict[str, dict[int, None]] = {}
        self.writer: dict[ir.Ref, int] = {}
        self.versions: dict[str, int] = {}
        self.returned = {view.ref.storage for output in program.outputs for view in ir.views_of(output)}
        self.awaited = {ref.storage for node in program.nodes for ref in ir.awaited_refs(node)}
        for position, node in enumerate(program.nodes):
            for ref in ir.reads(node):
                self.readers.setdefault(ref.storage, {})[position] = None
            for ref in ir.writes(node):
                self.writer[ref] = position
                self.versions[ref.storage] = self.versions.get(ref.storage, 0) + 1

    def writers(self, storage: str) -> list[int]:
        """The nodes that write a storage, in the order of its versions."""
        return [self.writer[ir.Ref(storage, version)] for version in range(self.versions[storage])]

    def slices(self, storage: str, place: int | None = None) -> tuple[int, tuple[Slice, ...]] | None:
        """The concatenated dim of a storage and its slices, as `find_slices` gives them.

        None also if a slice cannot be computed at the position `place`, or else where the last of them is: a node waits
        for it, or something that it reads is overwritten before.
        """
        writers = self.writers(storage)
        if storage in self.awaited or any(ir.awaited_refs(self.nodes[writer]) for writer in writers):
            return None
        found = find_slices([self.nodes[writer] for writer in writers], self.table[storage])
        at = max(writers) if place is None else place
        return None if found is None or any(is_overwritten(each.kernel, at, self) for each in found[1]) else found


def find_slices(writers: Sequence[ir.Node], buffer: ir.Buffer) -> tuple[int, tuple[Slice, ...]] | None:
    """The concatenated dim, and the slices in their order along it; None if they do not fill the buffer exactly."""
    slices: list[Slice] = []
    seams: dict[int, None] = {}
    for writer in writers:
        store = pure_store(writer) if isinstance(writer, ir.Kernel) else None
        if not isinstance(writer, ir.Kernel) or store is None:
            return None
        extents = extents_of(writer.axes)
        at = delinearize(store.index, buffer.size, buffer.stride, extents)
        if at is None:
            return None
        part = (0, 0)
        for dim, (coordinate, size) in enumerate(zip(at, buffer.size, strict=True)):
            # a coordinate that covers its whole dim is an axis of that extent; along the concatenated dim it is not
            if as_int(size) == 1 or (isinstance(coordinate, Symbol) and extents[coordinate] == size):
                continue
            low, high = interval(coordinate, extents)
            if low is None or high is None:
                return None
            seams[dim] = None
            part = (low, high + 1 - low)
        slices.append(Slice(writer, store, *part))
    if len(seams) != 1:
        return None
    (dim,) = seams
    slices.sort(key=lambda s: s.start)
    ends = [0, *(s.start + s.length for s in slices)]
    whole = all(s.start == end and s.length > 0 for s, end in zip(slices, ends, strict=False))
    return (dim, tuple(slices)) if whole and as_int(buffer.size[dim]) == ends[-1] else None


def is_overwritten(kernel: ir.Kernel, position: int, uses: StorageUses) -> bool:
    """Whether a storage that a kernel reads is overwritten before the node at `position` has run."""
    following = [ir.Ref(ref.storage, ref.version + 1) for ref in ir.reads(kernel)]
    return any(uses.writer.get(ref, position + 1) <= position for ref in following)


def with_versions(node: ir.Node, moved: Mapping[ir.Ref, ir.Ref]) -> ir.Node:
    """The node with the last version in place of the only one, if it is an extern that reads it."""
    if not isinstance(node, ir.Extern) or moved.keys().isdisjoint(ir.reads(node)):
        return node
    args = tuple(moved_argument(arg, moved) for arg in node.args)
    return replace(node, args=args, kwargs=tuple((name, moved_argument(value, moved)) for name, value in node.kwargs))


def moved_argument(value: ir.Argument, moved: Mapping[ir.Ref, ir.Ref]) -> ir.Argument:
    """An argument in which the moved versions are replaced."""
    match value:
        case ir.View(ref=ref) if ref in moved:
            return replace(value, ref=moved[ref])
        case tuple():
            return tuple(moved_argument(item, moved) for item in value)
        case _:
            return value
