"""Copies tensors of one element from the CPU to the GPU that computes with them; and lists the devices of a graph.

Takes a captured Graph. Gives the devices in it, or a Graph (the same one if there is nothing to move). Refuses nothing.

torch's operators take a 0-dim tensor on the CPU beside tensors on a GPU, as if it were a number. A kernel reads memory
of its own device only, so such a tensor is copied to the GPU first. A tensor that holds a constant is made there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from minductor.frontend.capture.argument_trees import leaves, node_names_in, substitute
from minductor.frontend.capture.captured_graph import Arg, Graph, Meta, Node, NodeRef, TensorMeta
from minductor.ir.program.nodes import Token
from minductor.target import Env

COPY = "aten._to_copy.default"
CONSTANTS = ("aten.full.default", "aten.scalar_tensor.default")


def devices_in(meta: object) -> Iterator[str]:
    """The devices of the tensors in a tree of metadata.

    >>> from minductor.core.dtypes import F32
    >>> list(devices_in((TensorMeta(F32, (), (), 0, "cuda:0"), None, 3)))
    ['cuda:0']
    """
    return (leaf.device for leaf in leaves(meta) if isinstance(leaf, TensorMeta))


def devices_of(graph: Graph) -> tuple[str, ...]:
    """Each device of the graph and its regions, once, in order of appearance."""
    found = dict.fromkeys(devices_in(tuple(given.meta for given in (*graph.inputs, *graph.constants))))
    found.update(dict.fromkeys(devices_in(tuple(node.meta for node in graph.nodes))))
    for region in graph.regions:
        found.update(dict.fromkeys(devices_of(region.graph)))
    return tuple(found)


def gpu_of(graph: Graph) -> str:
    """The first device of the graph that is not the CPU, or an empty string."""
    return next((device for device in devices_of(graph) if device != "cpu"), "")


def move_scalars(graph: Graph, env: Env) -> Graph:
    """The graph with a copy of each 0-dim tensor of the CPU on each GPU whose tensors it is used with."""
    if len(devices_of(graph)) < 2:
        return graph
    metas = graph.metas()
    made: dict[tuple[str, str], str] = {}
    makers = {node.name: node for node in graph.nodes if node.op in CONSTANTS}
    nodes: list[Node] = []
    for node in graph.nodes:
        target = next(iter(devices_in(node.meta)), "cpu")
        if target == "cpu" or node.op == COPY or not node.op.startswith("aten."):
            nodes.append(node)
            continue
        for name in _scalars(node.args, metas):
            if (name, target) not in made:
                made[name, target] = copy = f"{name}_on_{target.replace(':', '')}"
                nodes.append(
                    _copy(copy, name, target, metas) if name not in makers else _remade(makers[name], copy, target)
                )
        copies = {name: NodeRef(copy) for (name, device), copy in made.items() if device == target}
        nodes.append(replace(node, args=substitute(node.args, copies)) if copies else node)
    inner = [move_scalars(region.graph, env) for region in graph.regions]
    if not made and all(new is region.graph for new, region in zip(inner, graph.regions, strict=True)):
        return graph
    regions = tuple(replace(region, graph=new) for region, new in zip(graph.regions, inner, strict=True))
    return replace(graph, nodes=tuple(nodes), regions=regions)


def _scalars(args: tuple[Arg, ...], metas: Mapping[str, Meta]) -> Iterator[str]:
    for name in node_names_in(args):
        meta = metas[name]
        if isinstance(meta, TensorMeta) and meta.device == "cpu" and not meta.size:
            yield name


def _copy(name: str, of: str, device: str, metas: dict[str, Meta]) -> Node:
    like = metas[of]
    assert isinstance(like, TensorMeta)
    metas[name] = meta = replace(like, device=device, offset=0)
    return Node(name, COPY, (NodeRef(of),), (("device", Token("device", device)),), meta)


def _remade(node: Node, name: str, device: str) -> Node:
    """A node that makes the same constant on another device."""
    assert isinstance(node.meta, TensorMeta)
    kwargs = {**dict(node.kwargs), "device": Token("device", device)}
    return replace(node, name=name, kwargs=tuple(kwargs.items()), meta=replace(node.meta, device=device))
