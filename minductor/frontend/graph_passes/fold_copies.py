"""Drops the copy of a value that is written into a window of a tensor: the write takes the value itself.

Takes a Graph, gives a Graph (the same one if there is nothing to fold). Refuses copies that broadcast or cast: these
stay.

`x[1:3] = v` is traced as slice_scatter(x, copy(slice(x), v)). The copy has v's values in the layout of the slice, and
becomes slice_scatter(x, v).
"""

from __future__ import annotations

from dataclasses import replace

from minductor.frontend.capture.captured_graph import Arg, Graph, Meta, Node, NodeRef, TensorMeta
from minductor.target import Env

# functional writes of their second argument into a window of the first
WINDOW_WRITES = frozenset(f"aten.{name}_scatter.default" for name in ("slice", "select", "diagonal", "as_strided"))


def fold_copies(graph: Graph, env: Env) -> Graph:
    """The graph without such copies as arguments, on any target; dead code elimination drops the copies themselves."""
    del env
    metas = graph.metas()
    copies: dict[str, NodeRef] = {}
    nodes: list[Node] = []
    has_folded = False
    for node in graph.nodes:
        if node.op == "aten.copy.default" and isinstance(value := node.args[1], NodeRef):
            if _is_same(metas[value.name], node.meta):
                copies[node.name] = copies.get(value.name, value)
        elif node.op in WINDOW_WRITES and _name(node.args[1]) in copies:
            node = replace(node, args=(node.args[0], copies[_name(node.args[1])], *node.args[2:]))
            has_folded = True
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if has_folded else graph


def _name(arg: Arg) -> str:
    return arg.name if isinstance(arg, NodeRef) else ""


def _is_same(a: Meta, b: Meta) -> bool:
    if not isinstance(a, TensorMeta) or not isinstance(b, TensorMeta):
        return False
    return (a.dtype, a.size, a.device) == (b.dtype, b.size, b.device)
