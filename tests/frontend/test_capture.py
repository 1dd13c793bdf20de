"""What capture reads, what its text says, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.core.errors import UnsupportedInput
from minductor.frontend.capture.capture import capture, sources
from tests.frontend.tracing import compiled, grads, lowered, randn


def traced(fn: Any, *args: Any) -> fx.GraphModule:
    return make_fx(fn, tracing_mode="fake")(*args)


def test_the_text_tells_numbers_apart() -> None:
    texts = {capture(traced(lambda x: x + n, randn(3)), "inference").text() for n in (1, 1.0, True)}  # noqa: B023
    assert len(texts) == 3


def test_the_text_depends_on_layout_dtype_and_role() -> None:
    gm = [traced(lambda x: x + 1, x) for x in (randn(3, 4), randn(4, 3).t(), randn(3, 4).double())]
    texts = {capture(g, "inference").text() for g in gm} | {capture(gm[0], "forward").text()}
    assert len(texts) == 4


def test_equal_programs_have_equal_texts() -> None:
    one, two = (capture(traced(lambda x: x.t() * 2, randn(3, 4)), "inference") for _ in range(2))
    assert one == two and one.text() == two.text()


def test_symbols_are_named_by_first_use() -> None:
    seen = compiled(lambda x, y: x + y, randn(4, 6), randn(6), dynamic=True)
    (graph,) = seen.graphs
    assert [s.name for s in graph.symbols] == ["s0", "s1"]
    assert [s.lo for s in graph.symbols] == [2, 2]
    assert "f32[s0, s1] stride [s1, 1]" in graph.text()


# Captures a static graph, then lowers a training step. Prints which modules of some that each of them loaded.
LOADING = """
import sys, torch
from torch.fx.experimental.proxy_tensor import make_fx
from minductor.frontend.capture.capture import capture
capture(make_fx(lambda x: x + 1, tracing_mode='fake')(torch.ones(3)), 'inference').text()
print([m for m in sys.modules if m.endswith(('.lower.lower', '.capture.symbolic_sizes'))])
from tests.frontend.tracing import grads, lowered, randn
lowered(lambda x, w: torch.nn.functional.gelu(x @ w), *grads(randn(3, 4), randn(4, 5)))
print([m for m in sys.modules if m in ('minductor.frontend.lower.lower', 'torch._inductor.lowering')])
"""


def test_a_static_graph_loads_no_rules_or_symbols_and_training_loads_no_lowerings_of_inductor() -> None:
    environ = {**os.environ, "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.splitlines()[-2:] == ["[]", "['minductor.frontend.lower.lower']"]


def test_lifted_constants_come_beside_the_text() -> None:
    table = torch.tensor([1.0, 2.0, 3.0])

    class Add(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = table

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.aten.add.Tensor(x, self.table)

    gm = fx.symbolic_trace(Add())
    for node in gm.graph.nodes:
        node.meta["val"] = randn(3)
    graph = capture(gm, "inference")
    assert graph.live.constants[0] is table
    assert "1.0" not in graph.text()


def test_parameters_are_static_and_saved_tensors_donated() -> None:
    layer = torch.nn.Linear(4, 3)
    forward, backward = compiled(lambda x: layer(x).exp().sum(), randn(2, 4)).graphs
    assert [i.is_static for i in forward.inputs].count(True) == 2
    assert any(i.is_donated for i in backward.inputs)
    assert not any(i.is_donated for i in forward.inputs)


def test_inputs_that_share_memory_are_not_donated() -> None:
    """A saved tensor and its saved view may both be in AOTAutograd's list."""
    for graph in lowered(lambda x: (x.exp().view(-1) * x.exp().t().reshape(-1)).sum(), *grads(randn(3, 4))).graphs:
        names = [i.name for i in graph.inputs if i.is_donated]
        assert len(names) == len(set(names))


REFUSED = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "float": lambda: 3.5,
    "str": lambda: "text",
}


@pytest.mark.filterwarnings("ignore:.*quantiz", "ignore:.*nested")
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_inputs(kind: str) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = REFUSED[kind]()
    graph.output((x,))
    with pytest.raises(UnsupportedInput, match="'x' is"):
        capture(fx.GraphModule({}, graph), "inference")


def test_a_subclass_is_refused() -> None:
    class Mine(torch.Tensor):
        pass

    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(3).as_subclass(Mine)
    graph.output((x,))
    with pytest.raises(UnsupportedInput, match="Mine"):
        capture(fx.GraphModule({}, graph), "inference")


def test_sources_name_the_user_s_line() -> None:
    found: list[str] = []

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        found.extend(filter(None, (sources(gm).of(node.name) for node in gm.graph.nodes)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x * 2, backend=backend)(randn(3))
    assert found and all(__file__ in line for line in found)
