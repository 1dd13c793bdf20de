"""Which node must run before which: dependencies as data, derived from the program whenever somebody asks.

Takes a program. Gives edges between positions of its nodes: read-after-write, write-after-write, write-after-read
with the accesses that a justification has to compare, symbol definitions, the order of effects, and the order that was
asked for. Refuses nothing: an edge is never deleted; a pass that fuses shows that its code keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from minductor.core.expr import Expr, Symbol
from minductor.ir.nodes import (
    Extern,
    Kernel,
    Node,
    Program,
    Ref,
    Require,
    awaited,
    body_reads,
    body_writes,
    makes,
    mentioned,
    reads,
    writes,
)


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` runs before `target`. A "war" edge of two kernels has the indices read and the indices written."""

    kind: Literal["raw", "waw", "war", "symbol", "effect", "control"]
    source: int
    target: int
    ref: Ref | None = None
    read: tuple[Expr, ...] = ()
    written: tuple[Expr, ...] = ()


def dependencies(program: Program) -> tuple[Edge, ...]:
    """Every edge, each once, by target and then source."""
    found: dict[Edge, None] = {}
    writer: dict[Ref, int] = {}
    readers: dict[Ref, list[int]] = {}
    for position, node in enumerate(program.nodes):
        for ref in writes(node):
            writer[ref] = position
        for ref in reads(node):
            readers.setdefault(ref, []).append(position)
        for ref in awaited(node):
            found[Edge("control", writer[ref], position, ref)] = None
    for ref, users in readers.items():
        if ref in writer:
            found.update((Edge("raw", writer[ref], user, ref), None) for user in users if user != writer[ref])
    for ref, position in writer.items():
        old = Ref(ref.storage, ref.version - 1)
        if writer.get(old, position) != position:
            found[Edge("waw", writer[old], position, ref)] = None
        for user in readers.get(old, ()):
            if user != position:
                found[_anti(program.nodes, user, position, old, ref)] = None
    found.update((edge, None) for edge in _symbol_edges(program))
    effects = [n for n, node in enumerate(program.nodes) if isinstance(node, Extern) and node.effect]
    found.update((Edge("effect", a, b), None) for a, b in pairwise(effects))
    return tuple(sorted(found, key=lambda edge: (edge.target, edge.source)))


def _anti(nodes: tuple[Node, ...], reader: int, writer: int, old: Ref, new: Ref) -> Edge:
    first, second = nodes[reader], nodes[writer]
    if not isinstance(first, Kernel) or not isinstance(second, Kernel):
        return Edge("war", reader, writer, old)
    read = dict.fromkeys(load.index for load in body_reads(first.body) if load.ref == old)
    written = tuple(write.index for write in body_writes(second.body) if write.ref == new)
    return Edge("war", reader, writer, old, tuple(read), written)


def _symbol_edges(program: Program) -> Iterable[Edge]:
    """From what defines a size to what mentions it, and from what requires a fact of it to who relies on that."""
    nodes, table = program.nodes, program.buffer_table()
    maker = {made: position for position, node in enumerate(nodes) for made in makes(node)}
    if not maker and not any(isinstance(node, Require) for node in nodes):  # the walk is slow
        return
    required: dict[Symbol, list[int]] = {}
    for position, node in enumerate(nodes):
        used = mentioned(node, table)
        sources = [maker[s] for s in used if s in maker]
        sources += [source for s in used for source in required.get(s, ())]
        yield from (Edge("symbol", source, position) for source in dict.fromkeys(sources) if source != position)
        if isinstance(node, Require):
            for s in used:
                required.setdefault(s, []).append(position)


def neighbours(count: int, edges: Iterable[Edge]) -> tuple[list[set[int]], list[set[int]]]:
    """Direct predecessors and successors of each position."""
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for edge in edges:
        before[edge.target].add(edge.source)
        after[edge.source].add(edge.target)
    return before, after
