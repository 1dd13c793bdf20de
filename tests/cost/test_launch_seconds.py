"""Prices of kernels in one launch: what they share, what that saves, and when it is too little."""

from __future__ import annotations

import pytest

from minductor.cost.launch_seconds import Launch, LaunchPrices
from minductor.cost.seconds import demand
from minductor.ir.program.nodes import Kernel, Program
from minductor.options import Options
from minductor.target import Env, by_name
from tests.passes.sketch import CPU, Sketch
from tests.rows import schedule

GPU = Env(Options(), by_name("sm_90"))


def launches(env: Env, *sizes: tuple[int, ...]) -> tuple[LaunchPrices, list[Launch]]:
    """The launches of a kernel for each size."""
    s = Sketch()
    program = schedule(s.done(*[s.op("neg", s.input(*size)) for size in sizes]), env)
    prices = LaunchPrices(program.real_table(), env.target, program.hints)
    return prices, [prices.launch(kernel) for kernel in _kernels(program)]


def _kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def test_on_a_cpu_one_launch_saves_a_launch_whatever_the_threads() -> None:
    prices, (one, other) = launches(CPU, (64, 64), (4096, 4096))
    whole = prices.together(one, other)
    saved = [a + b - both for a, b, both in zip(one.seconds, other.seconds, whole.seconds, strict=True)]
    assert saved == pytest.approx([CPU.target.cpu.launch] * 4)


def test_on_a_gpu_kernels_of_few_programs_share_a_wave() -> None:
    prices, (one, other) = launches(GPU, (256, 256), (256, 256))
    assert one.demand is not None and one.demand.programs < GPU.target.multiprocessors / 2
    assert GPU.target.machine is not None
    body = one.seconds[0] - GPU.target.machine.launch
    assert prices.together(one, other).seconds[0] - GPU.target.machine.launch < 1.3 * body


def test_on_a_gpu_kernels_that_fill_it_take_the_sum_of_their_times() -> None:
    prices, (one, other) = launches(GPU, (8192, 8192), (8192, 4096))
    whole = prices.together(one, other)
    assert GPU.target.machine is not None
    assert whole.seconds[0] == pytest.approx(one.seconds[0] + other.seconds[0] - GPU.target.machine.launch)


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
@pytest.mark.parametrize(("one", "other", "is_worth_it"), [(64, 64, True), (64, 8192, True), (8192, 8192, False)])
def test_what_is_saved_is_compared_with_the_shorter_launch(env: Env, one: int, other: int, is_worth_it: bool) -> None:
    prices, pair = launches(env, (one, one), (other, other))
    slower = prices.too_little(*pair, prices.together(*pair))
    assert (slower is None) == is_worth_it
    assert slower is None or slower.this < slower.other < 1.03 * slower.this


@pytest.mark.parametrize("env", [CPU, GPU], ids=["cpu", "sm_90"])
def test_equal_kernels_on_other_tensors_are_priced_once(env: Env) -> None:
    _, (one, same, wider) = launches(env, (64, 48), (64, 48), (64, 96))
    assert one is same
    assert one is not wider


def test_the_launch_of_one_kernel_takes_what_the_kernel_takes() -> None:
    s = Sketch()
    program = schedule(s.done(s.reduce("sum", s.input(256, 1024), 1)), GPU)
    (kernel,) = _kernels(program)
    table = program.real_table()
    found = LaunchPrices(table, GPU.target, ()).launch(kernel)
    assert found.demand == demand(kernel, table, GPU.target, ())
    assert found.seconds == (found.demand.cost(GPU.target).seconds,)


def test_the_last_program_does_the_work_of_a_small_kernel() -> None:
    """It saves a launch, less the counting; the work of all programs of the small kernel is that of one."""
    prices, (large, small, wide) = launches(GPU, (512, 512), (16, 16), (64, 512))
    machine = GPU.target.machine
    assert machine is not None and large.demand is not None and wide.demand is not None
    found = prices.finished(large, small, small, 1)
    assert found.other == large.seconds[0] + small.seconds[0]
    counting = 2 * machine.cache_latency + large.demand.programs * machine.atomic
    assert found.this == pytest.approx(found.other - machine.launch + counting)
    assert wide.demand.programs > 8
    assert prices.finished(large, wide, wide, 1).this > found.this + 7 * wide.demand.longest


def test_blocks_are_finished_side_by_side() -> None:
    """Each block has its own counter and program; what stays apart may have another price."""
    prices, (large, small, wide) = launches(GPU, (512, 512), (16, 16), (64, 512))
    assert wide.demand is not None
    one, all_blocks = (prices.finished(large, wide, small, blocks) for blocks in (1, wide.demand.programs))
    assert all_blocks.other == one.other == large.seconds[0] + small.seconds[0]
    assert all_blocks.this < one.this - 7 * wide.demand.longest


def test_more_programs_count_longer() -> None:
    prices, (small, *pair) = launches(GPU, (16, 16), (2048, 1024), (4096, 1024))
    saved = [found.other - found.this for found in (prices.finished(each, small, small, 1) for each in pair)]
    assert saved[0] > saved[1]
