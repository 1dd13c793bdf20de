"""Rows in groups: sums are short wherever they can be, and loops that may not run in groups stay.

Takes schedules as text, of the kernels of the C++ tests and of sums of every length. Refuses a run of additions into
one accumulator that is longer than 40, and a group of what holds checks or several carried values.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from minductor.core.dtypes import F32, I64
from minductor.core.expressions.expr import integer
from minductor.ir.program.build import combine
from minductor.ir.program.loops import Loop, Schedule, loops, parse_schedule
from minductor.ir.program.nodes import Body, Kernel, Program
from minductor.options import Options
from minductor.passes.schedule.group import group
from minductor.passes.schedule.unblock import unblock
from minductor.target import Env, by_name
from tests.codegen.cases import Sketch, case, integers, randn
from tests.rows import schedule

CPU = Env(Options(), by_name("cpu"))
PLAIN = parse_schedule("serial i0 carry %1 {\n  vector i1 {\n    %0 %1\n  }\n}\nvector i1 {\n  %2\n}")


def tiled(program: Program) -> Kernel:
    (kernel,) = schedule(program, CPU).nodes
    assert isinstance(kernel, Kernel) and kernel.schedule is not None
    return kernel


def longest(loop: Loop, span: int, extents: Mapping[str, int]) -> int:
    """Additions, one after the other, into the accumulators that the loop begins."""
    inner = [step for step in loop.body if isinstance(step, Loop)]
    block = loop.block if loop.is_blocked else 1
    if any(isinstance(s, Loop) and s.kind == "tree" for i in inner for s in i.body):
        return span // block + span % block
    count = -(-span // (block * max(1, loop.lanes)))
    below = {**extents, loop.axis: block}
    further = [longest(i, below.get(i.axis, 1), below) for i in inner if not i.carries and i.kind != "tree"]
    return count * max(further, default=1)


def chains(schedule: Schedule, extents: Mapping[str, int]) -> list[int]:
    """Of each loop with accumulators of its own, along the reduced axes; parts are joined as a tree."""
    found: list[int] = []

    def walk(loop: Loop, spans: Mapping[str, int]) -> None:
        if loop.carries and loop.kind != "tree":
            is_parts = loop.kind == "parallel"
            found.append(1 if is_parts else longest(loop, spans.get(loop.axis, 1), spans))
        below = {**spans, loop.axis: loop.block if loop.is_blocked else 1}
        for step in loop.body:
            if isinstance(step, Loop):
                if loop.kind == "parallel" and loop.carries and not step.carries:
                    found.append(longest(step, below.get(step.axis, 1), below))
                walk(step, below)

    for step in schedule.steps:
        if isinstance(step, Loop):
            walk(step, extents)
    return found


def sums(rows: int, columns: int) -> Sketch:
    sketch = Sketch((rows, columns))
    x = sketch.read("a", torch.empty(rows, columns, device="meta"), F32, columns * sketch.i[0] + sketch.i[1])
    sketch.write(sketch.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return sketch


@pytest.mark.parametrize("columns", [7, 64, 768])
@pytest.mark.parametrize("rows", [3, 16, 32, 63, 100, 256, 1000, 2048, 100_000])
def test_no_sum_over_rows_is_one_long_chain(rows: int, columns: int) -> None:
    kernel = tiled(sums(rows, columns).program())
    assert kernel.schedule is not None
    assert max(chains(kernel.schedule, {"i0": rows})) <= 40, str(kernel.schedule)


@pytest.mark.parametrize("columns", [1000, 2048, 5000, 1_000_000])
def test_nor_is_one_along_a_row(columns: int) -> None:
    sketch = Sketch((40, columns))
    x = sketch.read("a", torch.empty(40, columns, device="meta"), F32, columns * sketch.i[0] + sketch.i[1])
    sketch.write(sketch.b.reduce([x], ["i1"], combine("sum", F32)), F32, axes=(0,))
    kernel = tiled(sketch.program())
    assert kernel.schedule is not None
    assert max(chains(kernel.schedule, {"i1": columns})) <= 40, str(kernel.schedule)


def body_of(sketch: Sketch) -> Body:
    (kernel,) = sketch.program().nodes
    assert isinstance(kernel, Kernel)
    return kernel.body


@pytest.mark.parametrize(("rows", "count"), [(2, 2), (7, 7), (8, 8), (12, 6), (100, 8), (None, 8)])
def test_groups_leave_few_rows_over(rows: int | None, count: int) -> None:
    made = group(PLAIN, body_of(sums(16, 90)), {"i0": rows, "i1": 90})
    assert str(made) == (
        f"serial i0 by {count} carry %1 {{\n"
        "  vector i1 {\n    tree i0 carry %1 {\n      %0 %1\n    }\n  }\n}\n"
        "vector i1 {\n  %2\n}"
    )


def test_one_row_is_no_group() -> None:
    assert group(PLAIN, body_of(sums(2, 90)), {"i0": 1, "i1": 90}) == PLAIN


def test_what_belongs_to_a_row_moves_into_its_group() -> None:
    schedule = tiled(case("sums_of_two").program).schedule
    assert schedule is not None
    (tree,) = [loop for loop in loops(schedule.steps) if loop.kind == "tree"]
    scalars = [p for p, op in enumerate(case("sums_of_two").program.nodes[0].body.ops) if op.axes == ("i0",)]  # type: ignore[union-attr]
    assert scalars and set(scalars) <= set(tree.body)


@pytest.mark.parametrize("name", ["min_outer", "argmin_outer"])
def test_a_maximum_needs_no_groups(name: str) -> None:
    (kernel,) = case(name).program.nodes
    assert isinstance(kernel, Kernel)
    schedule = tiled(case(name).program).schedule
    assert schedule is not None and all(loop.kind != "tree" and not loop.is_blocked for loop in loops(schedule.steps))


def test_several_carried_values_are_summed_in_blocks() -> None:
    schedule = tiled(case("welford_outer").program).schedule
    assert schedule is not None and max(chains(schedule, {"i0": 200})) <= 32


def checked() -> Sketch:
    """Rows of a table, summed over the places that name them."""
    s = Sketch((200, 90))
    i, j = s.i
    at = s.b.check(s.read("ids", integers(5, 200), I64, i), integer(5), wrap=False)
    x = s.read("a", randn(5, 90), F32, 90 * at + j)
    s.write(s.b.reduce([x], ["i0"], combine("sum", F32)), F32, axes=(1,))
    return s


def test_a_loop_with_checks_stays_but_for_its_length() -> None:
    schedule = tiled(checked().program()).schedule
    assert schedule is not None and all(loop.kind != "tree" for loop in loops(schedule.steps))
    assert max(chains(schedule, {"i0": 200})) <= 32


def test_a_block_in_which_nothing_begins_is_no_block() -> None:
    inner = "serial i0 {\n    vector i1 {\n      %0 %1\n    }\n  }"
    blocked = parse_schedule(f"serial i0 by 16 carry %1 {{\n  {inner}\n}}")
    assert unblock(blocked) == parse_schedule("serial i0 carry %1 {\n  vector i1 {\n    %0 %1\n  }\n}")
    kept = parse_schedule("serial i0 by 16 carry %1 {\n  serial i0 carry %1 {\n    %0 %1\n  }\n}")
    assert unblock(kept) == kept
