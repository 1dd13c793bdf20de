"""Sizes and guards across the border to SymPy: both directions evaluate to the same number."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, ModularIndexing, PowByNatural

from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Symbol, eq, evaluate, evaluate_rel, le, lt, negate, symbol
from minductor.frontend.capture.symbolic_sizes import SizeReader, guards_hold, relation_to_sympy, to_sympy
from tests.frontend.tracing import compiled, randn

S, T = sympy.Symbol("a", integer=True, positive=True), sympy.Symbol("b", integer=True, positive=True)


class Reader(SizeReader):
    """Reads plain SymPy symbols, without a ShapeEnv behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.shape_env = SimpleNamespace(guards=(), var_to_range={})

    def _symbol(self, given: sympy.Symbol) -> Symbol:
        return self._symbols.setdefault(given, symbol(f"s{len(self._symbols)}", "size", 1))


def trees() -> st.SearchStrategy[sympy.Expr]:
    leaves = st.one_of(st.sampled_from([S, T]), st.integers(1, 9).map(sympy.Integer))

    def grow(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
        pairs = st.tuples(inner, inner)
        makers = [
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] * p[1]),
            pairs.map(lambda p: Max(*p)),
            pairs.map(lambda p: Min(*p)),
            st.tuples(inner, st.integers(1, 7)).map(lambda p: FloorDiv(p[0], p[1])),
            st.tuples(inner, st.integers(1, 7)).map(lambda p: Mod(p[0], p[1])),
            st.tuples(inner, st.integers(1, 5), st.integers(1, 5)).map(lambda p: ModularIndexing(*p)),
            inner.map(lambda e: PowByNatural(e, 2)),
        ]
        return st.one_of(makers)

    return st.recursive(leaves, grow, max_leaves=6)


@given(trees(), st.integers(1, 40), st.integers(1, 40))
def test_both_directions_keep_the_value(tree: sympy.Expr, a: int, b: int) -> None:
    reader = Reader()
    mine = reader.expr(sympy.sympify(tree))
    values = {s.name: {"a": a, "b": b}[theirs.name] for s, theirs in reader.torch_symbols().items()}
    expected = int(sympy.sympify(tree).subs({S: a, T: b}))
    assert evaluate(mine, values) == expected
    assert int(sympy.sympify(to_sympy(mine, reader.torch_symbols())).subs({S: a, T: b})) == expected


@given(st.integers(1, 9), st.integers(1, 9))
def test_relations_keep_their_truth(a: int, b: int) -> None:
    s, t = symbol("s0", "size", 1), symbol("s1", "size", 1)
    for rel in (lt(s, t + 2), le(s * 2, t), eq(s, t), negate(eq(s, t)), eq(s % 3, 0)):
        theirs = relation_to_sympy(rel, {s: S, t: T})
        assert bool(theirs.subs({S: a, T: b})) == evaluate_rel(rel, {"s0": a, "s1": b})


def test_functions_that_the_algebra_does_not_have_are_refused() -> None:
    with pytest.raises(UnsupportedInput, match="of the form"):
        Reader().expr(sympy.log(S))


def test_a_guard_is_told_to_torch() -> None:
    (graph,) = compiled(lambda x: x + 1, randn(6, 4), dynamic=True).graphs
    assert guards_hold(["s0 <= 100", "s0 != s1"], graph)
    assert not guards_hold(["s0 <= 100", "s0 < 3"], graph)
    assert any("100" in str(g.expr) for g in graph.live.shape_env.guards)
