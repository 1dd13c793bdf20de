"""The work of a rule is undone as a whole where the rule cannot be used, and the operator is called instead."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import fields

import pytest
import torch

from minductor.core.dtypes import F32
from minductor.core.errors import MinductorWarning
from minductor.core.expressions.expr import integer
from minductor.driver import Compiler
from minductor.frontend.capture.captured_graph import Graph, Node
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.lowering_state import LoweringState
from minductor.frontend.lowering_context.rule_transaction import transact
from minductor.frontend.lowering_context.values import Value
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.target import Env, by_name
from tests.frontend.tracing import lowered, randn

GPU = Env(Options(), by_name("sm_90"))


def changed(value: object) -> object:
    """The value after a change in place, or another value where it has none."""
    match value:
        case list():
            value.append("left behind")
        case dict():
            value["left behind"] = "left behind"
        case set():
            value.add("left behind")
        case tuple():
            return (*value, "left behind")
        case int():
            return value + 1
        case _:
            return "left behind"
    return value


def context() -> Lowering:
    def refuse(graph: Graph, env: Env) -> Program:
        raise AssertionError(graph, env)

    graph = Graph("inference", (), (), (Node("y", "aten.zeros.default", ((),), (), None),), ())
    ctx = Lowering(graph, GPU, refuse, frozenset())
    ctx.begin(graph.nodes[0])
    ctx.buffer(F32, (integer(2),))
    ctx.add_note("before the rule")
    return ctx


@pytest.mark.parametrize("raised", [None, ZeroDivisionError])
def test_nothing_that_a_rule_changed_is_left_behind(raised: type[Exception] | None) -> None:
    ctx = context()
    before = deepcopy(ctx.state)
    assert before.nodes == [] and before.notes and before.buffers

    def rule() -> Value:
        for field in fields(LoweringState):
            setattr(ctx.state, field.name, changed(getattr(ctx.state, field.name)))
            assert getattr(ctx.state, field.name) != getattr(before, field.name)
        if raised:
            raise raised
        return NotImplemented

    with pytest.raises(raised) if raised else nullcontext():
        assert transact(ctx, rule) is NotImplemented
    assert ctx.state == before


def test_all_that_a_rule_changed_is_kept() -> None:
    ctx = context()

    def rule() -> Value:
        for field in fields(LoweringState):
            setattr(ctx.state, field.name, changed(getattr(ctx.state, field.name)))
        return 3

    assert transact(ctx, rule) == 3
    for field in fields(LoweringState):
        assert "left behind" in str(value := getattr(ctx.state, field.name)) or value == 1 + (
            field.name == "local_count"
        )


def test_what_a_rule_may_change_is_in_the_state() -> None:
    """An attribute of the context that is no part of the state would survive a rule that is undone."""
    fixed = {
        *("graph", "env", "lower_subgraph", "view_operators", "hints", "is_eager_precise", "last_uses", "definitions"),
        *("_metas", "_wanted", "_has_one_device"),
    }
    between_rules = {"values", "names_in", "node", "origin"}
    of_steps = {"inputs", "outputs", "distinct_outputs"}  # of `lower`, before and behind the rules
    assert set(vars(context())) == {"state", *fixed, *between_rules, *of_steps}


def test_numbers_of_kernels_and_buffers_are_given_back() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.special.zeta(x.abs() + 1, x.abs()) * 2

    program = lowered(fn, randn(4), env=GPU).program
    names = [node.name for node in program.nodes if isinstance(node, Kernel)]
    assert names == [f"k{number}" for number in range(len(names))]
    assert [b.name for b in program.buffers if b.kind == "local"] == [
        f"buf{n}" for n in range(len(program.buffers) - 1)
    ]


def test_a_function_that_triton_lacks_is_called() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.special.zeta(x.abs() + 1, x.abs()) * 2

    made = lowered(fn, randn(4), env=GPU)
    assert made.externs == ["aten.special_zeta.default"]
    assert [kernel.origins[0].op for kernel in made.kernels][-1] == "aten.mul.Tensor"
    assert any("no zeta of f32" in str(note) for note in made.program.notes)
    assert lowered(fn, randn(4)).externs == []


@pytest.mark.parametrize(
    ("dtype", "how", "count"),
    [
        (torch.float32, "sum", 0),
        (torch.int8, "sum", 1),
        (torch.float32, "prod", 1),
        (torch.float32, "amax", 1),
        (torch.int32, "amin", 0),
    ],
)
def test_atomics_that_triton_lacks_are_calls(dtype: torch.dtype, how: str, count: int) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, i, x, how)

    given = torch.ones(4, 5, dtype=dtype), torch.zeros(4, 5, dtype=torch.int64)
    assert len(lowered(fn, *given, env=GPU).externs) == count
    assert lowered(fn, *given).externs == []


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, n: x.masked_fill(x > 0, n),
        lambda x, n: x.masked_fill(x > 0, torch.tensor(n)),
        lambda x, n: x.index_fill(0, torch.tensor([0]), n),
        lambda x, n: x.scatter(0, torch.tensor([0]), n),
        lambda x, n: x.clamp(max=n),
        lambda x, n: torch.add(x, x, alpha=n),
        lambda x, n: torch.where(x > 0, x, n),
        lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
        lambda x, n: torch._foreach_clamp_max([x], n)[0],  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]  optimizers call them
    ],
)
def test_a_number_that_is_no_element_is_left_to_eager(fn: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    x = torch.tensor([1, -2, 3], dtype=torch.int8)
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.compile(lambda x: fn(x, 300), backend="minductor")(x)


def test_numbers_that_act_as_tensors_are_taken() -> None:
    assert lowered(lambda x: (x + 300, x < 300, x * -1e9), torch.tensor([1, -2, 3], dtype=torch.int8)).externs == []
    assert lowered(lambda x: (x.clamp(0, 100), x.masked_fill(x > 0, 5)), torch.ones(3, dtype=torch.int8)).externs == []


def test_a_call_may_give_a_list_of_one() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch._foreach_add([x], 2)[0] * 2  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]  optimizers call them

    x = torch.tensor([1j, 2.0])
    assert lowered(fn, x).externs
    assert torch.equal(torch.compile(fn, backend="minductor")(x), fn(x))


@pytest.mark.parametrize("name", ["hardswish", "celu", "glu", "logsigmoid"])
def test_what_eager_computes_of_floats_only_is_called(name: str) -> None:
    fn, given = getattr(torch.nn.functional, name), torch.arange(4)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.compile(fn, backend=Compiler())(given)
    assert not lowered(fn, given.float()).externs


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("argmax", torch.tensor([True, False])),
        ("argmin", torch.tensor([True, False])),
        ("relu", torch.tensor([True, False])),
        ("bitwise_not", torch.tensor([1.5])),
    ],
)
def test_what_eager_computes_of_other_kinds_only_raises(name: str, given: torch.Tensor) -> None:
    fn = getattr(torch, name)
    with pytest.raises(RuntimeError) as expected:
        fn(given)
    with pytest.raises(type(expected.value)):
        torch.compile(fn, backend=Compiler())(given)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_left_shift", "fmod", "remainder"])
def test_two_operands_that_eager_refuses_raise(name: str) -> None:
    fn, given = getattr(torch, name), torch.tensor([2.5] if name.startswith("bitwise") else [True])
    with pytest.raises(NotImplementedError, match="not implemented for"):
        torch.compile(fn, backend=Compiler())(given, given)
    assert not lowered(fn, given.int(), given.int()).externs


@pytest.mark.parametrize("fn", [torch.softmax, torch.log_softmax])
def test_a_softmax_of_integers_raises(fn: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.compile(fn, backend=Compiler())(torch.arange(4), 0)


@pytest.mark.parametrize("fn", [torch.nn.functional.adaptive_max_pool2d, torch.nn.functional.unfold])
def test_windows_on_integers_raise(fn: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    given = torch.arange(16).view(1, 1, 4, 4)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        torch.compile(fn, backend=Compiler())(given, 2)
    assert not lowered(fn, given.float(), 2).externs


def test_a_variance_of_integers_raises() -> None:
    with pytest.raises(RuntimeError, match="only support floating point"):
        torch.compile(torch.var, backend=Compiler())(torch.arange(4))


def test_a_sum_of_slices_of_another_dtype_raises() -> None:
    x, places = torch.ones(4, 3), torch.tensor([0, 2])
    with pytest.raises(RuntimeError, match="same scalar type"):
        torch.compile(lambda x: x.index_add(0, places, x[:2].double()), backend=Compiler())(x)


def test_of_a_dimension_that_is_not_there_eager_tells() -> None:
    fn = torch.compile(lambda x: x.softmax(2), backend=Compiler())
    with pytest.warns(MinductorWarning, match="dimension 2 of 2"), pytest.raises(IndexError, match="out of range"):
        fn(torch.ones(2, 3))
