"""The operations of a loop's body as C++ statements.

Takes operations and the texts of their arguments. Gives one or a few lines for each, in SSA form. Refuses dtypes that
C++ kernels do not compute in (ValueError).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from minductor.analysis.strides import row_size
from minductor.codegen.cpp.cpp_math import called
from minductor.codegen.cpp.cpp_stored import How
from minductor.codegen.cpp.cpp_text import Lines, index_text, literal
from minductor.codegen.operator_spelling import CPP_STORAGE, CPP_TYPES, spell_cpp, spell_cpp_cast
from minductor.core.dtypes import BF16, BOOL, F32, I64, DType
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, integer, substitute
from minductor.core.expressions.rewrite import simplify_between
from minductor.ir.program.build import parameter_count
from minductor.ir.program.nodes import (
    Assert,
    Atomic,
    Body,
    Check,
    Constant,
    Index,
    LiteralValue,
    Load,
    Masked,
    Op,
    Parameter,
    Round,
    Store,
    all_ops,
)
from minductor.ir.program.ops import FUNCTION, op_cost

ATOMIC_OPS: Mapping[str, str] = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}


def cpp_type(dtype: DType) -> str:
    """The C++ type of a value of a dtype."""
    if dtype.name not in CPP_TYPES:
        raise ValueError(f"C++ kernels do not compute in {dtype.name}")
    return CPP_TYPES[dtype.name]


def array_type(dtype: DType) -> str:
    """The C++ type of an array's elements. Booleans are bytes, as in memory, so that loops over them vectorise."""
    return "uint8_t" if dtype == BOOL else cpp_type(dtype)


def maskable_bytes(body: Body, storages: Mapping[str, tuple[str, DType]]) -> int:
    """The bytes of the narrowest element of a body whose lanes may run under masks; 0 if they may not.

    It computes float32 only, besides truth values. Where its elements differ in size, g++ keeps the accumulators of
    masked lanes in memory, unless masks are registers. Integers would be divided by 0.
    """
    ops = list(all_ops(body))
    read = {storages[op.attrs.ref.storage][1] for op in ops if isinstance(op.attrs, Load)}
    if not read <= {F32, BF16} or not {op.dtype for op in ops} <= {None, F32, BOOL}:
        return 0
    return min((dtype.itemsize for dtype in read), default=F32.itemsize)


@dataclass(slots=True)
class Values:
    """Writes statements to `out`. `storages`: the parameter and the dtype of each storage that they may name."""

    out: Lines
    storages: Mapping[str, tuple[str, DType]]
    # id of a check or assert -> its status k; `badk` is 0 until it fails (cpp_checks.py)
    errors: Mapping[int, int] = field(default_factory=dict[int, int])
    # id of a check or assert -> C++ tests; the check matters only if all hold
    conditions: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    # Whether two ops of the kernel store to one storage. g++ 12 then vectorises both stores as one, and with them two
    # neighbouring loads under one mask, `x[2i]` and `x[2i + 1]`; it exchanges the two loads, which is a bug of g++.
    is_paired: bool = False
    extents: Mapping[Symbol, Expr] = field(default_factory=dict[Symbol, Expr])  # the extents of the axes
    piece: tuple[Symbol, Expr, Expr] | None = None  # the axis of the open loop, and the part of it that the loop covers
    piece_start: Expr = field(default_factory=lambda: integer(0))  # where the loop begins in it, at least at its start
    stored_as: Mapping[int, How] = field(
        default_factory=dict[int, How]
    )  # by id of an op, the conversion that is omitted
    calls: bool = False  # whether functions are called out of line (see cpp_math.py)
    nonpositive: frozenset[int] = frozenset()  # ids of the exponentials whose argument is at most 0, or NaN
    # id of a check whose index can be computed again after the loops -> the positions of the ops that do so
    repeatable: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])
    bits: dict[str, str] = field(default_factory=dict[str, str])  # by the label of a load, the name of its bits
    masked_axis: Symbol | None = None  # of an open md_masked_lanes: `on` is whether its lane is before the end
    count: int = 0
    masks: int = 0  # the number of masked regions around the open one
    masked_storages: set[str] = field(default_factory=set[str])  # storages that were read under a mask

    def label(self, stem: str = "x") -> str:
        """The next unused name. All stems share one counter."""
        self.count += 1
        return f"{stem}{self.count - 1}"

    def define(self, label: str, dtype: DType, text: str) -> str:
        self.out.add(f"const {cpp_type(dtype)} {label} = {text};")
        return label

    def emit(self, op: Op, args: Sequence[str], dtypes: Sequence[DType], label: Callable[[], str]) -> str:
        """Writes the statements of one operation. Returns the text that names its value, "" for an effect."""
        match op.attrs:
            case Constant(value):
                assert op.dtype is not None
                return literal(value, op.dtype)
            case Load(ref, index) if self.stored_as.get(id(op)) == "bits":
                return self.define_bits(self.load(ref.storage, index), label())
            case Masked(Body(ops=(Op(attrs=Load(ref, index)),))) if self.stored_as.get(id(op)) == "bits":
                return self.masked_bits(ref.storage, index, args[0], label())
            case Round() if self.stored_as.get(id(op)) == "same":
                return args[0]
            case Store(ref, index):
                test = "if (on) " if self.masked_axis else ""
                self.out.add(f"{test}{self.element(ref.storage, index)} = {self.stored(op, ref.storage, args[0])};")
                return ""
            case Atomic(ref, index, kind):
                self.atomic(ref.storage, index, kind, args[0])
                return ""
            case Check():
                return self.check(op, op.attrs, args[0], label())
            case Assert():
                bad = f"bad{self.errors[id(op)]}"
                self.out.add(f"{bad} = {args[0]} ? {bad} : 1;")
                return ""
            case Masked(body, other):
                assert op.dtype is not None
                return self.masked(body, other, op.dtype, args, label())
            case _:
                assert op.dtype is not None
                return self.define(label(), op.dtype, self.expression(op, args, dtypes))

    def expression(self, op: Op, args: Sequence[str], dtypes: Sequence[DType]) -> str:
        match op.attrs:
            case Load(ref, index):
                return self.widen(ref.storage, self.load(ref.storage, index))
            case Index(expr):
                return self.index(expr)
            case Round(dtype):
                return f"md_{dtype.name}_round_f32({args[0]})"
            case _:
                pass
        assert op.dtype is not None
        if id(op) in self.nonpositive:
            return f"md_exp_nonpositive_{op.dtype.name}({args[0]})"
        if op.name == "cast":
            return spell_cpp_cast(args[0], dtypes[0], op.dtype)
        if op.name == "bitcast":
            return f"__builtin_bit_cast({cpp_type(op.dtype)}, {args[0]})"
        if self.calls and op.name == "where" and op.dtype == F32:  # g++ would jump past calls, and the loop be scalar
            return f"md_where({', '.join(args)})"
        text = spell_cpp(op.name, dtypes[-1], *args)
        if self.calls and not self.masks and op_cost(op.name) >= FUNCTION:
            name, parenthesis, rest = text.partition("(")
            return called(name) + parenthesis + rest
        return text

    # --- memory

    def element(self, storage: str, index: Expr) -> str:
        return f"{self.storages[storage][0]}[{self.index(index)}]"

    def axis(self, name: str) -> Symbol:
        """The symbol of an axis."""
        (found,) = [axis for axis in self.extents if axis.name == name]
        return found

    def placed(self, index: Expr) -> Expr:
        """An index expression as it is in the piece of the loop that is being written."""
        return index if self.piece is None else simplify_between(index, *self.piece, self.extents)

    def index(self, expr: Expr) -> str:
        return index_text(self.placed(expr))

    def load(self, storage: str, index: Expr) -> str:
        """The text of an element that is read; in a lane past the end that is 0."""
        text = self.read(storage, index)
        if self.masked_axis is None or not self.varies(index):
            return text
        dtype = self.storages[storage][1]
        return f"(on ? {text} : ({CPP_STORAGE.get(dtype.name) or cpp_type(dtype)})0)"

    def varies(self, index: Expr) -> bool:
        """Whether an index may differ between the lanes of the open loop."""
        return any(s == self.masked_axis or s.kind == "value" for s in free_symbols(index))

    def read(self, storage: str, index: Expr) -> str:
        """The text of an element.

        `md_index` around an index hides from g++ that two elements are neighbours (see `is_paired`).
        """
        if not self.masks or not self.is_paired:
            return self.element(storage, index)
        if storage not in self.masked_storages:
            self.masked_storages.add(storage)
            return self.element(storage, index)
        return f"{self.storages[storage][0]}[md_index({self.index(index)})]"

    def fetch(self, op: Op, ops: Sequence[Op], count: Expr) -> str:
        """The text that asks for the row of memory that a load reads at `count` loaded places."""
        assert isinstance(op.attrs, Load)
        name, dtype = self.storages[op.attrs.ref.storage]
        begin = substitute(op.attrs.index, {s: 0 for s in free_symbols(op.attrs.index) if s.kind == "value"})
        size = row_size(op, ops)
        assert size is not None
        if as_int(size) is None or as_int(count) is None:
            bytes_of_row = index_text(size * dtype.itemsize)
            return f"md_fetch_short({name} + {self.index(begin)}, {bytes_of_row}, {index_text(count)});"
        return f"md_fetch({name} + {self.index(begin)}, {size} * {dtype.itemsize});"

    def define_bits(self, text: str, label: str) -> str:
        """Defines a float16 value whose bits are also stored unchanged, so that the store converts nothing."""
        self.out.add(f"const {CPP_STORAGE['f16']} {label}_bits = {text};")
        return self.widen_bits(label)

    def masked_bits(self, storage: str, index: Expr, condition: str, label: str) -> str:
        """Defines a value as `define_bits` does where the condition holds; elsewhere it is 0."""
        self.out.add(f"{CPP_STORAGE['f16']} {label}_bits = 0;")
        with self.out.block(f"if ({condition})"):
            self.masks += 1
            self.out.add(f"{label}_bits = {self.load(storage, index)};")
            self.masks -= 1
        return self.widen_bits(label)

    def widen_bits(self, label: str) -> str:
        """The value as a float, for its other uses; the compiler drops it if only stores use the value."""
        self.bits[label] = f"{label}_bits"
        return self.define(label, F32, f"md_f16_to_f32({label}_bits)")

    def stored(self, op: Op, storage: str, value: str) -> str:
        """The text that a store writes."""
        match self.stored_as.get(id(op)):
            case "held":
                return f"md_f32_held_bf16({value})"
            case "bits" if value in self.bits:  # else the value is kept in an array
                return self.bits[value]
            case _:
                return self.narrow(storage, value)

    def widen(self, storage: str, text: str) -> str:
        match self.storages[storage][1].name:
            case "bf16" | "f16" as name:
                return f"md_{name}_to_f32({text})"
            case "bool":
                return f"{text} != 0"
            case _:
                return text

    def narrow(self, storage: str, text: str) -> str:
        match self.storages[storage][1].name:
            case "bf16" | "f16" as name:
                return f"md_f32_to_{name}({text})"
            case _:
                return text

    def atomic(self, storage: str, index: Expr, kind: str, value: str) -> None:
        """Writes the update of an element.

        Iterations that may write the same element run on one thread, so that a sum has one order.
        """
        element = self.element(storage, index)
        if kind == "set":
            self.out.add(f"{element} = {self.narrow(storage, value)};")
            return
        dtype = self.storages[storage][1]
        compute = F32 if dtype.name in ("bf16", "f16") else dtype
        joined = spell_cpp(ATOMIC_OPS[kind], compute, self.widen(storage, element), value)
        self.out.add(f"{element} = {self.narrow(storage, joined)};")

    def check(self, op: Op, attrs: Check, value: str, label: str) -> str:
        """Writes the bounds check of an index, and gives the name of the index.

        An index out of bounds is recorded for the error and replaced by 0, so that no load leaves the tensor.
        """
        if attrs.error is None:
            return self.define(attrs.symbol.name, I64, f"md_index({self.wrapped(attrs, value)})")
        start = self.wrapped(attrs, value)
        self.define(label, I64, f"({start})" if attrs.wrap else start)
        wrong = self.define(f"{label}_wrong", BOOL, self.outside(attrs, label))
        bad = f"bad{self.errors[id(op)]}"
        kept = "1" if id(op) in self.repeatable else f"(uint64_t){value}"
        self.out.add(f"{bad} = {wrong}{self.needed_if(op)} ? {kept} : {bad};")
        self.out.add(f"const int64_t {attrs.symbol.name} = md_index({wrong} ? 0 : {label});")
        return attrs.symbol.name

    def wrapped(self, attrs: Check, value: str) -> str:
        """An index with negative values counted from the end."""
        return f"{value} < 0 ? {value} + {index_text(attrs.size)} : {value}" if attrs.wrap else value

    def outside(self, attrs: Check, label: str) -> str:
        """Whether an index is out of bounds after negative values were counted from the end."""
        return f"({label} < 0) | ({label} >= {index_text(attrs.size)})"

    def needed_if(self, op: Op) -> str:
        """The text that adds the tests of `conditions` to the condition of a check."""
        return "".join(f" & ({test})" for test in self.conditions.get(id(op), ()))

    # --- regions

    def masked(self, body: Body, other: LiteralValue, dtype: DType, args: Sequence[str], label: str) -> str:
        taken = parameter_count(body)
        self.out.add(f"{cpp_type(dtype)} {label} = {literal(other, dtype)};")
        with self.out.block(f"if ({args[0]})"):
            self.masks += 1
            (result,) = self.region(body, args[1 : 1 + taken])
            self.masks -= 1
            self.out.add(f"{label} = {result};")
        return label

    def unmasked(self, op: Op, body: Body, captured: Sequence[str]) -> str:
        """The value of a masked region where the condition holds."""
        match body.ops[0].attrs:
            case Load(ref, index) if self.stored_as.get(id(op)) == "bits":
                return self.define_bits(self.load(ref.storage, index), self.label())
            case _:
                return self.region(body, captured)[0]

    def region(self, body: Body, parameters: Sequence[str]) -> list[str]:
        """Writes the statements of a region. Returns the texts of its results."""
        names: list[str] = []
        for op in body.ops:
            if isinstance(op.attrs, Parameter):
                names.append(parameters[op.attrs.number])
                continue
            kinds = [d for a in op.args if (d := body.ops[a].dtype) is not None]
            names.append(self.emit(op, [names[a] for a in op.args], kinds, self.label))
        return [names[r] for r in body.results]

    def joined(self, body: Body, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """The results of a combine's body for two groups of carried values, as expressions."""
        parameters = [*left, *right]
        op = body.ops[-1]
        given = [parameters[p.attrs.number] for p in (body.ops[a] for a in op.args) if isinstance(p.attrs, Parameter)]
        if body.results == (len(body.ops) - 1,) and op.args and len(given) == len(op.args):
            kinds = [d for a in op.args if (d := body.ops[a].dtype) is not None]
            return [self.expression(op, given, kinds)]
        return self.region(body, parameters)
