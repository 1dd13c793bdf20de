"""The kernels of a Plan as C++: one function each, packed in few translation units.

Takes a Plan (or one Kernel) with schedules; gives units of text, each complete with the functions of cpp_math.h that it
uses. Refuses a kernel without a schedule. The text depends on shapes and dtypes only,
and its comments on the ATen nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from minductor.analysis.function_chains import function_chain
from minductor.codegen.cpp import cpp_checks
from minductor.codegen.cpp.cpp_math import prelude
from minductor.codegen.cpp.cpp_nest import NestPrinter
from minductor.codegen.cpp.cpp_stored import stored_as
from minductor.codegen.cpp.cpp_text import Lines, MarkOf, index_text
from minductor.codegen.cpp.cpp_values import Values
from minductor.codegen.line_marks import mark, read_marks, united, without_marks
from minductor.codegen.operator_spelling import CPP_STORAGE
from minductor.core.dtypes import F32, DType, by_name
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Symbol
from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import KernelLine, Plan
from minductor.ir.program.below_maximum import maximum_above
from minductor.ir.program.bundled import bundled_parts
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import Check, Kernel, Origin, Ref, Store, all_ops, reads, writes
from minductor.ir.program.ops import FUNCTION, op_cost
from minductor.ir.program.signature import error_node, may_fail, pointer_names, rename_storages, signature
from minductor.target import Env

# functions in loops with others; more of them are called if they wait for each other, since they hardly wait for calls
MOST_INLINED = 8
UNIT_KERNELS = 32  # the most kernels of one translation unit: units are compiled side by side
ARRAY = re.compile(r"\s+[\w ]+ \w+\[[^]]+\];")
OURS = re.compile(r"\bmd_\w+(?=[(<])")  # calls of functions in the headers beside this file


def cpp(plan: Plan, env: Env) -> tuple[Unit, ...]:
    """Every kernel of the plan once, in as few units as UNIT_KERNELS allows, which hold about equally many."""
    level = env.options.provenance
    bodies = dict(plan.kernels)
    texts: list[tuple[str, str]] = []
    for line in plan.lines:
        if isinstance(line, KernelLine):
            dtypes = {name: by_name(dtype) for name, dtype in line.signature}
            mark_of = partial(mark, line.symbol) if level > 1 else None
            given = (bodies[line.id], line.symbol, dtypes, line.origins)
            texts.append((line.symbol, kernel_text(*given, is_commented=level > 0, mark_of=mark_of)))
    count = -(-len(texts) // UNIT_KERNELS)
    units: list[Unit] = []
    for n in range(count):
        group = texts[n * len(texts) // count : (n + 1) * len(texts) // count]
        name = "kernels" if count == 1 else f"kernels_{n}"
        text, line_maps = read_marks(unit_text(text for _, text in group))
        units.append(Unit(name, text, tuple(symbol for symbol, _ in group), line_maps=line_maps))
    return tuple(units)


def unit_text(kernels: Iterable[str]) -> str:
    """A complete translation unit: the kernels behind the functions that they call."""
    joined = "\n".join(kernels)
    return f"{prelude(OURS.findall(joined))}\n{joined}"


def kernel_text(
    kernel: Kernel,
    symbol: str,
    dtypes: Mapping[str, DType],
    origins: tuple[Origin, ...] | None = None,
    linkage: str = 'extern "C"',
    *,
    is_commented: bool = True,
    mark_of: MarkOf | None = None,
) -> str:
    """The function of one kernel, below a comment that names the ATen nodes it computes. `dtypes`: by storage.

    The function returns 0, or the number of the first check or assertion that failed, in the program's order
    (`errors` of signature.py). It leaves the value that failed in `md_failure`. With `mark_of`, lines end with the
    marks of the ops that they compute.
    """
    out = Lines(mark_of)
    if kernel.schedule is not None and kernel.schedule.parts:
        return parts_text(kernel, symbol, dtypes, origins, is_commented=is_commented, mark_of=mark_of)
    given = signature(kernel)
    storages: dict[str, tuple[str, DType]] = {}
    parameters: list[str] = []
    for name, storage in zip(pointer_names(given), given.storages, strict=True):
        storages[storage] = (name, dtypes[storage])
        const = "" if storage in given.written else "const "
        parameters.append(f"{const}{CPP_STORAGE[dtypes[storage].name]}* __restrict {name}")
    parameters += _numbers(given.sizes)
    checked = [op for op in all_ops(kernel.body) if may_fail(op)]
    tests = nonempty_tests(kernel)
    conditions = {
        id(op): [t for a, t in tests[id(op)].items() if a not in op.axes] for op in checked if id(op) in tests
    }
    stored = [op.attrs.ref.storage for op in kernel.body.ops if isinstance(op.attrs, Store)]
    values = Values(
        out, storages, {id(op): n + 1 for n, op in enumerate(checked)}, conditions, len({*stored}) < len(stored)
    )
    values.stored_as = stored_as(kernel.body, dtypes)
    exponentials = [op for op in kernel.body.ops if op.name == "exp" and op.dtype == F32]
    values.nonpositive = frozenset(
        id(op) for op in exponentials if maximum_above(op.args[0], kernel.body.ops) is not None
    )
    values.calls = _calls_functions(kernel)
    values.repeatable = cpp_checks.repeatable(kernel) if checked else {}
    nodes = kernel.origins if origins is None else origins
    out.add(*(comment(nodes) if is_commented else ()))
    with out.block(f"{linkage} int64_t {symbol}({', '.join(parameters)})"):
        if checked:
            out.add(f"uint64_t {', '.join(f'bad{n + 1} = 0' for n in range(len(checked)))};")
            out.add(*unreadable(kernel, values.errors, tests))
        NestPrinter(kernel, values).print()
        order = {origin.node: n for n, origin in enumerate(nodes)}
        for number, op in sorted(enumerate(checked, 1), key=lambda row: order.get(error_node(row[1]), 0)):
            cpp_checks.report(kernel, op, number, values)
        out.computes(None)
        out.add("return 0;")
    return "\n".join(_with_arrays_in_place(out.lines)) + "\n"


def _with_arrays_in_place(lines: Sequence[str]) -> Sequence[str]:
    """The lines of a function, which calls something if it has arrays: see `md_call_nothing`."""
    if not any(map(ARRAY.match, lines)) or any("#pragma omp parallel" in line for line in lines):
        return lines
    inside = next(n for n, line in enumerate(lines, 1) if line.endswith("{"))
    return (*lines[:inside], "  md_call_nothing();  // so that g++ keeps arrays in place", *lines[inside:])


def _calls_functions(kernel: Kernel) -> bool:
    """Whether functions are called out of line: many share loops, and some wait for others.

    Functions that do not wait are computed side by side if they are inlined, while calls come one after the other and
    save all registers.
    """
    assert kernel.schedule is not None
    ops, count, longest = kernel.body.ops, 0, 0
    for loop in loops(kernel.schedule.steps):
        inside = loop.own_positions
        here = sum(ops[p].dtype == F32 and op_cost(ops[p].name) >= FUNCTION for p in inside)
        count += here if here > 1 else 0
        longest = max(longest, function_chain(ops, inside))
    return count > MOST_INLINED and longest > 1


def parts_text(
    kernel: Kernel,
    symbol: str,
    dtypes: Mapping[str, DType],
    origins: tuple[Origin, ...] | None = None,
    *,
    is_commented: bool,
    mark_of: MarkOf | None,
) -> str:
    """A function for each different part of a bundled kernel, and one that calls them for each part's tensors."""
    names: dict[str, str] = {}  # text -> function
    calls: list[str] = []
    written: dict[str, str] = {}  # by the same text
    for part, places in bundled_parts(kernel):
        needs = signature(part)
        plain = rename_storages(part, {ref: Ref(f"p{n}", ref.version) for n, ref in _refs(part)})
        of = {f"p{n}": dtypes[name] for n, name in enumerate(needs.storages)}
        marks = partial(_part_marks, mark_of, places) if mark_of else None
        marked = kernel_text(plain, f"{symbol}_part", of, (), "static", mark_of=marks)
        text = without_marks(marked)
        if text not in names:
            names[text] = f"{symbol}_part{len(names)}"
        named = marked.replace(f" {symbol}_part(", f" {names[text]}(")
        written[text] = united(written[text], named) if text in written else named
        given = ", ".join((*needs.storages, *(s.name for s in needs.sizes), "threads"))
        calls.append(f"{names[text]}({given});{''.join(map(marks, places)) if marks else ''}")
    whole = signature(kernel)
    parameters = [f"{'' if s in whole.written else 'const '}{CPP_STORAGE[dtypes[s].name]}* {s}" for s in whole.storages]
    parameters += _numbers(whole.sizes)
    out = Lines()
    out.add(*(comment(kernel.origins if origins is None else origins) if is_commented else ()))
    with out.block(f'extern "C" int64_t {symbol}({", ".join(parameters)})'):
        out.add(*calls, "return 0;")
    return "".join(written.values()) + "\n".join(out.lines) + "\n"


def _part_marks(mark_of: MarkOf, places: Mapping[int, Sequence[int]], position: int) -> str:
    """The marks of a line that computes an op of a part; `places`: by op of the part, those of the bundle."""
    return "".join(mark_of(place) for place in places[position])


def _numbers(sizes: Iterable[Symbol]) -> list[str]:
    """The parameters that follow the pointers."""
    return [*(f"{'double' if size.kind == 'real' else 'int64_t'} {size.name}" for size in sizes), "int64_t threads"]


def _refs(part: Kernel) -> Iterator[tuple[int, Ref]]:
    """Each storage version that a kernel accesses, with the number of its storage among the parameters."""
    number = {name: n for n, name in enumerate(signature(part).storages)}
    for ref in dict.fromkeys((*reads(part), *writes(part))):
        yield number[ref.storage], ref


def nonempty_tests(kernel: Kernel) -> dict[int, dict[str, str]]:
    """For each operation, by id: C++ tests, by axis, that an axis is not empty; axes that never are need none.

    Some point computes the operation if all its tests hold.
    """
    extents = {axis.name: axis.extent for axis in kernel.axes}
    tests = {name: f"{index_text(n)} > 0" for name, n in extents.items() if not at_least(n, 1)}
    wanted: dict[int, set[str]] = {}
    for position, op in reversed(list(enumerate(kernel.body.ops))):
        over = {*op.loop_axes} | wanted.get(position, set())
        wanted[position] = over
        for a in op.args:
            wanted[a] = wanted[a] & over if a in wanted else over
    return {id(op): {a: t for a, t in tests.items() if a in wanted[p]} for p, op in enumerate(kernel.body.ops)}


def unreadable(kernel: Kernel, errors: Mapping[int, int], nonempty: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """Lines that return early if an indexed dimension has no elements: then no element could be read instead.

    The index has not been read at this point, so the error does not show it.
    """
    for op in kernel.body.ops:
        if isinstance(op.attrs, Check) and op.attrs.error is not None and not at_least(op.attrs.size, 1):
            tests = [f"{index_text(op.attrs.size)} < 1", *nonempty[id(op)].values()]
            yield f"if ({' && '.join(tests)}) return md_failed({errors[id(op)]}, 0, {index_text(op.attrs.size)});"


def comment(origins: tuple[Origin, ...]) -> list[str]:
    """The ATen nodes of a kernel as comment lines, by operator."""
    by_op: dict[str, list[str]] = {}
    for origin in origins:
        nodes = by_op.setdefault(origin.op, [])
        if origin.node not in nodes:
            nodes.append(origin.node)
    return [f"// {op}: {', '.join(nodes)}" for op, nodes in by_op.items()]
