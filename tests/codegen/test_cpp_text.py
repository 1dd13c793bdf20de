"""Literals and index expressions mean in C++ what they mean in the IR.

Takes random expressions and numbers; evaluates the C++ text with C's own division and precedence, in Python; refuses a
difference.
"""

from __future__ import annotations

import math
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.codegen.cpp.cpp_text import index_text, literal
from minductor.core.dtypes import BOOL, F32, F64, I32, I64
from minductor.core.expressions.expr import Expr, evaluate, floordiv, integer, maximum, minimum, mod, symbol

I0 = symbol("i0", "axis", 0, 40)
I1 = symbol("i1", "axis", 0, 6)
S = symbol("s0", "size", 1)
LEAVES = st.sampled_from([I0, I1, S]) | st.integers(-5, 70).map(integer)


def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: minimum(*p)),
        pair.map(lambda p: maximum(*p)),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: floordiv(p[0], p[1])),
        st.tuples(inner, st.integers(1, 9)).map(lambda p: mod(p[0], p[1])),
        inner.map(lambda e: floordiv(e, S)),
    )


def as_c(text: str, values: dict[str, int]) -> int:
    """C truncates where Python rounds down; the text must only divide where both agree."""

    class Int(int):
        def __floordiv__(self, other: int) -> Int:
            return Int(math.trunc(int(self) / int(other)))

        def __mod__(self, other: int) -> Int:
            return Int(math.fmod(int(self), int(other)))

        def __add__(self, other: int) -> Int:
            return Int(int(self) + int(other))

        def __sub__(self, other: int) -> Int:
            return Int(int(self) - int(other))

        def __mul__(self, other: int) -> Int:
            return Int(int(self) * int(other))

        def __neg__(self) -> Int:
            return Int(-int(self))

        __radd__ = __add__

    python = re.sub(r"\b(\d+)\b", r"Int(\1)", text.replace(" / ", " // "))
    names = {name: Int(value) for name, value in values.items()}
    helpers = {
        "md_index_div": lambda a, b: Int(int(a) // int(b)),
        "md_index_mod": lambda a, b: Int(int(a) % int(b)),
        "md_index_min": min,
        "md_index_max": max,
    }
    return int(eval(python, {"Int": Int, **helpers, **names}))


@given(st.recursive(LEAVES, grow, max_leaves=8), st.integers(0, 40), st.integers(0, 6), st.integers(1, 9))
def test_an_index_expression_means_the_same(expr: Expr, i: int, j: int, s: int) -> None:
    values = {"i0": i, "i1": j, "s0": s}
    assert as_c(index_text(expr), values) == evaluate(expr, values)


@given(st.floats(width=32))
def test_a_float_literal_is_the_shortest_that_reads_back(value: float) -> None:
    text = literal(value, F32)
    if math.isnan(value):
        assert text == "MD_NAN"
    elif math.isinf(value):
        assert text == ("MD_INF" if value > 0 else "-MD_INF")
    else:
        read = struct.unpack("<f", struct.pack("<f", float(text.removesuffix("f"))))[0]
        assert (read, math.copysign(1, read)) == (value, math.copysign(1, value))
        assert text.endswith("f") and ("." in text or "e" in text)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1e39, F32, "MD_INF"),
        (0.1, F64, "0.1"),
        (-(1 << 63), I64, "(-9223372036854775807 - 1)"),
        (7, I32, "7"),
        (True, BOOL, "true"),
    ],
)
def test_other_literals(value: float, dtype: object, text: str) -> None:
    assert literal(value, dtype) == text  # type: ignore[arg-type]
