"""The golden file: it reads back as written, and is written whole or not at all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_plugin.goldens.golden_file import (
    COMMENT,
    Golden,
    Header,
    Place,
    file_name,
    parse,
    read_golden,
    write_golden,
)
from pytest_plugin.vocabulary import LEVELS

WORD = st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=8)
LINE = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
TEXT = st.lists(st.just("") | LINE | st.sampled_from(["# note    no", "// facts   no", "# golden  no"])).map("\n".join)
LEVEL = st.sampled_from(LEVELS)
HEADER = st.builds(Header, WORD, WORD, WORD, LEVEL, st.just("") | LINE, st.lists(LINE, max_size=2).map(tuple))
GOLDEN = Golden(Header("tests/test_a.py::test_x[4]", "cpu", "kernel", "exact", "kernels=1", ("why",)), "int a;\n")


@given(st.builds(Golden, HEADER, TEXT), st.sampled_from(sorted(COMMENT)))
def test_what_is_written_reads_back(golden: Golden, language: str) -> None:
    assert parse(golden.render(language), language) == golden
    assert parse(golden.render(language).replace("\n", "\r\n"), language) == golden


@pytest.mark.parametrize("content", ["", "int a;\n", "# golden  x\n", "// golden  x   target=cpu  view=kernel\n"])
def test_other_files_are_refused(content: str) -> None:
    with pytest.raises(ValueError, match="line 1: it is not a golden's header"):
        parse(content, "cpp")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "x.cpp"
    write_golden(path, GOLDEN, "cpp")

    def interrupted(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_golden(path, replace(GOLDEN, text="int b;\n"), "cpp")
    assert read_golden(path, "cpp") == GOLDEN
    assert list(path.parent.iterdir()) == [path]


def test_the_nearest_rung_is_found_and_an_equal_one_above_suffices(tmp_path: Path) -> None:
    place = Place(tmp_path, "sm_90", "e2e/test_a/test_x.kernel.py")
    assert place.find() is None
    rungs = [path.relative_to(tmp_path).parts[0] for path in place.rungs()]
    assert rungs == ["sm_90", "sm", "gpu", "any"]
    write_golden(place.rungs()[2], GOLDEN, "py")
    assert place.find() == place.rungs()[2]
    assert place.accept(GOLDEN, "py") == place.rungs()[2]
    other = replace(GOLDEN, text="another\n")
    assert place.accept(other, "py") == place.rungs()[0] == place.find()
    assert read_golden(place.rungs()[2], "py") == GOLDEN
    assert place.accept(GOLDEN, "py") == place.rungs()[2] and not place.rungs()[0].exists()


def test_names_of_files_are_safe_and_tell_parameters_apart() -> None:
    names = {
        file_name("test_x", parameters, "kernel", "cpp") for parameters in ("a/b", "a_b", "a b", "../a", "a" * 200)
    }
    assert len(names) == 5
    assert all("/" not in name and len(name) < 130 for name in names)
