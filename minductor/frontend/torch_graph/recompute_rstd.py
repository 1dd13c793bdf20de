"""Recomputes rstd of a layer norm in the backward instead of saving it.

Takes a forward and a backward module, and the number of the forward's results that are the caller's. Changes both
modules and gives nothing. A layer norm saves the mean and rstd (the reciprocal of the standard deviation) of each row.
Where its operand and its mean are saved too, the backward computes rstd from them. The backward reads the row anyway,
so this costs one more pass through a row in the cache, and saves the memory of rstd between forward and backward.

Leaves alone rows longer than `MAX_ROW_ELEMENTS`, rows whose length is symbolic, and norms in a dtype other than their
compute dtype. The mean is not recomputed: the forward corrects its mean by a second pass, which would have to be
repeated.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import torch
from torch import fx

from minductor.frontend.torch_graph.decompose_norms import Writer, is_exact

aten = torch.ops.aten

MAX_ROW_ELEMENTS = 4096  # a longer row may not lie in a cache, and its statistics are a small part of what is saved


def recompute_rstd(forward: fx.GraphModule, backward: fx.GraphModule, outputs: int) -> None:
    """Recomputes each saved rstd in the backward; the first `outputs` results of the forward are not saved values."""
    output = forward.graph.output_node()
    results = cast("Sequence[Any]", output.args[0])
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    gone: set[fx.Node] = set()
    for node in dict.fromkeys(results[outputs:]):
        norm = _layer_norm_of_rstd(node) if isinstance(node, fx.Node) else None
        if norm is None:
            continue
        operand, mean = (inputs.get(n.name) if isinstance(n, fx.Node) else None for n in (norm.args[0], _mean_of(norm)))
        if operand is not None and mean is not None:
            _write_rstd(backward.graph, inputs[node.name], operand, mean, norm)
            gone.add(node)
    if gone:
        _remove_results(output, [number >= outputs and node in gone for number, node in enumerate(results)])
        for module in (forward, backward):
            module.graph.eliminate_dead_code()
            module.recompile()


def _layer_norm_of_rstd(node: fx.Node) -> fx.Node | None:
    """The layer norm whose rstd a node is, if the rstd can be recomputed; else None."""
    norm = node.args[0] if node.target is operator.getitem and node.args[1] == 2 else None
    if not isinstance(norm, fx.Node) or norm.target is not aten.native_layer_norm.default or node.meta.get("recompute"):
        return None
    shape = norm.args[1]
    assert isinstance(shape, Sequence)
    lengths = [n for n in shape if isinstance(n, int)]
    is_short = len(lengths) == len(shape) and 0 < prod(lengths) <= MAX_ROW_ELEMENTS
    return norm if is_short and is_exact(norm) else None


def _mean_of(norm: fx.Node) -> fx.Node | None:
    return next((user for user in norm.users if user.args[1] == 1), None)


def _write_rstd(graph: fx.Graph, deviation: fx.Node, operand: fx.Node, mean: fx.Node, norm: fx.Node) -> None:
    """Replaces the backward's input rstd by its formula of the operand and the mean."""
    shape: Any = norm.args[1]
    eps = norm.args[4]
    write = Writer(norm, before=next(node for node in graph.nodes if node.op != "placeholder"))
    distance = write(aten.sub.Tensor, operand, mean)
    squares = write(aten.mul.Tensor, distance, distance)
    variance = write(aten.mean.dim, squares, [d - len(shape) for d in range(len(shape))], True)
    again = write(aten.rsqrt.default, write(aten.add.Tensor, variance, eps))
    deviation.replace_all_uses_with(again)
    graph.erase_node(deviation)


def _remove_results(output: fx.Node, is_gone: Sequence[bool]) -> None:
    """Removes results from a graph's output, with their metadata."""

    def left(values: Any) -> Any:
        return [value for value, gone in zip(values, is_gone, strict=True) if not gone]

    output.args = (tuple(left(output.args[0])),)
    for name in ("desc", "output_stack_traces"):
        if name in output.meta:
            output.meta[name] = left(output.meta[name])
