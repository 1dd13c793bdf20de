"""The option `deterministic`: each switch that it turns off, shown by clocks and sizes that would decide otherwise.

The table in README.md, "Deterministic results", lists the same switches. Recorded winners are shown in
tests/runtime/test_tune.py, and learned choices in tests/heuristics/test_asking.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import minductor
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import LAUNCHES, read_launches
from minductor.runtime.tune.tune import Tuner
from tests.runtime.test_launch_search import LAUNCH, Machine, far

Clock = Callable[[Callable[[], object]], float]

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Counted:
    """A clock that counts how often it is asked."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.asked = clock, 0

    def __call__(self, run: Callable[[], object]) -> float:
        self.asked += 1
        return self.clock(run)


def inverse(seed: int) -> Clock:
    """A clock for which each run takes longer than the one before it; for odd seeds the inverse of its seconds."""
    asked = count(1)

    def clock(run: Callable[[], object]) -> float:
        run()
        return float(next(asked)) ** (-1 if seed % 2 else 1)

    return clock


def random_clock(seed: int) -> Clock:
    """A clock that says anything."""
    numbers = Random(seed)

    def clock(run: Callable[[], object]) -> float:
        run()
        return 0.1 + numbers.random()

    return clock


CLOCKS: dict[str, Callable[[int], Clock]] = {"inverse": inverse, "random": random_clock}


def run_once(
    folder: Path, fn: Callable[..., Tensor], *args: Tensor, clock: Clock, **options: Any
) -> tuple[Tensor, Compiled]:
    torch._dynamo.reset()
    seen: list[Compiled] = []
    made = Compiler(
        environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(folder)}, observer=seen.append, tuning_clock=clock
    )
    return torch.compile(fn, backend=made, options=options)(*args), seen[0]


def rows(x: Tensor) -> Tensor:
    return x.exp().sum(-1)


@pytest.mark.parametrize("wrapper", [pytest.param("python", marks=pytest.mark.long), "cpp"])
@pytest.mark.parametrize("clock", CLOCKS)
def test_no_clock_chooses_between_variants_of_a_sum(tmp_path: Path, clock: str, wrapper: str) -> None:
    x, found = torch.randn(8, 40001), dict[bool, set[bytes]]()
    for is_deterministic in (True, False):
        texts = found[is_deterministic] = set()
        for seed in range(3):
            asked = Counted(CLOCKS[clock](seed))
            folder = tmp_path / f"{is_deterministic}{seed}"
            options = {"autotune": True, "deterministic": is_deterministic, "wrapper": wrapper}
            result, _ = run_once(folder, rows, x, clock=asked, **options)
            texts.add(result.numpy().tobytes())
            assert (asked.asked > 0) != is_deterministic
    assert len(found[True]) == 1 < len(found[False]), "without the option the same clocks change bits"


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("adds", [True, False])
def test_no_clock_chooses_the_launch_of_a_sum(tmp_path: Path, clock: str, *, adds: bool) -> None:
    """The warps of a sum decide the order of its additions; those of a kernel that only maps elements do not."""
    launched: dict[bool, set[int]] = {True: set(), False: set()}
    for is_deterministic, warps in launched.items():
        torch._dynamo.reset()
        seen: list[Compiled] = []
        environ = {**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path / str(is_deterministic))}
        made = Compiler(environ=environ, observer=seen.append, is_dry=True)
        options = {"target": "sm_90", "autotune": True, "deterministic": is_deterministic, "variant": "persistent"}
        fn = rows if adds else torch.exp
        torch.compile(fn, backend=made, options=options)(torch.randn(640, 3000))
        (launch,) = read_launches(seen[0].sources[LAUNCHES])
        for seed in range(6):
            asked = Counted(CLOCKS[clock](seed))
            machine = Machine(far, launch=replace(LAUNCH, warps=launch.warps, choices=launch.choices, grid=()))
            warps.add(machine.call(Tuner(asked, machine.kept.get, machine.keep))[0])
            assert (asked.asked > 0) != (is_deterministic and adds)
    assert len(launched[False]) > 1, "without the option the same clocks change the launch"
    assert (len(launched[True]) == 1) == adds


def test_a_kernel_that_adds_nothing_is_still_measured(tmp_path: Path) -> None:
    asked = Counted(inverse(1))
    x, y = torch.randn(300, 70), torch.randn(70, 300)
    options = {"autotune": True, "deterministic": True, "target": "interpret"}
    result, compiled = run_once(tmp_path, lambda x, y: x.t() * 2 + y, x, y, clock=asked, **options)
    assert asked.asked > 0 and torch.equal(result, x.t() * 2 + y)
    assert any(by == "measure" for _, _, by, _, _ in compiled.report.variants)


def test_no_size_of_a_call_chooses_between_variants_of_a_sum(tmp_path: Path) -> None:
    x, found = torch.randn(300, 310), dict[bool, set[bytes]]()
    for is_deterministic in (True, False):
        results = found[is_deterministic] = set()
        for hints in ((64,), (64, 1024)):
            torch._dynamo.reset()
            made = Compiler(environ={**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path)})
            options = {"size_hints": hints, "deterministic": is_deterministic}
            run = torch.compile(lambda x: x.exp().sum(0), backend=made, dynamic=True, options=options)
            results.add(run(x).numpy().tobytes())
    assert len(found[True]) == 1 < len(found[False])


def test_no_size_of_the_first_call_changes_a_text(tmp_path: Path) -> None:
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for is_deterministic, texts in found.items():
        for size in ((10, 12), (10, 5000)):
            torch._dynamo.reset()
            seen: list[Compiled] = []
            environ = {**os.environ, "MINDUCTOR_CACHE_DIR": str(tmp_path / f"{size}{is_deterministic}")}
            made = Compiler(environ=environ, observer=seen.append, is_dry=True)
            options = {"target": "sm_90", "deterministic": is_deterministic}
            torch.compile(lambda x: (x.exp() - 1).sum(), backend=made, dynamic=True, options=options)(torch.randn(size))
            texts.add(seen[0].sources["kernels.py"])
    assert len(found[True]) == 1 < len(found[False])


def embedded(x: Tensor, ids: Tensor) -> Tensor:
    return torch.ops.aten.embedding_dense_backward(x, ids, 64, -1, False)


SCATTERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": embedded,
    "index_add": lambda x, ids: torch.zeros_like(x).index_add(0, ids, x),
    "index_put": lambda x, ids: torch.zeros_like(x).index_put((ids,), x, accumulate=True),
    "stores": lambda x, ids: torch.zeros_like(x).index_put((ids,), x),
    "scatter": lambda x, ids: torch.zeros_like(x).scatter(0, ids[:, None].expand_as(x), x),
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("is_deterministic", [True, False])
def test_no_order_of_programs_decides_about_a_scatter(name: str, *, is_deterministic: bool) -> None:
    options = {"deterministic": is_deterministic}
    given = torch.randn(64, 32), torch.randint(64, (64,))
    (graph,) = minductor.compile_only(SCATTERS[name], *given, target="sm_90", options=options).graphs
    reasons = [reason for _, reason in graph.report.extern_reasons]
    assert any("in any order" in reason for reason in reasons) == is_deterministic == (graph.report.externs == 1)


def test_whole_numbers_are_added_by_a_kernel_in_any_order() -> None:
    options, given = {"deterministic": True}, (torch.randint(9, (64, 32)), torch.randint(64, (64,)))
    (graph,) = minductor.compile_only(SCATTERS["index_add"], *given, target="sm_90", options=options).graphs
    assert "tl.atomic_add" in graph.sources["kernels.py"]
