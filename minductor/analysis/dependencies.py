"""Which node of a program must run before which other one.

Takes a program. Gives edges between positions of its nodes, of these kinds: "raw" (read after write), "waw" (write
after write), "war" (write after read), "symbol" (a size is defined before it is used), "effect" (externs with effects
keep their order) and "control" (an order that the user asked for). Refuses nothing.

Edges are derived from the program whenever a pass asks; none is stored or deleted. A pass that fuses two kernels has to
show that the fused kernel keeps the order of their edge. The indices of the edge are what it compares.

>>> from minductor.ir.program.parser import parse_program
>>> for edge in dependencies(parse_program('''program inference
...   input arg0: f32[8] stride [1] cpu
...   buffer buf0: f32[8] stride [1] cpu
...   kernel k0 (i0: 8) from exp = aten.exp.default
...     %0 = load arg0@0[i0] : f32 {i0}
...     %1 = exp %0 : f32 {i0}
...     %2 = store buf0@0[i0] %1 {i0}
...   kernel k1 (i0: 8) from flip = aten.flip.default
...     %0 = load buf0@0[7 - i0] : f32 {i0}
...     %1 = store arg0@1[i0] %0 {i0}
...   return (arg0@1 f32[8] stride [1] offset 0)
... ''')):
...     print(edge)
raw 0 -> 1 buf0@0[i0] before [-i0 + 7]
war 0 -> 1 arg0@0[i0] before [i0]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.nodes import (
    Extern,
    Kernel,
    Node,
    Program,
    Ref,
    Require,
    awaited_refs,
    body_reads,
    body_writes,
    defined_symbols,
    reads,
    required_symbols,
    writes,
)

# the indices at which a kernel touches a version; None for other nodes, which may touch any element
Indices: TypeAlias = "tuple[Expr, ...] | None"


class Edge(NamedTuple):
    """`source` runs before `target`; both are positions of nodes.

    `ref`: for "raw" and "war" the version that is read, for "waw" the newer version. The indices say at which elements
    the two nodes touch the storage; they are empty unless both nodes are kernels.
    """

    kind: Literal["raw", "waw", "war", "symbol", "effect", "control"]
    source: int
    target: int
    ref: Ref | None = None
    source_indices: tuple[Expr, ...] = ()
    target_indices: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        def places(indices: tuple[Expr, ...]) -> str:
            return f"[{'; '.join(map(str, indices))}]" if indices else ""

        about = (
            "" if self.ref is None else f" {self.ref}{places(self.source_indices)} before {places(self.target_indices)}"
        )
        return f"{self.kind} {self.source} -> {self.target}{about}"


def dependencies(program: Program) -> tuple[Edge, ...]:
    """All edges of a program, sorted by target and then source."""
    found: list[Edge] = []
    writer: dict[Ref, tuple[int, Indices]] = {}
    readers: dict[Ref, list[tuple[int, Indices]]] = {}
    for position, node in enumerate(program.nodes):
        read, written = _accesses(node)
        writer.update((ref, (position, at)) for ref, at in written.items())
        for ref, at in read.items():
            readers.setdefault(ref, []).append((position, at))
        found += [Edge("control", writer[ref][0], position, ref) for ref in awaited_refs(node)]
    for ref, users in readers.items():
        if ref in writer:
            found += _edges("raw", ref, [writer[ref]], users)
    for ref, new in writer.items():
        old = Ref(ref.storage, ref.version - 1)
        if old in writer:
            found += _edges("waw", ref, [writer[old]], [new])
        found += _edges("war", old, readers.get(old, ()), [new])
    found += _symbol_edges(program)
    effects = [n for n, node in enumerate(program.nodes) if isinstance(node, Extern) and node.effect]
    found += [Edge("effect", a, b) for a, b in pairwise(effects)]
    return tuple(sorted(found, key=lambda edge: (edge.target, edge.source)))


def _accesses(node: Node) -> tuple[dict[Ref, Indices], dict[Ref, Indices]]:
    """The versions that a node reads, and those that it writes, with the indices if the node is a kernel."""
    if not isinstance(node, Kernel):
        return dict.fromkeys(reads(node)), dict.fromkeys(writes(node))
    read: dict[Ref, dict[Expr, None]] = {}
    written: dict[Ref, dict[Expr, None]] = {}
    for load in body_reads(node.body):
        read.setdefault(load.ref, {})[load.index] = None
    for write in body_writes(node.body):
        written.setdefault(write.ref, {})[write.index] = None
    return {ref: tuple(at) for ref, at in read.items()}, {ref: tuple(at) for ref, at in written.items()}


def _edges(
    kind: Literal["raw", "waw", "war"],
    ref: Ref,
    olds: Sequence[tuple[int, Indices]],
    news: Sequence[tuple[int, Indices]],
) -> Iterator[Edge]:
    """An edge from each of `olds` to each of `news`, except from a node to itself."""
    for source, first in olds:
        for target, second in news:
            if source == target:
                continue
            if first is None or second is None:
                yield Edge(kind, source, target, ref)
            else:
                yield Edge(kind, source, target, ref, first, second)


def _symbol_edges(program: Program) -> Iterator[Edge]:
    """Edges from the node that defines a size to its users, and from a `Require` to the later users of its sizes."""
    nodes, table = program.nodes, program.buffer_table()
    maker = {made: position for position, node in enumerate(nodes) for made in defined_symbols(node)}
    if not maker and not any(isinstance(node, Require) for node in nodes):  # searching nodes for symbols is slow
        return
    required: dict[Symbol, list[int]] = {}
    for position, node in enumerate(nodes):
        used = required_symbols(node, table)
        sources = [maker[s] for s in used if s in maker]
        sources += [source for s in used for source in required.get(s, ())]
        yield from (Edge("symbol", source, position) for source in dict.fromkeys(sources) if source != position)
        if isinstance(node, Require):
            for s in used:
                required.setdefault(s, []).append(position)


def neighbours(count: int, edges: Iterable[Edge]) -> tuple[list[set[int]], list[set[int]]]:
    """For each of `count` positions its direct predecessors, and its direct successors."""
    before: list[set[int]] = [set() for _ in range(count)]
    after: list[set[int]] = [set() for _ in range(count)]
    for edge in edges:
        before[edge.target].add(edge.source)
        after[edge.source].add(edge.target)
    return before, after
