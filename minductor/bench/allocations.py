"""The peak memory of the graphs of a case, as planned and as torch's allocator measured it.

Takes a case's program. Gives for each graph its role, the peak that its Report names, the peak that was measured, and
the memory that single operators allocated and freed within their calls, which no plan can see. Refuses nothing.

A graph's peak includes what it allocates, and the inputs that were donated to it until it frees them.

>>> from minductor.bench import cases
>>> (graph,) = allocations(cases.build("micro/sum_inner"))
>>> graph.role, graph.planned == graph.measured, graph.aside
('inference', True, ())
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._C._profiler import RecordScope, _EventType

from minductor.bench import cases
from minductor.driver import Compiled, Compiler, Role

if TYPE_CHECKING:
    from minductor.runtime.store.store import Store

MARK = "minductor graph "


@dataclass(frozen=True, slots=True)
class GraphMemory:
    """The planned and the measured peak of one graph, in bytes.

    `aside` has a row for each operator that frees memory within the call that allocated it: the operator, the most
    bytes that one call held in this way, and the number of such calls.
    """

    role: str
    planned: int | None
    measured: int
    aside: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Event:
    """An allocation (positive bytes) or a free (negative bytes).

    `call`: the number of the operator's call in the graph; None if the graph itself allocated or freed.
    """

    pointer: int
    size: int
    call: int | None
    op: str


@dataclass(slots=True)
class Watched:
    """The graphs of one compile; the number of a graph is its position in `compiled`.

    `donated`: for each number, the bytes of the inputs that were donated to the graph's last call, by pointer.
    """

    compiled: list[Compiled] = field(default_factory=list[Compiled])
    donated: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])


def allocations(
    program: cases.Program, *, store: Store | None = None, options: Mapping[str, str | bool] | None = None
) -> list[GraphMemory]:
    """The memory of each graph of a program. The program is compiled and run twice; the second run is measured."""
    torch._dynamo.reset()
    watched = Watched()
    compiler = _compiler(watched, store)
    function = torch.compile(program.function, backend=compiler, options={**(options or {})})
    cases.step(program, function)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        results = cases.step(program, function)
    del results
    recorded: Any = profile.profiler
    found: list[GraphMemory] = []
    for number, events in _graphs(recorded.kineto_results.experimental_event_tree()):
        compiled = watched.compiled[number]
        measured, aside = _peak(events, watched.donated[number])
        found.append(GraphMemory(compiled.role, compiled.report.peak, measured, aside))
    return found


def _compiler(watched: Watched, store: Store | None) -> Compiler:
    """A Compiler that adds each graph to `watched`, and marks a graph's calls in torch's profile with its number."""
    from minductor.frontend.capture.capture import capture

    class Marking(Compiler):
        def compile_graph(self, gm: Any, example_inputs: Sequence[Any], *, role: Role, env: Any) -> Any:
            donated = [n for n, i in enumerate(capture(gm, role).inputs) if i.is_donated]
            number = len(watched.compiled)
            call = super().compile_graph(gm, example_inputs, role=role, env=env)

            def marked(args: list[Any]) -> Any:
                kept = {args[n].untyped_storage().data_ptr(): args[n].untyped_storage().nbytes() for n in donated}
                watched.donated[number] = kept
                with torch.profiler.record_function(f"{MARK}{number}"):
                    return call(args)

            boxed: Any = marked
            boxed._boxed_call = True  # AOTAutograd's calling convention
            return boxed

    return Marking(store=store, observer=watched.compiled.append)


def _graphs(tree: Sequence[Any]) -> Iterator[tuple[int, list[Event]]]:
    """For each marked call of a graph: the graph's number, and the call's allocations and frees in order of time."""
    stack = list(reversed(tree))
    while stack:
        node = stack.pop()
        if node.name.startswith(MARK):
            yield int(node.name.removeprefix(MARK)), list(_events(node))
        else:
            stack.extend(reversed(node.children))


def _inside(range_: Any) -> Iterator[Any]:
    """What runs directly in a range of record_function, or in one within it: a graph has one for each of its calls."""
    for child in range_.children:
        is_range = child.tag == _EventType.TorchOp and child.extra_fields.scope == RecordScope.USER_SCOPE
        yield from _inside(child) if is_range else (child,)


def _events(graph: Any) -> Iterator[Event]:
    for number, top in enumerate(_inside(graph)):
        is_own = top.tag == _EventType.Allocation
        stack = [top]
        while stack:
            node = stack.pop()
            if node.tag == _EventType.Allocation:
                facts = node.extra_fields
                yield Event(facts.ptr, facts.alloc_size, None if is_own else number, "" if is_own else top.name)
            stack.extend(reversed(node.children))


def _peak(events: list[Event], donated: Mapping[int, int]) -> tuple[int, tuple[tuple[str, int, int], ...]]:
    """The most bytes that were allocated at once, and the rows of `GraphMemory.aside`, whose bytes do not count."""
    taken: dict[int, tuple[int, Event]] = {}  # pointer -> where it was last allocated
    temporary: set[int] = set()  # positions of events whose memory lives within one operator's call
    for position, event in enumerate(events):
        if event.size > 0:
            taken[event.pointer] = position, event
        elif (start := taken.pop(event.pointer, None)) is not None and start[1].call == event.call is not None:
            temporary.update((start[0], position))
    held: dict[int, int] = dict(donated)
    now = most = sum(held.values())
    for position, event in enumerate(events):
        if position in temporary or (event.size < 0 and event.pointer not in held):
            continue  # the second: a free of memory that the graph neither allocated nor was given
        if event.size > 0:
            held[event.pointer] = event.size
        else:
            del held[event.pointer]
        now += event.size
        most = max(most, now)
    return most, _aside([events[n] for n in sorted(temporary)])


def _aside(events: list[Event]) -> tuple[tuple[str, int, int], ...]:
    peaks: dict[str, int] = {}
    calls: Counter[str] = Counter()
    for (_, op), group in itertools.groupby(events, key=lambda event: (event.call, event.op)):
        running = list(itertools.accumulate(event.size for event in group))
        peaks[op] = max(peaks.get(op, 0), *running)
        calls[op] += 1
    return tuple((op, peaks[op], calls[op]) for op in sorted(peaks))
