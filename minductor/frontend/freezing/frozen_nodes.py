"""Finds the nodes of an ATen graph that have the same value at each call, because they depend on weights only.

Takes an inference graph while AOTAutograd compiles it, or an exported graph that holds its weights. Gives nodes. A
weight that the graph writes is none of them, nor is a value that draws random numbers, nor one that an operator of
another library gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from minductor.frontend.capture.schemas import KNOWN_NAMESPACES
from minductor.frontend.quirks.torch_versions import is_seeded, static_indices


def frozen_nodes(gm: fx.GraphModule) -> set[fx.Node]:
    """The weights of a graph and the nodes that depend on nothing but weights.

    Weights are the tensors that the graph holds, and the inputs that are parameters or buffers of the user's modules.
    """
    inputs = gm.graph.find_nodes(op="placeholder")
    statics = [inputs[number] for number in static_indices() if number < len(inputs)]
    held = [node for node in gm.graph.find_nodes(op="get_attr") if isinstance(_attribute(gm, node), torch.Tensor)]
    written = set(_written(gm.graph))
    frozen = {node for node in (*statics, *held) if node not in written and _is_tensor(node)}
    for node in gm.graph.nodes:
        given = node.all_input_nodes
        if given and all(each in frozen for each in given) and _is_constant_call(node):
            frozen.add(node)
    return frozen


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_constant_call(node: fx.Node) -> bool:
    """Whether a node's call always gives the same for the same arguments, and does nothing else.

    An operator of a library that this compiler does not know may count its calls, or wait for other processes.
    """
    target: Any = node.target
    if node.op != "call_function":
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    is_pure = not target._schema.is_mutable and not is_seeded(target) and bool(target._schema.returns)
    return is_pure and str(target).startswith(KNOWN_NAMESPACES)


def _written(graph: fx.Graph) -> Iterable[fx.Node]:
    """The nodes whose memory a call of the graph may write: operators' arguments, and what these are views of."""
    for node in graph.nodes:
        target: Any = node.target
        if isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable:
            continue
        if (
            node.op not in ("call_function", "call_method", "call_module")
            or getattr(target, "__name__", "") == "getitem"
        ):
            continue
        waiting = list(node.all_input_nodes)
        while waiting:
            each = waiting.pop()
            yield each
            if isinstance(each.target, torch._ops.OpOverload) and each.target.is_view:
                waiting += each.all_input_nodes


def _attribute(gm: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = gm
    for name in str(node.target).split("."):
        value = getattr(value, name, None)
    return value
