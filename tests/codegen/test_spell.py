"""The spelling table has a row for every operator, and each spelling is an expression of its arguments.

Takes the vocabulary of ops.py; refuses an operator without a row, a row without an operator, and an unused argument.
"""

from __future__ import annotations

import pytest

from minductor.codegen.operator_spelling import SPELLINGS, spell_cpp, spell_cpp_cast, spell_triton
from minductor.core.dtypes import BOOL, F32, F64, I8, I64, U8, DType
from minductor.ir.program.ops import POINTWISE
from minductor.target import TRITON_LACKS

ELSEWHERE = {"cast", "bitcast", "round_to"}  # they need two dtypes


def test_every_operator_has_a_row_and_every_row_an_operator() -> None:
    assert set(SPELLINGS) | ELSEWHERE == set(POINTWISE)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_uses_each_argument(name: str) -> None:
    row = SPELLINGS[name]
    for text in (row.triton or row.cpp, row.cpp):
        for n in range(POINTWISE[name].arity):
            assert f"{{{n}}}" in text
        assert f"{{{POINTWISE[name].arity}}}" not in text


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (F32, F64, "(double)x"),
        (F32, I8, "md_f32_to_i8(x)"),
        (F64, U8, "md_f64_to_u8(x)"),
        (F32, BOOL, "x != 0"),
        (BOOL, F32, "(float)x"),
        (I64, I8, "(int8_t)x"),
    ],
)
def test_casts_convert_as_eager_does(old: DType, new: DType, text: str) -> None:
    assert spell_cpp_cast("x", old, new) == text


def test_integers_wrap_and_booleans_stay_booleans() -> None:
    assert spell_cpp("mul", I64, "a", "b") == "md_mul_i64(a, b)"
    assert spell_cpp("logical_and", BOOL, "a", "b") == "a & b"
    assert spell_cpp("logical_not", I64, "a") == "a == 0"


def test_float32_is_divided_and_rooted_exactly_in_triton() -> None:
    assert spell_triton("div", F32, "a", "b") == "tl.div_rn(a, b)" and spell_triton("div", F64, "a", "b") == "a / b"
    assert spell_triton("sigmoid", F32, "a") == "1.0 / (1.0 + libdevice.exp(-a))", "two units off at most, as its exp"
    assert spell_triton("sqrt", F32, "a") == "tl.sqrt_rn(a)" and spell_triton("sqrt", F64, "a") == "tl.sqrt(a)"


def test_targets_say_what_triton_has_no_spelling_of() -> None:
    lacks = {name for name in TRITON_LACKS if not name.startswith("atomic_")}
    assert lacks == {name for name in SPELLINGS if not spell_triton(name, F32, *"xyz"[: POINTWISE[name].arity])}


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="no spelling for the operator 'swish'"):
        spell_cpp("swish", F32, "x")
