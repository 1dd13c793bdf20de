"""Replaces each call of `minductor_control_deps` by the operations of its subgraph.

Takes a Graph. Gives a Graph (the same one if it has no such call); the operations name in `after` the nodes that they
have to run after. The operation of a subgraph that has only one keeps the name of the call. Refuses a call whose
subgraph could not be captured: it stays a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.names import unique_name
from minductor.frontend.capture.argument_trees import node_names_in, substitute
from minductor.frontend.capture.captured_graph import HIGHER_ORDER, Arg, Graph, Live, Node, NodeRef, Region
from minductor.ir.program.nodes import Token
from minductor.target import Env

CONTROL_DEPS = f"{HIGHER_ORDER}minductor_control_deps"


def inline_control_deps(graph: Graph, env: Env) -> Graph:
    """The graph with such calls replaced, also in its regions, on any target."""
    regions = tuple([_inner(region, env) for region in graph.regions])
    if any(new is not old for new, old in zip(regions, graph.regions, strict=True)):
        graph = replace(graph, regions=regions)
    if all(node.op != CONTROL_DEPS for node in graph.nodes):
        return graph
    return _Inliner(graph).run()


def _inner(region: Region, env: Env) -> Region:
    graph = inline_control_deps(region.graph, env)
    return region if graph is region.graph else replace(region, graph=graph)


class _Inliner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.regions = {region.name: region for region in graph.regions}
        self.values: dict[str, Arg] = {}  # name of a node that is gone or renamed -> what replaces it
        self.taken = {node.name for node in graph.nodes} | {given.name for given in graph.inputs}
        self.nodes: list[Node] = []
        self.called: list[Graph] = []

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.node(node)
        graph, live = self.graph, self.graph.live
        constants = (*graph.constants, *(c for inner in self.called for c in inner.constants))
        tensors = (*live.constants, *(t for inner in self.called for t in inner.live.constants))
        return replace(
            graph,
            constants=constants,
            nodes=tuple(self.nodes),
            outputs=substitute(graph.outputs, self.values),
            live=Live(tensors, live.externals, live.symbols, live.shape_env),
            regions=(*graph.regions, *(r for inner in self.called for r in inner.regions)),
        )

    def node(self, node: Node) -> None:
        args, kwargs = substitute((node.args, node.kwargs), self.values)
        node = replace(node, args=args, kwargs=kwargs)
        if node.op == "getitem" and isinstance(args[0], tuple) and isinstance(args[1], int):
            self.values[node.name] = args[0][args[1]]
            return
        region = self._called(node)
        if region is None:
            self.nodes.append(node)
        else:
            self.inline(node, region.graph, dict.fromkeys(node_names_in(args[0])), (*region.sizes, *args[2:]))

    def _called(self, node: Node) -> Region | None:
        """The subgraph that a call of `minductor_control_deps` runs; None if the node is no such call."""
        if node.op != CONTROL_DEPS or len(node.args) < 2 or not isinstance(node.args[1], Token):
            return None
        region = self.regions.get(node.args[1].name)
        takes = 0 if region is None else len(region.graph.inputs) - len(region.sizes)
        return region if takes == len(node.args) - 2 else None

    def inline(self, call: Node, graph: Graph, deps: Mapping[str, None], args: tuple[Arg, ...]) -> None:
        inner: dict[str, Arg] = {given.name: arg for given, arg in zip(graph.inputs, args, strict=True)}
        self.called.append(graph)
        result = _result(call, graph)
        computing = [node for node in graph.nodes if node.op != "getitem"]
        main = computing[0] if result is None and len(computing) == 1 else result
        for node in graph.nodes:
            name = call.name if node is main else self._free(f"{call.name}_{node.name}")
            inner[node.name] = NodeRef(name)
            row, named = substitute((node.args, node.kwargs), inner)
            before = node_names_in(substitute(tuple([NodeRef(name) for name in node.after]), inner))
            self.nodes.append(Node(name, node.op, row, named, node.meta, tuple(dict.fromkeys((*deps, *before)))))
        if result is None:
            outputs = substitute(graph.outputs, inner)
            self.values[call.name] = outputs if isinstance(call.meta, tuple) else outputs[0]

    def _free(self, name: str) -> str:
        """The name, with a number behind it if a node has the name already."""
        made = unique_name(name, self.taken) if name in self.taken else name
        self.taken.add(made)
        return made


def _result(call: Node, graph: Graph) -> Node | None:
    """The node whose value the call returns; None if the call returns several values, or an argument."""
    last = graph.outputs[0] if len(graph.outputs) == 1 else None
    found = next((node for node in graph.nodes if NodeRef(node.name) == last), None)
    is_whole = found is not None and isinstance(found.meta, tuple) == isinstance(call.meta, tuple)
    return found if is_whole else None
