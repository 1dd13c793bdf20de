"""What is joined once loops are split, merged or unrolled; and that this round joins, and does nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings

from minductor.core.dtypes import F32
from minductor.core.expressions.expr import as_int, integer, symbol
from minductor.cost.kernel_seconds import TIE, Prices, Slower
from minductor.cost.shape import Shape
from minductor.ir.program.nodes import FusionRefusal, Kernel, Program, View, body_reads, body_writes
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.loop_order.loop_order import Walk, loop_order, split_extents
from minductor.target import Env
from pytest_plugin.goldens.golden import Goldens
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch, exprs, flatten, narrow, row_major
from tests.rows import inline
from tests.verifying import verify


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def both(program: Program) -> tuple[Program, Program]:
    """After fuse, and after this pass; the numbers stay."""
    before = fuse(inline(program, CPU), CPU)
    after = loop_order(before, CPU)
    verify(after, "loop_order")
    assert_same(program, after)
    assert loop_order(before, Env(Options(loop_order=False), CPU.target)) is before
    return before, after


def reshaped(view: View, *size: int) -> View:
    """Of a row-major view."""
    return replace(view, size=exprs(size), stride=exprs(row_major(size)))


def walks(*extents: int) -> tuple[Walk, ...]:
    """A row-major loop nest, as one index walks over it."""
    return tuple(zip(exprs(row_major(extents)), exprs(extents), strict=True))


def split_by(walk: Walk, others: Sequence[Walk]) -> tuple[int | None, ...]:
    return split_extents(walk, others) or (as_int(walk[1]),)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ((128, 384, 196), (768, 64, 196), ((128, 6, 64, 196), (128, 6, 64, 196))),
        ((64,), (16, 4), ((16, 4), (16, 4))),
        ((5, 6, 20), (3, 10, 20), ((5, 6, 20), (3, 10, 20))),  # no common loops: these merge to (30, 20) instead
        ((6, 4), (3, 8), ((3, 2, 4), (3, 2, 4))),
    ],
)
def test_loops_are_split_where_others_end(
    first: tuple[int, ...], second: tuple[int, ...], wanted: tuple[tuple[int, ...], ...]
) -> None:
    a, b = walks(*first), walks(*second)
    assert tuple(size for walk in a for size in split_by(walk, b)) == wanted[0]
    assert tuple(size for walk in b for size in split_by(walk, a)) == wanted[1]


def test_no_cut_leaves_a_rest() -> None:
    one, n = integer(1), symbol("s0", "size", 2)
    others = ((one, integer(5)), (integer(4), integer(3)), (integer(6), integer(2)), (n, one))
    assert split_extents((one, integer(12)), others) == (3, 4)
    assert (
        split_extents((n, integer(12)), others)
        == split_extents((one, n), others)
        == split_extents((integer(-1), integer(12)), others)
        == ()
    )


@pytest.mark.parametrize(
    ("first", "second"), [((5, 6), (3, 10)), ((5, 6, 20), (3, 10, 20)), ((6, 4), (3, 8)), ((8, 6, 20), (16, 3, 20))]
)
def test_pointwise_neighbours_of_one_data_join(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    s = Sketch()
    x = s.input(prod(first))
    before, after = both(s.done(s.op("exp", reshaped(x, *first)), s.op("neg", reshaped(x, *second))))
    assert len(kernels(before)) == 2
    (kernel,) = kernels(after)
    assert len(list(body_reads(kernel.body))) == 1


def test_rows_of_one_width_and_pointwise_of_another_join() -> None:
    s = Sketch()
    x = s.input(128 * 6 * 8 * 5)
    rows = s.reduce("sum", reshaped(x, 128, 48, 5), 2)
    before, after = both(s.done(rows, s.op("exp", reshaped(x, 768, 8, 5))))
    assert (len(kernels(before)), len(kernels(after))) == (2, 1)


def norm_in_parts(s: Sketch, parts: int = 2, *, interleaved: bool) -> Program:
    """Each row by its greatest element, in a kernel that makes an element of each part at a time."""
    x = s.input(12, 64)
    top = s.reduce("max", s.op("abs", x), 1)
    made = s.buffer([12, 64])
    axes, at, b = s.loop([12, 64 // parts])
    step, apart = (parts, 1) if interleaved else (1, 64 // parts)
    places = [64 * at[0] + step * at[1] + n * apart for n in range(parts)]
    first, *rest = [b.op("div", b.load(x.ref, place, F32), b.load(top.ref, at[0], F32)) for place in places]
    refs = [replace(made.ref, version=n) for n in range(parts)]
    for ref, place, value in zip(refs, places, (*(b.op("neg", one) for one in rest), first), strict=True):
        b.store(ref, place, value)
    s.kernel(axes, b)
    return s.done(replace(made, ref=refs[-1]))


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_row_joins_what_makes_two_of_its_elements_at_a_time(interleaved: bool) -> None:
    before, after = both(norm_in_parts(Sketch(), interleaved=interleaved))
    assert len(kernels(before)) == 2
    (kernel,) = kernels(after)
    assert len(list(body_reads(kernel.body))) == len(list(body_writes(kernel.body))) == 2


def test_kernels_that_may_stay_apart_are_priced_with_the_loops_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not with the loops in which they are tried, which may be much slower."""
    before = fuse(inline(norm_in_parts(Sketch(), interleaved=True), CPU), CPU)
    asked: list[list[Shape]] = []
    own: list[list[Shape]] = []
    slower = Prices.slower

    def noted(prices: Prices, one: Sequence[Shape], other: Sequence[Shape], tie: float = TIE) -> Slower | None:
        asked.append(list(other))
        own.append([prices.shape(kernel) for kernel in kernels(before)])
        return slower(prices, one, other, tie)

    monkeypatch.setattr(Prices, "slower", noted)
    loop_order(before, CPU)
    assert asked
    assert asked == own


def test_a_row_is_not_copied_for_many_elements_at_a_time() -> None:
    counts = [len(kernels(both(norm_in_parts(Sketch(), parts, interleaved=False))[1])) for parts in (4, 8)]
    assert counts == [1, 2]


def test_what_a_version_left_alone_is_read_from_the_one_before() -> None:
    """The parts of a joined storage are values of one point, and the storage is gone."""
    s = Sketch()
    x = s.input(12, 64)
    joined = s.buffer([12, 64])
    axes, at, b = s.loop([12, 32])
    for n in range(2):
        place = 64 * at[0] + 2 * at[1] + n
        b.store(replace(joined.ref, version=n), place, b.op(("exp", "neg")[n], b.load(x.ref, place, F32)))
    s.kernel(axes, b)
    made = s.op("add", replace(joined, ref=replace(joined.ref, version=1)), s.input(12, 64))
    program = s.done(made)
    after = loop_order(fuse(program, CPU), CPU)
    assert_same(program, after)
    (kernel,) = kernels(after)
    assert {write.ref.storage for write in body_writes(kernel.body)} == {made.ref.storage}


def test_a_scan_keeps_its_axis() -> None:
    s = Sketch()
    x = s.input(8, 12)
    _, after = both(s.done(s.scan("sum", x, 1), s.op("exp", reshaped(flatten(x), 16, 6))))
    (kernel,) = kernels(after)
    assert [str(axis.extent) for axis in kernel.axes] == ["8", "12"]


def test_what_still_does_not_match_is_noted_once() -> None:
    s = Sketch()
    x = s.op("exp", s.input(128, 64))
    y = s.extern(x)
    _, after = both(s.done(x, s.op("neg", narrow(reshaped(x, 64, 128), 0, 1, 63)), s.op("add", x, y)))
    notes = [note for note in after.notes if isinstance(note, FusionRefusal)]
    said = [(note.first, note.second, note.reason) for note in notes]
    assert len(set(said)) == len(said)
    assert ("k0", "k3", "x1 (aten.neg.out) must run between them") in said
    assert [note.stage for note in notes if (note.first, note.second) == ("k0", "k2")] == ["fuse", "loop_order"]


@pytest.mark.parametrize("name", ["rows_and_blocks", "rotary"])
def test_change(name: str, golden: Goldens) -> None:
    """What the pass does to a program, as text."""
    s = Sketch()
    if name == "rotary":
        program = norm_in_parts(s, interleaved=False)
    else:
        x = s.input(24 * 8)
        program = s.done(s.reduce("sum", reshaped(x, 24, 8), 1), s.op("exp", reshaped(x, 12, 4, 4)))
    before, after = both(program)
    old, new = (print_program(replace(p, notes=())).splitlines() for p in (before, after))
    golden.text("change", "\n".join(difflib.unified_diff(old, new, "fuse", "loop_order", lineterm="", n=99)))


@settings(max_examples=500, deadline=None)
@given(programs(8))
def test_no_program_has_more_kernels_for_it(program: Program) -> None:
    before = fuse(inline(program, CPU), CPU)
    after = loop_order(before, CPU)
    assert len(kernels(after)) <= len(kernels(before))
    if after != before:
        verify(after, "loop_order")
        assert_same(program, after)
