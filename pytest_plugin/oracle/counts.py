"""The marker `counts`: `@pytest.mark.counts(kernels=1, bytes=at_most("2.1 MiB"))`.

Takes the keywords of the markers and the counts of a run. Gives a line for each count that is wrong. Refuses unknown
names, and values that are neither whole numbers nor limits, with the valid ones.

>>> from pytest_plugin.limits import at_most
>>> count_errors({"kernels": 1, "externs": at_most(0)}, Facts(kernels=2, externs=0, kernel_names=("a", "b")))
['kernels   1 declared, 2 found: a, b']
>>> counts_misuse({"kernel": 1})
'counts has no kernel; it has kernels, externs, bytes, operations, peak, block_accesses, block_pointers, descriptors, \
tiles, registers, spills'
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_plugin.adapters import Facts
from pytest_plugin.limits import Limit
from pytest_plugin.vocabulary import COUNTS

REFUSALS_SHOWN = 8


def counts_misuse(declared: Mapping[str, object]) -> str:
    """Returns what is wrong with the marker itself, or an empty text."""
    for name, value in declared.items():
        if name not in COUNTS:
            return f"counts has no {name}; it has {', '.join(COUNTS)}"
        if not isinstance(value, int | Limit) or isinstance(value, bool):
            return f"counts({name}={value!r}): declare a whole number, at_most(...) or at_least(...)"
        if isinstance(value, Limit) and value.words:
            return f"counts({name}={value!r}): {', '.join(value.words)} are words of memory(peak=...)"
    return "" if declared else "counts declares nothing"


def count_errors(declared: Mapping[str, int | Limit], facts: Facts) -> list[str]:
    """Returns a line for each count that is not as declared, and the reasons why kernels were not fused."""
    lines: list[str] = []
    for name, value in declared.items():
        found: int | None = getattr(facts, name)
        holds = found is not None and (value.holds(found) if isinstance(value, Limit) else value == found)
        if not holds:
            known = "not known to this compiler" if found is None else f"{found} found{_names_or_reasons(name, facts)}"
            lines.append(f"{name:<9} {value!r} declared, {known}")
    if lines and "kernels" in declared:
        reasons = dict.fromkeys(f"{stage}: {a} | {b}: {why}" for stage, a, b, why in facts.refusals)
        lines += [f"why       {reason}" for reason in list(reasons)[:REFUSALS_SHOWN]]
    return lines


def _names_or_reasons(name: str, facts: Facts) -> str:
    match name:
        case "kernels" if facts.kernel_names:
            return f": {', '.join(facts.kernel_names)}"
        case "externs" if facts.extern_reasons:
            return f": {', '.join(f'{op} ({reason})' for op, reason in facts.extern_reasons)}"
        case _:
            return ""
