"""The result of checking one golden file, as plain values that travel on a test's report.

Takes the stored and the generated text. Gives a Check, with a Disagreement if they differ, its dictionary, and back.
Refuses nothing.
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
    """One golden file that differs from what the run generated. Paths are relative to the root of the tests.

    Attributes:
        test: The id of the test, to run it again.
        target: The target of the test's device.
        view: The view.
        level: The level of the comparison.
        language: The language of the text.
        file: The file that was compared; empty if there is none.
        own: The file that accepting writes: the most specific one.
        old: The stored text, without its header.
        new: The generated text.
        old_facts: The stored counts.
        new_facts: The counts of the run.
        old_content: The whole content of the file `own`; empty if there is none.
        new_content: The content that accepting writes.
        failure: The failure that the test's report shows.
        stages: The text of the program after each stage.
        timeline: The life of each storage, as text.
    """

    test: str
    target: str
    view: str
    level: str
    language: str
    file: str
    own: str
    old: str
    new: str
    old_facts: str
    new_facts: str
    old_content: str
    new_content: str
    failure: str = ""
    stages: Mapping[str, str] = field(default_factory=dict[str, str])
    timeline: str = ""

    def plain(self) -> dict[str, Any]:
        """Returns the fields as a dictionary."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of a golden.

    Attributes:
        own: The most specific file that it could have been compared with.
        file: The file that it was compared with; empty if there is none.
        verdict: The result.
        disagreement: The difference, if there is one.
    """

    own: str
    file: str
    verdict: Verdict
    disagreement: Disagreement | None = None

    def plain(self) -> dict[str, Any]:
        """Returns the fields as a dictionary, which pytest's report and xdist can carry."""
        details = self.disagreement.plain() if self.disagreement is not None else None
        return {"own": self.own, "file": self.file, "verdict": self.verdict, "disagreement": details}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Check:
        """Returns the check that `plain` made the dictionary of."""
        details = plain["disagreement"]
        disagreement = Disagreement(**details) if details is not None else None
        return cls(plain["own"], plain["file"], plain["verdict"], disagreement)
