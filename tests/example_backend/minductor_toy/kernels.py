"""The kernels of a graph in C99: the loops that minductor chose, one statement for each operation.

Takes a Plan; gives one unit. A kernel is a list of operations, in which an argument is the position of an earlier one,
and a schedule: a tree of loops with positions at its leaves (`minductor/ir/program/nodes.py` and `loops.py` tell the
grammar). The toy has one thread and no vectors, so every kind of loop is a `for`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from minductor.backends import Env
from minductor.core.dtypes import DType, by_name
from minductor.core.expressions.expr import Const, Expr, FloorDiv, Identity, Max, Min, Mod, Product, Sum, Symbol, as_int
from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import KernelLine, Plan
from minductor.ir.program.build import parameter_count
from minductor.ir.program.bundled import bundled_kernels
from minductor.ir.program.loops import Loop, Step, positions
from minductor.ir.program.nodes import (
    Body,
    Constant,
    Index,
    Kernel,
    Load,
    Masked,
    Op,
    Parameter,
    Project,
    Reduce,
    Round,
    Store,
)
from minductor.ir.program.signature import signature
from minductor_toy.spelling import ELEMENTS, PRELUDE, TYPES, narrowed, spelled, widened

# A sum of floats is kept in double: one long chain of additions would be less exact than eager's.
TOTALS: Mapping[str, str] = {**TYPES, "f32": "double"}


def kernels(plan: Plan, env: Env) -> tuple[Unit, ...]:
    """Every kernel of the plan once, in one unit."""
    bodies = dict(plan.kernels)
    defined = [line for line in plan.lines if isinstance(line, KernelLine)]
    text = "".join(f"\n{line}" for each in defined for line in _function(bodies[each.id], each))
    return (Unit("toy", PRELUDE + text + "\n", tuple(each.symbol for each in defined), "c"),) if defined else ()


def _function(kernel: Kernel, defined: KernelLine) -> Iterator[str]:
    """A pointer for each storage, then the sizes, then the number of threads that torch would use."""
    given = signature(kernel)
    dtypes = {name: by_name(dtype) for name, dtype in defined.signature}
    parameters = [f"{'' if s in given.written else 'const '}{ELEMENTS[dtypes[s].name]}* {s}" for s in given.storages]
    parameters += [f"{'double' if size.kind == 'real' else 'int64_t'} {size.name}" for size in given.sizes]
    yield f"\n// {', '.join(origin.node for origin in defined.origins)}"
    yield f"int64_t {defined.symbol}({', '.join((*parameters, 'int64_t threads'))}) {{"
    for part in bundled_kernels(kernel):
        yield "  {"
        yield from (f"    {line}" for line in _Nest(part, dtypes).lines)
        yield "  }"
    yield "  return 0;"
    yield "}"


@dataclass(frozen=True, slots=True)
class Array:
    """A variable, or an array of a value for each point of some axes: (axis, where it counts from, how many)."""

    name: str
    dims: tuple[tuple[str, str, int], ...] = ()

    def element(self) -> str:
        """The one of the point that the loops around have reached."""
        return self.name + "".join(
            f"[{axis} - {start}]" if start != "0" else f"[{axis}]" for axis, start, _ in self.dims
        )

    def declaration(self) -> str:
        return self.name + "".join(f"[{count}]" for *_, count in self.dims)

    def filled(self, text: str) -> str:
        """The statement that sets every element."""
        loops = "".join(f"for (int64_t {a} = {start}; {a} < {start} + {n}; ++{a}) " for a, start, n in self.dims)
        return f"{loops}{self.element()} = {text};"


@dataclass(frozen=True, slots=True)
class InResult:
    """A row that lies where a store will write: it may have any length. `text`: its element."""

    text: str

    def element(self) -> str:
        return self.text


class _Nest:
    """The statements of one kernel."""

    def __init__(self, kernel: Kernel, dtypes: Mapping[str, DType]) -> None:
        assert kernel.schedule is not None
        self.ops, self.dtypes, self.rows = kernel.body.ops, dtypes, kernel.schedule.kept_rows
        self.results = dict(kernel.schedule.rows_in_results)
        self.extents = {axis.name: axis.extent for axis in kernel.axes}
        self.lines: list[str] = []
        self.indent, self.count = "", 0
        # What can be named here: values, the totals of reductions, and rows that outlive the loop that computes them.
        self.names: dict[int, str] = {}
        self.totals: dict[int, tuple[Array, ...]] = {}
        self.kept: dict[int, Array | InResult] = {}
        # Axes of which a point is known here, or a block: where it begins and ends, and its size.
        self.open: frozenset[str] = frozenset()
        self.blocks: dict[str, tuple[str, str, int]] = {}
        self.steps(kernel.schedule.steps)

    def add(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def label(self) -> str:
        self.count += 1
        return f"x{self.count - 1}"

    # --- loops

    def steps(self, steps: Sequence[Step]) -> None:
        for position in self.rows:
            if position not in self.kept and _outlives(position, steps, self.ops):
                self.kept[position] = self.row(position)
        for step in steps:
            if isinstance(step, Loop):
                self.loop(step)
            else:
                self.compute(step)

    def row(self, position: int) -> Array | InResult:
        op, store = self.ops[position], self.ops[self.results.get(position, position)].attrs
        if isinstance(store, Store):
            return InResult(f"{store.ref.storage}[{index(store.index)}]")
        return self.declared(TYPES[self.dtype(position).name], op.axes)

    def loop(self, loop: Loop) -> None:
        started = [position for position in loop.carries if position not in self.totals]
        for position in started:
            self.start(position)
        saved = dict(self.names), dict(self.totals), dict(self.kept), self.open, dict(self.blocks), self.indent
        axis = loop.axis
        first, last, _ = self.blocks.get(axis, ("0", index(self.extents[axis]), 0))
        if loop.parts:  # parts of an axis are for threads, of which the toy has one
            self.add("{")
            self.blocks[axis] = first, last, 0
        elif loop.block:
            start, end = f"{axis}_{len(self.lines)}", f"{axis}_{len(self.lines)}_end"
            self.add(f"for (int64_t {start} = {first}; {start} < {last}; {start} += {loop.block}) {{")
            self.add(f"  const int64_t {end} = toy_min({start} + {loop.block}, {last});")
            self.blocks[axis] = start, end, loop.block
        else:
            self.add(f"for (int64_t {axis} = {first}; {axis} < {last}; ++{axis}) {{")
            self.open |= {axis}
        self.indent += "  "
        self.steps(loop.body)
        self.names, self.totals, self.kept, self.open, self.blocks, self.indent = saved
        self.add("}")
        for position in started:
            self.keep(position)

    def declared(self, type: str, axes: Iterable[str]) -> Array:
        """A new array over those axes of which no point is known yet."""
        dims: list[tuple[str, str, int]] = []
        for axis in axes:
            if axis not in self.open:
                start, _, size = self.blocks.get(axis, ("0", "", 0))
                count = size or as_int(self.extents[axis])
                assert count is not None, "a row has a bounded size"
                dims.append((axis, start, max(1, count)))
        array = Array(self.label(), tuple(dims))
        self.add(f"{type} {array.declaration()};")
        return array

    def start(self, position: int) -> None:
        """The totals of a reduction, before the loop that sums them up."""
        op = self.ops[position]
        assert isinstance(op.attrs, Reduce)
        axes = [axis for axis in op.axes if axis not in op.attrs.axes]
        dtypes = [self.dtype(a) for a in op.args]
        self.totals[position] = tuple(self.declared(TOTALS[dtype.name], axes) for dtype in dtypes)
        for array, dtype, first in zip(self.totals[position], dtypes, op.attrs.combine.identity, strict=True):
            self.add(array.filled(literal(first, dtype)))

    def keep(self, position: int) -> None:
        """Puts a value into its row, if it has one and is a single one here."""
        is_single = position not in self.totals or not self.totals[position][0].dims
        if position in self.kept and is_single:
            self.add(f"{self.kept[position].element()} = {self.value(position)};")

    # --- values

    def dtype(self, position: int) -> DType:
        found = self.ops[position].dtype
        assert found is not None
        return found

    def value(self, position: int) -> str:
        """The text that names a value here."""
        if position in self.names:
            return self.names[position]
        array = self.totals[position][0] if position in self.totals else self.kept[position]
        return f"({TYPES[self.dtype(position).name]}){array.element()}"

    def compute(self, position: int) -> None:
        op = self.ops[position]
        args = [self.value(a) for a in op.args] if not isinstance(op.attrs, Project) else []
        match op.attrs:
            case Reduce(_, how):
                totals = [array.element() for array in self.totals[position]]
                self.add("{")
                for total, text in zip(totals, self.region(how.body, [*totals, *args], TOTALS), strict=True):
                    self.add(f"  {total} = {text};")
                self.add("}")
                return
            case Store(ref, at):
                self.add(f"{ref.storage}[{index(at)}] = {narrowed(self.dtypes[ref.storage], args[0])};")
                return
            case Project(number):
                array = self.totals[op.args[0]][number]
                self.names[position] = f"({TYPES[self.dtype(position).name]}){array.element()}"
            case _:
                kinds = [self.dtype(a) for a in op.args]
                self.names[position] = self.emit(op, args, kinds, TYPES)
        self.keep(position)

    def emit(self, op: Op, args: Sequence[str], dtypes: Sequence[DType], types: Mapping[str, str]) -> str:
        """One operation as a constant of its own; a literal has no need of one."""
        assert op.dtype is not None
        if isinstance(op.attrs, Constant):
            return literal(op.attrs.value, op.dtype)
        label, of = self.label(), types[op.dtype.name]
        match op.attrs:
            case Masked(body, other):
                self.add(f"{of} {label} = {literal(other, op.dtype)};")
                self.add(f"if ({args[0]}) {{")
                (result,) = self.region(body, args[1 : 1 + parameter_count(body)], types)
                self.add(f"  {label} = {result};")
                self.add("}")
                return label
            case Load(ref, at):
                text = widened(self.dtypes[ref.storage], f"{ref.storage}[{index(at)}]")
            case Index(expr):
                text = index(expr)
            case Round(dtype):
                text = widened(dtype, narrowed(dtype, args[0]))
            case _:
                text = spelled(op.name, dtypes[-1], op.dtype, *args)
        self.add(f"const {of} {label} = {text};")
        return label

    def region(self, body: Body, parameters: Sequence[str], types: Mapping[str, str]) -> list[str]:
        """The statements of a body inside an operation; gives the texts of its results."""
        self.indent += "  "
        names: list[str] = []
        for op in body.ops:
            if isinstance(op.attrs, Parameter):
                names.append(parameters[op.attrs.number])
            else:
                kinds = [d for a in op.args if (d := body.ops[a].dtype) is not None]
                names.append(self.emit(op, [names[a] for a in op.args], kinds, types))
        self.indent = self.indent[:-2]
        return [names[result] for result in body.results]


def _outlives(position: int, steps: Sequence[Step], ops: Sequence[Op]) -> bool:
    """Whether a later step reads what an earlier one computes."""
    inside = [set(positions((step,))) for step in steps]
    made = [n for n, found in enumerate(inside) if position in found]
    read = [n for n, found in enumerate(inside) if any(position in ops[p].args for p in found)]
    return bool(made and read) and max(read) > min(made)


def literal(value: complex, dtype: DType) -> str:
    """A constant in C.

    >>> from minductor.core.dtypes import F32, I64
    >>> literal(0.1, F32), literal(-math.inf, F32), literal(-(2**63), I64)
    ('(float)0.1', '(float)-INFINITY', '(int64_t)(-9223372036854775807 - 1)')
    """
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    elif isinstance(value, int) and value == -(2**63):
        text = "(-9223372036854775807 - 1)"
    elif isinstance(value, int) and value >= 2**63:
        text += "u"
    return f"({TYPES[dtype.name]}){text}"


def index(expr: Expr) -> str:
    """An index expression in C.

    >>> from minductor.core.expressions.expr import symbol
    >>> i = symbol("i0", "axis", 0, 63)
    >>> index(64 * i + i // 8 + 1)
    '64 * i0 + toy_div(i0, 8) + 1'
    """
    match expr:
        case Const(value):
            return str(value)
        case Symbol(name):
            return name
        case Identity(arg):
            return index(arg)
        case Sum(const, terms):
            texts = [_part(term) if scale == 1 else f"{scale} * {_part(term)}" for term, scale in terms]
            return " + ".join(texts + [str(const)] * (const != 0))
        case Product(factors):
            return " * ".join(map(_part, factors))
        case FloorDiv(num, den) | Mod(num, den):
            return f"toy_{'div' if isinstance(expr, FloorDiv) else 'mod'}({index(num)}, {index(den)})"
        case Min(args) | Max(args):
            name, text = "toy_min" if isinstance(expr, Min) else "toy_max", index(args[0])
            for arg in args[1:]:
                text = f"{name}({text}, {index(arg)})"
            return text
        case _:
            raise TypeError(f"{expr} is no index expression")


def _part(expr: Expr) -> str:
    return f"({index(expr)})" if isinstance(expr, Sum | Product) else index(expr)
