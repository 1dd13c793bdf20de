"""The intermediate representation: what a program is between the ATen graph and the generated text.

Takes nothing, gives the node classes, refuses nothing: they are plain data, and `verify` holds the rules.

The grammar, as the printer writes it and the parser reads it:

    program  ::= "program" NAME declaration* node* "return" argument*
    declaration ::= "symbol" SYMBOL range                     a size that the caller supplies
                | "input" buffer ["static"] ["donated"]       a tensor parameter, in calling order
                | "input" SYMBOL                              a number as a parameter, in calling order
                | "made" SYMBOL range                         a size that a node below defines
                | "constant" buffer | "buffer" buffer         a lifted tensor; a storage of our own
                | "guard" relation                            a fact that lowering relied on
                | "note" ...                                  a decision: printed, not compared
                | "region" "{" program "}"                    a program that a call in this one is given
    buffer   ::= NAME ":" DTYPE size "stride" size DEVICE
    node     ::= kernel | extern | "define" SYMBOL origin* body | "require" STRING origin* body
    kernel   ::= "kernel" NAME "(" (AXIS ":" extent)* ")" ["after" ref*] "from" origin* [schedule] choice* variant* body
    choice   ::= "choice" NAME ("bits" | "perf") option "of" "(" option* ")"      left open by tile
    variant  ::= "variant" NAME "{" ("buffer" buffer)* node* "}"        computes the same
    body     ::= ("%" N "=" op)*
    op       ::= "load" ref "[" index "]" | "store" ref "[" index "]" value | pointwise value*
               | "constant" literal | "index" index
               | "check" value "as" SYMBOL "<" size ["wrap"] ("raises" NAME ["in" STRING "dim" N] | "proved")  an index
               | "masked" value captured* "else" literal "{" body "}"
               | "reduce" combine "over" AXIS* value* | "scan" combine "over" AXIS value* | "project" value N
               | "atomic" kind ref "[" index "]" value | "assert" value STRING | "parameter" N
    extern   ::= "extern" NAME OP "(" argument* ")" "->" view* ["writes" ref*] ["holds" ref*] ["defines" SYMBOL*]
                 ["uncapturable"] ["after" ref*] ["because" STRING]
    argument ::= view | literal | "region" NAME "<" index* ">" | "(" argument* ")" | KIND STRING
    view     ::= ref DTYPE size "stride" size "offset" index
    ref      ::= STORAGE "@" VERSION

Laws. A storage has versions; a write makes the next one, and the first write to a storage of our own makes @0
(an input arrives as @0). A version is never changed, so loads of it are values and may be shared or repeated.
An op runs once for each point of its own `axes`, not of the kernel's: a store of a row statistic runs once a row.
Positions in `args` name earlier ops of the same body. A region is closed: it sees its inputs and lifted constants only,
and the sizes it needs from outside are its first inputs. Values are float32, float64, integer or bool; a load widens
16-bit floats to float32 and a store rounds to the storage's dtype, so a cast that a program asked for is an op. A
complex storage is one of real numbers to a kernel: element n has its parts at the indices 2n and 2n + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias, TypeVar

from minductor.core.dtypes import DType, complex_parts
from minductor.core.expressions.expr import Expr, Rel, Symbol, as_int, free_symbols, integer, linear
from minductor.ir.program.choices import Choice
from minductor.ir.program.memory_access import Access
from minductor.ir.program.schedule import Schedule


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """One version of one storage."""

    storage: str
    version: int

    def __str__(self) -> str:
        return f"{self.storage}@{self.version}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A storage and the layout it was declared with: sizes and strides in elements of `dtype`."""

    name: str
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    kind: Literal["input", "constant", "local"] = "local"
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class View:
    """A strided window on a version of a storage; `offset` counts elements from the storage's first one."""

    ref: Ref
    dtype: DType
    size: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True)
class Token:
    """A torch constant that is neither number nor text: `Token("device", "cpu")`, `Token("layout", "strided")`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Region:
    """One of the program's regions as an argument, with the sizes that are its first inputs."""

    name: str
    sizes: tuple[Expr, ...] = ()


# what an extern call is given: a tree of these
Argument: TypeAlias = (
    View | Region | Expr | DType | Token | bool | int | float | complex | str | tuple["Argument", ...] | None
)
LiteralValue: TypeAlias = bool | int | float | complex
T = TypeVar("T")
# eager's kinds of error for an index out of range
ErrorKind: TypeAlias = Literal["IndexError", "RuntimeError"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something came from: the ATen node's name and its operator."""

    node: str
    op: str


# --- body ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A literal. Equality tells 0.0 from -0.0 and True from 1, and lets NaN equal itself."""

    value: LiteralValue

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True, slots=True)
class Round:
    """Rounds a float32 value to what `dtype` (bf16, f16, ...) can hold; the value stays float32."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """An index expression as a value."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Load:
    """Element `index` of a version; `args` of the op are the checks whose symbols the index mentions."""

    ref: Ref
    index: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Makes (part of) version `ref`; `args` of the op are the value, then the checks."""

    ref: Ref
    index: Expr


@dataclass(frozen=True, slots=True)
class Atomic:
    """As Store, but several points may write one element.

    A value is joined with what is there by `kind` (add, min, max, mul); by `set` the last one wins, in the order of the
    kernel's axes. An add or mul has all axes of its kernel: what does not vary along one is joined for each of its
    points.
    """

    ref: Ref
    index: Expr
    kind: str


@dataclass(frozen=True, slots=True)
class Check:
    """The argument becomes `symbol`, an index in [0, size); negative ones count from the end if `wrap`.

    One out of range becomes 0 and sets the error flag, after which the graph call raises `error`. Without an error it
    is proved that none is out of range.
    """

    symbol: Symbol
    size: Expr
    wrap: bool
    error: ErrorKind | None = "IndexError"
    op: str = ""  # whose index it is, and of which dimension: for the message
    dim: int = 0
    node: str = field(default="", compare=False)  # the ATen node: it tells the user's line, and is never printed

    @property
    def message(self) -> str:
        """The error's text for `str.format`: `value` is the index with a blank before it, or ""; `size` a number.

        It begins with eager's words.
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
    """The i-th value handed to a region's body."""

    number: int


@dataclass(frozen=True, slots=True)
class Masked:
    """The body runs only where the condition holds, else the value is `other`.

    `args` are the condition, the values that the body takes as parameters, then the checks whose symbols it uses.
    """

    body: Body
    other: LiteralValue


@dataclass(frozen=True, slots=True)
class Combine:
    """An associative way to join two groups of k carried values; `body` takes 2k parameters and yields k results."""

    name: str
    identity: tuple[LiteralValue, ...]
    body: Body


@dataclass(frozen=True, slots=True)
class Reduce:
    """Joins the k values in `args` over `axes`; the result no longer varies over them."""

    axes: tuple[str, ...]
    combine: Combine


@dataclass(frozen=True, slots=True)
class Scan:
    """Inclusive prefix of `combine` along `axis`."""

    axis: str
    combine: Combine
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class Project:
    """The i-th carried value of a reduce or scan."""

    number: int


@dataclass(frozen=True, slots=True)
class Assert:
    """Sets the error flag where the argument is false; the graph call then raises RuntimeError(message)."""

    message: str
    node: str = field(default="", compare=False)  # as a check's


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
# the symbols that a call knows as numbers: handed in, or defined once on the way; the others live within a kernel
CALL_SYMBOL_KINDS = ("size", "real", "truth")
# of a kernel that was made of several; `bundle` adds up those of its parts
MAX_OPS, MAX_BUFFERS = 256, 64


@dataclass(frozen=True, slots=True)
class Op:
    """One value or effect. `axes` are the kernel axes over which it varies, in the kernel's order."""

    name: str
    args: tuple[int, ...]
    attrs: Attrs
    dtype: DType | None
    axes: tuple[str, ...]
    node: str = field(default="", compare=False)  # the ATen node, in a kernel made of several; never printed

    @property
    def is_effect(self) -> bool:
        return isinstance(self.attrs, EFFECTS)


@dataclass(frozen=True, slots=True)
class Body:
    """Ops in an order that respects `args`; `results` are the positions that a region yields (none for a kernel)."""

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


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated function: a body over axes, and no loop nest before codegen; `tile` adds the schedule.

    `after` are versions that have to be there when it begins, although it need not read them: an order, and no use.
    `choices` are its launch's, whose other options need no other text, and the one among its `variants`, if it has any:
    each writes what it writes, and may run in its stead.
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

    @property
    def only_node(self) -> str:
        """The ATen node that the whole kernel came from; "" if it came from none or several."""
        return self.origins[0].node if len(self.origins) == 1 else ""


@dataclass(frozen=True, slots=True)
class Variant:
    """Nodes that compute the same as a kernel, from storages of the program's and of their own."""

    name: str  # an option of the choice among them
    buffers: tuple[Buffer, ...]
    nodes: tuple[Kernel | Extern, ...]


@dataclass(frozen=True, slots=True)
class Extern:
    """A call to an operator that we do not generate.

    `form` says how results come: "out" writes into `results`, new storages of ours or parts of those that are there;
    "return" gives new tensors that are named by `results`; "inplace" changes arguments, and `writes` are the
    versions it makes. `effect` orders the call among other effects (random numbers, prints). `defines` are the
    symbols that data decides and that the sizes of the results tell: each occurs, linearly and with no other such
    one, in one of these sizes. `holds` are versions that something still reads until this call: what a collective
    sends, until it has been waited for. `after` is as a kernel's. What is not `is_capturable` runs anew at each
    call: no device's graph replays it.
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
    """A number that the index algebra cannot write: `body` yields it from other symbols, once per call."""

    symbol: Symbol
    body: Body
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Require:
    """What has to be true of symbols: where `body` yields false, the call raises RuntimeError(message).

    Whoever mentions these symbols and stands behind it relies on it, and stays behind it.
    """

    body: Body
    message: str
    origins: tuple[Origin, ...] = ()


Node: TypeAlias = Kernel | Extern | SymbolDef | Require


@dataclass(frozen=True, slots=True)
class Input:
    """A parameter, in calling order: a tensor by its buffer's name, or a number by its symbol."""

    name: str
    symbol: Expr | None = None
    is_static: bool = False
    is_donated: bool = False


@dataclass(frozen=True, slots=True)
class Guard:
    """A fact about size symbols that lowering relied on; re-evaluated on every cache hit."""

    rel: Rel
    reason: str


@dataclass(frozen=True, slots=True)
class FusionRefusal:
    """Why two nodes were not joined."""

    stage: str
    first: str
    second: str
    reason: str

    def __str__(self) -> str:
        return f"{self.first} and {self.second} stay apart: {self.reason}"


@dataclass(frozen=True, slots=True)
class MergedKernel:
    """A kernel that became part of another, or of several: where its name went."""

    stage: str
    name: str
    into: str

    def __str__(self) -> str:
        return f"{self.name} became part of {self.into}"


@dataclass(frozen=True, slots=True)
class NodeNote:
    """A decision about one node, e.g. why an operator stayed an extern call."""

    stage: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class Program:
    """A graph on its way down; nodes stand in an order that respects their reads, writes and effects."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Input, ...]
    buffers: tuple[Buffer, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Argument, ...]
    guards: tuple[Guard, ...] = ()
    notes: tuple[FusionRefusal | MergedKernel | NodeNote, ...] = field(default=(), compare=False)
    regions: tuple[Program, ...] = ()
    # Each group of outputs is one tensor object of its own. Equal outputs are one object otherwise, and one that is all
    # of an input is the input: but what autograd notes on one object would then hold for values that differ in that.
    own: tuple[tuple[int, ...], ...] = ()
    # Outputs, by number, that whoever takes them reads by the traced strides; the others are seen by the user only, who
    # gets what an operator made with the strides that it gave.
    laid: tuple[int, ...] = ()

    def buffer_table(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    def real_table(self) -> dict[str, Buffer]:
        """The buffers as kernels address them."""
        return {b.name: as_real(b) for b in self.buffers}


# --- questions that every stage asks ------------------------------------------------------------------------------


def as_real(buffer: Buffer) -> Buffer:
    """What a kernel sees of a buffer: the real and imaginary parts of complex numbers, along one dimension more."""
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
    """Each load, in regions too."""
    for op in body.ops:
        match op.attrs:
            case Load():
                yield op.attrs
            case Masked(inner, _):
                yield from body_reads(inner)
            case _:
                pass


def op_at(body: Body, path: Sequence[int]) -> Op:
    """The op at a position, or on the way into masked regions that more positions say."""
    op = body.ops[path[0]]
    if len(path) == 1:
        return op
    assert isinstance(op.attrs, Masked)
    return op_at(op.attrs.body, path[1:])


def body_writes(body: Body) -> Iterator[Store | Atomic]:
    """Each store and atomic, in order."""
    for op in body.ops:
        if isinstance(op.attrs, Store | Atomic):
            yield op.attrs


def reads(node: Node) -> tuple[Ref, ...]:
    """The versions a node reads, without repeats, in order of first use."""
    match node:
        case Kernel(body=body):
            return tuple(dict.fromkeys(load.ref for load in body_reads(body)))
        case Extern():
            given = (*node.args, *(value for _, value in node.kwargs))
            return tuple(dict.fromkeys((*(view.ref for view in views_of(given)), *node.holds)))
        case SymbolDef(body=body) | Require(body=body):
            return tuple(dict.fromkeys(load.ref for load in body_reads(body)))


def writes(node: Node) -> tuple[Ref, ...]:
    """The versions a node makes, without repeats."""
    match node:
        case Kernel(body=body):
            return tuple(dict.fromkeys(write.ref for write in body_writes(body)))
        case Extern():
            results = [view.ref for view in node.results if isinstance(view, View)]
            return tuple(dict.fromkeys((*results, *node.writes)))
        case SymbolDef() | Require():
            return ()


def overwritten(nodes: Iterable[Node]) -> frozenset[str]:
    """The storages of which nodes, run one after the other, read or add to what they held: a second run differs.

    A storage that is written and never read, as a whole or in part, holds the same after a second run.
    """
    group = tuple(nodes)
    read = {ref.storage for node in group for ref in reads(node)}
    written = {ref.storage for node in group for ref in writes(node)}
    effects = [write for node in group if isinstance(node, Kernel) for write in body_writes(node.body)]
    added = {write.ref.storage for write in effects if isinstance(write, Atomic) and write.kind != "set"}
    return frozenset((written & read) | added)


def awaited_refs(node: Node) -> tuple[Ref, ...]:
    """The versions that have to be there when a node begins, beside those it reads."""
    return node.after if isinstance(node, Kernel | Extern) else ()


def defined_symbols(node: Node) -> tuple[Symbol, ...]:
    """The symbols that a node defines."""
    match node:
        case Extern(results=results, defines=defines):
            return (*(made for made in results if isinstance(made, Symbol)), *defines)
        case SymbolDef(symbol=made):
            return (made,)
        case Kernel() | Require():
            return ()


def size_source(node: Extern, symbol: Symbol) -> tuple[int, int, int, int] | None:
    """Where a call tells a symbol that it defines: the size of result r along d is `scale * symbol + shift`."""
    sizes = ((number, result.size) for number, result in enumerate(node.results) if isinstance(result, View))
    return size_sources(sizes).get(symbol)


def size_sources(layouts: Iterable[tuple[T, Sequence[object]]]) -> Mapping[Symbol, tuple[T, int, int, int]]:
    """Where sizes of tensors tell symbols: each symbol is `(size of T along dim - shift) / scale`, as (T, dim, scale,
    shift). A size that is the symbol itself goes first, then the earlier one."""
    sizes = [(of, dim, size) for of, row in layouts for dim, size in enumerate(row) if isinstance(size, Expr)]
    told: dict[Symbol, tuple[T, int, int, int]] = {}
    for of, dim, size in sorted(sizes, key=lambda found: not isinstance(found[2], Symbol)):
        for symbol in free_symbols(size):
            if symbol not in told and (rule := scale_and_shift(size, symbol)) is not None:
                told[symbol] = (of, dim, *rule)
    return told


def scale_and_shift(size: Expr, symbol: Symbol) -> tuple[int, int] | None:
    """The (scale, shift) for which a size is `scale * symbol + shift`, so that it tells the symbol."""
    if symbol not in free_symbols(size):
        return None
    found = linear(size, (symbol,))
    scale, shift = (None, None) if found is None else (as_int(found[0][symbol]), as_int(found[1]))
    return (scale, shift) if scale and shift is not None else None


def expressions_in(value: object) -> Iterator[Expr | Rel]:
    """Every expression and relation anywhere in a node or value: one generic walk over dataclass fields."""
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
    """The fields of a dataclass, the last one first; nothing else has any."""
    return tuple(field.name for field in reversed(fields(kind))) if is_dataclass(kind) else ()


def symbols_in(value: object) -> tuple[Symbol, ...]:
    """Every symbol that occurs anywhere in a node or value, by that walk and no other."""
    return tuple(dict.fromkeys(s for found in expressions_in(value) for s in free_symbols(found)))


def required_symbols(node: Node, buffers: Mapping[str, Buffer]) -> tuple[Symbol, ...]:
    """The symbols that have to be known where a node runs: its own, and those in the layouts of what it makes."""
    return symbols_in((node, tuple(buffers[ref.storage] for ref in writes(node) if ref.storage in buffers)))
