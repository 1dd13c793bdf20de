"""Dead nodes go; effects and what they need stay."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.capture.capture import capture
from minductor.frontend.graph_passes.dead_code import eliminate_dead_code
from tests.frontend.tracing import CPU, randn


def ops(fn) -> list[str]:
    gm = make_fx(fn, tracing_mode="fake")(randn(3))
    return [node.op for node in eliminate_dead_code(capture(gm, "inference"), CPU).nodes]


def test_unused_chains_go() -> None:
    assert ops(lambda x: (x.sin().exp(), x.cos())[1]) == ["aten.cos.default"]


def test_writes_and_random_numbers_stay() -> None:
    assert ops(lambda x: (x.add_(x.sin()), torch.rand(3), x * 2)[2]) == [
        "aten.sin.default",
        "aten.add_.Tensor",
        "aten.rand.default",
        "aten.mul.Tensor",
    ]


def test_a_graph_without_dead_nodes_is_returned_as_it_is() -> None:
    graph = capture(make_fx(lambda x: x.sin(), tracing_mode="fake")(randn(3)), "inference")
    assert eliminate_dead_code(graph, CPU) is graph
