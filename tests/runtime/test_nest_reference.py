"""The interpreter of loop nests: every nest that the stage `schedule` makes gives the numbers of the kernel's body.

Takes the kernels of the C++ tests, matrix products, bundles and random programs, with integers in place of floats.
Refuses a nest that gives other numbers, or that the interpreter refuses.
"""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from minductor.analysis.both_ways import both_ways, objection, reduced_groups
from minductor.core.dtypes import F32
from minductor.core.expressions.expr import as_int, evaluate
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.loop_order.loop_order import loop_order
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.split.split import split
from minductor.target import Env
from tests.codegen import cases
from tests.codegen.cases import BUILDERS, SIZES, randn
from tests.passes import sketch
from tests.passes.graphs import programs
from tests.passes.test_schedule import kernels as random_kernels
from tests.rows import inline
from tests.runtime.nests import TARGETS, arguments, assert_same, kernels, schedules, with_ends

# Kernels of the C++ tests that take seconds here, and smaller ones of the same kind.
LARGE = {
    "group_norm_last": lambda: cases.group_norm_last(200),
    "scan_between_maps": lambda: cases.scan_between_maps(2, 600, reverse=False),
    "scan_between_maps_back": lambda: cases.scan_between_maps(2, 600, reverse=True),
    "scan_of_two": lambda: cases.scan_of_two(1, rows=2),
    "scan_of_extremes": lambda: cases.scan_of_extremes(rows=3),
    "layer_norm_sums_backward": lambda: cases.layer_norm_backward(120),
    "scan_between_maps_symbolic": lambda: cases.scan_between_maps(2, cases.S1, reverse=False),
    "scan_between_maps_symbolic_back": lambda: cases.scan_between_maps(2, cases.S1, reverse=True),
}
# Rows that the recipes of a GPU hold with several numbers of warps, and a sum that is unrolled.
RECIPES = {
    "softmax_of_long_rows": lambda: cases.softmax((2, 3000)),
    "sums_of_few_rows": lambda: cases.reduced((4, 300), (0,), "sum"),
}
# On a CPU each takes a second and more, and has a smaller kernel of its kind among the others.
LONG = (
    *("symbolic_ends", "softmax_short", "sum_of_long_rows", "gathered_along_rows_symbolic", "bent_symbolic"),
    *("sums_both_ways_of_four_axes", "argmax_in_parts", "softmax_of_long_rows", "gathered_and_computed_symbolic"),
)
NAMED = {**BUILDERS, **LARGE, **RECIPES}


def points(name: str) -> int:
    (kernel,) = kernels(NAMED[name]().program())
    return prod(evaluate(axis.extent, SIZES) for axis in kernel.axes)


def is_for_gpus(name: str) -> bool:
    """Whether a kernel may be one for a GPU.

    The third value of `scan_of_two` depends on the order in which the scan is combined, and only CPUs scan one by one.
    """
    return not name.startswith("scan_of_two")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in NAMED])
def test_kernels_of_a_cpu(name: str) -> None:
    assert_recipes(NAMED[name](), "cpu")


@pytest.mark.parametrize("name", [name for name in NAMED if is_for_gpus(name)])
def test_kernels_of_a_gpu(name: str) -> None:
    assert_recipes(NAMED[name](), "sm_90")


@pytest.mark.parametrize("name", [name for name in NAMED if is_for_gpus(name) and points(name) < 20_000])
def test_kernels_of_a_gpu_with_small_tiles(name: str) -> None:
    assert_recipes(NAMED[name](), "small")


def assert_recipes(built: cases.Sketch, target: str) -> None:
    """Each recipe that is legal for the kernel gives the numbers of its body."""
    program = built.program()
    for _, made in schedules(program, TARGETS[target]):
        assert_same(made, arguments(program, SIZES, built.tensors), TARGETS[target], program)


def test_each_recipe_of_a_gpu_is_run() -> None:
    found = {name for built in RECIPES.values() for name, _ in schedules(built().program(), TARGETS["sm_90"])}
    assert {"online", "looped", "persistent4", "persistent8", "persistent16", "persistent32", "unrolled"} <= found


def fused(program: Program, env: Env) -> Program:
    """The program after the stages before `order`."""
    for stage in (inline, fuse, loop_order, split):
        program = stage(program, env)
    return program


@pytest.mark.parametrize("target", ["sm_90", "small"])
@pytest.mark.parametrize("size", [(64, 64, 64), (70, 90, 100), (9, 33, 20)])
def test_matrix_products(size: tuple[int, int, int], target: str) -> None:
    """What a matrix unit adds up from the factors, a bias and an activation behind it, in one kernel."""
    rows, inner, columns = size
    s = cases.Sketch((rows, columns, inner))
    i, j, k = s.i
    x, w = s.read("x", randn(rows, inner), F32, inner * i + k), s.read("w", randn(inner, columns), F32, columns * k + j)
    total = s.b.reduce([s.b.op("mul", s.b.op("neg", x), w)], ["i2"], combine("sum", F32))
    s.write(s.b.op("relu", s.b.op("add", total, s.read("b", randn(columns), F32, j))), F32, axes=(0, 1))
    ((_, made),) = schedules(s.program(), TARGETS[target])
    (kernel,) = kernels(made)
    assert kernel.schedule is not None and kernel.schedule.dots
    assert_same(made, arguments(made, {}, s.tensors), TARGETS[target])


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_a_bundle(target: str) -> None:
    s = sketch.Sketch()
    made = s.done(*(s.op("mul", s.op("exp", x), x) for x in [s.input(30 + n, 7) for n in range(4)]))
    env = Env(Options(), TARGETS[target])
    (_, bundled), *_ = schedules(fused(made, env), env.target)
    (kernel,) = kernels(bundled)
    assert kernel.schedule is not None and len(kernel.schedule.parts) == 3
    assert_same(bundled, sketch.arguments(bundled), env.target)


@settings(max_examples=60, deadline=None)
@given(programs(scans=2, mutations=2, sizes=(2, 3, 4, 33)), st.sampled_from(sorted(TARGETS)))
def test_random_programs(program: Program, target: str) -> None:
    env = Env(Options(), TARGETS[target])
    for _, made in schedules(fused(program, env), env.target):
        assert_same(made, sketch.arguments(made), env.target, program)


def can_be_fused(kernel: Kernel) -> bool:
    """Whether all reductions run over the same axes, or over rows and columns in one pass: `fuse` makes no others."""
    ways = both_ways(kernel.body, kernel.axes)
    if ways is None:
        return len(reduced_groups(kernel.body)) < 2
    return objection(kernel.body, kernel.axes, ways) is None


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(random_kernels((1, 2, 3, 17, 64, 300, 5000)))
def test_random_kernels(program: Program) -> None:
    (kernel,) = kernels(program)
    assume(prod(as_int(axis.extent) or 1 for axis in kernel.axes) <= 8000)
    assume(can_be_fused(merge_kernel_axes(kernel)))
    whole = with_ends(program)
    for _, made in schedules(whole, TARGETS["cpu"]):
        assert_same(made, sketch.arguments(made), TARGETS["cpu"], whole)
