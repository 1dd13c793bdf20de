"""Equal views become one node; what is returned and what differs stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Graph, NodeRef
from minductor.frontend.graph_passes.share_windows import share_windows
from tests.frontend.tracing import CPU, randn


def traced(fn: Callable[..., Any], *args: torch.Tensor) -> Graph:
    return capture(make_fx(torch.func.functionalize(fn), tracing_mode="fake")(*args), "inference")


def in_two_windows(cache: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    cache = cache * 1
    cache[1][0].mul_(value)
    return cache


def test_the_way_back_of_a_write_goes_through_the_same_windows() -> None:
    graph = share_windows(traced(in_two_windows, randn(3, 2, 4), randn(4)), CPU)
    outer, inner = (node for node in graph.nodes if node.op == "aten.select_scatter.default")
    (window,) = (node for node in graph.nodes if node.name == "select")
    assert outer.args[0] == NodeRef(window.name) and inner.args[0] == window.args[0]


def test_other_windows_stay_and_what_is_returned() -> None:
    graph = traced(lambda x: (x[0], x[0], x[1] + 1), randn(3, 2))
    assert share_windows(graph, CPU).outputs == graph.outputs
    graph = traced(lambda x: x[0] + x[1], randn(3, 2))
    assert share_windows(graph, CPU) is graph
