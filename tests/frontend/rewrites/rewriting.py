"""Traces a function to an ATen graph and applies rewrites to it, for tests of single rows.

Takes a function, its arguments, rows and the numbers of the arguments that are frozen weights. Gives the rewritten
graph with its notes; it runs in eager. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from minductor.frontend.rewrites.apply_rewrites import apply_rewrites
from minductor.frontend.rewrites.operator_calls import operator_name
from minductor.frontend.rewrites.rewrite_row import Rewrite, RewriteNote
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.options import Options
from minductor.target import Env, by_name

CPU = Env(Options(), by_name("cpu"))
GPU = Env(Options(), by_name("sm_90"))
TIMES = (
    6  # eager's error: a packed product sums in one chain where eager sums in several, and errs 3 to 4 times as much
)


@dataclass(frozen=True)
class Rewritten:
    """A graph after rewrites, the notes, and the nodes with the same value at each call."""

    gm: fx.GraphModule
    notes: tuple[RewriteNote, ...]
    frozen: set[fx.Node]

    @property
    def operators(self) -> list[str]:
        """The names of the operators that are called, in order, without "aten."."""
        self.gm.graph.eliminate_dead_code()
        return [operator_name(node).removeprefix("aten.") for node in self.gm.graph.nodes if node.op == "call_function"]

    @property
    def applied(self) -> list[str]:
        """The names of the rows that were applied."""
        return [note.rewrite for note in self.notes if note.is_applied]

    @property
    def refusals(self) -> list[str]:
        """The reasons of the rows that were not."""
        return [note.why for note in self.notes if not note.is_applied]

    def values(self, node_name: str) -> Any:
        """The traced value of the first node whose name begins so."""
        return next(node.meta["val"] for node in self.gm.graph.nodes if node.name.startswith(node_name))


def rewritten(
    fn: Callable[..., Any],
    args: Sequence[Any],
    rows: Sequence[Rewrite],
    *,
    frozen: Sequence[int] = (),
    env: Env = CPU,
) -> Rewritten:
    """The graph of a function after the rows were applied, one after the other."""
    with torch.no_grad():
        gm = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*args)
    inputs = gm.graph.find_nodes(op="placeholder")
    nodes = {inputs[number] for number in frozen if number < len(inputs)}
    for node in gm.graph.nodes:
        if node.all_input_nodes and all(each in nodes for each in node.all_input_nodes) and node.op != "output":
            nodes.add(node)
    notes: list[RewriteNote] = []
    for row in rows:
        notes += apply_rewrites(gm, [row], env, frozen=nodes)
    gm.graph.lint()
    return Rewritten(gm, tuple(notes), nodes)


def assert_as_exact(found: Rewritten, fn: Callable[..., Any], args: Sequence[Any]) -> None:
    """The graph's results have eager's dtypes, sizes and strides, and are as near to float64 as eager's are."""
    with torch.no_grad():
        results, eager = (tree_leaves(call(*args)) for call in (found.gm, fn))
        wide = [arg.double() if isinstance(arg, Tensor) and arg.is_floating_point() else arg for arg in args]
        truth = tree_leaves(fn(*wide))
    for mine, theirs, exact in zip(results, eager, truth, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        both = [(each.double() - exact).abs().nan_to_num(0) for each in (mine, theirs)]
        assert torch.equal(mine.isnan(), theirs.isnan()) and torch.equal(mine.isinf(), theirs.isinf())
        if mine.numel():
            scale = exact.abs().nan_to_num(0, 0, 0).max() * torch.finfo(theirs.dtype).eps
            assert both[0].max() <= TIMES * both[1].max() + 2 * scale
