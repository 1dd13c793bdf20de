"""Programs as graphs of torch.fx, ahead of time: called as the program is, checked, and eager's values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
from torch.export import Dim

import minductor
from minductor import backends
from minductor.core.errors import TargetElsewhere, WrongInput


class Layer(torch.nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, a: dict[str, torch.Tensor], b: list[torch.Tensor], k: int = 3, *, c: torch.Tensor) -> Any:
        self.calls.add_(1)
        a["x"].mul_(2)
        return {"o": self.linear(a["x"]).relu() * self.calls, "t": b[0].t()}, None, b[0] * k + c


def given(rows: int) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    return {"x": torch.randn(rows, 8)}, [torch.randn(rows, 2)]


@pytest.fixture(scope="module")
def layer() -> tuple[Layer, fx.GraphModule]:
    module, rows = Layer(), Dim("rows", min=2, max=64)
    shapes = {"a": {"x": {0: rows}}, "b": [{0: rows}], "k": None, "c": None}
    return module, minductor.to_fx(module, *given(5), c=torch.ones(1, 2), k=4, dynamic_shapes=shapes)


def test_it_is_called_as_the_program_and_keeps_its_state(layer: tuple[Layer, fx.GraphModule]) -> None:
    module, graph = layer
    graph.graph.lint()
    c = torch.randn(1, 2)
    for run in (graph, copy.deepcopy(graph)):
        for rows in (7, 2):
            mine, theirs = (copy.deepcopy(args) for args in [given(rows)] * 2)
            module.calls.zero_()
            run.get_buffer("b_calls").zero_()
            expected = module(*theirs, c=c, k=4)
            run.get_buffer("b_calls").zero_()
            torch.testing.assert_close(run(*mine, c=c, k=4), expected)
            torch.testing.assert_close(mine, theirs)
            assert run.get_buffer("b_calls") == 1


@pytest.mark.parametrize(
    ("args", "k", "why"),
    [
        (given(1), 4, "it is 1, and 2 to 64"),
        (given(65), 4, "it is 65, and 2 to 64"),
        (({"x": torch.randn(5, 8)}, [torch.randn(6, 2)]), 4, r"its size is \(6, 2\)"),
        (({"x": torch.randn(8, 5).t()}, [torch.randn(5, 2)]), 4, "its strides are"),
        (({"x": torch.ones(5, 8, dtype=torch.int64)}, [torch.randn(5, 2)]), 4, "its dtype is"),
        (given(5), 5, "it is 5, and 4 was compiled for"),
    ],
)
def test_other_inputs_are_refused(layer: tuple[Layer, fx.GraphModule], args: Any, k: int, why: str) -> None:
    graph = copy.deepcopy(layer[1])
    graph.graph.eliminate_dead_code()
    graph.recompile()
    with pytest.raises(WrongInput, match=why):
        graph(*args, c=torch.ones(1, 2), k=k)


def test_what_is_known_of_a_value_is_its_meta(layer: tuple[Layer, fx.GraphModule]) -> None:
    buffers = layer[1].graph.find_nodes(op="call_function", target=torch.empty_strided)
    shapes = [node.meta["val"].shape for node in buffers]
    assert all(isinstance(rows, torch.SymInt) for rows, _ in shapes)
    (first, *_) = layer[1].graph.find_nodes(op="placeholder")
    assert first.meta["val"].shape[0] == 5 == shapes[0][0]


def test_an_exported_program_whose_graph_is_only_to_be_read() -> None:
    program = torch.export.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),))
    graph = minductor.to_fx(program, options={"target": "sm_90", "matmul": "native"})
    graph.graph.lint()
    assert len(graph.graph.find_nodes(op="call_function", target=triton_kernel_wrapper_mutation)) == 1
    with pytest.raises((TargetElsewhere, WrongInput)):
        graph(torch.ones(3, 4))


def test_kernels_of_triton_compute_what_eager_does() -> None:
    x = torch.randn(20, 30)
    graph = minductor.to_fx(lambda x: torch.softmax(x, 1) + x.sum(0), x, options={"target": "interpret"})
    assert graph.graph.find_nodes(op="call_function", target=triton_kernel_wrapper_mutation)
    torch.testing.assert_close(graph(x), torch.softmax(x, 1) + x.sum(0))


def test_a_backends_hook_adds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(graph: fx.GraphModule) -> Callable[..., Any]:
        return lambda *args: graph(*args) + 1

    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    x = torch.randn(8)
    with monkeypatch.context() as patch:
        patch.setattr(backends, "BUILT_IN", {"cpu": replace(backends.find_backend("cpu"), fx=hook)})
        torch.testing.assert_close(minductor.to_fx(double, x)(x), x + x + 1)
    torch.testing.assert_close(minductor.to_fx(double, x)(x), x + x)
