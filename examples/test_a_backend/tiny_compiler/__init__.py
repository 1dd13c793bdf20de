"""A toy backend of torch.compile: it removes operations that do nothing from Dynamo's graph; eager runs the rest.

`x * 1`, `x + 0` and the like are removed, unless somebody could tell. The result may have another dtype than `x`. A
result that is returned, viewed or written to has to be a new tensor. `test_tiny.py` beside this package tests all of
that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

# The number that changes nothing as the second operand.
NEUTRAL: Mapping[Any, float] = {
    **dict.fromkeys((operator.mul, operator.truediv, torch.mul, torch.div), 1),
    **dict.fromkeys((operator.add, operator.sub, torch.add, torch.sub), 0),
}
# Operations that read their operands and make a new tensor, as those in NEUTRAL do.
READERS = ("cos", "exp", "relu", "sin", "sum", "tanh")
Observer = Callable[[GraphModule], None]


def tiny(gm: GraphModule, example_inputs: Sequence[Any], *, observer: Observer | None = None) -> Callable[..., Any]:
    """The backend: a function of the graph's inputs. `observer` is shown the graph that will run."""
    for node in list(gm.graph.nodes):
        if does_nothing(node):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()
    if observer is not None:
        observer(gm)
    return gm


def does_nothing(node: Node) -> bool:
    """Whether an operation gives what it is given, and nobody can tell."""
    if node.op != "call_function" or node.target not in NEUTRAL or node.kwargs or len(node.args) != 2:
        return False
    operand, number = node.args
    if not isinstance(operand, Node) or type(number) not in (int, float) or number != NEUTRAL[node.target]:
        return False
    before, after = (n.meta["example_value"] for n in (operand, node))
    has_same_dtype = isinstance(before, torch.Tensor) and before.dtype == after.dtype
    is_only_read = all(user.target in NEUTRAL or user.target in READERS for user in node.users)
    return has_same_dtype and is_only_read
