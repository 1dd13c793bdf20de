"""Everything that rules may change while a graph is lowered.

Takes nothing. Gives `LoweringState`, which can be put back to a `Snapshot` of it, so that the work of a rule is kept or
undone as one thing. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from minductor.core.expressions.expr import Symbol
from minductor.frontend.capture.captured_graph import Size
from minductor.frontend.lowering_context.values import ComplexPair
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Buffer, NodeNote, Program, View
from minductor.ir.program.variant_note import VariantNote

# The fields to which a rule only adds. They grow with the graph, so no node may take the time to copy them.
GROWING = ("nodes", "buffers", "notes", "starts", "regions")


class Snapshot(NamedTuple):
    """A state at one time: the lengths of the fields that only grow, and the values of the others, by name."""

    lengths: Mapping[str, int]
    values: Mapping[str, object]


@dataclass(slots=True)
class LoweringState:
    """The program so far. A field holds a list, dict or set of immutable values, or one immutable value."""

    undefined: dict[Symbol, None]  # symbols that data decides and that no node defines yet
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])  # by the name of the storage
    notes: list[NodeNote | VariantNote] = field(default_factory=list["NodeNote | VariantNote"])
    guards: tuple[ir.Guard, ...] = ()
    versions: dict[str, int] = field(default_factory=dict[str, int])  # storage -> how often it was written
    starts: dict[str, Size] = field(default_factory=dict[str, Size])  # storage -> traced offset of its first element
    conjugates: set[str] = field(default_factory=set[str])  # storages that may hold the conjugates of their elements
    complex_copies: dict[View | ComplexPair, View] = field(default_factory=dict[View | ComplexPair, View])
    """A complex tensor -> the interleaved copy of it."""
    in_flight: dict[str, tuple[View, ...]] = field(default_factory=dict[str, tuple[View, ...]])
    """A running collective's result -> the tensors that the collective still reads."""
    regions: dict[str, Program] = field(default_factory=dict[str, Program])
    seed: View | None = None  # of the random numbers of this call
    kernel_count: int = 0
    extern_count: int = 0
    local_count: int = 0  # storages that this graph allocates
    number_count: int = 0  # symbols that the lowering invented
    stream_count: int = 0  # operators that draw random numbers

    def snapshot(self) -> Snapshot:
        """What `restore` needs to undo all later changes."""
        lengths = {name: len(getattr(self, name)) for name in GROWING}
        others = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in GROWING}
        return Snapshot(lengths, {n: v.copy() if isinstance(v, dict | set) else v for n, v in others.items()})

    def restore(self, before: Snapshot) -> None:
        """Undoes all changes since a snapshot, which cannot be used again."""
        for name, length in before.lengths.items():
            grown: list[object] | dict[str, object] = getattr(self, name)
            while len(grown) > length:
                grown.pop() if isinstance(grown, list) else grown.popitem()
        for name, value in before.values.items():
            setattr(self, name, value)
