"""The rows of `benchmarks/gpu_check.py`: what a run that was stopped leaves, what the next one runs, and the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.gpu_results import Row, append, load, table, todo

OLD = Row("micro/add", "right", "error 1", 0.5, "aaaa", "2026-11-01", "a GPU", "2.11")
NEW = replace(OLD, case="model/gpt", verdict="WRONG", figures="error | 9", commit="bbbb", day="2026-11-28")


def test_a_run_that_was_stopped_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append(path, OLD)
    append(path, NEW)
    path.write_bytes(path.read_bytes()[:-20])  # stopped in the last line
    assert load(path) == {"micro/add": OLD}
    append(path, NEW)
    append(path, replace(OLD, commit="bbbb"))
    assert load(path) == {"micro/add": replace(OLD, commit="bbbb"), "model/gpt": NEW}


def test_what_is_missing_comes_before_what_is_stale() -> None:
    known = {row.case: row for row in (OLD, NEW)}
    assert todo(["micro/add", "model/gpt", "special/streams"], known, "bbbb") == ["special/streams", "micro/add"]


def test_the_table_says_what_is_wrong_stale_and_missing() -> None:
    lines = table([OLD, NEW], ["micro/add", "micro/mul", "model/gpt"]).splitlines()
    assert lines[2:4] == ["| micro | 1 | 0 | 0 | 1 | 1 |", "| model | 0 | 1 | 0 | 0 | 0 |"]
    assert lines[-2:] == [
        "| micro/add | right, stale | aaaa | 2026-11-01 | error 1 |",
        "| model/gpt | WRONG | bbbb | 2026-11-28 | error / 9 |",
    ]
