"""The expected failures, read from the one data file beside this one.

Takes the text of expected.txt; gives its rows, and the row of a sample. Refuses a line that has not five columns or
whose reason is empty.

>>> rows = parse("linalg.svd | float32, float64 | gradient | .*full_matrices.* | eager's own gauge\\n# a comment")
>>> find(rows, "linalg.svd", "float64", "gradient", "(..., full_matrices=True)").reason
"eager's own gauge"
>>> find(rows, "linalg.svd", "float64", "forward", "(..., full_matrices=True)") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("expected.txt")
MOST = 0.01  # of all samples


@dataclass(frozen=True)
class Row:
    """Samples of an operator that fail, and why."""

    op: str
    dtypes: tuple[str, ...]
    modes: tuple[str, ...]
    pattern: str
    reason: str


def parse(text: str) -> tuple[Row, ...]:
    return tuple(_row(line) for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _row(line: str) -> Row:
    parts = [part.strip() for part in line.split(" | ")]
    if len(parts) != 5 or not parts[-1]:
        raise ValueError(f"a row is: op | dtypes | modes | pattern | reason, not {line!r}")
    op, dtypes, modes, pattern, reason = parts
    return Row(op, tuple(dtypes.split(", ")), tuple(modes.split(", ")), pattern, reason)


def find(rows: Sequence[Row], op: str, dtype: str, mode: str, sample: str) -> Row | None:
    for row in rows:
        if row.op != op or not {"*", dtype}.intersection(row.dtypes) or not {"*", mode}.intersection(row.modes):
            continue
        if re.search(row.pattern, sample):
            return row
    return None


def load() -> tuple[Row, ...]:
    return parse(FILE.read_text())
