"""Selections of a pair of components become real and imag; a graph without any stays."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Graph
from minductor.frontend.graph_passes.select_real_imag import select_real_imag
from tests.frontend.tracing import CPU


def traced(fn) -> Graph:
    return capture(make_fx(fn, tracing_mode="fake")(torch.ones(3, dtype=torch.complex64)), "inference")


def test_a_selected_component_is_read_itself() -> None:
    graph = traced(lambda z: torch.view_as_real(z).select(-1, 1) * 2)
    ops = [node.op for node in select_real_imag(graph, CPU).nodes]
    assert ops == ["aten.view_as_real.default", "aten.imag.default", "aten.mul.Tensor"]


def test_a_graph_that_selects_no_component_is_returned_as_it_is() -> None:
    graph = traced(lambda z: torch.view_as_real(z).select(0, 1))
    assert "aten.view_as_real.default" in [node.op for node in graph.nodes]
    assert select_real_imag(graph, CPU) is graph
