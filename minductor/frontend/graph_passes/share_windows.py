"""Lets equal views of one tensor be one node, so that a write through several of them is seen to be in place.

Takes a Graph, gives a Graph (the same one if no view is there twice). Refuses nothing. A view that is returned keeps
its own node.

`cache[1][0].index_copy_(...)` is traced with two selects, the write of their result, and its way back through new
selects: select_scatter(select(cache, 0, 1), written, 0, 0), and that into cache. The inner select is the same view as
before, by another name. With one name for both, `overwriting.is_dead` finds that all of it is one write to cache.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.frontend.capture.argument_trees import substitute
from minductor.frontend.capture.captured_graph import Arg, Graph, Node, NodeRef
from minductor.target import Env

_NAMES = (
    "as_strided.default diagonal.default permute.default select.int slice.Tensor split.Tensor split_with_sizes.default"
    " squeeze.dim t.default transpose.int unbind.int unsqueeze.default view.default"
)
_VIEWS = frozenset(("getitem", *(f"aten.{name}" for name in _NAMES.split())))


def share_windows(graph: Graph, env: Env) -> Graph:
    """The graph with one node for each view, on any target; dead code elimination drops the others."""
    del env
    first: dict[tuple[str, tuple[Arg, ...], tuple[tuple[str, Arg], ...]], str] = {}
    others: dict[str, Arg] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if others:
            node = replace(node, args=substitute(node.args, others), kwargs=substitute(node.kwargs, others))
        if node.op in _VIEWS and (found := first.setdefault((node.op, node.args, node.kwargs), node.name)) != node.name:
            others[node.name] = NodeRef(found)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if others else graph
