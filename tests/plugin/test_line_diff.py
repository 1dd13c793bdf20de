"""Two sequences of lines: the runs cover both, equal ones are equal, and length costs no more than its share."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_plugin.goldens.line_diff import opcodes, unified_diff
from pytest_plugin.goldens.patch import hunks

LINES = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@given(LINES, LINES)
def test_runs_cover_both_sides_and_say_what_is_equal(old: list[str], new: list[str]) -> None:
    i = j = 0
    last = ""
    for tag, i1, i2, j1, j2 in opcodes(old, new):
        assert (i, j) == (i1, j1) and (i2 > i1 or j2 > j1)
        assert (tag == "equal") == (old[i1:i2] == new[j1:j2])
        assert not last or (tag == "equal") != (last == "equal")
        i, j, last = i2, j2, tag
    assert (i, j) == (len(old), len(new))


def test_ten_thousand_lines_that_repeat_or_moved_are_still_told() -> None:
    old = [f"x = a[{n % 97}];" for n in range(10_000)]
    assert sum(line[0] == "+" for line in unified_diff(old, [*old[:5000], "new", *old[5000:]])) == 1
    for new in (old[::-1], [line.replace("x", "y") for line in old], old[5000:] + old[:5000], old[1:]):
        shown = unified_diff(old, new, 10_000)
        assert [line[1:] for line in shown if line[0] in " -"] == old or old == new
        assert [line[1:] for line in shown if line[0] in " +"] == new


@pytest.mark.parametrize(
    ("old", "new"),
    [("a\nb\n", "a\nc\n"), ("", "a\n\nb"), ("a", "a\n"), ("a\r\nb\r\n", "a\nb\n"), ("x\n" * 50, "x\n" * 25 + "y")],
)
def test_git_takes_the_patch(tmp_path: Path, old: str, new: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    if old:
        (tmp_path / "x.txt").write_bytes(old.encode())
    (tmp_path / "p").write_bytes(hunks(old, new, "x.txt").encode())
    subprocess.run(["git", "apply", "p"], cwd=tmp_path, check=True)
    assert (tmp_path / "x.txt").read_bytes() == new.encode()
