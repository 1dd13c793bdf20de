"""Graphs of torch.fx as data: their JSON says all of them, and other JSON is refused."""

import math

import pytest

from minductor.core.dtypes import BF16
from minductor.ir.artefact.fx_graph import FxGraph, FxKernel, FxNode, Result, Value, parse_graph, print_graph
from minductor.ir.program.nodes import Token

VALUES: tuple[Value, ...] = (
    Result("x"),
    BF16,
    Token("device", "cuda:0"),
    Token("memory_format", "contiguous_format"),
    Token("operator", "aten.add.Tensor"),
    (1, (True, None), ()),
    -0.0,
    math.inf,
    2 + 3j,
    "a 'word'",
    2**62,
)


def test_what_is_printed_is_read_back() -> None:
    node = FxNode("y", "call_function", "operator.add", VALUES, (("out", Result("x")),), 3, ("add", "mul"))
    inner = FxGraph("inside", (node,))
    graph = FxGraph("whole", (FxNode("x", "placeholder", "x"), node), (inner,), (FxKernel("k", (1, 2), (("E", "m"),)),))
    assert parse_graph(print_graph(graph)) == graph
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


def test_one_and_true_and_one_point_zero_are_not_the_same() -> None:
    graph = FxGraph("f", (FxNode("y", "call_function", "torch.f", (1, True, 1.0)),))
    assert [type(value) for value in parse_graph(print_graph(graph)).nodes[0].args] == [int, bool, float]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "name": "f", "kernels": [], "graphs": [], "nodes": []}',
        '{"schema": 1, "name": "f", "kernels": [], "graphs": [], "nodes": [{"op": "output"}]}',
        '{"schema": 1, "name": "f", "kernels": [], "graphs": [], "nodes": [{"name": "a", "op": "b", "target": "c", '
        '"args": [{"dtype": "f33"}]}]}',
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_graph(text)
