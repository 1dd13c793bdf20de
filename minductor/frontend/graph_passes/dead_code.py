"""Drops the nodes whose results nobody uses and that have no effect.

Takes a Graph, gives a Graph (the same one if every node lives); refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minductor.frontend import schemas
from minductor.frontend.capture import Arg, Graph, Node, NodeRef


def dead_code(graph: Graph) -> Graph:
    """One walk from the outputs upwards."""
    live: set[str] = {name for arg in graph.outputs for name in used(arg)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in live or has_effect(node):
            kept.append(node)
            for arg in (*node.args, *(value for _, value in node.kwargs)):
                live.update(used(arg))
    return graph if len(kept) == len(graph.nodes) else replace(graph, nodes=tuple(reversed(kept)))


def used(arg: Arg) -> Iterator[str]:
    """The nodes that an argument names."""
    match arg:
        case NodeRef(name):
            yield name
        case tuple():
            for item in arg:
                yield from used(item)
        case _:
            return


def has_effect(node: Node) -> bool:
    """Whether a node must run although nobody uses its result: it writes, draws random numbers, or returns nothing."""
    if node.op == "getitem":
        return False
    facts = schemas.facts(node.op)
    return facts is not None and (bool(facts.written) or facts.is_random or facts.gives_nothing)
