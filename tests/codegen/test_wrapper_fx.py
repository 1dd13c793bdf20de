"""The wrapper for torch.fx as data: a node for each line, numbers once, graphs with signatures of their own."""

from __future__ import annotations

import operator
from dataclasses import replace

import pytest
import torch

from minductor.codegen.wrapper.wrapper_fx import wrapper_fx
from minductor.codegen.wrapper.wrapper_fx_numbers import Nodes
from minductor.core.expressions.expr import Expr, evaluate, floordiv, integer, maximum, minimum, mod, symbol
from minductor.ir.artefact.fx_graph import LAUNCH, FxGraph, FxNode, Result, parse_graph
from minductor.ir.plan.plan import AllocateLine, ExternLine, LaunchLine, Plan, ReuseLine, ViewLine
from minductor.ir.program.nodes import Body, Kernel
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from tests.ir.programs import ALL, CALLS, CHAIN, NUMBERS, SOFTMAX

ENV = Env(Options(), by_name("cpu"))


def graph_of(text: str) -> FxGraph:
    return parse_graph(wrapper_fx(memory(parse_program(text), ENV), ENV))


def calls(graph: FxGraph) -> list[FxNode]:
    return [node for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("text", ALL.values(), ids=ALL)
def test_a_node_uses_what_stands_before_it(text: str) -> None:
    def hold(graph: FxGraph) -> None:
        known: set[str] = set()
        for node in graph.nodes:
            used = [value.name for value in leaves((node.args, tuple(v for _, v in node.kwargs)))]
            assert known.issuperset(used) and node.name not in known
            known.add(node.name)
        for inner in graph.graphs:
            hold(inner)

    hold(graph_of(text))


def leaves(value: object) -> list[Result]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, Result) else []


def test_each_call_has_its_handle_and_origins() -> None:
    plan = memory(parse_program(CHAIN), ENV)
    wanted = [
        (c.handle, tuple(o.node for o in c.origins)) for c in plan.lines if isinstance(c, LaunchLine | ExternLine)
    ]
    found = [(node.handle, node.origins) for node in graph_of(CHAIN).nodes if node.handle is not None]
    assert found == wanted


def test_a_launch_names_what_it_writes() -> None:
    (kernel,) = graph_of(SOFTMAX).kernels
    assert (kernel.symbol, kernel.written) == ("softmax_0", (1,))
    (launch,) = [node for node in calls(graph_of(SOFTMAX)) if node.target == LAUNCH]
    assert launch.args == ("softmax_0", (Result("arg0"), Result("buf0")), ())


def window(offset: int, of: str) -> FxGraph:
    """A window on an input, or on a buffer."""
    plan = memory(parse_program(SOFTMAX), ENV)
    (made,) = [line for line in plan.lines if isinstance(line, AllocateLine)]
    view = ViewLine("view", of, made.dtype, made.size[:1], made.stride[:1], integer(offset))
    return parse_graph(wrapper_fx(replace(plan, lines=(*plan.lines[:-1], view, plan.lines[-1])), ENV))


@pytest.mark.parametrize(
    ("offset", "of", "targets"),
    [
        (0, "arg0", ["as_strided"]),
        (3, "buf0", ["as_strided"]),
        (3, "arg0", ["default", "add", "as_strided"]),
    ],
)
def test_a_window_counts_from_the_tensors_own_start(offset: int, of: str, targets: list[str]) -> None:
    nodes = calls(window(offset, of))[2:]
    assert [node.target.rpartition(".")[2] for node in nodes] == targets
    assert len(nodes[-1].args) == (3 if offset == 0 else 4)


def test_memory_that_is_taken_over_is_a_window_only_if_the_layout_is_another() -> None:
    plan = memory(parse_program(SOFTMAX), ENV)
    (made,) = [line for line in plan.lines if isinstance(line, AllocateLine)]

    def taken(plan: Plan, reuse: ReuseLine) -> list[str]:
        whole = parse_graph(wrapper_fx(replace(plan, lines=(*plan.lines[:-1], reuse, plan.lines[-1])), ENV))
        return [node.target for node in calls(whole)][2:]

    same = ReuseLine("next", "buf0", made.dtype, made.size, made.stride)
    assert taken(plan, same) == []
    assert taken(plan, replace(same, size=made.size[::-1], stride=made.stride[::-1])) == ["torch.as_strided"]


def test_a_region_that_torch_does_not_know_is_called_in_python_with_its_sizes() -> None:
    graph = graph_of(CALLS)
    assert [node.op for node in graph.nodes[:3]] == ["placeholder", "placeholder", "get_attr"]
    targets = [node.target for node in calls(graph)]
    assert targets[:2] == ["functools.partial", "minductor.runtime.launch.control_flow.invoke_subgraph"]
    assert "minductor.runtime.launch.result_checks.separated" in targets
    (inner,) = graph.graphs
    assert [node.name for node in inner.nodes if node.op == "placeholder"] == ["s0", "arg0"]


def test_numbers_are_computed_once() -> None:
    targets = [node.target for node in calls(graph_of(NUMBERS))]
    assert targets.count("torch.ops.aten._assert_scalar.default") == 1


S = symbol("s0", "size", 0)
T = symbol("s1", "size", 0)


@pytest.mark.parametrize(
    "expr", [S * 8 + 1, 3 - S, S * T * 2 - T, floordiv(S + 7, 8), mod(S, 3), minimum(S, T), maximum(S, T, 4) + 1, S - T]
)
def test_a_chain_of_nodes_computes_the_number(expr: Expr) -> None:
    modules = {"operator": operator, "torch": torch}
    nodes = Nodes()
    nodes.values.update(s0=Result("s0"), s1=Result("s1"))
    result = nodes.number(expr)
    assert nodes.number(expr) == result
    for sizes in ({"s0": 0, "s1": 5}, {"s0": 17, "s1": 2}):
        known: dict[str, int] = dict(sizes)
        for node in nodes.made:
            module, _, name = node.target.rpartition(".")
            args = [known[arg.name] if isinstance(arg, Result) else arg for arg in node.args]
            known[node.name] = getattr(modules[module], name)(*args)
        assert isinstance(result, Result) and known[result.name] == evaluate(expr, sizes)


def test_a_body_that_is_no_number_is_refused() -> None:
    (kernel,) = parse_program(SOFTMAX).nodes
    assert isinstance(kernel, Kernel)
    body = Body(kernel.body.ops, (0,))
    with pytest.raises(ValueError, match="load is no operator on numbers"):
        Nodes().scalar(body)
