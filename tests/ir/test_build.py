"""Bodies are built with equal ops shared, axes known, and whole bodies spliced into others."""

import pytest

from minductor.core.dtypes import BF16, F32, I64
from minductor.core.expressions.expr import integer, symbol
from minductor.ir.program.build import Builder, combine, is_standard_combine
from minductor.ir.program.nodes import Check, Load, Masked, Ref, Round, Scan, Store

A, J, K = (symbol(name, "axis", 0, 7) for name in ("i0", "i1", "i2"))
X, Y = Ref("arg0", 0), Ref("arg1", 0)


def test_equal_ops_are_one_and_effects_are_not() -> None:
    b = Builder((A,))
    assert b.load(X, A, F32) == b.load(X, A, F32) != b.load(Ref("arg0", 1), A, F32)
    value = b.constant(0.0, F32)
    assert value != b.constant(-0.0, F32)
    assert b.store(Y, A, value) != b.store(Y, A, value)


def test_axes_follow_indices_and_reduces() -> None:
    b = Builder((A, J))
    x = b.load(X, 8 * A + J, F32)
    row = b.reduce([x], ["i1"], combine("sum", F32))
    back = b.op("sub", x, row)
    store = b.store(Y, A + 0, row)
    assert [b[p].axes for p in (x, row, back, store)] == [("i0", "i1"), ("i0",), ("i0", "i1"), ("i0",)]


def test_a_cast_to_a_small_float_is_a_rounding() -> None:
    b = Builder()
    made = b.cast(b.constant(1, I64), BF16)
    assert b.dtype(made) == F32
    assert b[made].attrs == Round(BF16)


def test_a_checked_index_brings_its_axes_and_its_argument() -> None:
    b = Builder((A, J))
    chosen = b.check(b.load(Y, A, I64), integer(8), wrap=True)
    load = b[b.load(X, 8 * J + chosen, F32)]
    assert load.axes == ("i0", "i1")
    assert isinstance(b[load.args[0]].attrs, Check)


def test_wrong_arity_and_unknown_ops_are_refused() -> None:
    b = Builder()
    one = b.constant(1.0, F32)
    with pytest.raises(ValueError, match="add takes 2"):
        b.op("add", one)
    with pytest.raises(ValueError, match="unknown pointwise operator 'ad'"):
        b.op("ad", one, one)


def producer() -> Builder:
    """buf0[8*i0 + i1] = exp(arg0[8*i0 + i1])."""
    b = Builder((A, J))
    b.store(Ref("buf0", 0), 8 * A + J, b.op("exp", b.load(X, 8 * A + J, F32)))
    return b


def test_splice_replaces_axes_and_drops_effects() -> None:
    b = Builder((K, A))
    where = b.splice(producer().build(), {A: K, J: A}, effects=lambda op: False)
    assert [op.name for op in b.build().ops] == ["load", "exp"]
    assert b[where[0]].attrs == Load(X, 8 * K + A)
    assert where[2] == where[1]


def test_splice_lets_a_load_be_answered() -> None:
    outer = Builder((K, A))

    def answer(b: Builder, load: Load, dtype: object) -> int | None:
        return b.constant(2.0, F32) if load.ref == X else None

    outer.splice(producer().build(), {A: K, J: A}, answer)
    assert [op.name for op in outer.build().ops] == ["constant", "exp", "store"]


def test_splice_of_the_same_axes_shares_what_is_there_and_keeps_what_varies() -> None:
    b = Builder((A, J))
    row = b.reduce([b.load(X, 8 * A + J, F32)], ["i1"], combine("sum", F32))
    b.store(Y, A, row)
    place = b.check(b.cast(row, I64), integer(8), wrap=False)
    b.store(Ref("buf0", 0), 8 * A + J, b.op("mul", b.load(X, place, F32), b.load(Y, J, F32)))
    made, expected = Builder((A, J)), Builder((A, J))
    for builder, mapping in ((made, {}), (expected, {A: A, J: J})):
        builder.load(Y, J, F32)
        builder.splice(b.build(), mapping)
    assert made.build() == expected.build()
    assert len(made) == len(b)


def test_splice_reaches_into_regions() -> None:
    inner = Builder((A,))
    region = inner.build([inner.load(X, A - 1, F32)])
    b = Builder((A,))
    cond = b.op("gt", b.index(A), b.constant(0, I64))
    b.store(Y, A, b.masked(cond, [], region, 0.0, F32))
    moved = Builder((J,))
    moved.splice(b.build(), {A: J})
    attrs = next(op.attrs for op in moved.build().ops if isinstance(op.attrs, Masked))
    assert attrs.body.ops[0].attrs == Load(X, J - 1)


def test_a_reduce_follows_an_axis_that_splits() -> None:
    b = Builder((A,))
    b.store(Y, integer(0), b.reduce([b.load(X, A, F32)], ["i0"], combine("sum", F32)))
    outer = Builder((J, K))
    outer.splice(b.build(), {A: J * 2 + K})
    assert outer.build().ops[1].attrs.axes == ("i1", "i2")  # type: ignore[union-attr]


def test_a_combine_of_another_body_is_not_the_named_one() -> None:
    named = combine("sum", F32)
    assert is_standard_combine(named, F32)
    assert not is_standard_combine(named, I64)


def test_a_scan_turns_round_with_its_axis_and_needs_one_to_run_along() -> None:
    b = Builder((A,))
    b.scan([b.load(X, A, F32)], "i0", combine("sum", F32))
    body = b.build()
    turned = Builder((J,))
    turned.splice(body, {A: 7 - J})
    assert turned[1].attrs == Scan("i1", combine("sum", F32), reverse=True)
    same = Builder((J,))
    same.splice(body, {A: J})
    assert same[1].attrs == Scan("i1", combine("sum", F32))
    with pytest.raises(ValueError, match="cannot run along"):
        Builder((J, K)).splice(body, {A: 2 * J + K})


def test_a_float_symbol_stands_alone() -> None:
    scale, truth = symbol("f0", "real", None, None), symbol("t0", "truth", 0, 1)
    b = Builder((A,))
    assert [b.dtype(b.index(s)).name for s in (scale, truth, A)] == ["f64", "bool", "i64"]
    with pytest.raises(TypeError, match="inside an index expression"):
        b.index(scale * 2)


def test_unrolling_repeats_what_varies_and_joins_before_a_reduce() -> None:
    b = Builder((A, J, K))
    x = b.load(X, 64 * A + 8 * J + K, F32)
    row = b.reduce([x], ["i1", "i2"], combine("max", F32))
    b.store(Y, A, row)
    b.store(Ref("buf0", 0), 64 * A + 8 * J + K, b.op("sub", x, row))
    short = Builder((A, J))
    short.unroll(b.build(), K, 2)
    ops = short.build().ops
    assert [op.name for op in ops] == ["load", "load", "maximum", "reduce", "store", "sub", "sub", "store", "store"]
    assert ops[3].axes == ("i0",)
    assert [str(op.attrs.index) for op in ops if isinstance(op.attrs, Store)] == [
        "i0",
        "64*i0 + 8*i1",
        "64*i0 + 8*i1 + 1",
    ]
