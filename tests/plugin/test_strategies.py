"""The strategy of random programs, their oracle, and what a found failure shrinks to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_plugin.oracle.accuracy import WrongResult
from pytest_plugin.random_programs.grammar import FAMILIES
from pytest_plugin.random_programs.programs import Input, Node, Program, shrink
from pytest_plugin.random_programs.verdict import assert_like_eager, judge, shrink_bad_program
from pytest_plugin.strategies import numbered, programs

ROOT = Path(__file__).parents[2]


def program(*lines: str, inputs: tuple[str, ...] = ("tensor((4, 6), torch.float32, 'a')",), **facts: Any) -> Program:
    """`t0 = ...` is a node, anything else a write to its first name; the last target is the result."""
    nodes: list[Node] = []
    for line in lines:
        target, is_node, text = line.partition(" = ")
        nodes.append(
            Node(target, text, "arithmetic", rounds=True) if is_node else Node(line.split(".")[0], line, "writes", True)
        )
    given_inputs = tuple(Input(f"x{n}", text) for n, text in enumerate(inputs))
    return Program(given_inputs, tuple(nodes), (nodes[-1].target,), **facts)


def eager(fn: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(fn, backend="eager", fullgraph=True)


def backend(change: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A compiler whose graphs give something else."""

    def compile_graph(gm: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        del inputs
        return lambda *args: change(gm(*args))

    return lambda fn: torch.compile(fn, backend=compile_graph, fullgraph=True)


# --- what is drawn


@given(programs())
@settings(max_examples=15)
def test_eager_runs_every_program(drawn: Program) -> None:
    found = drawn.fn()(*drawn.arguments())
    assert len(found) == len(drawn.outputs) and all(isinstance(out, torch.Tensor) for out in found)
    assert len(drawn.nodes) <= 40


@given(programs(differentiable=True, length=(10, 20)))
@settings(max_examples=6)
def test_eager_takes_the_gradients(drawn: Program) -> None:
    assert judge(drawn, lambda fn: fn, reference=lambda fn: fn).word == "right"


def test_programs_by_number_are_the_same_every_time() -> None:
    once, again = ([numbered(n, programs(length=(10, 15))) for n in range(2)] for _ in range(2))
    assert once == again and len(set(map(repr, once))) == 2
    # in another process too, which has loaded other modules
    code = "from pytest_plugin.strategies import *; print([numbered(n, programs(length=(10, 15))) for n in range(2)])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{once}\n"


def test_every_family_is_drawn_and_can_be_left_out() -> None:
    drawn = [numbered(n, programs(length=(30, 40))) for n in range(16)]
    assert {node.family for p in drawn for node in p.nodes} == {family.name for family in FAMILIES}
    dtypes = {t.dtype for p in drawn for t in p.arguments()}
    assert dtypes >= {torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool}
    without = [numbered(n, programs(without=("writes", "views"))) for n in range(4)]
    assert not {"writes", "views"} & {node.family for p in without for node in p.nodes}
    with pytest.raises(ValueError, match="no family scatters"):
        programs(without=("scatters",))


def test_scalable_programs_run_on_other_sizes() -> None:
    """But for a few whose sizes are equal by chance."""
    ran = 0
    for drawn in (numbered(n, programs(scalable=True, length=(10, 15))) for n in range(8)):
        other = drawn.scaled(lambda n: n + 3)
        with suppress(RuntimeError):
            other.fn()(*other.arguments())
            ran += 1
    assert ran >= 6


class Sizes(TorchDispatchMode):
    """The most elements that an operator gave on the CPU."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.is_cpu:
            self.most = max(self.most, found.numel())
        return found


@pytest.mark.parametrize("number", [1, 22])
def test_what_would_be_too_large_is_not_tried(number: int) -> None:
    """Rows by as many indices as a tensor has elements: in the first of these 10,310,000 numbers."""
    with Sizes() as seen:
        numbered(number, programs(large=True, without=("products",)))
    assert 100_000 < seen.most < 3_000_000


# --- the oracle


def test_a_compiler_that_does_nothing_is_right() -> None:
    drawn = program("t0 = x0.sin()", "x0.mul_(2)", "t2 = t0 + x0")
    assert judge(drawn, eager).word == "right"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda outs: [t * 1.001 for t in outs], "elements are wrong"),
        (lambda outs: [t.double() for t in outs], "dtype is torch.float64"),
        (lambda outs: [t[:1] for t in outs], "shape is (1, 6)"),
        (lambda outs: [t.t().contiguous().t() for t in outs], "stride is (1, 4)"),
    ],
)
def test_a_wrong_result_is_found(change: Callable[[Any], Any], why: str) -> None:
    found = judge(program("t0 = x0.sin()"), backend(change))
    assert found.word == "wrong" and why in found.why


def test_a_lost_write_to_an_argument_is_found() -> None:
    drawn = program("x0.mul_(2)", "t1 = x0 + 1")

    def forgetful(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: fn(*(x.clone() for x in args))

    found = judge(drawn, forgetful)
    assert found.word == "wrong" and "args[0] afterwards" in found.why


def test_a_lost_alias_is_found() -> None:
    drawn = program("t0 = x0[1:]")

    def copying(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out.clone() for out in fn(*args))

    assert "common storages" in judge(drawn, copying).why
    two = replace(program("t0 = x0 + 1", "t1 = t0[:]"), outputs=("t0", "t1"))
    assert "common storages" in judge(two, copying).why


def test_a_wrong_gradient_is_found() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g

    drawn = program("t0 = x0.sin()", differentiable=True)
    found = judge(drawn, lambda fn: lambda x: (Wrong.apply(x),))
    assert found.word == "wrong" and "gradient of" in found.why


def test_an_exception_is_an_error_unless_the_tracer_has_it_too() -> None:
    def refuse(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            raise ValueError("no")

        return call

    drawn = program("t0 = x0.sin()")
    assert (judge(drawn, refuse).word, judge(drawn, refuse).why) == ("error", "ValueError: no")
    assert judge(drawn, refuse, reference=refuse).word == "tracer"
    assert judge(program("t0 = x0.no_such_thing()"), eager).word == "refused"


def test_what_the_tracer_does_is_the_measure_there() -> None:
    wrong, other = (backend(lambda outs, by=by: [t * by for t in outs]) for by in (2, 3))
    drawn = program("t0 = x0.sin()")
    assert judge(drawn, wrong, reference=wrong).word == "tracer"
    assert judge(drawn, wrong, reference=other).word == "wrong"


def test_what_the_tracer_rounds_needs_no_rounding() -> None:
    """Its truth is what it gives of float64."""

    def grown(dtype: torch.dtype) -> Callable[[Any], Any]:
        def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x.double() if x.dtype is torch.float64 else x.to(dtype)
            for _ in range(40):
                y = y * 1.0006
            return (y.half() if x.dtype is torch.float32 else y,)

        return lambda fn: call

    drawn = program("t0 = torch.ones_like(x0).half()")
    assert judge(drawn, grown(torch.float32), reference=grown(torch.float16)).word == "tracer"


def test_a_program_on_an_edge_is_unstable() -> None:
    """x * 3 - x * 3 is 0 in eager; a fused multiply leaves a rounding error, whose sign then decides."""
    drawn = program("t0 = x0 * 3.1", "t1 = x0 * 3.1", "t2 = torch.where(t0 > t1, 1.0, 2.0)")
    assert judge(drawn, backend(lambda outs: [3 - t for t in outs])).word == "unstable"
    # where nothing is rounded, nothing is excused
    firm = program("t0 = torch.where(x0 > 0.5, 1.0, 2.0)")
    assert judge(firm, backend(lambda outs: [3 - t for t in outs])).word == "wrong"


def test_a_sum_in_another_order_is_as_good() -> None:
    """In float64 nothing tells which of two orders is nearer to the truth."""
    given = Input("x0", "tensor((4, 6), torch.float64, 'a')")
    lines = (Node("t0", "torch.cat([x0, -x0])", "views"), Node("t1", "t0.sum()", "reductions", rounds=True))
    drawn = Program((given,), lines, ("t1",))

    def in_order(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, -x]).t().flatten().cumsum(0)[-1]

    assert judge(drawn, lambda fn: lambda x: (in_order(x),)).word == "unstable"
    assert judge(drawn, lambda fn: lambda x: (in_order(x) + 1e-13,)).word == "wrong"


# --- shrinking


def test_shrinking_keeps_what_is_needed() -> None:
    drawn = program(
        "t0 = x0 * 2",
        "t1 = x0.exp()",
        "t2 = t0.sin()",
        "t3 = t2 + t1",
        inputs=("tensor((8, 9), torch.float32, 'a')",) * 2,
    )

    def is_bad(trial: Program) -> bool:
        try:
            trial.fn()(*trial.arguments())
        except Exception:
            return False
        return any("sin" in node.text for node in trial.nodes)

    small = shrink(drawn, is_bad)
    assert [node.line for node in small.nodes] == ["t2 = x0.sin()"]
    assert len(small.inputs) == 1 and "(2, 2)" in small.inputs[0].expression


def wrong_sine(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler with a bug."""

    def compile_graph(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        del inputs
        for node in gm.graph.nodes:
            if node.target in (torch.sin, "sin"):
                node.op, node.target = "call_function", torch.cos
        gm.recompile()
        return gm

    return torch.compile(fn, backend=compile_graph, fullgraph=True)


def test_a_failure_shrinks_to_its_cause() -> None:
    drawn = program("t0 = x0 * 2", "t1 = t0.exp()", "t2 = t0.sin()", "t3 = t2 + t1", "t4 = t3.sum(0)")
    small, found = shrink_bad_program(drawn, wrong_sine)
    assert [node.line for node in small.nodes] == ["t2 = x0.sin()"] and found.word == "wrong"


@pytest.mark.parametrize("differentiable", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_script_runs_alone(tmp_path: Path, *, differentiable: bool) -> None:
    drawn = program("t0 = x0.sin()", "t1 = t0[1:]", differentiable=differentiable)
    register = (
        "import torch._dynamo\n"
        "def broken(gm, inputs):\n    return lambda *args: [t + 1 for t in gm(*args)]\n"
        "torch._dynamo.register_backend(broken)\n"
    )
    right, wrong = (drawn.script(backend=name, why="because") for name in ("aot_eager", "broken"))
    assert right.startswith("# because") and "pytest" not in right and "hypothesis" not in right
    with torch.set_grad_enabled(True):
        exec(right, {})
    path = tmp_path / "broken.py"
    path.write_text(register + wrong)
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True)
    assert done.returncode == 1 and "output 0" in done.stderr, done.stderr


def test_a_script_runs_the_other_sizes_of_a_scalable_program(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = program("t0 = x0.sin()", scalable=True)
    (size,) = {x.shape[0] for x in drawn.arguments()}
    monkeypatch.setattr(torch, "compile", lambda fn, **_: lambda x: tuple(t + (len(x) > size) for t in fn(x)))
    # the script is a program of its own, and switches gradients off
    with torch.set_grad_enabled(True), pytest.raises(AssertionError, match="output 0"):
        exec(drawn.script(), {})


def test_programs_run_on_the_default_device() -> None:
    drawn = program("t0 = x0 + torch.arange(6)")
    with torch.device("meta"):
        assert [x.device.type for x in (*drawn.arguments(), *drawn.fn()(*drawn.arguments()))] == ["meta", "meta"]
    assert [x.device.type for x in drawn.arguments()] == ["cpu"]
    moved = drawn.on("cuda")
    assert "t0 = x0 + torch.arange(6, device='cuda')" in moved.text and drawn.on("cpu") == drawn
    script = drawn.script(device="cuda")
    assert script.index('set_default_device("cuda")') < script.index("torch.set_grad_enabled")
    assert "set_default_device" not in drawn.script()


def test_a_user_sees_a_script() -> None:
    with pytest.raises(WrongResult, match=r"(?s)wrong: .*def fn\(x0\):.*assert_close"):
        assert_like_eager(program("t0 = x0.sin()"), wrong_sine)


def test_the_strategy_is_imported_without_torch() -> None:
    code = (
        "import sys, pytest_plugin.strategies, pytest_plugin.random_programs.verdict; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
