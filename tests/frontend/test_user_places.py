"""Where a graph's nodes come from: the user's line and its text, the module path, and a backward's forward node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

import minductor
from minductor.driver import Compiler
from minductor.frontend.capture.capture import sources
from minductor.frontend.capture.user_places import Sources, nodes_of
from minductor.runtime.store.store import Store


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers, self.head = nn.Embedding(11, 8), nn.ModuleList([Block(), Block()]), nn.Linear(8, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).softmax(-1)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return grad * 3 * ctx.saved_tensors[0] ** 2


Graphs = Callable[..., list[tuple[fx.GraphModule, Sources]]]


@pytest.fixture
def graphs(tmp_path: Path) -> Graphs:
    """The ATen graphs of a call and of its backward, each with its Sources."""

    def run(fn: Any, *args: Any) -> list[tuple[fx.GraphModule, Sources]]:
        found: list[tuple[fx.GraphModule, Sources]] = []
        torch._dynamo.reset()
        compiler = Compiler(store=Store(tmp_path), graph_pass=lambda gm: found.append((gm, sources(gm))))
        made = torch.compile(fn, backend=compiler)(*args)
        if made.requires_grad:
            made.sum().backward()
        return found

    return run


def calls(gm: fx.GraphModule) -> dict[str, str]:
    """Name -> operator of the calls of a graph and of its regions."""
    return {name: str(node.target) for name, node in nodes_of(gm) if node.op == "call_function"}


def only(gm: fx.GraphModule, operator: str) -> str:
    (name,) = (name for name, target in calls(gm).items() if target == operator)
    return name


def test_a_training_step_names_modules_lines_and_forward_nodes(graphs: Graphs) -> None:
    (forward, at), (backward, back) = graphs(Gpt(), torch.arange(4))
    gelus = [name for name, op in calls(forward).items() if op == "aten.gelu.default"]
    assert [at.module_of(name) for name in gelus] == ["layers.0.mlp", "layers.1.mlp"]
    assert {at.code_of(name) for name in gelus} == {"return self.down(F.gelu(self.up(x)))"}
    assert at.module_of(only(forward, "aten.embedding.default")) == "words"
    assert at.module_of(only(forward, "aten._softmax.default")) == "", "the compiled module's own line"
    gradients = [name for name, op in calls(backward).items() if op == "aten.gelu_backward.default"]
    assert [back.forward_of(name) for name in gradients] == gelus[::-1]
    assert [back.module_of(name) for name in gradients] == ["layers.1.mlp", "layers.0.mlp"]
    assert [back.of(name) for name in gradients] == [at.of(name) for name in gelus]
    assert all(place.startswith(f"{__file__}:") for place in map(at.of, gelus))
    assert at.place_of(gelus[0]) == f"{at.of(gelus[0])} in layers.0.mlp"


def test_each_node_of_a_backward_has_the_forward_node_of_its_module(graphs: Graphs) -> None:
    (forward, at), (backward, back) = graphs(Gpt(), torch.arange(4))
    names = {node.name for node in forward.graph.nodes}
    of = {name: back.forward_of(name) for name in calls(backward)}
    sums = {node.name for node in backward.graph.nodes if node.meta.get("is_gradient_acc")}
    assert len(sums) == 2 and {name for name, found in of.items() if not found} == sums
    assert {found for found in of.values() if found} <= names
    assert all(at.module_of(found) == back.module_of(name) for name, found in of.items() if found)
    saved = [node.name for node in backward.graph.nodes if node.op == "placeholder" and node.name in names]
    assert saved and [back.forward_of(name) for name in saved] == saved
    assert not any(at.forward_of(name) for name in names)


def test_what_the_backward_recomputes_has_its_own_name(graphs: Graphs) -> None:
    (forward, _), (backward, back) = graphs(lambda x: x.cos().exp().sin(), torch.randn(3, requires_grad=True))
    shared = calls(forward).keys() & calls(backward).keys()
    assert shared and all(back.forward_of(name) == name for name in shared)


def test_the_path_begins_with_the_variable_that_a_function_calls(graphs: Graphs) -> None:
    one, two = Mlp(), [Mlp(), Mlp()]

    def step(x: Tensor) -> Tensor:
        return F.gelu(one(x) + two[1](x))

    ((gm, at), _) = graphs(step, torch.randn(3, 8))
    gelus = [name for name, op in calls(gm).items() if op == "aten.gelu.default"]
    assert [at.module_of(name) for name in gelus] == ["one", "two.1", ""]


def test_a_method_of_no_module_strips_its_object(graphs: Graphs) -> None:
    class Trainer:
        def __init__(self) -> None:
            self.nets = {"a": Mlp()}

        def step(self, x: Tensor) -> Tensor:
            return self.nets["a"](x)

    ((gm, at), _) = graphs(Trainer().step, torch.randn(3, 8, requires_grad=True))
    assert at.module_of(only(gm, "aten.gelu.default")) == "nets.a"


def test_regions_of_cond(graphs: Graphs) -> None:
    blocks = nn.ModuleList([Mlp(), Mlp()])

    def pick(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: blocks[0](x), lambda x: blocks[1](x).sin(), (x,))

    (forward, at), (backward, back) = graphs(pick, torch.randn(3, 8, requires_grad=True))
    gelus = [name for name, op in calls(forward).items() if op == "aten.gelu.default"]
    assert gelus == ["true_graph_0.gelu", "false_graph_0.gelu"]
    assert [at.module_of(name) for name in gelus] == ["blocks.0", "blocks.1"]
    gradients = [name for name, op in calls(backward).items() if op == "aten.gelu_backward.default"]
    assert [name.partition(".")[0] for name in gradients] == ["true_graph_1", "false_graph_1"]
    assert {back.forward_of(name) for name in gradients} == {"cond"}
    assert back.forward_of(only(backward, "cond")) == "cond"


def test_a_custom_autograd_function_has_the_lines_of_its_backward(graphs: Graphs) -> None:
    (forward, at), (backward, back) = graphs(lambda x: Cube.apply(x).exp(), torch.randn(3, requires_grad=True))
    assert at.code_of(only(forward, "aten.exp.default")).endswith("torch.randn(3, requires_grad=True))")
    own = [name for name in calls(backward) if "saved_tensors" in back.code_of(name)]
    assert len(own) >= 3 and not any(back.forward_of(name) for name in own)
    assert all(back.of(name).startswith(f"{__file__}:") for name in own)
    first = next(name for name in calls(backward) if name not in own)
    assert back.forward_of(first) == "exp"


def test_an_exported_program() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x: Tensor) -> Tensor:
            return self.mlp(self.mlp(x))

    program = torch.export.export(Twice(), (torch.randn(3, 8),)).run_decompositions()
    at = sources(program.graph_module)
    gelus = [name for name, op in calls(program.graph_module).items() if op == "aten.gelu.default"]
    assert [at.module_of(name) for name in gelus] == ["mlp", "mlp"]
    assert {at.code_of(name) for name in gelus} == {"return self.down(F.gelu(self.up(x)))"}


def test_a_graph_without_metadata_has_nothing() -> None:
    at = sources(fx.symbolic_trace(lambda x: x + 1))
    assert [at.of("add"), at.code_of("add"), at.module_of("add"), at.forward_of("add"), at.place_of("add")] == [""] * 5


class Picks(nn.Module):
    """A module whose submodules read at places that the data decide."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Embedding(5, 8), nn.Embedding(3, 8)])

    def forward(self, ids: Tensor) -> Tensor:
        return self.layers[0](ids) + self.layers[1](ids)


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_an_error_at_run_time_names_the_module(tmp_path: Path, wrapper: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Picks(), backend=Compiler(store=Store(tmp_path)), options={"wrapper": wrapper})
    with torch.no_grad(), pytest.raises(IndexError, match=r"\(at \S+:\d+ in layers\.1\)$"):
        compiled(torch.tensor([4, 1]))


def test_explain_says_which_modules_call_and_launch() -> None:
    lines = str(minductor.explain(Gpt(), torch.arange(4))).splitlines()
    externs = [line.rpartition(" ")[2] for line in lines if line.startswith("extern aten.addmm")]
    blocks = [f"(layers.{n}.mlp.{name})" for n in (0, 1) for name in ("up", "down")]
    assert externs == [*blocks, "(head)"]
    assert any(line.startswith("kernel gelu") and line.endswith(" (layers.1.mlp)") for line in lines)
