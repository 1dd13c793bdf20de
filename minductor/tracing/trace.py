"""Shows what each stage did: nowhere, as lines on stderr, as files in a folder, or as one HTML page.

Takes the text of MINDUCTOR_TRACE, then one record for each stage. Gives output. Refuses texts that name no place
(BadOptionValue). A value is turned into text only if the text is shown.

>>> import sys
>>> trace = Trace.parse("2", out=sys.stdout)
>>> trace.stage("forward", "fuse", 0.0012, {"kernels": 1}, ["buf0 | buf1 not fused: sizes differ"], None, str)
minductor forward fuse 1.2 ms kernels=1
minductor forward fuse note: buf0 | buf1 not fused: sizes differ
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TextIO

from minductor.core.errors import BadOptionValue

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.ir.report.report import Report
    from minductor.page.page_files import Files
    from minductor.page.page_records import GraphRecords
    from minductor.runtime.store.store import Entry
    from minductor.runtime.tune.tune import Tuned
    from minductor.target import Env

EXPECTED = "a level from 0 to 4, dir:PATH or html:PATH"
# The level from which a part of a record is shown.
NOTES, SOURCES, TEXT = 2, 3, 4


class Record(NamedTuple):
    """One stage of one graph's compile."""

    graph: str
    stage: str
    seconds: float
    counts: Mapping[str, int]
    notes: Sequence[str]
    sources: Mapping[str, str]
    text: Callable[[], str]
    value: object = None

    def summary(self) -> str:
        counts = "".join(f" {name}={value}" for name, value in self.counts.items())
        return f"{self.seconds * 1e3:.1f} ms{counts}"

    def lines(self, level: int, before: str = "") -> Iterator[str]:
        """The lines that a level shows. A value whose text equals `before`, the text shown last, is not shown again."""
        start = f"minductor {self.graph} {self.stage}"
        yield f"{start} {self.summary()}"
        if level >= NOTES:
            yield from (f"{start} note: {note}" for note in self.notes)
        if level >= SOURCES:
            yield from (f"{start} source {name}:\n{source}" for name, source in self.sources.items())
        if level >= TEXT and (text := self.text()):
            yield f"{start} changes nothing" if text == before else f"{start} gives:\n{text}"


class Sink(Protocol):
    def record(self, record: Record) -> None: ...


@dataclass(slots=True)
class Lines:
    """Writes lines up to a level to `out`; None means sys.stderr at the time of writing."""

    level: int
    out: TextIO | None = None
    shown: str = ""  # the latest value

    def record(self, record: Record) -> None:
        for line in record.lines(self.level, self.shown):
            print(line, file=self.out or sys.stderr)
        if self.level >= TEXT:
            self.shown = record.text() or self.shown


@dataclass(slots=True)
class Logger:
    """The logger `minductor`, which TORCH_LOGS and torch._logging.set_logs switch on while the process runs."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("minductor"))

    def record(self, record: Record) -> None:
        if not self.logger.isEnabledFor(logging.INFO):
            return
        level = TEXT if self.logger.isEnabledFor(logging.DEBUG) else NOTES
        for line in record.lines(level):
            self.logger.info("%s", line)


@dataclass(slots=True)
class Artifacts:
    """The logs of torch that TORCH_LOGS=output_code and TORCH_LOGS=kernel_code switch on: generated texts."""

    def record(self, record: Record) -> None:
        if not record.sources:
            return
        from torch._logging._internal import getArtifactLogger

        # a logger below `torch`, which has the handlers of TORCH_LOGS
        for artifact in ("output_code", "kernel_code"):
            logger = getArtifactLogger("torch.minductor", artifact)
            if logger.isEnabledFor(logging.DEBUG):
                for name, source in sorted(record.sources.items()):
                    if artifact == "output_code" or not name.startswith("wrapper"):
                        logger.debug("minductor %s %s\n%s", record.graph, name, source)


@dataclass(slots=True)
class Structured:
    """torch's structured trace, from which tlparse makes a report; it has a handler under TORCH_TRACE only."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("torch.__trace"))

    def record(self, record: Record) -> None:
        if not self.logger.handlers:
            return
        from torch._logging._internal import trace_structured

        texts = {record.stage: record.text}
        texts |= {name: functools.partial(str, source) for name, source in record.sources.items()}
        for name, text in texts.items():
            metadata = {"name": f"minductor_{record.graph}_{name}", "encoding": "string"}
            trace_structured("artifact", metadata_fn=functools.partial(dict, metadata), payload_fn=text)

    def linked(self, entry: Entry, gm: Any) -> None:
        """Writes the artefacts that link a graph's texts, if anybody listens."""
        if not self.logger.handlers:
            return
        from torch._logging._internal import trace_structured

        from minductor.tracing.provenance_viewer import artefacts

        for kind, about, text in artefacts(entry, gm):
            trace_structured(kind, metadata_fn=functools.partial(dict, about), payload_fn=functools.partial(str, text))


@dataclass(slots=True)
class Runs:
    """Numbers the compiles of graphs that have the same name.

    A stage that occurs again starts the graph's next run, as does a graph pass of a stage that has occurred: the stage
    `lower` runs behind its pass `lower.fold_copies`. Rewrites of the graph come before every stage.
    """

    stages: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def place(self, graph: str, stage: str) -> tuple[str, int]:
        """The run's name, and the stage's position in it from 1.

        >>> runs = Runs()
        >>> runs.place("forward", "lower"), runs.place("forward", "fuse"), runs.place("forward", "lower")
        (('forward', 1), ('forward', 2), ('forward-2', 1))
        """
        seen = self.stages.setdefault(graph, [])
        if stage in seen or stage.partition(".")[0] in seen or (seen and stage == "rewrites"):
            seen.clear()
            self.numbers[graph] = self.numbers.get(graph, 1) + 1
        seen.append(stage)
        return self.latest(graph), len(seen)

    def latest(self, graph: str) -> str:
        """The name of a graph's latest run."""
        number = self.numbers.get(graph, 1)
        return f"{graph}-{number}" if number > 1 else graph


@dataclass(slots=True)
class Folder:
    """A folder for each graph, a file for each stage's value and for each source, and a file with the lines."""

    path: Path
    runs: Runs = field(default_factory=Runs)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, record: Record) -> None:
        with self.lock:
            run, position = self.runs.place(_slug(record.graph), _slug(record.stage))
            folder = self.path / run
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{position:02}_{_slug(record.stage)}.txt").write_text(record.text() + "\n", encoding="utf-8")
                for name, source in record.sources.items():
                    (folder / _slug(name)).write_text(source, encoding="utf-8")
                with (folder / "lines.txt").open("w" if position == 1 else "a", encoding="utf-8") as out:
                    out.writelines(f"{line}\n" for line in record.lines(NOTES))
            except OSError as error:
                raise _unwritable(f"dir:{self.path}", error) from error

    def beside(self, graph: str, write: Callable[[Path], None]) -> None:
        """Has `write` put files into the folder of a graph's latest run."""
        with self.lock:
            folder = self.path / self.runs.latest(_slug(graph))
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write(folder)
            except OSError as error:
                raise _unwritable(f"dir:{self.path}", error) from error


@dataclass(slots=True)
class Depyf:
    """The folder of `depyf.prepare_debug(DIR)`, while that is active: each compile is written below DIR/minductor.

    depyf patches TorchInductor's functions to see its files; ours it finds among its own instead.
    """

    folders: dict[str, Folder] = field(default_factory=dict[str, Folder])

    def record(self, record: Record) -> None:
        if folder := self.folder():
            folder.record(record)

    def folder(self) -> Folder | None:
        """The Folder of the active `prepare_debug`; None outside of one."""
        state: Mapping[str, Any] = getattr(sys.modules.get("depyf.explain.global_variables"), "data", {})
        place = state.get("dump_src_dir") if state.get("is_inside_prepare_debug") else None
        return self.folders.setdefault(place, Folder(Path(place) / "minductor")) if place else None


@dataclass(slots=True)
class Page:
    """One HTML page that needs nothing beside it; it is written whole after each graph (`minductor/page`)."""

    path: Path
    runs: Runs = field(default_factory=Runs)
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: dict[tuple[int, str], GraphRecords] = field(default_factory=dict[tuple[int, str], "GraphRecords"])
    files: Files | None = None
    graphs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def record(self, record: Record) -> None:
        from minductor.page.page_records import GraphRecords

        with self.lock:
            key = threading.get_ident(), record.graph
            self.open.setdefault(key, GraphRecords(record.graph)).add(record)

    def finish(self, graph_name: str, contents: Mapping[str, bytes], graph: Graph, gm: Any, env: Env) -> None:
        """Adds a compiled graph to the page, and writes the page."""
        from minductor.page.page_data import document, graph_data
        from minductor.page.page_files import Files
        from minductor.page.page_records import GraphRecords
        from minductor.page.page_write import write_page

        with self.lock:
            records = self.open.pop((threading.get_ident(), graph_name), None) or GraphRecords(graph_name)
            records.finish(contents, graph, gm, env)
            run, _ = self.runs.place(graph_name, "whole")
            self.files = self.files or Files()
            self.graphs.append(graph_data(records, run, self.files))
            try:
                write_page(self.path, document(self.graphs, self.files))
            except OSError as error:
                raise _unwritable(f"html:{self.path}", error) from error


@dataclass(frozen=True, slots=True)
class Trace:
    """Where the stages of a Compiler are shown."""

    sinks: tuple[Sink, ...] = ()

    @classmethod
    def parse(cls, text: str, *, out: TextIO | None = None, debug: Path | None = None) -> Self:
        """The Trace for a text: a level, `dir:PATH`, `html:PATH` or "". torch's logs, if they are on, are written too.

        `debug` is a folder that gets the same files as `dir:`.
        """
        logs = (Logger(), Artifacts(), Structured(), Depyf(), *((Folder(debug),) if debug else ()))
        kind, colon, path = text.partition(":")
        match kind:
            case "" | "0" if not colon:
                return cls(logs)
            case "1" | "2" | "3" | "4" if not colon:
                return cls((*logs, Lines(int(kind), out)))
            case "dir" if path:
                return cls((*logs, Folder(_place(path))))
            case "html" if path:
                return cls((*logs, Page(_place(path))))
            case _:
                raise BadOptionValue("trace", text, EXPECTED)

    def stage(
        self,
        graph_name: str,
        stage_name: str,
        seconds: float,
        counts: Mapping[str, int],
        notes: Sequence[str],
        sources: Mapping[str, str] | None,
        text: Callable[[], str],
        value: object = None,
    ) -> None:
        """Shows one stage. Only a sink that shows values calls `text`, or reads the `value` that it prints."""
        record = Record(graph_name, stage_name, seconds, counts, notes, sources or {}, text, value)
        for sink in self.sinks:
            sink.record(record)

    def measured(self, graph_name: str, tuned: Tuned) -> None:
        """Shows how long it took to choose the launch of one kernel, what won, and why other candidates could not."""
        won = f"winner: {tuned.winner}" if tuned.winner else "nothing is recorded"
        counts, notes = {"measured": tuned.measured}, (*tuned.notes, won)
        self.stage(graph_name, f"tune {tuned.label}", tuned.seconds, counts, notes, None, str)

    def recorded(self, graph_name: str, text: str) -> None:
        """Shows that a call recorded a CUDA graph, with what it copies, or why it runs without one."""
        self.stage(graph_name, "cuda graphs", 0.0, {}, (text,), None, str)

    def beside(self, graph_name: str, write: Callable[[Path], None]) -> None:
        """Calls `write` with the folder of the graph's stages, if the trace is a folder."""
        for sink in self.sinks:
            folder = sink.folder() if isinstance(sink, Depyf) else sink
            if isinstance(folder, Folder):
                folder.beside(graph_name, write)

    def finish(self, graph_name: str, contents: Mapping[str, bytes], graph: Graph, gm: Any, env: Env) -> None:
        """Tells a page what a graph was compiled to: the files of its entry in the store."""
        for sink in self.sinks:
            if finish := getattr(sink, "finish", None):
                finish(graph_name, contents, graph, gm, env)

    def linked(self, entry: Entry, gm: Any) -> None:
        """Writes what links the texts of a stored graph, such as its provenance, to torch's structured trace."""
        for sink in self.sinks:
            if isinstance(sink, Structured):
                sink.linked(entry, gm)


def debug_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder for stages and texts under TORCH_COMPILE_DEBUG=1: in torch's debug directory of this process."""
    if environ.get("TORCH_COMPILE_DEBUG") != "1":
        return None
    from torch._dynamo.utils import get_debug_dir

    return Path(get_debug_dir()) / "minductor"


# --- the text of a stage's value


def new_notes(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """The notes of `after` that `before` does not have: what a stage decided, in the program and in its regions."""
    yield from (f"{where}{note}" for note in getattr(after, "notes", ())[len(getattr(before, "notes", ())) :])
    known = {region.name: region for region in getattr(before, "regions", ())}
    for region in getattr(after, "regions", ()):
        yield from new_notes(known.get(region.name), region, f"{where}{region.name}: ")


def partition_lines(facts: Report, gm: Any) -> Iterator[str]:
    """A line for each partition, then one for each node that a CUDA graph cannot capture: what, why and where."""
    from minductor.frontend.capture.capture import sources

    for number, (device, calls, is_capturable) in enumerate(facts.partitions):
        what = f"{calls} call{'s' * (calls != 1)}{f' on {device}' if device else ''}"
        yield f"partition {number}: {what}, {'can' if is_capturable else 'cannot'} be captured"
    written = sources(gm)
    for node, op, origin, reason in facts.barriers:
        at = f" ({place})" if (place := written.place_of(origin)) else ""
        yield f"cannot be captured: {': '.join(part for part in (node, op, reason) if part)}{at}"


def counts(value: Any) -> dict[str, int]:
    """The number of nodes of a program, or lines of a plan, by their kind: `kernels`, `launches`."""
    nodes = getattr(value, "nodes", None) or getattr(value, "lines", ())
    found: dict[str, int] = {}
    for node in nodes:
        kind = type(node).__name__.lower().removesuffix("line")
        name = f"{kind}es" if kind.endswith("ch") else f"{kind}s"
        found[name] = found.get(name, 0) + 1
    return found


def shown(value: Any) -> str:
    """A program or a plan as text, or what gives its text itself."""
    from minductor.ir.plan.plan_text import print_plan
    from minductor.ir.program.nodes import Program
    from minductor.ir.program.printer import print_program

    if isinstance(value, Program):
        return print_program(value)
    return value.text() if hasattr(value, "text") else print_plan(value)


# --- files


def _slug(name: str) -> str:
    # A name from a graph must not lead out of the folder.
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"


def _place(path: str) -> Path:
    from minductor.runtime.user_paths import user_path

    return user_path("the path of a trace", path)


def _unwritable(value: str, error: OSError) -> BadOptionValue:
    return BadOptionValue("trace", value, f"{EXPECTED}, where PATH can be written ({error.strerror})")
