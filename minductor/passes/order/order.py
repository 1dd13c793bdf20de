"""Puts nodes in an order that needs little memory at a time.

Takes a program. Gives it with its nodes in an order that respects every edge: of the old order and those below the one
with the lowest peak, the first of them on ties. Refuses nothing.

No order is best for all programs: two see one step ahead, depth first finishes a branch before it begins the next,
breadth first begins all of them, and the old order is what the user wrote.
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
    """One program in, one out; see above. `env` is not asked: least memory is best everywhere."""
    del env
    usage = Usage(program)
    before, after = neighbours(len(program.nodes), dependencies(program))
    orders = [list(range(len(program.nodes)))]
    orders += [make(usage, before, after) for make in ORDERS]
    best = min(orders, key=usage.peak)
    return program if best is orders[0] else replace(program, nodes=tuple(program.nodes[n] for n in best))


def least_peak_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Of the nodes that may run, the one that leaves least of those that do not raise the peak, else the smallest.

    Ties in the old order. The peak begins with what the program is given or returns, which no order avoids.
    """
    memory = _Memory(usage)
    return _listed(memory, before, after, lambda: memory.peak - memory.now)


def least_memory_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Of the nodes that may run, the one that leaves least in use; ties in the old order."""
    return _listed(_Memory(usage), before, after, lambda: sys.maxsize)


def _listed(memory: _Memory, before: Neighbours, after: Neighbours, room: Callable[[], int]) -> list[int]:
    """List scheduling. What a node needs and leaves changes only when another one runs that shares a storage."""
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


class _Memory:
    """What is in use while nodes run, and what each would need."""

    def __init__(self, usage: Usage) -> None:
        self.usage = usage
        self.left = dict(usage.count)
        self.live = set(usage.given)
        self.now = sum(usage.size[name] for name in self.live)
        self.peak = max(self.now, sum(usage.size[name] for name in usage.returned))

    def cost(self, node: int) -> tuple[int, int]:
        """The bytes that a node needs while it runs, and those that it leaves in use beyond what there was."""
        size, live, left = self.usage.size, self.live, self.left
        names = self.usage.uses[node]
        made = sum(size[name] for name in names if name not in live)
        return made, made - sum(size[name] for name in names if left[name] == 1)

    def run(self, node: int) -> dict[int, None]:
        """Runs it; gives the nodes whose cost has changed, itself perhaps among them."""
        changed: dict[int, None] = {}
        made, kept = self.cost(node)
        self.peak = max(self.peak, self.now + made)
        self.now += kept
        for name in self.usage.uses[node]:
            self.left[name] -= 1
            if name not in self.live or self.left[name] == 1:
                changed.update(dict.fromkeys(self.usage.users[name]))
            self.live.add(name)
        return changed


class _Ready:
    """Nodes with what each needs and keeps. One whose cost changes is put again; its old entries are passed over."""

    def __init__(self) -> None:
        self._cost: dict[int, tuple[int, int]] = {}
        self._smallest: list[tuple[int, int]] = []
        self._by_need: dict[int, list[tuple[int, int]]] = {}  # few sizes occur in a program

    def __len__(self) -> int:
        return len(self._cost)

    def __contains__(self, node: int) -> bool:
        return node in self._cost

    def put(self, node: int, needs: int, keeps: int) -> None:
        if self._cost.get(node) != (needs, keeps):
            self._cost[node] = (needs, keeps)
            heapq.heappush(self._smallest, (needs, node))
            heapq.heappush(self._by_need.setdefault(needs, []), (keeps, node))

    def take(self, room: int) -> int:
        """Of the nodes that need no more than there is room for the one that keeps least, else the smallest."""
        fits = [first for needs in list(self._by_need) if needs <= room and (first := self._first(needs)) is not None]
        while not fits:
            needs, node = heapq.heappop(self._smallest)
            if node in self._cost and self._cost[node][0] == needs:
                fits.append((0, node))
        _, node = min(fits)
        del self._cost[node]
        return node

    def _first(self, needs: int) -> tuple[int, int] | None:
        """The one that keeps least of those that need so much."""
        heap = self._by_need[needs]
        while heap and self._cost.get(heap[0][1]) != (needs, heap[0][0]):
            heapq.heappop(heap)
        if heap:
            return heap[0]
        del self._by_need[needs]
        return None


def breadth_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """What waited for the nodes that ran earliest comes first."""
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
    """Each node behind all that it waits for, of which what takes least comes first; ties in the old order.

    A node takes what it makes, and what it reads that is not returned.
    """
    size = usage.size
    taken = [
        sum(size[name] for name in names if usage.users[name][0] == node or name not in usage.returned)
        for node, names in enumerate(usage.uses)
    ]
    return _dived(before, after, taken)


def widest_first(usage: Usage, before: Neighbours, after: Neighbours) -> list[int]:
    """Each node behind all that it waits for, of which that comes first whose making needs most beyond what it leaves.

    So the widest branches run while little else is in use; the best order for a tree (Liu, 1987). A value that several
    nodes wait for belongs to the branch of the first of them.
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
    return _dived(before, after, [-amount for amount in excess])


def _dived(before: Neighbours, after: Neighbours, weight: Sequence[int]) -> list[int]:
    """From the nodes that nobody waits for down to what they wait for, what weighs least first."""

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
