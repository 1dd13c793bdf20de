"""Puts the operations of each `minductor_control_deps` where it is called, and says on them what they run after.

Takes a Graph. Gives a Graph (the same one if nothing is ordered), whose ordered nodes name others in `after`; a graph
of one operation leaves a node of the call's name. Refuses a call whose graph could not be captured: it stays a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.names import unique_name
from minductor.frontend.capture.captured_graph import HIGHER_ORDER, Arg, Graph, Live, Node, NodeRef, Region
from minductor.frontend.graph_passes.dead_code import node_names_in
from minductor.ir.program.nodes import Token

ORDERED = f"{HIGHER_ORDER}minductor_control_deps"


def inline_control_deps(graph: Graph) -> Graph:
    """One walk, in the graph and in those that it holds."""
    regions = tuple([_inner(region) for region in graph.regions])
    if any(new is not old for new, old in zip(regions, graph.regions, strict=True)):
        graph = replace(graph, regions=regions)
    if all(node.op != ORDERED for node in graph.nodes):
        return graph
    return _Inliner(graph).run()


def _inner(region: Region) -> Region:
    graph = inline_control_deps(region.graph)
    return region if graph is region.graph else replace(region, graph=graph)


class _Inliner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.regions = {region.name: region for region in graph.regions}
        self.values: dict[str, Arg] = {}  # what stands for a node that is gone, or has another name
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
            outputs=tuple([_put(a, self.values) for a in graph.outputs]),
            live=Live(tensors, live.externals, live.symbols, live.shape_env),
            regions=(*graph.regions, *(r for inner in self.called for r in inner.regions)),
        )

    def node(self, node: Node) -> None:
        args = tuple([_put(a, self.values) for a in node.args])
        node = replace(node, args=args, kwargs=tuple([(k, _put(a, self.values)) for k, a in node.kwargs]))
        if node.op == "getitem" and isinstance(args[0], tuple) and isinstance(args[1], int):
            self.values[node.name] = args[0][args[1]]
            return
        region = self._called(node)
        if region is None:
            self.nodes.append(node)
        else:
            self.inline(node, region.graph, dict.fromkeys(node_names_in(args[0])), (*region.sizes, *args[2:]))

    def _called(self, node: Node) -> Region | None:
        """The graph that an ordered call is given."""
        if node.op != ORDERED or len(node.args) < 2 or not isinstance(node.args[1], Token):
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
            row = tuple([_put(a, inner) for a in node.args])
            named = tuple([(k, _put(a, inner)) for k, a in node.kwargs])
            own = [seen for before in node.after for seen in node_names_in(_put(NodeRef(before), inner))]
            self.nodes.append(Node(name, node.op, row, named, node.meta, tuple(dict.fromkeys((*deps, *own)))))
        if result is None:
            outputs = tuple([_put(a, inner) for a in graph.outputs])
            self.values[call.name] = outputs if isinstance(call.meta, tuple) else outputs[0]

    def _free(self, name: str) -> str:
        """A name that no node has yet."""
        made = unique_name(name, self.taken) if name in self.taken else name
        self.taken.add(made)
        return made


def _result(call: Node, graph: Graph) -> Node | None:
    """The node that gives all that the call gives; None if several do, or one that is given."""
    last = graph.outputs[0] if len(graph.outputs) == 1 else None
    found = next((node for node in graph.nodes if NodeRef(node.name) == last), None)
    is_whole = found is not None and isinstance(found.meta, tuple) == isinstance(call.meta, tuple)
    return found if is_whole else None


def _put(arg: Arg, values: Mapping[str, Arg]) -> Arg:
    match arg:
        case NodeRef(name):
            return values.get(name, arg)
        case tuple():
            return tuple([_put(a, values) for a in arg])
        case _:
            return arg
