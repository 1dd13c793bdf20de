"""Compiles functions with the rewrites of convolutions, up to the graph that would be lowered, and runs that in eager.

Takes a module or function and its arguments. Gives the rewritten ATen graph, the notes, the result, and eager's result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch.utils._pytree import tree_leaves

from minductor.driver_tasks.graph_rewrites import GraphRewrites, rewrite_aten
from minductor.frontend.quirks.eager_strides import layout_of
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.options import Options
from minductor.target import Env, by_name

CONVOLUTIONS = ("aten.convolution", "mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise")


@dataclass
class Rewritten:
    """A rewritten graph with its notes; and the results of a call, beside eager's."""

    gm: fx.GraphModule | None = None
    notes: list[Any] = field(default_factory=list[Any])
    frozen_bytes: int = 0
    results: Sequence[Tensor] = ()
    wanted: Sequence[Tensor] = ()

    def names(self) -> list[str]:
        """The operators that the graph calls, in order, without overloads."""
        assert self.gm is not None
        return [
            str(node.target.overloadpacket)
            for node in self.gm.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload)
        ]

    def layouts(self) -> str:
        """A letter for each convolution, in order: "l" if it reads channels-last images, "c" if contiguous ones."""
        assert self.gm is not None
        nodes = [node for node in self.gm.graph.nodes if str(node.target).rpartition(".")[0] in CONVOLUTIONS]
        return "".join("l" if layout_of(node.args[0].meta["val"]).is_channels_last else "c" for node in nodes)

    def why(self, name: str) -> list[str]:
        """The reasons in the notes of a row; "" for a note of an applied rewrite."""
        return [note.why for note in self.notes if note.rewrite == name]


def rewrite(
    fn: Any, *args: Tensor, target: str = "cpu", grad: bool = False, dynamic: bool | None = None, **options: Any
) -> Rewritten:
    """The function's graph after all rewrites, what it gives, and what eager gives."""
    torch.compiler.reset()
    env = Env(Options(**options), by_name(target))
    found = Rewritten()

    def keep(gm: fx.GraphModule) -> Any:
        done = rewrite_aten(gm, env, ())
        found.gm, found.notes, found.frozen_bytes = gm, list(done.notes), done.frozen_bytes
        return make_boxed_func(gm.forward)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        rewrites = GraphRewrites((), env)
        return aot_module_simplified(
            gm,
            inputs,
            fw_compiler=lambda gm, _: rewrites.compile(gm, "forward", keep),
            bw_compiler=lambda gm, _: make_boxed_func(gm.forward),
            inference_compiler=lambda gm, _: rewrites.compile(gm, "inference", keep),
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )

    with torch.set_grad_enabled(grad):
        found.results = tree_leaves(torch.compile(fn, backend=backend, dynamic=dynamic)(*args))
        found.wanted = tree_leaves(fn(*args))
    return found


def check(found: Rewritten, tolerance: float = 1e-5) -> None:
    """The results are eager's, with eager's strides and dtypes."""
    for got, wanted in zip(found.results, found.wanted, strict=True):
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
        scale = wanted.nan_to_num(0.0, 0.0, 0.0).abs().max().item() if wanted.numel() else 1.0
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance * max(scale, 1e-3), equal_nan=True)
