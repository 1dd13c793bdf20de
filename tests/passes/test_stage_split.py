"""Reductions with few rows are cut in parts for a GPU: which ones, in which parts, and into which kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from minductor.core.dtypes import BF16, BOOL, F32, I64, DType
from minductor.core.expressions.expr import Expr, Symbol, as_expr, as_int, symbol
from minductor.core.expressions.hints import Hints, estimate
from minductor.cost import cpu_seconds
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import (
    Assert,
    Buffer,
    Input,
    Kernel,
    Load,
    MergedKernel,
    NodeNote,
    Origin,
    Program,
    Reduce,
    Ref,
    Scan,
    Store,
    View,
    axis_over,
    reads,
    writes,
)
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.ir.program.variant_note import VariantNote
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.inline.inline import inline
from minductor.passes.loop_order.loop_order import loop_order
from minductor.passes.rewriting import join_kernels
from minductor.passes.split import split as stage
from minductor.passes.split import wanted_cut as decision
from minductor.passes.split.split import split
from minductor.passes.split.wanted_cut import Cut, possible_cuts
from minductor.runtime.reference.reference import run_program
from minductor.target import HOPPER, NOMINAL_CPU, Env, by_name
from tests.frontend.tracing import compiled, lowered
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch, element, row_major
from tests.verifying import verify

SM_90 = Env(Options(), by_name("sm_90"))
# Its launches cost nothing, so that a kernel is cut whose pieces take no longer.
SMALL = Env(Options(), replace(by_name("sm_90"), multiprocessors=6, machine=replace(HOPPER, launch=0.0)))
SMALL_CPU = Env(Options(), replace(CPU.target, cpu=NOMINAL_CPU._replace(launch=0.0)))

Make = Callable[[Builder, Sequence[Expr], Sequence[str]], None]


@pytest.fixture
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be cut is cut, in the first way that is weighed, so that programs are small."""
    monkeypatch.setattr(decision, "ALIGNED", 1)
    monkeypatch.setattr(cpu_seconds, "SMALL_CALL", 1)
    monkeypatch.setattr(stage, "fastest", lambda prices: [*prices][:2][-1])


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def names(program: Program) -> list[str]:
    return [kernel.name for kernel in kernels(program)]


def cut_program(program: Program, env: Env = SMALL) -> Program:
    """The program behind the stage, which is held to its rules and to its values before."""
    made = split(program, env)
    verify(made, "split")
    assert_same(program, made)
    return made


def one_kernel(
    size: Sequence[int],
    reduced: Sequence[int],
    make: Callable[[Sketch, Builder, list[Expr], list[str]], tuple[View, ...]],
) -> Program:
    """A program of one kernel over `size`; `make` adds its body, given the names of the reduced axes."""
    s = Sketch()
    axes, at, b = s.loop(size)
    outputs = make(s, b, at, [axes[d].name for d in reduced])
    s.kernel(axes, b)
    return s.done(*outputs)


# --- which kernels are cut ------------------------------------------------------------------------------------------


def sum_of(sizes: Sequence[int | Expr], reduced: Sequence[int], hints: Hints = ()) -> Program:
    """A program of one kernel, the sum over dimensions of a row-major tensor."""
    size = tuple(as_expr(n) for n in sizes)
    stride = tuple(prod(size[n + 1 :], start=as_expr(1)) for n in range(len(size)))
    axes = [axis_over(f"i{n}", extent) for n, extent in enumerate(size)]
    b = Builder([axis.symbol for axis in axes])
    x = b.load(Ref("arg0", 0), sum((s * a.symbol for s, a in zip(stride, axes, strict=True)), start=as_expr(0)), F32)
    total = b.reduce([x], [axes[d].name for d in reduced], combine("sum", F32))
    kept = [d for d in range(len(size)) if d not in reduced]
    steps = [prod((size[e] for e in kept[n + 1 :]), start=as_expr(1)) for n in range(len(kept))]
    place = sum((step * axes[d].symbol for d, step in zip(kept, steps, strict=True)), start=as_expr(0))
    b.store(Ref("buf0", 0), place, total)
    kernel = Kernel("k0", tuple(axes), b.build(), (Origin("sum", "aten.sum"),))
    given = Buffer("arg0", F32, size, stride, "input")
    made = Buffer("buf0", F32, tuple(size[d] for d in kept), tuple(steps))
    view = View(Ref("buf0", 0), F32, made.size, made.stride, as_expr(0))
    symbols = tuple(dict.fromkeys(n for n in size if isinstance(n, Symbol)))
    return Program("p", symbols, (Input("arg0"),), (given, made), (kernel,), (view,), hints=hints)


def shown(cut: Cut | None) -> object:
    return cut and (cut.whole, cut.axis, as_int(cut.count), as_int(cut.block), cut.is_exact)


@pytest.mark.parametrize(
    ("size", "reduced", "sharers", "expected"),
    [
        ((1 << 24,), (0,), 132, ((), "i0", 512, 32768, True)),
        ((64, 512, 512), (0, 1, 2), 132, (("i0",), "i1", 8, 64, True)),
        ((264, 65536), (0, 1), 132, ((), "i0", 264, 1, True)),  # a part for each index of the outer axis
        ((1_000_003,), (0,), 132, ((), "i0", 264, 3792, False)),  # no number near divides it
        ((4096, 1024), (0,), 4, ((), "i0", 8, 512, True)),
        ((1_083_456,), (0,), 132, ((), "i0", 297, 3648, True)),  # 264 divides it too, but 4104 is no multiple of 16
    ],
)
def test_parts_follow_from_the_shape(
    size: Sequence[int], reduced: Sequence[int], sharers: float, expected: object
) -> None:
    (kernel,) = kernels(sum_of(size, reduced))
    assert shown(possible_cuts(kernel, sharers, ())[0]) == expected


def test_several_numbers_of_parts_are_weighed() -> None:
    (kernel,) = kernels(sum_of((1 << 24,), (0,)))
    assert [as_int(cut.count) for cut in possible_cuts(kernel, 64, ())] == [128, 64, 256, 512]
    assert [as_int(cut.count) for cut in possible_cuts(kernel, 0.3, ())] == [2, 4]  # in so few that all have a part
    assert not possible_cuts(kernel, 0.1, ())  # programs enough


@pytest.mark.parametrize(
    ("size", "reduced", "is_cut"),
    [
        ((1 << 20,), (0,), True),
        ((1 << 14,), (0,), False),  # a launch takes longer than the row
        ((16, 1 << 18), (1,), True),
        ((4, 4096), (1,), False),
        ((4096, 1024), (0,), True),
        ((512, 64), (0,), False),
        ((4096, 4096), (0,), True),  # one program for each multiprocessor would wait for each of its loads
        ((4096, 16384), (0,), False),  # four programs for each
        ((200, 65536), (1,), False),  # more rows than multiprocessors
        ((0, 1 << 20), (1,), False),  # nothing to do
    ],
)
def test_what_is_faster_in_parts_is_cut(size: Sequence[int], reduced: Sequence[int], is_cut: bool) -> None:
    program = sum_of(size, reduced)
    assert (len(split(program, SM_90).nodes) > 1) == is_cut
    assert split(program, CPU) is program


def test_a_cut_by_hints() -> None:
    size, few = symbol("s0", "size", 2), symbol("s1", "size", 2)
    for sizes, hints, expected in (
        ((size,), ((size, 1 << 20),), [264]),
        ((size,), (), []),  # without a hint it counts as short
    ):
        first, *rest = kernels(split(sum_of(sizes, range(len(sizes)), hints), SM_90))
        found = [estimate(axis.extent, hints) for axis in first.axes[:-1]] if rest else []
        assert found == expected
    (kernel,) = kernels(sum_of((few, size), (0, 1)))
    cut = possible_cuts(kernel, 132, ((few, 4), (size, 1 << 18)))[0]
    assert (cut.whole, cut.axis, as_int(cut.count)) == (("i0",), "i1", 66)  # the short dimension is not cut


@pytest.mark.usefixtures("short_rows")
def test_reductions_over_different_axes_and_scatters_stay() -> None:
    def twice(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out, other = s.input(4, 9), s.buffer([4]), s.buffer([1])
        value = b.load(x.ref, element(x, at), F32)
        b.store(out.ref, at[0], b.reduce([value], ["i1"], combine("sum", F32)))
        b.store(other.ref, as_expr(0), b.reduce([value], ["i0", "i1"], combine("sum", F32)))
        return out, other

    def scatter(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out = s.input(4, 9), s.buffer([4])
        total = b.reduce([b.load(x.ref, element(x, at), F32)], ["i1"], combine("sum", F32))
        b.atomic(Ref(out.ref.storage, 0), at[0], total, "max")
        return (out,)

    for make in (twice, scatter):
        program = one_kernel((4, 9), (1,), make)
        assert split(program, SMALL) is program


@pytest.mark.usefixtures("short_rows")
def test_matrix_products_stay() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, y, out = s.input(8, 40), s.input(40, 8), s.buffer([8, 8])
        i, j, k = at
        factors = b.load(x.ref, 40 * i + k, F32), b.load(y.ref, 8 * k + j, F32)
        b.store(out.ref, 8 * i + j, b.reduce([b.op("mul", *factors)], over, combine("sum", F32)))
        return (out,)

    idle = Env(Options(), replace(SMALL.target, multiprocessors=132))
    program = one_kernel((8, 8, 40), (2,), make)
    assert split(program, idle) is program


def test_a_cpu_cuts_nothing() -> None:
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(1, 1 << 20), 1))
    assert split(program, CPU) is program
    assert split(program, SM_90) is not program


# --- what is made of them -------------------------------------------------------------------------------------------


def softmax(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
    """x -> exp(x - max) / sum, with a max that a one-pass softmax does not recognise: that of 2x, halved."""
    x = s.input(2, 37)
    out = s.buffer([2, 37])
    value = b.load(x.ref, element(x, at), F32)
    twice = b.op("mul", value, b.constant(2.0, F32))
    top = b.op("mul", b.reduce([twice], over, combine("max", F32)), b.constant(0.5, F32))
    share = b.op("exp", b.op("sub", value, top))
    b.store(out.ref, element(out, at), b.op("div", share, b.reduce([share], over, combine("sum", F32))))
    return (out,)


@pytest.mark.usefixtures("short_rows")
def test_a_chain_of_reductions_is_cut_pass_by_pass() -> None:
    made = cut_program(one_kernel((2, 37), (1,), softmax))
    assert names(made) == ["k0", "k0_join", "k0_parts2", "k0_join2", "k0_map"]
    assert [sum(isinstance(op.attrs, Reduce) for op in kernel.body.ops) for kernel in kernels(made)] == [1, 1, 1, 1, 0]
    assert {kernel.origins for kernel in kernels(made)} == {(Origin("k0", "aten.op"),)}
    last = kernels(made)[-1]
    assert {ref.storage for ref in reads(last)} == {"arg0", "k0_row0", "k0_row1"}  # two numbers of each row
    assert sum(isinstance(op.attrs, Load) for op in last.body.ops) == 3


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("length", [36, 37, 12, 7])
def test_several_reductions_share_their_parts(length: int) -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, outs = s.input(3, length), [s.buffer([3]) for _ in range(3)]
        value = b.load(x.ref, element(x, at), F32)
        for out, how in zip(outs, ("sum", "max", "prod"), strict=True):
            total = b.reduce([value], over, combine(how, F32))
            b.store(out.ref, at[0], b.op("neg", total) if how == "max" else total)
        return tuple(outs)

    made = cut_program(one_kernel((3, length), (1,), make))
    assert names(made) == ["k0", "k0_join"]
    first, second = kernels(made)
    assert sum(isinstance(op.attrs, Load) for op in first.body.ops) == (length % 4 == 0)  # else under a mask
    assert [op.attrs.ref.storage for op in second.body.ops if isinstance(op.attrs, Store)] == ["buf1", "buf2", "buf3"]


@pytest.mark.usefixtures("short_rows")
def test_equal_joins_of_different_reductions_are_kernels_that_bundle_can_join_with_others() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, outs = s.input(3, 36), [s.buffer([3]) for _ in range(3)]
        value = b.load(x.ref, element(x, at), F32)
        totals = [b.reduce([v], over, combine("sum", F32)) for v in (value, b.op("exp", value), b.op("abs", value))]
        for out, total in zip(outs, totals, strict=True):
            b.store(out.ref, at[0], total)
        return tuple(outs)

    def one_of_two(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        outputs = make(s, b, at, over)
        sums = [n for n, op in enumerate(b.build().ops) if isinstance(op.attrs, Reduce)]
        both = s.buffer([3])
        b.store(both.ref, at[0], b.op("sub", sums[0], sums[1]))
        return (*outputs, both)

    def one_twice(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, outs = s.input(3, 36), [s.buffer([3]) for _ in range(2)]
        total = b.reduce([b.load(x.ref, element(x, at), F32)], over, combine("sum", F32))
        for out in outs:
            b.store(out.ref, at[0], total)
        return tuple(outs)

    assert names(cut_program(one_kernel((3, 36), (1,), make))) == ["k0", "k0_join", "k0_join_1", "k0_join_2"]
    assert names(cut_program(one_kernel((3, 36), (1,), one_twice))) == ["k0", "k0_join"]
    assert names(cut_program(one_kernel((3, 36), (1,), one_of_two))) == ["k0", "k0_join"]


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("how", ["argmax", "argmin"])
@pytest.mark.parametrize("length", [36, 37])
def test_the_first_of_equals_is_found(how: str, length: int) -> None:
    """Only the index is used; the parts still store the value, which decides."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out = s.input(2, length), s.buffer([2])
        value = b.op("round", b.load(x.ref, element(x, at), F32))
        found = b.reduce([value, b.index(at[1])], over, combine(how, F32))
        b.store(out.ref, at[0], b.cast(b.project(found, 1), F32))
        return (out,)

    made = cut_program(one_kernel((2, length), (1,), make))
    parts = [buffer for buffer in made.buffers if buffer.name.startswith("k0_part")]
    assert [buffer.dtype for buffer in parts] == [F32, I64]
    assert [ref.storage for ref in writes(kernels(made)[0])] == [buffer.name for buffer in parts]


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize(("last", "expected"), [(False, 1), (True, 2)])
def test_a_cut_in_one_pass_is_weighed_beside_one_in_two(
    last: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Welford sum reads the row once; two sums take fewer operations."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out = s.input(3, 36), s.buffer([3])
        value = b.load(x.ref, element(x, at), F32)
        away = b.op("sub", value, b.op("div", b.reduce([value], over, combine("sum", F32)), b.constant(36.0, F32)))
        b.store(out.ref, at[0], b.reduce([b.op("mul", away, away)], over, combine("sum", F32)))
        return (out,)

    ways: list[str] = []

    def taken(prices: Mapping[str, Sequence[float]]) -> str:
        ways.extend(prices)
        return ways[-1] if last else ways[1]

    monkeypatch.setattr(stage, "fastest", taken)
    made = cut_program(one_kernel((3, 36), (1,), make))
    assert len(names(made)) == 2 * expected
    assert {way.rpartition(" ")[2] for way in ways[1:]} == {"0", "1"}


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("length", [36, 37])
def test_statistics_and_what_follows(length: int) -> None:
    """A layer norm whose input is stored too: one pass for mean and variance, then one over the row."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out, before, spread = s.input(3, length), s.buffer([3, length]), s.buffer([3, length]), s.buffer([3])
        value = b.op("exp", b.load(x.ref, element(x, at), F32))
        b.store(before.ref, element(before, at), value)
        count = b.constant(float(length), F32)
        mean = b.op("div", b.reduce([value], over, combine("sum", F32)), count)
        away = b.op("sub", value, mean)
        rest = b.op("div", b.reduce([away], over, combine("sum", F32)), count)
        squares = b.reduce([b.op("mul", away, away)], over, combine("sum", F32))
        b.store(spread.ref, at[0], squares)
        b.store(out.ref, element(out, at), b.op("div", b.op("sub", away, rest), b.op("sqrt", squares)))
        return out, before, spread

    made = cut_program(one_kernel((3, length), (1,), make))
    assert names(made) == ["k0", "k0_join", "k0_map"]
    first, second, last = kernels(made)
    assert [op.attrs.combine.name for op in first.body.ops if isinstance(op.attrs, Reduce)] == ["welford"]
    assert "buf3" in {ref.storage for ref in writes(second)}
    is_exact = length == 36  # a part that may be shorter stores no element
    assert ("buf2" in {ref.storage for ref in writes(first)}) == is_exact
    assert ("buf2" in {ref.storage for ref in reads(last)}) == is_exact  # loaded, and not computed again
    assert any(op.name == "exp" for op in last.body.ops) != is_exact


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_statistic_that_is_stored_anyway_is_handed_over_there(dtype: DType) -> None:
    """Not where its storage has fewer bits."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out, kept = s.input(3, 36), s.buffer([3, 36]), s.buffer([3])
        value = b.load(x.ref, element(x, at), F32)
        total = b.reduce([value], over, combine("sum", F32))
        b.store(kept.ref, at[0], total)
        b.store(out.ref, element(out, at), b.op("div", value, total))
        return out, kept

    program = one_kernel((3, 36), (1,), make)
    narrow = replace(program.buffers[-1], dtype=dtype)
    program = replace(program, buffers=(*program.buffers[:-1], narrow))
    made = cut_program(program) if dtype == F32 else split(program, SMALL)
    assert names(made) == ["k0", "k0_join", "k0_map"]
    _, join, last = kernels(made)
    rows = {buffer.name for buffer in made.buffers if "_row" in buffer.name}
    assert len(rows) == (dtype != F32)
    assert {ref.storage for ref in reads(last)} == {"arg0", *(rows or {narrow.name})}
    assert {ref.storage for ref in writes(join)} == {narrow.name, *rows}


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("wrong", ["count", "distance", "total", "product"])
def test_other_sums_of_squares_take_two_passes(wrong: str) -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out = s.input(3, 36), s.buffer([3])
        value = b.load(x.ref, element(x, at), F32)
        total = b.reduce([value], over, combine("max" if wrong == "total" else "sum", F32))
        mean = b.op("div", total, b.constant(35.0 if wrong == "count" else 36.0, F32))
        away = b.op("sub", b.op("neg", value) if wrong == "distance" else value, mean)
        squares = b.op("mul", away, value if wrong == "product" else away)
        b.store(out.ref, at[0], b.reduce([squares], over, combine("sum", F32)))
        return (out,)

    assert names(cut_program(one_kernel((3, 36), (1,), make))) == ["k0", "k0_join", "k0_parts2", "k0_join2"]


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("length", [36, 37])
def test_a_row_that_is_overwritten_is_stored_last(length: int) -> None:
    """x becomes exp(x), and out is x / sum(exp(x)): the last piece still reads the old x."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out = s.input(2, length), s.buffer([2, length])
        value = b.load(x.ref, element(x, at), F32)
        power = b.op("exp", value)
        b.store(Ref(x.ref.storage, 1), element(x, at), power)
        b.store(out.ref, element(out, at), b.op("div", value, b.reduce([power], over, combine("sum", F32))))
        return (out,)

    made = cut_program(one_kernel((2, length), (1,), make))
    assert [Ref("arg0", 1) in writes(kernel) for kernel in kernels(made)] == [False, False, True]


@pytest.mark.usefixtures("short_rows")
def test_a_kernel_whose_row_is_read_after_its_statistic_is_overwritten_stays() -> None:
    """The sum of a row goes to an element that the kernel reads when it goes over the row again."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, y, out = s.input(2, 36), s.input(2), s.buffer([2, 36])
        value, old = b.load(x.ref, element(x, at), F32), b.load(y.ref, at[0], F32)
        total = b.reduce([value], over, combine("sum", F32))
        b.store(Ref(y.ref.storage, 1), at[0], total)
        b.store(out.ref, element(out, at), b.op("add", b.op("mul", value, old), total))
        return (out,)

    program = one_kernel((2, 36), (1,), make)
    assert split(program, SMALL) is program


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("length", [36, 37])
def test_gathers_masks_and_assertions(length: int) -> None:
    """What a part computes beyond the end of its row raises nothing: indices, loads under a mask, assertions."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, y, out = s.input(2, length), s.input(9), s.buffer([2])
        value = b.load(x.ref, element(x, at), F32)
        b.assertion(b.op("le", value, b.constant(100.0, F32)), "small")
        number = b.op("mod", b.cast(b.op("abs", value), I64), b.constant(4, I64))
        number = b.op("where", b.op("eq", value, b.constant(0.0, F32)), b.constant(100, I64), number)
        row = b.check(number, as_expr(9), wrap=False)
        region = b.region()
        other = region.load(x.ref, element(x, [at[0], at[1] - 1]), F32)
        is_inside = b.op("ge", b.index(at[1]), b.constant(1, I64))
        neighbour = b.masked(is_inside, (), region.build([other]), 0.5, F32)
        term = b.op("mul", b.load(y.ref, row, F32), neighbour)
        b.store(out.ref, at[0], b.reduce([term], over, combine("sum", F32)))
        return (out,)

    made = cut_program(one_kernel((2, length), (1,), make))
    is_exact = length == 36
    asserting = [k.name for k in kernels(made) if any(isinstance(op.attrs, Assert) for op in k.body.ops)]
    assert asserting == (["k0"] if is_exact else ["k0_map"])


@pytest.mark.usefixtures("short_rows")
def test_nothing_is_divided_by_0_beyond_the_end() -> None:
    s = Sketch()
    x, out = s.input(37, dtype=I64), s.buffer([1])
    axes, at, b = s.loop((37,))
    rest = b.op("mod", b.constant(100, I64), b.load(x.ref, at[0], I64))
    b.store(out.ref, as_expr(0), b.cast(b.reduce([rest], ["i0"], combine("sum", I64)), F32))
    s.kernel(axes, b)
    made = split(s.done(out), SMALL)
    numbers = torch.arange(1, 38)
    assert "masked" in print_program(made)
    assert [*run_program(made, [numbers])] == [(100 % numbers).sum()]


@pytest.mark.usefixtures("short_rows")
def test_an_assertion_of_a_whole_tensor() -> None:
    """The kernel stores nothing."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x = s.input(36)
        is_small = b.op("lt", b.load(x.ref, at[0], F32), b.constant(100.0, F32))
        b.assertion(b.reduce([is_small], over, combine("all", BOOL)), "all are small")
        return (x,)

    made = cut_program(one_kernel((36,), (0,), make))
    assert names(made) == ["k0", "k0_join"]
    assert [buffer.dtype for buffer in made.buffers] == [F32, BOOL]


@pytest.mark.usefixtures("short_rows")
def test_a_value_that_is_stored_where_data_say_is_computed_again() -> None:
    """The store's index comes of another tensor, so that no load names its element."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, place, turned, out = s.input(36), s.input(36), s.buffer([36]), s.buffer([36])
        value = b.op("exp", b.load(x.ref, at[0], F32))
        moved = b.op(
            "sub", b.index(35 - at[0]), b.cast(b.op("mul", b.load(place.ref, at[0], F32), b.constant(0.0, F32)), I64)
        )
        row = b.check(moved, as_expr(36), wrap=False)
        b.store(turned.ref, row, value)
        b.store(out.ref, at[0], b.op("div", value, b.reduce([value], over, combine("sum", F32))))
        return turned, out

    assert {ref.storage for ref in reads(kernels(cut_program(one_kernel((36,), (0,), make)))[-1])} == {
        "arg0",
        "k0_row0",
    }


@pytest.mark.usefixtures("short_rows")
def test_an_index_that_a_reduction_finds() -> None:
    """The largest element's place decides which row of a table the second pass reads."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, table, out = s.input(2, 36), s.input(36, 36), s.buffer([2, 36])
        value = b.load(x.ref, element(x, at), F32)
        found = b.project(b.reduce([value, b.index(at[1])], over, combine("argmax", F32)), 1)
        row = b.check(found, as_expr(36), wrap=False)
        b.store(out.ref, element(out, at), b.op("add", value, b.load(table.ref, element(table, [row, at[1]]), F32)))
        return (out,)

    assert names(cut_program(one_kernel((2, 36), (1,), make))) == ["k0", "k0_join", "k0_map"]


@pytest.mark.usefixtures("short_rows")
def test_a_rounded_value_that_is_stored_is_loaded_again() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, low, out = s.input(2, 36), s.buffer([2, 36]), s.buffer([2, 36])
        s.buffers[1] = replace(s.buffers[1], dtype=BF16)
        value = b.op("exp", b.load(x.ref, element(x, at), F32))
        b.store(low.ref, element(low, at), value)
        rounded = b.round_to(value, BF16)
        total = b.reduce([rounded], over, combine("sum", F32))
        b.store(out.ref, element(out, at), b.op("div", rounded, total))
        return (out,)

    made = cut_program(one_kernel((2, 36), (1,), make))
    assert {ref.storage for ref in reads(kernels(made)[-1])} == {"buf1", "k0_row0"}


@pytest.mark.usefixtures("short_rows")
def test_an_order_that_the_user_asks_for_is_kept() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out, apart = s.input(37), s.buffer([1]), s.buffer([37])
        value = b.load(x.ref, at[0], F32)
        b.store(out.ref, as_expr(0), b.reduce([value], over, combine("sum", F32)))
        b.store(apart.ref, at[0], b.op("neg", value))
        return out, apart

    program = one_kernel((37,), (0,), make)
    awaited = Ref("buf9", 0)
    b = Builder(())
    b.node = "k9"
    b.store(awaited, as_expr(0), b.constant(1.0, F32))
    first = Kernel("k9", (), b.build(), (Origin("k9", "aten.op"),))
    buffers = (*program.buffers, Buffer("buf9", F32, (as_expr(1),), (as_expr(1),)))
    late = replace(kernels(program)[0], after=(awaited,))
    made = cut_program(replace(program, nodes=(first, late), buffers=buffers))
    assert {kernel.name: kernel.after for kernel in kernels(made)} == {
        "k9": (),
        "k0": (awaited,),
        "k0_join": (),
        "k0_map": (awaited,),  # it needs nothing of the pieces before it
    }


def test_a_note_says_why() -> None:
    s = Sketch()
    made = split(s.done(s.reduce("sum", s.input(4, 1 << 20), 1)), SM_90)
    parts = "4 rows of 1048576 elements are too few for the machine, so each is cut in 128 parts"
    assert made.notes == (
        VariantNote("split", "k0", "cut", "cost", ("whole", "cut")),
        NodeNote("split", "k0", parts),
        MergedKernel("split", "k0", "k0_join"),
    )
    assert re.fullmatch(r"k0: .* in 128 parts \([\d.]+ us whole, [\d.]+ us in 128 parts\)", str(made.notes[1]))
    assert list(map(str, parse_program(print_program(made)).notes)) == list(map(str, made.notes))


def test_a_note_says_why_not() -> None:
    s = Sketch()
    program = s.done(s.reduce("sum", s.input(120, 1 << 15), 1))
    made = split(program, SM_90)
    assert made.nodes == program.nodes
    by_cost, note = made.notes
    assert by_cost == VariantNote("split", "k0", "whole", "cost", ("whole", "cut"))
    assert isinstance(note, NodeNote)
    assert note.text == "120 rows of 32768 elements stay whole: in parts they would take longer"
    assert re.fullmatch(r"[\d.]+ us whole, [\d.]+ us in \d+ parts", note.figures)


# --- rows and columns ------------------------------------------------------------------------------------------------


def layer_norm_backward(rows: int, columns: int) -> Program:
    """dx, of which each row needs sums of the row, and two sums of columns."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, dy, dx, total = s.input(rows, columns), s.input(rows, columns), s.buffer([rows, columns]), s.buffer([rows])
        first, second = s.buffer([columns]), s.buffer([columns])
        value, slope = b.load(x.ref, element(x, at), F32), b.load(dy.ref, element(dy, at), F32)
        both = b.op("mul", value, slope)
        summed = b.reduce([both], ["i1"], combine("sum", F32))
        b.store(total.ref, at[0], summed)
        b.store(dx.ref, element(dx, at), b.op("sub", slope, b.op("mul", value, summed)))
        b.store(first.ref, at[1], b.op("neg", b.reduce([both], ["i0"], combine("sum", F32))))
        b.store(second.ref, at[1], b.reduce([slope], ["i0"], combine("sum", F32)))
        return dx, total, first, second

    return one_kernel((rows, columns), (0, 1), make)


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("rows", [48, 47])
def test_rows_and_columns_are_cut_in_parts_of_the_rows(rows: int) -> None:
    """Each program has whole rows, and the partial sums of its rows for each column."""
    made = cut_program(layer_norm_backward(rows, 40))
    is_exact = rows == 48
    assert names(made) == ["k0", "k0_join", *([] if is_exact else ["k0_map"])]
    first = kernels(made)[0]
    assert [str(axis.extent) for axis in first.axes] == ["12", "40", "4"]
    stored = {ref.storage for ref in writes(first)}
    assert stored == {"k0_part0", "k0_part1", *(("buf2", "buf3") if is_exact else ())}
    assert sum(isinstance(op.attrs, Reduce) for op in first.body.ops) == (3 if is_exact else 2)


@pytest.mark.usefixtures("short_rows")
def test_the_variance_of_a_row_that_a_program_holds_takes_two_sums() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, out, columns = s.input(48, 40), s.buffer([48]), s.buffer([40])
        value = b.load(x.ref, element(x, at), F32)
        mean = b.op("div", b.reduce([value], ["i1"], combine("sum", F32)), b.constant(40.0, F32))
        away = b.op("sub", value, mean)
        b.store(out.ref, at[0], b.reduce([b.op("mul", away, away)], ["i1"], combine("sum", F32)))
        b.store(columns.ref, at[1], b.reduce([away], ["i0"], combine("sum", F32)))
        return out, columns

    made = cut_program(one_kernel((48, 40), (0, 1), make))
    assert {op.attrs.combine.name for k in kernels(made) for op in k.body.ops if isinstance(op.attrs, Reduce)} == {
        "sum"
    }


def test_rows_and_columns_of_a_large_matrix_are_cut() -> None:
    program = layer_norm_backward(8192, 1024)
    assert names(split(program, SM_90)) == ["k0", "k0_join"]
    assert split(program, CPU) is program
    small = layer_norm_backward(16, 128)
    assert split(small, SM_90).nodes == small.nodes


# --- scans ----------------------------------------------------------------------------------------------------------


def scan_of(how: str, dtype: DType, length: int, *, reverse: bool = False, rows: int = 2) -> Program:
    """A program of one kernel, a scan of rows; of a scan with several values, all are stored."""
    size = [rows, length] if rows > 1 else [length]

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x = s.input(*size)
        wave = b.op("sin", b.op("mul", b.load(x.ref, element(x, at), F32), b.constant(50.0, F32)))
        whole = b.op("round", b.op("mul", wave, b.constant(4.0, F32)))
        values = [wave if how == "logsumexp" else b.cast(whole, dtype)]  # some elements are equal
        extra = {"last_max": [b.index(at[-1])], "last_min": [b.index(at[-1])], "logsumexp": [b.constant(1.0, F32)]}
        values += extra.get(how, ())
        scanned = b.scan(values, over[0], combine(how, dtype), reverse=reverse)
        outs = [s.buffer(size) for _ in values]
        for n, out in enumerate(outs):
            b.store(out.ref, element(out, at), b.cast(b.project(scanned, n), F32))
        return tuple(outs)

    return one_kernel(size, (len(size) - 1,), make)


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("how", "dtype"),
    [
        ("sum", F32),
        ("sum", I64),
        ("prod", I64),
        ("max", F32),
        ("any", BOOL),
        ("last_max", F32),
        ("last_min", I64),
        ("logsumexp", F32),
    ],
)
@pytest.mark.parametrize("env", [SMALL, SMALL_CPU], ids=["gpu", "cpu"])
def test_a_long_scan_is_cut_in_blocks(how: str, dtype: DType, reverse: bool, env: Env) -> None:
    made = cut_program(scan_of(how, dtype, 64, reverse=reverse), env)
    assert names(made) == ["k0", "k0_ends", "k0_map"]
    first, second, last = kernels(made)
    is_reduced = how not in ("last_max", "last_min")  # of equal elements the last one counts
    parts = [prod(as_int(n) or 0 for n in buffer.size) for buffer in made.buffers if buffer.name.startswith("k0_part")]
    assert all(size < 2 * 64 if is_reduced else size == 2 * 64 for size in parts)
    scans = [[op.attrs for op in kernel.body.ops if isinstance(op.attrs, Scan)] for kernel in (first, second, last)]
    assert list(map(len, scans)) == ([0, 1, 1] if is_reduced else [1, 1, 0])
    assert {scan.reverse for each in scans for scan in each} == {reverse}


@pytest.mark.usefixtures("short_rows")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("how", "dtype"), [("sum", F32), ("sum", I64), ("max", F32), ("any", BOOL), ("logsumexp", F32)]
)
@pytest.mark.parametrize("env", [SMALL, SMALL_CPU], ids=["gpu", "cpu"])
def test_the_last_block_of_a_scan_may_be_shorter(how: str, dtype: DType, reverse: bool, env: Env) -> None:
    """The first kernel scans the blocks, and the last one walks the row and loads that."""
    made = cut_program(scan_of(how, dtype, 61, reverse=reverse), env)
    assert names(made) == ["k0", "k0_ends", "k0_map"]
    scans = [sum(isinstance(op.attrs, Scan) for op in kernel.body.ops) for kernel in kernels(made)]
    assert scans == [1, 1, 0]
    assert [as_int(axis.extent) for axis in kernels(made)[2].axes] == [2, 61]


@pytest.mark.usefixtures("short_rows")
def test_scans_that_blocks_would_change_stay_whole() -> None:
    """The product of a block may overflow, although that of the row up to its end does not.

    Elements behind the end would count where the last of equal ones does.
    """
    wholes = scan_of("prod", F32, 64), scan_of("last_max", F32, 61), scan_of("sum", F32, 64, rows=60000)
    for program in wholes:
        assert split(program, SMALL).nodes == program.nodes


@pytest.mark.usefixtures("short_rows")
def test_what_is_around_a_scan_is_cut_with_it() -> None:
    """Producers are computed again where they are cheap, and loaded where they are stored; consumers come last."""

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, kept, out, last = s.input(2, 64), s.buffer([2, 64]), s.buffer([2, 64]), s.buffer([2])
        value = b.op("sin", b.load(x.ref, element(x, at), F32))
        b.store(kept.ref, element(kept, at), value)
        share = b.op("div", value, b.op("add", b.reduce([b.op("abs", value)], over, combine("sum", F32)), value))
        scanned = b.scan([share], over[0], combine("sum", F32))
        b.store(out.ref, element(out, at), b.op("exp", scanned))
        b.store(last.ref, at[0], b.reduce([scanned], over, combine("max", F32)))
        return kept, out, last

    made = cut_program(one_kernel((2, 64), (1,), make))
    assert names(made) == ["k0", "k0_join", "k0_parts2", "k0_ends2", "k0_parts3", "k0_join3"]
    assert [sum(op.name == "sin" for op in kernel.body.ops) for kernel in kernels(made)] == [1, 0, 0, 0, 0, 0]
    assert "exp" in [op.name for op in kernels(made)[4].body.ops]


@pytest.mark.usefixtures("short_rows")
def test_a_scan_that_overwrites_its_row_stores_last() -> None:
    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x = s.input(2, 64)
        scanned = b.scan([b.load(x.ref, element(x, at), F32)], over[0], combine("sum", F32))
        b.store(Ref(x.ref.storage, 1), element(x, at), scanned)
        return (replace(x, ref=Ref(x.ref.storage, 1)),)

    made = cut_program(one_kernel((2, 64), (1,), make))
    assert [Ref("arg0", 1) in writes(kernel) for kernel in kernels(made)] == [False, False, True]


@pytest.mark.parametrize(
    ("target", "rows", "length", "is_cut"),
    [
        ("sm_90", 2, 1 << 20, True),
        ("sm_90", 2, 1 << 13, False),
        ("sm_90", 256, 1 << 16, False),
        ("cpu", 2, 1 << 16, True),
        ("cpu", 1, 1 << 14, False),  # it runs on one thread
        ("cpu", 64, 1 << 16, False),
    ],
)
def test_a_scan_is_cut_where_that_is_faster(target: str, rows: int, length: int, is_cut: bool) -> None:
    program = scan_of("sum", F32, length, rows=rows)
    assert (len(split(program, Env(Options(), by_name(target))).nodes) == 3) == is_cut


# --- programs of users ----------------------------------------------------------------------------------------------


def staged(program: Program, env: Env) -> tuple[Program, Program]:
    """The program before and after the stage."""
    for before in (inline, fuse, loop_order):
        program = before(program, env)
    made = split(program, env)
    verify(made, "split")
    return program, made


@pytest.mark.parametrize("few_rows", [8, 0])
@pytest.mark.parametrize(
    ("fn", "size"),
    [
        (lambda x: (x.sum(), x.amax(), x.argmin(), (x > 4).any(), (x > -9).all()), (70_001,)),
        (lambda x: (x + 1000).var(), (70_001,)),
        (lambda x: torch.var_mean(x, 0, keepdim=True), (5003, 14)),
        (lambda x: torch.softmax(x.flatten(), 0), (5003, 14)),
        (lambda x: F.layer_norm(x + 1, x.shape[1:]), (2, 70_000)),
        (lambda x: x / x.sum(), (70_001,)),
        (lambda x: x.log_softmax(1), (9, 70_001)),
        (lambda x: (x.sin().cumsum(0) * 2, x.logcumsumexp(0), *x.flip(0).cummax(0)), (70_000,)),
        (lambda x: x.softmax(1).cumsum(1).amax(1), (2, 70_000)),
    ],
)
def test_values(
    fn: Callable[..., object], size: tuple[int, ...], few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`few_rows` 0: a reduction of few rows and what follows it are fused before they are cut."""
    monkeypatch.setattr(join_kernels, "FEW_ROWS", few_rows, raising=False)
    torch.manual_seed(0)
    x = torch.randn(size)
    before, made = staged(lowered(fn, x, env=SM_90).program, SM_90)
    assert len(made.nodes) > len(before.nodes)
    for now, then in zip(run_program(made, [x.clone()]), run_program(before, [x.clone()]), strict=True):
        torch.testing.assert_close(now, then, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("length", "expected"), [(301, []), (1_000_003, [528])])
def test_a_size_that_the_call_knows_is_cut_by_its_hint(length: int, expected: list[int]) -> None:
    torch.manual_seed(0)
    seen = compiled(lambda x: (x.sum(), x.amax(), x.argmax()), torch.randn(length), dynamic=True, env=SM_90)
    _, made = staged(seen.program, SM_90)
    assert [as_int(kernel.axes[0].extent) for kernel in kernels(made) if len(kernel.axes) == 2] == expected
    for x in (torch.randn(5), torch.randn(1000)):
        for ours, theirs in zip(run_program(made, [len(x), x]), (x.sum(), x.amax(), x.argmax()), strict=True):
            torch.testing.assert_close(ours, theirs)


@st.composite
def fused_kernels(draw: st.DrawFn) -> Program:
    """One kernel with chains of reductions over some of its axes, stores of all kinds, and writes in place.

    What it adds up are small integers, so that no order of additions changes a sum.
    """

    def below(n: int) -> int:
        return draw(st.integers(0, n - 1))

    size = [2 + below(8) for _ in range(1 + below(3))]
    reduced = [d for d in range(len(size)) if below(2)] or [len(size) - 1]
    kept = [d for d in range(len(size)) if d not in reduced]

    def make(s: Sketch, b: Builder, at: list[Expr], over: list[str]) -> tuple[View, ...]:
        x, row, column = s.input(*size), s.input(*(size[d] for d in kept), 1), s.input(size[reduced[0]])
        places = {x: at, row: [*(at[d] for d in kept), as_expr(0)], column: [at[reduced[0]]]}
        values = [b.load(view.ref, element(view, place), F32) for view, place in places.items()]
        flat = sum((n * place for n, place in zip(row_major(size), at, strict=True)), start=as_expr(0))
        for _ in range(1 + below(8)):
            value, other = values[below(len(values))], values[below(len(values))]
            whole = b.op("round", b.op("mul", b.op("sin", value), b.constant(4.0, F32)))
            match below(6):
                case 0:
                    how = combine(("sum", "max", "min")[below(3)], F32)
                    values.append(b.reduce([whole], over, how))
                case 1:
                    found = b.reduce([whole, b.index(flat)], over, combine("argmax", F32))
                    values.append(b.cast(b.project(found, below(2)), F32))
                case 2:
                    terms = [value, b.constant(0.0, F32), b.constant(1.0, F32)]
                    values.append(b.project(b.reduce(terms, over, combine("welford", F32)), 2))
                case 3:
                    values.append(b.op(("sin", "neg", "abs")[below(3)], value))
                case _:
                    values.append(b.op(("add", "mul", "maximum")[below(3)], value, other))
        outputs = dict.fromkeys((len(values) - 1, *(below(len(values)) for _ in range(2))))
        stored: list[View] = []
        for n in outputs:
            is_row = set(b[values[n]].axes).isdisjoint(over)
            given = (row if is_row else x) if not below(4) else None
            if given is not None and all(given.ref.storage != view.ref.storage for view in stored):
                out = replace(given, ref=Ref(given.ref.storage, 1))
            else:
                out = s.buffer([*(size[d] for d in kept), 1] if is_row else size)
            b.store(out.ref, element(out, places[row] if is_row else at), values[n])
            stored.append(out)
        return tuple(stored)

    return one_kernel(size, reduced, make)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=fused_kernels(), multiprocessors=st.integers(2, 60))
@pytest.mark.usefixtures("short_rows")
def test_random_kernels_keep_their_values(program: Program, multiprocessors: int) -> None:
    cut_program(program, Env(Options(), replace(SMALL.target, multiprocessors=multiprocessors)))


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs(mutations=3, scans=5, sizes=(2, 3, 6)))
@pytest.mark.usefixtures("short_rows")
def test_random_programs_keep_their_values(program: Program) -> None:
    for before in (inline, fuse, loop_order):
        program = before(program, SMALL)
    cut_program(program)
