"""`explain`: the whole road as text, and a check that finds the stage which moved the numbers."""

import importlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import minductor
from minductor.__main__ import main
from minductor.api.explain import Explanation, Verdict
from minductor.core.errors import UnknownKernel, UnknownOption
from minductor.driver import PIPELINE
from minductor.ir.program.nodes import Constant, Kernel, Program
from tests.house.rules import ROOT

STAGES = ["graph", *(stage.name for stage in PIPELINE), "codegen", "compile"]


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (2 * x + 1).softmax(-1)


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a stage turn 2 into 3 wherever it stands."""

    def wrong(program: Program) -> Program:
        nodes = []
        for node in program.nodes:
            if isinstance(node, Kernel):
                ops = [replace(op, attrs=Constant(3.0)) if op.attrs == Constant(2.0) else op for op in node.body.ops]
                node = replace(node, body=replace(node.body, ops=tuple(ops)))
            nodes.append(node)
        return replace(program, nodes=tuple(nodes))

    def spoil(name: str) -> None:
        (stage,) = [stage for stage in PIPELINE if stage.name == name]
        last = stage.steps[-1] if stage.steps else stage
        module = importlib.import_module(last.function.partition(":")[0])
        right = getattr(module, last.name)
        monkeypatch.setattr(module, last.name, lambda value, env: wrong(right(value, env)))

    return spoil


def test_shows_every_stage_in_order() -> None:
    explanation = minductor.explain(scaled, torch.randn(4, 8))
    (road,) = explanation.roads
    assert [step.name for step in road.steps] == STAGES
    text = str(explanation)
    places = [text.index(f"-- {name} --") for name in (*STAGES, "wrapper.py", "report")]
    assert places[: len(STAGES)] == sorted(places[: len(STAGES)])
    assert "program inference" in explanation.stage("fuse") and "def call(args):" in text
    assert 'extern "C" int64_t fused_' in text and "note:" not in explanation.stage("fuse")
    assert explanation.first_moved() == "", "nothing was checked"


def test_shows_the_graph_passes_that_change_the_graph() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[1:3] = y * 2
        return x

    explanation = minductor.explain(fn, torch.ones(4), torch.ones(2))
    passes = ["lower.fold_copies", "lower.eliminate_dead_code"]
    (road,) = explanation.roads
    assert [step.name for step in road.steps] == ["graph", *passes, *STAGES[1:]]
    assert road.steps[2].summary.endswith(f" ms nodes={explanation.stage(passes[1]).count(' = aten.')}")
    counts = [explanation.stage(name).count("aten.copy.default") for name in ("graph", *passes)]
    assert counts == [1, 1, 0]


def test_shows_the_steps_of_lowering_that_add_nodes() -> None:
    """The conjugate of a complex input is a view, which `deliver_outputs` writes to memory."""
    explanation = minductor.explain(lambda x: x.conj() * 1j, torch.ones(4, dtype=torch.complex64))
    (road,) = explanation.roads
    assert [step.name for step in road.steps] == ["graph", "lower.deliver_outputs", *STAGES[1:]]
    assert explanation.stage("lower.deliver_outputs") == explanation.stage("lower")


def test_shows_why_kernels_stay_apart() -> None:
    text = str(minductor.explain(lambda x: (x - x.sum(0)).softmax(1), torch.randn(64, 96)))
    assert "stay apart: " in text


def test_says_why_by_the_names_that_it_shows() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x @ x).sin().sum(), x.cos().sum(0)

    shown = minductor.explain(fn, torch.randn(8, 8))
    compiled = shown.roads[0].compiled
    assert compiled is not None
    first, second = compiled.report.kernel_names
    assert shown.why_not(first, second) == ("they touch no common data",)
    assert "is a call of aten.mm.out" in shown.why_not("x0", second)[0]
    with pytest.raises(UnknownKernel, match="k88"):
        shown.why_not("k88", second)


@pytest.mark.parametrize("name", ["lower", "fuse", "schedule"])
def test_check_names_the_first_stage_that_moved(name: str, spoil: Callable[[str], None]) -> None:
    x = torch.randn(4, 8)
    assert minductor.explain(scaled, x, check=True).first_moved() == ""
    spoil(name)
    assert minductor.explain(scaled, x, check=True).first_moved() == f"inference {name}"


def test_check_covers_forward_and_backward_and_leaves_no_gradient() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Dropout(0.5))
    explanation = minductor.explain(net, torch.randn(4, 8), check=True)
    assert [road.role for road in explanation.roads] == ["forward", "backward"]
    for road in explanation.roads:
        assert [verdict.stage for verdict in road.verdicts][-1] == "kernels"
        assert not any(verdict.has_moved for verdict in road.verdicts)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_check_sees_written_inputs(spoil: Callable[[str], None]) -> None:
    x = torch.ones(4)
    assert minductor.explain(lambda x: x.mul_(2), x, check=True).first_moved() == ""
    spoil("inline")
    assert minductor.explain(lambda x: x.mul_(2), torch.ones(4), check=True).first_moved() == "inference inline"


@pytest.mark.parametrize(("error", "moved"), [(0.0, False), (1e-4, False), (2e-4, True), (float("nan"), True)])
def test_nan_is_a_move(error: float, moved: bool) -> None:
    assert Verdict("fuse", error, 1e-4).has_moved == moved


def test_stages_up_to_a_failure_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, env: Any) -> Any:
        raise ValueError("no such order")

    monkeypatch.setattr(importlib.import_module("minductor.passes.order.order"), "order", broken)
    explanation = minductor.explain(scaled, torch.randn(4, 8))
    text = str(explanation)
    assert "-- fuse --" in text and "-- schedule --" not in text
    assert "[MD041] stage 'order' failed: ValueError: no such order" in text


def test_errors_before_the_first_graph_are_raised() -> None:
    with pytest.raises(UnknownOption, match="did you mean 'fuse'"):
        minductor.explain(scaled, torch.randn(4), options={"fuze": True})


def test_no_graph_is_said() -> None:
    assert "no graph was compiled" in str(Explanation(()))
    assert "no graph was compiled" in str(minductor.explain(lambda: 3))


def test_graph_that_runs_in_eager_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.randn(3)
        text = str(minductor.explain(lambda x: (x.sin(), torch.ones(3, device="meta")), x))
    assert "no stage ran" in text


FILE = """
import torch
def scaled(x): return 2 * x
net = torch.nn.Linear(4, 4)
class Net(torch.nn.Module): pass
def example_inputs(): return {"scaled": (torch.ones(3),), "net": [torch.ones(2, 4)]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "explained.py"
    path.write_text(FILE)
    return path


def test_command_shows_and_checks(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}::scaled", "--check", "--stage", "lower"]) == 0
    out = capsys.readouterr().out
    assert "-- lower --" in out and "-- fuse --" not in out
    assert out.endswith("every stage gives eager's numbers\n")
    assert main(["explain", f"{file}::scaled", "--stage", "fuze"]) == 2
    assert "no stage 'fuze': did you mean 'fuse'? The stages are: graph, lower" in capsys.readouterr().err


def test_command_fails_when_the_numbers_move(
    file: Path, spoil: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil("order")
    assert main(["explain", f"{file}::scaled", "--check"]) == 1
    assert capsys.readouterr().out.endswith("the numbers moved first in inference order\n")


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("{file}", "does not read FILE.py::FUNCTION"),
        ("{file}x::scaled", "does not exist"),
        ("{file.parent}::scaled", "is not a Python file"),
        ("{file}::scalde", "does not exist: did you mean 'scaled'? The functions are: scaled, net, example_inputs."),
        ("{file}::torch", "is a module, no function: The functions are: scaled"),
        ("{file}::Net", "name an instance"),
        ("{file}::net", "gives a list for net, not a tuple"),
        ("{file}::example_inputs", "has no row for 'example_inputs', only scaled, net"),
    ],
)
def test_command_says_what_is_wrong(where: str, says: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", where.format(file=file)]) == 2
    assert says in capsys.readouterr().err


def test_command_says_which_inputs_it_misses(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("def f(x): return x")
    assert main(["explain", f"{file}::f"]) == 2
    assert "has no example_inputs(): add one" in capsys.readouterr().err


def test_a_target_that_is_elsewhere(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}::scaled", "--target", "sm_90"]) == 0
    out = capsys.readouterr().out
    assert "grid i0 by" in out and "@triton.jit" in out
    assert main(["explain", f"{file}::scaled", "--target", "sm90"]) == 2
    assert "did you mean 'sm_90'" in capsys.readouterr().err


def test_example_of_the_documentation() -> None:
    from minductor.api.explain import load_function

    fn, inputs = load_function(f"{ROOT / 'docs' / 'layer_norm.py'}::layer_norm")
    assert fn(*inputs).shape == inputs[0].shape


def test_a_target_that_is_elsewhere_is_checked_on_the_cpu() -> None:
    """Its programs name the GPU's devices and operators: attention, what makes tensors."""

    def fn(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        half = x.to(torch.bfloat16)
        plain = F.scaled_dot_product_attention(half, half, half, is_causal=True)
        masked = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return plain + masked + torch.rand(16, device=x.device) + torch.arange(16)

    given = torch.randn(2, 4, 8, 16, requires_grad=True), torch.randn(8, 8)
    found = minductor.explain(fn, *given, check=True, options={"target": "sm_90", "precision": "eager"})
    assert found.failure is None and found.first_moved() == ""
    assert [len(road.verdicts) > 5 for road in found.roads] == [True, True]
    assert "_scaled_dot_product_flash_attention.default" in found.stage("lower")
    assert "cuda:0 = aten.rand.default" in found.stage("graph")
