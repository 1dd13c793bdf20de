"""A graph without cycles whose nodes can be merged, as fusion merges kernels, with a topological rank for each node.

Takes a number of nodes and edges between them, each from a lower to a higher number. Gives for two nodes a third one
that must run between them, if there is one, and merges two nodes. Refuses (ValueError) a merge that would make a cycle.

How it stays fast when a program has thousands of nodes:
- The ancestors and descendants of each node in the first graph are kept as bits of an integer. A merge never removes a
  path, so one `and` of two such integers finds most nodes that lie between two others.
- Paths that exist only because of merges are searched for: from both ends at the same time, and only among nodes that
  rank between the two ends (Pearce and Kelly, 2006).
- A merge has to give new ranks to the nodes that rank between the two. It moves the smaller of the two sets that the
  search has found, into a gap between the ranks of two neighbours (Dietz and Sleator, 1987).

>>> order = AcyclicOrder(4, [(0, 1), (1, 3), (0, 2), (0, 3)])
>>> order.node_between(0, 3), order.node_between(0, 1)
(1, None)
>>> order.merge(0, 1), order.node_between(0, 3)
(None, None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

# nodes; the bits of a larger graph would take more than 64 MiB, so every path in it is searched for
MAX_NODES_WITH_BITS = 1 << 14


class AcyclicOrder:
    """`rank[node]` grows along every edge. A merged node keeps the number of the first of the two."""

    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        self.rank = [float(node) for node in range(count)]
        # A ring of the nodes in order of rank: the neighbours of each one. The number `count` stands for both ends.
        self._left = [count, *range(count)]
        self._right = [*range(1, count + 1), 0]
        self._predecessors: list[set[int]] = [set() for _ in range(count)]
        self._successors: list[set[int]] = [set() for _ in range(count)]
        for source, target in edges:
            if source >= target:
                raise ValueError(f"edge {source} -> {target} runs backwards")
            self._predecessors[target].add(source)
            self._successors[source].add(target)
        has_bits = count <= MAX_NODES_WITH_BITS
        self._member_bits = [1 << node for node in range(count)] if has_bits else []
        self._ancestor_bits = _closure(range(count), self._predecessors) if has_bits else []
        self._descendant_bits = _closure(range(count - 1, -1, -1), self._successors) if has_bits else []

    def node_between(self, first: int, second: int) -> int | None:
        """A node that lies on a path from `first` to `second`, which ranks higher; None if there is none.

        The number may be one that the node had before it was merged into another one.
        """
        if self.rank[first] >= self.rank[second]:
            raise ValueError(f"{first} does not rank before {second}")
        if self._member_bits:
            own = self._member_bits[first] | self._member_bits[second]
            if path := self._descendant_bits[first] & self._ancestor_bits[second] & ~own:
                return (path & -path).bit_length() - 1
        between = self._path_or_between(first, second)
        return between if isinstance(between, int) else None

    def merge(self, first: int, second: int) -> None:
        """Merges `second` into `first`. ValueError if a third node lies on a path between them."""
        between = self._path_or_between(first, second)
        if isinstance(between, int):
            raise ValueError(f"merging {first} and {second} makes a cycle through {between}")
        found, is_later = between
        nodes = sorted(found, key=self.rank.__getitem__)
        if is_later:
            self._move([first, *nodes], second)
        else:
            self._move(nodes, self._left[first])
        self._unlink(second)
        for here, there in ((self._predecessors, self._successors), (self._successors, self._predecessors)):
            for node in here[second]:
                there[node].discard(second)
                if node != first:
                    there[node].add(first)
            here[first] |= here[second]
            here[second] = set()
            here[first] -= {first, second}
        for bits in (self._member_bits, self._ancestor_bits, self._descendant_bits) if self._member_bits else ():
            bits[first] |= bits[second]
            bits[second] = 0

    # --- searches

    def _path_or_between(self, first: int, second: int) -> tuple[set[int], bool] | int:
        """A node on a path from `first` to `second`, if there is one. Otherwise a set of nodes and whether it is later.

        The set holds the nodes that rank between the two, and that lead to `second` (False) or that `first` leads to
        (True): of these two sets the one whose search ends sooner.
        """
        earlier, later = set[int](), set[int]()
        backwards = self._walk(second, first, self._predecessors, earlier)
        forwards = self._walk(first, second, self._successors, later)
        while True:
            for walk, found, is_later in ((backwards, earlier, False), (forwards, later, True)):
                last = next(walk, None)
                if last is None:
                    return found, is_later
                if last not in (first, second):
                    return last

    def _walk(self, start: int, end: int, step: Sequence[set[int]], found: set[int]) -> Iterator[int]:
        """Adds to `found` each node that `start` reaches by `step` and that ranks between `start` and `end`.

        Yields once for each edge, so that two walks can take turns: a node that has an edge to `end`, else `start`.
        """
        low, high = sorted((self.rank[start], self.rank[end]))
        pending = [start]
        while pending:
            node = pending.pop()
            for other in step[node]:
                yield node if other == end else start
                if other not in found and low < self.rank[other] < high:
                    found.add(other)
                    pending.append(other)

    # --- ranks

    def _move(self, nodes: Sequence[int], left: int) -> None:
        """Gives the nodes, in this order, ranks directly behind `left`; the number `count` stands for the beginning."""
        for node in nodes:
            self._unlink(node)
        right, rank, end = self._right[left], self.rank, len(self.rank)
        high = rank[right] if right != end else rank[left] + 1
        low = rank[left] if left != end else high - 1
        step = (high - low) / (len(nodes) + 1)
        is_full = False
        for number, node in enumerate(nodes, 1):
            rank[node] = low + step * number
            is_full |= not low < rank[node] < high or (number > 1 and rank[node] <= rank[left])
            self._right[left] = self._left[right] = node
            self._left[node], self._right[node] = left, right
            left = node
        if is_full:
            self._renumber()

    def _unlink(self, node: int) -> None:
        """Takes a node out of the ring."""
        left, right = self._left[node], self._right[node]
        self._right[left], self._left[right] = right, left

    def _renumber(self) -> None:
        """Gives all nodes whole numbers as ranks again, once the gaps are too small for a float to halve."""
        node, number = self._right[-1], 0
        while node != len(self.rank):
            self.rank[node] = float(number)
            node, number = self._right[node], number + 1


def _closure(nodes: Iterable[int], step: Sequence[set[int]]) -> list[int]:
    """For each node the bits of all nodes that `step` reaches from it. `nodes` names the reached nodes first."""
    reached = [0] * len(step)
    for node in nodes:
        bits = 0
        for other in step[node]:
            bits |= reached[other] | 1 << other
        reached[node] = bits
    return reached
