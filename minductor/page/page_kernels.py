"""The kernels and calls of a graph: where each came from, its schedule with the alternatives, and what it costs.

Takes the last program and plan of a graph, or for a graph of the store its report. Gives JSON rows in the order of the
calls. The seconds are estimates of the cost model, for one thread and for sixteen on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from minductor.ir.plan.plan import DispatchLine, ExternLine, KernelLine, LaunchLine, Plan
from minductor.ir.program.nodes import Extern, Kernel, MergedKernel, NodeNote, Program
from minductor.ir.program.printer import storage_nodes
from minductor.ir.program.variant_note import VariantNote
from minductor.ir.report.report import Report
from minductor.page.page_nodes import Nodes
from minductor.target import Env

Row: TypeAlias = "dict[str, Any]"


def parts(program: Program, plan: Plan, where: str = "", region: str = "") -> Iterator[tuple[str, str, Program, Plan]]:
    """A program and its regions with their plans: the prefix of the names of kernels, and that of ATen nodes."""
    yield where, region, program, plan
    for inner, lines in zip(program.regions, plan.regions, strict=True):
        yield from parts(inner, lines, f"{where}{inner.name}.", f"{inner.name}.")


def made_by(program: Program) -> dict[str, tuple[str, ...]]:
    """By storage the ATen nodes that compute what is written there, in the program and its regions."""
    found = storage_nodes(program)
    for region in program.regions:
        for storage, names in made_by(region).items():
            found.setdefault(storage, tuple(f"{region.name}.{name}" for name in names))
    return found


def kernel_rows(program: Program, plan: Plan, env: Env, nodes: Nodes) -> list[Row]:
    """The kernels and calls of a program and its regions."""
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    rows: list[Row] = []
    for where, region, part, lines in parts(program, plan):
        kinds = (LaunchLine, DispatchLine, ExternLine)
        calls = [line for line in lines.lines if isinstance(line, kinds)]
        launches = iter([line for line in calls if not isinstance(line, ExternLine)])
        externs = iter([line for line in calls if isinstance(line, ExternLine)])
        table = part.real_table()
        for node in part.nodes:
            if not isinstance(node, Kernel | Extern):
                continue
            line = next(launches if isinstance(node, Kernel) else externs, None)
            row: Row = {"name": f"{where}{node.name}", "handle": line.handle if line else 0}
            row["nodes"] = nodes.numbers(f"{region}{origin.node}" for origin in node.origins)
            if isinstance(node, Extern):
                row |= {"op": node.op, "reason": node.reason}
            elif line is not None and not isinstance(line, ExternLine):
                own = line.own if isinstance(line, DispatchLine) else line
                row |= {"symbol": symbols[own.kernel], **_kernel_facts(node, table, part, env)}
            rows.append(row)
    return rows


def _kernel_facts(kernel: Kernel, table: Mapping[str, Any], program: Program, env: Env) -> Row:
    row: Row = {"axes": ", ".join(f"{axis.name}: {axis.extent}" for axis in kernel.axes), "ops": len(kernel.body.ops)}
    schedule = kernel.schedule
    if schedule is not None:
        row |= {"recipe": schedule.recipe, "schedule": str(schedule).splitlines()}
        row |= _cost(kernel, table, program, env)
    merged = [n for n in program.notes if isinstance(n, MergedKernel) and n.into == kernel.name]
    row["joined"] = [[n.stage, n.name, f"{n.reason} ({n.figures})" if n.figures else n.reason] for n in merged]
    row["notes"] = [str(n) for n in program.notes if isinstance(n, NodeNote) and n.subject == kernel.name]
    decided = [n for n in program.notes if isinstance(n, VariantNote) and n.kernel == kernel.name]
    row["decisions"] = [_decision(note) for note in decided]
    return row


def _cost(kernel: Kernel, table: Mapping[str, Any], program: Program, env: Env) -> Row:
    """The estimated seconds of a kernel, and the largest of the times that they are made of."""
    if env.target.is_gpu:
        from minductor.cost.seconds import seconds

        costs = [seconds(kernel, table, env.target, program.hints)]
    else:
        from minductor.cost.cpu_seconds import cpu_seconds

        costs = list(cpu_seconds({kernel.name: kernel}, table, env.target.cpu, hints=program.hints)[kernel.name])
    return {"seconds": [_short(cost.seconds) for cost in costs], "bound": [cost.bound for cost in costs]}


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def _decision(note: VariantNote) -> Row:
    """Which variant was taken, by whom and why, and by how much the second one is slower."""
    row: Row = {"stage": note.stage, "taken": note.taken, "by": note.by, "options": list(note.options)}
    row["figures"] = note.figures
    if note.prices:
        prices = dict(note.prices)
        row["prices"] = {name: [_short(price) for price in each] for name, each in prices.items()}
        row["losses"] = {name: round(loss, 4) for name, loss in losses(prices).items()}
    return row


def losses(prices: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """How many times as long each way takes as the fastest one, where it loses most; `fastest` takes the least.

    >>> losses({"rows": (2.0, 1.0), "rows_in_parts": (2.5, 0.5)})
    {'rows': 2.0, 'rows_in_parts': 1.25}
    """
    least = [min(each) for each in zip(*prices.values(), strict=True)]
    return {name: max(p / q for p, q in zip(each, least, strict=True)) for name, each in prices.items()}


def stored_rows(report: Report, of: Mapping[str, list[int]], called: Sequence[tuple[int, list[int]]]) -> list[Row]:
    """The kernels and calls of a graph that the store had.

    `of`: the ATen nodes by generated function. `called`: the handle and the nodes of each call of
    the wrapper, in order.
    """
    rows: list[Row] = []
    is_known = len(called) == len(report.nodes)  # with regions or variants the wrapper has more calls
    for number, (name, symbol, op, _) in enumerate(report.nodes):
        handle, numbers = called[number] if is_known else (0, of.get(symbol, []))
        row: Row = {"name": name, "handle": handle, "nodes": numbers}
        if op:
            rows.append(row | {"op": op, "reason": dict(report.extern_reasons).get(op, "")})
            continue
        decided = [each for each in report.variants if each[0] == name]
        keys = ("kernel", "taken", "by", "options", "figures")
        facts = [{"stage": "", **dict(zip(keys, each, strict=True))} for each in decided]
        joined = [["", part, ""] for part, into in report.joined if into == name]
        rows.append(row | {"symbol": symbol, "decisions": facts, "joined": joined, "notes": []})
    return rows
