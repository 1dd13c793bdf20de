"""Text parses back, and malformed text is refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.expressions.expr import all_of, any_of, compare, lt, negate
from minductor.core.expressions.expr_parser import Tokens, parse_expr, parse_rel, read_expr
from tests.core.strategies import RECIPES, SYMBOLS, C, Recipe, V, cooked


@settings(max_examples=400, deadline=None)
@given(RECIPES)
def test_expressions_parse_back(recipe: Recipe) -> None:
    expr = cooked(recipe)
    if expr is not None:
        assert parse_expr(str(expr), SYMBOLS) is expr


@settings(max_examples=200, deadline=None)
@given(RECIPES, RECIPES, st.sampled_from(["==", "!=", "<", "<="]), st.integers(0, 3))
def test_relations_parse_back(left: Recipe, right: Recipe, op: str, shape: int) -> None:
    a, b = cooked(left), cooked(right)
    if a is None or b is None:
        return
    rel = compare(op, a, b)
    other = lt(V, C)
    made = [rel, all_of(rel, other), any_of(negate(all_of(rel, other)), lt(C, V)), all_of(any_of(rel, other), other)]
    assert parse_rel(str(made[shape]), SYMBOLS) is made[shape]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("64*", "column 4: expected an index expression, found the end"),
        ("i + q", "column 5: expected an index expression, found 'q'"),
        ("(i + 1", "expected ')'"),
        ("i j", "column 3: expected the end"),
        ("i $ j", "expected the end"),
        ("f(i)", "expected min, max or identity"),
        ("identity(i, k)", "one argument"),
        ("i § j", "cannot read"),
        ("", "found the end"),
    ],
)
def test_refuses_malformed_expressions(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_expr(text, SYMBOLS)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["i", "i < ", "(i < 1", "i < 1 or", "i < 1 < 2", "not"])
def test_refuses_malformed_relations(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rel(text, SYMBOLS)


def test_greater_is_less_turned_round() -> None:
    assert parse_rel("i > j", SYMBOLS) is parse_rel("j < i", SYMBOLS)
    assert parse_rel("(i + 1)*2 >= (j)", SYMBOLS) is parse_rel("j <= 2*i + 2", SYMBOLS)


def test_tokens_serve_a_larger_grammar() -> None:
    tokens = Tokens('%0 = load "x\\"y"[64*i + 1] -1.5e-3\n-> 2')
    assert tokens.accept("%") and tokens.take("number") == "0" and not tokens.accept("==")
    tokens.expect("=")
    assert tokens.take("name") == "load" and tokens.take("string") == '"x\\"y"'
    tokens.expect("[")
    assert str(read_expr(tokens, SYMBOLS)) == "64*i + 1"
    tokens.expect("]")
    assert tokens.take("float") == "-1.5e-3"
    with pytest.raises(ValueError, match="line 2, column 1: expected '<-'"):
        tokens.expect("<-")
    tokens.expect("->")
    start = tokens.position
    assert tokens.take("number") == "2" and tokens.is_done
    tokens.rewind(start)
    assert not tokens.is_done
