"""`golden.check(run)`: generated text against a stored file, at a declared level.

Takes a Run, or text with a name. Gives nothing if it is equal at the level; finer differences are drift, which is
listed and not failed. Refuses, by Mismatch, other text, a missing golden, and a damaged one before anything of it is
compared; and, by ValueError, a view or level that does not exist, a second check of the same file, and a name or a text
that no golden can have. In mode `new` a missing one is written: the test goes on, and fails once, when it has ended.

The level is the file's own, that of a new file `skeleton`, unless the test declares one; an option may raise it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from pytest_plugin.goldens import views
from pytest_plugin.goldens.base_revision import first_change
from pytest_plugin.goldens.canonical import canonical
from pytest_plugin.goldens.disagreement import Check, Disagreement, Verdict
from pytest_plugin.goldens.failure_text import failure_text
from pytest_plugin.goldens.golden_file import (
    FORM,
    LONGEST_NAME,
    Damaged,
    Golden,
    Header,
    Place,
    file_name,
    header_of_damaged,
    name_misuse,
    parse,
    read_content,
    write_text,
)
from pytest_plugin.goldens.skeleton import skeleton
from pytest_plugin.goldens.views import Text
from pytest_plugin.oracle.memory import GraphMemory, lifetime_changes, storage_lifetimes
from pytest_plugin.oracle.run import Run
from pytest_plugin.vocabulary import LEVELS, VIEWS, suggestion

DEFAULT_LEVEL = "skeleton"
# What a mode writes: a golden that is not there, one that differs, one that drifted.
WRITES: Mapping[str, Sequence[str]] = MappingProxyType(
    {"new": ("missing",), "accept": ("missing", "damaged", "differs", "drift"), "refresh": ("drift",)}
)


class Mismatch(AssertionError):
    """Generated text is not the golden's."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How goldens are treated in this run."""

    mode: str
    raised: str = ""  # the level below which no check goes
    limit: int | None = 40  # lines of a difference that a failure shows
    fails_unused: bool = False  # whether files that nothing uses fail the run
    may_lack: bool = False  # whether a check without a file passes
    keeps_stages: bool = False  # whether the values of all stages are written beside what is written
    base: str = ""  # the revision that the files were made from, if they are not the stored ones


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
    nodeid: str
    shown: str  # the test's id as pytest prints it
    rules: Rules
    checks: list[Check] = field(default_factory=list[Check])
    written: list[str] = field(default_factory=list[str])  # of each new file, what the test fails for when it has ended

    def check(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "", name: str = "") -> None:
        """Compares a view of the run: "kernel", "wrapper" or "plan"; `name` tells several runs of one test apart."""
        __tracebackhide__ = True
        if why := self.mismatch(run, view, level, name):
            raise Mismatch(why)

    def stage(self, run: Run, stage: str, level: str = "", name: str = "") -> None:
        """Compares the value of one stage of the compiler, as text."""
        __tracebackhide__ = True
        self._check_stage(views.stage_view(run, stage), run, level, f"{name}.{stage}" if name else stage)

    def change(self, run: Run, stage: str, level: str = "exact", name: str = "") -> None:
        """Compares what one stage did: the difference between the value that it took and the one that it gave."""
        __tracebackhide__ = True
        self._check_stage(views.change_view(run, stage), run, level, f"{name}.{stage}" if name else stage)

    def _check_stage(self, new: Text, run: Run, level: str, name: str) -> None:
        __tracebackhide__ = True
        if why := self._verdict(new, level, name, run):
            raise Mismatch(why)

    def text(self, name: str, text: str, level: str = "exact") -> None:
        """Compares any text, under a name of its own."""
        __tracebackhide__ = True
        if not name:
            raise ValueError(f"{self.shown}: golden.text takes a name, which is a part of the file's")
        if failure := self._verdict(Text(name, "txt", text if text.endswith("\n") else text + "\n"), level, "", None):
            raise Mismatch(failure)

    def mismatch(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "", name: str = "") -> str:
        """What `check` would raise, as text."""
        asked = (view,) if isinstance(view, str) else tuple(view)
        for each in asked:
            if each not in VIEWS:
                raise ValueError(
                    f"no view is called {each!r}{suggestion(each, VIEWS)}; the views are {', '.join(VIEWS)}"
                )
        if not run.graphs:
            return f"nothing was captured, so {self.shown} has no {' and no '.join(asked)} to compare"
        found = [self._verdict(views.PRINTERS[each](run), level, name, run) for each in asked]
        return "\n\n".join(why for why in found if why)

    def _verdict(self, new: Text, level: str, name: str, run: Run | None) -> str:
        """Compares, writes what the mode allows, and notes it; the failure's text, or nothing."""
        __tracebackhide__ = True
        if level and level not in LEVELS:
            raise ValueError(
                f"no level is called {level!r}{suggestion(level, LEVELS)}; the levels are {', '.join(LEVELS)}"
            )
        place = self._place(f"{name}.{new.view}" if name else new.view, new.language)
        if self.rules.mode == "off":
            return ""
        own, path = self._shown_path(place.rungs()[0]), place.find()
        if any(check.own == own for check in self.checks):
            raise ValueError(f"{self.shown} checks {own} twice; give one of them a name=")
        content, old, damage = _read_stored(path, new.language)
        if self.rules.base:
            old = replace(old, header=replace(old.header, form=FORM))  # of the revision's own plugin
        declared = level or old.header.level or DEFAULT_LEVEL
        head = Header(self.title, self.target, new.view, declared, new.facts, old.header.notes)
        wanted = Golden(head, new.text)
        if why := wanted.unwritable(new.language):
            raise ValueError(f"{self.shown}: {own} cannot be written: {why}")
        gate = max(declared, self.rules.raised or declared, key=LEVELS.index)
        verdict = compare(old, wanted, new.language, gate) if path is not None else "missing"
        if damage is not None:
            # without a header nobody knows its level, and the default one may be lower
            verdict = "damaged" if level or old.header.level else "no header"
        if verdict == "missing" and self.rules.may_lack:
            self.checks.append(Check(own, "", "no base"))
            return ""
        if verdict in WRITES.get(self.rules.mode, ()):
            return self._written(place, wanted, new.language, own, run)
        if verdict == "equal" and self.rules.mode == "accept":
            place.accept(wanted, new.language)  # a rung above may say the same by now
        if verdict in ("equal", "drift"):
            self.checks.append(Check(own, self._shown_path(path or place.rungs()[0]), verdict))
            return ""
        disagreement = Disagreement(
            test=self.nodeid,
            target=self.target,
            view=new.view,
            level=gate,
            language=new.language,
            file=self._shown_path(path) if path is not None else "",
            own=own,
            old=old.text,
            new=new.text,
            old_facts=old.header.facts,
            new_facts=new.facts,
            old_content=content if path == place.rungs()[0] else "",
            new_content=wanted.render(new.language),
            stages=run.stages if run is not None else {},
            timeline=_timelines(run) if run is not None else "",
        )
        if damage is not None:
            return self._refused_damage(disagreement, verdict, damage)
        return self._refused(disagreement, verdict, old, declared, run)

    def _refused_damage(self, d: Disagreement, verdict: Verdict, damage: Damaged) -> str:
        """Says what is wrong with the stored file; nothing of it was compared."""
        redo = f"mend the line, or {self._redo('accept')}"
        if verdict == "no header":
            redo = "mend the line, or delete the file: which level it asked for cannot be read"
        failure = f"golden damaged  {self.shown}   {d.file}:{damage.line}: {damage.why}\n  redo      {redo}"
        # a review would write it at the default level
        told = replace(d, failure=failure) if verdict == "damaged" else None
        self.checks.append(Check(d.own, d.file, verdict, told))
        return failure

    def _place(self, view: str, language: str) -> Place:
        """Where the golden of a view lies. Refuses, by ValueError, a name that no file can have."""
        __tracebackhide__ = True
        if why := name_misuse(view):
            raise ValueError(f"{self.shown}: {why}")
        file = file_name(self.test, self.parameters, view, language)
        if (length := len(file.encode())) > LONGEST_NAME:
            why = f"the name of its golden file has {length} bytes, and at most {LONGEST_NAME} are allowed"
            raise ValueError(f"{self.shown}: {why}: {file}")
        return Place(self.folder, self.target, f"{self.inner}/{file}")

    def _written(self, place: Place, wanted: Golden, language: str, own: str, run: Run | None) -> str:
        """Writes; why that could not be, or nothing."""
        try:
            path = place.accept(wanted, language)
            if self.rules.keeps_stages and run is not None:
                told = {"stages": run.stages, "lives": storage_lifetimes(run)}
                write_text(stages_beside(place.rungs()[0]), json.dumps(told))
        except OSError as error:
            return f"golden not written  {self.shown}   {own}: {error.strerror or error}"
        done: Verdict = "refreshed"
        if self.rules.mode != "refresh":
            done = "new" if self.rules.mode == "new" else "accepted"
        self.checks.append(Check(own, self._shown_path(path), done))
        if done == "new":
            self.written.append(
                f"golden written  {self.shown}   {own}\n  read it; from now on the test compares with it"
            )
        return ""

    def _refused(self, d: Disagreement, verdict: Verdict, old: Golden, declared: str, run: Run | None) -> str:
        if verdict == "missing":
            redo = "new" if self.rules.mode in ("check", "refresh") else "accept"
            failure = f"golden missing  {self.shown}   {d.own}\n  redo      {self._redo(redo)}"
        else:
            notes: list[str] = []
            if old.header.form != FORM:
                notes.append(f"form      {old.header.form}, now {FORM}")
            elif old.header.level != declared:
                notes.append(f"level     {old.header.level} in the file, {declared} in the test")
            if self.rules.base:
                notes.append(f"base      {self.rules.base}")
                notes += self._since(d, run)
            redo = self._redo("accept") if not self.rules.base else f"git diff {self.rules.base}"
            failure = failure_text(replace(d, test=self.shown), run, limit=self.rules.limit, notes=notes, redo=redo)
        self.checks.append(Check(d.own, d.file, verdict, replace(d, failure=failure)))
        return failure

    def _since(self, d: Disagreement, run: Run | None) -> Iterator[str]:
        """Which stage is the first that gave another value than in the base, and which storages live longer."""
        path = stages_beside(self.root / d.own)
        if not path.is_file():
            return
        before = json.loads(read_content(path))
        if name := first_change(before["stages"], d.stages):
            yield f"first     stage `{name}` is the first whose text changed"
        if run is not None and (told := lifetime_changes(before["lives"], storage_lifetimes(run))):
            yield f"memory    {told}"

    def _redo(self, mode: str) -> str:
        return f'pytest "{self.node}" --golden={mode}'

    @property
    def title(self) -> str:
        """The test's id without its device."""
        return self.node + (f"[{self.parameters}]" if self.parameters else "")

    def _shown_path(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


def stages_beside(path: Path) -> Path:
    """Where the values of all stages lie that led to a golden, and the lives of its storages."""
    return path.with_name(f"{path.name}.stages.json")


def _read_stored(path: Path | None, language: str) -> tuple[str, Golden, Damaged | None]:
    """A file's content, what it says, and what is wrong with it; of a damaged file only the header is told."""
    if path is None:
        return "", Golden(Header("", "", "", ""), ""), None
    content, header, damage = "", Header("", "", "", ""), None
    try:
        content = read_content(path)
        return content, parse(content, language), None
    except OSError as error:
        damage = Damaged(1, f"the file cannot be read: {error.strerror or error}")
    except Damaged as error:
        damage, header = error, header_of_damaged(path, language) or header
    return content, Golden(header, ""), damage


def _timelines(run: Run) -> str:
    graphs = [graph for graph in run.graphs if graph.storages is not None]
    return "\n\n".join(f"{graph.role}\n{GraphMemory(graph).timeline()}" for graph in graphs)


def compare(old: Golden, new: Golden, language: str, level: str) -> Verdict:
    """Whether the texts are equal at the level; drift if only finer things differ."""
    if (old.header.form, old.header.level) != (new.header.form, new.header.level):
        return "differs"
    if old.header.facts != new.header.facts:
        return "differs"
    if old.text == new.text:
        return "equal"
    try:
        sides = [comparable_form(golden.text, language, new.header.view, level) for golden in (old, new)]
    except SyntaxError:
        return "differs"
    return "drift" if sides[0] == sides[1] else "differs"


def comparable_form(text: str, language: str, view: str, level: str) -> tuple[str, ...]:
    """What of a text counts at a level."""
    match level:
        case "facts":
            return ()
        case "skeleton":
            return skeleton(text, language, view)
        case "canonical":
            return tuple(line.text for line in canonical(text, language))
        case _:
            return (text,)
