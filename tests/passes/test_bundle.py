"""Kernels that do the same to different tensors, in one launch; the parts, taken apart again; and what stays apart."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from minductor.codegen.cpp.cpp_kernels import kernel_text
from minductor.codegen.triton.triton_kernels import kernel_functions
from minductor.codegen.triton.triton_launch import launch_choices_of, launch_metadata
from minductor.codegen.triton.triton_launch import programs as programs_of
from minductor.core.dtypes import F32
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import symbol
from minductor.ir.program.build import combine
from minductor.ir.program.bundled import bundled_kernels
from minductor.ir.program.nodes import FusionRefusal, Kernel, Program, View
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.ir.program.signature import canonical, signature
from minductor.options import Options
from minductor.passes.bundle.bundle import bundle, bundle_equal
from minductor.target import Env, by_name
from tests.passes.graphs import assert_same, programs
from tests.passes.sketch import CPU, Sketch, element, transpose
from tests.rows import schedule
from tests.verifying import verify

GPU = Env(Options(), by_name("sm_90"))


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def bundled(program: Program) -> Program:
    """The program after the pass: checked, evaluated, printed and read back."""
    tiled = schedule(program, CPU)
    made = bundle(tiled, CPU)
    verify(made, "bundle")
    assert_same(program, made)
    assert parse_program(print_program(made)).nodes == made.nodes
    return made


def several(*sizes: tuple[int, ...]) -> Program:
    s = Sketch()
    return s.done(*[s.op("exp", s.op("neg", s.input(*size))) for size in sizes])


def test_the_same_operators_on_other_tensors_are_one_kernel() -> None:
    made = bundled(several((4, 8), (3,), (4, 8)))
    assert len(kernels(made)) == 2  # neg, exp: the second needs the first


def test_the_parts_are_the_kernels_that_were_joined() -> None:
    program = schedule(several((4, 8), (3,), (4, 8)), CPU)
    buffers = program.buffer_table()

    def text(kernel: Kernel) -> str:
        return re.sub(r"\bi\d+", "i", canonical(kernel, signature(kernel).storages, buffers)[1])

    made = kernels(bundle(program, CPU))
    assert sorted(text(part) for kernel in made for part in bundled_kernels(kernel)) == sorted(
        map(text, kernels(program))
    )
    assert all(len(bundled_kernels(kernel)) == 3 for kernel in made)


def test_equal_parts_are_one_function() -> None:
    kernel = kernels(bundled(several((4, 8), (3,), (4, 8))))[0]
    text = kernel_text(kernel, "step", dict.fromkeys(signature(kernel).storages, F32))
    assert text.count("static int64_t step_part") == 2
    assert text.count("  step_part0(") == 2
    assert text.count("  step_part1(") == 1


def test_who_needs_another_stays_apart() -> None:
    s = Sketch()
    x = s.op("exp", s.input(4))
    made = bundled(s.done(s.op("exp", x), s.op("neg", s.input(3))))
    assert len(kernels(made)) == 3


def test_who_needs_another_by_a_third_stays_apart() -> None:
    s = Sketch()
    x = s.reduce("sum", s.op("exp", s.input(4, 5)), 1)
    assert len(kernels(bundled(s.done(s.op("exp", x))))) == 3


def test_large_storages_of_our_own_are_not_kept_alive_together() -> None:
    s = Sketch()
    large = [s.op("exp", s.input(600, 600)) for _ in range(2)]
    made = schedule(s.done(*[s.reduce("sum", x, 0) for x in large]), CPU)
    assert len(kernels(bundle(made, CPU))) == 4


@pytest.mark.parametrize(("env", "count"), [(GPU, 1), (CPU, 2)], ids=["sm_90", "cpu"])
def test_what_is_alive_at_once_is_weighed_beside_what_a_gpu_is_given(env: Env, count: int) -> None:
    """3 MB of gradients, beside saved tensors of 256 MB; a CPU would lose them from its caches."""
    s = Sketch()
    small = [s.op("exp", s.input(600, 600)) for _ in range(2)]
    given = s.reduce("sum", s.input(1 << 26), 0)
    made = bundle(schedule(s.done(*[s.reduce("sum", x, 0) for x in small], given), env), env)
    assert sum("exp" in {op.name for op in kernel.body.ops} for kernel in kernels(made)) == count


@pytest.mark.parametrize(("env", "count"), [(GPU, 1), (CPU, 2)], ids=["sm_90", "cpu"])
def test_weights_that_are_laid_out_anew_are_one_launch_on_a_gpu(env: Env, count: int) -> None:
    """They have three axes: outputs, the window, and inputs."""
    s = Sketch()
    copies: list[View] = []
    for outputs, inputs in ((64, 64), (128, 64)):
        copies.append(s.op("neg", transpose(s.input(outputs, inputs, 9), 1, 2)))
    made = bundle(schedule(s.done(*copies), env), env)
    verify(made, "bundle")
    assert len(kernels(made)) == count


def refusals(program: Program) -> list[FusionRefusal]:
    return [note for note in program.notes if isinstance(note, FusionRefusal)]


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
def test_long_kernels_stay_apart_with_the_seconds_of_both_ways(env: Env) -> None:
    """What a launch costs is a hundredth of what the memory takes."""
    s = Sketch()
    made = bundle(schedule(s.done(*[s.op("neg", s.input(8192, 8192)) for _ in range(3)]), env), env)
    assert [len(bundled_kernels(kernel)) for kernel in kernels(made)] == [1, 1, 1]
    assert [(r.first, r.second, r.reason) for r in refusals(made)] == [
        ("k0", "k1", "one launch saves too little"),
        ("k1", "k2", "one launch saves too little"),
    ]
    assert all(re.fullmatch(r"\d+ us together, \d+ us apart", refusal.figures) for refusal in refusals(made))


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
def test_a_short_kernel_joins_a_long_one(env: Env) -> None:
    s = Sketch()
    made = bundle(schedule(s.done(s.op("neg", s.input(8192, 8192)), s.op("neg", s.input(64, 64))), env), env)
    assert [len(bundled_kernels(kernel)) for kernel in kernels(made)] == [2]


def test_kernels_of_sizes_that_only_the_call_knows_are_one_launch() -> None:
    """Long ones lose nothing by it, and short ones would lose most of their time without."""
    program = parse_program(
        """program inference
  symbol s0 [1, inf]
  symbol s1 [1, inf]
  input arg0: f32[16*s0] stride [1] cpu
  input arg1: f32[16*s1] stride [1] cpu
  buffer buf0: f32[16*s0] stride [1] cpu
  buffer buf1: f32[16*s1] stride [1] cpu
  kernel k0 (i0: 16*s0) from neg = aten.neg.default
    %0 = load arg0@0[i0] : f32 {i0}
    %1 = neg %0 : f32 {i0}
    %2 = store buf0@0[i0] %1 {i0}
  kernel k1 (i0: 16*s1) from neg_1 = aten.neg.default
    %0 = load arg1@0[i0] : f32 {i0}
    %1 = neg %0 : f32 {i0}
    %2 = store buf1@0[i0] %1 {i0}
  return (buf0@0 f32[16*s0] stride [1] offset 0, buf1@0 f32[16*s1] stride [1] offset 0)
"""
    )
    assert len(kernels(bundle(schedule(program, CPU), CPU))) == 1


def test_a_limit_is_a_reason_without_seconds() -> None:
    s = Sketch()
    made = bundle(schedule(s.done(*[s.op("neg", s.input(64)) for _ in range(70)]), CPU), CPU)
    assert [len(bundled_kernels(kernel)) for kernel in kernels(made)] == [64, 6]
    assert [(r.reason, r.figures) for r in refusals(made)] == [("one launch has at most 64 such kernels", "")]


def test_a_program_without_such_kernels_stays_the_same_object() -> None:
    s = Sketch()
    program = schedule(s.done(s.op("exp", s.op("neg", s.input(4, 4)))), CPU)
    assert bundle(program, CPU) is program


@settings(deadline=None)
@given(programs())
def test_random_programs_compute_the_same(program: Program) -> None:
    bundled(program)


@pytest.mark.parametrize(
    ("old", "new"), [("parts 1", "parts 0"), ("vector i1 {", "vector i0 {"), ("parts 1", "parts 2")]
)
def test_parts_that_are_not_apart_are_refused(old: str, new: str) -> None:
    s = Sketch()
    text = print_program(bundled(s.done(s.op("neg", s.input(4)), s.op("neg", s.input(3)))))
    assert old in text
    with pytest.raises(VerifyError, match="the parts of a bundled kernel are independent"):
        verify(parse_program(text.replace(old, new)), "bundle")


def test_a_part_keeps_an_axis_that_it_only_reduces_over() -> None:
    """The sum of a constant varies over nothing, but has as many terms as the axis has elements."""
    s = Sketch()
    sums: list[View] = []
    for size in (4, 5):
        axes, at, b = s.loop((3, size))
        sums.append(s.buffer((3,)))
        total = b.reduce([b.constant(2.0, F32)], [axes[1].name], combine("sum", F32))
        b.store(sums[-1].ref, element(sums[-1], at[:1]), total)
        s.kernel(axes, b)
    (kernel,) = kernels(bundled(s.done(*sums)))
    assert [len(part.axes) for part in bundled_kernels(kernel)] == [2, 2]
    assert "+ 2.0f" in kernel_text(kernel, "sums", dict.fromkeys(signature(kernel).storages, F32))


def test_a_float_of_the_call_reaches_the_parts() -> None:
    s, factor = Sketch(), symbol("f0", "real")
    made = [s.pointwise(lambda b, x: b.op("mul", x, b.cast(b.index(factor), F32)), s.input(n)) for n in (3, 4)]
    (kernel,) = kernels(bundle(schedule(s.done(*made), CPU), CPU))
    text = kernel_text(kernel, "scale", dict.fromkeys(signature(kernel).storages, F32))
    assert text.count("double f0") == 3 and "int64_t f0" not in text


def test_on_a_gpu_parts_have_blocks_of_the_same_sizes() -> None:
    program = schedule(several((40, 80), (5000,), (3, 3)), GPU)
    made = kernels(bundle_equal(program, GPU))
    assert sorted(len(bundled_kernels(kernel)) for kernel in made) == [
        1,
        1,
        2,
        2,
    ]  # neg and exp; the short one is alone
    together = next(kernel for kernel in made if len(bundled_kernels(kernel)) == 2)
    names = dict.fromkeys(signature(together).storages, F32)
    assert programs_of(together) == (4, 5, "+")
    assert "if (number >= end0) & (number < end1):" in kernel_functions(together, "k", names)["k"]


def test_autotuning_of_a_bundle_of_many_axes_tries_other_numbers_of_warps() -> None:
    """Five parts have more axes than one tile: the launches with other warps ask for no tile of the whole kernel."""
    made = kernels(bundle(schedule(several(*[(4000 + n,) for n in range(5)]), GPU), GPU))
    assert [len(bundled_kernels(kernel)) for kernel in made] == [5, 5]
    assert [(c.id, c.options) for c in launch_choices_of(made[0], GPU)] == [("warps", (2, 4, 8))]
    names = dict.fromkeys(signature(made[0]).storages, F32)
    assert launch_metadata(made[0], "k", names, launch_choices_of(made[0], GPU)).choices == {"warps": (2, 4, 8)}
