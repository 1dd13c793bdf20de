"""The views of a run that golden files hold: each is one text in one language.

Takes a Run. Gives a Text. Refuses a stage that the run does not have (LookupError), with those that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pytest_plugin.adapters import Facts
from pytest_plugin.goldens.line_diff import unified_diff
from pytest_plugin.oracle.run import Run

# The counts that a header has, if the compiler knows them. Registers and spills are not among them, since another
# version of Triton has others: a test declares limits of them instead.
FACTS = ("kernels", "externs", "block_accesses", "block_pointers", "descriptors", "tiles", "bytes", "peak")

FROM_STORE = "the graph was loaded from a store, which keeps no stages: request the fixture `fresh_store`"


@dataclass(frozen=True, slots=True)
class Text:
    """One view of a run.

    Attributes:
        view: The name of the view.
        language: "cpp", "py", "ir" or "txt", which decides how its canonical form is made.
        text: The text.
        facts: The counts, for the header of the golden file.
    """

    view: str
    language: str
    text: str
    facts: str = ""


def facts_line(facts: Facts) -> str:
    """Returns the counts that are known and not zero, as the header of a golden file has them."""
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
    """Returns the program after one stage, of all graphs."""
    return Text("stage", "ir", _with_line_end("\n\n".join(_stage_texts(run, stage).values())))


def change_view(run: Run, stage: str) -> Text:
    """Returns what one stage changed in each graph: the difference from the stage before it."""
    parts: list[str] = []
    for role in _stage_texts(run, stage):
        texts = {name.partition(".")[2]: text for name, text in run.stages.items() if name.partition(".")[0] == role}
        names = list(texts)
        before = names[names.index(stage) - 1] if names.index(stage) else ""
        shown = unified_diff(texts.get(before, "").splitlines(), texts[stage].splitlines(), context=99)
        parts.append("\n".join([f"--- {before or 'nothing'}", f"+++ {stage}", *(shown or ["  no change"])]))
    return Text("change", "txt", _with_line_end("\n\n".join(parts)))


def _stage_texts(run: Run, stage: str) -> Mapping[str, str]:
    """Returns the text of a stage by the role of the graph."""
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
