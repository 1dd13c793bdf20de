"""Consumers of concatenations, split at the seams or left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minductor.ir.program.nodes import FusionRefusal, Kernel, Program, Ref, body_reads
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.split_concat.split_concat import split_concat
from minductor.target import Env
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch, narrow, transpose
from tests.rows import inline
from tests.verifying import verify


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def made(program: Program) -> Program:
    now = inline(program, CPU)
    verify(now, "elide_copies")
    assert_same(program, now)
    now = fuse(now, CPU)
    verify(now, "fuse")
    assert_same(program, now)
    return now


def test_rotary_embedding_is_one_loop_of_straight_loads() -> None:
    s = Sketch()
    x, cos, sin = s.input(4, 8, 16), s.input(8, 16), s.input(8, 16)
    turned = s.cat(2, s.op("neg", narrow(x, 2, 8, 8)), narrow(x, 2, 0, 8))
    out = s.op("add", s.op("mul", x, cos), s.op("mul", turned, sin))
    (kernel,) = kernels(made(s.done(s.extern(out))))
    assert len(list(body_reads(kernel.body))) == 6
    assert [str(axis.extent) for axis in kernel.axes] == ["4", "8", "8"]
    assert sorted(origin.node for origin in kernel.origins) == [f"k{n}" for n in range(6)]


def test_slices_may_be_written_in_any_order() -> None:
    s = Sketch()
    x = s.input(3, 4)
    joined = s.buffer([3, 8])
    s.pointwise(lambda b, v: b.op("neg", v), x, into=narrow(joined, 1, 4, 4))
    last = replace(joined, ref=Ref(joined.ref.storage, 1))
    s.pointwise(lambda b, v: b.op("exp", v), x, into=narrow(last, 1, 0, 4))
    assert len(kernels(made(s.done(s.op("neg", last))))) == 1


@pytest.mark.parametrize("dim", [0, 1])
def test_uneven_slices_of_a_transposed_read(dim: int) -> None:
    s = Sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    joined = s.cat(dim, x, narrow(y, dim, 1, 2), s.op("exp", y))
    result = made(s.done(s.op("neg", transpose(joined, 0, 1))))
    assert len(kernels(result)) == 3


def test_many_slices_are_split_as_few_are() -> None:
    s = Sketch()
    parts = [s.input(64, 512) for _ in range(9)]
    now = split_concat(s.done(s.op("neg", s.cat(0, *parts))), CPU)
    assert len(kernels(now)) == len(parts)


def test_slices_that_would_be_computed_many_times_stay_whole() -> None:
    """Each element of the concatenation is read at four places, and takes several special functions."""
    s = Sketch()
    x, y = s.input(512, 512), s.input(512, 512)
    joined = s.buffer([512, 1024])
    for version, view in enumerate((x, y)):
        part = narrow(replace(joined, ref=Ref(joined.ref.storage, version)), 1, 512 * version, 512)
        s.pointwise(lambda b, v: b.op("erf", b.op("lgamma", b.op("exp", b.op("sin", v)))), view, into=part)
    last = replace(joined, ref=Ref(joined.ref.storage, 1))
    rows = [narrow(last, 0, start, 509) for start in range(4)]
    total = s.pointwise(lambda b, *v: b.op("add", b.op("add", v[0], v[1]), b.op("add", v[2], v[3])), *rows)
    now = split_concat(s.done(total), CPU)
    assert len(kernels(now)) == 3
    (refusal,) = [note for note in now.notes if isinstance(note, FusionRefusal)]
    assert refusal.reason == "split at its seams it would need more operations"
    assert refusal.figures.endswith("us whole")


def test_what_cannot_be_split_is_left_as_the_same_object() -> None:
    s = Sketch()
    x = s.input(3, 4)
    joined = s.cat(1, x, x)
    assert split_concat(program := s.done(joined, s.op("neg", joined)), CPU) is program  # the caller reads it
    s = Sketch()
    x = s.input(3, 4)
    joined = s.cat(1, x, x)
    assert split_concat(program := s.done(s.op("neg", joined), s.op("exp", joined)), CPU) is program  # two consumers
    s = Sketch()
    x = s.input(3, 4)
    assert split_concat(program := s.done(s.op("neg", narrow(s.cat(1, x, x), 1, 1, 4))), CPU) is program
    s = Sketch()
    x = s.input(3, 4)
    assert split_concat(program := s.done(s.op("neg", s.cat(1, *[x] * 342))), CPU) is program  # too many ops
    s = Sketch()
    x = s.input(3, 4)
    assert split_concat(program := s.done(s.reduce("sum", s.cat(1, x, x), 1)), CPU) is program  # no pointwise consumer
    s = Sketch()
    x = s.input(3, 4)
    total = s.reduce("sum", s.op("neg", s.cat(1, x, x)), 1)
    assert split_concat(program := s.done(total), CPU) is program  # fuse would rather keep the consumer whole


def test_no_fusion_and_several_devices_leave_the_same_object() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.extern(s.op("neg", s.cat(1, x, x))))
    assert split_concat(program, Env(Options(fuse=False), CPU.target)) is program
    apart = replace(program, buffers=(replace(program.buffers[0], device="cuda:0"), *program.buffers[1:]))
    assert split_concat(apart, CPU) is apart
    after = split_concat(program, CPU)
    assert {note.stage for note in after.notes} == {"split_concat"} and len(kernels(after)) == 2


def test_a_slice_does_not_move_past_an_overwriting_of_what_it_reads() -> None:
    s = Sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    joined = s.cat(1, x, y)
    s.copy(x, y)
    program = s.done(s.op("neg", joined))
    assert split_concat(program, CPU) is program


def test_a_consumer_that_fills_a_slice_itself_stays_whole() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.cat(0, s.op("neg", s.cat(1, x, s.op("exp", x))), s.input(2, 8)))
    made(program)
