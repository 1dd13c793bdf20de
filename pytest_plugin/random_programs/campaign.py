"""--fuzz=MINUTES: random programs through the compiler under test, in place of tests.

Takes a folder, minutes and an adapter. Gives a record for each program, a line of JSON, and for each bad program a
script, made as small as possible, that needs neither pytest nor hypothesis. Refuses nothing.

A campaign that is started again continues after its last program. A program with a start but no result took the
process with it: it is recorded as `died`. An error with the same message as an earlier one shares its script.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_plugin.adapters import Adapter
from pytest_plugin.devices.device_choice import Device
from pytest_plugin.random_programs.programs import Program
from pytest_plugin.random_programs.verdict import ProgramVerdict, judge, shrink_bad_program
from pytest_plugin.vocabulary import amount

BAD = ("wrong", "error", "died")
TRIALS = 100  # of smaller programs, for each bad one


@dataclass(frozen=True, slots=True)
class Campaign:
    """The programs 0, 1, 2 and so on, one after the other.

    Attributes:
        adapter: The compiler under test.
        folder: The folder of the records and scripts.
        program: Returns the program of a number.
    """

    adapter: Adapter
    folder: Path
    program: Callable[[int], Program]

    @property
    def journal(self) -> Path:
        """The file with the records."""
        return self.folder / f"{self.adapter.name}.jsonl"

    def records(self) -> list[dict[str, Any]]:
        """Returns the records so far."""
        if not self.journal.exists():
            return []
        return [json.loads(line) for line in self.journal.read_text(encoding="utf-8").splitlines()]

    def run(self, minutes: float, say: Callable[[str], None]) -> None:
        """Runs programs for so many minutes, at least one program, and reports each bad one by `say`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + 60 * minutes
        done = self.records()
        begun = {record["number"] for record in done if record["word"] == "begun"}
        lost = begun - {record["number"] for record in done if record["word"] != "begun"}
        for number in sorted(lost):
            script = self._script(self.program(number), "the process died", number)
            self._note(number, ProgramVerdict("error", "the process died"), script, word="died")
        number = max(begun, default=-1) + 1
        with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as stores:
            while True:
                self._note(number, ProgramVerdict("right"), "", word="begun")
                found, script = self.judged(number, Path(stores))
                self._note(number, found, script)
                if found.is_bad:
                    say(f"{found.word}  program {number}: {_first_line(found.why)}  {script}")
                number += 1
                if time.monotonic() >= end:
                    return

    def judged(self, number: int, stores: Path) -> tuple[ProgramVerdict, str]:
        """Returns the verdict of a program, and the path of its script if it is bad.

        Args:
            number: The number of the program.
            stores: The folder in which it is compiled.
        """
        given = self.program(number)
        dynamic = True if given.scalable else None

        def compile_function(fn: Callable[..., Any]) -> Callable[..., Any]:
            session = self.adapter.session(Path(tempfile.mkdtemp(dir=stores)), Device("cpu"))
            return session.compile(fn, {}, dynamic)

        found = judge(given, compile_function)
        if not found.is_bad:
            return found, ""
        if known := self._same_error(found):
            return found, known
        small, why = shrink_bad_program(given, compile_function, most=TRIALS)
        return why, self._script(small, why.why, number)

    def _same_error(self, found: ProgramVerdict) -> str:
        """Returns the script of an earlier program that failed with the same message, or an empty text."""
        if found.word != "error":
            return ""
        same = (
            r["script"]
            for r in self.records()
            if r["word"] == "error" and _first_line(r["why"]) == _first_line(found.why)
        )
        return next(same, "")

    def _script(self, given: Program, why: str, number: int) -> str:
        path = self.folder / f"{self.adapter.name}-{number}.py"
        options = getattr(self.adapter, "settings", None)
        text = given.script(backend=self.adapter.name, why=why, dynamic=given.scalable, options=options)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def _note(self, number: int, found: ProgramVerdict, script: str, word: str = "") -> None:
        record = {"number": number, "word": word or found.word, "why": found.why[:1500], "script": script}
        with self.journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _first_line(why: str) -> str:
    return why.partition("\n")[0][:150]


def verdict_lines(records: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yields the number of programs by verdict, and the scripts of the bad ones."""
    ended = [record for record in records if record["word"] != "begun"]
    counts = Counter(record["word"] for record in ended)
    yield f"fuzz     {amount(len(ended), 'program')}: {', '.join(f'{n} {word}' for word, n in counts.most_common())}"
    yield from (f"  {record['word']:<6} {record['script']}" for record in ended if record["word"] in BAD)
