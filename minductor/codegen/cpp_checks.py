"""What checks and asserts leave behind in C++: `badk` is a value that failed number k, or 0, which no check refuses.

Takes ops, the statuses by id of an op, and the names of such variables. Gives clauses and lines of C++.
Refuses nothing.

The number has no sign: 0 is below all others, so that the largest of what a loop's iterations or lanes found is one
that failed, whichever. A value and its check stay together, and the loop stays a vector loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minductor.codegen.cpp_text import Lines, index_text
from minductor.ir.nodes import Check, Masked, Op
from minductor.ir.signature import may_fail


def statuses(op: Op, errors: Mapping[int, int]) -> Iterator[int]:
    """The statuses of an op, and of those in its region."""
    if isinstance(op.attrs, Masked):
        for inner in op.attrs.body.ops:
            yield from statuses(inner, errors)
    elif may_fail(op):
        yield errors[id(op)]


def failure(op: Op, number: int) -> str:
    """The status of a check or assert that failed, with what its error tells."""
    if isinstance(op.attrs, Check):
        return f"md_failed({number}, bad{number}, {index_text(op.attrs.size)})"
    return f"md_failed({number}, 0, 0)"


def clause(bad: Sequence[str]) -> str:
    """What makes a loop's iterations independent although each may fail."""
    return f" reduction(max : {', '.join(bad)})" if bad else ""


def open_lanes(out: Lines, axis: str, bad: Sequence[str]) -> None:
    """Begins the function of an element and its lane; what failed before is given by value, as vectors want it."""
    out.open("do")  # a scope of its own
    given = "".join(f", uint64_t {name}" for name in bad)
    out.open(f"const auto {axis}_lane = [&](int64_t {axis}, int l{given}) MD_LAMBDA")


def close_lanes(out: Lines, axis: str, first: str, last: str, lanes: int, bad: Sequence[str]) -> None:
    """Ends the function, which gives what failed, and runs it as md_lanes does."""
    kind, names, start = f"md_Bad<{len(bad)}>", ", ".join(bad), f"{axis}_from"
    out.add(f"return {kind}{{{names}}};")
    out.close("};")
    out.add(f"int64_t {start} = {first};")
    for condition, step, count in (
        (f"{start} + {lanes} <= {last}", f"{start} += {lanes}", str(lanes)),
        (f"{start} < {last}", f"{start} = {last}", f"(int)({last} - {start})"),
    ):
        out.open(f"for (; {condition}; {step})")
        out.pragma(f"omp simd{clause(bad)}")
        out.open(f"for (int l = 0; l < {count}; ++l)")
        out.add(f"const {kind} found = {axis}_lane({start} + l, l, {names});")
        for number, name in enumerate(bad):
            out.add(f"{name} = found.value[{number}];")
        out.close()
        out.close()
    out.close("} while (false);")
