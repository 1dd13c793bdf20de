"""Copies of results of calls, made by the calls themselves or left alone; the refusals are in e2e/test_deliver.py."""

from __future__ import annotations

from dataclasses import replace

from minductor.ir.program.nodes import Extern, Kernel, MergedKernel, Program
from minductor.options import Options
from minductor.passes.elide_copies.elide_copies import elide_copies
from minductor.target import Env
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch
from tests.verifying import verify


def copied_result() -> Program:
    """A call whose result a kernel copies into an input."""
    s = Sketch()
    x, y = s.input(3, 4), s.input(3, 4)
    return s.done(s.copy(y, s.extern(x)))


def test_the_call_writes_into_the_target_of_the_copy() -> None:
    program = copied_result()
    after = elide_copies(program, CPU)
    verify(after, "elide_copies")
    assert_same(program, after)
    (call,), copy = after.nodes, program.nodes[1]
    assert isinstance(copy, Kernel) and isinstance(call, Extern) and call.results == program.outputs
    assert after.notes == (MergedKernel("elide_copies", copy.name, call.name),)
    assert elide_copies(after, CPU) is after


def test_no_fusion_and_several_devices_leave_the_same_object() -> None:
    program = copied_result()
    assert elide_copies(program, Env(Options(fuse=False), CPU.target)) is program
    apart = replace(program, buffers=(replace(program.buffers[0], device="cuda:0"), *program.buffers[1:]))
    assert elide_copies(apart, CPU) is apart
