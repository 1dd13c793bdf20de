"""Which kernels reduce both ways, and what such a kernel must not do.

Takes bodies over rows and columns, built by hand, and programs of row and column reduces. Refuses a joined kernel whose
values are not those of the kernels apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.analysis.both_ways import ACCUMULATOR_BYTES, BothWays, both_ways, most_parts, objection
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import Expr, as_expr, integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import Axis, Body, Buffer, Kernel, Program, Ref
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.schedule.schedule import schedule_kernel
from minductor.passes.split.split import split
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.passes.sketch import CPU, Sketch
from tests.passes.test_schedule import problems
from tests.rows import inline, schedule
from tests.verifying import verify

SM_90 = Env(Options(), by_name("sm_90"))
S0 = symbol("s0", "size", 1)
ROWS, COLUMNS = frozenset({"i0"}), frozenset({"i1"})
WAYS = BothWays(columns=COLUMNS, rows=ROWS)


def matrix(rows: int | Expr, columns: int | Expr) -> tuple[tuple[Axis, ...], Builder, int]:
    """Axes i0 and i1, a builder, and the load of an element of a contiguous matrix."""
    axes = tuple(Axis(symbol(f"i{n}", "axis", 0), as_expr(extent)) for n, extent in enumerate((rows, columns)))
    b = Builder([axis.symbol for axis in axes])
    return axes, b, b.load(Ref("a", 0), axes[0].symbol * as_expr(columns) + axes[1].symbol, F32)


def total(b: Builder, value: int, *axes: str) -> int:
    return b.reduce([value], list(axes), combine("sum", F32))


def sums(rows: int | Expr, columns: int | Expr) -> tuple[tuple[Axis, ...], Body]:
    axes, b, x = matrix(rows, columns)
    b.store(Ref("r", 0), axes[0].symbol, total(b, x, "i1"))
    b.store(Ref("c", 0), axes[1].symbol, total(b, x, "i0"))
    return axes, b.build()


def test_the_rows_are_those_of_memory() -> None:
    axes, body = sums(64, 32)
    assert both_ways(body, axes) == WAYS
    b = Builder([axis.symbol for axis in axes])
    turned = b.load(Ref("a", 0), axes[1].symbol * 64 + axes[0].symbol, F32)
    b.store(Ref("r", 0), axes[0].symbol, total(b, turned, "i1"))
    b.store(Ref("c", 0), axes[1].symbol, total(b, turned, "i0"))
    assert both_ways(b.build(), axes) == BothWays(columns=ROWS, rows=COLUMNS)


def test_one_way_or_both_at_once_is_something_else() -> None:
    for over in (("i0",), ("i1",), ("i0", "i1")):
        axes, b, x = matrix(64, 32)
        b.store(Ref("r", 0), as_expr(0), total(b, x, *over))
        b.store(Ref("c", 0), as_expr(0), total(b, b.op("exp", x), "i0", "i1"))
        assert both_ways(b.build(), axes) is None


@pytest.mark.parametrize(
    ("rows", "columns", "parts"),
    [(64, 32, 8), (100_000, 32, ACCUMULATOR_BYTES // 128), (63, 1 << 14, 7), (S0, 32, 1024), (64, S0, None)],
)
def test_parts_have_rows_enough_and_fit_the_stack(rows: int | Expr, columns: int | Expr, parts: int | None) -> None:
    axes, body = sums(rows, columns)
    assert most_parts(body, axes, WAYS, ()) == parts


def centred_columns(b: Builder, axes: Sequence[Axis], x: int) -> None:
    b.store(Ref("r", 0), axes[0].symbol, total(b, x, "i1"))
    b.store(Ref("y", 0), axes[0].symbol * 32 + axes[1].symbol, b.op("sub", x, total(b, x, "i0")))


def sum_of_sums(b: Builder, axes: Sequence[Axis], x: int) -> None:
    b.store(Ref("y", 0), as_expr(0), total(b, b.op("exp", total(b, x, "i1")), "i0"))


def scalar(b: Builder, axes: Sequence[Axis], x: int) -> None:
    b.store(Ref("r", 0), axes[0].symbol, total(b, x, "i1"))
    b.store(Ref("c", 0), axes[1].symbol, total(b, x, "i0"))
    b.store(Ref("y", 0), as_expr(0), b.load(Ref("z", 0), as_expr(0), F32))


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        (centred_columns, "each row needs the result of a reduction over i0"),
        (sum_of_sums, "reduces the result of another reduction"),
        (scalar, "would repeat a store or check that does not depend on i0, i1"),
    ],
)
def test_what_one_pass_cannot_do(fill: Callable[[Builder, Sequence[Axis], int], None], reason: str) -> None:
    axes, b, x = matrix(64, 32)
    fill(b, axes, x)
    assert objection(b.build(), axes, WAYS) == reason


def test_rows_that_no_program_of_a_gpu_can_hold_stay_apart() -> None:
    for columns, reason in ((8192, None), (8193, "rows of 8193 elements do not fit the registers of a program")):
        axes, body = sums(64, columns)
        assert objection(body, axes, WAYS, is_gpu=True) == reason


def test_columns_of_unknown_extent_have_no_accumulators() -> None:
    axes, body = sums(64, S0)
    assert objection(body, axes, WAYS) == ("needs an accumulator for each element of i1, whose number is not known")


def only_kernel(program: Program) -> Kernel:
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel


def test_the_columns_are_carried_around_parts_of_the_rows() -> None:
    s = Sketch()
    x = s.input(512, 768)
    row = s.reduce("sum", x, 1)
    program = schedule(fuse(inline(s.done(s.op("sub", x, row), s.reduce("sum", x, 0)), CPU), CPU), CPU)
    made = only_kernel(program).schedule
    assert made is not None
    outer = next(iter(loops(made.steps)))
    (column,) = outer.carries
    assert (outer.kind, outer.is_blocked) == ("parallel", True)
    rows = [loop for loop in loops(made.steps) if loop.kind == "vector" and column in loop.body]
    assert [(loop.axis == outer.axis, len(loop.carries)) for loop in rows] == [(False, 1)]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Maps, row sums and column sums of one another."""
    s = Sketch()
    size = draw(st.sampled_from([(64, 40), (300, 7), (9, 129)]))
    full = [s.input(*size), s.input(*size)]
    thin = [s.input(1, size[1])]
    for _ in range(draw(st.integers(2, 6))):
        x = draw(st.sampled_from(full))
        match draw(st.sampled_from(["map", "rows", "columns"])):
            case "map":
                full.append(s.op("add", x, draw(st.sampled_from([*full, *thin]))))
            case "rows":
                thin.append(s.reduce(draw(st.sampled_from(["sum", "max"])), x, 1))
            case _:
                thin.append(s.reduce(draw(st.sampled_from(["sum", "max"])), x, 0))
    return s.done(*draw(st.lists(st.sampled_from([*full[2:], *thin[1:]]), min_size=2, unique=True)))


@pytest.mark.parametrize("env", [CPU, SM_90], ids=["cpu", "gpu"])
@given(program=programs())
@settings(max_examples=60, deadline=None)
def test_random_rows_and_columns_keep_their_values(env: Env, program: Program) -> None:
    fused = split(fuse(inline(program, env), env), env)
    verify(fused, "fuse")
    inputs = [torch.randn([int(str(n)) for n in buffer.size]) for buffer in program.buffers if buffer.kind == "input"]
    wanted = run_program(program, [t.clone() for t in inputs])
    for a, b in zip(run_program(fused, inputs), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
    for kernel in schedule(fused, env).nodes if env is CPU else ():
        assert isinstance(kernel, Kernel)
        assert problems(kernel) == []


def test_the_columns_have_the_accumulators_wherever_most_bytes_lie() -> None:
    """Along the rows, whose number is not known, there may be more to write than along the columns."""
    axes = tuple(Axis(symbol(f"i{n}", "axis", 0), as_expr(extent)) for n, extent in enumerate((2, S0)))
    b = Builder([axis.symbol for axis in axes])
    x = b.load(Ref("a", 0), axes[0].symbol + axes[1].symbol * 2, F32)
    b.store(Ref("r", 0), axes[0].symbol, total(b, x, "i1"))
    for n, value in enumerate((down := total(b, x, "i0"), b.op("exp", down), b.op("neg", down))):
        b.store(Ref(f"c{n}", 0), axes[1].symbol, value)
    kernel = Kernel("k0", axes, b.build(), ())
    buffers = {
        name: Buffer(name, F32, size, stride)
        for name, size, stride in (
            ("a", (S0, integer(2)), (integer(2), integer(1))),
            ("r", (integer(2),), (integer(1),)),
            *((f"c{n}", (S0,), (integer(1),)) for n in range(3)),
        )
    }
    made = schedule_kernel(kernel, buffers, CPU, [], ()).schedule
    assert made is not None
    assert {loop.axis for loop in loops(made.steps) if loop.kind == "vector"} == {"i0"}
