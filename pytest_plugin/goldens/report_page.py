"""Makes report.html: one page that opens from disk, with edits on the left and both sources on the right.

Takes the data of a review. Gives HTML that loads nothing else. Refuses nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.failure_text import facts_delta
from pytest_plugin.goldens.line_diff import opcodes
from pytest_plugin.goldens.readable_diff import with_golden_names

TEMPLATE = Path(__file__).with_name("report.html")
MARK = '"REVIEW DATA"'


def report_page(report: Mapping[str, object], disagreements: Sequence[Disagreement], folder: str) -> str:
    """Returns the page.

    Args:
        report: The edits, as `review.report_data` returns them.
        disagreements: The goldens that differ.
        folder: The folder of the report, as a command line names it.
    """
    goldens = [
        {
            "test": d.test,
            "path": d.own,
            "target": d.target,
            "view": f"{d.view} @ {d.level}",
            "facts": facts_delta(d.old_facts, d.new_facts),
            "rows": side_by_side(d),
            "stages": dict(d.stages),
            "timeline": d.timeline,
        }
        for d in disagreements
    ]
    data = json.dumps({"edits": report["edits"], "goldens": goldens, "folder": folder})
    # "</script>" inside the data would end the script.
    return TEMPLATE.read_text(encoding="utf-8").replace(MARK, data.replace("<", "\\u003c"))


def side_by_side(d: Disagreement) -> list[list[object]]:
    """Returns rows: whether the sides differ, line number and text on the left, line number and text on the right."""
    old = d.old.splitlines()
    new = with_golden_names(d.old, d.new, d.language)[0].splitlines()
    found: list[list[object]] = []
    for tag, i1, i2, j1, j2 in opcodes(old, new):
        for n in range(max(i2 - i1, j2 - j1)):
            left = [i1 + n + 1, old[i1 + n]] if i1 + n < i2 else ["", ""]
            right = [j1 + n + 1, new[j1 + n]] if j1 + n < j2 else ["", ""]
            found.append([tag != "equal", *left, *right])
    return found
