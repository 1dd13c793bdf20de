"""Compiles graphs whose result is not a flat tuple. Dynamo's graphs give one, but graphs that users trace may not.

Takes a graph, and the function that compiles a graph with a flat tuple of results. Gives a callable with the graph's
own results: a tensor, a dict, or any tree of tensors. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree


def has_nested_results(gm: object) -> bool:
    """Whether a graph's result is anything but a flat tuple.

    >>> has_nested_results(torch.fx.symbolic_trace(lambda x: x + 1))
    True
    >>> has_nested_results(torch.fx.symbolic_trace(lambda x: (x + 1,)))
    False
    """
    if not isinstance(gm, torch.fx.GraphModule):
        return False
    (results,) = gm.graph.output_node().args
    is_flat = isinstance(results, tuple | list) and not any(isinstance(one, tuple | list | dict) for one in results)
    # the code of an exported graph builds the tree from flat results
    return not is_flat or isinstance(gm.graph._codegen, _PyTreeCodeGen)


class _FlatResults(torch.nn.Module):
    """A module that gives a graph's results as a list; `tree` is the structure of the last call's result."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        super().__init__()
        self.gm, self.graph = gm, gm.graph
        self.tree: Any = None

    def forward(self, *args: Any) -> list[Any]:
        results, self.tree = pytree.tree_flatten(self.gm(*args))
        return results


def flatten_results(
    gm: torch.fx.GraphModule, inputs: Sequence[Any], compile_flat: Callable[[Any, Sequence[Any]], Callable[..., Any]]
) -> Callable[..., Any]:
    """The compiled graph as a callable that gives results in the structure of the traced call."""
    flat = _FlatResults(gm)
    compiled = compile_flat(flat, inputs)

    def call(*args: Any) -> Any:
        return pytree.tree_unflatten(list(compiled(*args)), flat.tree)

    return call
