"""Prices of scheduled kernels: what makes a kernel dearer, and what bounds it."""

from __future__ import annotations

from dataclasses import replace

from minductor.cost.seconds import Cost, seconds, spill_seconds
from minductor.ir.program.nodes import Kernel
from minductor.target import HOPPER, by_name
from tests.passes.test_recipes import softmax, tiled

TARGET = by_name("sm_90")


def price(rows: int, length: int, recipe: str) -> Cost:
    program = softmax(rows, length)
    return seconds(tiled(program, recipe)[0], program.real_table(), TARGET, ())


def test_bytes_take_the_time_of_a_copy() -> None:
    assert TARGET.machine is not None
    moved = 2 * 4 * 65536 * 2048  # bytes: 32-bit values are read and written
    assert price(65536, 2048, "persistent8").memory == moved / TARGET.machine.bandwidth


def test_a_row_that_left_the_cache_is_read_again() -> None:
    near, far = price(65536, 2048, "looped"), price(1024, 131072, "looped")
    assert far.memory > 1.8 * near.memory


def test_programs_with_too_many_warps_wait_for_each_other() -> None:
    few, many = price(65536, 2048, "persistent4"), price(65536, 2048, "persistent32")
    assert many.bound == "waiting"
    assert many.waiting > 5 * few.waiting


def test_the_recurrence_of_a_softmax_is_arithmetic() -> None:
    assert price(16384, 8192, "online").arithmetic > 2 * price(16384, 8192, "persistent8").arithmetic


def test_values_that_do_not_fit_the_registers_cost() -> None:
    program = softmax(2048, 65536)
    kernel, _ = tiled(program, "persistent32")
    roomy = replace(TARGET, registers=4 * TARGET.registers)
    assert (
        seconds(kernel, program.real_table(), TARGET, ()).cache > seconds(kernel, program.real_table(), roomy, ()).cache
    )


def test_a_sum_of_a_short_axis_moves_values_between_threads() -> None:
    from tests.passes.test_recipes import sum_of_few

    program = sum_of_few(4)
    table = program.real_table()
    prices = {name: seconds(_only(tiled(program, name)), table, TARGET, ()) for name in ("persistent", "unrolled")}
    assert prices["persistent"].bound == "cache"
    assert prices["persistent"].seconds > 4 * prices["unrolled"].seconds


def test_a_target_that_states_no_registers_has_prices() -> None:
    program = softmax(65536, 2048)
    kernel, _ = tiled(program, "persistent8")
    bare = replace(TARGET, registers=0, thread_registers=0, multiprocessors=0, l2_bytes=0)
    assert 0 < seconds(kernel, program.real_table(), bare, ()).seconds < 1


def test_the_price_is_a_number_for_a_kernel_without_axes() -> None:
    from tests.passes.sketch import Sketch

    s = Sketch()
    kernel, _ = tiled(s.done(s.op("neg", s.input())))
    assert 0 < seconds(kernel, {**s.done(s.op("neg", s.input())).real_table()}, TARGET, ()).seconds < 1e-3


def _only(pair: tuple[Kernel, tuple[str, ...]]) -> Kernel:
    return pair[0]


def test_few_registers_that_do_not_fit_stay_near_the_units() -> None:
    """64 of 256 threads need 64 KiB of the first cache; of 1,024 threads, in two programs, they leave it."""
    assert spill_seconds(0, 256, 1, HOPPER) == 0
    near, far = spill_seconds(64, 256, 1, HOPPER), spill_seconds(64, 1024, 2, HOPPER)
    assert far == 8 * 4 * near > 0


def test_a_row_of_odd_length_is_cheaper_with_edges() -> None:
    """Its loads and stores are wide; a row that starts at multiples of 16 bytes has no such recipe."""
    program = softmax(16384, 4097)
    table = program.real_table()
    plain, aligned = (seconds(_only(tiled(program, name)), table, TARGET, ()) for name in ("persistent4", "aligned4"))
    assert aligned.cache < plain.cache / 2 and aligned.memory == plain.memory
