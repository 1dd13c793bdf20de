"""The sums of what all tests of a run proved, and the lines of the terminal's summary that tell them.

Takes the summary of each test, as plain values that xdist carries. Gives lines of text. Refuses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_plugin.goldens.disagreement import Check, Disagreement
from pytest_plugin.vocabulary import amount

# The checks that the summary counts besides goldens. The first two are listed even if their count is zero.
CHECKED = ("numeric", "counts", "memory", "faults", "repeats")


@dataclass(slots=True)
class Totals:
    """The summaries of all tests, added up.

    Attributes:
        tests: The number of tests by device.
        sums: The sums of all numbers in the summaries.
        checked_files: The golden files that a check looked at.
        verdicts: The number of golden checks by verdict.
        lacks: The number of skipped tests by the capability that is absent.
        goldens: The checks that were not equal.
    """

    tests: Counter[str] = field(default_factory=Counter[str])
    sums: Counter[str] = field(default_factory=Counter[str])
    checked_files: set[str] = field(default_factory=set[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    lacks: Counter[str] = field(default_factory=Counter[str])
    goldens: list[Check] = field(default_factory=list[Check])

    def add(self, summary: Mapping[str, Any]) -> None:
        """Adds the summary of one test."""
        if summary["device"] and summary["runs"]:
            self.tests[summary["device"]] += 1
        for name, value in summary.items():
            if isinstance(value, int):
                self.sums[name] += value
        for plain in summary["goldens"]:
            check = Check.of(plain)
            self.verdicts[check.verdict] += 1
            if check.verdict != "equal":
                self.goldens.append(check)
            self.checked_files.update(path for path in (check.own, check.file) if path)

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """The goldens that differ, in the order of their files."""
        found = [check.disagreement for check in self.goldens if check.disagreement is not None]
        return tuple(sorted(found, key=lambda d: (d.own, d.test)))

    def lines(self) -> Sequence[str]:
        """Returns the lines of the summary; none if no test used the plugin."""
        lines: list[str] = []
        if self.tests:
            sums = self.sums
            tests = ", ".join(f"{amount(count, 'test')} on {device}" for device, count in sorted(self.tests.items()))
            parts = [
                amount(sums["graphs"], "graph"),
                *([f"{sums['hits']} of them from a store"] if sums["hits"] else []),
                f"{amount(sums['launches'], 'kernel')} launched",
                f"{amount(sums['externs'], 'extern')} called",
                *([f"{amount(sums['assembled'], 'kernel')} compiled for a GPU elsewhere"] if sums["assembled"] else []),
            ]
            lines.append(f"ran      {tests}: {', '.join(parts)}")
        checks = [f"{name} {self.sums[name]}" for name in CHECKED if self.sums[name] or name in CHECKED[:2]]
        if self.verdicts:
            total = sum(self.verdicts.values())
            kinds = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
            checks.append(f"golden {total} ({kinds})")
        if self.tests or self.verdicts:
            lines.append(f"checked  {', '.join(checks)}")
        if count := self.sums["unproved"]:
            lines.append(f"unproved {amount(count, 'test')}: the compiler under test has no table of faults")
        lines += [f"lacks    {amount(count, 'test')} skipped: {what}" for what, count in sorted(self.lacks.items())]
        words = {"new": "written", "accepted": "written", "refreshed": "written", "drift": "drift"}
        listed = [(words[check.verdict], check.own) for check in self.goldens if check.verdict in words]
        lines += [f"{word:<8} {path}" for word, path in sorted(listed, key=lambda line: (line[0] != "drift", line))]
        return lines
