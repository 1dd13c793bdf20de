"""Of the two statistics of a row that a layer norm keeps for its backward, takes one out: it is summed again.

Takes a forward and a backward module, and how many of the forward's results are the caller's. Gives nothing: of each
layer norm whose operand and mean are kept as well, the backward computes the inverse deviation from them. It reads the
row in any case, so the sum costs a pass through a cache; kept, it would cost its bytes for all of the time between.
Leaves alone rows that are too long to lie in a cache, rows whose length is not a number, and statistics that are
rounded to less than they are computed in.

It is not the mean that is summed again: the forward's is corrected by a second pass, and two would be needed.
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

MAX_ROW_ELEMENTS = (
    4096  # elements of a row; of a longer one a statistic is a small part, and a pass through it is not free
)


def recompute_rstd(forward: fx.GraphModule, backward: fx.GraphModule, given: int) -> None:
    """See above; the first `given` results of the forward are not for the backward."""
    output = forward.graph.output_node()
    results = cast("Sequence[Any]", output.args[0])
    inputs = {node.name: node for node in backward.graph.find_nodes(op="placeholder")}
    gone: set[fx.Node] = set()
    for node in dict.fromkeys(results[given:]):
        norm = _layer_norm_of_rstd(node) if isinstance(node, fx.Node) else None
        if norm is None:
            continue
        operand, mean = (inputs.get(n.name) if isinstance(n, fx.Node) else None for n in (norm.args[0], _mean_of(norm)))
        if operand is not None and mean is not None:
            _write_rstd(backward.graph, inputs[node.name], operand, mean, norm)
            gone.add(node)
    if gone:
        _remove_results(output, [number >= given and node in gone for number, node in enumerate(results)])
        for module in (forward, backward):
            module.graph.eliminate_dead_code()
            module.recompile()


def _layer_norm_of_rstd(node: fx.Node) -> fx.Node | None:
    """The layer norm whose inverse deviation a node is."""
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
    """Puts what follows from the operand and the mean in the place of an input."""
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
    """Takes results out of a graph's, and what is said of each."""

    def left(values: Any) -> Any:
        return [value for value, gone in zip(values, is_gone, strict=True) if not gone]

    output.args = (tuple(left(output.args[0])),)
    for name in ("desc", "output_stack_traces"):
        if name in output.meta:
            output.meta[name] = left(output.meta[name])
