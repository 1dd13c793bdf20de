"""Which kernels fuse joins, what is stored after that, and why the others stay apart."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pytest

from minductor.core.dtypes import BOOL, F32
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import FusionRefusal, Kernel, Program, Ref, View, body_reads, body_writes
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.target import Env
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch, flatten, flip, narrow, transpose, unflatten
from tests.rows import inline
from tests.verifying import verify


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def fused(program: Program) -> Program:
    made = fuse(inline(program, CPU), CPU)
    verify(made, "fuse")
    assert_same(program, made)
    return made


def reasons(program: Program) -> list[str]:
    return [note.reason for note in program.notes if isinstance(note, FusionRefusal) and note.stage == "fuse"]


def softmax(s: Sketch, x: View, dim: int) -> View:
    e = s.op("exp", s.op("sub", x, s.reduce("max", x, dim)))
    return s.op("div", e, s.reduce("sum", e, dim))


def layer_norm(s: Sketch, x: View) -> tuple[View, View]:
    """The result, and the row statistic that a backward graph would want."""
    centred = s.op("sub", x, s.reduce("sum", x, 1))
    scale = s.op("rsqrt", s.reduce("sum", s.op("square", centred), 1))
    return s.op("mul", centred, scale), scale


def test_softmax_is_one_kernel_that_loads_once_and_stores_once() -> None:
    s = Sketch()
    (kernel,) = kernels(fused(s.done(softmax(s, s.input(8, 64), 1))))
    assert len(list(body_reads(kernel.body))) == len(list(body_writes(kernel.body))) == 1


def test_layer_norm_is_one_kernel_that_keeps_its_statistic() -> None:
    s = Sketch()
    made = fused(s.done(*layer_norm(s, s.op("exp", s.input(8, 64)))))
    (kernel,) = kernels(made)
    assert [str(write.index) for write in body_writes(kernel.body)] == ["i0", "64*i0 + i1"]
    assert [origin.node for origin in kernel.origins] == [f"k{n}" for n in range(7)]


def test_rows_in_three_dims_meet_rows_in_two() -> None:
    s = Sketch()
    x = s.input(2, 4, 64)
    flat = flatten(x)
    made = fused(s.done(s.op("sub", x, unflatten(s.reduce("sum", flat, 1), 2))))
    (kernel,) = kernels(made)
    assert [str(axis.extent) for axis in kernel.axes] == ["2", "4", "64"]
    assert [str(load.index) for load in body_reads(kernel.body)] == ["256*i0 + 64*i1 + i2"]


def test_transposed_siblings_share_their_reads() -> None:
    s = Sketch()
    x = s.input(16, 8)
    made = fused(s.done(s.op("exp", x), s.op("neg", transpose(x, 0, 1))))
    (kernel,) = kernels(made)
    assert len(list(body_reads(kernel.body))) == 1


def test_a_store_that_an_output_or_another_kernel_needs_stays() -> None:
    s = Sketch()
    x = s.op("exp", s.input(8, 64))
    made = fused(s.done(x, s.op("neg", x), s.reduce("sum", x, 1)))
    (kernel,) = kernels(made)
    assert len(list(body_writes(kernel.body))) == 3
    assert len(list(body_reads(kernel.body))) == 1


def test_kernels_without_common_data_stay_apart() -> None:
    s = Sketch()
    assert len(kernels(fused(s.done(s.op("exp", s.input(8, 8)), s.op("neg", s.input(8, 8)))))) == 2


@pytest.mark.parametrize(("rows", "count"), [(16, 1), (65536, 2)])
def test_readers_of_one_row_are_tried_where_it_is_worth_a_launch(rows: int, count: int) -> None:
    s = Sketch()
    row = s.input(64)
    program = fused(s.done(s.op("add", s.input(rows, 64), row), s.op("mul", s.input(rows, 64), row)))
    assert (len(kernels(program)), reasons(program)) == (count, [])


def test_an_extern_in_between_is_no_cycle() -> None:
    s = Sketch()
    x = s.op("exp", s.input(128, 64))
    y = s.extern(x)
    made = fused(s.done(x, s.op("add", x, y)))
    assert len(kernels(made)) == 2
    assert "x1 (aten.neg.out) must run between them" in reasons(made)


def test_rows_and_columns_are_one_pass() -> None:
    s = Sketch()
    x = s.input(64, 96)
    made = fused(s.done(s.reduce("sum", x, 0), s.reduce("max", x, 1), s.reduce("max", s.op("exp", x), 0)))
    (kernel,) = kernels(made)
    assert len(list(body_reads(kernel.body))) == 1


def test_a_row_does_not_wait_for_its_columns() -> None:
    """The softmax of columns reads all rows before it can write one."""
    s = Sketch()
    x = s.input(64, 96)
    made = fuse(inline(s.done(softmax(s, x, 0), s.reduce("sum", x, 1)), CPU), CPU)
    assert len(kernels(made)) > 1
    assert any(reason.startswith("each row needs the result of a reduction over ") for reason in reasons(made))


def test_rows_and_columns_of_reads_in_both_orders_stay_two() -> None:
    s = Sketch()
    x = s.op("mul", s.input(64, 96), transpose(s.input(96, 64), 0, 1))
    made = fuse(inline(s.done(s.reduce("sum", x, 0), s.reduce("sum", x, 1)), CPU), CPU)
    assert len(kernels(made)) == 2
    assert reasons(made) == ["reductions over i0 and over i1 need different loops"]


def both_sums(rows: int, columns: int) -> Program:
    s = Sketch()
    x = s.input(rows, columns)
    return fused(s.done(s.reduce("sum", x, 0), s.reduce("sum", x, 1)))


@pytest.mark.parametrize(("rows", "columns", "count"), [(64, 1024, 1), (63, 600, 1), (1024, 4096, 1), (16, 65536, 2)])
def test_rows_and_columns_are_summed_in_one_pass_where_threads_share_enough_of_them(
    rows: int, columns: int, count: int
) -> None:
    """Threads share parts of at least 8 rows, whose accumulators lie on one stack; columns alone are shared as well."""
    made = both_sums(rows, columns)
    assert len(kernels(made)) == count
    found = [note for note in made.notes if isinstance(note, FusionRefusal)]
    assert len(found) == count - 1
    assert all(n.reason.startswith("together they would need more") and "us together" in n.figures for n in found)


def test_accumulators_of_columns_that_do_not_fit_a_stack_are_refused() -> None:
    assert reasons(both_sums(2, 131073)) == ["needs 524292 bytes of accumulators for i1; a stack has 524288"]


def test_a_column_sum_joins_what_makes_its_data() -> None:
    s = Sketch()
    x = s.op("exp", s.input(64, 64))
    (kernel,) = kernels(fused(s.done(x, s.reduce("sum", x, 0))))
    assert len(list(body_writes(kernel.body))) == 2


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (1024, 4096)])
def test_columns_that_are_read_twice_join(rows: int, columns: int) -> None:
    """Small ones save launches, large ones save the bytes of what stands between."""
    s = Sketch()
    program = s.done(softmax(s, s.input(rows, columns), 0))
    assert len(kernels(fuse(inline(program, CPU), CPU))) == 1


def test_one_long_row_is_left_to_all_cores() -> None:
    """One that stays in a core's cache is not too long: threads share it in each pass of one kernel."""
    s, short = Sketch(), Sketch()
    made = fuse(inline(s.done(softmax(s, s.input(1, 1 << 20), 1)), CPU), CPU)
    assert len(kernels(fuse(inline(short.done(softmax(short, short.input(1, 1 << 16), 1)), CPU), CPU))) == 1
    assert len(kernels(made)) > 1
    assert "together they would need more operations" in reasons(made)
    slower = [note for note in made.notes if isinstance(note, FusionRefusal) and note.reason.startswith("together")]
    assert all(note.figures.count(" us together") == note.figures.count(" us apart") == 1 for note in slower)


def test_a_shifted_read_stays_apart() -> None:
    s = Sketch()
    x = s.op("exp", s.input(128, 64))
    made = fused(s.done(x, s.op("neg", narrow(x, 0, 1, 127))))
    assert len(kernels(made)) == 2


def test_a_square_read_transposed_stays_apart() -> None:
    """The points match one to one, but in the transposed sense: then each reads what it stores itself."""
    s = Sketch()
    x = s.op("exp", s.input(64, 64))
    made = fused(s.done(x, s.op("add", x, transpose(x, 0, 1))))
    assert len(kernels(made)) == 2
    assert any("another element" in reason for reason in reasons(made))


def test_reading_and_overwriting_the_same_element_joins() -> None:
    s = Sketch()
    x = s.input(64, 64)
    y = s.op("exp", x)
    s.copy(x, s.op("neg", x))
    assert len(kernels(fused(s.done(y)))) == 1


def test_reading_and_overwriting_other_elements_does_not() -> None:
    """The kernels' points match by what both read, but one of them would overwrite what the other still needs."""
    s = Sketch()
    x, w = s.input(512, 512), s.input(512, 512)
    y = s.op("add", transpose(flip(x, 1), 0, 1), w)
    s.copy(x, w)
    made = fused(s.done(y))
    assert len(kernels(made)) == 2
    (reason,) = reasons(made)
    assert reason == "arg0@0 is overwritten at another element than the one read"


def test_reading_and_overwriting_join_without_other_common_data() -> None:
    s = Sketch()
    x = s.input(64, 64)
    y = s.op("exp", x)
    s.copy(x, s.op("neg", s.input(64, 64)))
    (kernel,) = kernels(fused(s.done(y)))
    assert [str(write.ref) for write in body_writes(kernel.body)] == ["buf1@0", "arg0@1"]


def overwrite(s: Sketch, target: View, source: View) -> View:
    """A part of a storage from another one: the new version of that part."""
    new = replace(target, ref=Ref(target.ref.storage, target.ref.version + 1))
    return s.pointwise(lambda b, v: b.op("neg", v), source, into=new)


def test_overwriting_what_is_apart_from_all_that_is_read_joins() -> None:
    s = Sketch()
    x, y = s.input(64, 128), s.input(64, 64)
    made = s.op("mul", narrow(x, 1, 64, 64), y)
    overwrite(s, narrow(x, 1, 0, 64), made)
    (kernel,) = kernels(fused(s.done()))
    assert len(list(body_writes(kernel.body))) == 1


def test_a_later_version_counts_as_overwriting_too() -> None:
    """The first write is apart from what is read; the second, of the same half, is not."""
    s = Sketch()
    x, y = s.input(64, 128), s.input(64, 64)
    made = s.op("mul", narrow(x, 1, 64, 64), y)
    left = overwrite(s, narrow(x, 1, 0, 64), y)
    right = replace(narrow(x, 1, 0, 64), ref=left.ref, offset=x.offset + 64)
    overwrite(s, flip(right, 1), y)
    program = fused(s.done(made))
    assert len(kernels(program)) == 2
    assert any("overwritten at another element" in reason for reason in reasons(program))


@pytest.mark.parametrize(("size", "terms", "count"), [(960, 1, 2), (48, 2, 1)])
def test_strides_that_cost_more_than_is_saved_keep_kernels_apart(size: int, terms: int, count: int) -> None:
    """What reads data and their transposes walks all of them in strides too; a launch is worth a little of that."""
    s = Sketch()
    x = s.input(size, size)
    others = [s.input(size, size) for _ in range(terms)]
    made: list[View] = []
    for view in (x, transpose(x, 0, 1)):
        made.append(s.pointwise(lambda b, v, *ws: reduce(lambda a, w: b.op("add", a, w), ws, v), view, *others))
    program = fused(s.done(*made))
    assert len(kernels(program)) == count
    assert reasons(program) == ["together they would need more time of main memory"] * (count - 1)


@pytest.mark.parametrize(("rows", "count"), [(512, 1), (4096, 2)])
def test_large_results_are_not_kept_for_a_small_gain(rows: int, count: int) -> None:
    """Apart, the first large one goes before the second comes."""
    s = Sketch()
    sums = [s.reduce("sum", s.extern(s.input(rows, 128)), 1) for _ in range(2)]
    made = fuse(inline(s.done(s.op("add", *sums)), CPU), CPU)
    assert len(kernels(made)) == count
    assert ["more bytes alive at once, to save" in reason for reason in reasons(made)] == [True] * (count - 1)


def test_the_bound_on_what_is_waited_for_is_kept() -> None:
    s = Sketch()
    made = s.op("add", s.op("exp", s.extern(s.input(8, 8))), s.extern(s.input(8, 8)))
    program = s.done(made)
    bound = Env(Options(max_live_bytes=256), CPU.target)
    apart = fuse(inline(program, bound), bound)
    assert (len(kernels(fused(program))), len(kernels(apart))) == (1, 2)
    assert reasons(apart) == ["would need 512 bytes of intermediate results at once; the limit is 256"]


def test_a_row_is_not_overwritten_while_it_is_in_use() -> None:
    s = Sketch()
    x = s.input(64, 64)
    s.copy(x, s.op("div", x, s.reduce("sum", x, 1)))
    made = fused(s.done())
    assert "arg0@0 is overwritten while its row is still read" in reasons(made)


@pytest.mark.parametrize(("shift", "count"), [(64, 1), (0, 1), (32, 2)])
def test_slices_of_one_storage_join_if_they_are_apart(shift: int, count: int) -> None:
    s = Sketch()
    x = s.input(64, 64)
    joined = s.buffer([64, 128])
    s.pointwise(lambda b, v: b.op("exp", v), x, into=narrow(joined, 1, 0, 64))
    last = View(joined.ref.__class__(joined.ref.storage, 1), joined.dtype, joined.size, joined.stride, joined.offset)
    s.pointwise(lambda b, v: b.op("neg", v), x, into=narrow(last, 1, shift, 64))
    made = fuse(s.done(last), CPU)
    verify(made, "fuse")
    assert len(kernels(made)) == count


def test_slices_join_even_without_common_data() -> None:
    s = Sketch()
    made = fused(s.done(s.cat(1, s.input(64, 64), s.input(64, 64))))
    assert len(kernels(made)) == 1


def test_parts_in_a_row_are_not_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("minductor.passes.rewriting.join_kernels._overlap_objection", lambda *args: asked.append(args))
    s = Sketch()
    made = fused(s.done(s.cat(1, *(s.input(4, 4) for _ in range(20)))))
    assert len(kernels(made)) == 1
    assert not asked


def test_two_updates_of_one_element_are_one_loop() -> None:
    s = Sketch()
    x = s.input(64, 64)
    new = s.copy(s.copy(x, s.op("neg", x)), s.op("exp", s.input(64, 64)))
    (kernel,) = kernels(fused(s.done(new)))
    assert [str(write.ref) for write in body_writes(kernel.body)] == ["arg0@1", "arg0@2"]


def test_what_does_not_vary_over_the_rows_is_not_repeated() -> None:
    s = Sketch()
    row = s.op("exp", s.input(64))
    made = fused(s.done(row, s.op("add", s.input(16, 64), row)))
    assert len(kernels(made)) == 2
    assert reasons(made) == ["would repeat a store or check that does not depend on i0"]


def test_nested_reductions_stay_alone() -> None:
    s = Sketch()
    x = s.input(16, 64)
    axes, at, b = s.loop([16, 64])
    value = b.reduce([b.load(x.ref, 64 * at[0] + at[1], F32)], ["i1"], combine("sum", F32))
    total = s.buffer([1, 1])
    b.store(total.ref, total.offset, b.reduce([value], ["i0"], combine("sum", F32)))
    s.kernel(axes, b)
    made = fused(s.done(total, s.op("exp", x)))
    assert len(kernels(made)) == 2
    assert reasons(made) == ["reduces the result of another reduction"]


def test_a_value_is_not_handed_into_a_region() -> None:
    s = Sketch()
    x = s.op("exp", s.input(64, 64))
    axes, at, b = s.loop([64, 64])
    region = b.region()
    inner = region.build([region.load(x.ref, 64 * at[0] + at[1], F32)])
    made = s.buffer([64, 64])
    b.store(made.ref, 64 * at[0] + at[1], b.masked(b.constant(1, BOOL), (), inner, 0.0, F32))
    s.kernel(axes, b)
    program = fused(s.done(x, made))
    assert len(kernels(program)) == 2
    assert any(reason.endswith("under a mask") for reason in reasons(program))


def test_a_kernel_stays_small() -> None:
    s = Sketch()
    x = s.input(64, 64)
    views = [x]
    for n in range(150):
        views.append(s.op(("sub", "add")[n % 2], views[-1], x))
    made = fuse(s.done(*views[1:]), CPU)
    verify(made, "fuse")
    assert 2 < len(kernels(made)) < 20
    assert any(reason.startswith("the fused kernel would touch more than 64 buffers") for reason in reasons(made))


def test_the_option_fuse_false_returns_the_same_object() -> None:
    s = Sketch()
    program = s.done(softmax(s, s.input(8, 64), 1))
    assert fuse(program, Env(Options(fuse=False), CPU.target)) is program


def test_what_stands_before_and_behind_a_scan_shares_its_kernel() -> None:
    s = Sketch()
    x = s.op("exp", s.input(8, 64))
    made = s.scan("sum", x, 1)
    (kernel,) = kernels(fused(s.done(s.op("div", made, s.reduce("max", made, 1)), s.scan("prod", x, 1))))
    assert len(list(body_reads(kernel.body))) == 1
    assert len(list(body_writes(kernel.body))) == 2


def test_a_scan_between_flips_runs_from_the_end() -> None:
    s = Sketch()
    made = s.scan("sum", flip(s.input(8, 64), 1), 1)
    (kernel,) = kernels(fused(s.done(s.op("neg", flip(made, 1)))))
    assert {str(access.index) for access in (*body_reads(kernel.body), *body_writes(kernel.body))} == {"64*i0 + i1"}


def test_scans_from_both_ends_stay_apart() -> None:
    s = Sketch()
    x = s.input(8, 64)
    made = fused(s.done(s.scan("sum", x, 1), s.op("neg", flip(s.scan("sum", flip(x, 1), 1), 1))))
    assert len(kernels(made)) == 2
    assert "scans a row in both directions" in reasons(made)


def test_scans_along_two_axes_stay_apart() -> None:
    s = Sketch()
    made = fused(s.done(s.scan("sum", s.scan("sum", s.input(8, 64), 1), 0)))
    assert len(kernels(made)) == 2
    assert reasons(made) == ["scans and reductions over i0 and over i1 need different loops"]


def narrow_fused(s: Sketch, *results: View) -> Kernel:
    """The one kernel of a program whose tensors have 16 bits."""
    program = parse_program(print_program(s.done(*results)).replace(": f32[", ": bf16[").replace(" f32[", " bf16["))
    made = fuse(inline(program, CPU), CPU)
    verify(made, "fuse")
    (kernel,) = kernels(made)
    return kernel


def test_what_is_stored_in_16_bits_is_used_as_memory_holds_it() -> None:
    """A row's sum that only the kernel itself sees stays wide; one that is kept has the kept value for all users."""
    for is_kept in (False, True):
        s = Sketch()
        x = s.input(8, 64)
        total = s.reduce("sum", x, 1)
        kernel = narrow_fused(s, s.op("div", x, total), *([total] if is_kept else []))
        assert [op.name for op in kernel.body.ops if op.dtype == F32] == [
            *("load", "reduce", *(["round_to"] if is_kept else []), "div")
        ]
