"""The value of the fixture `golden`: compares generated text with a stored file, at a declared level.

Takes a Run, or a text with a name. Gives nothing if both are equal at the level; differences that the level ignores are
drift, which is listed and does not fail. Refuses, by Mismatch, a different text, a missing golden and a damaged one;
and, by ValueError, an unknown view or level, a second check of the same file, and a name or a text that no golden file
can have. In mode `new` a missing golden is written: the test goes on, and fails once at its end.

The level is the one that the test declares, else the one in the file, else `skeleton`; an option may raise it.
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
# The verdicts after which a mode writes the file. The other modes write nothing.
WRITES: Mapping[str, Sequence[str]] = MappingProxyType(
    {"new": ("missing",), "accept": ("missing", "damaged", "differs", "drift"), "refresh": ("drift",)}
)


class Mismatch(AssertionError):
    """Generated text is not as the golden file."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How golden files are treated in this run.

    Attributes:
        mode: check, new, accept, refresh, review or off.
        raised: The level below which no check goes; empty for none.
        limit: The number of lines of a difference that a failure shows; None for all.
        fails_unused: Whether files that no test uses fail the run.
        may_lack: Whether a check without a file passes.
        keeps_stages: Whether the values of all stages are written beside each golden that is written.
        base: The revision that generated the files, if they are not the stored ones.
    """

    mode: str
    raised: str = ""
    limit: int | None = 40
    fails_unused: bool = False
    may_lack: bool = False
    keeps_stages: bool = False
    base: str = ""


@dataclass(slots=True, repr=False)
class Goldens:
    """The value of the fixture `golden`, for one test.

    Attributes:
        folder: The folder of the compiler's goldens: golden/<compiler>.
        root: The root of the tests.
        node: The test's id without parameters.
        inner: The path of the test file below tests/, without .py.
        test: The name of the test, with that of its class.
        parameters: The parameters of the test besides the device.
        target: The target of the test's device.
        nodeid: The test's id.
        shown: The test's id as pytest prints it.
        rules: How goldens are treated in this run.
        checks: The results of the checks so far.
        written: A text for each new file; the test fails with them at its end.
    """

    folder: Path
    root: Path
    node: str
    inner: str
    test: str
    parameters: str
    target: str
    nodeid: str
    shown: str
    rules: Rules
    checks: list[Check] = field(default_factory=list[Check])
    written: list[str] = field(default_factory=list[str])

    def check(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "", name: str = "") -> None:
        """Compares views of a run with their golden files. No function is run.

        Args:
            run: The run that `compiled` returned.
            view: "kernel", "wrapper" or "plan", or several of them.
            level: "facts", "skeleton", "canonical" or "exact"; empty for the file's own level, or "skeleton" for a new
                file.
            name: A name that distinguishes several runs of one test; it becomes a part of the file's name.

        Raises:
            Mismatch: A view differs, its file is missing or damaged, or nothing was captured.
            ValueError: The view, the level or the name is invalid, or the file has been checked already.
        """
        __tracebackhide__ = True
        if why := self.mismatch(run, view, level, name):
            raise Mismatch(why)

    def stage(self, run: Run, stage: str, level: str = "", name: str = "") -> None:
        """Compares the program after one stage of the compiler with its golden file.

        Args:
            run: The run that `compiled` returned.
            stage: The name of the stage, such as "fuse".
            level: See `check`.
            name: See `check`.

        Raises:
            Mismatch: The text differs, or its file is missing or damaged.
            LookupError: The run has no such stage.
        """
        __tracebackhide__ = True
        self._check_stage(views.stage_view(run, stage), run, level, f"{name}.{stage}" if name else stage)

    def change(self, run: Run, stage: str, level: str = "exact", name: str = "") -> None:
        """Compares what one stage of the compiler changed: the difference between the program before and after it.

        Args:
            run: The run that `compiled` returned.
            stage: The name of the stage, such as "fuse".
            level: See `check`.
            name: See `check`.

        Raises:
            Mismatch: The difference is not the stored one, or its file is missing or damaged.
            LookupError: The run has no such stage.
        """
        __tracebackhide__ = True
        self._check_stage(views.change_view(run, stage), run, level, f"{name}.{stage}" if name else stage)

    def _check_stage(self, new: Text, run: Run, level: str, name: str) -> None:
        __tracebackhide__ = True
        if why := self._verdict(new, level, name, run):
            raise Mismatch(why)

    def text(self, name: str, text: str, level: str = "exact") -> None:
        """Compares any text with its golden file.

        Args:
            name: The name of the text, which becomes a part of the file's name.
            text: The text; a line end is added if it has none.
            level: See `check`.

        Raises:
            Mismatch: The text differs, or its file is missing or damaged.
            ValueError: The name is empty or invalid, or the text cannot be stored.
        """
        __tracebackhide__ = True
        if not name:
            raise ValueError(f"{self.shown}: golden.text takes a name, which is a part of the file's")
        if failure := self._verdict(Text(name, "txt", text if text.endswith("\n") else text + "\n"), level, "", None):
            raise Mismatch(failure)

    def mismatch(self, run: Run, view: str | Sequence[str] = "kernel", level: str = "", name: str = "") -> str:
        """Returns the text of the Mismatch that `check` would raise, or an empty text.

        Args:
            run: See `check`.
            view: See `check`.
            level: See `check`.
            name: See `check`.

        Raises:
            ValueError: See `check`.
        """
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
        """Compares a text, writes what the mode allows, and returns the text of the failure, if there is one."""
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
            old = replace(old, header=replace(old.header, form=FORM))  # another version of the plugin wrote the file
        declared = level or old.header.level or DEFAULT_LEVEL
        head = Header(self.title, self.target, new.view, declared, new.facts, old.header.notes)
        wanted = Golden(head, new.text)
        if why := wanted.unwritable(new.language):
            raise ValueError(f"{self.shown}: {own} cannot be written: {why}")
        gate = max(declared, self.rules.raised or declared, key=LEVELS.index)
        verdict = compare(old, wanted, new.language, gate) if path is not None else "missing"
        if damage is not None:
            # Without a header the file's level is unknown, and the default level may be lower.
            verdict = "damaged" if level or old.header.level else "no header"
        if verdict == "missing" and self.rules.may_lack:
            self.checks.append(Check(own, "", "no base"))
            return ""
        if verdict in WRITES.get(self.rules.mode, ()):
            return self._written(place, wanted, new.language, own, run)
        if verdict == "equal" and self.rules.mode == "accept":
            place.accept(wanted, new.language)  # removes a file that a more general rung makes superfluous
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
        """Notes a damaged file, of which nothing was compared, and returns the text of the failure."""
        redo = f"repair the line, or {self._redo('accept')}"
        if verdict == "no header":
            redo = "repair the line, or delete the file: its header, which has the level, cannot be read"
        failure = f"golden damaged  {self.shown}   {d.file}:{damage.line}: {damage.why}\n  redo      {redo}"
        # A review must not offer a file without a header, since it would write it at the default level.
        reviewable = replace(d, failure=failure) if verdict == "damaged" else None
        self.checks.append(Check(d.own, d.file, verdict, reviewable))
        return failure

    def _place(self, view: str, language: str) -> Place:
        """Returns the place of a view's golden file. Raises ValueError for a name that no file can have."""
        __tracebackhide__ = True
        if why := name_misuse(view):
            raise ValueError(f"{self.shown}: {why}")
        file = file_name(self.test, self.parameters, view, language)
        if (length := len(file.encode())) > LONGEST_NAME:
            why = f"the name of its golden file has {length} bytes, and at most {LONGEST_NAME} are allowed"
            raise ValueError(f"{self.shown}: {why}: {file}")
        return Place(self.folder, self.target, f"{self.inner}/{file}")

    def _written(self, place: Place, wanted: Golden, language: str, own: str, run: Run | None) -> str:
        """Writes a golden file; returns why that failed, or an empty text."""
        try:
            path = place.accept(wanted, language)
            if self.rules.keeps_stages and run is not None:
                beside = {"stages": run.stages, "lives": storage_lifetimes(run)}
                write_text(stages_beside(place.rungs()[0]), json.dumps(beside))
        except OSError as error:
            return f"golden not written  {self.shown}   {own}: {error.strerror or error}"
        done: Verdict = "refreshed"
        if self.rules.mode != "refresh":
            done = "new" if self.rules.mode == "new" else "accepted"
        self.checks.append(Check(own, self._shown_path(path), done))
        if done == "new":
            self.written.append(
                f"golden written  {self.shown}   {own}\n  read this new file; later runs compare with it"
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
        """Yields the first stage whose value differs from the base revision, and the storages that live longer."""
        path = stages_beside(self.root / d.own)
        if not path.is_file():
            return
        before = json.loads(read_content(path))
        if name := first_change(before["stages"], d.stages):
            yield f"first     stage `{name}` is the first whose text changed"
        if run is not None and (longer := lifetime_changes(before["lives"], storage_lifetimes(run))):
            yield f"memory    {longer}"

    def _redo(self, mode: str) -> str:
        return f'pytest "{self.node}" --golden={mode}'

    @property
    def title(self) -> str:
        """The test's id without its device, which stands in the golden's header."""
        return self.node + (f"[{self.parameters}]" if self.parameters else "")

    def _shown_path(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


def stages_beside(path: Path) -> Path:
    """Returns the path of the file with the values of all stages and the lives of storages, beside a golden."""
    return path.with_name(f"{path.name}.stages.json")


def _read_stored(path: Path | None, language: str) -> tuple[str, Golden, Damaged | None]:
    """Returns a file's content, the golden in it, and its damage; of a damaged file the golden has only the header."""
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
    """Compares two goldens at a level.

    Args:
        old: The stored golden.
        new: The generated one.
        language: The language of both texts.
        level: The level.

    Returns:
        equal; drift, if only what the level ignores differs; or differs.
    """
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
    """Returns the part of a text that a level compares."""
    match level:
        case "facts":
            return ()
        case "skeleton":
            return skeleton(text, language, view)
        case "canonical":
            return tuple(line.text for line in canonical(text, language))
        case _:
            return (text,)
