"""Makes gradients that compare for equality see the same bits in the forward and in the backward.

Takes a joint graph and changes it. Gives nothing. Leaves views alone, since views compute nothing.

The gradient of a maximum (of `amax`, of a norm of infinite order, of `scatter_reduce`) compares each element with the
maximum and divides by the number of equal elements. Two things could make a recomputed element differ:

- A kernel keeps 16-bit values in float32 until it stores them, so each half would round at the ends of its own kernels.
  `round_compared_values` inserts a cast to the 16-bit dtype behind each such value.
- The backward may sum a row in another order. `save_compared_values` forbids that the values are recomputed, so that
  the partitioner saves them, or the result of the comparison with one byte for each element.
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
    """Inserts a cast behind each recomputable 16-bit result on which an `eq` of two tensors depends."""
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
    """Marks what an `eq` compares with its own maximum as MUST_SAVE, unless the user asked for recomputation.

    One side of such an `eq` holds values that an operator of the forward selected from the other side.
    """
    for node in graph.find_nodes(op="call_function", target=aten.eq.Tensor):
        for side, other in permutations(node.all_input_nodes, 2):
            if torch.Tag.pointwise in getattr(_maker(other).target, "tags", ()):
                continue  # a pointwise result is not selected from the other side, so equality would be chance
            for source in _forward_makers(side) & _all_inputs(other):
                source.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def _forward_makers(node: fx.Node) -> set[fx.Node]:
    """The forward's operators that computed a value, found through the backward's operators."""
    seen: set[fx.Node] = set()
    pending = [node]
    while pending:
        maker = _maker(pending.pop())
        if maker not in seen and maker.meta.get("partitioner_tag") == "is_backward":
            pending.extend(maker.all_input_nodes)
        seen.add(maker)
    return {n for n in seen if n.op == "call_function" and n.meta.get("partitioner_tag") != "is_backward"}


def _maker(node: fx.Node) -> fx.Node:
    """The operator that computed the value that a node is a view or an item of."""
    while is_view(node) or node.target is operator.getitem:
        node = node.all_input_nodes[0]
    return node


def _all_inputs(node: fx.Node) -> set[fx.Node]:
    """All nodes on which a node depends."""
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
