"""Names in the metadata of each node of a backward graph the forward node that it belongs to.

Takes the two graphs that a joint graph was split into. Gives names, in the metadata of the backward's nodes; `Sources`
reads them. Refuses nothing: a node whose forward node is not known gets no name.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx

from minductor.frontend.capture.user_places import FORWARD_NODE, nodes_of


def name_forward_nodes(forward: fx.GraphModule, backward: fx.GraphModule) -> None:
    """Writes the name of its forward node into the metadata of each node of `backward`, regions included.

    - A node that both graphs have, because it is saved or recomputed, has its own name.
    - A node of autograd's has the first forward node with its `seq_nr`: the operator that made the autograd node.
      Operators without a gradient that follow it have the same number.
    - A node of a region has the forward node of the call that takes the region, since torch traces regions anew.
    - Sums of gradients and the bodies of user-defined backwards have none: their `seq_nr` is that of whatever ran
      before.
    """
    named = dict(nodes_of(forward))
    first: dict[int, str] = {}
    for node in forward.graph.nodes:
        if node.op == "call_function" and "seq_nr" in node.meta:
            first.setdefault(node.meta["seq_nr"], node.name)
    for node in backward.graph.nodes:
        if found := _forward_node(node, named, first):
            node.meta[FORWARD_NODE] = found
    for node in backward.graph.nodes:
        _name_region(backward, node, "")


def _forward_node(node: fx.Node, named: Mapping[str, fx.Node], first: Mapping[int, str]) -> str:
    same = named.get(node.name)
    is_of_autograd = node.meta.get("partitioner_tag") == "is_backward"
    if same is not None and node.op != "output" and not is_of_autograd:
        is_same = (node.op, node.target) == (same.op, same.target)
        if is_same or node.op == "placeholder":
            return node.name
    if node.op != "call_function" or node.meta.get("is_gradient_acc") or "partitioner_tag" not in node.meta:
        return ""
    return first.get(node.meta.get("seq_nr", -1), "")


def _name_region(gm: fx.GraphModule, node: fx.Node, outer: str) -> None:
    """Gives the nodes of a region that `node` reads the forward node of the call; `outer` is that of the outer one."""
    inner = getattr(gm, str(node.target), None) if node.op == "get_attr" else None
    if not isinstance(inner, fx.GraphModule):
        return
    names = (str(user.meta.get(FORWARD_NODE, "")) for user in node.users)
    if name := next(filter(None, names), outer):
        for each in inner.graph.nodes:
            if each.op == "call_function":
                each.meta[FORWARD_NODE] = name
    for each in inner.graph.nodes:
        _name_region(inner, each, name)
