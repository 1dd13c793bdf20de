"""Which kernels are matrix products, and what a schedule may say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minductor.core.dtypes import F32, F64
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.choices import Choice, open_choices
from minductor.ir.program.dots import find_dots, sides_of
from minductor.ir.program.loops import Loop, Schedule
from minductor.ir.program.nodes import Axis, Buffer, Input, Kernel, Origin, Program, Ref
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from tests.verifying import verify

N = 32
ROW, COLUMN, INNER = (symbol(name, "axis", 0, N - 1) for name in ("i0", "i1", "i2"))


def kernel(kind: str = "", how: str = "sum") -> Kernel:
    """buf0[i, j] = sum over k of arg0[i, k] * arg1[k, j], and what else `kind` says."""
    b = Builder((ROW, COLUMN, INNER))
    x, y = b.load(Ref("arg0", 0), N * ROW + INNER, F32), b.load(Ref("arg1", 0), N * INNER + COLUMN, F32)
    if kind in ("wide", "widened"):
        x, y = (b.load(Ref(n, 0), at, F64) for n, at in (("arg0", N * ROW + INNER), ("arg1", N * INNER + COLUMN)))
    if kind == "widened":
        y = b.cast(b.load(Ref("arg1", 0), N * INNER + COLUMN, F32), F64)
    if kind == "scaled":
        scale = b.load(Ref("arg0", 0), INNER, F32)
        x, y = b.op("mul", x, scale), b.op("mul", y, scale)
    product = b.op("mul", x, y)
    if kind == "all three":
        product = b.op("mul", product, b.load(Ref("arg0", 0), ROW + COLUMN + INNER, F32))
    total = b.reduce([product], ["i2"], combine(how, F64 if kind.startswith("wide") else F32))
    if kind == "used twice":
        total = b.op("add", total, b.reduce([product], ["i2"], combine("max", F32)))
    b.store(Ref("buf0", 0), (COLUMN * N + ROW) if kind == "transposed" else N * ROW + COLUMN, total)
    axes = tuple(Axis(s, integer(3 if kind == "narrow" and s is COLUMN else N)) for s in (ROW, COLUMN, INNER))
    return Kernel("k0", axes, b.build(), (Origin("mm", "aten.mm.default"),))


@pytest.mark.parametrize(
    ("kind", "how", "expected"),
    [
        ("", "sum", ("i0", "i1", "i2")),
        ("transposed", "sum", ("i1", "i0", "i2")),  # columns are what the result is contiguous along
        ("scaled", "sum", ("i0", "i1", "i2")),
        ("wide", "sum", ("i0", "i1", "i2")),
        ("widened", "sum", None),  # Triton computes no product of such factors
        ("", "max", None),
        ("all three", "sum", None),
        ("used twice", "sum", None),
        ("narrow", "sum", None),
    ],
)
def test_products_are_found(kind: str, how: str, expected: tuple[str, str, str] | None) -> None:
    dots = find_dots(kernel(kind, how))
    assert (None if dots is None else (dots.row, dots.column, dots.inner)) == expected


def test_each_value_has_a_side() -> None:
    found = kernel("scaled")
    dots = find_dots(found)
    assert dots is not None
    (product,) = dots.products
    sides = sides_of(found.body, dots)
    assert (sides[product.left], sides[product.right]) == ("left", "right")
    assert sorted(sides.values()) == ["left", "left", "left", "right", "right"], "the scale is on the left"


def program(dots: tuple[int, ...]) -> Program:
    size = (integer(N), integer(N))
    stride = (integer(N), integer(1))
    made = kernel()
    steps: tuple[Loop | int, ...] = (0, 1, 3, 4)
    for axis, kind in (("i2", "tile"), ("i1", "grid"), ("i0", "grid")):
        steps = (Loop(axis, kind, steps, block=N),)  # pyright: ignore[reportArgumentType]
    made = replace(
        made,
        schedule=Schedule(steps, dots=dots),
        choices=(Choice("warps", "perf", (2, 4), 4), Choice("m", "bits", ("a", "b"), "b")),
    )
    buffers = [Buffer(name, F32, size, stride, "input") for name in ("arg0", "arg1")]
    made_by = Buffer("buf0", F32, size, stride)
    return Program("p", (), (Input("arg0"), Input("arg1")), (*buffers, made_by), (made,), ())


def test_a_schedule_with_products_and_choices_is_read_back() -> None:
    first = program((3,))
    text = print_program(first)
    assert "dots %3" in text and "choice warps perf 4 of (2, 4)" in text
    assert parse_program(text) == first
    verify(first, "schedule")


def test_only_sums_of_products_are_products() -> None:
    with pytest.raises(VerifyError, match="a matrix product of a schedule is a sum of products"):
        verify(program((4,)), "schedule")


def test_a_default_is_an_option() -> None:
    with pytest.raises(ValueError, match="none of"):
        Choice("warps", "perf", (2, 4), 3)


def test_what_affects_bits_stays_where_bits_must() -> None:
    sums, rows, one = (
        Choice("i2", "bits", (32, 64), 64),
        Choice("i0", "perf", (32, 64), 32),
        Choice("r", "perf", (8,), 8),
    )
    assert open_choices([sums, rows, one], is_deterministic=True) == (rows,)
    assert open_choices([sums, rows, one], is_deterministic=False) == (sums, rows)
