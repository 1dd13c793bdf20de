"""What `gpu_check.py` has found so far: a row for each case, with the commit and the day it was found at.

Takes and gives a file of JSON lines, of which the last of a case counts; it may end anywhere. `table` gives Markdown.
A row is stale if it was found at another commit, or with another torch, than the newest row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

COLUMNS = ("right", "WRONG", "ERROR", "missing", "stale")


@dataclass(frozen=True, slots=True)
class Row:
    """`verdict`: "right", "WRONG" or "ERROR"; `figures`: what the case says; `day`: as 2026-11-28."""

    case: str
    verdict: str
    figures: str
    seconds: float
    commit: str
    day: str
    gpu: str
    torch: str


def append(path: Path, row: Row) -> None:
    """Adds a row; a line that a process left unfinished is ended before it."""
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            file.write(b"\n" * (file.read(1) != b"\n"))
        file.write(json.dumps(asdict(row)).encode() + b"\n")


def load(path: Path) -> dict[str, Row]:
    """The last row of each case, in the order in which the cases were first found; no row for a line that was cut."""
    found: dict[str, Row] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[row.case] = row
    return found


def table(rows: Iterable[Row], cases: Iterable[str]) -> str:
    """Markdown: counts by kind of case, and then each row that is not right or is stale, and each case without a row.

    The kind of a case is what stands before the first slash of its name.
    """
    known = {row.case: row for row in rows}
    newest = max(known.values(), key=lambda row: row.day, default=None)
    kinds: dict[str, dict[str, int]] = {}
    told: list[str] = []
    for case in dict.fromkeys((*cases, *known)):
        row = known.get(case)
        stale = row is not None and newest is not None and is_stale(row, newest)
        state = "missing" if row is None else row.verdict
        counts = kinds.setdefault(
            case.partition("/")[0], dict.fromkeys(("right", "WRONG", "ERROR", "missing", "stale"), 0)
        )
        counts[state] += 1
        counts["stale"] += stale
        if row is not None and (stale or state != "right"):
            told.append(f"| {case} | {state}{', stale' * stale} | {row.commit} | {row.day} | {_cell(row.figures)} |")
    head = [f"| kind | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    body = [f"| {kind} | {' | '.join(map(str, counts.values()))} |" for kind, counts in kinds.items()]
    tail = ["", "| case | state | commit | day | figures |", "|---|---|---|---|---|", *told] if told else []
    return "\n".join([*head, *body, *tail])


def is_stale(row: Row, newest: Row) -> bool:
    """Whether a row says nothing of the code and the torch of the newest one."""
    return (row.commit, row.torch) != (newest.commit, newest.torch)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:160]


def todo(cases: Iterable[str], known: Mapping[str, Row], commit: str) -> list[str]:
    """The cases to run: those without a row at this commit; those that never had one come first."""
    open_cases = [case for case in cases if case not in known or known[case].commit != commit]
    return sorted(open_cases, key=lambda case: case in known)
