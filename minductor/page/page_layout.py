"""Places for the nodes of a graph in layers, from the inputs down to the results.

Takes names, widths and edges. Gives the place of each node, and of each bend of an edge. Refuses a graph with circles
(networkx does). Each node stands below what it reads; inputs, and what is made of inputs alone, stand just above their
first reader. An edge over several layers passes through a place in each of them, so that it runs around nodes. The
order within a layer is that of the barycentre method: each node goes to the mean place of its neighbours, layer by
layer, down and up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

LAYER_HEIGHT, GAP, BEND_WIDTH = 62, 18, 10
SWEEPS = 8


class Placed(NamedTuple):
    """`places`: the middle of each node. `bends`: for each edge the points between its ends. `width`, `height`."""

    places: dict[str, tuple[int, int]]
    bends: dict[tuple[str, str], list[tuple[int, int]]]
    width: int
    height: int


def place(widths: Mapping[str, int], edges: Iterable[tuple[str, str]], sources: Iterable[str] = ()) -> Placed:
    """Places for nodes of these widths. `sources`: nodes that stand as low as their readers let them."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(widths)
    graph.add_edges_from(edge for edge in edges if edge[0] != edge[1])
    layer = {name: number for number, names in enumerate(nx.topological_generations(graph)) for name in names}
    order = list(nx.topological_sort(graph))
    low = set(sources)
    for name in order:  # what is made of inputs alone, such as a transposed weight, stands low too
        if graph.in_degree(name) and low.issuperset(graph.predecessors(name)):
            low.add(name)
    for name in reversed(order):
        if name in low and graph.out_degree(name):
            layer[name] = min(layer[reader] for reader in graph.successors(name)) - 1
    rows, chains = _with_bends(graph.edges, layer)
    wide = {**dict.fromkeys((name for row in rows for name in row), BEND_WIDTH), **widths}
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    above, below = _neighbours(links)
    x = _ordered(rows, above, below, wide)
    least = min((x[name] - wide[name] / 2 for name in x), default=0)
    spots = {name: (round(x[name] - least), y * LAYER_HEIGHT) for y, row in enumerate(rows) for name in row}
    bends = {edge: [spots[name] for name in chain[1:-1]] for edge, chain in chains.items()}
    right = max((spots[name][0] + wide[name] / 2 for name in spots), default=0)
    return Placed({name: spots[name] for name in widths}, bends, round(right), len(rows) * LAYER_HEIGHT)


def _with_bends(
    edges: Iterable[tuple[str, str]], layer: Mapping[str, int]
) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """The names of each layer with those of bends, and for each edge the names from its start to its end."""
    rows: list[list[str]] = [[] for _ in range(1 + max(layer.values(), default=-1))]
    for name, number in layer.items():
        rows[number].append(name)
    chains: dict[tuple[str, str], list[str]] = {}
    shared: dict[tuple[str, int], str] = {}  # edges from one node run together until they part
    for start, end in edges:
        chain = [start]
        for number in range(layer[start] + 1, layer[end]):
            bend = shared.get((start, number))
            if bend is None:
                bend = shared[start, number] = f"{start} at {number}"
                rows[number].append(bend)
            chain.append(bend)
        chains[start, end] = [*chain, end]
    return rows, chains


def _neighbours(links: Sequence[tuple[str, str]]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    above: dict[str, list[str]] = {}
    below: dict[str, list[str]] = {}
    for start, end in dict.fromkeys(links):
        above.setdefault(end, []).append(start)
        below.setdefault(start, []).append(end)
    return above, below


def _ordered(
    rows: list[list[str]],
    above: Mapping[str, Sequence[str]],
    below: Mapping[str, Sequence[str]],
    wide: Mapping[str, int],
) -> dict[str, float]:
    """The middle of each name across; puts the names of each row in order."""
    x: dict[str, float] = {}
    for row in rows:
        _pack(row, dict.fromkeys(row, 0.0), wide, x)
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {name: _mean([x[other] for other in near.get(name, ())], x[name]) for name in row}
            row.sort(key=wanted.__getitem__)
            _pack(row, wanted, wide, x)
    for row in reversed(rows):  # each as near to all its neighbours as those beside it let it
        both = {name: [x[other] for other in (*above.get(name, ()), *below.get(name, ()))] for name in row}
        _pack(row, {name: _mean(both[name], x[name]) for name in row}, wide, x)
    return x


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _pack(row: Sequence[str], wanted: Mapping[str, float], wide: Mapping[str, int], x: dict[str, float]) -> None:
    """Sets the middles of a row in order: each where it is wanted, or as near as the room lets it.

    Names that would overlap become one block, which goes to the mean of what they want.
    """
    blocks: list[tuple[float, float, list[str]]] = []  # the left end, the width, the names
    for name in row:
        left, width, names = wanted[name] - wide[name] / 2, wide[name] + GAP, [name]
        while blocks and blocks[-1][0] + blocks[-1][1] > left:
            before = blocks.pop()
            joined = [*before[2], *names]
            ends = _ends(joined, wide)
            left = sum(wanted[each] - end for each, end in zip(joined, ends, strict=True)) / len(joined)
            width, names = before[1] + width, joined
        blocks.append((left, width, names))
    for left, _, names in blocks:
        for name, end in zip(names, _ends(names, wide), strict=True):
            x[name] = left + end


def _ends(names: Sequence[str], wide: Mapping[str, int]) -> list[float]:
    """How far the middle of each name is from the left end of its block."""
    found: list[float] = []
    left = 0.0
    for name in names:
        found.append(left + wide[name] / 2)
        left += wide[name] + GAP
    return found
