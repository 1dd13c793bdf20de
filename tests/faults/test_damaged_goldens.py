"""Golden files that an editor, a merge or a crash has damaged are refused with the line, before they are compared."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from pytest_plugin.goldens.golden_file import Damaged, parse, read_content
from tests.plugin.conftest import Run

ROOT = Path(__file__).parents[2]
GOLDENS = sorted(path for path in (ROOT / "golden").rglob("*") if path.is_file())
# One of each language and target.
SAMPLE = list({(path.suffix, path.relative_to(ROOT / "golden").parts[1]): path for path in GOLDENS}.values())
# What a damage puts before a line.
INSERTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "conflict": ("<<<<<<< HEAD", "one", "=======", "other", ">>>>>>> branch"),
        "empty conflict": ("<<<<<<< HEAD", "=======", ">>>>>>> branch"),
        "conflict with its base": ("<<<<<<< HEAD", "||||||| 1a2b3c4", "=======", ">>>>>>> branch"),
        "begin of a conflict": ("<<<<<<< HEAD",),
        "base of a conflict": ("||||||| merged common ancestors",),
        "middle of a conflict": ("=======",),
        "end of a conflict": (">>>>>>>",),
        "NULs": ("\0" * 8,),
    }
)


def refused(content: str, path: Path) -> int:
    """The line for which it is refused."""
    with pytest.raises(Damaged) as caught:
        parse(content, path.suffix[1:])
    assert str(caught.value).startswith(f"line {caught.value.line}: ") and caught.value.why
    return caught.value.line


def every_damage(path: Path) -> Iterator[tuple[str, int]]:
    """The content with each damage at each line, and the line that is wrong."""
    lines = read_content(path).split("\n")
    for added in INSERTED.values():
        for place in range(len(lines)):
            yield "\n".join([*lines[:place], *added, *lines[place:]]), place + 1
    for place in range(1, len(lines) - 1):
        yield "\n".join(lines[:place]) + "\n", place + 1  # cut behind a line
        yield "\n".join([*lines[:place], "\0\0\0"]), place + 1  # the blocks of a file that a crash left empty


@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: "-".join((path.parent.parent.name, path.name)))
def test_every_damage_at_every_line_is_refused_with_the_line(path: Path) -> None:
    assert parse(read_content(path), path.suffix[1:]).text
    for content, line in every_damage(path):
        assert refused(content, path) == line
        assert refused(content.replace("\n", "\r\n"), path) == line


@pytest.mark.long
@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.relative_to(ROOT / "golden").as_posix())
def test_every_golden_of_the_project_with_every_damage(path: Path) -> None:
    for content, line in every_damage(path):
        assert refused(content, path) == line
    content = read_content(path)
    for end in range(len(content)):
        refused(content[:end], path)


def test_a_cut_within_the_last_line_is_refused() -> None:
    content = read_content(GOLDENS[0])
    for end in range(len(content) - 40, len(content)):
        refused(content[:end], GOLDENS[0])


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("level=exact", "level=exct", "line 1: no level is called 'exct'; did you mean 'exact'?; the levels are *"),
        ("level=exact", "", "line 1: it is not a golden's header"),
        ("\n\n", "\n", "line 2: an empty line is missing between the header and the text"),
        ("\n\n", "\n# facts   a=1\n# facts   a=2\n\n", "line 3: the header has facts twice"),
        ("\n# end of golden\n", "\n# end of golden\nmore\n", "line * there is text after the last line of the golden"),
        ("\n# end of golden\n", "\n# end of golden", "line * the file was cut"),
        ("\n\n", "\n\na\rb", "line 3: it has a carriage return before its end"),
    ],
)
def test_a_header_and_an_end_that_nobody_wrote_are_refused(old: str, new: str, says: str) -> None:
    content = read_content(GOLDENS[0])
    with pytest.raises(Damaged) as caught:
        parse(content.replace(old, new, 1), "txt")
    start, _, end = says.partition("*")
    assert str(caught.value).startswith(start) and str(caught.value).endswith(end)


SUITE = """
    import pytest, torch

    @pytest.mark.parametrize("how", ["conflict", "marker", "nul", "latin", "tail"])
    @pytest.mark.parametrize("level", ["facts", "skeleton"])
    def test_level(compiled, golden, level, how):
        golden.check(compiled(lambda x: x.sin() + 1, torch.ones(3)), level=level)
"""
OWN_LEVEL = """
    import torch

    def test_own_level(compiled, golden):
        golden.check(compiled(lambda x: x.sin() + 1, torch.ones(3)))
"""
OWN_FILE = "golden/eager/cpu/test_suite/test_own_level.kernel.py"
DAMAGE: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "conflict": lambda text: text.replace("    ", "<<<<<<< HEAD\n=======\n>>>>>>> branch\n    ", 1),
        "marker": lambda text: text.replace("    ", "=======\n    ", 1),
        "nul": lambda text: text.replace("    ", "    \0", 1),
        "latin": lambda text: text.replace("    ", "    # ole\udce9\n    ", 1),
        "tail": lambda text: text[: text.index("    ")],
    }
)


@pytest.fixture
def own_file(pytester: pytest.Pytester, run: Run) -> Path:
    """The golden of a test that leaves the level to the file."""
    pytester.makepyfile(test_suite=OWN_LEVEL)
    run("--golden=accept").assert_outcomes(passed=1)
    return pytester.path / OWN_FILE


def test_a_damaged_golden_is_refused_before_it_is_compared(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_suite=SUITE)
    run("--golden=accept").assert_outcomes(passed=10)
    before = {path: path.read_text() for path in sorted(pytester.path.rglob("golden/**/*.py"))}
    for path, text in before.items():
        how = path.name.removesuffix(".kernel.py").rpartition("-")[2]
        path.write_text(DAMAGE[how](text), errors="surrogateescape")
    line = text.count("\n", 0, text.index("    ")) + 1
    result = run("--golden=refresh")
    result.assert_outcomes(failed=10)
    told = [line for line in result.stdout.lines if "Mismatch: golden damaged" in line]
    assert len(told) == 10 and all(f".kernel.py:{line}: " in text for text in told)
    assert "  text      " not in result.stdout.str() and "drift" not in result.stdout.str()
    run("--golden=accept").assert_outcomes(passed=10)
    assert {path: path.read_text() for path in before} == before


def test_what_people_wrote_survives_a_conflict_in_the_header(own_file: Path, run: Run) -> None:
    text = own_file.read_text().replace("level=skeleton", "level=canonical")
    head, _, rest = text.partition("\n# facts")
    ours, theirs = "# facts   kernels=7\n# note    ours\n", "# facts   kernels=8\n# note    theirs\n"
    own_file.write_text(f"{head}\n<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> branch\n# facts{rest}")
    run().assert_outcomes(failed=1)
    run("--golden=accept").assert_outcomes(passed=1)
    lines = own_file.read_text().split("\n")
    assert "level=canonical" in lines[0] and lines[2:4] == ["# note    ours", "# note    theirs"]
    assert own_file.read_text().partition("\n\n")[2] == text.partition("\n\n")[2]


def test_a_misspelt_level_is_told_and_never_lowered(own_file: Path, run: Run) -> None:
    text = own_file.read_text().replace("level=skeleton", "level=canonicle")
    own_file.write_text(text)
    for mode in ("check", "accept"):
        result = run(f"--golden={mode}")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [
                "*golden damaged  test_own_level?cpu?   *.kernel.py:1: no level is called 'canonicle'; "
                "did you mean 'canonical'?; the levels are facts, skeleton, canonical, exact",
                "*  redo      repair the line, or delete the file: its header, which has the level, cannot be read",
            ]
        )
        assert own_file.read_text() == text


@pytest.mark.parametrize("mode", ["new", "accept", "check", "off"])
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_written(
    pytester: pytest.Pytester, run: Run, mode: str
) -> None:
    names = ["my words", "../x", "a/b", "/abs", "", "a\0b", "a\nb", "a\\b", "n" * 300, "a:b", "\ud800"]
    pytester.makepyfile(
        test_names=f"""
        import pytest

        @pytest.mark.parametrize("name", {names!r}, ids=range({len(names)}))
        def test_name(golden, name):
            with pytest.raises(ValueError, match="test_name.*(name|files)"):
                golden.text(name, "x")
        """
    )
    run(f"--golden={mode}").assert_outcomes(passed=len(names))
    assert not (pytester.path / "golden").exists()


def test_a_text_that_no_golden_can_hold_is_refused_before_anything_is_written(
    pytester: pytest.Pytester, run: Run
) -> None:
    texts = {
        "a\r\nb": "line 1 of the text has a carriage return; .*text.replace",
        "a\nb\r": "line 2 of the text has a carriage return",
        "a\n\0": "line 2 of the text cannot stand in a golden: it has a NUL",
        "\n=======\n": "line 2 of the text cannot stand in a golden: it is git's mark",
        "<<<<<<< HEAD": "line 1 of the text cannot stand",
        "# end of golden": "line 1 of the text is the line that ends a golden",
        "a\n\ud800": "line 2 of the text is not Unicode",
    }
    pytester.makepyfile(
        test_texts=f"""
        import pytest

        @pytest.mark.parametrize(("text", "says"), {list(texts.items())!r}, ids=range({len(texts)}))
        def test_text(golden, text, says):
            with pytest.raises(ValueError, match=says):
                golden.text("words", text)

        def test_lines_that_only_look_alike(golden):
            golden.text("words", "======= \\n========\\n <<<<<<< HEAD\\n>>>>>>>>\\nx =======\\n# end of golden!")
        """
    )
    run("--golden=accept").assert_outcomes(passed=len(texts) + 1)
    assert [path.name for path in pytester.path.rglob("*.words.txt")] == ["test_lines_that_only_look_alike.words.txt"]
    run("--golden=check").assert_outcomes(passed=len(texts) + 1)
