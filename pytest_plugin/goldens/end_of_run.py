"""The end of a run, in the process with the terminal: goldens that differ, their review, and files that no test uses.

Takes the results of all checks. Gives lines for the summary; writes the report's folder and, in the modes `review` and
`accept`, goldens. Refuses nothing: session.py has refused those modes under CI. Unused goldens are deleted only after a
complete run in mode `accept`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_plugin.goldens import review
from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.edit_clusters import cluster_edits
from pytest_plugin.goldens.golden import Rules
from pytest_plugin.goldens.golden_file import write_text
from pytest_plugin.goldens.patch import patch
from pytest_plugin.goldens.unused_goldens import GoldenUse, delete_golden
from pytest_plugin.vocabulary import amount

EDITS_SHOWN = 8
PATCH, PAGE = "golden.patch", "report.html"


@dataclass(frozen=True, slots=True)
class EndOfRun:
    """The golden files at the end of one run.

    Attributes:
        session: pytest's session.
        rules: How goldens are treated in this run.
        folder: The folder of the golden files of all compilers.
        compiler: The name of the compiler.
        disagreements: The goldens that differ.
        used: The golden files that a check looked at, as paths below the root.
    """

    session: pytest.Session
    rules: Rules
    folder: Path
    compiler: str
    disagreements: tuple[Disagreement, ...]
    used: Collection[str]

    def lines(self, watch: GoldenUse | None) -> Iterator[str]:
        """Yields the lines of the summary. Writes the report, and fails a run whose unused goldens are errors."""
        if self.disagreements:
            yield from self._reported()
            if self.rules.mode == "review":
                yield from self._reviewed()
        if watch is not None and self.rules.mode != "off" and not self.rules.base:
            yield from self._unused(watch)

    def _reported(self) -> Iterator[str]:
        """Writes the report, and yields the edits and the paths of the report."""
        disagreements, config = self.disagreements, self.session.config
        edits = cluster_edits(disagreements)
        yield f"differ   {amount(len(disagreements), 'golden')} in {amount(len(edits), 'edit')}, most frequent first"
        for number, edit in enumerate(edits[:EDITS_SHOWN], 1):
            lines = edit.lines()
            shown = "  ".join(lines[:2]) + (f"  ... {len(lines) - 2} more lines" if len(lines) > 2 else "")
            place = f"   in {edit.example[:80]}" if edit.example not in shown else ""
            where = f"{amount(len(edit.places), 'time')} in {amount(len(edit.files), 'golden')}"
            yield f"  {number:>3}  {where}: {shown[:160]}{place}"
        if len(edits) > EDITS_SHOWN:
            yield f"  ... {len(edits) - EDITS_SHOWN} more"
        folder = report_folder(config)
        if folder is None:
            return
        from pytest_plugin.goldens.report_page import report_page

        report = review.report_data(disagreements)
        try:
            write_text(folder / PATCH, patch(disagreements, config.rootpath))
            write_text(folder / review.DATA, json.dumps(report, indent=1))
            write_text(folder / PAGE, report_page(report, disagreements, _path_from_here(config, folder)))
        except OSError as error:
            yield f"report   not written: {error}"
            return
        yield f"report   {_path_from_here(config, folder / PAGE)}"
        if not self.rules.base:
            yield f"patch    git apply {_path_from_here(config, folder / PATCH)}"

    def _reviewed(self) -> Iterator[str]:
        """Asks about each edit in the terminal, writes what was accepted, and yields the paths."""
        config = self.session.config
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        capture: Any = config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=True)
        try:
            reporter.section("review of goldens")
            chosen = review.ask_about(self.disagreements, _ask_in_terminal, reporter.write_line)
        finally:
            if capture is not None:
                capture.resume_global_capture()
        folder = self.folder / self.compiler
        outcome = review.apply_edits(self.disagreements, chosen, config.rootpath, folder)
        yield from (f"written  {path}" for path in outcome.written)
        yield from (f"partly   {path}" for path in outcome.partly)
        yield from (f"rejected {path}" for path in outcome.rejected)

    def _unused(self, watch: GoldenUse) -> Iterator[str]:
        """Yields the goldens that no test uses, and deletes them in mode `accept`."""
        root = self.session.config.rootpath
        used = {root / path for path in self.used}
        found = list(watch.unused(self.session, used))
        for path, why in found:
            shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            if self.rules.mode == "accept":
                with suppress(OSError):
                    delete_golden(path, self.folder)
                    yield f"deleted  {shown}: {why}"
                    continue
            yield f"unused   {shown}: {why}"
        if found and self.rules.fails_unused and self.rules.mode != "accept":
            self.session.exitstatus = pytest.ExitCode.TESTS_FAILED


def report_folder(config: pytest.Config) -> Path | None:
    """Returns the folder of the report: the option's, or one in pytest's cache, or None without a cache."""
    if named := str(config.getoption("minductor_golden_report")):
        return config.invocation_params.dir / named
    cache: Any = getattr(config, "cache", None)
    return Path(cache.mkdir("minductor")) / "golden" if cache is not None else None


def _path_from_here(config: pytest.Config, path: Path) -> str:
    here = config.invocation_params.dir
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _ask_in_terminal(question: str) -> str:
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline()
