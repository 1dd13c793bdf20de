"""Targets: the table's rows make sense, and a wrong name is answered."""

import pytest

from minductor.core.errors import UnknownTarget
from minductor.target import TARGETS, Target, by_name


def test_names_are_those_that_goldens_and_tests_use() -> None:
    assert tuple(TARGETS) == ("cpu", "interpret", "sm_80", "sm_90", "sm_100", "gfx942")


@pytest.mark.parametrize("name", TARGETS)
def test_row(name: str) -> None:
    target = by_name(name)
    assert target.name == name
    assert target.kind in ("cpu", "interpret", "cuda", "hip")
    assert target.is_gpu == (target.kind != "cpu")
    assert (target.l1_bytes > 0) == (target.kind != "interpret")
    if target.is_gpu:
        assert target.warp in (32, 64) and target.max_threads % target.warp == 0
        assert target.shared_memory > 0 and target.registers > 0 and target.multiprocessors > 0


def test_cpu_knows_nothing_of_a_host() -> None:
    cpu = by_name("cpu")
    assert (cpu.l1_bytes, cpu.multiprocessors, cpu.bandwidth) == (32768, 0, 0)
    assert [cpu.lanes(size) for size in (1, 2, 4, 8)] == [256, 128, 64, 32]


def test_unknown_name() -> None:
    with pytest.raises(UnknownTarget, match="did you mean 'sm_100'"):
        by_name("sm100")


def test_another_table() -> None:
    toy = Target("toy", "toy")
    assert by_name("toy", {"toy": toy}) is toy
