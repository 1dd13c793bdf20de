"""The table of a run: operators and samples by compiler, dtype and mode, and the seconds they took.

Takes records; gives text. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.opinfo.expected import MOST

# column -> what one record counts in it
COLUMNS = {
    "ops": lambda r: 1,
    "clean": lambda r: not needs_another(r),
    "native": lambda r: not r.get("externs") and not r.get("fallback") and r["right"] > 0,
    "samples": lambda r: sum(outcomes(r)),
    "right": lambda r: r["right"],
    "unstable": lambda r: r.get("unstable", 0),
    "wrong": lambda r: len(r["wrong"]),
    "error": lambda r: len(r["failed"]) + r.get("expected", 0),
    "expected": lambda r: r.get("expected", 0),
    "fallback": lambda r: r.get("fallback", 0),
    "skipped": lambda r: r["skipped"],
    "kernels": lambda r: r.get("kernels", 0),
    "compiled": lambda r: r.get("compiled", 0),
    "spilling": lambda r: r.get("spilling", 0),
    "graphs": lambda r: r.get("graphs", 0),
    "symbolic": lambda r: r.get("symbolic", 0),
    "seconds": lambda r: r.get("seconds", 0),
}
LEGEND = """\
clean: operators with nothing wrong and no unexpected error. native: operators without an extern call and without
fallback. unstable: further from the truth than eager, but no further than one unit in the last place of eager's own
results moves it. error: an exception or a death of the process where eager and the tracer run; expected: those of them
that expected.txt names. fallback: samples whose graph ran in eager as a whole, counted as right or wrong too. skipped:
samples that eager or the tracer alone do not run, or that differ from eager by the tracer alone. compiled: of the
kernels, those that Triton compiled for a GPU that is elsewhere, equal ones of a process once; spilling: those of them
that keep registers in memory. There right means compiled: eager ran. symbolic: graphs that have a symbol for a size.
seconds: of CPU time, for tracing, compiling and running twice."""


def outcomes(record: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Right (or as good as eager could tell), wrong, error and expected samples: those that count."""
    return (
        record["right"] + record.get("unstable", 0),
        len(record["wrong"]),
        len(record["failed"]),
        record.get("expected", 0),
    )


def needs_another(record: Mapping[str, Any]) -> bool:
    return bool(record["wrong"] or record["failed"])


def table(records: Iterable[Mapping[str, Any]]) -> str:
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for record in records:
        key = (record.get("compiler", "minductor"), record["dtype"], record["mode"])
        row = rows.setdefault(key, dict.fromkeys(COLUMNS, 0))
        for name, count in COLUMNS.items():
            row[name] += count(record)
    lines = [f"{'compiler':<11}{'dtype':<10}{'mode':<17}" + "".join(f"{name:>9}" for name in COLUMNS)]
    for (compiler, dtype, mode), row in rows.items():
        lines.append(f"{compiler:<11}{dtype:<10}{mode:<17}" + "".join(f"{round(n):>9}" for n in row.values()))
    return "\n".join(lines)


def is_within(records: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the expected failures are as few as promised."""
    counts = [outcomes(record) for record in records]
    return sum(row[3] for row in counts) <= MOST * sum(sum(row) for row in counts)


def faster(records: Iterable[Mapping[str, Any]]) -> str:
    """How the compilers' seconds compare on the operators, dtypes and modes that all of them ran; empty for one."""
    seconds: dict[str, dict[tuple[str, str, str], float]] = {}
    for r in records:
        seconds.setdefault(r.get("compiler", "minductor"), {})[r["dtype"], r["mode"], r["op"]] = r.get("seconds", 0)
    if len(seconds) < 2:
        return ""
    both = set.intersection(*(set(found) for found in seconds.values()))
    totals = {name: sum(found[key] for key in both) for name, found in seconds.items()}
    parts = ", ".join(f"{name} {total:.0f} s" for name, total in totals.items())
    ours = totals.get("minductor", 0)
    ratio = f"; minductor is {max(totals.values()) / ours:.1f} times as fast" if ours else ""
    return f"CPU seconds on the {len(both)} rows that both ran: {parts}{ratio}"
