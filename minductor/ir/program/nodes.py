"""The intermediate representation (IR): the classes of a program between the ATen graph and the generated code.

Takes nothing. Gives frozen dataclasses and functions that read them. Refuses nothing: `verify_program` checks rules.

A `Program` is a list of nodes. A node is a generated kernel (`Kernel`), a call of an existing operator (`Extern`), the
definition of a number (`SymbolDef`), or a condition on numbers (`Require`). A kernel has axes and a body. The body is a
flat list of operations: the kernel computes each of them at every point of the operation's own axes. There are no loops
in a body; stage `schedule` adds a `Schedule`, which is the loop nest.

Memory is a set of storages. A `Ref` names one version of a storage; each write (mutation) makes the next version. So a
load of `buf0@1` always means the same values, and the order of reads and writes follows from the versions alone.

The grammar, as `printer.py` writes it and `parser.py` reads it:

    program  ::= "program" NAME declaration* node* "return" argument*
    declaration ::= "symbol" SYMBOL range ["hint" N]          a size that the caller supplies, and its example value
                | "input" buffer ["static"] ["donated"]       a tensor parameter, in calling order
                | "input" SYMBOL                              a number as a parameter, in calling order
                | "made" SYMBOL range                         a size that a node below defines
                | "constant" buffer | "buffer" buffer         a tensor of the module; a storage that the call makes
                | "guard" relation                            a fact about sizes that the program relies on
                | "note" ...                                  a decision for the user; not part of equality
                | "region" "{" program "}"                    a subprogram, an argument of a call (torch.cond, ...)
    buffer   ::= NAME ":" DTYPE size "stride" size DEVICE
    node     ::= kernel | extern | "define" SYMBOL origin* body | "require" STRING origin* body
    kernel   ::= "kernel" NAME "(" (AXIS ":" extent)* ")" ["after" ref*] "from" origin* [schedule] choice* variant* body
    choice   ::= "choice" NAME ("bits" | "perf") option "of" "(" option* ")" ["by" "(" NAME* ")" ("at" size option)*]
    variant  ::= "variant" NAME "{" ("buffer" buffer)* node* "}"        other nodes that compute the same
    body     ::= ("%" N "=" op)*
    op       ::= "load" ref "[" index "]" | "store" ref "[" index "]" value | pointwise value*
               | "constant" literal | "index" index
               | "check" value "as" SYMBOL "<" size ["wrap"] ("raises" NAME ["in" STRING "dim" N] | "proved")
               | "masked" value captured* "else" literal "{" body "}"
               | "reduce" combine "over" AXIS* value* | "scan" combine "over" AXIS value* | "project" value N
               | "atomic" kind ref "[" index "]" value | "assert" value STRING | "parameter" N
    extern   ::= "extern" NAME OP "(" argument* ")" "->" view* ["writes" ref*] ["holds" ref*] ["defines" SYMBOL*]
                 ["uncapturable"] ["after" ref*] ["because" STRING]
    argument ::= view | literal | "region" NAME "<" index* ">" | "(" argument* ")" | KIND STRING
    view     ::= ref DTYPE size "stride" size "offset" index
    ref      ::= STORAGE "@" VERSION

Laws:

- An input or constant begins as version @0. The first write to a storage that the call makes gives its version @0.
- A version never changes after it was made. So a load is a value: two equal loads may be shared, and one repeated.
- An op runs once for each point of its own `axes`, which may be fewer than the kernel's: a mean once for each row.
- Numbers in `args` are positions of earlier ops in the same body.
- A region reads its own inputs and the module's constants, and nothing else. Sizes that it needs are its first inputs.
- Values are float32, float64, integers or bool. A load converts 16-bit floats to float32. A store rounds to the dtype
  of the storage. A cast that the user's program asks for is an op of its own.
- A kernel sees a complex storage as real numbers: element n has its real part at 2n and its imaginary part at 2n + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from minductor.core.dtypes import DType, complex_parts
from minductor.core.expressions.expr import Expr, Rel, Symbol, as_int, free_symbols, index_below, integer
from minductor.ir.program.choices import Choice
from minductor.ir.program.loops import Schedule
from minductor.ir.program.memory_access import Access
from minductor.ir.program.variant_note import VariantNote

if TYPE_CHECKING:  # a graph of the store needs no estimates
    from minductor.core.expressions.hints import Hints


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """One version of a storage. Each write (mutation) of a storage makes its next version."""

    storage: str
    version: int

    def __str__(self) -> str:
        return f"{self.storage}@{self.version}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A storage and its layout: sizes and strides, in elements of `dtype`.

    `kind`: "input" is a parameter, "constant" a tensor of the module, "local" a tensor that the call allocates.
    """

    name: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    kind: Literal["input", "constant", "local"] = "local"
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class View:
    """A strided view (alias) of one version of a storage; `offset` counts elements from the storage's first one."""

    ref: Ref
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class Token:
    """A torch constant that is no number and no string: `Token("device", "cpu")`, `Token("layout", "strided")`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Region:
    """A region of the program as an argument of a call. `sizes` are the values of the region's first inputs."""

    name: str
    sizes: tuple[Expr, ...] = ()


# The arguments of an extern call: a tree of these.
Argument: TypeAlias = (
    View | Region | Expr | DType | Token | bool | int | float | complex | str | tuple["Argument", ...] | None
)
LiteralValue: TypeAlias = bool | int | float | complex
# The exceptions that eager raises for an index out of range.
ErrorKind: TypeAlias = Literal["IndexError", "RuntimeError"]


@dataclass(frozen=True, slots=True)
class Origin:
    """The ATen node that something was lowered from: the node's name and its operator."""

    node: str
    op: str


# --- body ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal. 0.0 and -0.0 are different literals, and so are True and 1; NaN is equal to NaN."""

    value: LiteralValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Round:
    """Rounds a float32 value to the nearest value of `dtype` (bf16, f16, ...); the result is still a float32."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """An index expression as a value."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Load:
    """Reads element `index` of a version. The op's `args` are the bounds checks whose symbols the index mentions."""

    ref: Ref
    index: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Writes element `index` of the new version `ref`. The op's `args` are the value, then the bounds checks."""

    ref: Ref
    index: Expr


@dataclass(frozen=True, slots=True)
class Atomic:
    """A scatter: writes element `index` of version `ref`, which several points of the kernel may write.

    `kind` says how a value and the element's old content become the new content: "add", "mul", "min" or "max". With
    "set" the last value in the order of the kernel's axes stays. An "add" or "mul" has all axes of its kernel: a value
    that does not vary along an axis is added or multiplied once for each point of that axis.
    """

    ref: Ref
    index: Expr
    kind: str


@dataclass(frozen=True, slots=True)
class Check:
    """A bounds check: turns the argument into `symbol`, an index in [0, size).

    With `wrap`, a negative index counts from the end. An index out of range becomes 0 and sets the error flag; the call
    of the graph then raises `error`. If `error` is None, the compiler has proved that no index is out of range.
    """

    symbol: Symbol
    size: Expr
    wrap: bool
    error: ErrorKind | None = "IndexError"
    op: str = ""  # the operator that is given the index, and the dimension that is indexed, for the error message
    dim: int = 0
    node: str = field(default="", compare=False)  # the ATen node, to find the user's line; never printed

    @property
    def message(self) -> str:
        """The error message, as a template for `str.format`; it begins with eager's words.

        `value` is the index with a blank before it, or "". `size` is a number.
        """
        known = as_int(self.size)
        size = "{size}" if known is None else known
        of = f" in {self.op}" if self.op else ""
        if self.op.startswith(("aten.nll_loss_", "aten.nll_loss2d_")):
            return f"Target{{value}} is out of bounds. Dimension {self.dim} has size {size}{of}"
        if self.op in ("aten.take.default", "aten.put.default"):
            return f"out of range: tried to access index{{value}} on a tensor of {size} elements{of}"
        return f"index{{value}} is out of bounds for dimension {self.dim} with size {size}{of}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """The value that the enclosing op passes to its body as parameter `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class Masked:
    """The result of `body` where the condition holds, and `other` elsewhere; the body runs only where it holds.

    The op's `args` are the condition, the values of the body's parameters, then the checks whose symbols the body uses.
    """

    body: Body
    other: LiteralValue


@dataclass(frozen=True, slots=True)
class Combine:
    """The associative operation of a reduction or scan over k values: `body` takes two groups of k and yields k."""

    name: str
    identity: tuple[LiteralValue, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction: combines the k values in the op's `args` over `axes`. The result does not vary over these axes."""

    axes: tuple[str, ...]
    combine: Combine


@dataclass(frozen=True, slots=True)
class Scan:
    """An inclusive scan (cumsum, cummax, ...) along `axis`; with `reverse` from the last element to the first."""

    axis: str
    combine: Combine
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Project:
    """Value `number` of the k values that a reduction or scan carries; the reduction itself stands for value 0."""

    number: int


@dataclass(frozen=True, slots=True)
class Assert:
    """Sets the error flag where the argument is false; the call of the graph then raises RuntimeError(message)."""

    message: str
    node: str = field(default="", compare=False)  # the ATen node, to find the user's line; never printed


Attrs: TypeAlias = (
    Constant
    | Round
    | Index
    | Load
    | Store
    | Atomic
    | Check
    | Parameter
    | Masked
    | Reduce
    | Scan
    | Project
    | Assert
    | None
)
EFFECTS = (Store, Atomic, Assert)
# The kinds of symbols whose values are known once per call. Symbols of the other kinds exist within one kernel only.
CALL_SYMBOL_KINDS = ("size", "real", "truth")
# The most ops and buffers of a fused kernel. A bundle of n kernels may have n times as many.
MAX_OPS, MAX_BUFFERS = 256, 64


@dataclass(frozen=True, slots=True)
class Op:
    """One value or effect of a body. `axes` are the kernel axes over which the value varies, in the kernel's order.

    `args` are positions of earlier ops. `dtype` is None for an effect. `node` is the ATen node that the op serves, one
    of its kernel's `origins`; it is never printed, so that the ops of a program that was read from text name none.
    """

    name: str
    args: tuple[int, ...]
    attrs: Attrs
    dtype: DType | None
    axes: tuple[str, ...]
    node: str = field(default="", compare=False)

    @property
    def is_effect(self) -> bool:
        return isinstance(self.attrs, EFFECTS)

    @property
    def reduced_axes(self) -> tuple[str, ...]:
        """The axes that a reduction runs over; none for any other op."""
        return self.attrs.axes if isinstance(self.attrs, Reduce) else ()

    @property
    def loop_axes(self) -> tuple[str, ...]:
        """The axes of the loops around the op: those that it varies over or reduces."""
        return (*self.axes, *self.reduced_axes)


@dataclass(frozen=True, slots=True)
class Body:
    """Ops in an order in which each op stands after its `args`.

    `results` are the positions of the values that the body yields, if it belongs to an op. A kernel's body yields none.
    """

    ops: tuple[Op, ...]
    results: tuple[int, ...] = ()


# --- program ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """A kernel axis: 0 <= symbol < extent."""

    symbol: Symbol
    extent: Expr

    @property
    def name(self) -> str:
        return self.symbol.name


def axis_over(name: str, extent: Expr) -> Axis:
    """A new axis with a symbol of this name."""
    return Axis(index_below(name, "axis", extent), extent)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated function: a body over axes.

    `schedule` is the loop nest; `access` says how the kernel touches memory. The stages of these names add them.
    `after` are versions that must exist before the kernel runs although it does not read them: an order of execution.
    `choices` are decisions about the kernel that the tuner may change. `variants` are other ways to compute what this
    kernel writes; one of the `choices` then selects the kernel itself or one of its variants.
    """

    name: str
    axes: tuple[Axis, ...]
    body: Body
    origins: tuple[Origin, ...]
    schedule: Schedule | None = None
    access: tuple[Access, ...] = ()
    after: tuple[Ref, ...] = ()
    choices: tuple[Choice, ...] = ()
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """Nodes that may run instead of a kernel, since they write the same values. `buffers` are their own storages."""

    name: str  # the option of the kernel's choice that selects this variant
    buffers: tuple[Buffer, ...]
    nodes: tuple[Kernel | Extern, ...]


@dataclass(frozen=True, slots=True)
class Extern:
    """A call of an operator that minductor does not generate; `reason` says why, for the user.

    `form` says how the operator gives its results. "out": it writes into `results`, which are new storages or views of
    existing ones. "return": it returns new tensors, which `results` name. "inplace": it writes its arguments, and
    `writes` are the versions that this makes.

    `effect`: the call keeps its place among other calls with effects (random numbers, prints). `defines`: the symbols
    whose values depend on data (as in `nonzero`); each can be computed from one size of one result. `holds`: versions
    that must not be overwritten or freed before this call, such as the tensor that a collective still sends. `after` is
    as in `Kernel`. A call that is not `is_capturable` cannot be part of a device's captured graph (CUDA graph).
    """

    name: str
    op: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[View | Symbol | None, ...]
    origins: tuple[Origin, ...]
    reason: str
    form: Literal["out", "return", "inplace"] = "return"
    writes: tuple[Ref, ...] = ()
    effect: bool = False
    defines: tuple[Symbol, ...] = ()
    holds: tuple[Ref, ...] = ()
    after: tuple[Ref, ...] = ()
    is_capturable: bool = True


@dataclass(frozen=True, slots=True)
class SymbolDef:
    """Defines `symbol`, once a call, as what `body` computes of others: numbers that no index expresses, as floats."""

    symbol: Symbol
    body: Body
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Require:
    """A condition on symbols: the call raises RuntimeError(message) if `body` yields false.

    Later nodes that mention these symbols rely on the condition, so no stage moves them before it.
    """

    body: Body
    message: str
    origins: tuple[Origin, ...] = ()


Node: TypeAlias = Kernel | Extern | SymbolDef | Require


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter of the program: a tensor, with its buffer's name, or a number, with its symbol.

    `is_static`: the tensor has the same address at each call. `is_donated`: the call may overwrite or free the tensor.
    """

    name: str
    symbol: Expr | None = None
    is_static: bool = False
    is_donated: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """A relation between sizes that the program relies on; the store evaluates it before it reuses the program."""

    rel: Rel
    reason: str


@dataclass(frozen=True, slots=True)
class FusionRefusal:
    """The reason, shown to the user, why a stage did not make one kernel of two nodes; where time decided, figures."""

    stage: str
    first: str
    second: str
    reason: str
    figures: str = field(default="", compare=False)

    @property
    def why(self) -> str:
        """The reason with its figures."""
        return f"{self.reason} ({self.figures})" if self.figures else self.reason

    def __str__(self) -> str:
        return f"{self.first} and {self.second} stay apart: {self.why}"


@dataclass(frozen=True, slots=True)
class MergedKernel:
    """The record that kernel `name` became part of kernel `into`, and why; where time decided, figures.

    A kernel may become part of several kernels.
    """

    stage: str
    name: str
    into: str
    reason: str = field(default="", compare=False)
    figures: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.name} became part of {self.into}"


@dataclass(frozen=True, slots=True)
class NodeNote:
    """A decision about one node, shown to the user, as why it is an extern call; figures where time decided."""

    stage: str
    subject: str
    text: str
    figures: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}{f' ({self.figures})' if self.figures else ''}"


@dataclass(frozen=True, slots=True)
class Program:
    """One graph between capture and codegen. The nodes stand in an order that respects reads, writes and effects.

    `distinct_outputs`: groups of output numbers; the outputs of a group are one tensor object that no other output and
    no input is. Without a group, equal outputs are one object, and an output that is all of an input is that input. The
    groups matter to autograd, which keeps facts about a tensor object.

    `fixed_stride_outputs`: numbers of outputs whose reader (a later graph) relies on the traced strides. The other
    outputs go to the user only, and keep the strides that the operator returned.

    `hints`: the values that some of the `symbols` have in the example inputs, for estimates of cost and for no proof.
    """

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Input, ...]
    buffers: tuple[Buffer, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]
    guards: tuple[Guard, ...] = ()
    notes: tuple[FusionRefusal | MergedKernel | NodeNote | VariantNote, ...] = field(default=(), compare=False)
    regions: tuple[Program, ...] = ()
    distinct_outputs: tuple[tuple[int, ...], ...] = ()
    fixed_stride_outputs: tuple[int, ...] = ()
    hints: Hints = ()

    def buffer_table(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def real_table(self) -> dict[str, Buffer]:
        """The buffers by name, as kernels address them: complex buffers as real ones."""
        return {b.name: as_real(b) for b in self.buffers}


# --- functions that read programs ---------------------------------------------------------------------------------


def as_real(buffer: Buffer) -> Buffer:
    """The buffer as kernels address it: a complex buffer has real elements and a last dimension of 2 more."""
    if buffer.dtype.kind != "complex":
        return buffer
    stride = (*(2 * s for s in buffer.stride), integer(1))
    return replace(buffer, dtype=complex_parts(buffer.dtype), size=(*buffer.size, integer(2)), stride=stride)


def views_of(argument: Argument) -> Iterator[View]:
    """Each view in an argument tree, left to right."""
    match argument:
        case View():
            yield argument
        case tuple():
            for item in argument:
                yield from views_of(item)
        case _:
            return


def body_reads(body: Body) -> Iterator[Load]:
    """Each load of a body, including those in the bodies of masked ops, in the order of `all_ops`."""
    for op in body.ops:
        if isinstance(op.attrs, Load):
            yield op.attrs
        elif isinstance(op.attrs, Masked):
            yield from body_reads(op.attrs.body)


def all_ops(body: Body) -> Iterator[Op]:
    """Every op of a body in order; the ops in the body of a masked op come just before the masked op."""
    for op in body.ops:
        if isinstance(op.attrs, Masked):
            yield from all_ops(op.attrs.body)
        yield op


def op_at(body: Body, path: Sequence[int]) -> Op:
    """The op at position `path[0]`; each further number is a position in the body of the masked op before it."""
    op = body.ops[path[0]]
    if len(path) == 1:
        return op
    assert isinstance(op.attrs, Masked)
    return op_at(op.attrs.body, path[1:])


def body_writes(body: Body) -> Iterator[Store | Atomic]:
    """Each store and atomic of a body, in order."""
    return (op.attrs for op in body.ops if isinstance(op.attrs, (Store, Atomic)))


def reads(node: Node) -> tuple[Ref, ...]:
    """The versions that a node reads or holds, in order of first use; not those that it makes, as a finished kernel."""
    match node:
        case Kernel(body=body):
            own = writes(node) if node.schedule is not None and node.schedule.finishing else ()
            return tuple(dict.fromkeys(load.ref for load in body_reads(body) if load.ref not in own))
        case Extern():
            given = (*node.args, *(value for _, value in node.kwargs))
            return tuple(dict.fromkeys((*(view.ref for view in views_of(given)), *node.holds)))
        case SymbolDef(body=body) | Require(body=body):
            return tuple(dict.fromkeys(load.ref for load in body_reads(body)))


def writes(node: Node) -> tuple[Ref, ...]:
    """The versions that a node makes, without repeats."""
    match node:
        case Kernel(body=body):
            return tuple(dict.fromkeys(write.ref for write in body_writes(body)))
        case Extern():
            results = [view.ref for view in node.results if isinstance(view, View)]
            return tuple(dict.fromkeys((*results, *node.writes)))
        case SymbolDef() | Require():
            return ()


def overwritten(nodes: Iterable[Node]) -> frozenset[str]:
    """The storages whose old contents the nodes both use and change, so that a second run gives another result.

    A storage that the nodes write and do not read is not among them: it holds the same after a second run.
    """
    group = tuple(nodes)
    read = {ref.storage for node in group for ref in reads(node)}
    written = {ref.storage for node in group for ref in writes(node)}
    effects = [write for node in group if isinstance(node, Kernel) for write in body_writes(node.body)]
    added = {write.ref.storage for write in effects if isinstance(write, Atomic) and write.kind != "set"}
    return frozenset((written & read) | added)


def awaited_refs(node: Node) -> tuple[Ref, ...]:
    """The versions that must exist before a node runs although it does not read them (`after`)."""
    return node.after if isinstance(node, Kernel | Extern) else ()


def defined_symbols(node: Node) -> tuple[Symbol, ...]:
    """The symbols whose values a node defines."""
    match node:
        case Extern(results=results, defines=defines):
            return (*(made for made in results if isinstance(made, Symbol)), *defines)
        case SymbolDef(symbol=made):
            return (made,)
        case Kernel() | Require():
            return ()


def expressions_in(value: object) -> Iterator[Expr | Rel]:
    """Every expression and relation in a node or value: one generic walk over the fields of dataclasses."""
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Expr | Rel):
            yield item
        elif isinstance(item, tuple | list):
            stack.extend(reversed(list(item)))  # pyright: ignore[reportUnknownArgumentType]  a tuple of anything
        elif not isinstance(item, type | DType):
            stack.extend(getattr(item, name) for name in _fields_backwards(type(item)))


@lru_cache(maxsize=256)
def _fields_backwards(kind: type) -> tuple[str, ...]:
    """The names of a dataclass's fields, the last one first; () for any other class."""
    return tuple(field.name for field in reversed(fields(kind))) if is_dataclass(kind) else ()


def symbols_in(value: object) -> tuple[Symbol, ...]:
    """Every symbol in a node or value, without repeats."""
    return tuple(dict.fromkeys(s for found in expressions_in(value) for s in free_symbols(found)))


def required_symbols(node: Node, buffers: Mapping[str, Buffer]) -> tuple[Symbol, ...]:
    """The symbols whose values a node needs: those in the node, and those in the layouts of the buffers it writes."""
    return symbols_in((node, tuple(buffers[ref.storage] for ref in writes(node) if ref.storage in buffers)))
