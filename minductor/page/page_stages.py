"""The value of each stage as lines of text, where each line knows its ATen nodes and its kernel.

Takes the values of stages: a captured graph, programs, plans. Gives JSON: one table of the different lines of a graph,
and for each stage the numbers of its lines. Most lines are in many stages, and a page holds them once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from minductor.ir.plan import plan as plan_lines
from minductor.ir.plan.plan import Plan
from minductor.ir.plan.plan_text import print_line
from minductor.ir.program.nodes import Program
from minductor.ir.program.printer import PrintedLine, program_lines
from minductor.page.page_nodes import Nodes
from minductor.page.page_records import StageRecord

GRAPH_LINE = re.compile(r"( *)(?:input |constant )?([\w.]+): ")


class LineTable:
    """The different lines of one graph's stages: `texts` and, for each, the numbers of its ATen nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.number: dict[tuple[str, tuple[str, ...]], int] = {}
        self.texts: list[str] = []
        self.of: list[list[int]] = []

    def add(self, line: PrintedLine) -> int:
        """The number of a line."""
        key = (line.text, line.nodes)
        if key not in self.number:
            self.number[key] = len(self.texts)
            self.texts.append(line.text)
            self.of.append(self.nodes.numbers(line.nodes))
        return self.number[key]


def stage_rows(
    graph: Any, records: Sequence[StageRecord], table: LineTable, made: Mapping[str, tuple[str, ...]]
) -> list[dict[str, Any]]:
    """The stages as JSON, the captured graph first. A stage whose lines are those of the one before says `same`."""
    rows: list[dict[str, Any]] = []
    before: list[int] = []
    if graph is not None:
        before, _ = _numbered(graph_lines(graph.text()), table)
        rows.append(
            {"name": "graph", "seconds": 0, "counts": {"nodes": len(graph.nodes)}, "notes": [], "lines": before}
        )
    for record in records:
        row: dict[str, Any] = {"name": record.name, "seconds": round(record.seconds, 6)}
        row |= {"counts": dict(record.counts), "notes": list(record.notes)}
        lines = list(lines_of(record, made))
        numbers, blocks = _numbered(lines, table)
        if numbers and numbers == before:
            row["same"] = True
        elif numbers:
            row |= {"lines": numbers, "blocks": blocks}
            before = numbers
        rows.append(row)
    return rows


def lines_of(record: StageRecord, made: Mapping[str, tuple[str, ...]]) -> Iterator[PrintedLine]:
    """The lines of a stage. `made`: the ATen nodes by storage, for the lines of a plan that name storages only."""
    value = record.value
    if isinstance(value, Program):
        yield from (line for line in program_lines(value) if not line.text.lstrip().startswith("note "))
    elif isinstance(value, Plan):
        yield from planned_lines(value, made)
    elif value is not None:
        yield from graph_lines(record.text())
    elif not record.sources:
        yield from (PrintedLine(line) for line in record.text().splitlines())


def graph_lines(text: str) -> Iterator[PrintedLine]:
    """The lines of a captured graph's text; a node's line begins with its name."""
    region = ""
    for line in text.splitlines():
        if line.startswith("region "):
            region = f"{line.split()[1]}."
        found = GRAPH_LINE.match(line)
        names = (f"{region if found[1] else ''}{found[2]}",) if found else ()
        if line.lstrip().startswith("return "):
            returned = re.findall(r"\w+", line.partition("return ")[2].partition(" fixed_strides")[0])
            names = tuple(name for name in returned if name != "None")
        yield PrintedLine(line, names)


def planned_lines(
    plan: Plan, made: Mapping[str, tuple[str, ...]], indent: str = "", region: str = ""
) -> Iterator[PrintedLine]:
    """The lines of `print_plan`. `region`: the name of the region that it is the plan of, with a dot, or ""."""
    names = [given.name for given in plan.inputs]
    inputs = {name: (f"{region}{name}",) for name in names}
    yield PrintedLine(f"{indent}plan {plan.name} ({', '.join(names)})", tuple(f"{region}{name}" for name in names))
    for inner in plan.regions:
        yield from planned_lines(inner, made, f"{indent}  ", f"{inner.name}.")
    of = dict(made) | inputs
    for line in plan.lines:
        yield PrintedLine(f"{indent}  {print_line(line)}", _line_nodes(line, of, region))


def _line_nodes(line: plan_lines.Line, of: dict[str, tuple[str, ...]], region: str) -> tuple[str, ...]:
    """The ATen nodes of a plan's line; adds those of the names that it makes to `of`."""
    match line:
        case plan_lines.KernelLine(origins=origins):  # the kernels of regions too
            return tuple(dict.fromkeys(origin.node for origin in origins))
        case plan_lines.LaunchLine() | plan_lines.ExternLine() | plan_lines.DispatchLine():
            return tuple(dict.fromkeys(f"{region}{origin.node}" for origin in line.origins))
        case plan_lines.ViewLine(name, base) | plan_lines.ReuseLine(name, base):
            of.setdefault(name, of.get(base, ()))
            return of[name]
        case plan_lines.AllocateLine(name) | plan_lines.ConstantLine(name) | plan_lines.LayoutLine(name):
            return of.get(name, ())
        case plan_lines.FreeLine(names):
            return tuple(dict.fromkeys(node for name in names for node in of.get(name, ())))
        case plan_lines.ReturnLine():
            named = re.findall(r'tensor "(\w+)"', print_line(line))
            return tuple(dict.fromkeys(node for name in named for node in of.get(name, ())))
        case _:
            return ()


def _numbered(lines: Iterable[PrintedLine], table: LineTable) -> tuple[list[int], list[list[Any]]]:
    """The numbers of lines, and the blocks: a kernel's or call's name, its first line and the one behind its last."""
    numbers: list[int] = []
    blocks: list[list[Any]] = []
    for line in lines:
        if line.within and blocks and blocks[-1][0] == line.within and blocks[-1][2] == len(numbers):
            blocks[-1][2] += 1
        elif line.within:
            blocks.append([line.within, len(numbers), len(numbers) + 1])
        numbers.append(table.add(line))
    return numbers, blocks
