"""The end of a run, where the terminal is: goldens that differ, their review, and files that nothing uses.

Takes the state of the run. Gives lines for the summary; writes the report's folder and, as its mode allows, goldens.
Refuses to write goldens under CI; deletes only after a complete run, in mode `accept`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_plugin.goldens import review
from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.edits import clustered
from pytest_plugin.goldens.golden_file import write_text
from pytest_plugin.goldens.patch import patch
from pytest_plugin.goldens.unused import Watch, delete
from pytest_plugin.stash import state_of
from pytest_plugin.vocabulary import amount

if TYPE_CHECKING:
    from pytest_plugin.session import State

EDITS_SHOWN = 8
PATCH, PAGE = "golden.patch", "report.html"


def finish(session: pytest.Session, watch: Watch | None) -> None:
    """Leaves its lines in the state, and fails a run whose unused goldens are errors."""
    state = state_of(session.config)
    disagreements = state.totals.disagreements
    if disagreements:
        state.endings += _reported(session.config, state, disagreements)
        if state.rules.mode == "review":
            state.endings += _reviewed(session.config, state, disagreements)
    if watch is not None and state.rules.mode != "off" and not state.rules.base:
        state.endings += _unused(session, state, watch)


def _reported(config: pytest.Config, state: State, disagreements: tuple[Disagreement, ...]) -> Iterator[str]:
    """The edits, and the folder that tells them at length."""
    edits = clustered(disagreements)
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
    from pytest_plugin.goldens.page import page

    told = review.data(disagreements)
    try:
        write_text(folder / PATCH, patch(disagreements, config.rootpath))
        write_text(folder / review.DATA, json.dumps(told, indent=1))
        write_text(folder / PAGE, page(told, disagreements, _shown(config, folder)))
    except OSError as error:
        yield f"report   not written: {error}"
        return
    yield f"report   {_shown(config, folder / PAGE)}"
    if not state.rules.base:
        yield f"patch    git apply {_shown(config, folder / PATCH)}"


def report_folder(config: pytest.Config) -> Path | None:
    """The option's, or one in pytest's cache; none if both are off."""
    if named := str(config.getoption("minductor_golden_report")):
        return config.invocation_params.dir / named
    cache: Any = getattr(config, "cache", None)
    return Path(cache.mkdir("minductor")) / "golden" if cache is not None else None


def _shown(config: pytest.Config, path: Path) -> str:
    here = config.invocation_params.dir
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _reviewed(config: pytest.Config, state: State, disagreements: tuple[Disagreement, ...]) -> Iterator[str]:
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        reporter.section("review of goldens")
        chosen = review.ask_about(disagreements, _ask, reporter.write_line)
    finally:
        if capture is not None:
            capture.resume_global_capture()
    folder = state.golden_dir / state.adapter.name
    outcome = review.apply(disagreements, chosen, config.rootpath, folder)
    yield from (f"written  {path}" for path in outcome.written)
    yield from (f"partly   {path}" for path in outcome.partly)
    yield from (f"rejected {path}" for path in outcome.rejected)


def _ask(question: str) -> str:
    sys.stdout.write(question)
    sys.stdout.flush()
    return sys.stdin.readline()


def _unused(session: pytest.Session, state: State, watch: Watch) -> Iterator[str]:
    root = session.config.rootpath
    used = {root / path for path in state.totals.looked_at}
    found = list(watch.unused(session, used))
    for path, why in found:
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
        if state.rules.mode == "accept":
            with suppress(OSError):
                delete(path, state.golden_dir)
                yield f"deleted  {shown}: {why}"
                continue
        yield f"unused   {shown}: {why}"
    if found and state.rules.fails_unused and state.rules.mode != "accept":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
