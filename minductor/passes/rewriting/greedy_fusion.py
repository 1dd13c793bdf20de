"""Joins kernels that inline left apart: producer and consumer, readers of the same data, reductions and neighbours.

Takes a program whose nodes stand in an order that respects their edges. Gives one with fewer kernels, in such an order.
Refuses, with a WhyNot for each candidate pair, what `join` refuses and what would make a cycle.

Greedy: the pair that saves most bytes first; a joined kernel is a candidate again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.analysis.domain import buffer_bytes, count_points
from minductor.ir.program.nodes import (
    Extern,
    Joined,
    Kernel,
    Node,
    Origin,
    Program,
    Ref,
    Require,
    SymbolDef,
    WhyNot,
    awaited,
    reads,
    views_of,
    writes,
)
from minductor.passes.rewriting.join_kernels import CannotJoin, JoinContext, join
from minductor.passes.rewriting.prune import with_nodes
from minductor.target import Env

WINDOW = 4  # readers of the same buffer on either side that a kernel is compared with
REACH = 64  # readers further apart than this are left alone: joining them would keep buffers alive for long
Views: TypeAlias = Callable[[Kernel, Kernel], Iterable[tuple[Kernel, Kernel]]]

HELD_BYTES = 1 << 20  # that a join may hold at once beyond what its two kernels would, ...
HELD_SHARE = 32  # ... or so many times the bytes that it saves, if that is more
LAUNCH_POINTS = 4096  # below this a launch costs more than the work


class GreedyFusion:
    """One round of joining; with `views`, of pairs as these show them, and as they are if one has been joined in it."""

    def __init__(self, program: Program, env: Env, stage: str, views: Views | None = None) -> None:
        self.program = program
        self.stage = stage
        self.views = views
        self.most = env.options.max_live_bytes
        self.nodes: list[Node | None] = list(program.nodes)
        # what is asked of a node again and again, and takes a walk through its body
        self.reads, self.writes = [reads(node) for node in program.nodes], [writes(node) for node in program.nodes]
        self.points = [count_points(node) if isinstance(node, Kernel) else 0 for node in program.nodes]
        self.limits = JoinContext(program.real_table(), env.target)
        self.bytes = {name: buffer_bytes(buffer) for name, buffer in self.limits.table.items()}
        self.order = AcyclicOrder(len(self.nodes), dict.fromkeys((e.source, e.target) for e in dependencies(program)))
        self.members: list[tuple[int, ...]] = [(n,) for n in range(len(self.nodes))]
        self.stamp = [0] * len(self.nodes)
        self.home = list(range(len(self.nodes)))
        self.refusals: dict[tuple[int, int], str | int] = {}  # the reason, or a node that must run in between
        self.is_changed = False
        self.writer: dict[Ref, int] = {}
        self.readers: dict[Ref, list[int]] = {}  # in order of id
        self.written: dict[str, int] = {}  # by how many nodes
        self.versions: dict[str, dict[Ref, None]] = {}
        self.kept = {view.ref.storage for output in program.outputs for view in views_of(output)}
        self.kept.update(buffer.name for buffer in program.buffers if buffer.kind != "local")
        self.kept.update(ref.storage for node in program.nodes for ref in awaited(node))
        for position in range(len(self.nodes)):
            for ref in self.reads[position]:
                self.readers.setdefault(ref, []).append(position)
            for ref in self.writes[position]:
                self.writer[ref] = position
                self.versions.setdefault(ref.storage, {})[ref] = None
            for storage in dict.fromkeys(ref.storage for ref in self.writes[position]):
                self.written[storage] = self.written.get(storage, 0) + 1

    def fused(self) -> Program:
        """The program after it, with what was refused; the same object if there is nothing to say."""
        self._run()
        notes = self._notes()
        program = replace(self.program, notes=(*self.program.notes, *notes)) if notes else self.program
        return with_nodes(program, self._result()) if self.is_changed else program

    def _run(self) -> None:
        """Best pair first, until no pair is left."""
        heap = [entry for n in range(len(self.nodes)) for entry in self._candidates(n) if entry[1] == n]
        heapq.heapify(heap)
        while heap:
            saved, a, b, stamp_a, stamp_b = heapq.heappop(heap)
            if (self.stamp[a], self.stamp[b]) != (stamp_a, stamp_b):
                continue
            first, second = (a, b) if self.order.rank[a] < self.order.rank[b] else (b, a)
            joined = self._too_much(first, second, -saved) or self._beyond(first, second) or self._joined(first, second)
            if isinstance(joined, CannotJoin):
                self.refusals[first, second] = joined.reason
            if not isinstance(joined, Kernel):
                continue
            self._merge(first, second, joined)
            for entry in self._candidates(first):
                heapq.heappush(heap, entry)

    def _joined(self, first: int, second: int) -> Kernel | CannotJoin | None:
        """None if there is nothing to try."""
        a, b = self.nodes[first], self.nodes[second]
        assert isinstance(a, Kernel)
        assert isinstance(b, Kernel)
        if (other := self.order.node_between(first, second)) is not None:
            self.refusals[first, second] = other
            return None
        made = self.writes[first]
        if len({self.limits.table[ref.storage].device for ref in (*made, *self.writes[second])}) > 1:
            return CannotJoin("they run on different devices")
        if not set(b.after).isdisjoint(made):
            return CannotJoin("the second has to begin after the first has ended")
        droppable = frozenset(ref for ref in made if self._is_private(ref, first, second))
        joined: Kernel | CannotJoin | None = None
        if self.views is None or self.stamp[first] or self.stamp[second]:
            joined = join(a, b, droppable, self.limits)
        for pair in self.views(a, b) if self.views is not None and not isinstance(joined, Kernel) else ():
            joined = join(*pair, droppable, self.limits)
            if isinstance(joined, Kernel):
                break
        return joined

    def _too_much(self, first: int, second: int, saved: int) -> CannotJoin | None:
        """What dies in one kernel makes room for the operands of the other; joined, all are alive at once."""
        dying = [self._dying(first, second), self._dying(second, first)]
        room: list[int] = []
        for node, mine, others in ((first, *dying), (second, *reversed(dying))):
            # what one node makes is alive at once in any case
            apart = [storage for storage, maker in mine.items() if maker not in others.values()]
            made = dict.fromkeys(ref.storage for ref in self.writes[node])
            room.append(sum(self.bytes[storage] for storage in apart) - sum(self.bytes[storage] for storage in made))
        more = min(room)
        if more <= max(HELD_BYTES, HELD_SHARE * saved):
            return None
        return CannotJoin(f"joined, they would hold {more} bytes more at once, and save {saved}")

    def _beyond(self, first: int, second: int) -> CannotJoin | None:
        """Whether the joined kernel would wait for more intermediate results than the user allows."""
        if not self.most:
            return None
        names = {ref.storage for ref in (*self.reads[first], *self.reads[second]) if ref.storage in self.written}
        wanted = sum(self.bytes[name] for name in names - {ref.storage for ref in self.writes[first]})
        if wanted <= self.most:
            return None
        return CannotJoin(f"would wait for {wanted} bytes of intermediate results, {self.most} being the bound")

    def _dying(self, node: int, other: int) -> dict[str, int]:
        """The storages that nobody else reads, and that come from neither of the two, with their makers."""
        found: dict[str, int] = {}
        for storage in dict.fromkeys(ref.storage for ref in self.reads[node]):
            versions = self.versions.get(storage, {}) if storage not in self.kept else {}
            readers = {reader for ref in versions for reader in self.readers.get(ref, ())[:2]}
            makers = [self.writer[ref] for ref in versions]
            if readers == {node} and node not in makers and other not in makers:
                found[storage] = makers[0]
        return found

    def _is_private(self, ref: Ref, first: int, second: int) -> bool:
        """Whether nobody else would miss what the first makes and the second reads."""
        if ref.storage in self.kept or self.written[ref.storage] > 1:
            return False
        readers = (self.readers.get(version, ()) for version in self.versions[ref.storage])
        return all(reader in (first, second) for some in readers for reader in some[:3])

    def _merge(self, first: int, second: int, joined: Kernel) -> None:
        joined = replace(joined, after=self._after(first, second))
        for node in (first, second):
            for ref in self.reads[node]:
                readers = self.readers[ref]
                del readers[bisect_left(readers, node)]
        mine = {ref.storage for ref in self.writes[first]}
        for storage in mine & {ref.storage for ref in self.writes[second]}:
            self.written[storage] -= 1
        self.order.merge(first, second)
        self.members[first] = tuple(sorted((*self.members[first], *self.members[second])))
        self.home[second] = first
        self.nodes[first], self.nodes[second] = joined, None
        self.stamp[first] += 1
        self.stamp[second] = -1
        self.is_changed = True
        self.reads[first], self.writes[first], self.points[first] = reads(joined), writes(joined), count_points(joined)
        for ref in self.reads[first]:
            insort(self.readers[ref], first)
        for ref in self.writes[first]:
            self.writer[ref] = first

    def _after(self, first: int, second: int) -> tuple[Ref, ...]:
        """What a joined kernel runs after."""
        both = (self.nodes[first], self.nodes[second])
        return tuple(dict.fromkeys(ref for node in both if node is not None for ref in awaited(node)))

    # --- candidates

    def _candidates(self, node: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Pairs with this node: the negative of the bytes saved, the lower id, the other one, their stamps."""
        if not isinstance(self.nodes[node], Kernel):
            return
        saved: dict[int, int] = {}
        flows: set[int] = set()
        for ref in self.writes[node]:
            for other in self.readers.get(ref, ()):
                self._count(saved, flows, node, other, ref)
            for version in (ref.version - 1, ref.version + 1):
                # slices of one storage: nothing is saved but a launch
                other = self.writer.get(Ref(ref.storage, version), node)
                saved[other] = saved.get(other, 0) + 1
                flows.add(other)
            # who reads what this overwrites: the element is in the cache then
            for other in self.readers.get(Ref(ref.storage, ref.version - 1), ()):
                saved[other] = saved.get(other, 0) + 1
                flows.add(other)
        for ref in self.reads[node]:
            if ref in self.writer:
                self._count(saved, flows, self.writer[ref], node, ref)
            other = self.writer.get(Ref(ref.storage, ref.version + 1), node)
            saved[other] = saved.get(other, 0) + 1
            flows.add(other)
            for other in self._near(node, ref):
                saved[other] = saved.get(other, 0) + self.bytes[ref.storage]
        for other, amount in saved.items():
            if other == node or not isinstance(self.nodes[other], Kernel):
                continue
            least = min(self.points[node], self.points[other])
            if other in flows or least <= LAUNCH_POINTS or 2 * amount >= least:
                a, b = min(node, other), max(node, other)
                yield -amount, a, b, self.stamp[a], self.stamp[b]

    def _count(self, saved: dict[int, int], flows: set[int], first: int, second: int, ref: Ref) -> None:
        """A value that the second need not read, and that the first need not write if nobody else reads it."""
        times = 2 if self._is_private(ref, first, second) else 1
        for node in (first, second):
            saved[node] = saved.get(node, 0) + times * self.bytes[ref.storage]
            flows.add(node)

    def _near(self, node: int, ref: Ref) -> list[int]:
        """Other readers of a version, within the window."""
        readers, rank = self.readers[ref], self.order.rank
        place = bisect_left(readers, node)
        around = readers[max(0, place - WINDOW) : place + WINDOW + 1]
        return [n for n in around if n != node and abs(rank[n] - rank[node]) <= REACH]

    # --- what comes out

    def _result(self) -> tuple[Node, ...]:
        """The nodes in their new order, each with the origins of its members in the old one."""
        nodes: list[Node] = []
        for node in sorted((n for n, node in enumerate(self.nodes) if node is not None), key=self._rank):
            made = self.nodes[node]
            assert made is not None
            if isinstance(made, Kernel) and len(self.members[node]) > 1:
                made = replace(made, origins=self._origins(node))
            nodes.append(made)
        return tuple(nodes)

    def _rank(self, node: int) -> float:
        return self.order.rank[node]

    def _origins(self, node: int) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(o for m in self.members[node] for o in self.program.nodes[m].origins))

    def _notes(self) -> tuple[WhyNot | Joined, ...]:
        """The last refusal of each pair that is still two, by the names that the kernels have now, and who is gone.

        What an earlier round has said of a pair is not said again.
        """
        found: dict[tuple[str, str], WhyNot] = {}
        known = {(n.first, n.second, n.reason) for n in self.program.notes if isinstance(n, WhyNot)}
        for (first, second), said in self.refusals.items():
            a, b = self._now(first), self._now(second)
            reason = said if isinstance(said, str) else f"{self._called(said, (a, b))} must run in between"
            if a is not b and (a.name, b.name, reason) not in known:
                found[a.name, b.name] = WhyNot(self.stage, a.name, b.name, reason)
        gone = [n for n, home in enumerate(self.home) if home != n]
        return (*found.values(), *(Joined(self.stage, self._named(n), self._now(n).name) for n in gone))

    def _named(self, node: int) -> str:
        kernel = self.program.nodes[node]
        assert isinstance(kernel, Kernel)
        return kernel.name

    def _now(self, node: int) -> Kernel:
        kernel = self._there(node)
        assert isinstance(kernel, Kernel)
        return kernel

    def _there(self, node: int) -> Node:
        while self.home[node] != node:
            node = self.home[node]
        found = self.nodes[node]
        assert found is not None
        return found

    def _called(self, node: int, pair: tuple[Kernel, Kernel]) -> str:
        """A node as a sentence about a pair names it: by what it was, if it is a part of one of them by now."""
        found = self._there(node)
        match self.program.nodes[node] if found in pair else found:
            case Kernel(name=name):
                return name
            case Extern(name=name, op=op):
                return f"{name} ({op})"
            case SymbolDef(symbol=symbol):
                return f"the definition of {symbol}"
            case Require(message=message):
                return f"the check that {message!r} stands for"
