"""Text of programs: what is printed reads back as the same program, and malformed text says where."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.dtypes import BOOL, F32, I64, by_name
from minductor.core.expressions.expr import integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Axis, Constant, FusionRefusal, Kernel, MergedKernel, NodeNote, Origin, Ref, Token
from minductor.ir.program.parser import parse_kernel, parse_program
from minductor.ir.program.printer import print_argument, print_kernel, print_program
from tests.ir.programs import ALL, SOFTMAX


@pytest.mark.parametrize("name", ALL)
def test_text_reads_back(name: str) -> None:
    program = parse_program(ALL[name])
    assert print_program(program) == ALL[name]
    assert parse_program(print_program(program)) == program


def test_notes_are_printed_and_not_compared() -> None:
    program = parse_program(ALL["chain"])
    assert program.notes == (
        NodeNote("lower", "mm", "aten.mm.default: a matrix product"),
        FusionRefusal("fuse", "k0", "k1", "a product stands between"),
        MergedKernel("fuse", "k2", "k1"),
    )
    assert [str(note) for note in program.notes] == [
        "mm: aten.mm.default: a matrix product",
        "k0 and k1 stay apart: a product stands between",
        "k2 became part of k1",
    ]
    assert program == parse_program("\n".join(t for t in ALL["chain"].splitlines() if "note" not in t))


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("exp %2", "exp %2 }", "line 8"),
        ("sub %0", "sub 0", "line 7"),
        ("i1] : f32", "i7] : f32", "line 5"),
        ("%4 = reduce", "%5 = reduce", "line 9"),
        ("return", "give", "line 12"),
    ],
)
def test_malformed_text_says_where(old: str, new: str, where: str) -> None:
    with pytest.raises(ValueError, match=where):
        parse_program(SOFTMAX.replace(old, new, 1))


@given(st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans()))
def test_constants_keep_their_bits(value: float) -> None:
    b = Builder()
    dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else by_name("f64")
    b.store(Ref("buf0", 0), integer(0), b.constant(value, dtype))
    kernel = Kernel("k0", (), b.build(), (Origin("full", "aten.full.default"),))
    again = parse_kernel(print_kernel(kernel))
    attrs = again.body.ops[0].attrs
    assert isinstance(attrs, Constant)
    assert again == kernel
    assert repr(attrs.value) == repr(math.nan if value != value else value)


UNARY = st.sampled_from(["neg", "exp", "abs", "relu", "sqrt"])
BINARY = st.sampled_from(["add", "mul", "maximum", "pow", "sub"])


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Random bodies over two axes with loads, values, reduces and a store each for some of them."""
    i, j = symbol("i0", "axis", 0, 4), symbol("i1", "axis", 0, 6)
    b = Builder((i, j))
    values = [b.load(Ref("arg0", 0), 7 * i + j, F32), b.constant(draw(st.floats(width=32)), F32)]
    for _ in range(draw(st.integers(0, 12))):
        pick = st.sampled_from(values)
        match draw(st.integers(0, 3)):
            case 0:
                values.append(b.op(draw(UNARY), draw(pick)))
            case 1:
                values.append(b.op(draw(BINARY), draw(pick), draw(pick)))
            case 2:
                axes = draw(st.sampled_from([["i0"], ["i1"], ["i0", "i1"]]))
                values.append(b.reduce([draw(pick)], axes, combine(draw(st.sampled_from(["sum", "max"])), F32)))
            case _:
                values.append(b.load(Ref(draw(st.sampled_from(["arg0", "arg1"])), 0), j * 5 + i // 2, F32))
    for number, value in enumerate(values[-2:]):
        b.store(Ref(f"buf{number}", 0), 7 * i + j, value)
    return Kernel("k0", (Axis(i, integer(5)), Axis(j, integer(7))), b.build(), ())


@given(kernels())
def test_random_kernels_read_back(kernel: Kernel) -> None:
    assert parse_kernel(print_kernel(kernel)) == kernel


def test_arguments_print_by_kind() -> None:
    shown = [print_argument(a) for a in (True, 3, 0.5, None, 'a "b"', F32, Token("device", "cpu"), (1, (2.0,)))]
    assert shown == ["true", "3", "0.5", "none", '"a \\"b\\""', "dtype f32", 'device "cpu"', "(1, (2.0))"]
