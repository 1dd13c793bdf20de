"""Replaces a selection from `view_as_real(z)` by `real(z)` or `imag(z)`.

Takes a Graph, gives a Graph (the same one if there is nothing to replace). Refuses nothing. Dead code elimination drops
the `view_as_real` that is left.

`z.real` is traced as select(view_as_real(z), -1, 0).
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.dtypes import F16
from minductor.frontend.capture.captured_graph import Graph, Node, NodeRef, TensorMeta
from minductor.target import Env

PARTS = ("aten.real.default", "aten.imag.default")


def select_real_imag(graph: Graph, env: Env) -> Graph:
    """The graph with each such selection replaced, on any target."""
    del env
    pairs: dict[str, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "aten.view_as_real.default":
            pairs[node.name] = node
        elif node.op == "aten.select.int" and isinstance(of := node.args[0], NodeRef) and of.name in pairs:
            node = _part(node, pairs[of.name])
        nodes.append(node)
    is_same = all(new is old for new, old in zip(nodes, graph.nodes, strict=True))
    return graph if is_same else replace(graph, nodes=tuple(nodes))


def _part(node: Node, pair: Node) -> Node:
    _, dim, index = node.args
    meta = pair.meta
    assert isinstance(meta, TensorMeta) and isinstance(dim, int)
    if dim % len(meta.size) != len(meta.size) - 1 or not isinstance(index, int) or meta.dtype == F16:
        return node
    return replace(node, op=PARTS[index % 2], args=pair.args)
