"""Provenance of whole graphs: from a call to its ATen nodes and back, with the user's line, for each kind of graph."""

from __future__ import annotations

import inspect
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.bench import micro, models
from minductor.driver import Compiled, Compiler
from minductor.ir.report.provenance import Provenance
from minductor.options import Options


@torch.library.custom_op("minductor_tests_provenance::halve", mutates_args=())
def halve(x: Tensor) -> Tensor:
    return x / 2


@halve.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def graphs(folder: Path, fn: Any, *given: Any, is_dry: bool = False, **options: Any) -> list[Compiled]:
    """The graphs of a function and of its gradient, each verified after every stage."""
    seen: list[Compiled] = []
    torch._dynamo.reset()
    backend = Compiler(observer=seen.append, is_dry=is_dry, environ={"MINDUCTOR_CACHE_DIR": str(folder)})
    out = torch.compile(fn, backend=partial(backend, options={"verify": True, **options}))(*given)
    leaves = [out] if isinstance(out, Tensor) else list(out)
    if wanting := [leaf.sum() for leaf in leaves if leaf.requires_grad]:
        torch.autograd.backward(wanting)
    return seen


def of(graph: Compiled) -> Provenance:
    """The provenance of a graph, after its laws were checked."""
    found = graph.report.provenance()
    assert Provenance.from_json(json.loads(json.dumps(found.to_json()))) == found
    keys = [call.key for call in found.calls]
    assert len(set(keys)) == len(keys)
    assert all(call.nodes for call in found.calls)
    assert {(node, key) for node, keys in found.nodes.items() for key in keys} == {
        (node, call.key) for call in found.calls for node in call.nodes
    }
    final = {row.into for row in found.became if row.stage == "memory"}
    assert final == {call.key for call in found.calls if not call.variant}
    return found


def line(fn: Any, offset: int) -> str:
    return f"{__file__}:{fn.__code__.co_firstlineno + offset}"


def test_a_small_graph_both_ways(tmp_path: Path) -> None:
    """The example of TorchInductor's provenance tracking: a call of the library between two kernels."""

    def fn(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        x = a * 2
        y = b + x
        z = torch.mm(y, c)
        return torch.relu(z).exp()

    (graph,) = graphs(tmp_path, fn, *(torch.rand(8, 8) for _ in range(3)))
    found = of(graph)
    assert [(call.key, call.kind, call.nodes) for call in found.calls] == [
        ("fused_mul_add_0:1", "launch", ("mul", "add")),
        ("aten.mm.out:2", "extern", ("mm",)),
        ("fused_relu_exp_1:3", "launch", ("relu", "exp")),
    ]
    assert found.nodes["exp"] == ("fused_relu_exp_1:3",)
    assert [found.line_of(node) for node in ("mul", "add", "mm", "exp")] == [line(fn, n) for n in (1, 2, 3, 4)]
    inlined = [(row.kernel, row.into, row.why) for row in found.became if row.stage == "inline"]
    why = "its only consumer uses each of its elements once"
    assert inlined == [("k2", "k3", why), ("k0", "k1", why)]
    stored = json.dumps(found.to_json())
    assert __file__ not in stored and "line" not in json.loads(stored)["calls"][0]


def test_a_hit_of_the_store_gives_the_same_with_its_own_lines(tmp_path: Path) -> None:
    def one(x: Tensor) -> Tensor:
        return x.sin() + 1

    def other(x: Tensor) -> Tensor:
        y = x.sin()
        return y + 1

    (first,), (second,) = (graphs(tmp_path, fn, torch.rand(8)) for fn in (one, other))
    assert second.was_hit and of(first) == of(second)
    assert [of(first).line_of("add"), of(second).line_of("add")] == [line(one, 1), line(other, 2)]


@pytest.mark.parametrize("wrapper", ["python", "cpp", "fx"])
def test_equal_kernels_share_a_name_and_no_key(wrapper: str, tmp_path: Path) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.mm(torch.mm(x * 2 + 1, w) * 2 + 1, w)

    (graph,) = graphs(tmp_path, fn, torch.rand(8, 8), torch.rand(8, 8), wrapper=wrapper, provenance=2, inplace=False)
    found = of(graph)
    first, second = (call for call in found.calls if call.kind == "launch")
    assert first.key.rpartition(":")[0] == second.key.rpartition(":")[0]
    assert first.nodes == ("mul", "add") and second.nodes == ("mul_1", "add_1")
    renamed = tuple(tuple(f"{node}_1" for node in nodes) for nodes in first.values)
    assert second.values == renamed and set(first.values) == {("mul",), ("add",)}
    assert list(found.lines) == [first.key.rpartition(":")[0]]


def test_regions_name_their_nodes(tmp_path: Path) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: (a * 2).sin(), lambda a: a @ a, (x,))

    (graph,) = graphs(tmp_path, fn, torch.rand(8, 8))
    found = of(graph)
    inner = {call.region: call.nodes for call in found.calls if call.region}
    assert inner == {
        "true_graph_0": ("true_graph_0.mul", "true_graph_0.sin"),
        "false_graph_0": ("false_graph_0.mm",),
    }
    assert found.line_of("true_graph_0.sin") == line(fn, 1)


def test_variants_and_their_choice(tmp_path: Path) -> None:
    (graph,) = graphs(
        tmp_path, lambda x: x.softmax(-1), torch.rand(64, 4096), is_dry=True, target="sm_90", autotune=True
    )
    found = of(graph)
    choice = next(call for call in found.calls if call.kind == "dispatch")
    variants = [call.variant for call in found.calls if call.variant]
    assert len(set(variants)) > 1
    assert {node for call in found.calls for node in call.nodes} == set(choice.nodes)


def test_a_backward_and_a_custom_operator(tmp_path: Path) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(halve(x.detach()) + torch.tanh(x), (8,), w)

    forward, backward = graphs(tmp_path, fn, *(torch.rand(n, 8, requires_grad=True) for n in (4,)), torch.rand(8))
    found = of(forward)
    assert found.graph == "forward" and of(backward).graph == "backward"
    (call,) = (call for call in found.calls if "halve" in call.key)
    assert call.kind == "extern" and found.line_of(call.nodes[0]) == line(fn, 1)
    (node, *_) = (n for n in of(backward).nodes if "tanh" in n or "mul" in n)
    assert of(backward).line_of(node) == line(fn, 1)


def test_compile_only_and_explain_have_it() -> None:
    found = minductor.compile_only(lambda x: x.exp() + 1, torch.rand(64), target="sm_90")
    (graph,) = found.graphs
    (call,) = graph.report.provenance().calls
    assert call.nodes == ("exp", "add")
    (road,) = minductor.explain(lambda x: x.exp() + 1, torch.rand(64)).roads
    assert road.compiled is not None
    assert road.compiled.report.provenance().nodes.keys() == {"exp", "add"}


def test_pieces_of_a_cut_kernel_say_why(tmp_path: Path) -> None:
    (graph,) = graphs(tmp_path, lambda x: x.sum(), torch.rand(1 << 20), is_dry=True, target="sm_90")
    rows = [row for row in of(graph).became if row.stage == "split" and row.kernel != row.into]
    assert [(row.kernel, row.into) for row in rows] == [("k0", "k0_join")]
    assert rows[0].why and "parts" in rows[0].figures


def test_each_stage_gives_its_reason(tmp_path: Path) -> None:
    """Whichever stage makes one kernel a part of another one."""
    seen = graphs(tmp_path, *_training_step(), is_dry=True)
    rows = [row for graph in seen for row in of(graph).became if row.stage != "memory"]
    assert {row.stage for row in rows} >= {"inline", "fuse"}
    assert all(row.why for row in rows)
    assert all(row.figures for row in rows if row.stage == "fuse")


def _training_step() -> tuple[Any, ...]:
    module, inputs, loss = models.make("gpt", size="tiny")
    return lambda *given: loss(module(*given)), *inputs


WRAPPERS = (("cpu", "python"), ("cpu", "cpp"), ("cpu", "fx"), ("sm_90", "python"), ("interpret", "python"))
# a quarter of the cases for the CPU, and as many others for a GPU
IN_PARTS = [
    *(pytest.param(*row, slice(None), id="-".join(row), marks=pytest.mark.long) for row in WRAPPERS),
    pytest.param("cpu", "python", slice(0, None, 4), id="some-cpu-python"),
    pytest.param("sm_90", "python", slice(2, None, 4), id="some-sm_90-python"),
]


@pytest.mark.parametrize(("target", "wrapper", "part"), IN_PARTS)
def test_the_rules_hold_for_every_case(target: str, wrapper: str, part: slice, tmp_path: Path) -> None:
    """Of ops, of the plan and of the wrapper's comments: all are checked by the option `verify`."""
    given = {"is_dry": True, "wrapper": wrapper, **({} if target == "cpu" else {"target": target})}
    for row in [*micro.CASES.values()][part]:
        inputs = [x.requires_grad_() if row.backward and x.is_floating_point() else x for x in row.inputs()]
        assert all(map(of, graphs(tmp_path, row.fn, *inputs, **given)))


@pytest.mark.long
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("model", models.BUILDERS)
def test_the_rules_hold_for_every_model(model: str, target: str, tmp_path: Path) -> None:
    module, inputs, loss = models.make(model, size="tiny")
    given = {} if target == "cpu" else {"target": target}
    assert all(map(of, graphs(tmp_path, lambda *x: loss(module(*x)), *inputs, is_dry=True, **given)))


def test_the_option_is_part_of_the_key() -> None:
    assert len({Options(provenance=level).fingerprint() for level in (0, 1, 2)}) == 3
    assert inspect.signature(Options).parameters["provenance"].default == 1


def test_a_traced_folder_has_the_file_and_the_text_whose_lines_it_counts(tmp_path: Path) -> None:
    graphs(tmp_path / "store", lambda x: x.exp() + 1, torch.rand(64), provenance=2, trace=f"dir:{tmp_path / 'trace'}")
    (file,) = (tmp_path / "trace").rglob("provenance.json")
    found = Provenance.from_json(json.loads(file.read_text()))
    ((_, rows),) = found.lines.items()
    text = (file.parent / rows.file).read_text().splitlines()
    (call,) = found.calls
    named = {node: text[number - 1] for number, places in rows.rows for at in places for node in call.values[at]}
    assert named.keys() == {"exp", "add"} and "= x" in named["add"]
    assert any("md_exp" in text[number - 1] for number, _ in rows.rows)
