"""`golden.check(run)`: generated text against a stored file, at a declared level.

Takes a Run, or text with a name. Gives nothing if it is equal at the level; finer differences are drift, which is
counted and not failed. Refuses, by Mismatch, other text; a missing golden, which mode `new` writes and fails once for;
and, by ValueError, a view or level that does not exist and a second check of the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pytest_plugin.canonical import canonical
from pytest_plugin.difference import difference
from pytest_plugin.facts import Facts, Run
from pytest_plugin.golden_file import FORM, Golden, Header, Place, file_name, read
from pytest_plugin.vocabulary import LEVELS, VIEWS

LINES_SHOWN = 40
# The counts that a header states, those that the compiler knows.
FACTS = ("kernels", "externs", "block_accesses", "block_pointers", "descriptors", "tiles", "bytes", "peak")

Verdict = Literal["equal", "drift", "new", "accepted", "differs"]


class Mismatch(AssertionError):
    """Generated text is not the golden's."""


@dataclass(frozen=True, slots=True)
class Text:
    """One view of a run."""

    view: str
    language: str
    text: str
    facts: str = ""


def _kernel_view(run: Run) -> Text:
    graphs = [graph for graph in run.graphs if graph.kernels]
    language = graphs[0].kernels[0].language if graphs else "txt"
    kernels = [kernel.text for graph in graphs for kernel in graph.kernels]
    return Text("kernel", language, "\n".join(kernels), facts_line(run.report))


def _wrapper_view(run: Run) -> Text:
    wrappers = [wrapper for wrapper in run.wrappers if wrapper]
    return Text("wrapper", "py", "\n\n".join(wrappers))


PRINTERS: Mapping[str, Callable[[Run], Text]] = MappingProxyType({"kernel": _kernel_view, "wrapper": _wrapper_view})


def facts_line(facts: Facts) -> str:
    """The counts that are known and not nought, in the order of the table."""
    known = facts.known()
    return "  ".join(f"{name}={known[name]}" for name in FACTS if known.get(name))


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found; travels on the test's report."""

    path: str
    verdict: Verdict


@dataclass(slots=True, repr=False)
class Goldens:
    """The value of the fixture `golden`, for one test."""

    folder: Path  # golden/<compiler>
    root: Path
    node: str  # the test's id without parameters
    inner: str  # the test file below tests/, without .py
    test: str
    parameters: str
    target: str
    shown: str  # the test's id as pytest prints it
    mode: str
    verbose: bool
    checks: list[Check] = field(default_factory=list[Check])

    def check(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "canonical", name: str = "") -> None:
        """Compares a view of the run, "kernel" or "wrapper"; `name` tells several runs of one test apart."""
        __tracebackhide__ = True
        if why := self.mismatch(run, view, level, name):
            raise Mismatch(why)

    def mismatch(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "canonical", name: str = "") -> str:
        """What `check` would raise, as text."""
        views = (view,) if isinstance(view, str) else tuple(view)
        for each in views:
            if each not in VIEWS:
                raise ValueError(f"no view is called {each!r}; the views are {', '.join(VIEWS)}")
        if not run.graphs:
            return f"nothing was captured, so {self.shown} has no {' and no '.join(views)} to compare"
        return "\n\n".join(why for each in views if (why := self._verdict(PRINTERS[each](run), level, name)))

    def text(self, name: str, text: str, level: str = "exact") -> None:
        """Compares any text, under a name of its own."""
        __tracebackhide__ = True
        if failure := self._verdict(Text(name, "txt", text if text.endswith("\n") else text + "\n"), level, ""):
            raise Mismatch(failure)

    def _verdict(self, new: Text, level: str, name: str) -> str:
        """Compares, writes what the mode allows, and notes it; the failure's text, or nothing."""
        if level not in LEVELS:
            raise ValueError(f"no level is called {level!r}; the levels are {', '.join(LEVELS)}")
        view = f"{name}.{new.view}" if name else new.view
        place = Place(self.folder, self.target, f"{self.inner}/{self._file(view, new.language)}")
        own = self._shown_path(place.rungs()[0])
        if any(check.path == own for check in self.checks):
            raise ValueError(f"{self.shown} checks {own} twice; give one of them a name=")
        wanted = Golden(Header(self.title, self.target, new.view, level, new.facts), new.text)
        path = place.find()
        if path is None:
            return self._missing(place, wanted, new.language, own)
        try:
            old = read(path, new.language)
        except (ValueError, UnicodeDecodeError) as error:
            old = Golden(Header("", "", "", "", form=f"unreadable: {error}"), "")
        wanted = Golden(Header(self.title, self.target, new.view, level, new.facts, old.header.notes), wanted.text)
        verdict = compare(old, wanted, new.language)
        if self.mode == "accept" and verdict in ("differs", "drift"):
            if problem := self._write(place, wanted, new.language):
                return problem
            verdict = "accepted"
        self.checks.append(Check(own, verdict))
        return self._failure(path, old, wanted, new.language) if verdict == "differs" else ""

    def _missing(self, place: Place, wanted: Golden, language: str, own: str) -> str:
        where = self._shown_path(place.rungs()[0])
        if self.mode == "check":
            self.checks.append(Check(own, "differs"))
            return f"golden missing  {self.shown}   {where}\n  redo      {self._redo('new')}"
        if problem := self._write(place, wanted, language):
            return problem
        verdict = "accepted" if self.mode == "accept" else "new"
        self.checks.append(Check(own, verdict))
        if verdict == "accepted":
            return ""
        return f"golden written  {self.shown}   {where}\n  read it; from now on the test compares with it"

    def _write(self, place: Place, golden: Golden, language: str) -> str:
        """Why it could not be written, or nothing."""
        try:
            place.accept(golden, language)
        except OSError as error:
            where = self._shown_path(place.rungs()[0])
            return f"golden not written  {self.shown}   {where}: {error.strerror or error}"
        return ""

    def _failure(self, path: Path, old: Golden, new: Golden, language: str) -> str:
        head = new.header
        lines = [f"golden differs  {self.shown}   {head.view} @ {head.level}   {self._shown_path(path)}"]
        if old.header.form != FORM:
            lines.append(f"  form      {old.header.form}, now {FORM}")
        elif old.header.level != head.level:
            lines.append(f"  level     {old.header.level} in the file, {head.level} in the test")
        if old.header.facts != head.facts:
            lines.append(f"  facts     {_facts_delta(old.header.facts, head.facts)}")
        changes = difference(old.text, new.text, language)
        count = sum(line[:1] in "+-" for line in changes.lines)
        if count:
            hidden = f", names as in the golden ({changes.renamed} renamed)" if changes.renamed else ""
            limit = len(changes.lines) if self.verbose else LINES_SHOWN
            lines.append(f"  text      {count} lines{hidden}")
            lines += [f"    {line}" for line in changes.lines[:limit]]
            if len(changes.lines) > limit:
                lines.append(f"    ... {len(changes.lines) - limit} more lines; -v shows all")
        lines.append(f"  redo      {self._redo('accept')}")
        return "\n".join(lines)

    def _redo(self, mode: str) -> str:
        return f'pytest "{self.node}" --golden={mode}'

    @property
    def title(self) -> str:
        """The test's id without its device."""
        return self.node + (f"[{self.parameters}]" if self.parameters else "")

    def _file(self, view: str, language: str) -> str:
        return file_name(self.test, self.parameters, view, language)

    def _shown_path(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


def compare(old: Golden, new: Golden, language: str) -> Verdict:
    """Whether the texts are equal at the new one's level; drift if only finer things differ."""
    if (old.header.form, old.header.level) != (new.header.form, new.header.level):
        return "differs"
    if old.header.facts != new.header.facts:
        return "differs"
    if old.text == new.text:
        return "equal"
    if new.header.level == "exact":
        return "differs"
    try:
        sides = [[line.text for line in canonical(golden.text, language)] for golden in (old, new)]
    except SyntaxError:
        return "differs"
    return "drift" if sides[0] == sides[1] else "differs"


def _facts_delta(old: str, new: str) -> str:
    """The facts that changed.

    >>> _facts_delta("kernels=1  bytes=8", "kernels=2  bytes=8  tiles=1")
    'kernels 1->2   tiles none->1'
    """
    before, after = ({k: v for k, _, v in (fact.partition("=") for fact in facts.split())} for facts in (old, new))
    names = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
    return "   ".join(f"{name} {before.get(name, 'none')}->{after.get(name, 'none')}" for name in names)
