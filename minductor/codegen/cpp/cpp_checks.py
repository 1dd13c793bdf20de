"""Index checks and assertions in C++: the variable `badk` is 0 until check number k fails.

Takes operations, the status of each by the id of the operation, and the names of these variables. Gives clauses of
OpenMP and lines of C++. Refuses nothing.

If the index of a check can be computed again after the loops, the loop records only that the check failed, and a later
search finds the first index that did. Any other check keeps an index that failed: the largest one. The variables are
unsigned, so that 0 is less than every failure. A check therefore does not keep g++ from vectorising the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minductor.codegen.cpp.cpp_text import Lines, index_text
from minductor.codegen.cpp.cpp_values import Values
from minductor.core.dtypes import I64
from minductor.core.expressions.expr import Expr, free_symbols, integer
from minductor.ir.program.nodes import Check, Constant, Index, Kernel, Load, Masked, Op, writes
from minductor.ir.program.signature import may_fail


def statuses(op: Op, errors: Mapping[int, int]) -> Iterator[int]:
    """The statuses of an operation and of the operations in its region."""
    if isinstance(op.attrs, Masked):
        for inner in op.attrs.body.ops:
            yield from statuses(inner, errors)
    elif may_fail(op):
        yield errors[id(op)]


def repeatable(kernel: Kernel) -> dict[int, list[int]]:
    """For each check whose index can be computed again after the loops, by id: how to compute it.

    The index is computed by the operations at these positions.
    """
    written = {ref.storage for ref in writes(kernel)}
    checks: dict[str, int] = {}  # a check's symbol -> its position
    found: dict[int, set[int]] = {}
    for position, op in enumerate(kernel.body.ops):
        read: Expr = integer(0)
        match op.attrs:
            case Load(ref, index) if ref.storage not in written:
                read = index
            case Index(expr):
                read = expr
            case Check():
                checks[op.attrs.symbol.name] = position
            case Constant() | None:
                pass
            case _:
                continue
        if op.dtype is None or op.dtype.kind not in ("int", "uint", "bool"):
            continue  # a float may be rounded in another way when it is computed again
        needed = [*op.args, *(checks[s.name] for s in free_symbols(read) if s.name in checks)]
        if all(a in found for a in needed):
            found[position] = {position}.union(*(found[a] for a in needed))
    return {id(kernel.body.ops[p]): sorted(found[p] - {p}) for p in checks.values() if p in found}


def report(kernel: Kernel, op: Op, number: int, values: Values) -> None:
    """The line that returns the status of a failed check or assertion, with the values for its message."""
    out, bad = values.out, f"bad{number}"
    out.computes(next((position for position, each in enumerate(kernel.body.ops) if each is op), None))
    if not isinstance(op.attrs, Check):
        out.add(f"if ({bad} != 0) return md_failed({number}, 0, 0);")
        return
    size = index_text(op.attrs.size)
    if id(op) not in values.repeatable:
        out.add(f"if ({bad} != 0) return md_failed({number}, {bad}, {size});")
        return
    out.open(f"if ({bad} != 0)")
    axes = [axis for axis in kernel.axes if axis.name in op.axes]
    for axis in axes:
        out.open(f"for (int64_t {axis.name} = 0; {axis.name} < {index_text(axis.extent)}; ++{axis.name})")
    names: dict[int, str] = {}
    ops = kernel.body.ops
    for position in values.repeatable[id(op)]:
        each = ops[position]
        kinds = [d for a in each.args if (d := ops[a].dtype) is not None]
        names[position] = values.emit(each, [names[a] for a in each.args], kinds, values.label)
    value = names[op.args[0]]
    at = values.define(values.label(), I64, values.wrapped(op.attrs, value))
    test = f"({values.outside(op.attrs, at)}){values.needed_if(op)}"
    out.add(f"if ({test}) return md_failed({number}, (uint64_t){value}, {size});")
    for _ in axes:
        out.close()
    out.add(f"return md_failed({number}, 0, {size});")
    out.close()


def clause(bad: Sequence[str]) -> str:
    """The OpenMP clause by which iterations stay independent although each of them may fail."""
    return f" reduction(max : {', '.join(bad)})" if bad else ""


def open_lanes(out: Lines, axis: str, bad: Sequence[str]) -> None:
    """Opens the function that computes one element and its lane.

    Earlier failures are passed by value, since g++ vectorises no function with references to them.
    """
    out.open("do")  # a scope for the names below
    given = "".join(f", uint64_t {name}" for name in bad)
    out.open(f"const auto {axis}_lane = [&](int64_t {axis}, int l{given}) MD_LAMBDA")


def close_lanes(out: Lines, axis: str, first: str, last: str, lanes: int, bad: Sequence[str]) -> None:
    """Closes the function, which returns what failed, and calls it as md_lanes does."""
    kind, names, start = f"md_Bad<{len(bad)}>", ", ".join(bad), f"{axis}_from"
    out.computes(None)
    out.add(f"return {kind}{{{names}}};")
    out.close("};")
    out.add(f"int64_t {start} = {first};")
    for condition, step, count in (
        (f"{start} + {lanes} <= {last}", f"{start} += {lanes}", str(lanes)),
        (f"{start} < {last}", f"{start} = {last}", f"(int)({last} - {start})"),
    ):
        with out.block(f"for (; {condition}; {step})"):
            out.pragma(f"omp simd{clause(bad)}")
            with out.block(f"for (int l = 0; l < {count}; ++l)"):
                out.add(f"const {kind} found = {axis}_lane({start} + l, l, {names});")
                out.add(*(f"{name} = found.value[{number}];" for number, name in enumerate(bad)))
    out.close("} while (false);")
