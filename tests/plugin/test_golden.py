"""Golden files in a suite: what each mode does, and what is never done."""

from pathlib import Path

import pytest

from tests.plugin.conftest import Run

SUITE = """
    import pytest, torch

    def test_text(golden):
        golden.text("words", "a\\nb")

    @pytest.mark.parametrize("n", [1])
    def test_kernel(compiled, golden, n):
        golden.check(compiled(lambda x: x + n, torch.ones(3)), level="canonical")

    @pytest.mark.golden(level="exact")
    def test_marked(compiled):
        compiled(lambda x: x + 2, torch.ones(3))
"""
FILES = [
    "golden/eager/any/test_suite/test_text.words.txt",
    "golden/eager/cpu/test_suite/test_kernel-1.kernel.py",
    "golden/eager/cpu/test_suite/test_marked.kernel.py",
]


@pytest.fixture
def suite(pytester: pytest.Pytester, run: Run) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def files(suite: pytest.Pytester) -> dict[str, str]:
    found = sorted(path for path in (suite.path / "golden").rglob("*") if path.is_file())
    return {path.relative_to(suite.path).as_posix(): path.read_text() for path in found}


def edit(suite: pytest.Pytester, file: str, old: str, new: str) -> Path:
    path = suite.path / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_a_new_golden_fails_once(suite: pytest.Pytester, run: Run) -> None:
    first = run()
    first.assert_outcomes(failed=3)
    first.stdout.fnmatch_lines([f"*golden written  test_kernel?cpu-1?   {FILES[1]}", "  read this new file; *"])
    first.stdout.fnmatch_lines(["checked  numeric 2, counts 0, golden 3 (3 new)", f"written  {FILES[0]}"])
    assert list(files(suite)) == FILES
    run().assert_outcomes(passed=3)


def test_all_new_goldens_of_a_test_are_written_at_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_suite="def test_two(golden):\n    golden.text('one', 'a')\n    golden.text('two', 'b')\n")
    first = run()
    first.assert_outcomes(failed=1)
    first.stdout.fnmatch_lines(
        ["*test_two.one.txt", "  read this new file; *", "*test_two.two.txt", "  read this new file; *"]
    )
    run().assert_outcomes(passed=1)


def test_accept_passes_at_once_and_writes_no_more_than_needed(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept").assert_outcomes(passed=3)
    before = files(suite)
    stamps = [(suite.path / name).stat().st_mtime_ns for name in before]
    result = run("--golden=accept")
    result.stdout.fnmatch_lines(["checked * golden 3 (3 equal)"])
    assert files(suite) == before
    assert [(suite.path / name).stat().st_mtime_ns for name in before] == stamps


@pytest.mark.parametrize("environ", [{"CI": "true"}, {}])
def test_check_writes_nothing(suite: pytest.Pytester, run: Run, environ: dict[str, str]) -> None:
    result = run(*([] if environ else ["--golden=check"]), **environ)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines([f"*golden missing  test_text   {FILES[0]}", '  redo      pytest "*" --golden=new'])
    assert files(suite) == {}


@pytest.mark.parametrize("mode", ["new", "accept"])
def test_writing_under_ci_is_a_usage_error(suite: pytest.Pytester, run: Run, mode: str) -> None:
    assert run(f"--golden={mode}", CI="true").ret == pytest.ExitCode.USAGE_ERROR
    assert run(f"--golden={mode}", CI="false").ret != pytest.ExitCode.USAGE_ERROR


def test_unknown_mode_is_a_usage_error(suite: pytest.Pytester, run: Run) -> None:
    result = run("--golden=yes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*the modes are check, new, accept, refresh, review, off"])


def test_another_kernel_fails_and_is_shown(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept")
    edit(suite, FILES[1], "l_x_ + 1", "l_x_ - 1")
    result = run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"*golden differs  test_kernel?cpu-1?   kernel @ canonical   {FILES[1]}",
            "*  text      2 lines",
            "*-*l_x_ - 1*",
            "*+*l_x_ + 1*",
            '*  redo      pytest "test_suite.py::test_kernel" --golden=accept',
        ]
    )
    assert "l_x_ - 1" in (suite.path / FILES[1]).read_text()
    run("--golden=accept").assert_outcomes(passed=3)
    assert "l_x_ + 1" in (suite.path / FILES[1]).read_text()


def test_another_fact_fails(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept")
    edit(suite, FILES[1], "kernels=1", "kernels=2")
    result = run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*  facts     kernels 2->1"])


def test_names_and_layout_are_drift_at_canonical_and_fail_at_exact(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept")
    edit(suite, FILES[1], "l_x_", "renamed")
    result = run()
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*golden 3 (1 drift, 2 equal)"])
    edit(suite, FILES[2], "l_x_", "renamed")
    run().assert_outcomes(passed=2, failed=1)


def test_notes_survive_and_windows_line_ends_are_read(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept")
    path = edit(suite, FILES[2], "\n\ndef", "\n# note    a person wrote this\n\ndef")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    run().assert_outcomes(passed=3)
    edit(suite, FILES[2], "l_x_ + 2", "l_x_ + 3")
    run("--golden=accept").assert_outcomes(passed=3)
    assert b"# note    a person wrote this\n\ndef forward" in path.read_bytes() and b"\r" not in path.read_bytes()


@pytest.mark.parametrize(
    "content", ["no header\n", *(pytest.param(text, marks=pytest.mark.long) for text in ("", "\x00\n"))]
)
def test_a_damaged_golden_differs_and_is_repaired(suite: pytest.Pytester, run: Run, content: str) -> None:
    run("--golden=accept")
    (suite.path / FILES[0]).write_text(content)
    result = run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"*golden damaged  test_text   {FILES[0]}:1: *"])
    run("--golden=accept")
    run().assert_outcomes(passed=3)


def test_a_folder_that_cannot_be_written_fails_and_says_so(suite: pytest.Pytester, run: Run) -> None:
    (suite.path / "golden").write_text("a file in the way")
    for mode in ("new", "accept"):
        result = run(f"--golden={mode}")
        result.assert_outcomes(failed=3)
        result.stdout.fnmatch_lines([f"*golden not written  test_text   {FILES[0]}: *"])


def test_an_equal_rung_above_is_enough(suite: pytest.Pytester, run: Run) -> None:
    run("--golden=accept")
    shared = suite.path / FILES[1].replace("/cpu/", "/any/")
    shared.parent.mkdir(parents=True, exist_ok=True)
    own = suite.path / FILES[1]
    own.rename(shared)
    run().assert_outcomes(passed=3)
    edit(suite, FILES[1].replace("/cpu/", "/any/"), "l_x_ + 1", "l_x_ - 1")
    run().assert_outcomes(passed=2, failed=1)
    run("--golden=accept")
    assert own.exists() and "l_x_ - 1" in shared.read_text()
    shared.write_text(own.read_text())
    edit(suite, FILES[1], "l_x_ + 1", "l_x_ * 1")
    run("--golden=accept").assert_outcomes(passed=3)
    assert not own.exists()


def test_golden_files_are_not_collected(suite: pytest.Pytester, run: Run) -> None:
    edit(suite, "test_suite.py", "a\\nb", ">>> 1 / 0")  # pytest would run it: test_text.words.txt
    run("--golden=accept").assert_outcomes(passed=3)
    run(".").assert_outcomes(passed=3)
    (suite.path / "golden" / "test_own.py").write_text("def test_of_somebody():\n    pass\n")
    run(".").assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("golden.text('my words', 'x')", "*test_x: the name 'my words' of a golden contains ' '*"),
        ("golden.text('a', 'x'); golden.text('a', 'x')", "*test_x checks golden/eager/any/test_a/test_x.a.txt twice*"),
        (
            "golden.text('a', 'x', level='near')",
            "*no level is called 'near'; the levels are facts, skeleton, canonical, exact*",
        ),
    ],
)
def test_misuse(pytester: pytest.Pytester, run: Run, body: str, says: str) -> None:
    pytester.makepyfile(test_a=f"def test_x(golden):\n    {body}")
    result = run("--golden=accept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([says])


def test_a_marker_needs_one_run(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.golden\ndef test_x(compiled):\n    pass")
    result = run("--golden=accept")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["golden needs one run of `compiled`, test_x?cpu? has 0"])


def test_long_differences_are_cut_unless_asked_for(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        "import os\n\ndef test_x(golden):\n"
        "    golden.text('a', '\\n'.join(os.environ['WORD'] + str(i) for i in range(99)))"
    )
    run("--golden=accept", WORD="a")
    short, full = run(WORD="b"), run("-v", WORD="b")
    assert "b98" not in short.stdout.str() and "more lines; -v shows all" in short.stdout.str()
    assert "b98" in full.stdout.str()
