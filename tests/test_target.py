"""Targets: the table's rows make sense, and a wrong name is answered."""

from dataclasses import replace
from typing import Any

import pytest

from minductor.core.errors import UnknownTarget
from minductor.options import Options
from minductor.target import TARGETS, Env, Target, by_name


def test_names_are_those_that_goldens_and_tests_use() -> None:
    assert tuple(TARGETS) == ("cpu", "interpret", "sm_80", "sm_90", "sm_100", "gfx942")


@pytest.mark.parametrize("name", TARGETS)
def test_row(name: str) -> None:
    target = by_name(name)
    assert target.name == name
    assert target.kind in ("cpu", "interpret", "cuda", "hip")
    assert target.is_gpu == (target.kind != "cpu")
    if target.is_gpu:
        assert target.warp_size in (32, 64) and target.max_threads % target.warp_size == 0
        assert target.max_warps * target.warp_size <= target.max_threads and 0 < target.max_programs < 2**31
        assert target.shared_memory > 0 and target.registers > 0 and target.multiprocessors > 0


@pytest.mark.parametrize(
    ("name", "form", "lacking"),
    [
        ("cpu", "pointer", ["CUDA graphs have", "the form of block accesses has"]),
        ("gfx942", "descriptor", ["CUDA graphs have", "autotuning has", "the form of block accesses has"]),
        ("sm_80", "descriptor", ["the form of block accesses has"]),
        ("sm_90", "descriptor", []),
    ],
)
def test_what_a_target_does_not_have_is_noted_and_not_asked_for(name: str, form: str, lacking: list[str]) -> None:
    asked = Env(Options(autotune=True, cudagraphs=True, block_access=form), by_name(name))
    env, notes = asked.supported()
    assert notes == tuple(f"{what} no effect on {name}" for what in lacking)
    assert env.options.cudagraphs == ("CUDA graphs have" not in lacking)
    assert env.options.autotune == ("autotuning has" not in lacking)
    assert env.options.block_access == ("offsets" if "the form of block accesses has" in lacking else form)
    assert env.supported() == (env, ())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"nan_asserts": True}, "nan_asserts"),
        ({"verify_memory": "log"}, "verify_memory"),
        ({"wrapper": "fx"}, "a wrapper in fx"),
    ],
)
def test_what_the_host_reads_after_a_launch_is_not_captured(options: dict[str, Any], why: str) -> None:
    env, notes = Env(Options(cudagraphs=True, **options), by_name("sm_90")).supported()
    assert notes == (f"CUDA graphs have no effect with {why}",) and not env.options.cudagraphs


@pytest.mark.parametrize("has_tuning", [True, False])
@pytest.mark.parametrize("has_variants", [True, False])
def test_variants_are_a_capability(*, has_variants: bool, has_tuning: bool) -> None:
    """Variants by size need no clock, and launches are measured without variants."""
    target = replace(by_name("sm_90"), name="toy", has_variants=has_variants, has_tuning=has_tuning)
    asked = Env(Options(autotune=True, variant="looped", size_hints=(64, 4096)), target)
    env, notes = asked.supported()
    without = ["forced variants have", "variants by size have"] * (not has_variants)
    assert notes == tuple(f"{what} no effect on toy" for what in ["autotuning has"] * (not has_tuning) + without)
    asked_for = (env.options.autotune, env.options.variant, env.options.size_hints)
    assert asked_for == (has_tuning, "looped" if has_variants else "", (64, 4096) if has_variants else ())
    assert env.supported() == (env, ())


def test_cpu_knows_nothing_of_a_host() -> None:
    cpu = by_name("cpu")
    assert (cpu.multiprocessors, cpu.registers) == (0, 0)
    assert [cpu.lanes(size) for size in (1, 2, 4, 8)] == [256, 128, 64, 32]


def test_unknown_name() -> None:
    with pytest.raises(UnknownTarget, match="did you mean 'sm_100'"):
        by_name("sm100")


def test_another_table() -> None:
    toy = Target("toy", "toy")
    assert by_name("toy", {"toy": toy}) is toy
