"""Golden files that no test uses any more: their test is gone, or it passed without them.

Takes the tests that were collected and that passed, and the goldens that checks looked at. Gives the files with the
reason. Refuses to judge after a partial run: one that names tests, selects by -k or -m, or was stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_plugin.devices.item_device import title_and_target
from pytest_plugin.goldens.golden_file import header_of

PARTIAL_OPTIONS = ("keyword", "lf", "stepwise", "deselect", "collectonly", "minductor_device")


def goldens_below(folder: Path) -> Mapping[Path, str]:
    """Returns each golden file below a folder, with the title of the test that its header names."""
    found: dict[Path, str] = {}
    for path in sorted(folder.rglob("*.*")) if folder.is_dir() else ():
        if path.is_file() and (header := header_of(path)) is not None:
            found[path] = header.test
    return found


@dataclass(slots=True)
class CollectedTests:
    """The tests that a process collected, before any was deselected.

    Attributes:
        modules: The test files that were collected without an error.
        owners: By the title of a test that has goldens, pairs of a test id and the target of its device.
        was_cut: Whether tests were deselected.
    """

    modules: list[str] = field(default_factory=list[str])
    owners: dict[str, list[list[str]]] = field(default_factory=dict[str, list[list[str]]])
    was_cut: bool = False

    def plain(self) -> dict[str, Any]:
        """Returns the fields as a dictionary, which xdist can carry."""
        return {"modules": self.modules, "owners": self.owners, "was_cut": self.was_cut}


class GoldenUse:
    """A plugin of pytest that records which tests and goldens are used; workers send their records."""

    def __init__(self, config: pytest.Config, goldens: Mapping[Path, str]) -> None:
        self.config = config
        self.goldens = goldens
        self.collected = CollectedTests()
        self.items: list[pytest.Item] = []
        self.passed: set[str] = set()

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Notes a collected test."""
        self.items.append(item)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a test file that was collected without an error."""
        if report.passed and report.nodeid.endswith(".py"):
            self.collected.modules.append(report.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Notes that tests were deselected."""
        self.collected.was_cut |= bool(items)

    def pytest_collection_finish(self) -> None:
        """Notes the collected tests that have goldens."""
        titles = set(self.goldens.values())
        for item in self.items:
            title, target = title_and_target(item)
            if title in titles:
                self.collected.owners.setdefault(title, []).append([item.nodeid, target])
        self.items.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a test that passed."""
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def take(self, collected: Mapping[str, Any]) -> None:
        """Takes what a worker collected, since an xdist controller collects nothing itself."""
        self.collected = CollectedTests(**collected)

    def unused(self, session: pytest.Session, used: Collection[Path]) -> Iterator[tuple[Path, str]]:
        """Yields the files that no test uses, with the reason; none after a partial run."""
        if self._is_partial(session):
            return
        roots = [self.config.rootpath / argument for argument in self.config.args]
        for path, title in self.goldens.items():
            if path in used or not path.is_file():
                continue
            module = title.partition("::")[0]
            owners = self.collected.owners.get(title)
            if owners is None:
                file = self.config.rootpath / module
                is_gone = not file.exists() and any(file.is_relative_to(root) for root in roots)
                if module in self.collected.modules or is_gone:
                    yield path, "its test is gone"
            elif (concerned := self._concerned(path, owners)) and self.passed.issuperset(concerned):
                yield path, "its test passed without it"

    def _concerned(self, path: Path, owners: Sequence[Sequence[str]]) -> list[str]:
        """Returns the tests that look at this file first; tests of other targets may share a file on a general rung."""
        header = header_of(path)
        target = header.target if header is not None else ""
        return [nodeid for nodeid, own in owners if own == target and f"/{target}/" in path.as_posix()]

    def _is_partial(self, session: pytest.Session) -> bool:
        option, config = self.config.option, self.config
        named = any("::" in argument for argument in config.args)
        marks = str(getattr(option, "markexpr", ""))
        is_usual = marks in " ".join(config.getini("addopts"))
        narrowed = any(getattr(option, name, None) for name in PARTIAL_OPTIONS) or not is_usual
        cut = self.collected.was_cut and not marks
        ended = int(session.exitstatus) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        stopped = bool(session.shouldstop or session.shouldfail)
        return named or narrowed or cut or stopped or not ended


def delete_golden(path: Path, folder: Path) -> None:
    """Deletes a file, and the folders that it leaves empty."""
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent == folder or any(parent.iterdir()):
            return
        parent.rmdir()
