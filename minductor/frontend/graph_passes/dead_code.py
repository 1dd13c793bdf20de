"""Dead code elimination: drops the nodes whose results nothing uses and that have no effect.

Takes a Graph, gives a Graph (the same one if no node is dead); refuses nothing.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.frontend.capture import schemas
from minductor.frontend.capture.argument_trees import node_names_in
from minductor.frontend.capture.captured_graph import COLLECTIVE, HIGHER_ORDER, Graph, Node
from minductor.ir.program.nodes import Token
from minductor.target import Env

# higher-order operators that do more than give results
EFFECTS = frozenset(("with_effects", "print", "call_torchbind", "run_and_save_rng_state", "minductor_control_deps"))


def eliminate_dead_code(graph: Graph, env: Env) -> Graph:
    """The graph without nodes that neither an output nor a node with an effect needs, on any target."""
    del env
    live = set(node_names_in(graph.outputs))
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.name in live or has_effect(node, graph):
            kept.append(node)
            live.update(node.after)
            live.update(node_names_in((node.args, node.kwargs)))
    return graph if len(kept) == len(graph.nodes) else replace(graph, nodes=tuple(reversed(kept)))


def has_effect(node: Node, graph: Graph) -> bool:
    """Whether a node must run even if nothing uses its result.

    It must if it writes, draws random numbers, is a collective, waits for other nodes (`after`), or returns nothing.
    """
    if node.op == "getitem":
        return False
    if node.after:
        return True
    if node.op.startswith(HIGHER_ORDER):
        called = {arg.name for arg in node.args if isinstance(arg, Token) and arg.kind == "external"}
        inner = [region.graph for region in graph.regions if region.name in called]
        is_pure = len(inner) == len(called) and node.op.removeprefix(HIGHER_ORDER) not in EFFECTS
        return not is_pure or any(has_effect(n, g) for g in inner for n in g.nodes)
    facts = schemas.operator_facts(node.op)
    if facts is None:
        return False
    return bool(facts.written) or facts.is_random or facts.gives_nothing or node.op.startswith(COLLECTIVE)
