"""A functional write takes the value from before the copy; one that broadcasts stays."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.capture.capture import capture
from minductor.frontend.capture.captured_graph import Node, NodeRef
from minductor.frontend.graph_passes.fold_copies import fold_copies
from tests.frontend.tracing import CPU, randn


def written(fn) -> list[Node]:
    gm = make_fx(torch.func.functionalize(fn), tracing_mode="fake")(randn(4, 3), randn(2, 3))
    return [n for n in fold_copies(capture(gm, "inference"), CPU).nodes if n.op.endswith("_scatter.default")]


def test_the_value_is_written_itself() -> None:
    (node,) = written(lambda x, y: x.clone().narrow(0, 1, 2).copy_(y * 2)._base)
    assert node.args[1] == NodeRef("mul")


def test_a_copy_that_broadcasts_or_casts_stays() -> None:
    (node,) = written(lambda x, y: x.clone().narrow(0, 1, 2).copy_(y[0])._base)
    assert node.args[1] == NodeRef("copy")
    (node,) = written(lambda x, y: x.clone().narrow(0, 1, 2).copy_(y.double())._base)
    assert node.args[1] == NodeRef("copy")


def test_a_graph_without_such_copies_is_returned_as_it_is() -> None:
    graph = capture(make_fx(lambda x: torch.ops.aten.copy(x, x.sin()), tracing_mode="fake")(randn(3)), "inference")
    assert [node.op for node in graph.nodes] == ["aten.sin.default", "aten.copy.default"]
    assert fold_copies(graph, CPU) is graph
