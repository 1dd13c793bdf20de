"""Rounds what a gradient compares for equality wherever eager rounds it, so that both halves of a joint graph find it.

Takes a joint graph. Gives nothing: behind each operator whose result has 16 bits, which the backward may compute again,
and on which an `eq` of two tensors depends, stands a cast to that dtype. Leaves alone views, which compute nothing.

The gradient of an extreme (of `amax`, a norm of infinite order, `scatter_reduce`) divides by how many elements are
equal to it. What the forward found it among, the backward computes again. In a kernel, values of 16 bits are float32
until they are stored: without the casts each half would round where its own kernels end, and nothing might be equal.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._functorch.partitioners import get_default_op_list

from minductor.frontend.joint_views import is_view

aten, prims = torch.ops.aten, torch.ops.prims


def round_compared(graph: fx.Graph) -> None:
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
                if _is_rounded(node):
                    _cast(node)


def _is_rounded(node: fx.Node) -> bool:
    """Whether a node computes a tensor of 16-bit floats."""
    value = node.meta.get("val")
    return not is_view(node) and isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)


def _cast(node: fx.Node) -> None:
    """Puts a cast of a node to its own dtype between it and its users."""
    with node.graph.inserting_after(node):
        rounded = node.graph.call_function(prims.convert_element_type.default, (node, node.meta["val"].dtype))
    rounded.meta = dict(node.meta)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
