"""A partial order that nodes can be merged in without making a cycle, kept with a topological rank for each node.

Takes a number of nodes and edges between them, each from a lower to a higher position. Gives ranks, and merges.
Refuses a merge of two nodes with a path through a third.

Paths of the first graph are known as sets of bits and stay paths whatever is merged, so most pairs that something runs
between are found by an `and`. Paths that merges have made are searched for, from both ends at a time, and only among
nodes that rank between the two (Pearce and Kelly, 2006). A merge moves what the shorter search has found beyond the
other end, where ranks leave room for it (Dietz and Sleator, 1987): so both cost what the shorter side is long.

>>> order = AcyclicOrder(4, [(0, 1), (1, 3), (0, 2), (0, 3)])
>>> order.node_between(0, 3), order.node_between(0, 1)
(1, None)
>>> order.merge(0, 1), order.node_between(0, 3)
(None, None)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

# beyond so many nodes the bits would take more than 64 MiB, and every path is searched for
MOST_BITS = 1 << 14


class AcyclicOrder:
    def __init__(self, count: int, edges: Iterable[tuple[int, int]]) -> None:
        self.rank = [float(node) for node in range(count)]
        # the node on either side in rank; the last number stands for both ends
        self._left = [count, *range(count)]
        self._right = [*range(1, count + 1), 0]
        self._before: list[set[int]] = [set() for _ in range(count)]
        self._after: list[set[int]] = [set() for _ in range(count)]
        for source, target in edges:
            if source >= target:
                raise ValueError(f"edge {source} -> {target} runs backwards")
            self._before[target].add(source)
            self._after[source].add(target)
        has_bits = count <= MOST_BITS
        self._members = [1 << node for node in range(count)] if has_bits else []
        self._earlier = _closure(range(count), self._before) if has_bits else []
        self._later = _closure(range(count - 1, -1, -1), self._after) if has_bits else []

    def node_between(self, first: int, second: int) -> int | None:
        """A third node on a path from the first node, the lower in rank, to the second, by a number that it had."""
        if self.rank[first] >= self.rank[second]:
            raise ValueError(f"{first} does not rank before {second}")
        if self._members:
            own = self._members[first] | self._members[second]
            if path := self._later[first] & self._earlier[second] & ~own:
                return (path & -path).bit_length() - 1
        apart = self._apart(first, second)
        return apart if isinstance(apart, int) else None

    def merge(self, first: int, second: int) -> None:
        """The second node becomes part of the first; there must be nothing in between."""
        apart = self._apart(first, second)
        if isinstance(apart, int):
            raise ValueError(f"merging {first} and {second} makes a cycle through {apart}")
        found, is_later = apart
        nodes = sorted(found, key=self.rank.__getitem__)
        if is_later:
            self._move([first, *nodes], second)
        else:
            self._move(nodes, self._left[first])
        self._unlink(second)
        for here, there in ((self._before, self._after), (self._after, self._before)):
            for node in here[second]:
                there[node].discard(second)
                if node != first:
                    there[node].add(first)
            here[first] |= here[second]
            here[second] = set()
            here[first] -= {first, second}
        for bits in (self._members, self._earlier, self._later) if self._members else ():
            bits[first] |= bits[second]
            bits[second] = 0

    # --- searches

    def _apart(self, first: int, second: int) -> tuple[set[int], bool] | int:
        """All that leads to the second, or else all that the first leads to (True), of what ranks between the two.

        Whichever is known sooner; or a third node that lies on a path from one to the other.
        """
        earlier, later = set[int](), set[int]()
        backwards = self._walk(second, first, self._before, earlier)
        forwards = self._walk(first, second, self._after, later)
        while True:
            for walk, found, is_later in ((backwards, earlier, False), (forwards, later, True)):
                last = next(walk, None)
                if last is None:
                    return found, is_later
                if last not in (first, second):
                    return last

    def _walk(self, start: int, end: int, step: Sequence[set[int]], found: set[int]) -> Iterator[int]:
        """Finds what ranks between the two and edges lead to; for each edge gives its node if it leads to the end."""
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
        """Puts nodes right behind another one, or behind the end, which is before the first."""
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
        left, right = self._left[node], self._right[node]
        self._right[left], self._left[right] = right, left

    def _renumber(self) -> None:
        """Makes room again where halves of halves have used up a float's digits."""
        node, number = self._right[-1], 0
        while node != len(self.rank):
            self.rank[node] = float(number)
            node, number = self._right[node], number + 1


def _closure(nodes: Iterable[int], step: Sequence[set[int]]) -> list[int]:
    """For each node the bits of what its steps lead to; each node comes after those that it leads to."""
    reached = [0] * len(step)
    for node in nodes:
        bits = 0
        for other in step[node]:
            bits |= reached[other] | 1 << other
        reached[node] = bits
    return reached
