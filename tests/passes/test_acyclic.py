"""Merging nodes of a graph against a search of the whole graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.passes.acyclic import Acyclic

Edges = list[tuple[int, int]]


def reaches(edges: set[tuple[int, int]], start: int, end: int) -> bool:
    """Whether a path of two or more edges leads from start to end."""
    pending = [b for a, b in edges if a == start and b != end]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if node == end:
            return True
        if node not in seen:
            seen.add(node)
            pending += [b for a, b in edges if a == node]
    return False


@given(
    st.integers(2, 9).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12),
        )
    )
)
def test_merges_as_a_whole_search_would(given: tuple[int, Edges, Edges]) -> None:
    count, pairs, merges = given
    edges = {(min(a, b), max(a, b)) for a, b in pairs if a != b}
    order = Acyclic(count, edges)
    alive = set(range(count))
    for a, b in merges:
        if a == b or not {a, b} <= alive:
            continue
        first, second = (a, b) if order.rank[a] < order.rank[b] else (b, a)
        assert order.is_between(first, second) == reaches(edges, first, second)
        if order.is_between(first, second):
            with pytest.raises(ValueError, match="cycle"):
                order.merge(first, second)
            continue
        order.merge(first, second)
        alive.remove(second)
        edges = {(first if x == second else x, first if y == second else y) for x, y in edges}
        edges = {(x, y) for x, y in edges if x != y}
        assert all(order.rank[x] < order.rank[y] for x, y in edges)
        assert len({order.rank[n] for n in alive}) == len(alive)


def test_an_edge_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="2 -> 1"):
        Acyclic(3, [(2, 1)])
    with pytest.raises(ValueError, match="rank"):
        Acyclic(3, []).is_between(2, 1)
