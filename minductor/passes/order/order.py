"""Orders the nodes of a program so that the peak of live memory is low.

Takes a program. Gives it with its nodes in the order with the lowest peak: the old order, or one of five that this file
makes (`ORDERS`). On ties the first one of these is taken. Refuses nothing. All orders respect the dependencies.

No method is best for all programs. `least_peak_first` and `least_memory_first` look one node ahead; `depth_first` and
`widest_first` finish a branch before they begin the next one; `breadth_first` begins all branches; and the old order is
the one that the user wrote.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from minductor.analysis.dependencies import dependencies, neighbours
from minductor.ir.plan.storage import Usage
from minductor.ir.program.nodes import Program
from minductor.target import Env

Neighbours = Sequence[set[int]]


def order(program: Program, env: Env) -> Program:
    """The program in the order with the lowest peak of memory, on any target."""
    del env
    usage = Usage(program)
    before, after = neighbours(len(program.nodes), dependencies(program))
    orders = [list(range(len(program.nodes)))]
    orders += [make(usage, before, after) for make in ORDERS]
    best = min(orders, key=usage.peak)
    return program if best is orders[0] else replace(program, nodes=tuple(program.nodes[n] for n in best))


def least_peak_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Runs next the node that adds least live memory, of the ready nodes that do not raise the peak.

    If all of them raise it, the one that needs least memory while it runs. Ties are broken by the old order. The peak
    starts as the bytes of the donated inputs, or of the outputs if these are more: no order needs less.
    """
    memory = _LiveMemory(usage)
    return _schedule(memory, before, after, lambda: memory.peak - memory.live_bytes)


def least_memory_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Runs next the ready node that adds least live memory. Ties are broken by the old order."""
    return _schedule(_LiveMemory(usage), before, after, lambda: sys.maxsize)


def _schedule(memory: _LiveMemory, before: Neighbours, after: Neighbours, room: Callable[[], int]) -> list[int]:
    """List scheduling: an order in which each next node is chosen among the ready ones, by `_Ready.take`.

    `room` gives the bytes that a node may need at this time. The cost of a node changes only when another node runs
    that shares a storage with it.
    """
    waits = [len(sources) for sources in before]
    ready = _Ready()
    for node, count in enumerate(waits):
        if count == 0:
            ready.put(node, *memory.cost(node))
    found: list[int] = []
    while ready:
        node = ready.take(room())
        found.append(node)
        changed = memory.run(node)
        for target in after[node]:
            waits[target] -= 1
            if waits[target] == 0:
                ready.put(target, *memory.cost(target))
        for other in changed:
            if other in ready:
                ready.put(other, *memory.cost(other))
    return found


class _LiveMemory:
    """The live storages while nodes run, in bytes, and what each further node would add."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.uses_left = dict(usage.count)
        self.live = set(usage.given)
        self.live_bytes = sum(usage.size[name] for name in self.live)
        self.peak = max(self.live_bytes, sum(usage.size[name] for name in usage.returned))

    def cost(self, node: int) -> tuple[int, int]:
        """The bytes that a node needs beyond the live ones while it runs, and those that it adds once it has run."""
        size, live, left = self.usage.size, self.live, self.uses_left
        names = self.usage.uses[node]
        made = sum(size[name] for name in names if name not in live)
        return made, made - sum(size[name] for name in names if left[name] == 1)

    def run(self, node: int) -> dict[int, None]:
        """Runs a node. Gives the nodes whose cost has changed by that; the node itself may be among them."""
        changed: dict[int, None] = {}
        made, kept = self.cost(node)
        self.peak = max(self.peak, self.live_bytes + made)
        self.live_bytes += kept
        for name in self.usage.uses[node]:
            self.uses_left[name] -= 1
            if name not in self.live or self.uses_left[name] == 1:
                changed.update(dict.fromkeys(self.usage.users[name]))
            self.live.add(name)
        return changed


class _Ready:
    """The ready nodes, in heaps by their cost. A node whose cost changes is put again; its old entries are skipped."""

    def __init__(self) -> None:
        self._cost: dict[int, tuple[int, int]] = {}
        self._smallest: list[tuple[int, int]] = []
        self._by_need: dict[int, list[tuple[int, int]]] = {}  # one heap for each size; few sizes occur in a program

    def __len__(self) -> int:
        return len(self._cost)

    def __contains__(self, node: int) -> bool:
        return node in self._cost

    def put(self, node: int, needs: int, keeps: int) -> None:
        """Adds a ready node, or changes its cost."""
        if self._cost.get(node) != (needs, keeps):
            self._cost[node] = (needs, keeps)
            heapq.heappush(self._smallest, (needs, node))
            heapq.heappush(self._by_need.setdefault(needs, []), (keeps, node))

    def take(self, room: int) -> int:
        """Takes out the node that keeps least of those that need at most `room` bytes; else the smallest."""
        fits = [first for needs in list(self._by_need) if needs <= room and (first := self._least(needs)) is not None]
        while not fits:
            needs, node = heapq.heappop(self._smallest)
            if node in self._cost and self._cost[node][0] == needs:
                fits.append((0, node))
        _, node = min(fits)
        del self._cost[node]
        return node

    def _least(self, needs: int) -> tuple[int, int] | None:
        """The entry of the node that keeps least, of those that need exactly so many bytes; None if there is none."""
        heap = self._by_need[needs]
        while heap and self._cost.get(heap[0][1]) != (needs, heap[0][0]):
            heapq.heappop(heap)
        if heap:
            return heap[0]
        del self._by_need[needs]
        return None


def breadth_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Runs first the node whose predecessors ran earliest."""
    del usage
    waits = [len(sources) for sources in before]
    heap: list[tuple[list[int], int]] = [([], node) for node, count in enumerate(waits) if count == 0]
    place: dict[int, int] = {}
    while heap:
        _, node = heapq.heappop(heap)
        place[node] = len(place)
        for target in after[node]:
            waits[target] -= 1
            if waits[target] == 0:
                heapq.heappush(heap, (sorted(place[source] for source in before[target]), target))
    return list(place)


def depth_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Runs each node directly after its predecessors; of these, the one with the smallest storages first.

    The storages of a node are those that it makes, and those that it reads and the program does not return. Ties are
    broken by the old order.
    """
    size = usage.size
    taken = [
        sum(size[name] for name in names if usage.users[name][0] == node or name not in usage.returned)
        for node, names in enumerate(usage.uses)
    ]
    return _depth_first_by(before, after, taken)


def widest_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Runs each node directly after its predecessors; of these, first the one whose branch has the highest excess.

    The excess of a branch is its peak of memory minus what it leaves live. So branches with a high peak run while
    little else is live. This is the best order if the graph is a tree (Liu, 1987). A node with several successors
    belongs to the branch of the first of them.
    """
    size = usage.size
    excess, leaves = [0] * len(before), [0] * len(before)
    parent = [min(targets, default=-1) for targets in after]
    for node, names in enumerate(usage.uses):
        branches = sorted((s for s in before[node] if parent[s] == node), key=lambda s: (-excess[s], s))
        now = most = 0
        for source in branches:
            most = max(most, now + excess[source] + leaves[source])
            now += leaves[source]
        made = sum(size[name] for name in names if usage.users[name][0] == node)
        most = max(most, now + made)
        ended = sum(size[name] for name in names if name not in usage.returned and usage.users[name][-1] == node)
        leaves[node] = max(now + made - ended, 0)
        excess[node] = most - leaves[node]
    return _depth_first_by(before, after, [-amount for amount in excess])


def _depth_first_by(before: Neighbours, after: Neighbours, weight: Sequence[int]) -> list[int]:
    """Depth first from the nodes without successors to their predecessors, those of the smallest weight first."""

    def ranked(nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (weight[node], node), reverse=True)

    found: dict[int, None] = {}
    pending = ranked(node for node, targets in enumerate(after) if not targets)
    while pending:
        node = pending[-1]
        missing = () if node in found else [source for source in before[node] if source not in found]
        if missing:
            pending += ranked(missing)
        else:
            found[pending.pop()] = None
    return list(found)


ORDERS = (least_peak_first, breadth_first, depth_first, least_memory_first, widest_first)
