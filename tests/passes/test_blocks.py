"""Indices as blocks of memory: what is matched, how it is cut in digits, and which blocks of a tile are boxes.

Takes indices by hand, from tables, and at random; gives nothing; refuses a block that is not its index.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minductor.analysis.blocks import analyze, terms_of
from minductor.core.expressions.expr import Expr, Symbol, as_expr, evaluate, identity, integer, symbol
from minductor.ir.program.memory_access import BlockAccess, BlockDim
from minductor.ir.program.nodes import Axis

X, Y = symbol("x", "axis"), symbol("y", "axis")
S0, S1 = symbol("s0", "size", 1), symbol("s1", "size", 1)


def axis(s: Symbol, extent: int | Expr) -> Axis:
    return Axis(s, as_expr(extent))


def dims(index: Expr, *axes: Axis) -> list[tuple[str, str]]:
    """Size and stride of each dimension."""
    found = analyze(index, axes)
    assert isinstance(found, BlockAccess), found
    return [(str(dim.size), str(dim.stride)) for dim in found.dims]


@pytest.mark.parametrize(
    ("index", "stride"), [(identity(5 * X), "5"), (4 * identity(X), "4"), (identity(integer(3)) * X, "3")]
)
def test_one_axis_by_a_step(index: Expr, stride: str) -> None:
    assert dims(index, axis(X, 30)) == [("30", stride)]


@pytest.mark.parametrize(
    ("sizes", "strides", "index"),
    [
        ((2, 4), (4, 1), 4 * (identity(X) // 4) + X % 4),
        ((3, 9), (5, 2), 5 * (X // 9) + 2 * (identity(X) % 9)),
        ((2, 7), (1, 1), identity(X // 7) + identity(X % 7)),
    ],
)
def test_digits(sizes: tuple[int, int], strides: tuple[int, int], index: Expr) -> None:
    wanted = [(str(size), str(stride)) for size, stride in zip(sizes, strides, strict=True)]
    if strides == (4, 1):
        wanted = [("8", "1")]  # which is one dimension
    assert dims(index, axis(X, math.prod(sizes))) == wanted


@pytest.mark.parametrize(
    ("index", "of", "expected"),
    [(identity(X), "x", X), (identity(X + 5), "x", X), (identity(X + 2 * Y) + 5, "y", 2 * Y)],
)
def test_the_part_of_one_axis(index: Expr, of: str, expected: Expr) -> None:
    found = terms_of(index, {})
    assert not isinstance(found, str)
    assert [term.factor for term in found[1][of]] == ([integer(2)] if expected == 2 * Y else [integer(1)])


def test_sizes_of_a_context(size_context: Any, dummy_graph: Any) -> None:
    """The fixture makes what a matcher needs; nothing is compiled."""
    assert dummy_graph is size_context
    for name in ("s0", "s1"):
        size_context.size(name)
    x = size_context.axis("x", 3 * size_context.size("s1"))
    assert dims(size_context.expr("3*s0*(x//3) + x % 3"), x) == [("s1", "3*s0"), ("3", "1")]


def test_sizes_of_the_call() -> None:
    x = axis(X, 3 * S1)
    assert dims(3 * S0 * (X // 3) + X % 3, x) == [("s1", "3*s0"), ("3", "1")]
    assert dims(X // S0 + S1 * (X % S0), axis(X, S0 * S1)) == [("s1", "1"), ("s0", "s1")]


@pytest.mark.parametrize(
    ("index", "extent", "expected"),
    [
        (X, 64, [("64", "1")]),
        (3 * X, 64, [("64", "3")]),
        (1911 - 256 * (X // 64) - 16 * ((X // 8) % 8) - X % 8, 512, [("8", "-256"), ("8", "-16"), ("8", "-1")]),
        (1024 * (X // 128) + 32 * ((X // 8) % 16) + X % 8, 4096, [("32", "1024"), ("16", "32"), ("8", "1")]),
        (X % 8, 64, [("8", "0"), ("8", "1")]),
        (X // 8, 64, [("8", "1"), ("8", "0")]),
        (X + 3 * (X // 8), 64, [("8", "11"), ("8", "1")]),
        (X % 16 + 5 * (X % 4), 64, [("4", "0"), ("4", "4"), ("4", "6")]),
    ],
)
def test_worked_decompositions(index: Expr, extent: int, expected: list[tuple[str, str]]) -> None:
    assert dims(index, axis(X, extent)) == expected


def test_the_constant_is_the_offset() -> None:
    found = analyze(1911 - 256 * (X // 64) - 16 * ((X // 8) % 8) - X % 8, [axis(X, 512)])
    assert isinstance(found, BlockAccess) and found.offset == 1911


@pytest.mark.parametrize(
    ("index", "why"),
    [
        (X * Y, "x*y is not a term of a single axis"),
        (X + symbol("v0", "value", 0), "data decide the index"),
        ((X + Y) // 8, "(x + y)//8 is not a term of a single axis"),
        ((X + 5) // 4, "(x + 1)//4 is not a term of a single axis"),
        (X % 4 + 4 * ((X // 32) % 2), "64 does not divide"),
        (X // 4 + X // 6, "steps 4, 6, of which none divides all the others"),
        (X % S0, "s0 does not divide"),
    ],
)
def test_what_is_no_block_says_why(index: Expr, why: str) -> None:
    found = analyze(index, [axis(X, 72), axis(Y, 8)])
    assert isinstance(found, str)
    assert why in found


def boxed(sizes: tuple[int, ...]) -> BlockAccess:
    steps = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    return BlockAccess(
        integer(0), tuple(BlockDim("x", *map(integer, (d, 1, n))) for d, n in zip(sizes, steps, strict=True))
    )


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ((32, 16, 8), {4: (1, 1, 4), 64: (1, 8, 8), 256: (2, 16, 8), 1024: (8, 16, 8)}),
        ((8, 8, 8), {32: (1, 4, 8), 512: (8, 8, 8)}),
        ((5, 8), {4: (1, 4), 64: (8, 8)}),
        ((6, 4), {2: (1, 2), 32: (8, 4)}),
    ],
)
def test_the_shape_of_a_block(sizes: tuple[int, ...], blocks: dict[int, tuple[int, ...]]) -> None:
    assert {block: boxed(sizes).shape({"x": block}) for block in blocks} == blocks
    assert not boxed(sizes).limits()


@pytest.mark.parametrize(
    ("sizes", "most"),
    [((15, 3), 1), ((3, 6), 2), ((2, 24), 8), ((7, 5, 4), 4), ((2, 3, 8), 8), ((2, 3 * 4096), 4096)],
)
def test_the_largest_block_that_is_a_box(sizes: tuple[int, ...], most: int) -> None:
    assert boxed(sizes).limits() == {"x": most}
    assert boxed(sizes).is_exact({"x": most}) and not boxed(sizes).is_exact({"x": 2 * most})


def test_only_the_leading_dimension_needs_a_check() -> None:
    block = boxed((5, 8))
    extents = {"x": integer(40)}
    assert block.checked({"x": 8}, extents) == () and block.checked({"x": 64}, extents) == (0,)


SIZES = st.lists(st.sampled_from((1, 2, 3, 4, 5, 6, 8, 16)), min_size=1, max_size=4)


@given(SIZES, st.data())
def test_a_box_holds_the_elements_of_the_index(sizes: list[int], data: st.DataObject) -> None:
    """For each block that the constraint allows, and nowhere more than the axis has."""
    strides = data.draw(st.lists(st.integers(-9, 9), min_size=len(sizes), max_size=len(sizes)))
    extent = math.prod(sizes)
    x = symbol("x", "axis", 0, extent - 1)
    index: Expr = integer(data.draw(st.integers(0, 3)))
    step = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        index = index + stride * ((x // step) % size)
        step *= size
    found = analyze(index, [axis(x, extent)])
    assert isinstance(found, BlockAccess), found
    most = found.limits().get("x", 64)
    for block in (1 << n for n in range(most.bit_length())):
        shape = found.shape({"x": block})
        if found.dims:
            assert math.prod(shape) == block
        for start in range(0, extent, block):
            first = found.offsets({"x": integer(start)})
            for n, lanes in enumerate(product(*map(range, shape))):
                at = [int(str(f)) + lane for f, lane in zip(first, lanes, strict=True)]
                exists = all(a < int(str(dim.size)) for a, dim in zip(at, found.dims, strict=True))
                assert exists == (start + n < extent)
                if exists:
                    there = sum(a * int(str(dim.stride)) for a, dim in zip(at, found.dims, strict=True))
                    assert there + int(str(found.offset)) == evaluate(index, {"x": start + n})
