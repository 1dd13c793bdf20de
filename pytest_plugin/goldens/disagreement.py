"""What a golden file says and what was generated instead, as plain values that travel on a test's report.

Takes the two sides. Gives a Disagreement, its dictionary, and back. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal[
    "equal", "drift", "new", "accepted", "refreshed", "differs", "damaged", "no header", "missing", "no base"
]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One golden that is not as the run is; paths are relative to the root of the tests."""

    test: str  # the id to run again
    target: str
    view: str
    level: str
    language: str
    file: str  # what was compared; empty if there is none
    own: str  # where accepting writes
    old: str  # the file's text below its header
    new: str
    old_facts: str
    new_facts: str
    old_content: str  # the whole file
    new_content: str
    failure: str = ""  # what the test's report says
    stages: Mapping[str, str] = field(default_factory=dict[str, str])
    timeline: str = ""  # the life of each storage

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """What one check of a golden found."""

    own: str  # the most special file that it could have been
    file: str  # the file that it was compared with; empty if there is none
    verdict: Verdict
    disagreement: Disagreement | None = None

    def plain(self) -> dict[str, Any]:
        """For pytest's report, which xdist carries."""
        told = self.disagreement.plain() if self.disagreement is not None else None
        return {"own": self.own, "file": self.file, "verdict": self.verdict, "disagreement": told}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Check:
        told = plain["disagreement"]
        disagreement = Disagreement(**told) if told is not None else None
        return cls(plain["own"], plain["file"], plain["verdict"], disagreement)
