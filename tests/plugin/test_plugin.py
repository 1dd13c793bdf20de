"""How the plugin behaves beside pytest's own features and other plugins."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_plugin.plugin import VARIABLES
from tests.plugin.conftest import Run


def test_import_loads_neither_torch_nor_a_compiler() -> None:
    question = "import json, sys, pytest_plugin.plugin; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    names = json.loads(done.stdout)
    loaded = {name.partition(".")[0] for name in names}
    assert "pytest_plugin" in loaded
    # every pytest run pays for these; the rest is loaded by the first test that asks
    own = {name.partition(".")[2] for name in names if name.startswith("pytest_plugin.")}
    assert own == {"fixtures", "limits", "plugin", "short_names", "stash", "vocabulary", "xfail"}
    assert not loaded & {"torch", "minductor", "sympy", "triton", "numpy", "hypothesis", "xdist", "filelock"}


@pytest.fixture
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in processes of their own get no setting of this run, and see no GPU."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("without_settings")
def test_a_run_that_does_not_use_it_loads_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_host():\n    assert 'torch' not in sys.modules")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "minductor:" not in result.stdout.str() and "= minductor =" not in result.stdout.str()


@pytest.mark.usefixtures("without_settings")
def test_installed_and_named_in_a_conftest_it_is_one_plugin(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("pytest_plugins = ['pytest_plugin.plugin']")
    pytester.makepyfile("def test_on(device):\n    assert device == 'cpu'")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("without_settings")
def test_not_installed_and_named_in_a_conftest_it_works(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest("pytest_plugins = ['pytest_plugin.plugin']")
    pytester.makepyfile("def test_on(device):\n    assert device == 'cpu'")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    pytester.makeconftest("")
    pytester.runpytest_subprocess().assert_outcomes(errors=1)


def test_every_option_and_marker_is_documented(run: Run) -> None:
    text = run("--help", "--markers").stdout.str()
    short = ("compiler", "golden", "golden-level", "golden-base", "golden-unused", "golden-report", "mutants", "fuzz")
    for name in short:
        assert f"--minductor-{name}" in text and f"--{name}" in text
    assert "--minductor-device" in text
    assert "  --device" not in text
    markers = run("--markers").stdout.str()
    for name in ("counts", "golden", "memory", "devices", "needs", "must_fail_under", "deterministic", "each_variant"):
        assert f"@pytest.mark.{name}(" in markers


def test_every_fixture_has_one_sentence(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_host():\n    pass")
    text = run("--fixtures").stdout.str()
    for name in ("device", "golden", "compiled", "check_accuracy", "fresh_store", "compiler"):
        assert f"\n{name} " in text or f"\n{name} [session scope]" in text
    assert "no docstring available" not in text.partition("short_names")[2]


OTHER = """
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--device", default="theirs")

    @pytest.fixture
    def device(request):
        return request.config.getoption("--device")

    @pytest.fixture
    def golden():
        return "their golden"
"""


def test_a_plugin_with_the_same_names_keeps_them(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(other=OTHER)
    (pytester.mkdir("theirs") / "test_theirs.py").write_text(
        "def test_theirs(device, golden):\n    assert (device, golden) == ('mine', 'their golden')\n"
    )
    ours = pytester.mkdir("ours")
    (ours / "conftest.py").write_text("from pytest_plugin.short_names import device, golden\n")
    (ours / "test_ours.py").write_text(
        "def test_ours(device, golden):\n    assert device.id == 'cpu' and golden.target == 'cpu'\n"
        "def test_long_names(minductor_device, minductor_golden):\n    assert minductor_golden.target == 'cpu'\n"
    )
    pytester.syspathinsert()
    result = run("-p", "other", "--device=mine", "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*test_ours?cpu? PASSED*", "*test_theirs PASSED*"])


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ("counts(kernel=1)", "*::test_x: counts has no kernel; it has kernels, externs, bytes, *"),
        ("counts(1)", "*::test_x: counts takes keywords only*"),
        ("counts()", "*::test_x: counts declares nothing*"),
        ("counts(kernels='1')", "*counts(kernels='1'): declare a whole number, at_most(...) or at_least(...)*"),
        ("counts(kernels=True)", "*counts(kernels=True)*"),
        ("golden(views='kernel')", "*::test_x: golden has no views; it has view, level*"),
        ("golden(view='kernels')", "*::test_x: golden has no view 'kernels'; the views are kernel, wrapper*"),
        ("golden(level='near')", "*::test_x: golden has no level 'near'; the levels are facts, skeleton, canonical*"),
    ],
)
def test_a_wrong_marker_is_a_usage_error(
    pytester: pytest.Pytester, run: Run, workers: str, marker: str, says: str
) -> None:
    if workers == "-n2" and marker != "counts(kernel=1)":
        return  # the way through the workers is the same for every text
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.{marker}\ndef test_x():\n    pass")
    result = run(workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (result.stdout if workers == "-n2" else result.stderr).fnmatch_lines([says])


def test_an_unknown_compiler_is_a_usage_error(run: Run) -> None:
    result = run("--compiler=gcc")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--compiler: no compiler is called 'gcc'; the compilers are minductor, inductor, eager"]
    )


SUITE = """
    import pytest, torch

    @pytest.mark.counts(kernels=1)
    @pytest.mark.parametrize("n", range(2))
    def test_right(compiled, n, golden):
        golden.check(compiled(lambda x: x + n, torch.ones(3)))

    @pytest.mark.counts(kernels=2)
    def test_wrong(compiled):
        compiled(lambda x: x + 1, torch.ones(3))

    def test_text(golden):
        golden.text("words", "a\\nb")
"""


def summary(result: pytest.RunResult) -> list[str]:
    """The verdicts and the summary, without times and the names of workers."""
    lines = result.stdout.lines
    start = lines.index(next(line for line in lines if line.strip("= ") == "minductor"))
    return sorted(line for line in lines[start:] if " in " not in line)


@pytest.mark.long
def test_workers_report_and_write_what_one_process_does(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    results: list[pytest.RunResult] = []
    goldens: list[dict[Path, bytes]] = []
    for workers in ("-n0", "-n2"):
        results.append(run(workers, "--golden=accept"))
        results[-1].assert_outcomes(passed=3, failed=1)
        goldens.append({path: path.read_bytes() for path in (pytester.path / "golden").rglob("*.*")})
        shutil.rmtree(pytester.path / "golden")
    assert summary(results[0]) == summary(results[1])
    assert goldens[0] == goldens[1] and len(goldens[0]) == 3
    results[1].stdout.fnmatch_lines(
        [
            "ran      3 tests on cpu: 3 graphs, 3 kernels launched, 0 externs called",
            "checked  numeric 3, counts 3, golden 3 (3 accepted)",
        ]
    )


def test_selection_and_last_failed_work(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    run("-k", "wrong").assert_outcomes(failed=1, deselected=3)
    run("-k", "cpu-1", "--golden=accept").assert_outcomes(passed=1, deselected=3)
    pytester.makeini("[pytest]\naddopts = --compiler=eager")
    run("--lf").assert_outcomes(failed=1)
    run("-x", "-k", "wrong or text").assert_outcomes(failed=1, deselected=2)


def test_collecting_loads_no_torch_and_compiles_nothing(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\n")  # the usual compiler
    pytester.makeconftest("import sys\n\ndef pytest_sessionfinish():\n    assert 'torch' not in sys.modules")
    pytester.makepyfile(SUITE.replace("import pytest, torch", "import pytest"))
    result = pytester.runpytest_subprocess("--collect-only")
    assert result.ret == 0 and "= minductor =" not in result.stdout.str()
    assert not (pytester.path / "golden").exists()


def test_no_colour_and_quiet(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SUITE)
    assert "\x1b[" not in run("-q", NO_COLOR="1").stdout.str()


def test_what_torch_logs_for_its_own_viewer_is_no_part_of_a_failure(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        import logging

        def test_x(caplog):
            for name in ("torch.__trace", "mine"):
                logger = logging.getLogger(name)
                logger.setLevel(logging.DEBUG)
                logger.debug("")
            assert 0
    """)
    text = run().stdout.str()
    assert "torch.__trace" not in text.split("Captured log call")[1] and "DEBUG    mine:" in text
