"""The marker and the fixture `memory`: true facts pass, false ones are red and say why, wrong markers are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pytest_plugin.adapters import Facts, Graph, Storage
from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.failure_text import failure_text
from pytest_plugin.oracle.compiled import allocator_peak
from pytest_plugin.oracle.memory import storage_lifetimes
from pytest_plugin.oracle.run import Run as ARun
from tests.plugin.conftest import Run

HEAD = "import pytest, torch\nfrom pytest_plugin import at_least, at_most\n\nX = torch.ones(64, 64)\n\n"
CHAIN = "lambda x: ((x @ x).relu() @ x).sum(0)"


def outcome(pytester: pytest.Pytester, run: Run, text: str, *args: str) -> pytest.RunResult:
    pytester.makepyfile(HEAD + text)
    return run("--compiler=minductor", *args)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("peak=2 * 64 * 64 * 4, leaks=0, frees_inputs=True", ""),
        ("peak=at_most('inputs + inputs'), leaks=0", ""),
        ("peak=at_least('inputs + output'), frees_inputs=True", ""),
        ("peak=at_most('inputs + output')", "peak      at most inputs + output declared, 32768 found (inputs 16384, *"),
        ("peak=32767", "peak      32767 declared, 32768 found*"),
        ("leaks=1", "leaks     1 declared, 0 found"),
        ("frees_inputs=False", "inputs    all were freed"),
    ],
)
def test_declared_facts(pytester: pytest.Pytester, run: Run, marker: str, says: str) -> None:
    result = outcome(pytester, run, f"@pytest.mark.memory({marker})\ndef test_x(compiled):\n    compiled({CHAIN}, X)")
    if says:
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["memory differs  test_x?cpu?", f"*{says}"])
    else:
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["checked  numeric 1, counts 0, memory 1"])


FAULT = """
from dataclasses import replace
from minductor.codegen.wrapper import wrapper_python
from minductor.ir.plan.plan import FreeLine

def without_frees(plan, env, right=wrapper_python.wrapper_python):
    lines = tuple(line for line in plan.lines if not isinstance(line, FreeLine) or {names})
    return right(replace(plan, lines=lines), env)

@pytest.mark.memory({marker})
def test_x(compiled, monkeypatch):
    monkeypatch.setattr(wrapper_python, "wrapper_python", without_frees)
    compiled({chain}, X, options={{"verify": False}})
"""


def test_a_storage_that_is_not_freed_is_red_whatever_is_declared(pytester: pytest.Pytester, run: Run) -> None:
    text = FAULT.format(marker="leaks=0", names="not any(name.startswith('buf') for name in line.names)", chain=CHAIN)
    result = outcome(pytester, run, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unplanned before call *: free buf* (16384 bytes) is missing*"])


def test_an_input_that_is_kept_is_red(pytester: pytest.Pytester, run: Run) -> None:
    text = FAULT.format(marker="frees_inputs=True", names="not line.names[0].startswith('arg')", chain=CHAIN)
    result = outcome(pytester, run, text)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unplanned *free arg0_1 (16384 bytes) is missing*"])


def test_the_fixture_tells_orders_and_shows_bars(pytester: pytest.Pytester, run: Run) -> None:
    result = outcome(
        pytester,
        run,
        f"""def test_x(compiled, memory):
    life = memory(compiled({CHAIN}, X))
    assert life.allocated == ("buf0", "buf2", "buf3"), life.allocated
    assert life.peak == 2 * 64 * 64 * 4
    assert life.storage("buf0").names == ("buf0", "buf1")
    assert life.calls == ("aten.mm.out", "relu_0", "aten.mm.out", "sum_1")
    assert life.is_gone_before("buf0", "sum_1") and not life.is_gone_before("buf0", "aten.mm.out", 2)
    assert "buf0 > buf1  16384 |.###.| own" in life.timeline().splitlines()


def test_training(compiled, memory):
    w = torch.randn(8, 8, requires_grad=True)
    run = compiled(lambda x, w: (x @ w).tanh(), torch.randn(8, 8), w)
    assert memory(run, "backward").storages
    with pytest.raises(AssertionError, match="the run has 2 graphs; give the role of one graph"):
        memory(run)
""",
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("memory(peaks=1)", "*::test_x: memory has no peaks; it has peak, leaks, frees_inputs*"),
        ("memory(1)", "*::test_x: memory takes keywords only*"),
        ("memory()", "*::test_x: memory declares nothing*"),
        ("memory(peak='1')", "*memory(peak='1'): declare a whole number, at_most(...) or at_least(...)*"),
        ("memory(leaks=True)", "*memory(leaks=True): declare a whole number*"),
        ("memory(frees_inputs=1)", "*memory(frees_inputs=1): declare True or False*"),
        ("counts(peak=at_most('inputs'))", "*inputs are words of memory(peak=...)*"),
    ],
)
def test_a_wrong_marker_is_a_usage_error(pytester: pytest.Pytester, run: Run, marker: str, says: str) -> None:
    result = outcome(pytester, run, f"@pytest.mark.{marker}\ndef test_x():\n    pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([says])


@pytest.mark.parametrize(
    ("compiler", "body", "says"),
    [
        ("minductor", "pass", "  nothing was captured: no graph was compiled"),
        ("eager", "compiled(lambda x: x + 1, X)", "  this compiler does not report the lives of storages"),
    ],
)
def test_no_memory_seen_is_no_proof(pytester: pytest.Pytester, run: Run, compiler: str, body: str, says: str) -> None:
    text = f"@pytest.mark.memory(leaks=0)\ndef test_x(compiled):\n    {body}"
    result = outcome(pytester, run, text, f"--compiler={compiler}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([says])


def test_a_failing_golden_says_when_most_is_held() -> None:
    storages = (Storage("lent", 8, 0, 1, False, ("x",)), Storage("own", 64, 1, None, True, ("buf0",)))
    graph = Graph("inference", (), facts=Facts(peak=72), calls=("k",), storages=storages)
    run = ARun(None, len, lambda: [graph])
    differs = Disagreement("t", "cpu", "kernel", "facts", "cpp", "a", "a", "", "", "peak=8", "peak=72", "", "")
    says = "memory    most is held in call 1 of 1, k: x, buf0"
    assert says in failure_text(differs, run, limit=None)
    assert says not in failure_text(replace(differs, old_facts="peak=72"), run, limit=None)
    assert storage_lifetimes(run) == {"inference.x": 1, "inference.buf0": 0}


def test_a_gpus_allocator_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name, value in {"synchronize": 0, "reset_peak_memory_stats": 0, "memory_allocated": 30}.items():
        monkeypatch.setattr(torch.cuda, name, lambda name=name, value=value: asked.append(name) or value)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 100)
    with allocator_peak("cuda") as peak:
        assert asked == ["synchronize", "reset_peak_memory_stats", "memory_allocated"]
    assert peak() == 70
    with allocator_peak("cpu") as peak:
        assert peak() is None
    assert len(asked) == 3
