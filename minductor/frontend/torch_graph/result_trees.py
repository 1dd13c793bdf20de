"""Graphs whose results are no flat tuple, as users trace them; Dynamo's always are one.

Takes such a graph and what compiles one with a flat tuple. Gives a callable with the results that the graph gives: a
tensor, a dict, or whatever tree of them. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.graph import _PyTreeCodeGen
from torch.utils import _pytree as pytree


def has_nested_results(gm: object) -> bool:
    """Whether a graph gives something else than a flat tuple.

    >>> has_nested_results(torch.fx.symbolic_trace(lambda x: x + 1))
    True
    >>> has_nested_results(torch.fx.symbolic_trace(lambda x: (x + 1,)))
    False
    """
    if not isinstance(gm, torch.fx.GraphModule):
        return False
    (results,) = gm.graph.output_node().args
    is_flat = isinstance(results, tuple | list) and not any(isinstance(one, tuple | list | dict) for one in results)
    return not is_flat or isinstance(gm.graph._codegen, _PyTreeCodeGen)  # an export's code puts them in their tree


class _FlatResults(torch.nn.Module):
    """A graph's results as a list; `tree` is how the last call gave them."""

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
    """The compiled graph, whose results are put in the tree in which the traced call gave them."""
    flat = _FlatResults(gm)
    compiled = compile_flat(flat, inputs)

    def call(*args: Any) -> Any:
        return pytree.tree_unflatten(list(compiled(*args)), flat.tree)

    return call
