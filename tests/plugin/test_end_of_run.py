"""The end of a run with goldens: what is listed, written, deleted, and what a partial run leaves alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.interrupts import interruptible
from tests.plugin.conftest import Run
from tests.plugin.test_golden import edit, files

SUITE = """
    import os, pytest

    @pytest.mark.parametrize("n", ["a b", "c"])
    def test_text(golden, n):
        golden.text("words", f"one\\n{os.environ.get('WORD', 'two')} {n}\\nthree", level="exact")

    def test_other(golden):
        golden.text("words", "x\\n" + os.environ.get("WORD", "two"))
"""
FILES = [
    "golden/eager/any/test_suite/test_other.words.txt",
    "golden/eager/any/test_suite/test_text-a_b-c8687a08.words.txt",
    "golden/eager/any/test_suite/test_text-c.words.txt",
]
LEVELS = """
    import pytest, torch

    def test_kernel(compiled, golden):
        run = compiled(lambda x: x + 1, torch.ones(3))
        golden.check(run)
        golden.stage(run, "trace")
        golden.change(run, "trace")
        golden.check(run, view="plan")
"""
KERNEL = "golden/eager/cpu/test_levels/test_kernel.kernel.py"


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    run("--golden=accept").assert_outcomes(passed=3)
    assert list(files(pytester)) == FILES
    return pytester


def ending(result: pytest.RunResult) -> list[str]:
    """The lines of the summary."""
    lines = result.stdout.lines
    start = lines.index(next(line for line in lines if line.strip("= ") == "minductor"))
    return [line for line in lines[start + 1 :] if not line.startswith(("=", "FAILED"))]


def test_levels_views_and_drift(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_levels=LEVELS)
    run("--golden=accept").assert_outcomes(passed=1)
    kernel = pytester.path / KERNEL
    assert "level=skeleton" in kernel.read_text()
    names = [path.name for path in sorted(kernel.parent.iterdir())]
    assert names == [f"test_kernel.{name}" for name in ("kernel.py", "plan.txt", "trace.change.txt", "trace.stage.txt")]
    edit(pytester, KERNEL, "+ 1", "+ 2")
    result = run()
    result.assert_outcomes(passed=1)
    assert ending(result)[-1] == f"drift    {KERNEL}"
    run("--golden-level=canonical").assert_outcomes(failed=1)
    run("-o", "golden_level=exact").assert_outcomes(failed=1)
    run("-o", "golden_level=exact", "--golden-level=facts").assert_outcomes(passed=1)
    run("--golden=refresh").stdout.fnmatch_lines([f"written  {KERNEL}"])
    assert "+ 1" in kernel.read_text()
    edit(pytester, KERNEL, "l_x_ + 1", "l_x_.sin() + 1")
    result = run("--golden=refresh")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*  skeleton  - *sin add return", "*            +*add return", "*numerics  right*"])
    edit(pytester, KERNEL, "level=skeleton", "level=facts")
    run().assert_outcomes(passed=1)
    edit(pytester, KERNEL, "kernels=1", "kernels=3")
    run().assert_outcomes(failed=1)
    assert run("--golden-level=low").ret == pytest.ExitCode.USAGE_ERROR


def test_off_looks_at_no_file(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=off", WORD="new").assert_outcomes(passed=3)
    run("--golden=off", CI="1").assert_outcomes(passed=3)


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.long)])
def test_differences_are_told_as_edits_with_a_patch_and_a_page(suite: pytest.Pytester, run: Run, workers: str) -> None:
    subprocess.run(["git", "init", "-q", suite.path], check=True)
    result = run(workers, "--golden=check", "--golden-report=told", WORD="new")
    result.assert_outcomes(failed=3)
    assert ending(result)[1:] == [
        "differ   3 goldens in 1 edit, most frequent first",
        "    1  3 times in 3 goldens: - two  + new",
        "report   told/report.html",
        "patch    git apply told/golden.patch",
    ]
    run("--golden=check", CI="true", WORD="new").stdout.fnmatch_lines(["patch    git apply .pytest_cache/*"])
    subprocess.run(["git", "apply", "told/golden.patch"], cwd=suite.path, check=True)
    run("--golden=check", WORD="new").assert_outcomes(passed=3)


def test_review_writes_what_is_accepted(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "new")
    arguments = ["-p", "no:randomly", "--compiler=eager", "--golden=review"]
    suite.makepyfile(test_suite=SUITE.replace("x\\n", "y\\n"))
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(command, cwd=suite.path, input="r\na\n", text=True, capture_output=True, check=False)
    assert done.returncode == 1 and "edit 2 of 2" in done.stdout, done.stdout
    texts = files(suite)
    assert "y\ntwo" in texts[FILES[0]] and "two" in texts[FILES[1]]
    assert f"partly   {FILES[0]}" in done.stdout and f"rejected {FILES[1]}" in done.stdout


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.long)])
def test_unused_files_are_found_and_only_accept_deletes_them(suite: pytest.Pytester, run: Run, workers: str) -> None:
    gone = suite.path / FILES[2].replace("test_suite", "test_gone")
    gone.parent.mkdir()
    gone.write_text((suite.path / FILES[2]).read_text().replace("test_suite", "test_gone"))
    suite.makepyfile(test_suite=SUITE.replace('"c"]', '"d"]').replace('golden.text("words", "x', 'str("x'))
    told = [
        f"unused   {FILES[0]}: its test passed without it",
        f"unused   {FILES[2]}: its test is gone",
        f"unused   {gone.relative_to(suite.path)}: its test is gone",
    ]
    result = run(workers, "-k", "text or other")
    assert "unused  " not in result.stdout.str()
    run("-n0", "-k", "d", "--golden=accept")
    for partial in (["-k", "other"], ["test_suite.py::test_other"], ["-m", "not slow"], ["--collect-only"], ["--lf"]):
        assert "unused  " not in run("-n0", *partial).stdout.str()
    result = run(workers)
    assert sorted(line for line in ending(result) if "unused  " in line) == sorted(told)
    assert result.ret == 0
    assert run("-n0", CI="1").ret == pytest.ExitCode.TESTS_FAILED
    assert run(workers, "--golden-unused=fail").ret == pytest.ExitCode.TESTS_FAILED
    assert run("-n0", "--golden-unused=warn", CI="1").ret == 0
    result = run(workers, "--golden=accept")
    assert sorted(line for line in ending(result) if "deleted" in line) == [
        line.replace("unused ", "deleted") for line in sorted(told)
    ]
    assert list(files(suite)) == [FILES[1], FILES[2].replace("-c.", "-d.")] and not gone.parent.exists()


def test_a_run_that_was_stopped_or_failed_judges_nothing_that_did_not_run(suite: pytest.Pytester, run: Run) -> None:
    suite.makepyfile(test_suite=SUITE.replace('golden.text("words", "x', 'assert not str("x'))
    assert "unused  " not in run().stdout.str()
    suite.makepyfile(test_suite=SUITE.replace("test_other(golden):", "test_aside(golden):\n        assert 0"))
    assert "unused  " not in run("-x", "--golden=accept").stdout.str()
    run("--golden=accept").stdout.fnmatch_lines([f"deleted  {FILES[0]}: its test is gone"])


def test_goldens_of_another_device_are_left_alone(suite: pytest.Pytester, run: Run) -> None:
    special = suite.path / FILES[2].replace("/any/", "/sm_90/")
    special.parent.mkdir(parents=True)
    special.write_text((suite.path / FILES[2]).read_text().replace("target=any", "target=sm_90"))
    assert "unused  " not in run().stdout.str()


def test_an_interrupted_run_leaves_whole_files_and_deletes_nothing(pytester: pytest.Pytester) -> None:
    slow = "import time\n\ndef test_{n}(golden):\n    golden.text('a', 'line\\n' * 1000)\n    {then}"
    for n, then in enumerate(("pass", "open('reached', 'w').close(); time.sleep(60)")):
        (pytester.path / f"test_{n}.py").write_text(slow.format(n=n, then=then))
    command = [sys.executable, "-m", "pytest", "--golden=accept", "--compiler=eager", "-p", "no:cacheprovider"]
    environ = {name: text for name, text in os.environ.items() if name != "CI"}  # there nothing is written
    with interruptible():
        child = subprocess.Popen(command, cwd=pytester.path, env=environ, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (pytester.path / "reached").exists() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    told = child.communicate(timeout=60)[0]
    assert child.returncode == pytest.ExitCode.INTERRUPTED and "deleted" not in told
    found = [path for path in (pytester.path / "golden").rglob("*") if path.is_file()]
    assert [path.name for path in sorted(found)] == ["test_0.a.txt", "test_1.a.txt"]
    assert all(path.read_text().count("line\n") == 1000 for path in found)


def test_a_folder_without_permission_is_told(suite: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pytest_plugin.goldens.golden_file.write_text", refuse)
    result = run("--golden=accept", WORD="new")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines([f"*golden not written  test_other   {FILES[0]}: Permission denied"])


BASE = """
    import torch

    def test_kernel(compiled, golden):
        golden.check(compiled(lambda x: x * {} + {}, torch.ones(3)), level="canonical")

    def test_same(golden):
        golden.text("a", "equal")
"""


@pytest.mark.long
def test_a_revision_is_compared_with_without_stored_files(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_base=BASE.format(2, 3))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=pytester.path, check=True)
    subprocess.run([*git, "add", "test_base.py", "tox.ini"], cwd=pytester.path, check=True)
    subprocess.run([*git, "commit", "-qm", "base"], cwd=pytester.path, check=True)
    result = run("--golden-base=HEAD")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["checked  numeric 1, counts 0, golden 2 (2 equal)"])
    new = BASE.format(2, 4) + "\n    def test_new(golden):\n        golden.text('a', 'new')\n"
    pytester.makepyfile(test_base=new)
    result = run("--golden-base=HEAD")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*golden differs  test_kernel?cpu?   kernel @ canonical   *",
            "*  base      HEAD",
            "*  first     stage `forward.trace` is the first whose text changed",
            "*  redo      git diff HEAD",
        ]
    )
    assert not (pytester.path / "golden").exists()
    listed = subprocess.run(["git", "worktree", "list"], cwd=pytester.path, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    run("--golden-base=HEAD", "-k", "kernel").assert_outcomes(failed=1, deselected=2)
    result = run("--golden-base=no-such-revision")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
