"""A plan's JSON says all of it: read back it is equal, and anything else than such a text is an error."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.dtypes import BF16
from minductor.core.errors import UnreadablePlan
from minductor.core.expressions.expr import integer, lt, symbol
from minductor.ir.plan.plan import AssertLine, DispatchLine, ExternLine, LaunchLine, Plan, SizeOf, SymbolLine
from minductor.ir.plan.plan_json import KINDS, Json, parse_plan, plan_json
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.choices import Choice
from minductor.ir.program.nodes import Body, Constant, Op, Origin, Region, Token
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from tests.ir.programs import ALL

S0, F0 = symbol("s0", "size", 2, 9), symbol("f0", "real", None)


def plan_of(name: str) -> Plan:
    return memory(parse_program(ALL[name]), Env(Options(), by_name("cpu")))


def read_again(plan: Plan) -> Plan:
    return parse_plan(plan_json(plan))


def with_arguments(*arguments: Any) -> Plan:
    return Plan(
        "plan", (), (ExternLine("aten.op", arguments, (("k", arguments),), ("r", None), False, (), 1, (None,)),), ()
    )


@pytest.mark.parametrize("name", ALL)
def test_plans_of_programs_come_back_equal(name: str) -> None:
    plan = plan_of(name)
    again = read_again(plan)
    assert again == replace(plan, kernels=())
    verify_plan(again)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.sampled_from((BF16, S0, S0 * 4 + 1, integer(3), F0, Token("tensor", "buf0"), Region("r0", (S0, integer(2)))))
)


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8))
@settings(max_examples=100, deadline=None)
def test_any_argument_comes_back(argument: Any) -> None:
    plan = with_arguments(argument)
    assert repr(read_again(plan)) == repr(plan)  # tells 1 from True and 0.0 from -0.0, and NaN is itself


def test_lines_that_programs_seldom_have_come_back() -> None:
    launch = LaunchLine("k0", ("a",), (S0,), (Origin("add", "aten.add.Tensor"),), 1)
    body = Body((Op("constant", (), Constant(float("nan")), BF16, ()),), (0,))
    lines = (
        SymbolLine(S0, SizeOf("a", 1, 2, 3)),
        SymbolLine(F0, body),
        AssertLine(lt(S0, 8), "too long"),
        DispatchLine(Choice("how", "bits", ("own", 4), 4), ((launch,), ()), ("a",), (S0,), (), launch, "d", (), 2),
    )
    plan = Plan("plan", (), lines, ())
    assert read_again(plan) == plan


def test_every_line_has_a_name_in_the_text() -> None:
    assert len(KINDS) == len(set(KINDS.values()))


def test_two_symbols_of_one_name_are_told_apart_before_they_are_written() -> None:
    with pytest.raises(ValueError, match="two symbols are called s0"):
        plan_json(with_arguments(S0, symbol("s0", "size", 0)))


def altered(change: dict[str, Json]) -> str:
    return json.dumps({**json.loads(plan_json(plan_of("chain"))), **change})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "JSONDecodeError"),
        ("[]", "no schema"),
        ("{}", "no schema"),
        ("[" * 100_000, "RecursionError"),
        (altered({"schema": 1}), "its schema is 1, and this minductor reads 3"),
        (altered({"symbols": {"s0": ["size", 2]}}), "s0 is no symbol"),
        (altered({"symbols": {"s0": ["colour", 2, 3]}}), "s0 is no symbol"),
        (altered({"symbols": {}}), "s0"),
        (altered({"plan": {"is": "FreeLine", "names": []}}), "no schema, symbols and plan"),
        (altered({"plan": {"is": "Plan", "name": "x"}}), "the fields of Plan are"),
        (plan_json(plan_of("chain")).replace('"is": "LaunchLine"', '"is": "Lunch"'), "Lunch"),
        (plan_json(plan_of("chain")).replace('"handle": 1', '"handle": true'), "handle of LaunchLine cannot be True"),
        (plan_json(plan_of("chain")).replace('{"dtype": "f32"}', '{"dtype": "f33"}'), "f33"),
        (plan_json(plan_of("chain")).replace('{"dtype": "f32"}', '{"type": "f32"}'), "nothing in a plan is written"),
        (plan_json(plan_of("chain")).replace('"expr": "s0"', '"expr": "s0 +"'), "expected an index"),
    ],
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(UnreadablePlan, match="MD080") as raised:
        parse_plan(text)
    assert why in str(raised.value)
