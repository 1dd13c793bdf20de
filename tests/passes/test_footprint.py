"""What a fusion costs on one target and not on another: rows that no cache keeps, values that no register holds, and
values that are computed again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minductor.cost.footprint import alive, read_again, spilled
from minductor.ir.program.nodes import FusionRefusal, Kernel, Program, View
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.target import Env, Target, by_name
from tests.passes.sketch import Sketch
from tests.rows import inline

CPU, GPU = by_name("cpu"), by_name("sm_90")
LONG = 3 << 16  # floats of a row: one lies in the second cache of a core, and two do not


def fused(program: Program, target: Target) -> tuple[list[Kernel], list[str]]:
    env = Env(Options(), target)
    made = fuse(inline(program, env), env)
    refused = [note.reason for note in made.notes if isinstance(note, FusionRefusal) and note.stage == "fuse"]
    return [node for node in made.nodes if isinstance(node, Kernel)], refused


def centred(s: Sketch, x: View, weight: View) -> View:
    return s.op("mul", s.op("sub", x, s.reduce("sum", x, 1)), weight)


def two_rows(columns: int) -> Program:
    """Two matrices, each centred along its rows: they have the weights in common."""
    s = Sketch()
    weight = s.input(64, columns)
    return s.done(*(centred(s, s.input(64, columns), weight) for _ in range(2)))


def scaled_by_their_sum(count: int) -> Program:
    """Every operand is wanted once for the sum and once behind it."""
    s = Sketch()
    given = [s.input(1024, 1024) for _ in range(count)]
    total = s.op("abs", given[0])
    for x in given[1:]:
        total = s.op("add", total, s.op("abs", x))
    return s.done(*(s.op("mul", x, total) for x in given))


def test_rows_that_the_cache_keeps_only_apart_stay_apart() -> None:
    kernels, refused = fused(two_rows(LONG), CPU)
    assert len(kernels) == 2
    assert any(reason.startswith("rows that are read from memory again would cost ") for reason in refused)
    assert len(fused(two_rows(LONG), replace(CPU, cached_row_bytes=1 << 21))[0]) == 1
    assert len(fused(two_rows(1024), CPU)[0]) == 1


def test_a_row_that_no_cache_keeps_is_joined_with_what_reads_it_again_in_any_case() -> None:
    s = Sketch()
    columns = 4 * LONG
    (kernel,), _ = fused(s.done(centred(s, x := s.input(64, columns), s.input(columns))), CPU)
    table = s.done(x).buffer_table()
    assert read_again(kernel, table, CPU, ()) == 64 * columns * 4
    assert read_again(kernel, table, replace(CPU, cached_row_bytes=0), ()) == 0


@pytest.mark.parametrize(("count", "apart"), [(20, False), (31, True)])
def test_values_that_a_thread_has_no_registers_for_are_not_joined(count: int, apart: bool) -> None:
    program = scaled_by_their_sum(count)
    kernels, refused = fused(program, GPU)
    assert (len(kernels) > 1) == apart
    assert any(reason.startswith("spilled registers") for reason in refused) == apart
    assert all(spilled(kernel, GPU, ()) == 0 for kernel in kernels)
    (whole,), _ = fused(program, CPU)
    assert (alive(whole.body) > 30) == apart == (spilled(whole, GPU, ()) > 0)
    assert spilled(whole, CPU, ()) == 0


def test_what_is_summed_down_its_columns_as_well_is_not_walked_over_again_for_that() -> None:
    """As in the backward of a layer norm: a row is short, though the whole is longer than the cache."""
    s = Sketch()
    x, y = s.input(4096, 256), s.input(4096, 256)
    along = s.op("mul", s.op("sub", x, s.reduce("sum", s.op("mul", x, y), 1)), y)
    (kernel,), _ = fused(program := s.done(along, s.reduce("sum", s.op("mul", x, y), 0)), CPU)
    assert read_again(kernel, program.buffer_table(), CPU, ()) == 0


@pytest.mark.parametrize(
    ("size", "target", "apart"),
    [((1, 64), CPU, True), ((4096, 1), CPU, False), ((1, 64), GPU, False)],
    ids=["of columns", "of rows", "on a GPU"],
)
def test_what_every_row_would_compute_again_is_computed_once(
    size: tuple[int, int], target: Target, apart: bool
) -> None:
    s = Sketch()
    table = s.op("exp", s.op("exp", s.input(*size)))
    kernels, refused = fused(s.done(s.op("mul", s.input(4096, 64), table)), target)
    assert (len(kernels) == 2) == apart == any(reason.startswith("repeated computation") for reason in refused)
