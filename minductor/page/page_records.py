"""What a compile leaves for the page while it runs: the stages of one graph, and what the graph came to.

Takes the records of a trace. Gives plain records; nothing is printed or drawn before somebody asks for a page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minductor.frontend.capture.captured_graph import Graph
    from minductor.target import Env


@dataclass(frozen=True, slots=True)
class StageRecord:
    """One stage of a graph: `value` is what it gives (a Graph, a Program or a Plan), or None; `text` prints it."""

    name: str
    seconds: float
    counts: Mapping[str, int]
    notes: Sequence[str]
    sources: Mapping[str, str]
    value: object
    text: Callable[[], str]


@dataclass(slots=True)
class GraphRecords:
    """One graph: its stages so far, and, once it is compiled, its files, its captured graph and its ATen graph.

    `contents`: the files of the store's entry. `failure`: the error that ended the compile, or "". `checked`: by stage
    a sentence about its numbers, and whether they differ from eager's, if somebody compared them.
    """

    role: str
    stages: list[StageRecord] = field(default_factory=list[StageRecord])
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    graph: Graph | None = None
    gm: Any = None
    env: Env | None = None
    failure: str = ""
    checked: Mapping[str, tuple[str, bool]] = field(default_factory=dict[str, tuple[str, bool]])

    def add(self, record: Any) -> None:
        """Adds a stage: a `Record` of the trace."""
        row = (record.stage, record.seconds, record.counts, record.notes, record.sources, record.value, record.text)
        self.stages.append(StageRecord(*row))

    def finish(self, contents: Mapping[str, bytes], graph: Graph, gm: Any, env: Env) -> None:
        """Takes what the graph was compiled to."""
        self.contents, self.graph, self.gm, self.env = contents, graph, gm, env
