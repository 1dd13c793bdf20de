"""Lets a gradient that compares for equality find what the forward found.

Takes a joint graph. Gives nothing: behind each operator whose result has 16 bits, which the backward may compute again,
and on which an `eq` of two tensors depends, stands a cast to that dtype; and what an `eq` compares with something found
among it is not computed again. Leaves alone views, which compute nothing.

The gradient of an extreme (of `amax`, a norm of infinite order, `scatter_reduce`) divides by how many elements are
equal to it. In a kernel, values of 16 bits are float32 until they are stored: without the casts each half would round
where its own kernels end, and nothing might be equal. Nor where the backward summed a row in another order: so the
partitioner has to keep what is compared, or, which is less, the truths, a byte each.
"""

from __future__ import annotations

import operator
from itertools import permutations

import torch
from torch import fx
from torch._functorch.partitioners import get_default_op_list
from torch.utils.checkpoint import CheckpointPolicy

from minductor.frontend.torch_graph.joint_views import is_view

aten, prims = torch.ops.aten, torch.ops.prims


def round_compared_values(graph: fx.Graph) -> None:
    """See above."""
    pending = graph.find_nodes(op="call_function", target=aten.eq.Tensor)
    if not pending:
        return
    is_recomputable = get_default_op_list().is_recomputable
    seen: set[fx.Node] = set(pending)
    while pending:
        for node in pending.pop().all_input_nodes:
            if node not in seen and (is_recomputable(node) or node.meta.get("recompute")):
                seen.add(node)
                pending.append(node)
                if _computes_16_bit_floats(node):
                    _insert_cast(node)


def save_compared_values(graph: fx.Graph) -> None:
    """See above; what the user wants computed again stays so."""
    for node in graph.find_nodes(op="call_function", target=aten.eq.Tensor):
        for side, other in permutations(node.all_input_nodes, 2):
            if torch.Tag.pointwise in getattr(_maker(other).target, "tags", ()):
                continue  # not found among many: equality is no more than chance
            for source in _forward_makers(side) & _all_inputs(other):
                source.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def _forward_makers(node: fx.Node) -> set[fx.Node]:
    """The forward's operators that a value is of, or that the backward's formula makes it of."""
    seen: set[fx.Node] = set()
    pending = [node]
    while pending:
        maker = _maker(pending.pop())
        if maker not in seen and maker.meta.get("partitioner_tag") == "is_backward":
            pending.extend(maker.all_input_nodes)
        seen.add(maker)
    return {n for n in seen if n.op == "call_function" and n.meta.get("partitioner_tag") != "is_backward"}


def _maker(node: fx.Node) -> fx.Node:
    """The operator that computed a value, which views only show."""
    while is_view(node) or node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def _all_inputs(node: fx.Node) -> set[fx.Node]:
    """All that a value depends on."""
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        fresh = set(pending.pop().all_input_nodes) - found
        found |= fresh
        pending.extend(fresh)
    return found


def _computes_16_bit_floats(node: fx.Node) -> bool:
    """Whether a node computes a tensor of 16-bit floats."""
    value = node.meta.get("val")
    return not is_view(node) and isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)


def _insert_cast(node: fx.Node) -> None:
    """Puts a cast of a node to its own dtype between it and its users."""
    with node.graph.inserting_after(node):
        rounded = node.graph.call_function(prims.convert_element_type.default, (node, node.meta["val"].dtype))
    rounded.meta = dict(node.meta)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
