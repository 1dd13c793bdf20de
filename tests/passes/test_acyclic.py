"""Merging nodes of a graph against a search of the whole graph."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.analysis import acyclic
from minductor.analysis.acyclic import AcyclicOrder

Edges = list[tuple[int, int]]


def reached(edges: set[tuple[int, int]], start: int) -> set[int]:
    """All that paths lead to from a node."""
    pending = [b for a, b in edges if a == start]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += [b for a, b in edges if a == node]
    return seen


def on_the_way(edges: set[tuple[int, int]], start: int, end: int) -> set[int]:
    """The nodes on paths of two or more edges from start to end."""
    return {node for node in reached(edges, start) if end in reached(edges, node)}


@pytest.mark.parametrize("bits", [acyclic.MAX_NODES_WITH_BITS, 0])
@given(
    st.integers(2, 9).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12),
        )
    )
)
def test_merges_as_a_whole_search_would(bits: int, given: tuple[int, Edges, Edges]) -> None:
    count, pairs, merges = given
    edges = {(min(a, b), max(a, b)) for a, b in pairs if a != b}
    with patch.object(acyclic, "MAX_NODES_WITH_BITS", bits):
        order = AcyclicOrder(count, edges)
    alive, home = set(range(count)), list(range(count))
    for a, b in merges:
        if a == b or not {a, b} <= alive:
            continue
        first, second = (a, b) if order.rank[a] < order.rank[b] else (b, a)
        expected, found = on_the_way(edges, first, second), order.node_between(first, second)
        assert (found is None and not expected) or (found is not None and home[found] in expected)
        if found is not None:
            with pytest.raises(ValueError, match="cycle"):
                order.merge(first, second)
            continue
        order.merge(first, second)
        alive.remove(second)
        home = [first if node == second else node for node in home]
        edges = {(first if x == second else x, first if y == second else y) for x, y in edges}
        edges = {(x, y) for x, y in edges if x != y}
        assert all(order.rank[x] < order.rank[y] for x, y in edges)
        assert len({order.rank[n] for n in alive}) == len(alive)


def test_an_edge_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="2 -> 1"):
        AcyclicOrder(3, [(2, 1)])
    with pytest.raises(ValueError, match="rank"):
        AcyclicOrder(3, []).node_between(2, 1)


class Counted(list[set[int]]):
    """Neighbours, and how often somebody asked for some."""

    asked = 0

    def __getitem__(self, node: int) -> set[int]:  # type: ignore[override]
        self.asked += 1
        return super().__getitem__(node)


def test_far_pairs_are_answered_exactly_and_without_a_walk_along_the_graph() -> None:
    """A chain with a skip from each of its nodes to one far behind; a value that all read; and a long detour."""
    count, far = 12000, 6000
    edges = [(n, n + 1) for n in range(count - 1)] + [(n, n + far) for n in range(count - far)]
    order = AcyclicOrder(count + 1, [*edges, *((0, n) for n in range(2, count)), (0, count)])
    order._successors = after = Counted(order._successors)
    order._predecessors = before = Counted(order._predecessors)
    assert all(order.node_between(n, n + far) is not None for n in range(0, count - far, 50))
    assert all(order.node_between(0, n) is not None for n in range(2, count, 50))
    assert after.asked == before.asked == 0
    assert order.node_between(0, count) is None
    order.merge(0, count)
    assert after.asked < 50
    assert before.asked < 50


def test_there_is_always_room_beside_a_node() -> None:
    """Each merge with the hub puts one more node in front of it, where a float has half as much room each time."""
    count, hub = 200, 1
    before, after = range(2, count + 2), range(count + 2, 2 * count + 2)
    edges = [pair for a, b in zip(before, after, strict=True) for pair in ((hub, b), (a, b))]
    order = AcyclicOrder(2 * count + 2, edges)
    for b in after:
        order.merge(hub, b)
    assert [n for n in sorted((0, hub, *before), key=order.rank.__getitem__)] == [0, *before, hub]
    assert len({order.rank[n] for n in (0, hub, *before)}) == count + 2
