"""An exported program as one graph: what is whose, what is written where, and what cannot leave."""

from typing import Any

import pytest
import torch
from torch.export import Dim

from minductor.backends import find_backend
from minductor.core.errors import NotExportable
from minductor.driver import Compiler
from minductor.frontend.capture.capture import capture
from minductor.frontend.exported.exported_program import Exported, read_program
from minductor.ir.plan.plan import Plan, SizeOf, SymbolLine
from minductor.options import Options
from minductor.target import Env, by_name


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.table = torch.arange(4.0)

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor], scale: int = 2) -> Any:
        more["y"].mul_(2)
        return {"o": self.norm(self.linear(x)) * self.table * scale, "z": more["y"].view(-1)}, None


def export_layer(**dynamic: Any) -> Exported:
    given = (torch.randn(6, 8), {"y": torch.ones(6, 2)}, 3)
    return read_program(torch.export.export(Layer().train(), given, **dynamic))


def plan_of(found: Exported) -> Plan:
    graph = capture(found.gm, "inference")
    return Compiler().compile_program(graph, Env(Options(verify=True), by_name("cpu")), find_backend("cpu"))[1]


def operators(found: Exported) -> list[str]:
    return [str(node.target) for node in found.gm.graph.nodes if node.op == "call_function"]


@pytest.fixture(scope="module")
def layer() -> Exported:
    return export_layer()


def test_each_leaf_is_an_input_or_a_value(layer: Exported) -> None:
    assert [(leaf.name, leaf.input, leaf.value, leaf.is_changed) for leaf in layer.inputs] == [
        ("x", 0, None, False),
        ("more_y", 1, None, True),
        ("scale", None, 3, False),
    ]


def test_what_changes_is_an_input_and_the_rest_is_held(layer: Exported) -> None:
    assert list(layer.state) == ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    placeholders = [node.name for node in layer.gm.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == 2 + len(layer.state) and placeholders[:2] == ["x", "more_y"]
    assert sum(node.op == "get_attr" for node in layer.gm.graph.nodes) == 5
    assert operators(layer).count("aten.copy_.default") == 1 + len(layer.state)


def test_composite_operators_are_taken_apart(layer: Exported) -> None:
    assert "aten.linear.default" not in operators(layer)
    assert "aten.addmm.default" in operators(layer)


def test_the_graph_writes_what_the_program_changes(layer: Exported) -> None:
    y, state = torch.ones(6, 2), [value.clone() for value in layer.state.values()]
    results = layer.gm(torch.randn(6, 8), y, *state)
    assert torch.equal(y, torch.full((6, 2), 2.0)) and state[2] == 1
    assert [None if result is None else result.shape for result in results] == [(6, 4), (12,), None]


def test_a_multiple_of_a_size_tells_it() -> None:
    half = Dim("half", min=2, max=64)
    shapes = {"x": {0: 2 * half}, "more": {"y": {0: 2 * half}}, "scale": None}
    plan = plan_of(export_layer(dynamic_shapes=shapes))
    (told,) = [line for line in plan.lines if isinstance(line, SymbolLine)]
    assert told.source == SizeOf("x", 0, 2, 0) and (told.symbol.lo, told.symbol.hi) == (2, 64)


def test_weights_without_numbers_cannot_leave() -> None:
    with torch.device("meta"):
        program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(NotExportable, match="weight"):
        read_program(program)
