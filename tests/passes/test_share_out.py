"""Smaller tiles for kernels of few elements on a GPU: which kernels get them, and what stays as it was."""

from __future__ import annotations

import pytest

from minductor.ir.program.bundled import bundled_kernels
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.passes.bundle.bundle import bundle
from minductor.passes.bundle.share_out import share_out
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch
from tests.rows import schedule

GPU, CPU = Env(Options(), by_name("sm_90")), Env(Options(), by_name("cpu"))


def scheduled(*sizes: int, op: str = "sin", env: Env = GPU) -> Program:
    s = Sketch()
    return bundle(schedule(s.done(s.op(op, s.input(*sizes))), env), env)


def launch(program: Program) -> tuple[list[int], object]:
    """The blocks of the grid and the number of warps of the only kernel."""
    (kernel,) = (node for node in program.nodes if isinstance(node, Kernel))
    assert kernel.schedule is not None
    warps = next((choice.default for choice in kernel.choices if choice.id == "warps"), None)
    return [loop.block for loop in loops(kernel.schedule.steps) if loop.kind == "grid"], warps


@pytest.mark.parametrize(
    ("sizes", "blocks", "warps"),
    [
        ((4096,), [256], 4),  # 16 programs in place of 4
        ((100_000,), [512], 8),
        ((1 << 20,), [1024], 4),  # each multiprocessor has programs enough
        ((100,), [128], 1),
    ],
)
def test_a_kernel_of_few_elements_has_small_tiles(sizes: tuple[int, ...], blocks: list[int], warps: int) -> None:
    assert launch(scheduled(*sizes)) == (blocks, warps)


def test_the_outer_axis_is_cut_first() -> None:
    """So that a program still walks along memory."""
    s = Sketch()
    rows, bias = s.input(16, 256), s.input(256)
    program = schedule(s.done(s.op("add", rows, bias)), GPU)
    assert launch(program)[0] == [4, 256] and launch(bundle(program, GPU)) == ([1, 256], 4)


def test_what_reduces_or_is_bundled_and_what_runs_on_a_cpu_stays() -> None:
    s = Sketch()
    several = s.done(*(s.op("neg", s.input(2000 + n)) for n in range(3)))
    made = bundle(schedule(several, GPU), GPU)
    assert [len(bundled_kernels(node)) for node in made.nodes if isinstance(node, Kernel)] == [3]
    assert launch(made)[0] == [1024] * 3
    for program, env in ((made, GPU), (scheduled(4096, env=CPU), CPU)):
        assert share_out(program, env) is program
