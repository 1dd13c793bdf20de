"""Runs a training step in eager from graphs whose layouts of images were chosen as for a GPU, beside eager's own step.

Takes a module or function and its arguments. Gives the joint graph after the rewrite, the notes, the graphs that were
split from it, results and gradients, and eager's. Tensors lie on the CPU, whose libraries take all layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch.utils._pytree import tree_leaves

from minductor.driver_tasks.graph_rewrites import GraphRewrites, rewrite_aten
from minductor.frontend.quirks.eager_strides import layout_of
from minductor.frontend.torch_graph.decompositions import decompositions
from minductor.frontend.torch_graph.split_joint_graph import split_joint_graph
from minductor.options import Options
from minductor.target import Env, by_name

ROW = "train_channels_last"
aten = torch.ops.aten
IMAGES = {aten.convolution.default: (0,), aten.convolution_backward.default: (0, 1)}


def copied(gm: fx.GraphModule) -> int:
    """How many copies of images or weights a graph makes."""
    found = [node.meta["val"] for node in gm.graph.find_nodes(op="call_function", target=aten.clone.default)]
    return sum(value.dim() > 3 for value in found)


@dataclass
class Step:
    """A training step: its graphs and notes, and its values beside eager's."""

    graphs: list[fx.GraphModule] = field(default_factory=list[fx.GraphModule])  # forward, backward
    notes: list[Any] = field(default_factory=list[Any])
    values: Sequence[Tensor | None] = ()
    wanted: Sequence[Tensor | None] = ()

    def layouts(self) -> str:
        """A letter for each image that a convolution or a gradient reads: "l" is channels-last, "c" contiguous."""
        nodes = [node for gm in self.graphs for node in gm.graph.nodes if node.target in IMAGES]
        images = [node.args[at].meta["val"] for node in nodes for at in IMAGES[node.target]]
        return "".join("l" if layout_of(image).is_channels_last else "c" for image in images)

    def why(self, row: str = ROW) -> list[str]:
        """The reasons in the notes of a row; "" for a note of an applied rewrite."""
        return [note.why for note in self.notes if note.rewrite == row]

    def check(self, tolerance: float = 1e-4) -> None:
        """Values, dtypes and strides are eager's.

        What is zero but for rounding, such as the gradient of a bias in front of a norm, is held against the largest.
        """
        largest = max(y.detach().abs().max().item() for y in self.wanted if y is not None and y.is_floating_point())
        for got, wanted in zip(self.values, self.wanted, strict=True):
            if got is None or wanted is None:
                assert got is wanted
                continue
            assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
            scale = max(wanted.detach().abs().max().item(), 0.1 * largest)
            torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance * scale)


def train(
    module: Any,
    *args: Tensor,
    target: str = "sm_90",
    dynamic: bool | None = None,
    autocast: bool = False,
    **options: Any,
) -> Step:
    """One training step of a copy of the module, with graphs as for a target; and of another copy in eager."""
    torch.compiler.reset()
    env = Env(Options(**options), by_name(target))
    step = Step()

    def keep(gm: fx.GraphModule) -> Any:
        step.graphs.append(gm)
        step.notes += rewrite_aten(gm, env, ()).notes
        return make_boxed_func(gm.forward)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        rewrites = GraphRewrites((), env)
        return aot_module_simplified(
            gm,
            inputs,
            fw_compiler=lambda gm, _: rewrites.compile(gm, "forward", keep),
            bw_compiler=lambda gm, _: keep(gm),
            partition_fn=partial(split_joint_graph, rewrite=rewrites.rewrite_joint),
            decompositions=decompositions(),
            keep_inference_input_mutations=True,
        )

    cast = partial(torch.autocast, "cpu", torch.bfloat16) if autocast else nullcontext
    step.values = _run(module, args, cast, partial(torch.compile, backend=backend, dynamic=dynamic))
    step.wanted = _run(module, args, cast, lambda fn: fn)
    return step


def _run(module: Any, args: Sequence[Tensor], cast: Any, compiled: Callable[[Any], Any]) -> list[Tensor | None]:
    """Results, gradients of inputs and of parameters, and buffers after a step."""
    own = deepcopy(module)
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    torch.manual_seed(0)
    with cast():
        results = tree_leaves(compiled(own)(*given))
    # weights that differ from element to element, so that no gradient is a constant
    totals = [(y.float() * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in results if y.requires_grad]
    torch.stack(totals).sum().backward()
    state = [*own.parameters(), *own.buffers()] if isinstance(own, nn.Module) else []
    return [*results, *(x.grad for x in (*given, *state)), *(x for x in state if not x.requires_grad)]
