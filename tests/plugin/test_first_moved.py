"""A test with wrong numbers names the stage that moved them and a file about the compile; no other failure asks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_plugin.oracle.first_moved import TooLong, moved_line
from pytest_plugin.oracle.repro_script import CompiledCall
from tests.plugin.conftest import Run

SUITE = """
    import pytest, torch
    from pytest_plugin.adapters import Mutant
    from pytest_plugin.adapters.minductor_mutants import MUTANTS
    from pytest_plugin.faults.mutants import mutated
    from torch.nn import functional as F

    FORMULAS = "minductor.frontend.rules.formulas"
    RULE = Mutant("wrong-rule", FORMULAS, "silu_backward", "(1.0 - s)", "(1.0 + s)")

    @pytest.fixture
    def printer():
        with mutated(next(mutant for mutant in MUTANTS if mutant.name == "wrong-identity")):
            yield

    @pytest.fixture
    def rule():
        with mutated(RULE):
            yield

    def test_kernels(compiled, printer):
        compiled(lambda x, scale=1: x.sum(-1, keepdim=True) * scale + x, torch.randn(8, 300), scale=2)

    def test_rule_of_a_backward(compiled, rule):
        compiled(F.silu, torch.randn(8, 30), grad=True, dynamic=True)

    @pytest.mark.counts(kernels=7)
    def test_counts(compiled):
        compiled(torch.sin, torch.ones(3))

    def test_right(compiled):
        compiled(torch.sin, torch.ones(3))
"""


def test_the_report_names_the_stage_and_links_the_file(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_it=SUITE)
    result = run("--compiler=minductor", "-p", "cacheprovider")
    result.assert_outcomes(passed=1, failed=3)
    place = ".pytest_cache/d/minductor/repro/test_it.py-test_"
    lines = [line for line in result.outlines if line.startswith("moved ")]
    assert lines == [
        f"moved   inference kernels, {place}kernels-cpu.explained.html",
        f"moved   backward lower, {place}rule_of_a_backward-cpu.explained.html",
    ]
    text = (pytester.path / f"{place}rule_of_a_backward-cpu.explained.html").read_text()
    assert "lower: MOVED" in text and '"name":"backward"' in text
    result.stdout.fnmatch_lines(["*WrongResult*"])


def test_only_the_first_failures_are_explained(pytester: pytest.Pytester, run: Run) -> None:
    many = "".join(f"\n    def test_{n}(compiled, rule):\n        wrong(compiled)\n" for n in range(6))
    wrong = "\n    def wrong(compiled):\n        compiled(F.silu, torch.randn(8, 30), grad=True)\n"
    pytester.makepyfile(test_many=SUITE.partition("    def test_kernels")[0] + wrong + many)
    result = run("--compiler=minductor", "-p", "cacheprovider")
    result.assert_outcomes(failed=6)
    assert sum(line.startswith("moved   backward lower") for line in result.outlines) == 5
    assert sum(line.startswith("repro ") for line in result.outlines) == 6


CALL = CompiledCall(torch.sin, (torch.ones(3),), {}, {}, None, True)


def test_a_compiler_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    def explain(*args: Any) -> tuple[str, Path]:
        try:
            time.sleep(60)
        except Exception as error:
            raise AssertionError("swallowed") from error
        return "", tmp_path

    start = time.monotonic()
    line = moved_line(explain, CALL, {}, tmp_path / "x.py", seconds=0.2)
    assert line == "moved   not known: the stages were not evaluated in 0.2 s"
    assert time.monotonic() - start < 30
    assert not issubclass(TooLong, Exception)


def test_a_compiler_that_fails_hides_nothing(tmp_path: Path) -> None:
    def explain(*args: Any) -> tuple[str, Path]:
        raise ValueError("no such stage\nmore")

    assert moved_line(explain, CALL, {}, tmp_path / "x.py") == "moved   not known: ValueError: no such stage"


def test_the_arguments_are_copies_that_require_gradients(tmp_path: Path) -> None:
    seen: list[Any] = []

    def explain(fn: Any, args: Any, *rest: Any) -> tuple[str, Path]:
        seen.extend(args)
        return "", tmp_path / "page"

    line = moved_line(explain, CALL, {}, tmp_path / "x.py")
    assert line == f"moved   no stage by more than rounding, {tmp_path / 'page'}"
    assert seen[0] is not CALL.args[0] and seen[0].requires_grad and not CALL.args[0].requires_grad
