"""Graphs of torch.fx with bound kernels: what their code says, what survives, and what they refuse."""

from __future__ import annotations

import copy
import gc
import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

from minductor.codegen.triton.triton_kernels import triton
from minductor.codegen.wrapper.wrapper_fx import wrapper_fx
from minductor.core.errors import BadOptionValue, TargetElsewhere, WrongInput
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.runtime.launch.fx import Native, check, check_range, graph_module, launch
from minductor.runtime.launch.fx_triton import Kernel, Triton
from minductor.target import Env, by_name
from tests.ir.programs import CALLS, CHAIN, REGIONS, SOFTMAX
from tests.rows import schedule

ENV = Env(Options(), by_name("cpu"))


def text_of(program: str, env: Env = ENV) -> str:
    return wrapper_fx(memory(parse_program(program), env), env)


def native(**kernels: Callable[..., int]) -> Native:
    """Python functions for kernels; no other test has these."""
    return Native(kernels.__getitem__, f"{id(kernels):x}")


def softmax(x: torch.Tensor, out: torch.Tensor, threads: int) -> int:
    assert threads == torch.get_num_threads()
    torch.softmax(x, 1, out=out)
    return 0


def chain() -> tuple[fx.GraphModule, torch.Tensor]:
    def add(x: torch.Tensor, c: torch.Tensor, out: torch.Tensor, s0: int, threads: int) -> int:
        return int(torch.add(x, c, out=out) is None)

    def relu(x: torch.Tensor, *rest: Any) -> int:
        for out in rest[:-2]:
            out.copy_(torch.relu(x))
        x.relu_()
        return 0

    c = torch.randn(8)
    return graph_module(text_of(CHAIN), native(add_0=add, relu_1=relu), {"c0": c}), c


def test_a_graph_is_one_that_torch_takes() -> None:
    module, c = chain()
    module.graph.lint()
    x, w = torch.randn(3, 8), torch.randn(8, 8)
    expected = torch.relu((x + c) @ w.t())
    for run in (module, copy.deepcopy(module), fx.Interpreter(module).run):
        given = x.clone()
        out, number, nothing = run(3, given, w)
        torch.testing.assert_close((out, given), (expected, expected))
        assert (number, nothing) == (24, None)


def test_calls_stand_below_their_comments_and_values_are_dropped() -> None:
    module, _ = chain()
    lines = [line.strip() for line in module.code.splitlines()]
    assert "torch.ops.minductor.launch" in lines[lines.index("# 1: add") + 1]
    assert "mm.out" in lines[lines.index("# 2: mm") + 1]
    assert copy.deepcopy(module).code == module.code
    assert module.code.count("= None") > 2
    (mm,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.mm.out)
    assert mm.meta["minductor"] == {"handle": 2, "origins": ("mm",)}


def test_no_launch_is_dead_code() -> None:
    module, _ = chain()
    before = module.code
    module.graph.eliminate_dead_code()
    module.recompile()
    assert module.code == before
    (node, _) = module.graph.find_nodes(op="call_function", target=torch.ops.minductor.launch.default)
    assert [len(tensors) for tensors in node.args[1:3]] == [2, 1]  # what is read, what is written


def test_a_boxed_call_lets_go_of_its_arguments() -> None:
    def add(x: torch.Tensor, c: torch.Tensor, out: torch.Tensor, s0: int, threads: int) -> int:
        return int(torch.add(x, c, out=out) is None)

    def relu(*given: Any) -> int:
        gc.collect()
        assert gone() is None, "the weight is of no use after the product"
        return 0

    call = launch(text_of(CHAIN), native(add_0=add, relu_1=relu), {"c0": torch.randn(8)})
    args: list[Any] = [3, torch.randn(3, 8), torch.randn(8, 8)]
    gone = weakref.ref(args[2])
    assert len(call(args)) == 3 and args == []


def test_events_are_told_only_when_asked_for() -> None:
    events: list[tuple[str, str]] = []
    x = torch.randn(4, 8)
    (out,) = launch(text_of(SOFTMAX), native(softmax_0=softmax), {}, events=events)([x])
    assert events == [("allocate", "buf0"), ("launch", "softmax_0"), ("free", "arg0")]
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_memory_that_is_watched_is_refused() -> None:
    with pytest.raises(BadOptionValue, match="verify_memory"):
        text_of(SOFTMAX, Env(Options(verify_memory="assert"), ENV.target))


def test_a_hook_sees_the_graph_and_is_called_instead() -> None:
    def hook(module: fx.GraphModule) -> Callable[..., Any]:
        return lambda *args: [result + 1 for result in module(*args)]

    x = torch.randn(4, 8)
    (out,) = launch(text_of(SOFTMAX), native(softmax_0=softmax), {}, None, hook)([x])
    torch.testing.assert_close(out, torch.softmax(x, 1) + 1)


def test_a_status_becomes_the_exception_that_it_means() -> None:
    x, i = torch.randn(4, 8), torch.zeros(4, dtype=torch.int64)
    for status, message in ((1, "on a tensor of 8 elements"), (2, 'not "a" number')):
        module = graph_module(text_of(REGIONS), native(gather_0=lambda *_, status=status: status), {})
        with pytest.raises(RuntimeError, match=message):
            module(x, i)


def test_a_region_that_python_calls_is_given_its_sizes() -> None:
    def neg(x: torch.Tensor, out: torch.Tensor, s0: int, threads: int) -> int:
        assert s0 == 5
        return int(torch.neg(x, out=out) is None)

    module = graph_module(text_of(CALLS), native(neg_0=neg), {})
    x = torch.randn(10)[::2].clone()
    torch.testing.assert_close(module(5, x), ((-x).exp().relu(),))


def test_an_assertion_that_fails_is_a_runtime_error() -> None:
    text = """program inference
  symbol s0 [0, inf]
  input s0 = s0
  require "more than three"
    %0 = index <s0> : i64 {}
    %1 = constant 3 : i64 {}
    %2 = gt %0 %1 : bool {}
    yield %2
  return (<s0>)
"""
    module = graph_module(text_of(text), native(), {})
    assert module(4) == (4,)
    with pytest.raises(RuntimeError, match="more than three"):
        module(3)


def test_what_a_graph_may_call_is_a_short_list() -> None:
    text = text_of(SOFTMAX).replace("torch.empty_strided", "os.getpid")
    with pytest.raises(ValueError, match=r"a graph that calls os\.getpid"):
        graph_module(text, native(), {})


GPU = Env(Options(), by_name("sm_90"))


def test_kernels_of_triton_are_launched_as_a_users_own() -> None:
    plan = memory(schedule(parse_program(CHAIN.replace(" cpu", " cuda:0")), GPU), GPU)
    module_unit, launches = triton(plan, GPU)
    kernels = Triton(module_unit.text, launches.text, None, "sm_90")
    module = graph_module(wrapper_fx(plan, GPU), kernels, {"c0": torch.randn(8)})
    module.graph.lint()
    first, last = module.graph.find_nodes(op="call_function", target=triton_kernel_wrapper_mutation)
    kwargs: Any = first.kwargs
    ((count, *ones),) = kwargs["grid"]
    assert count.target is operator.floordiv and ones == [1, 1] and not kwargs["tma_descriptor_metadata"]
    assert list(kwargs["kwargs"]) == ["in0", "in1", "out2", "s0"] and kwargs["kernel_idx"] != last.kwargs["kernel_idx"]
    assert kernel_side_table.get_constant_args(kwargs["constant_args_idx"]).keys() >= {"XBLOCK", "num_warps"}
    kernel: Any = kernel_side_table.get_kernel(kwargs["kernel_idx"])
    assert isinstance(kernel, Kernel) and kernel.arg_names[:4] == ("in0", "in1", "out2", "s0")
    again = graph_module(wrapper_fx(plan, GPU), kernels, {"c0": torch.randn(8)})
    assert again.code == module.code  # places are not counted
    with pytest.raises(TargetElsewhere):
        kernel[(1, 1, 1)](torch.randn(3, 8), torch.randn(8), torch.randn(3, 8), 3, 64)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (3, "it is a int"),
        (torch.ones(2, 3, dtype=torch.float64), "dtype is torch.float64"),
        (torch.ones(2, 3, device="meta"), "device is meta"),
        (torch.ones(3, 3), r"size is \(3, 3\)"),
        (torch.ones(2, 3, requires_grad=True), "it requires a gradient"),
        (torch.ones(3, 2).t(), r"strides are \(1, 2\)"),
    ],
)
def test_an_input_that_kernels_would_misread_is_refused(value: Any, why: str) -> None:
    about = ((2, 3), (3, 1), torch.float32, torch.device("cpu"))
    check("x", torch.ones(2, 3), *about)
    with pytest.raises(WrongInput, match=why):
        check("x", value, *about)


def test_a_stride_that_nobody_walks_may_be_any() -> None:
    check("x", torch.ones(4, 1).t(), (1, 4), (9, 1), torch.float32, torch.device("cpu"))
    check_range("s0", 4, 2, None)
    with pytest.raises(WrongInput, match="it is 1, and 2 to any"):
        check_range("s0", 1, 2, None)
