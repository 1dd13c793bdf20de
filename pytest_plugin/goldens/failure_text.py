"""The text of a failing golden check, the most useful line first.

Takes a Disagreement and the run that it is about. Gives lines of text. Refuses nothing.

>>> facts_delta("kernels=1  bytes=8", "kernels=2  bytes=8  tiles=1")
'kernels 1->2   tiles none->1'
>>> facts_delta("bytes=2097152", "bytes=3250586")
'bytes 2.0 MiB->3.1 MiB (+55%)'
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_plugin.goldens.disagreement import Disagreement
from pytest_plugin.goldens.line_diff import unified_diff
from pytest_plugin.goldens.readable_diff import readable_diff
from pytest_plugin.goldens.skeleton import skeleton
from pytest_plugin.oracle.memory import GraphMemory
from pytest_plugin.oracle.run import Run

SIZES = ("bytes", "peak")
REASONS_SHOWN = 3
MOST_FACTOR = 10  # a larger growth is shown without a percentage


def failure_text(
    disagreement: Disagreement, run: Run | None, *, limit: int | None, notes: Sequence[str] = (), redo: str = ""
) -> str:
    """Returns the text of a failure.

    Args:
        disagreement: The two sides.
        run: The run; None if only the stored data are there.
        limit: How many lines of the difference are shown; None for all.
        notes: Lines to be put first.
        redo: The command that accepts the new text.
    """
    d = disagreement
    head = f"{d.view} @ {d.level}"
    lines = [f"golden differs  {_test_name(d.test)}   {head}   {d.file or d.own}", *notes]
    if d.old_facts != d.new_facts:
        lines.append(f"facts     {facts_delta(d.old_facts, d.new_facts)}")
    if run is not None:
        lines += _fusion_refusals(d, run)
    lines += _skeleton_diff(d)
    lines += _text_diff(d, limit)
    if run is not None and run.results is not None:
        lines.append(f"numerics  right: the worst error is {run.numerics:.2g} of the allowed error")
    if run is not None and _read_facts(d.old_facts).get("peak") != _read_facts(d.new_facts).get("peak"):
        lines += [f"memory    most is held {place}" for place in _peak_lines(run)]
    lines.append(f"redo      {redo}")
    return "\n  ".join(lines)


def _test_name(test: str) -> str:
    return test.rpartition("::")[2] or test


def _fusion_refusals(d: Disagreement, run: Run) -> Iterator[str]:
    """Yields the reasons why kernels were not fused, if there are more kernels than before."""
    if _fact_count(d.new_facts, "kernels") > _fact_count(d.old_facts, "kernels"):
        reasons = dict.fromkeys(f"{stage}: {a} | {b}: {why}" for stage, a, b, why in run.report.refusals)
        yield from (f"why       {reason}" for reason in list(reasons)[:REASONS_SHOWN])


def _peak_lines(run: Run) -> Iterator[str]:
    """Yields the call of the most demanding graph during which most is held, and what is held."""
    graphs = [graph for graph in run.graphs if graph.storages]
    if graphs:
        yield GraphMemory(max(graphs, key=lambda graph: graph.facts.peak or 0)).at_peak()


def _skeleton_diff(d: Disagreement) -> Iterator[str]:
    if d.language == "txt":
        return
    try:
        sides = [skeleton(text, d.language, d.view) for text in (d.old, d.new)]
    except SyntaxError:
        return
    for number, line in enumerate(line for line in unified_diff(*sides, context=0) if not line.startswith("@@")):
        yield f"{'skeleton' if number == 0 else '':<9} {line[0]} {line[1:]}"


def _text_diff(d: Disagreement, limit: int | None) -> Iterator[str]:
    changes = readable_diff(d.old, d.new, d.language)
    count = sum(line[:1] in "+-" for line in changes.lines)
    if not count:
        return
    hidden = f", names as in the golden ({changes.renamed} renamed)" if changes.renamed else ""
    yield f"text      {count} lines{hidden}"
    yield from (f"  {line}" for line in changes.lines[:limit])
    if limit is not None and len(changes.lines) > limit:
        yield f"  ... {len(changes.lines) - limit} more lines; -v shows all"


def facts_delta(old: str, new: str) -> str:
    """Returns the counts that changed; sizes have units and their growth."""
    before, after = _read_facts(old), _read_facts(new)
    names = [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]
    return "   ".join(_fact_delta(name, before.get(name), after.get(name)) for name in names)


def _read_facts(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (fact.partition("=") for fact in line.split())}


def _fact_count(line: str, name: str) -> int:
    value = _read_facts(line).get(name, "0")
    return int(value) if value.isdigit() else 0


def _fact_delta(name: str, old: str | None, new: str | None) -> str:
    if name not in SIZES or not (old or "").isdigit() or not (new or "").isdigit():
        return f"{name} {old or 'none'}->{new or 'none'}"
    before, after = int(old or 0), int(new or 0)
    growth = f" ({(after - before) / before:+.0%})" if before and after < MOST_FACTOR * before else ""
    # Two sizes that look equal in units are shown in bytes.
    sides = (
        [_size_text(before), _size_text(after)]
        if _size_text(before) != _size_text(after)
        else [str(before), str(after)]
    )
    return f"{name} {sides[0]}->{sides[1]}{growth}"


def _size_text(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
