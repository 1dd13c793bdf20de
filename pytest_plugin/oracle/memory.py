"""The marker `memory` and the fixture `memory`: how a run uses memory.

Takes the keywords of the markers and a run whose compiler reports its use of memory. Gives lines that say what is
wrong, and the life of each storage. Refuses unknown names and values of a wrong kind, with the valid ones.

>>> from pytest_plugin.adapters import Graph, Storage
>>> storages = (
...     Storage("lent", 64, 0, 1, False, ("x",)),
...     Storage("own", 64, 1, 2, False, ("buf0", "buf1")),
...     Storage("own", 8, 2, None, True, ("buf2",)),
... )
>>> graph = GraphMemory(Graph("inference", (), calls=("exp_0", "aten.mm.out"), storages=storages))
>>> print(graph.timeline())
x            64 |##.| lent
buf0 > buf1  64 |.##| own
buf2          8 |..#| own, returned
1 exp_0, 2 aten.mm.out
>>> graph.allocated, graph.is_gone_before("x", "aten.mm.out"), graph.is_gone_before("buf1", "aten.mm.out")
(('buf0', 'buf2'), True, False)
>>> graph.at_peak()
'in call 1 of 2, exp_0: x, buf0'
>>> memory_misuse({"leak": 0})
'memory has no leak; it has peak, leaks, frees_inputs'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_plugin.adapters import Graph, Storage
from pytest_plugin.limits import Limit
from pytest_plugin.oracle.run import Run
from pytest_plugin.vocabulary import amount

KEYWORDS = ("peak", "leaks", "frees_inputs")
MAX_COLUMNS = 80  # of a timeline; of more calls only every n-th is shown


def memory_misuse(declared: Mapping[str, object]) -> str:
    """Returns what is wrong with the marker itself, or an empty text."""
    for name, value in declared.items():
        match name:
            case "peak":
                is_right = isinstance(value, int | Limit) and not isinstance(value, bool)
                wanted = "a whole number, at_most(...) or at_least(...)"
            case "leaks":
                is_right, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
            case "frees_inputs":
                is_right, wanted = isinstance(value, bool), "True or False"
            case _:
                return f"memory has no {name}; it has {', '.join(KEYWORDS)}"
        if not is_right:
            return f"memory({name}={value!r}): declare {wanted}"
    return "" if declared else "memory declares nothing"


def memory_errors(declared: Mapping[str, int | Limit], run: Run) -> list[str]:
    """Returns a line for each fact that is not as declared, and for each unplanned use of memory."""
    if any(graph.storages is None for graph in run.graphs):
        return ["this compiler does not report the lives of storages"]
    lines = [f"unplanned {text}" for kind, text in run.events if kind == "fault"]
    for name, value in declared.items():
        match name:
            case "peak":
                lines += _peak_errors(value, run)
            case "leaks":
                leaks = [storage for kind, storage in run.events if kind == "leak"]
                if len(leaks) != value:
                    lines.append(f"leaks     {value!r} declared, {len(leaks)} found{_list_of_names(leaks)}")
            case _:
                kept = [name for graph in run.graphs for name in _kept_inputs(graph)]
                if bool(value) == bool(kept):
                    lines.append(f"inputs    {'kept' + _list_of_names(kept) if kept else 'all were freed'}")
    return lines


def _peak_errors(value: int | Limit, run: Run) -> list[str]:
    found = run.report.peak
    if found is None:
        return [f"peak      {value!r} declared, but a size is known only when the function is called"]
    if value.holds(found, run.sizes) if isinstance(value, Limit) else value == found:
        return []
    sizes = ", ".join(f"{word} {size}" for word, size in run.sizes.items())
    worst = max(run.graphs, key=lambda graph: graph.facts.peak or 0)
    shown = GraphMemory(worst).timeline().splitlines()
    return [
        f"peak      {value!r} declared, {found} found ({sizes}), in {worst.role}:",
        *(f"  {line}" for line in shown),
    ]


def _kept_inputs(graph: Graph) -> list[str]:
    """Returns the inputs that the graph never frees and does not return, and the donated ones that it keeps."""
    kept = [s.names[0] for s in graph.storages or () if s.first == 0 and s.last is None and not s.is_returned]
    return kept + [name for kind, name in graph.events if kind == "held"]


def _list_of_names(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def memory_of(run: Run, role: str = "") -> GraphMemory:
    """Returns the memory of a run's graph.

    Args:
        run: The run.
        role: "inference", "forward" or "backward"; empty if the run has one graph.

    Returns:
        The life of each storage of the graph.

    Raises:
        AssertionError: The run has not exactly one graph of that role.
    """
    graphs = [graph for graph in run.graphs if role in ("", graph.role)]
    if len(graphs) != 1:
        of_role = f" of role {role}" if role else ""
        raise AssertionError(f"the run has {amount(len(graphs), 'graph')}{of_role}; give the role of one graph")
    return GraphMemory(graphs[0])


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """The storages of one graph, and the calls of kernels and operators during which each is held."""

    graph: Graph

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The storages. Raises AssertionError if the compiler does not tell them."""
        if self.graph.storages is None:
            raise AssertionError("this compiler does not report the lives of storages")
        return self.graph.storages

    @property
    def calls(self) -> tuple[str, ...]:
        """The kernels and operators that the graph calls, in order."""
        return self.graph.calls

    @property
    def peak(self) -> int | None:
        """The most bytes that the graph holds at a time; None if only a call decides it."""
        return self.graph.facts.peak

    @property
    def allocated(self) -> tuple[str, ...]:
        """The storages that the graph allocates, in that order, by their first names."""
        return tuple(storage.names[0] for storage in self.storages if storage.owner == "own")

    def storage(self, name: str) -> Storage:
        """Returns the storage that a value of this name uses.

        Args:
            name: The name of any value that uses the storage.
        """
        return next(storage for storage in self.storages if name in storage.names)

    def is_gone_before(self, name: str, call: str, number: int = 1) -> bool:
        """Tells whether a storage is freed before a call.

        Args:
            name: The name of a value that uses the storage.
            call: The name of a kernel or operator.
            number: Which of the calls of that name, counted from 1.
        """
        places = [place for place, other in enumerate(self.calls, 1) if other == call]
        last = self.storage(name).last
        return last is not None and last < places[number - 1]

    def at_peak(self) -> str:
        """Returns during which call most is held, and what. A size that only a call decides counts as zero."""
        steps = range(len(self.calls) + 1)
        held = {step: [s for s in self.storages if _is_held(s, step)] for step in steps}
        worst = max(steps, key=lambda step: sum(storage.bytes or 0 for storage in held[step]))
        place = f"in call {worst} of {len(self.calls)}, {self.calls[worst - 1]}" if worst else "before the first call"
        return f"{place}: {', '.join(storage.names[0] for storage in held[worst])}"

    def timeline(self) -> str:
        """Returns a text with a row for each storage, a column for the start and for each call, and the calls below."""
        rows = [(" > ".join(s.names), "?" if s.bytes is None else str(s.bytes), s) for s in self.storages]
        left = max((len(names) for names, _, _ in rows), default=0)
        right = max((len(size) for _, size, _ in rows), default=0)
        steps = range(len(self.calls) + 1)
        stride = -(-len(steps) // MAX_COLUMNS)
        bars = [f"|{self._bar(s, steps[::stride])}| {s.owner}{', returned' * s.is_returned}" for _, _, s in rows]
        lines = [f"{names:<{left}}  {size:>{right}} {bar}" for (names, size, _), bar in zip(rows, bars, strict=True)]
        return "\n".join([*lines, ", ".join(f"{n} {call}" for n, call in enumerate(self.calls, 1))])

    @staticmethod
    def _bar(storage: Storage, steps: Sequence[int]) -> str:
        return "".join("#" if _is_held(storage, step) else "." for step in steps)


def _is_held(storage: Storage, step: int) -> bool:
    return storage.first <= step and (storage.last is None or step <= storage.last)


def storage_lifetimes(run: Run) -> dict[str, int]:
    """Returns for how many calls each storage is held, by role and first name; returned ones until the last call."""
    return {
        f"{graph.role}.{s.names[0]}": (len(graph.calls) if s.last is None else s.last) - s.first
        for graph in run.graphs
        for s in graph.storages or ()
    }


def lifetime_changes(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    """Returns a text: which storages live longer or shorter than before, and which are new or gone.

    >>> lifetime_changes({"forward.buf0": 2, "forward.buf1": 1}, {"forward.buf0": 3, "forward.buf2": 1})
    'buf0 held 1 call longer, buf2 new, buf1 gone'
    """
    changes: list[str] = []
    for name, calls in new.items():
        more = calls - old.get(name, calls)
        if name not in old:
            changes.append(f"{name.rpartition('.')[2]} new")
        elif more:
            longer = "longer" if more > 0 else "shorter"
            changes.append(f"{name.rpartition('.')[2]} held {amount(abs(more), 'call')} {longer}")
    return ", ".join([*changes, *(f"{name.rpartition('.')[2]} gone" for name in old if name not in new)])
