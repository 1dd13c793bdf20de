"""A partial order that nodes can be merged in without making a cycle, kept with a topological rank for each node.

Takes a number of nodes and edges between them, each from a lower to a higher position. Gives ranks, and merges.
Refuses a merge of two nodes with a path through a third.

A search looks only at nodes that rank between the two (Pearce and Kelly, 2006), so it is as short as they are near.

>>> order = Acyclic(4, [(0, 1), (1, 3), (0, 2), (0, 3)])
>>> order.is_between(0, 3), order.is_between(0, 1)
(True, False)
>>> order.merge(0, 1), order.is_between(0, 3)
(None, False)
"""

from __future__ import annotations

from collections.abc import Iterable

# beyond so many nodes in between two nodes count as connected
HORIZON = 4096


class Acyclic:
    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        self.rank = list(range(count))
        self._before: list[set[int]] = [set() for _ in range(count)]
        self._after: list[set[int]] = [set() for _ in range(count)]
        for source, target in edges:
            if source >= target:
                raise ValueError(f"edge {source} -> {target} runs backwards")
            self._before[target].add(source)
            self._after[source].add(target)

    def is_between(self, first: int, second: int) -> bool:
        """Whether a third node lies on a path from the first node, the lower in rank, to the second."""
        low, high = self.rank[first], self.rank[second]
        if low >= high:
            raise ValueError(f"{first} does not rank before {second}")
        return self._reached(first, second, self._after, low, high) is None

    def merge(self, first: int, second: int) -> None:
        """The second node becomes part of the first; there must be nothing in between."""
        low, high = self.rank[first], self.rank[second]
        later = self._reached(first, second, self._after, low, high)
        earlier = self._reached(second, first, self._before, low, high)
        if later is None or earlier is None:
            raise ValueError(f"merging {first} and {second} makes a cycle")
        moved = [*sorted(earlier, key=self._rank_of), first, *sorted(later, key=self._rank_of)]
        pool = sorted(self.rank[node] for node in (*moved, second))
        del pool[len(earlier) + 1]
        for node, rank in zip(moved, pool, strict=True):
            self.rank[node] = rank
        for here, there in ((self._before, self._after), (self._after, self._before)):
            for node in here[second]:
                there[node].discard(second)
                if node != first:
                    there[node].add(first)
            here[first] |= here[second]
            here[second] = set()
            here[first] -= {first, second}

    def _rank_of(self, node: int) -> int:
        return self.rank[node]

    def _reached(self, start: int, end: int, step: list[set[int]], low: int, high: int) -> set[int] | None:
        """The nodes reached from start that rank between low and high; None if one of them leads to the end."""
        found: set[int] = set()
        pending = [node for node in step[start] if node != end]
        while pending:
            node = pending.pop()
            if node in found or not low < self.rank[node] < high:
                continue
            if end in step[node] or len(found) >= HORIZON:
                return None
            found.add(node)
            pending.extend(step[node])
        return found
