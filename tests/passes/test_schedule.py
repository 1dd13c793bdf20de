"""Loop nests: every op stands where its arguments are, as often as its axes ask, whatever the shape.

Takes kernels of random axes, strides and reduces, and the named ones of the C++ tests. Refuses a schedule that misses
an op, runs a store twice, or uses a value that is not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.dtypes import F32
from minductor.core.expressions.expr import Expr, as_int, integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.loops import Loop, Schedule, Step, loops, positions
from minductor.ir.program.nodes import Axis, Buffer, Kernel, Load, Origin, Program, Reduce, Ref, Scan, Store
from minductor.options import Options
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.target import Env, by_name
from tests.codegen.cases import BUILDERS, S0, S1, Sketch, case, randn
from tests.rows import schedule
from tests.verifying import verify

CPU = Env(Options(), by_name("cpu"))


def tiled(program: Program) -> Kernel:
    (kernel,) = schedule(program, CPU).nodes
    assert isinstance(kernel, Kernel)
    return kernel


class Walk:
    """Runs through a schedule as the printer does, and notes what is wrong."""

    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        self.ops = kernel.body.ops
        self.blocks = {loop.axis for loop in loops(schedule.steps) if loop.is_blocked}
        self.rows = set(schedule.kept_rows)
        self.carried: set[int] = set()
        self.kept: set[int] = set()
        self.problems: list[str] = []
        self.effects: list[int] = []
        self.written: set[str] = set()
        self.steps(schedule.steps, (), set())

    def steps(self, steps: Sequence[Step], opened: tuple[Loop, ...], known: set[int]) -> None:
        for step in steps:
            if isinstance(step, Loop):
                self.carried.update(step.carries)
                for position in self.rows.intersection(step.carries):
                    op = self.ops[position]
                    if isinstance(op.attrs, Reduce) and any(loop.axis in op.axes for loop in loops(step.body)):
                        self.problems.append(f"%{position} has many accumulators, and at no step a value for its row")
                self.steps(step.body, (*opened, step), set(known))
                known.update(step.carries)
                self.kept.update(self.rows.intersection(step.carries))
            else:
                self.op(step, opened, known)

    def op(self, position: int, opened: tuple[Loop, ...], known: set[int]) -> None:
        op = self.ops[position]
        axes = {loop.axis for loop in opened if not loop.is_blocked}
        if missing := set(op.loop_axes) - axes:
            self.problems.append(f"%{position} stands outside the loops over {missing}")
        if lacking := [a for a in op.args if a not in known and a not in self.kept]:
            self.problems.append(f"%{position} needs {lacking}")
        if isinstance(op.attrs, Load) and op.attrs.ref.storage in self.written:
            self.problems.append(f"%{position} is read after it was overwritten")
        if isinstance(op.attrs, Store):
            self.written.add(op.attrs.ref.storage)
        if op.is_effect:
            self.effects.append(position)
            if axes != set(op.axes):
                self.problems.append(f"the store %{position} runs over {axes}")
        if isinstance(op.attrs, Reduce | Scan):
            if position not in self.carried:
                self.problems.append(f"no loop carries %{position}")
            over = op.attrs.axes if isinstance(op.attrs, Reduce) else (op.attrs.axis,)
            first = next(n for n, loop in enumerate(opened) if loop.axis in over)
            if position not in opened[first].carries:
                self.problems.append(f"%{position} is not carried by its outermost loop")
            if isinstance(op.attrs, Reduce):
                self.kept.discard(position)
                return
        known.add(position)
        if position in self.rows:
            self.kept.add(position)


def problems(kernel: Kernel) -> list[str]:
    assert kernel.schedule is not None
    walk = Walk(kernel, kernel.schedule)
    found = walk.problems
    wanted = [p for p, op in enumerate(kernel.body.ops) if op.is_effect]
    if sorted(walk.effects) != wanted:
        found.append(f"effects ran {walk.effects}, not {wanted}")
    if missing := set(range(len(kernel.body.ops))) - set(positions(kernel.schedule.steps)):
        found.append(f"{missing} never run")
    return found


@pytest.mark.parametrize("name", BUILDERS)
def test_named_kernels_have_sound_nests(name: str) -> None:
    assert problems(tiled(case(name).program)) == []


@st.composite
def kernels(draw: st.DrawFn, sizes: Sequence[int] = (1, 2, 3, 17, 64, 300, 5000)) -> Program:
    """A chain of map, reduce, map over random axes, read in a random order of them."""
    extents = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=4))
    axes = [Axis(symbol(f"i{n}", "axis", 0, e - 1), integer(e)) for n, e in enumerate(extents)]
    b = Builder([axis.symbol for axis in axes])

    def place(order: Sequence[int]) -> tuple[list[int], object]:
        index, stride = integer(0), 1
        for n in reversed(order):
            index, stride = index + axes[n].symbol * stride, stride * extents[n]
        return [stride], index

    numbers = list(range(len(extents)))
    buffers: list[Buffer] = []
    loads: dict[str, int] = {}

    def load(name: str) -> int:
        order = draw(st.permutations(numbers))
        chosen = order[draw(st.integers(0, len(order) - 1)) :]
        (size,), index = place(chosen)
        buffers.append(Buffer(name, F32, (integer(size),), (integer(1),), "input"))
        loads[name] = b.load(Ref(name, 0), index, F32)  # type: ignore[arg-type]
        return loads[name]

    x = b.op("exp", b.op("add", load("a"), load("b")))
    values, one = [x], b.constant(1.0, F32)
    for n in range(draw(st.integers(0, 3))):
        over = draw(st.lists(st.sampled_from(numbers), min_size=1, unique=True))
        taken = draw(st.sampled_from([values[-1], x, one])) if n else x
        total = b.reduce([taken], [f"i{n}" for n in sorted(over)], combine("sum", F32))
        values.append(b.op("mul", b.op("add", total, x) if draw(st.booleans()) else total, load(f"c{n}")))
    for n, value in enumerate(values[1:] or values):
        kept = [m for m in numbers if f"i{m}" in b[value].axes or draw(st.booleans())]
        (size,), index = place(kept)
        buffers.append(Buffer(f"out{n}", F32, (integer(size),), (integer(1),)))
        b.store(Ref(f"out{n}", 0), index, value)  # type: ignore[arg-type]
    if draw(st.booleans()):  # one of what was read is written over, in place
        name = draw(st.sampled_from(sorted(loads)))
        read = b[loads[name]]
        assert isinstance(read.attrs, Load)
        b.store(Ref(name, 1), read.attrs.index, b.op("add", loads[name], loads[name]))
    return Program("p", (), (), tuple(buffers), (Kernel("k", tuple(axes), b.build(), (Origin("k", "aten.op"),)),), ())


@given(kernels())
@settings(max_examples=150, deadline=None)
def test_random_kernels_have_sound_nests(program: Program) -> None:
    assert problems(tiled(program)) == []
    verify(schedule(program, CPU), "schedule")


@given(kernels())
@settings(max_examples=60, deadline=None)
def test_tiling_twice_changes_nothing(program: Program) -> None:
    once = schedule(program, CPU)
    assert schedule(once, CPU) is once


# --- what is chosen


def schedule_of(name: str) -> str:
    """The loops of the schedule of a case, without the name of its recipe."""
    return str(tiled(case(name).program).schedule).partition("\nrecipe")[0]


def test_a_long_row_is_one_block_after_the_other() -> None:
    assert schedule_of("pointwise_long") == "parallel i1 by 4096 {\n  vector i1 {\n    %0 %1 %2 %3\n  }\n}"


def test_softmax_keeps_the_exponential_and_reads_the_input_twice() -> None:
    assert schedule_of("softmax") == (
        "%5\n"  # the constant 1, whose quotient with the sum is %6
        "parallel i0 {\n"
        "  vector i1 lanes 64 carry %1 {\n    %0 %1\n  }\n"
        "  vector i1 lanes 64 carry %4 {\n    %0 %2 %3 %4\n  }\n"
        "  %6\n"
        "  vector i1 {\n    %7 %8 %9 %10 %11\n  }\n"
        "}\nrows %3"
    )


def test_what_is_costly_before_and_behind_a_scan_runs_in_vectors() -> None:
    assert schedule_of("scan_between_maps_symbolic_back") == (
        "%3\nparallel i0 {\n"
        "  serial i1 by 512 carry %2 {\n"
        "    vector i1 {\n      %0 %1\n    }\n"
        "    serial i1 {\n      %2\n    }\n"
        "    vector i1 {\n      %4 %5 %6\n    }\n"
        "  }\n"
        "}\nrows %1 %2"
    )


def test_a_cheap_scan_is_one_loop_with_what_is_around_it() -> None:
    assert schedule_of("scan_rows") == "%2\nserial i0 {\n  serial i1 carry %1 {\n    %0 %1 %3 %4\n  }\n}"


def test_a_scan_down_the_columns_runs_along_memory() -> None:
    assert schedule_of("scan_columns") == ("%2\nserial i0 carry %1 {\n  vector i1 {\n    %0 %1 %3 %4\n  }\n}")


def test_few_rows_are_split_in_parts_fixed_by_the_shape() -> None:
    first = next(iter(loops(tiled(case("sum_all").program).schedule.steps)))  # type: ignore[union-attr]
    assert (first.kind, first.block % 64, first.carries) == ("parallel", 0, (1,))


@pytest.mark.parametrize(("extent", "blocks"), [(integer(1024), [0]), (S0, [2097152, 65536, 2048, 0])])
def test_a_row_whose_length_only_the_call_knows_is_summed_as_if_it_were_long(extent: Expr, blocks: list[int]) -> None:
    """An accumulator takes few elements before it is joined to others, so that no error grows with the length."""
    s = Sketch((64, extent))
    x = s.read("a", randn(1), F32, s.i[0] * extent + s.i[1])
    s.write(s.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=[0])
    found = [loop.block for loop in loops(tiled(s.program()).schedule.steps) if loop.axis == "i1"]  # type: ignore[union-attr]
    assert found == blocks


def test_columns_are_summed_some_rows_at_a_time() -> None:
    assert schedule_of("sum_middle") == (
        "parallel i0 {\n"
        "  serial i1 by 8 carry %1 {\n"
        "    vector i2 {\n      tree i1 carry %1 {\n        %0 %1\n      }\n    }\n"
        "  }\n"
        "  vector i2 {\n    %2\n  }\n"
        "}"
    )


def test_threads_share_the_rows_if_only_the_call_knows_how_many_columns_there_are() -> None:
    s = Sketch((S1, S0))
    x = s.read("a", randn(1 << 20), F32, s.i[0] * S0 + s.i[1])
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=[1])
    shared = [loop for loop in loops(tiled(s.program()).schedule.steps) if loop.kind == "parallel"]  # type: ignore[union-attr]
    assert [(loop.axis, loop.parts) for loop in shared] == [("i0", 64)]


@pytest.mark.parametrize(("rows", "shared"), [(300, ["i0"]), (40, ["i0", "i1"]), (2, ["i0", "i1", "i2"])])
def test_threads_share_no_more_loops_than_keep_them_busy(rows: int, shared: list[str]) -> None:
    s = Sketch((rows, 9, 20, 70))
    i, j, k, n = s.i
    x = s.read("a", randn(rows, 20, 9, 70), F32, 12600 * i + 1400 * k + 70 * j + n)
    s.write(s.b.op("add", x, s.read("b", randn(9, 70), F32, 70 * j + n)), F32)
    kernel = tiled(s.program())
    assert kernel.schedule is not None
    kinds = {loop.axis: loop.kind for loop in loops(kernel.schedule.steps) if loop.kind != "vector"}
    assert kinds == {axis: "parallel" if axis in shared else "serial" for axis in ("i0", "i1", "i2")}


def test_columns_run_along_memory() -> None:
    """One loop over the rows, and inside and after it one along the row."""
    inner = [loop for loop in loops(tiled(case("min_outer").program).schedule.steps) if not loop.is_blocked]  # type: ignore[union-attr]
    assert [(loop.axis, loop.kind) for loop in inner] == [("i0", "serial"), ("i1", "vector"), ("i1", "vector")]


def test_a_few_neighbours_are_summed_together_with_those_that_lie_beside_them() -> None:
    kernel = tiled(case("group_norm_last").program)
    assert kernel.schedule is not None
    assert [op.attrs.axes for op in kernel.body.ops if isinstance(op.attrs, Reduce)] == [("i3",), ("i2",)]
    parts = [loop for loop in loops(kernel.schedule.steps) if loop.kind == "parallel"]
    assert [step.axis for loop in parts for step in loops(loop.body)][-3:] == ["i3", "i1", "i2"]


def test_what_is_the_same_for_all_of_a_few_neighbours_is_reduced_in_one_step() -> None:
    """Such as their number."""
    extents = {"i0": 2, "i1": 3, "i2": 2}
    axes = [Axis(symbol(name, "axis", 0, e - 1), integer(e)) for name, e in extents.items()]
    kept, outer, few = (axis.symbol for axis in axes)
    b = Builder([kept, outer, few])
    read = b.load(Ref("x", 0), 2 * kept + 4 * outer + few, F32)
    both = [b.reduce([value], ["i1", "i2"], combine("sum", F32)) for value in (read, b.constant(1.0, F32))]
    b.store(Ref("out", 0), kept, b.op("div", *both))
    buffers = (
        Buffer("x", F32, (integer(12),), (integer(1),), "input"),
        Buffer("out", F32, (integer(2),), (integer(1),)),
    )
    made = schedule(
        Program("p", (), (), buffers, (Kernel("k", tuple(axes), b.build(), (Origin("k", "aten.op"),)),), ()), CPU
    )
    verify(made, "schedule")


def test_small_kernels_and_those_whose_writes_may_meet_are_serial() -> None:
    for name in ("sum_small", "scattered"):
        assert "parallel" not in schedule_of(name)


def test_short_rows_have_no_more_lanes_than_elements() -> None:
    assert "lanes 4 " in schedule_of("softmax_short")


def test_a_transposed_load_is_read_along_its_own_axis() -> None:
    program = case("transposed").program
    (kernel,) = schedule(program, replace(CPU, options=Options(variant="transposed"))).nodes
    assert isinstance(kernel, Kernel)
    assert kernel.schedule is not None
    (row,) = kernel.schedule.kept_rows
    inside = [loop for loop in loops(kernel.schedule.steps) if row in loop.body]
    assert [loop.axis for loop in inside] == ["i0"]


# --- axes


def test_axes_that_every_index_runs_through_as_one_become_one() -> None:
    sketch = Sketch((2, 1, 3, 5))
    i, _, j, k = sketch.i
    x = sketch.read("a", randn(2, 1, 3, 5), F32, 15 * i + 5 * j + k)
    sketch.write(sketch.b.op("add", x, sketch.read("b", randn(2, 1, 1, 1), F32, i)), F32)
    (kernel,) = sketch.program().nodes
    assert isinstance(kernel, Kernel)
    merged = merge_kernel_axes(kernel)
    assert [(axis.name, as_int(axis.extent)) for axis in merged.axes] == [("i0", 2), ("i3", 15)]
    assert merge_kernel_axes(merged) is merged


def test_axes_that_are_reduced_apart_stay_apart() -> None:
    sketch = Sketch((8, 9))
    x = sketch.read("a", randn(8, 9), F32, 9 * sketch.i[0] + sketch.i[1])
    sketch.write(sketch.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0,))
    (kernel,) = sketch.program().nodes
    assert isinstance(kernel, Kernel)
    assert merge_kernel_axes(kernel) is kernel
