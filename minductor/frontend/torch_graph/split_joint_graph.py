"""Splits a joint graph into forward and backward by torch's min-cut partitioner.

Takes what AOTAutograd hands to a `partition_fn`. Gives the forward and the backward module. Refuses nothing.

The partitioner can merge equal nodes itself, but imports TorchInductor's pattern matcher and all lowerings for it. That
takes 0.9 s of CPU time, as long as the rest of AOTAutograd for a small transformer. So `merge_equal_nodes` does it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition

from minductor.frontend.quirks.torch_versions import is_seeded
from minductor.frontend.quirks.wide_statistics import widen_statistics
from minductor.frontend.torch_graph.decompose_norms import decompose_norms
from minductor.frontend.torch_graph.equality_gradients import round_compared_values, save_compared_values
from minductor.frontend.torch_graph.forward_nodes import name_forward_nodes
from minductor.frontend.torch_graph.joint_views import update_view_values, visible_storages
from minductor.frontend.torch_graph.recompute_rstd import recompute_rstd
from minductor.frontend.torch_graph.unread_statistics import drop_unread_statistics


def split_joint_graph(
    joint: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    rewrite: Callable[[fx.GraphModule], None] | None = None,
    **facts: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The `partition_fn` of a compile; `rewrite` applies rewrites, `facts` are the partitioner's keyword arguments."""
    remove_detach(joint.graph)
    if rewrite is not None:
        rewrite(joint)
    widen_statistics(joint.graph)
    drop_unread_statistics(joint.graph)
    decompose_norms(joint.graph)
    round_compared_values(joint.graph)
    merge_equal_nodes(joint.graph)
    update_view_values(joint.graph)
    save_compared_values(joint.graph)
    with config.patch(cse=False):
        forward, backward = min_cut_rematerialization_partition(joint, inputs, **facts)
    recompute_rstd(forward, backward, facts["num_fwd_outputs"])
    name_forward_nodes(forward, backward)
    return forward, backward


def remove_detach(graph: fx.Graph) -> None:
    """Removes the calls of `detach` that are not results: they do nothing once gradients are traced.

    The partitioner knows `detach` neither as a view nor as recomputable. Autograd detaches what it saves, so the
    partitioner would save all of that, whatever it costs.
    """
    results = set(graph.output_node().all_input_nodes)
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default and node not in results and not node.meta.get("recompute"):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def merge_equal_nodes(graph: fx.Graph) -> int:
    """Merges calls of one pure operator with the same arguments into the first; gives the number of removed calls.

    Two equal calls whose memory both reaches the caller are not merged, since the caller may write to one of them.
    """
    seen: dict[Any, fx.Node] = {}
    dropped = 0
    visible = visible_storages(graph)
    for node in list(graph.nodes):
        if node.op != "call_function" or not _is_pure(node.target):
            continue
        # a node marked for recomputation, or for one half, is merged with nodes of the same mark only
        place = node.meta.get("recompute"), node.meta.get("partitioner_tag")
        key = node.target, place, _key(node.args), _key(node.kwargs)
        first = seen.setdefault(key, node)
        if first is not node and not {first, node} <= visible:
            if node in visible:
                visible.add(first)
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            dropped += 1
    return dropped


def _is_pure(target: Any) -> bool:
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return bool(target._schema.returns) and not target._schema.is_mutable and not is_seeded(target)


def _key(value: Any) -> Any:
    """A hashable key of an argument tree, in which 1, 1.0 and True differ."""
    match value:
        case fx.Node():
            return value
        case tuple() | list():
            return tuple([_key(v) for v in value])
        case dict():
            return tuple([(name, _key(v)) for name, v in value.items()])
        case float():
            return float, repr(value)  # 0.0 is not -0.0, and NaN is NaN
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return type(value), str(value)
        case _:
            return type(value), value
