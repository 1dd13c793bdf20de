"""Faults by name: each row of the table fits its function, and what a fault proves is told truly."""

import html
import subprocess
import sys

import pytest

from pytest_plugin.adapters import Mutant
from pytest_plugin.adapters.minductor import Minductor
from pytest_plugin.adapters.minductor_mutants import MUTANTS
from pytest_plugin.faults.kill_matrix import MutantResult, kill_matrix
from pytest_plugin.faults.mutants import Stale, find_function, mutated, recompiled
from tests.plugin.conftest import Run

RAW = Mutant("raw", "html", "escape", '"&", "&amp;"', '"&", "&"')


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_row_fits_its_function(mutant: Mutant) -> None:
    assert recompiled(find_function(mutant), mutant).co_name == mutant.function.rpartition(".")[2]


def test_there_are_many_and_their_names_differ() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


def test_the_fault_is_there_inside_only_also_after_an_error() -> None:
    with mutated(RAW) as was_reached:
        assert not was_reached()
        assert html.escape("<&") == "&lt;&" and was_reached()
    with pytest.raises(KeyError), mutated(RAW):
        raise KeyError
    assert html.escape("<&") == "&lt;&amp;"


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (Mutant("x", "html", "escape", "no such text", ""), "occurs 0 times"),
        (Mutant("x", "html", "escape", "replace", ""), r"occurs \d+ times"),
        (Mutant("x", "posixpath", "basename", "p", ""), "could not get source code"),
        (Mutant("x", "keyword", "kwlist", "p", ""), "is no function in Python"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(mutant: Mutant, why: str) -> None:
    with pytest.raises(Stale, match=why), mutated(mutant):
        pass


def test_the_matrix_counts_only_proven_kills() -> None:
    rows = {
        "a": [MutantResult("m1", True, True, ("numeric", "golden")), MutantResult("m2", True, False, ("error",))],
        "b": [MutantResult("m1", False, True, ("error",)), MutantResult("m2", True, True, ())],
    }
    assert list(kill_matrix(rows, verbose=True)) == [
        "mutants  1 of 2 killed, 1 by two kinds of checks or more",
        "  m1  golden 1, numeric 1",
        "  m2  SURVIVED: its code ran in 2 tests, and changed something in 1",
        "  a: m1=NG",
        "  b: m2=.",
    ]


CODE = """
    def compute(number):
        return number + 1

    def text(number):
        return f"{number}"
"""
CONFTEST = """
    from pytest_plugin.adapters import Mutant

    TABLE = (
        Mutant("off-by-one", "theirs", "compute", "number + 1", "number + 2"),
        Mutant("unseen", "theirs", "text", "{number}", "{number}"),
        Mutant("stale", "theirs", "compute", "number - 1", "number"),
    )

    def pytest_configure(config):
        from pytest_plugin.session import state_of

        state_of(config).adapter.mutants = TABLE
"""
SUITE = """
    import pytest, torch
    from theirs import compute, text

    def f():
        number = compute(1)
        return lambda x: x + number

    @pytest.mark.must_fail_under("off-by-one")
    @pytest.mark.golden(level="canonical")
    def test_seen(compiled):
        assert compiled(f(), torch.ones(3)).out[0] == 3

    @pytest.mark.must_fail_under("off-by-one")
    def test_asserts_nothing(compiled):
        compiled(f(), torch.ones(3))

    @pytest.mark.must_fail_under("unseen")
    def test_not_reached(compiled):
        compiled(f(), torch.ones(3))

    @pytest.mark.must_fail_under("unseen")
    def test_not_applied(compiled):
        text(1)
        compiled(f(), torch.ones(3))

    @pytest.mark.must_fail_under("stale")
    def test_stale(compiled):
        compiled(f(), torch.ones(3))
"""


def test_a_test_that_must_fail_under_a_fault_fails_if_it_does_not(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(theirs=CODE, test_suite=SUITE)
    first = run("-k", "seen", "--golden=accept")
    first.assert_outcomes(passed=1, deselected=4)
    golden = [path for path in (pytester.path / "golden").rglob("*.py")]
    before = [path.read_text() for path in golden]
    result = run("--golden=accept")
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "trials failed  test_asserts_nothing?cpu?",
            "  must_fail_under  off-by-one is not noticed: every check passes",
            "  must_fail_under  unseen is not noticed: its function does not run",
            "  must_fail_under  unseen is not noticed: it changes no text, plan, store hit or result",
            "  stale: 'number - 1' occurs 0 times in theirs.compute",
            "mutants  1 of 2 killed, 1 by two kinds of checks or more",
            "  off-by-one  error 1, golden 1",
        ]
    )
    assert [path.read_text() for path in golden] == before
    result.stdout.fnmatch_lines(["ran      5 tests on cpu: 5 graphs, 5 kernels launched, *"])


def test_unknown_mutants_are_a_usage_error(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_x(compiled):\n    pass")
    result = run("--mutants=none-such")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    pytester.makepyfile("import pytest\n\n@pytest.mark.must_fail_under(1)\ndef test_x(compiled):\n    pass")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*must_fail_under takes names of mutants"])


REPEATED = """
    import itertools, os, pytest, torch

    counter = itertools.count()

    @pytest.mark.deterministic(runs=3, hash_seeds=1, threads=(1, 2))
    def test_same(compiled):
        compiled(lambda x: x + 1, torch.ones(3))

    @pytest.mark.deterministic(runs=2)
    def test_other_text(compiled):
        number = next(counter)
        compiled(lambda x: x + number, torch.ones(3))

    @pytest.mark.deterministic(threads=(1, 2), runs=1)
    def test_other_bits(compiled):
        compiled(lambda x: x + 1, torch.ones(3) * torch.get_num_threads())

    @pytest.mark.deterministic(runs=1, hash_seeds=2)
    def test_order_of_a_set(compiled):
        first = next(iter({"a", "b", "c", "d", "e", "f", "g", "h"}))
        compiled(lambda x: x + ord(first), torch.ones(3))

    @pytest.mark.deterministic(runs=2)
    def test_nothing(compiled):
        pass
"""
MEASURED = """
    import pytest, torch
    import conftest

    @pytest.mark.deterministic(runs=1, clock=True)
    def test_same(compiled):
        compiled(lambda x: x + 1, torch.ones(3))

    @pytest.mark.deterministic(runs=1, clock=True)
    def test_measured(compiled):
        number = conftest.measured
        compiled(lambda x: x + number, torch.ones(3))
"""
CLOCK = """
    from contextlib import contextmanager

    measured = 1

    @contextmanager
    def distorted():
        global measured
        measured += 1
        yield
        measured -= 1

    def pytest_configure(config):
        from pytest_plugin.session import state_of

        state_of(config).adapter.distorted_clock = distorted
"""


FAULTY = """
    import pytest, torch
    from theirs import order

    @pytest.mark.must_fail_under("set")
    @pytest.mark.deterministic(runs=1, hash_seeds=2)
    def test_order(compiled):
        text = "".join(order())
        compiled(lambda x: x + int(text, 16), torch.ones(3))
"""
ORDER = """
    def order():
        return ["a", "b", "c", "d", "e", "f"]
"""
SET = """
    from pytest_plugin.adapters import Mutant

    def pytest_configure(config):
        from pytest_plugin.session import state_of

        old = '["a", "b", "c", "d", "e", "f"]'
        state_of(config).adapter.mutants = (Mutant("set", "theirs", "order", old, "set(" + old + ")"),)
"""


@pytest.mark.long
def test_a_fault_that_only_other_processes_show_is_seen_there(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(SET)
    pytester.makepyfile(theirs=ORDER, test_suite=FAULTY)
    result = run(PYTHONPATH=str(pytester.path))
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  set  deterministic 1"])
    pytester.makepyfile(test_suite=FAULTY.replace("hash_seeds=2", "runs=1").replace("runs=1, runs=1", "runs=1"))
    run(PYTHONPATH=str(pytester.path)).assert_outcomes(failed=1)


def test_what_depends_on_measurements_is_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(CLOCK)
    pytester.makepyfile(MEASURED)
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    text = result.stdout.str()
    assert "deterministic  with wrong measurements gives other generated text" in text
    assert "deterministic  with wrong measurements gives other results" in text


def test_the_clock_of_minductor_is_wrong_inside() -> None:
    adapter = Minductor()
    calls: list[int] = []
    with adapter.distorted_clock():
        clock = adapter.tuning_clock
        assert (
            clock is not None and clock(lambda: calls.append(1)) != clock(lambda: calls.append(2)) and calls == [1, 2]
        )
    assert adapter.tuning_clock is None


@pytest.mark.long
def test_what_differs_between_runs_threads_and_hash_seeds_is_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(REPEATED)
    result = run(PYTHONHASHSEED="0")
    result.assert_outcomes(passed=1, failed=4)
    text = result.stdout.str()
    assert "deterministic  run 2 gives other generated text" in text
    assert "threads gives other results" in text and "threads gives other generated text" not in text
    assert "with hash seed" in text and "deterministic  nothing was compiled" in text
    pytester.makepyfile("import pytest\n\n@pytest.mark.deterministic(run=3)\ndef test_x():\n    pass")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*deterministic has no run; it has runs, hash_seeds, threads, clock"])


def test_the_engine_needs_no_torch() -> None:
    code = "import sys, pytest_plugin.faults.mutants; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
