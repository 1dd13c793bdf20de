"""Which nodes of a joint graph share memory.

Takes a joint graph. Gives the nodes whose memory the graph's results show. `update_view_values` corrects the traced
values of views after a rewrite has replaced the tensor that they view. AOTAutograd reads these values: it lets the
backward overwrite a saved tensor that shares memory with no other.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor


def is_view(node: fx.Node) -> bool:
    """Whether a node is a view, or an item of a list of views. `_conj` of a number is none: it makes new memory."""
    if node.target is operator.getitem:
        return is_view(node.all_input_nodes[0])
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view and bool(node.all_input_nodes)


def visible_storages(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose memory the graph's results show, themselves or through views."""
    found: set[fx.Node] = set()
    for node in graph.output_node().all_input_nodes:
        while node not in found:
            found.add(node)
            if is_view(node):
                node = node.all_input_nodes[0]
    return found


def update_view_values(graph: fx.Graph) -> None:
    """Recomputes the traced value of each view whose memory is not that of its argument."""
    for node in filter(is_view, graph.nodes):
        of, value = node.all_input_nodes[0].meta["val"], node.meta["val"]
        if node.target is operator.getitem:
            node.meta["val"] = of[node.args[1]]
            continue
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, FakeTensor) and not _share_memory(first, of):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            with first.fake_mode:
                node.meta["val"] = node.target(*args, **kwargs)


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
