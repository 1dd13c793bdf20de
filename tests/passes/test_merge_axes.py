"""The stage that merges the axes of all kernels of a program; single kernels are in test_schedule.py."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.frontend.capture.capture import capture
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.passes.merge_axes.merge_axes import merge_axes
from minductor.target import Env, by_name
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch
from tests.rows import run_rows, schedule
from tests.verifying import verify


def extents(program: Program) -> list[list[str]]:
    return [[str(axis.extent) for axis in node.axes] for node in program.nodes if isinstance(node, Kernel)]


def test_each_kernel_gets_fewer_axes_and_a_second_run_changes_nothing() -> None:
    s = Sketch()
    x = s.input(3, 4)
    program = s.done(s.op("neg", x), s.reduce("sum", s.op("exp", x), 1))
    after = merge_axes(program, CPU)
    verify(after, "merge_axes")
    assert_same(program, after)
    assert extents(program) == [["3", "4"]] * 3 and extents(after) == [["12"], ["12"], ["3", "4"]]
    assert after.nodes[2] is program.nodes[2]
    assert merge_axes(after, CPU) is after


def test_a_kernel_with_a_schedule_stays() -> None:
    s = Sketch()
    program = s.done(s.op("neg", s.input(3, 4)))
    (kernel,) = schedule(program, CPU).nodes
    (old,) = program.nodes
    assert isinstance(kernel, Kernel) and isinstance(old, Kernel)
    scheduled = replace(program, nodes=(replace(old, schedule=kernel.schedule),))
    assert merge_axes(scheduled, CPU) is scheduled


def test_the_kernels_of_a_variant_have_merged_axes() -> None:
    env = Env(Options(autotune=True, matmul="auto"), by_name("sm_90"))
    traced = make_fx(lambda x, y: (x.sin() @ y).relu(), tracing_mode="fake")(torch.ones(64, 64), torch.ones(64, 64))
    program = run_rows(capture(traced, "inference"), env, "lower", "schedule")
    variants = [variant for node in program.nodes if isinstance(node, Kernel) for variant in node.variants]
    kernels = [node for variant in variants for node in variant.nodes if isinstance(node, Kernel)]
    assert [[str(axis.extent) for axis in kernel.axes] for kernel in kernels] == [["4096"]] * 2
