"""Chooses one of two sides for each of many nodes, so that the costs of the sides and of cut edges are least.

Takes a cost for each node on either side, and a cost for each pair of nodes that are on different sides. Gives the
nodes of the second side. Refuses nothing; costs are not negative, and ALWAYS stands for a side that is not allowed.

The choice is a minimum cut: a flow from the first side to the second is made as large as it can be, and what the first
side still reaches is on that side (Dinic, "Algorithm for solution of a problem of maximum flow", 1970). The choice is
the cheapest one. Where two choices cost the same, a node is on the second side. networkx has a minimum cut too, but
takes half a second to import, as long as all rewrites of a ResNet-50.

>>> sides = TwoSides()
>>> sides.price("a", first=5.0)  # the first side costs 5
>>> sides.join("a", "b", 2.0)
>>> sides.price("b", second=1.0)
>>> sorted(sides.second())
['a', 'b']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

ALWAYS = 1e9  # seconds: more than any choice costs
_FIRST, _SECOND = 0, 1  # the numbers of the two ends of the flow
_NONE = 1e-12  # a capacity below this is used up


@dataclass(slots=True)
class TwoSides:
    """Costs of putting nodes on two sides. A node is any hashable value, and is known once it is mentioned."""

    numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    edges: list[dict[int, float]] = field(default_factory=lambda: [{}, {}])  # by node: neighbour -> capacity left

    def price(self, node: Hashable, *, first: float = 0.0, second: float = 0.0) -> None:
        """Adds what it costs to have a node on the first and on the second side."""
        number = self._number(node)
        self._add(_FIRST, number, second, 0.0)
        self._add(number, _SECOND, first, 0.0)

    def join(self, a: Hashable, b: Hashable, cost: float) -> None:
        """Adds what it costs to have two nodes on different sides."""
        self._add(self._number(a), self._number(b), cost, cost)

    def second(self) -> set[Hashable]:
        """The nodes on the second side of the cheapest choice. Uses the costs up."""
        while levels := self._levels():
            left = [iter(list(row)) for row in self.edges]
            while self._push(levels, left) > 0:
                pass
        reached = self._reached()
        return {node for node, number in self.numbers.items() if number not in reached}

    def _number(self, node: Hashable) -> int:
        if node not in self.numbers:
            self.numbers[node] = len(self.edges)
            self.edges.append({})
        return self.numbers[node]

    def _add(self, a: int, b: int, there: float, back: float) -> None:
        self.edges[a][b] = self.edges[a].get(b, 0.0) + there
        self.edges[b][a] = self.edges[b].get(a, 0.0) + back

    def _reached(self) -> dict[int, int]:
        """The nodes to which a further flow can go, with the number of steps."""
        found = {_FIRST: 0}
        waiting = deque([_FIRST])
        while waiting:
            node = waiting.popleft()
            for other, capacity in self.edges[node].items():
                if capacity > _NONE and other not in found:
                    found[other] = found[node] + 1
                    waiting.append(other)
        return found

    def _levels(self) -> dict[int, int]:
        """The steps to each node; empty if no further flow reaches the second side."""
        found = self._reached()
        return found if _SECOND in found else {}

    def _push(self, levels: dict[int, int], left: list[Iterator[int]]) -> float:
        """Sends as much as one path of increasing steps takes; 0 if there is no such path."""
        path = [_FIRST]
        while path[-1] != _SECOND:
            node = path[-1]
            for other in left[node]:
                if self.edges[node][other] > _NONE and levels.get(other) == levels[node] + 1:
                    path.append(other)
                    break
            else:
                path.pop()
                if not path:
                    return 0.0
        pairs = list(pairwise(path))
        flow = min(self.edges[a][b] for a, b in pairs)
        for a, b in pairs:
            self.edges[a][b] -= flow
            self.edges[b][a] += flow
        return flow
