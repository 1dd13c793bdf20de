"""The tiles of GPU kernels: their blocks, and where each op stands."""

from __future__ import annotations

import pytest

from minductor.ir.program.loops import loops, positions
from minductor.ir.program.nodes import Kernel, Reduce, Store
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch, transpose
from tests.rows import inline, schedule

ENV = Env(Options(), by_name("sm_90"))


def tiled(sketch: Sketch, *outputs: object) -> Kernel:
    program = schedule(fuse(inline(sketch.done(*outputs), ENV), ENV), ENV)  # pyright: ignore[reportArgumentType]
    assert parse_program(print_program(program)) == program
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    return kernel


def heads(kernel: Kernel) -> list[str]:
    assert kernel.schedule is not None
    return [f"{loop.kind} {loop.block}" for loop in loops(kernel.schedule.steps)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((64, 64), ["grid 1024"]),  # the axes are one
        ((3,), ["grid 4"]),
        ((), []),
    ],
)
def test_a_pointwise_kernel_has_blocks_of_its_axis(size: tuple[int, ...], expected: list[str]) -> None:
    s = Sketch()
    assert heads(tiled(s, s.op("neg", s.input(*size)))) == expected


def test_a_narrow_row_takes_several_rows() -> None:
    s = Sketch()
    kernel = tiled(s, s.op("add", s.input(500, 6), s.input(6)))
    assert heads(kernel) == ["grid 128", "grid 8"]


def test_a_transpose_has_a_square_tile() -> None:
    s = Sketch()
    x, y = s.input(2048, 4096), s.input(4096, 2048)
    assert heads(tiled(s, s.op("add", x, transpose(y, 0, 1)))) == ["grid 64", "grid 64"]


def test_a_short_row_stands_whole_in_the_tile() -> None:
    s = Sketch()
    x = s.input(100, 200)
    kernel = tiled(s, s.op("sub", x, s.reduce("max", x, 1)))
    assert heads(kernel) == ["grid 4", "tile 256"]


def test_a_long_row_is_walked_again_for_what_needs_its_result() -> None:
    s = Sketch()
    x = s.input(512, 100_000)
    kernel = tiled(s, s.op("sub", x, s.reduce("max", x, 1)))
    assert heads(kernel) == ["grid 1", "serial 2048", "serial 2048"]
    ops, schedule = kernel.body.ops, kernel.schedule
    assert schedule is not None
    first, second = [loop for loop in loops(schedule.steps) if loop.kind == "serial"]
    assert any(isinstance(ops[p].attrs, Reduce) for p in positions(first.body))
    assert not any(isinstance(ops[p].attrs, Reduce) for p in positions(second.body))
    assert any(isinstance(ops[p].attrs, Store) for p in positions(second.body))
    assert set(positions(first.body)) & set(positions(second.body)), "the load is in both"


def test_columns_are_summed_side_by_side() -> None:
    s = Sketch()
    assert heads(tiled(s, s.reduce("sum", s.input(5000, 300), 0))) == ["grid 32", "serial 64"]


def test_few_columns_are_summed_over_more_rows_at_once() -> None:
    s = Sketch()
    assert heads(tiled(s, s.reduce("sum", s.input(5000, 3), 0))) == ["grid 4", "serial 256"]


def test_rows_and_columns_of_one_matrix_are_one_kernel_if_a_program_can_hold_a_row() -> None:
    for columns, count in ((600, 1), (10_000, 2)):
        s = Sketch()
        x = s.input(600, columns)
        program = fuse(s.done(s.reduce("sum", x, 0), s.reduce("sum", x, 1)), ENV)
        assert len(program.nodes) == count
        refusals = [str(note) for note in program.notes if "rows of 10000 elements do not fit" in str(note)]
        assert len(refusals) == count - 1
