"""Concatenations on a GPU: slices with rows that are not aligned are stored by one kernel over the whole result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minductor.core.dtypes import F32, I64
from minductor.ir.program.nodes import FusionRefusal, Kernel, MergedKernel, Program, Ref, body_reads
from minductor.options import Options
from minductor.passes.loop_order.whole_concat import MAX_SLICES, whole_concat
from minductor.target import Env, by_name
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch, narrow, transpose
from tests.verifying import verify

GPU = Env(Options(), by_name("sm_90"))


def after(program: Program) -> Program:
    """The program after the step, which computes the same."""
    now = whole_concat(program, GPU)
    verify(now, "loop_order")
    assert_same(program, now)
    return now


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_one_kernel_for_slices_that_are_not_aligned(dim: int) -> None:
    s = Sketch()
    sizes = [[length if d == dim else other for d, other in enumerate((5, 3, 7))] for length in (3, 1, 13)]
    now = after(s.done(s.cat(dim, *(s.input(*size) for size in sizes))))
    (kernel,) = kernels(now)
    assert [str(axis.extent) for axis in kernel.axes] == [str(17 * 105 // (5, 3, 7)[dim])]
    assert len(list(body_reads(kernel.body))) == 3
    assert {(note.name, note.into) for note in now.notes if isinstance(note, MergedKernel)} == {
        ("k1", "k0"),
        ("k2", "k0"),
    }


def test_slices_compute_what_they_store_in_any_order() -> None:
    s = Sketch()
    x, y, z = s.input(6, 33), s.input(6, 2), s.input(33)
    joined = s.buffer([6, 35])
    s.pointwise(lambda b, v, w: b.op("mul", b.op("exp", v), w), x, z, into=narrow(joined, 1, 2, 33))
    last = replace(joined, ref=Ref(joined.ref.storage, 1))
    s.pointwise(lambda b, v: b.op("neg", v), y, into=narrow(last, 1, 0, 2))
    assert len(kernels(after(s.done(last)))) == 1


def test_all_readers_read_the_only_version() -> None:
    s = Sketch()
    joined = s.cat(1, s.input(4, 9), s.input(4, 6))
    now = after(s.done(joined, s.op("neg", joined), s.reduce("sum", joined, 1), s.extern(joined)))
    assert len(kernels(now)) == 3


@pytest.mark.parametrize("view", [lambda v: transpose(v, 0, 1), lambda v: narrow(v, 1, 2, 5)], ids=["columns", "part"])
def test_slices_of_views(view: object) -> None:
    assert callable(view)
    s = Sketch()
    part = view(s.input(7, 7))
    rows = int(str(part.size[0]))
    assert len(kernels(after(s.done(s.cat(1, part, s.input(rows, 2)))))) == 1


def unaligned(s: Sketch, count: int = 2) -> Program:
    return s.done(s.cat(1, *(s.input(8, 3) for _ in range(count))))


def test_what_stays_as_the_same_object() -> None:
    program = unaligned(Sketch())
    assert len(whole_concat(program, GPU).nodes) == 1
    assert whole_concat(program, CPU) is program
    apart = replace(program, buffers=(replace(program.buffers[0], device="cuda:1"), *program.buffers[1:]))
    assert whole_concat(apart, GPU) is apart
    s = Sketch()
    assert whole_concat(p := s.done(s.cat(1, s.input(8, 4), s.input(8, 16))), GPU) is p  # each is aligned
    assert whole_concat(p := unaligned(Sketch(), MAX_SLICES + 1), GPU) is p
    s = Sketch()
    x, joined = s.input(8, 3), s.buffer([8, 6])
    s.pointwise(lambda b, v: v, x, into=narrow(joined, 1, 0, 3))
    axes, at, b = s.loop([8, 3])
    region = b.region()
    value = region.load(x.ref, at[0] * 3 + at[1], F32)
    masked = b.masked(b.op("lt", b.index(at[1]), b.constant(2, I64)), (), region.build([value]), 0.0, F32)
    b.store(last := Ref(joined.ref.storage, 1), at[0] * 6 + at[1] + 3, masked)
    s.kernel(axes, b)
    assert whole_concat(p := s.done(replace(joined, ref=last)), GPU) is p  # a slice that has a mask


def test_a_slice_does_not_move_past_an_overwriting_of_what_it_reads() -> None:
    s = Sketch()
    x, y = s.input(8, 3), s.input(8, 3)
    joined = s.buffer([8, 6])
    s.pointwise(lambda b, v: v, x, into=narrow(joined, 1, 0, 3))
    s.copy(x, y)
    last = replace(joined, ref=Ref(joined.ref.storage, 1))
    s.pointwise(lambda b, v: v, y, into=narrow(last, 1, 3, 3))
    assert whole_concat(program := s.done(last), GPU) is program


def test_a_reader_of_a_part_keeps_the_parts() -> None:
    s = Sketch()
    joined = s.cat(1, s.input(8, 3), s.input(8, 3))
    early = s.op("neg", replace(narrow(joined, 1, 0, 3), ref=Ref(joined.ref.storage, 0)))
    program = s.done(joined, early)
    nodes = program.nodes[0], program.nodes[2], program.nodes[1]
    program = replace(program, nodes=nodes)
    assert whole_concat(program, GPU) is program


def test_slices_that_compute_much_keep_their_kernels() -> None:
    """Each element would be computed as an element of each slice."""
    s = Sketch()
    joined = s.buffer([4096, 4006])
    for version in (0, 1):
        part = narrow(replace(joined, ref=Ref(joined.ref.storage, version)), 1, 2003 * version, 2003)
        x = s.input(4096, 2003)
        s.pointwise(lambda b, v: b.op("erf", b.op("lgamma", b.op("exp", b.op("lgamma", v)))), x, into=part)
    now = whole_concat(s.done(replace(joined, ref=Ref(joined.ref.storage, 1))), GPU)
    assert len(kernels(now)) == 2
    (refusal,) = [note for note in now.notes if isinstance(note, FusionRefusal)]
    assert refusal.reason == "one kernel for all slices would need more operations"
    assert refusal.figures.endswith("us each")
