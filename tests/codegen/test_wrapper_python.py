"""The wrapper module: real Python that runs the plan, frees inputs early, and says where each call comes from."""

import ast
from dataclasses import replace
from typing import Any

import pytest
import torch

from minductor.codegen.wrapper.wrapper_python import eager_call, wrapper_python
from minductor.ir.plan.plan import ExternLine, LaunchLine, Plan
from minductor.ir.program.nodes import Token
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.runtime.launch.launch import launch
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.ir.programs import CALLS, CHAIN, REGIONS, SOFTMAX

ENV = Env(Options(), by_name("cpu"))


def plan_of(text: str) -> Plan:
    return memory(parse_program(text), ENV)


def run(plan: Plan, kernels: dict[str, Any], args: list[Any], env: Env = ENV, **names: Any) -> tuple[Any, list[Any]]:
    """Executes the module with Python functions for kernels; gives the results and the events."""
    events: list[Any] = []
    text = wrapper_python(plan, env).replace("kernels(", "KERNELS.get(")
    call = launch(text, None, "test", {"KERNELS": kernels, **names}, events)
    return call(args), events


def softmax(x: torch.Tensor, out: torch.Tensor, threads: int) -> int:
    assert threads == torch.get_num_threads()
    torch.softmax(x, 1, out=out)
    return 0


def test_a_call_allocates_launches_and_returns() -> None:
    x = torch.randn(4, 8)
    (out,), _ = run(plan_of(SOFTMAX), {"softmax_0": softmax}, [x])
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_the_list_of_arguments_is_emptied() -> None:
    args: list[Any] = [torch.randn(4, 8)]
    run(plan_of(SOFTMAX), {"softmax_0": softmax}, args)
    assert args == []


def test_sizes_externs_and_constants() -> None:
    def add(x: torch.Tensor, c: torch.Tensor, out: torch.Tensor, s0: int, threads: int) -> int:
        assert s0 == 3
        return int(torch.add(x, c, out=out) is None)

    def relu(x: torch.Tensor, *rest: Any) -> int:
        for out in rest[:-2]:
            out.copy_(torch.relu(x))
        x.relu_()
        return 0

    plan = plan_of(CHAIN)
    x, w, c = torch.randn(3, 8), torch.randn(8, 8), torch.randn(8)
    expected = torch.relu((x + c) @ w.t())
    (out, number, nothing), _ = run(plan, {"add_0": add, "relu_1": relu}, [3, x, w], c0=c)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(x, expected)
    assert (number, nothing) == (24, None)


def test_a_status_becomes_the_exception_that_it_means() -> None:
    x, i = torch.randn(4, 8), torch.zeros(4, dtype=torch.int64)
    plan = plan_of(REGIONS)
    with pytest.raises(RuntimeError, match="on a tensor of 8 elements"):
        run(plan, {"gather_0": lambda *_: 1}, [x, i])
    with pytest.raises(RuntimeError, match='not "a" number'):
        run(plan, {"gather_0": lambda *_: 2}, [x, i])


def test_events_are_recorded_only_when_asked_for() -> None:
    loud = Env(replace(Options(), events=True), ENV.target)
    kernels = {"softmax_0": softmax}
    _, events = run(plan_of(SOFTMAX), kernels, [torch.randn(4, 8)], loud)
    assert events == [("allocate", "buf0"), ("launch", "softmax_0"), ("free", "arg0")]
    assert run(plan_of(SOFTMAX), kernels, [torch.randn(4, 8)])[1] == []


@pytest.mark.parametrize("text", [SOFTMAX, CHAIN, REGIONS])
def test_each_call_stands_below_a_comment_with_its_handle(text: str) -> None:
    plan = plan_of(text)
    module = wrapper_python(plan, ENV)
    ast.parse(module)
    lines = [line.strip() for line in module.splitlines()]
    calls = [line for line in plan.lines if isinstance(line, LaunchLine | ExternLine)]
    places = [lines.index(f"# {c.handle}: {', '.join(o.node for o in c.origins)}") for c in calls]
    assert [c.handle for c in calls] == list(range(1, len(calls) + 1))
    assert places == sorted(places)
    assert all("(" in lines[place + 1] for place in places)


def test_a_size_that_only_a_body_can_write() -> None:
    text = """program inference
  symbol s0 [2, inf]
  made u0 [0, inf]
  input s0 = s0
  define u0
    %0 = index <s0 + 1> : i64 {}
    %1 = constant 2 : i64 {}
    %2 = bitwise_xor %0 %1 : i64 {}
    %3 = lshift %2 %1 : i64 {}
    yield %3
  return (<s0>)
"""
    program = parse_program(text)
    plan = memory(program, ENV)
    assert "u0 = (((s0 + 1) ^ 2) << 2)" in wrapper_python(plan, ENV)


def test_a_region_is_a_function_and_what_a_call_still_reads_stays() -> None:
    def neg(x: torch.Tensor, out: torch.Tensor, s0: int, threads: int) -> int:
        assert s0 == 5
        return int(torch.neg(x, out=out) is None)

    plan = plan_of(CALLS)
    text = wrapper_python(plan, ENV)
    assert "def region_0(s0, arg0):" in text and "control_flow.invoke_subgraph, [f32], partial(region_0, s0)" in text
    assert text.index("relu_(buf1)") < text.index("del buf0")
    x = torch.randn(10)[::2]
    (out,), _ = run(plan, {"neg_0": neg}, [5, x.clone()])
    torch.testing.assert_close(out, (-x).exp().relu())
    torch.testing.assert_close(run_program(parse_program(CALLS), [5, x.clone()])[0], out)


def test_eager_s_call_of_an_operator_changes_nothing() -> None:
    """It stands alone, writes into copies, and draws from a copy of the generator."""
    args = (Token("tensor", "x"), (None, Token("tensor", "i")), Token("tensor", "v"), True)
    schema = str(torch.ops.aten.index_put_.default._schema)
    put = ExternLine("aten.index_put_.default", args, (), (None,), False, (), 1, schema=schema)
    x, i, v = torch.zeros(2, 3), torch.tensor([1, 1]), torch.ones(2, 2)
    text = eager_call(put, ENV)
    assert text == "lambda x, i, v: torch.ops.aten.index_put_.default(x.clone(), [None, i], v, True)"
    assert eval(text, {"torch": torch})(x, i, v).sum() == 4 and x.sum() == 0

    schema = str(torch.ops.aten.bernoulli.out._schema)
    draw = ExternLine("aten.bernoulli.out", (Token("tensor", "x"),), (), ("y",), True, (), 1, schema=schema)
    text, y = eager_call(draw, ENV), torch.full((2, 3), 9.0)
    before = torch.get_rng_state()
    assert eval(text, {"torch": torch})(x, y).sum() == 0
    assert y.sum() == 54 and torch.equal(torch.get_rng_state(), before)
