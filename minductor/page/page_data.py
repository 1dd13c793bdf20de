"""What a page shows, as one JSON document: the data between the compiler and the page's script.

Takes the records of graphs. Gives a dict of JSON values; `document` says what it holds. A number in a list `nodes` is
the number of an ATen node in the graph's `nodes`; the number of a line counts from 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from minductor.ir.plan.plan import Plan
from minductor.ir.program.nodes import Program
from minductor.ir.report.provenance import Provenance
from minductor.ir.report.refusals import MAX_DISTANCE, MAX_NEIGHBOURS
from minductor.ir.report.report import Report
from minductor.page.page_code import kernel_code, plain_code, wrapper_code
from minductor.page.page_files import Files
from minductor.page.page_highlight import CLASSES, is_highlighting
from minductor.page.page_kernels import kernel_rows, made_by, stored_rows
from minductor.page.page_machine import generated_text, machine_code, prelude_lines
from minductor.page.page_nodes import Nodes
from minductor.page.page_records import GraphRecords
from minductor.page.page_stages import LineTable, stage_rows
from minductor.version import __version__

SCHEMA = 1


def document(graphs: Sequence[dict[str, Any]], files: Files) -> dict[str, Any]:
    """The document of a page: the user's `files`, and the `graphs` that `graph_data` has made.

    `classes`: the names of the classes in `marks`, which are numbers of a class and a length in turns.
    """
    return {
        "schema": SCHEMA,
        "minductor": __version__,
        "classes": list(CLASSES),
        "highlighted": is_highlighting(),
        "limits": {"neighbours": MAX_NEIGHBOURS, "distance": MAX_DISTANCE},
        "files": files.rows(),
        "graphs": list(graphs),
    }


def graph_data(records: GraphRecords, name: str, files: Files) -> dict[str, Any]:
    """One graph as JSON.

    - `nodes`, `drawing`: the ATen nodes with their places, users' lines and module paths; the edges between them.
    - `texts`, `of`, `stages`: the different lines of all stages, their nodes, and the lines of each stage by number.
    - `kernels`: kernels and calls with their nodes, schedules, alternatives and estimated seconds.
    - `code`, `wrapper`, `machine`: the generated texts with the nodes of their lines, and what they compile to.
    - `memory`, `choices`: the storages, calls and choices of the report. `why`: what `why_not` answers from.
    """
    nodes = Nodes()
    if records.graph is not None:
        nodes.read(records.graph)
    program = _last(records, Program)
    plan = _last(records, Plan)
    made = made_by(program) if program is not None else {}
    given = {row["name"]: (row["name"],) for row in nodes.rows if row["kind"] in ("input", "constant")}
    table = LineTable(nodes)
    stages = stage_rows(records.graph, records.stages, table, made | given)
    report = _report(records)
    kernels: list[dict[str, Any]] = []
    if program is not None and plan is not None and records.env is not None:
        kernels = kernel_rows(program, plan, records.env, nodes)
    code, wrapper = _texts(records, report, kernels, nodes, made | given)
    if report is not None and not kernels:
        kernels = stored_rows(report, _by_function(code), _called(wrapper))
        made |= _made_at(report, [[nodes.rows[n]["name"] for n in kernel["nodes"]] for kernel in kernels])
    if records.gm is not None:
        nodes.locate(records.gm, files)
    symbols = report.kernel_names if report else ()
    return {
        "name": name,
        "role": records.role,
        "target": records.env.target.name if records.env else "",
        "failure": records.failure,
        "checked": dict(records.checked),
        "drawing": nodes.draw(),
        "nodes": nodes.rows,
        "texts": table.texts,
        "of": table.of,
        "stages": stages,
        "kernels": kernels,
        "code": code,
        "wrapper": wrapper,
        "machine": [] if records.env is None else machine_code(records.contents, symbols, records.env),
        **({} if report is None else _facts(report, nodes, made | given)),
    }


def _last(records: GraphRecords, kind: type[Any]) -> Any:
    """The last value of a kind that a stage gave."""
    return next((stage.value for stage in reversed(records.stages) if isinstance(stage.value, kind)), None)


def _report(records: GraphRecords) -> Report | None:
    text = records.contents.get("report.json")
    return None if text is None else Report.from_json(json.loads(text))


def _made_at(report: Report, called: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """By the name of a storage the ATen nodes of the call with which it begins to live: `called`, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for _, _, birth, _, _, *names in report.storages:
        if 0 < birth <= len(called):
            found |= dict.fromkeys(names, tuple(called[birth - 1]))
    return found


def _texts(
    records: GraphRecords,
    report: Report | None,
    kernels: Sequence[Mapping[str, Any]],
    nodes: Nodes,
    made: Mapping[str, tuple[str, ...]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The files with kernels, and those of the wrapper."""
    texts = {name: text for stage in records.stages for name, text in stage.sources.items()}
    of_handle = {kernel["handle"]: kernel["nodes"] for kernel in kernels}
    of_symbol: dict[str, list[int]] = {symbol: [] for symbol in (report.kernel_names if report else ())}
    called = [(kernel["symbol"], kernel["nodes"]) for kernel in kernels if "symbol" in kernel]
    rows: dict[str, dict[int, list[int]]] = {}
    if stored := records.contents.get("provenance.json"):
        found = Provenance.from_json(json.loads(stored))
        of_call = {call.key: nodes.numbers(call.nodes) for call in found.calls}
        of_handle |= {int(key.rpartition(":")[2]): numbers for key, numbers in of_call.items()}
        called += [(key.rpartition(":")[0], numbers) for key, numbers in of_call.items()]
        above = {name: prelude_lines(text.decode()) for name, text in records.contents.items() if name.endswith(".cpp")}
        rows = line_nodes(found, nodes, above)
    for symbol, numbers in called:  # equal kernels share a function, which then has the nodes of all
        if symbol in of_symbol:
            of_symbol[symbol] = sorted({*of_symbol[symbol], *numbers})
    code: list[dict[str, Any]] = []
    wrapper: list[dict[str, Any]] = []
    for file, text in texts.items():
        if file.startswith("wrapper") and not file.endswith(".json"):
            wrapper.append(wrapper_code(file, text, nodes, of_handle, made))
        elif file.startswith("wrapper"):
            wrapper.append(plain_code(file, text))
        elif file.endswith(".json"):
            code.append(plain_code(file, text))
        else:
            code.append(kernel_code(file, generated_text(text, [*of_symbol]), nodes, of_symbol, rows))
    return code, wrapper


def line_nodes(found: Provenance, nodes: Nodes, above: Mapping[str, int]) -> dict[str, dict[int, list[int]]]:
    """By generated function the ATen nodes of its lines, counted from 0: those of all launches of the function.

    `above`: how many lines a stored file has above the text of codegen.
    """
    values: dict[str, list[Sequence[Sequence[str]]]] = {}
    for call in found.calls:
        if call.values:
            values.setdefault(call.key.rpartition(":")[0], []).append(call.values)
    return {
        symbol: {
            line - 1 - above.get(each.file, 0): nodes.numbers(
                name for of in values.get(symbol, ()) for place in places for name in of[place]
            )
            for line, places in each.rows
        }
        for symbol, each in found.lines.items()
    }


def _by_function(code: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """The ATen nodes of each generated function."""
    found: dict[str, list[int]] = {}
    for each in code:
        of = [numbers for count, numbers in each["runs"] for _ in range(count)]
        for symbol, start, end in each.get("functions", ()):
            found[symbol] = sorted({number for numbers in of[start:end] for number in numbers})
    return found


def _called(wrapper: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[int]]]:
    """The handle and the ATen nodes of each call of the wrapper, in order."""
    found: dict[int, list[int]] = {}
    for each in wrapper:
        of = [numbers for count, numbers in each["runs"] for _ in range(count)]
        for line, handle in each.get("handles", ()):
            found.setdefault(handle, of[line])
    return list(found.items())


def _facts(report: Report, nodes: Nodes, made: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """What the report of a graph says."""
    storages = [
        {
            "owner": owner,
            "bytes": size,
            "birth": birth,
            "death": death,
            "returned": is_returned,
            "names": names,
            "nodes": nodes.numbers(node for each in names for node in made.get(each, ())),
        }
        for owner, size, birth, death, is_returned, *names in report.storages
    ]
    return {
        "counts": {"kernels": report.kernels, "calls": report.externs, "bytes": report.bytes, "ops": report.operations},
        "memory": {"peak": report.peak, "calls": report.calls, "storages": storages},
        "choices": report.choices,
        "why": {"nodes": report.nodes, "joined": report.joined, "refusals": report.refusals},
    }
