"""One round of fusion: tries pairs of kernels, those that save most bytes first, until no pair can be fused.

Takes a program whose nodes stand in an order that respects their dependencies. Gives a program with fewer kernels, in
such an order. Refuses, with a `FusionRefusal` for each pair that was tried: what `join_kernels` refuses; pairs between
which another node must run; kernels on different devices; an order that the user asked for; and fusions that keep more
bytes alive than they are worth.

Two stages run such a round: `fuse`, and `loop_order` on pairs with split, merged or unrolled loops.

Candidates are a producer and its consumer, two kernels that read the same version of a storage, and kernels that write
slices of one storage. For each pair the saved bytes are estimated: a value that the second kernel need not load, and
that the first one need not store if nobody else reads it; of a storage of which a kernel touches a part, that part. Two
kernels that only read the same are tried if these bytes and a launch are worth more than a tie. A fused kernel is a
candidate for further pairs. Of pairs that save the same, those of kernels that transpose come last.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from minductor.analysis.acyclic import AcyclicOrder
from minductor.analysis.dependencies import dependencies
from minductor.analysis.domain import buffer_bytes
from minductor.cost.kernel_seconds import TIE, Prices
from minductor.ir.program.nodes import (
    Extern,
    FusionRefusal,
    Kernel,
    MergedKernel,
    Node,
    Origin,
    Program,
    Ref,
    Require,
    SymbolDef,
    awaited_refs,
    reads,
    views_of,
    writes,
)
from minductor.ir.report.refusals import MAX_DISTANCE, MAX_NEIGHBOURS
from minductor.passes.rewriting.join_kernels import CannotJoin, JoinContext, join
from minductor.passes.rewriting.prune import with_nodes
from minductor.target import Env

# bytes: a fusion may keep so many more alive at once than its two kernels would, or if that is more,
# EXTRA_LIVE_PER_SAVED times the bytes that it saves
EXTRA_LIVE_BYTES = 1 << 20
EXTRA_LIVE_PER_SAVED = 32

# Gives other forms of a pair of kernels, with other loops, for `join` to try.
Views: TypeAlias = Callable[[Kernel, Kernel], Iterable[tuple[Kernel, Kernel]]]


class GreedyFusion:
    """One round of fusion over a program; `fused` runs it.

    `stage`: the name that the notes of this round have. `views`: if given, pairs are tried in the forms that it gives.
    Nodes are known by their position in the program. A fused kernel has the position of the first of its two kernels.
    """

    def __init__(self, program: Program, env: Env, stage: str, views: Views | None = None) -> None:
        self.program = program
        self.stage = stage
        self.views = views
        self.max_live = env.options.max_live_bytes
        self.nodes: list[Node | None] = list(program.nodes)
        # These need a walk through a node's body, and are asked for again and again.
        self.reads, self.writes = [reads(node) for node in program.nodes], [writes(node) for node in program.nodes]
        table = program.real_table()
        self.context = JoinContext(table, env.target, program.hints, Prices(table, env.target, program.hints))
        self.sizes = {name: buffer_bytes(buffer, program.hints) for name, buffer in self.context.table.items()}
        prices = self.context.prices
        self.alone = [prices.alone(node) if isinstance(node, Kernel) else None for node in program.nodes]
        self.order = AcyclicOrder(len(self.nodes), dict.fromkeys((e.source, e.target) for e in dependencies(program)))
        self.members: list[tuple[int, ...]] = [(n,) for n in range(len(self.nodes))]
        self.stamps = [0] * len(self.nodes)
        self.merged_into = list(range(len(self.nodes)))  # by position; a node that still exists names itself
        # the reason, or the node that must run between the two
        self.refusals: dict[tuple[int, int], CannotJoin | int] = {}
        self.reasons: dict[int, tuple[str, str]] = {}  # by node: why it became part of another one, and figures
        self.is_changed = False
        self.writer: dict[Ref, int] = {}
        self.readers: dict[Ref, list[int]] = {}  # sorted positions
        self.writer_count: dict[str, int] = {}  # by how many nodes a storage is written
        self.versions: dict[str, dict[Ref, None]] = {}
        self.kept_storages = {view.ref.storage for output in program.outputs for view in views_of(output)}
        self.kept_storages.update(buffer.name for buffer in program.buffers if buffer.kind != "local")
        self.kept_storages.update(ref.storage for node in program.nodes for ref in awaited_refs(node))
        for position in range(len(self.nodes)):
            for ref in self.reads[position]:
                self.readers.setdefault(ref, []).append(position)
            for ref in self.writes[position]:
                self.writer[ref] = position
                self.versions.setdefault(ref.storage, {})[ref] = None
            for storage in dict.fromkeys(ref.storage for ref in self.writes[position]):
                self.writer_count[storage] = self.writer_count.get(storage, 0) + 1

    def fused(self) -> Program:
        """The program after this round, with its refusals as notes; the same object if there is nothing new."""
        self._run()
        notes = self._notes()
        program = replace(self.program, notes=(*self.program.notes, *notes)) if notes else self.program
        return with_nodes(program, self._new_nodes()) if self.is_changed else program

    def _run(self) -> None:
        """Fuses pairs, best first, until no pair is left."""
        heap = [entry for n in range(len(self.nodes)) for entry in self._candidates(n) if entry[2] == n]
        heapq.heapify(heap)
        while heap:
            saved, _, a, b, stamp_a, stamp_b = heapq.heappop(heap)
            if (self.stamps[a], self.stamps[b]) != (stamp_a, stamp_b):
                continue
            first, second = (a, b) if self.order.rank[a] < self.order.rank[b] else (b, a)
            pair = first, second
            joined = self._memory_refusal(*pair, -saved) or self._limit_refusal(*pair) or self._try_pair(*pair)
            if isinstance(joined, CannotJoin):
                self.refusals[first, second] = joined
            if not isinstance(joined, Kernel):
                continue
            self.reasons[second] = self._reason(first, second, joined, -saved)
            self._merge(first, second, joined)
            for entry in self._candidates(first):
                heapq.heappush(heap, entry)

    def _try_pair(self, first: int, second: int) -> Kernel | CannotJoin | None:
        """The two nodes as one kernel, or the reason why not; None if `views` has no form of the pair to try."""
        a, b = self.nodes[first], self.nodes[second]
        assert isinstance(a, Kernel)
        assert isinstance(b, Kernel)
        if (other := self.order.node_between(first, second)) is not None:
            self.refusals[first, second] = other
            return None
        made = self.writes[first]
        if len({self.context.table[ref.storage].device for ref in (*made, *self.writes[second])}) > 1:
            return CannotJoin("they run on different devices")
        if not set(b.after).isdisjoint(made):
            return CannotJoin("the second must begin after the first has ended (control_deps)")
        droppable = frozenset(ref for ref in made if self._is_private(ref, first, second))
        joined: Kernel | CannotJoin | None = None
        if self.views is None or self.stamps[first] or self.stamps[second]:
            joined = join(a, b, droppable, self.context)
        for pair in self.views(a, b) if self.views is not None and not isinstance(joined, Kernel) else ():
            joined = join(*pair, droppable, self.context, (a, b))
            if isinstance(joined, Kernel):
                break
        return joined

    def _memory_refusal(self, first: int, second: int, saved: int) -> CannotJoin | None:
        """A refusal if fusion keeps too many bytes alive: operands of both kernels, which else die in turn."""
        dying = [self._dying_operands(first, second), self._dying_operands(second, first)]
        room: list[int] = []
        for node, mine, others in ((first, *dying), (second, *reversed(dying))):
            # operands that one node makes are all alive at once, fused or not
            apart = [storage for storage, maker in mine.items() if maker not in others.values()]
            made = dict.fromkeys(ref.storage for ref in self.writes[node])
            room.append(sum(self.sizes[storage] for storage in apart) - sum(self.sizes[storage] for storage in made))
        more = min(room)
        if more <= max(EXTRA_LIVE_BYTES, EXTRA_LIVE_PER_SAVED * saved):
            return None
        return CannotJoin(f"fused, they would keep {more} more bytes alive at once, to save {saved} bytes of traffic")

    def _limit_refusal(self, first: int, second: int) -> CannotJoin | None:
        """A refusal if the fused kernel needs more bytes of intermediate results than the user allows."""
        if not self.max_live:
            return None
        names = {ref.storage for ref in (*self.reads[first], *self.reads[second]) if ref.storage in self.writer_count}
        wanted = sum(self.sizes[name] for name in names - {ref.storage for ref in self.writes[first]})
        if wanted <= self.max_live:
            return None
        return CannotJoin(f"would need {wanted} bytes of intermediate results at once; the limit is {self.max_live}")

    def _dying_operands(self, node: int, other: int) -> dict[str, int]:
        """The storages that only `node` reads and neither of the two nodes writes, with the nodes that write them."""
        found: dict[str, int] = {}
        for storage in dict.fromkeys(ref.storage for ref in self.reads[node]):
            versions = self.versions.get(storage, {}) if storage not in self.kept_storages else {}
            readers = {reader for ref in versions for reader in self.readers.get(ref, ())[:2]}
            makers = [self.writer[ref] for ref in versions]
            if readers == {node} and node not in makers and other not in makers:
                found[storage] = makers[0]
        return found

    def _is_private(self, ref: Ref, first: int, second: int) -> bool:
        """Whether no node but these two reads a version that the first writes, so that its store can be left out."""
        if ref.storage in self.kept_storages or self.writer_count[ref.storage] > 1:
            return False
        readers = (self.readers.get(version, ()) for version in self.versions[ref.storage])
        return all(reader in (first, second) for some in readers for reader in some[:3])

    def _merge(self, first: int, second: int, joined: Kernel) -> None:
        """Replaces two nodes by one kernel, under the position of the first."""
        joined = replace(joined, after=self._waits_for(first, second))
        for node in (first, second):
            for ref in self.reads[node]:
                readers = self.readers[ref]
                del readers[bisect_left(readers, node)]
        mine = {ref.storage for ref in self.writes[first]}
        for storage in mine & {ref.storage for ref in self.writes[second]}:
            self.writer_count[storage] -= 1
        self.order.merge(first, second)
        self.members[first] = tuple(sorted((*self.members[first], *self.members[second])))
        self.merged_into[second] = first
        self.nodes[first], self.nodes[second] = joined, None
        self.stamps[first] += 1
        self.stamps[second] = -1
        self.is_changed = True
        self.reads[first], self.writes[first] = reads(joined), writes(joined)
        self.alone[first] = self.context.prices.alone(joined)
        for ref in self.reads[first]:
            insort(self.readers[ref], first)
        for ref in self.writes[first]:
            self.writer[ref] = first

    def _reason(self, first: int, second: int, joined: Kernel, saved: int) -> tuple[str, str]:
        """Why two kernels become one, with the seconds of one kernel and of two."""
        prices, pair = self.context.prices, (self.nodes[first], self.nodes[second])
        apart = [prices.shape(node) for node in pair if isinstance(node, Kernel)]
        figures = prices.compared([prices.shape(joined)], apart).figures("together", "apart")
        return f"one kernel moves up to {saved} bytes less" if saved > 1 else "one kernel saves a launch", figures

    def _waits_for(self, first: int, second: int) -> tuple[Ref, ...]:
        """The versions that must be complete before the fused kernel begins, because the user asked for that."""
        both = (self.nodes[first], self.nodes[second])
        return tuple(dict.fromkeys(ref for node in both if node is not None for ref in awaited_refs(node)))

    # --- candidates

    def _candidates(self, node: int) -> Iterator[tuple[int, bool, int, int, int, int]]:
        """Pairs with this node as heap entries: minus the saved bytes, whether one of the two transposes, the lower
        position, the higher, their stamps.

        Of pairs that save the same, those that transpose come last: what others could do as well costs them more.
        A stamp changes when its node is fused, which makes older entries invalid.
        """
        if not isinstance(self.nodes[node], Kernel):
            return
        saved: dict[int, int] = {}
        flows: set[int] = set()
        for ref in self.writes[node]:
            for other in self.readers.get(ref, ()):
                self._add_saving(saved, flows, node, other, ref)
            for version in (ref.version - 1, ref.version + 1):
                # Kernels that write slices of one storage: fusing them saves only a launch.
                other = self.writer.get(Ref(ref.storage, version), node)
                saved[other] = saved.get(other, 0) + 1
                flows.add(other)
            # A reader of the value that this node overwrites: the element is in the cache then.
            for other in self.readers.get(Ref(ref.storage, ref.version - 1), ()):
                saved[other] = saved.get(other, 0) + 1
                flows.add(other)
        for ref in self.reads[node]:
            if ref in self.writer:
                self._add_saving(saved, flows, self.writer[ref], node, ref)
            other = self.writer.get(Ref(ref.storage, ref.version + 1), node)
            saved[other] = saved.get(other, 0) + 1
            flows.add(other)
            for other in self._nearby_readers(node, ref):
                saved[other] = saved.get(other, 0) + self._common_bytes(node, other, ref.storage)
        mine = self.alone[node]
        for other, amount in saved.items():
            others = self.alone[other]
            if other == node or mine is None or others is None:
                continue
            if other in flows or mine.gain(others, amount) >= (TIE - 1) * (mine.seconds + others.seconds):
                a, b = min(node, other), max(node, other)
                yield -amount, mine.crosses or others.crosses, a, b, self.stamps[a], self.stamps[b]

    def _add_saving(self, saved: dict[int, int], flows: set[int], first: int, second: int, ref: Ref) -> None:
        """Adds the bytes of a value that the second need not load, and the first need not store if it is private."""
        times = 2 if self._is_private(ref, first, second) else 1
        for node in (first, second):
            saved[node] = saved.get(node, 0) + times * self._common_bytes(first, second, ref.storage)
            flows.add(node)

    def _common_bytes(self, first: int, second: int, storage: str) -> int:
        """The bytes of a storage that both of two nodes touch, at most."""
        sizes = (self.alone[node] for node in (first, second))
        return min(self.sizes[storage] if size is None else size.touched[storage] for size in sizes)

    def _nearby_readers(self, node: int, ref: Ref) -> list[int]:
        """Other readers of a version that are near enough to be compared with this node."""
        readers, rank = self.readers[ref], self.order.rank
        place = bisect_left(readers, node)
        around = readers[max(0, place - MAX_NEIGHBOURS) : place + MAX_NEIGHBOURS + 1]
        return [n for n in around if n != node and abs(rank[n] - rank[node]) <= MAX_DISTANCE]

    # --- the fused program

    def _new_nodes(self) -> tuple[Node, ...]:
        """The nodes in their new order. The origins of a fused kernel are those of its kernels, in the old order."""
        nodes: list[Node] = []
        for node in sorted(
            (n for n, node in enumerate(self.nodes) if node is not None), key=self.order.rank.__getitem__
        ):
            made = self.nodes[node]
            assert made is not None
            if isinstance(made, Kernel) and len(self.members[node]) > 1:
                made = replace(made, origins=self._origins(node))
            nodes.append(made)
        return tuple(nodes)

    def _origins(self, node: int) -> tuple[Origin, ...]:
        return tuple(dict.fromkeys(o for m in self.members[node] for o in self.program.nodes[m].origins))

    def _notes(self) -> tuple[FusionRefusal | MergedKernel, ...]:
        """The last refusal of each pair that was not fused, by the present names, and which kernel is part of which.

        Refusals that a note of an earlier round already states are left out.
        """
        found: dict[tuple[str, str], FusionRefusal] = {}
        known = {(n.first, n.second, n.reason) for n in self.program.notes if isinstance(n, FusionRefusal)}
        for (first, second), refusal in self.refusals.items():
            a, b = self._kernel_of(first), self._kernel_of(second)
            if not isinstance(refusal, CannotJoin):
                refusal = CannotJoin(f"{self._label(refusal, (a, b))} must run between them")
            if a is not b and (a.name, b.name, refusal.reason) not in known:
                found[a.name, b.name] = FusionRefusal(self.stage, a.name, b.name, refusal.reason, refusal.figures)
        gone = [n for n, target in enumerate(self.merged_into) if target != n]
        merged = (MergedKernel(self.stage, self._old_name(n), self._kernel_of(n).name, *self.reasons[n]) for n in gone)
        return (*found.values(), *merged)

    def _old_name(self, node: int) -> str:
        """The name that a kernel had before this round."""
        kernel = self.program.nodes[node]
        assert isinstance(kernel, Kernel)
        return kernel.name

    def _kernel_of(self, node: int) -> Kernel:
        """The kernel that a node is or has become part of."""
        kernel = self._node_of(node)
        assert isinstance(kernel, Kernel)
        return kernel

    def _node_of(self, node: int) -> Node:
        """The node that a node is or has become part of."""
        while self.merged_into[node] != node:
            node = self.merged_into[node]
        found = self.nodes[node]
        assert found is not None
        return found

    def _label(self, node: int, pair: tuple[Kernel, Kernel]) -> str:
        """The name of a node for a message about a pair: its original name if it is part of one of the two by now."""
        found = self._node_of(node)
        match self.program.nodes[node] if found in pair else found:
            case Kernel(name=name):
                return name
            case Extern(name=name, op=op):
                return f"{name} ({op})"
            case SymbolDef(symbol=symbol):
                return f"the definition of {symbol}"
            case Require(message=message):
                return f"the check for {message!r}"
