"""The views of a run that golden files hold: each one text in one language.

Takes a Run; gives a Text. Refuses a stage that the run has not (LookupError), with those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_plugin.adapters import Facts
from pytest_plugin.goldens.line_diff import unified_diff
from pytest_plugin.oracle.run import Run

# The counts that a header states, those that the compiler knows. Registers and spills are Triton's and its tools':
# another version of theirs has others, so a test declares bounds of them instead.
FACTS = (
    "kernels",
    "externs",
    "block_accesses",
    "block_pointers",
    "descriptors",
    "tiles",
    "bytes",
    "peak",
)

FROM_STORE = "the graph came from a store, where no stages are kept: ask for the fixture `fresh_store`"


@dataclass(frozen=True, slots=True)
class Text:
    """One view of a run; the language is what the canonical form is made by."""

    view: str
    language: str
    text: str
    facts: str = ""


def facts_line(facts: Facts) -> str:
    """The counts that are known and not nought, in the order of the table."""
    known = facts.known()
    return "  ".join(f"{name}={known[name]}" for name in FACTS if known.get(name))


def _kernel_view(run: Run) -> Text:
    graphs = [graph for graph in run.graphs if graph.kernels]
    language = graphs[0].kernels[0].language if graphs else "txt"
    kernels = [kernel.text for graph in graphs for kernel in graph.kernels]
    return Text("kernel", language, "\n".join(kernels), facts_line(run.report))


def _wrapper_view(run: Run) -> Text:
    wrappers = [wrapper for wrapper in run.wrappers if wrapper]
    start = wrappers[0] if wrappers else ""
    language = "cpp" if start.startswith("#include") else "txt" if start.startswith("{") else "py"  # nodes: JSON
    return Text("wrapper", language, "\n\n".join(wrappers))


def _plan_view(run: Run) -> Text:
    if any(graph.was_hit for graph in run.graphs):
        raise LookupError(FROM_STORE)
    return Text("plan", "ir", _with_line_end(run.plan))


PRINTERS: Mapping[str, Callable[[Run], Text]] = MappingProxyType(
    {"kernel": _kernel_view, "wrapper": _wrapper_view, "plan": _plan_view}
)


def stage_view(run: Run, stage: str) -> Text:
    """A stage's value in each graph that has it."""
    return Text("stage", "ir", _with_line_end("\n\n".join(_stage_texts(run, stage).values())))


def change_view(run: Run, stage: str) -> Text:
    """What a stage did to each graph: the difference from the stage before it."""
    parts: list[str] = []
    for role in _stage_texts(run, stage):
        texts = {name.partition(".")[2]: text for name, text in run.stages.items() if name.partition(".")[0] == role}
        names = list(texts)
        before = names[names.index(stage) - 1] if names.index(stage) else ""
        shown = unified_diff(texts.get(before, "").splitlines(), texts[stage].splitlines(), context=99)
        parts.append("\n".join([f"--- {before or 'nothing'}", f"+++ {stage}", *(shown or ["  no change"])]))
    return Text("change", "txt", _with_line_end("\n\n".join(parts)))


def _stage_texts(run: Run, stage: str) -> Mapping[str, str]:
    """The texts of a stage by role."""
    every = run.stages
    found = {name.partition(".")[0]: text for name, text in every.items() if name.partition(".")[2] == stage}
    if not found:
        known = dict.fromkeys(name.partition(".")[2] for name in every)
        was_hit = any(graph.was_hit for graph in run.graphs)
        raise LookupError(
            FROM_STORE if was_hit else f"the run has no stage {stage!r}; it has {', '.join(known) or 'none'}"
        )
    return found


def _with_line_end(text: str) -> str:
    return text.rstrip("\n") + "\n"
