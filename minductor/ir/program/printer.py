"""Prints programs; `parser.py` reads the text back.

Takes a Program, Kernel or Body. Gives its text, in the grammar of `nodes.py`. Refuses nothing. Equal programs have
equal texts in every process, since the text contains no time, address, path or counter. The digest of a kernel is a
hash of it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol, as_int
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import is_standard_combine
from minductor.ir.program.loops import Schedule, print_positions
from minductor.ir.program.memory_access import BlockAccess
from minductor.ir.program.variant_note import VariantNote


def print_program(program: ir.Program) -> str:
    """The text of a program, with one line for each op."""
    return "\n".join(_program(program)) + "\n"


def print_kernel(kernel: ir.Kernel) -> str:
    """The text of one kernel."""
    return "\n".join(_kernel(kernel)) + "\n"


def print_body(body: ir.Body) -> str:
    """The text of a body."""
    return "\n".join(_body(body, "")) + "\n"


class PrintedLine(NamedTuple):
    """A line of a program's text, the ATen nodes that it comes from, and the kernel or call that it is part of."""

    text: str
    nodes: tuple[str, ...] = ()
    within: str = ""


def program_lines(program: ir.Program, region: str = "", where: str = "") -> Iterator[PrintedLine]:
    """The lines of `print_program`, each with its ATen nodes.

    The nodes of a region have the region's name and a dot before their names, its kernels the names of all regions
    around them.
    """
    before = f"{region}." if region else ""
    inner = iter(program.regions)
    for line in _head(program):
        if line == "  region {":
            yield PrintedLine(line)
            part = next(inner)
            for each in program_lines(part, part.name, f"{where}{part.name}."):
                yield each._replace(text=f"    {each.text}")
            continue
        word = line.split(":")[0].split()
        is_given = len(word) == 2 and word[0] in ("input", "constant")
        yield PrintedLine(line, (f"{before}{word[1]}",) if is_given else ())
    for node in program.nodes:
        yield from (
            PrintedLine(f"  {text}", tuple([f"{before}{name}" for name in nodes]), f"{where}{within}" if within else "")
            for text, nodes, within in node_lines(node)
        )
    yield PrintedLine(_tail(program), tuple([f"{before}{name}" for name in _returned(program)]))


def node_lines(node: ir.Node) -> Iterator[PrintedLine]:
    """The lines of a node of a program, each with its ATen nodes; a line of a body has those of its op only."""
    if isinstance(node, ir.SymbolDef | ir.Require):
        of, name, body = _names(node.origins), "", node.body
    else:
        of, name, body = _names(node.origins), node.name, node.body if isinstance(node, ir.Kernel) else None
    if body is None:
        yield from (PrintedLine(line, of, name) for line in _node(node))
        return
    ops = [_nodes_of(op, of) for op in body.ops]
    head = _kernel_head(node) if isinstance(node, ir.Kernel) else itertools.islice(_node(node), 1)
    is_own = True  # positions in the lines of a variant are those of other bodies
    for line in head:
        is_own = (is_own or line == "  }") and not line.startswith("  variant ")
        places = [int(number) for number in re.findall(r"%(\d+)", line)] if is_own and line.startswith("  ") else []
        named = tuple(dict.fromkeys(each for place in places if place < len(ops) for each in ops[place]))
        yield PrintedLine(line, named or of, name)
    for position, op in enumerate(body.ops):
        yield from (PrintedLine(line, ops[position], name) for line in _op_lines(position, op, "  "))
    if body.results:
        yield PrintedLine(f"  yield {print_positions(body.results)}", of, name)


def _names(origins: tuple[ir.Origin, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(origin.node for origin in origins))


def _nodes_of(op: ir.Op, of: tuple[str, ...]) -> tuple[str, ...]:
    """The ATen node of an op; those of its kernel if the op does not say it."""
    return (op.node,) if op.node else of


def storage_nodes(program: ir.Program) -> dict[str, tuple[str, ...]]:
    """By storage the ATen nodes that compute what the program writes there."""
    made: dict[str, dict[str, None]] = {}
    for node in program.nodes:
        if isinstance(node, ir.Kernel):
            for op in node.body.ops:
                if isinstance(op.attrs, ir.Store | ir.Atomic):
                    made.setdefault(op.attrs.ref.storage, {}).update(dict.fromkeys(_nodes_of(op, _names(node.origins))))
        elif isinstance(node, ir.Extern):
            for ref in ir.writes(node):
                made.setdefault(ref.storage, {}).update(dict.fromkeys(_names(node.origins)))
    return {storage: tuple(names) for storage, names in made.items()}


def _returned(program: ir.Program) -> tuple[str, ...]:
    """The ATen nodes that compute what a program returns."""
    made = storage_nodes(program)
    views = (view.ref.storage for view in ir.views_of(program.outputs))
    return tuple(dict.fromkeys(name for storage in views for name in made.get(storage, ())))


def _program(program: ir.Program) -> Iterator[str]:
    inner = iter(program.regions)
    for line in _head(program):
        yield line
        if line == "  region {":
            yield from (f"    {each}" for each in _program(next(inner)))
    for node in program.nodes:
        yield from (f"  {line}" for line in _node(node))
    yield _tail(program)


def _head(program: ir.Program) -> Iterator[str]:
    """The lines before the nodes, but for those of regions."""
    yield f"program {program.name}"
    hints = dict(program.hints)
    for symbol in program.symbols:
        yield f"  symbol {_declared(symbol)}{f' hint {hints[symbol]}' if symbol in hints else ''}"
    for symbol in (made for node in program.nodes for made in ir.defined_symbols(node)):
        yield f"  made {_declared(symbol)}"
    table = program.buffer_table()
    for given in program.inputs:
        yield f"  input {_input(given, table)}"
    for buffer in program.buffers:
        if buffer.kind == "constant":
            yield f"  constant {_buffer(buffer)}"
        elif buffer.kind == "local":
            yield f"  buffer {_buffer(buffer)}"
    for guard in program.guards:
        yield f"  guard {guard.rel} because {quote(guard.reason)}"
    for note in program.notes:
        match note:
            case ir.FusionRefusal(stage, first, second, reason, figures):
                yield f"  note {stage} {first} | {second} {quote(reason)}{_at(figures)}"
            case ir.MergedKernel(stage, name, into):
                yield f"  note {stage} {name} into {into}"
            case ir.NodeNote(stage, subject, text, figures):
                yield f"  note {stage} {subject} {quote(text)}{_at(figures)}"
            case VariantNote(stage, kernel, taken, by, options, figures):
                yield f"  note {stage} {kernel} takes {taken} {by} ({', '.join(options)}){_at(figures)}"
    for _ in program.regions:
        yield "  region {"
        yield "  }"


def _tail(program: ir.Program) -> str:
    strides = f" fixed_strides {_arguments(program.fixed_stride_outputs)}" if program.fixed_stride_outputs else ""
    distinct = "".join(f" distinct {_arguments(group)}" for group in program.distinct_outputs)
    return f"  return {_arguments(program.outputs)}{distinct}{strides}"


def _at(figures: str) -> str:
    """The figures of a note, as the end of its line."""
    return f" at {quote(figures)}" if figures else ""


def _declared(symbol: Symbol) -> str:
    low = "-inf" if symbol.lo is None else str(symbol.lo)
    kind = "" if symbol.kind == "size" else f" {symbol.kind}"
    return f"{symbol.name} [{low}, {'inf' if symbol.hi is None else symbol.hi}]{kind}"


def _input(given: ir.Input, table: dict[str, ir.Buffer]) -> str:
    if given.symbol is not None:
        return f"{given.name} = {given.symbol}"
    flags = f"{' static' if given.is_static else ''}{' donated' if given.is_donated else ''}"
    return _buffer(table[given.name]) + flags


def _buffer(buffer: ir.Buffer) -> str:
    layout = f"{print_sizes(buffer.size)} stride {print_sizes(buffer.stride)}"
    return f"{buffer.name}: {buffer.dtype.name}{layout} {buffer.device}"


def print_sizes(sizes: Iterable[Expr]) -> str:
    """The text of sizes or strides: [s0, 64]."""
    return f"[{', '.join(map(str, sizes))}]"


def _node(node: ir.Node) -> Iterator[str]:
    match node:
        case ir.Kernel():
            yield from _kernel(node)
        case ir.Extern():
            yield _extern(node)
        case ir.SymbolDef(symbol, body, origins):
            yield f"define {symbol.name}{_origins(origins)}"
            yield from _body(body, "  ")
        case ir.Require(body, message, origins):
            yield f"require {quote(message)}{_origins(origins)}"
            yield from _body(body, "  ")
        case _:
            assert_never(node)


def _origins(origins: tuple[ir.Origin, ...]) -> str:
    return " from " + ", ".join(f"{o.node} = {o.op}" for o in origins) if origins else ""


def _after(refs: tuple[ir.Ref, ...]) -> str:
    return f" after {', '.join(map(str, refs))}" if refs else ""


def _kernel(kernel: ir.Kernel) -> Iterator[str]:
    yield from _kernel_head(kernel)
    yield from _body(kernel.body, "  ")


def _kernel_head(kernel: ir.Kernel) -> Iterator[str]:
    """The lines before the body."""
    axes = ", ".join(f"{axis.name}: {axis.extent}" for axis in kernel.axes)
    yield f"kernel {kernel.name} ({axes}){_after(kernel.after)}{_origins(kernel.origins)}"
    if kernel.schedule is not None:
        yield from _schedule(kernel.schedule)
    for access in kernel.access:
        stride = "" if access.stride is None else f" stride <{access.stride}>"
        path = print_positions(access.path)
        form = "" if access.form == "offsets" else f" as {access.form}"
        hints = f" evict {' '.join(access.evictions)}" if access.evictions else ""
        yield f"  access {path} {access.kind}{stride}{_block(access.block)}{form}{hints}"
    yield from (f"  {choice}" for choice in kernel.choices)
    for variant in kernel.variants:
        yield f"  variant {variant.name} {{"
        yield from (f"    buffer {_buffer(buffer)}" for buffer in variant.buffers)
        yield from (f"    {line}" for node in variant.nodes for line in _node(node))
        yield "  }"


def _block(block: BlockAccess | None) -> str:
    if block is None:
        return ""
    text = f" at <{block.offset}>"
    for dim in block.dims:
        start = "" if as_int(dim.start) == 0 else f" from <{dim.start}>"
        step = "" if as_int(dim.slice) == 1 else f" every <{dim.slice}>"
        text += f" dim {dim.axis} <{dim.size}> stride <{dim.stride}>{step}{start}"
    return text


def _schedule(schedule: Schedule) -> Iterator[str]:
    yield "  schedule {"
    yield from (f"    {line}" for line in str(schedule).splitlines())
    yield "  }"


def _extern(node: ir.Extern) -> str:
    given = [print_argument(a) for a in node.args]
    given += [f"{name}={print_argument(value)}" for name, value in node.kwargs]
    results = ", ".join(_result(r) for r in node.results)
    writes = f" writes {', '.join(map(str, node.writes))}" if node.writes else ""
    writes += f" holds {', '.join(map(str, node.holds))}" if node.holds else ""
    effect = " effect" if node.effect else ""
    defines = f" defines {', '.join(s.name for s in node.defines)}" if node.defines else ""
    head = f"extern {node.name} {node.form} {node.op}({', '.join(given)}) -> ({results})"
    defines += "" if node.is_capturable else " uncapturable"
    return f"{head}{writes}{effect}{defines}{_after(node.after)}{_origins(node.origins)} because {quote(node.reason)}"


def _result(result: ir.View | Symbol | None) -> str:
    return f"symbol {result.name}" if isinstance(result, Symbol) else print_argument(result)


def _arguments(values: Iterable[ir.Argument]) -> str:
    return f"({', '.join(print_argument(v) for v in values)})"


def print_argument(value: ir.Argument) -> str:
    """The text of an argument of a call, or of an output."""
    match value:
        case ir.View(ref, dtype, size, stride, offset):
            return f"{ref} {dtype.name}{print_sizes(size)} stride {print_sizes(stride)} offset {offset}"
        case ir.Region(name, sizes):
            return f"region {name} {print_sizes(sizes)}"
        case Expr():
            return f"<{value}>"
        case DType():
            return f"dtype {value.name}"
        case ir.Token(kind, name):
            return f"{kind} {quote(name)}"
        case None:
            return "none"
        case str():
            return quote(value)
        case bool() | int() | float() | complex():
            return print_literal(value)
        case tuple():
            return _arguments(value)
        case _:
            assert_never(value)


def print_literal(value: bool | int | float | complex) -> str:
    """The text of a number, which the parser reads back: true, 3, 0.5, nan, inf, complex(1.0, 2.0)."""
    match value:
        case bool():
            return "true" if value else "false"
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case _:
            return repr(value)


def quote(text: str) -> str:
    """Any text as a JSON string in one line."""
    return json.dumps(text)


def _body(body: ir.Body, indent: str) -> Iterator[str]:
    for position, op in enumerate(body.ops):
        yield from _op_lines(position, op, indent)
    if body.results:
        yield f"{indent}yield {print_positions(body.results)}"


def _op_lines(position: int, op: ir.Op, indent: str) -> Iterator[str]:
    """The line of an op, and those of the body that belongs to it."""
    kind = f" : {op.dtype.name}" if op.dtype is not None else ""
    axes = f" {{{' '.join(op.axes)}}}"
    text = _op(op)
    region = _region(op)
    if region is None:
        yield f"{indent}%{position} = {text}{kind}{axes}"
    else:
        yield f"{indent}%{position} = {text}{kind}{axes} {{"
        yield from _body(region, indent + "  ")
        yield f"{indent}}}"


def _region(op: ir.Op) -> ir.Body | None:
    match op.attrs:
        case ir.Masked(inner, _):
            return inner
        case ir.Reduce(_, how) | ir.Scan(_, how, _):
            return None if is_standard_combine(how, op.dtype) else how.body
        case _:
            return None


def _op(op: ir.Op) -> str:
    args = print_positions(op.args)
    match op.attrs:
        case None:
            return f"{op.name} {args}"
        case ir.Constant(value):
            return f"constant {print_literal(value)}"
        case ir.Round(dtype):
            return f"round_to {dtype.name} {args}"
        case ir.Index(expr):
            return f"index <{expr}>{_given(args)}"
        case ir.Load(ref, index):
            return f"load {ref}[{index}]{_given(args)}"
        case ir.Store(ref, index):
            return f"store {ref}[{index}]{_given(args)}"
        case ir.Atomic(ref, index, kind):
            return f"atomic {kind} {ref}[{index}]{_given(args)}"
        case ir.Check(symbol, size, wrap, error, whose, dim):
            outcome = "proved" if error is None else f"raises {error}"
            outcome += f" in {quote(whose)} dim {dim}" if whose else ""
            return f"check {args} as {symbol.name} < {size}{' wrap' if wrap else ''} {outcome}"
        case ir.Parameter(number):
            return f"parameter {number}"
        case ir.Masked(_, other):
            return f"masked {args} else {print_literal(other)}"
        case ir.Reduce(axes, how):
            return f"reduce {_combine(how, op.dtype)} over {' '.join(axes)} of {args}"
        case ir.Scan(axis, how, reverse):
            return f"scan {'reverse ' if reverse else ''}{_combine(how, op.dtype)} over {axis} of {args}"
        case ir.Project(number):
            return f"project {number} {args}"
        case ir.Assert(message):
            return f"assert {args} {quote(message)}"
        case _:
            assert_never(op.attrs)


def _given(args: str) -> str:
    return f" {args}" if args else ""


def _combine(how: ir.Combine, dtype: DType | None) -> str:
    if is_standard_combine(how, dtype):
        return how.name
    return f"{how.name}({', '.join(map(print_literal, how.identity))})"
