"""The captured graph as plain data: nodes, inputs, outputs, symbols and the graphs of higher-order operators.

Takes what `capture` reads from torch. Gives frozen dataclasses whose text is the larger part of the store's key: equal
programs have equal texts. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.nodes import Body, Token
from minductor.ir.program.size_sources import size_sources

if TYPE_CHECKING:  # a graph of the store needs no estimates
    from minductor.core.expressions.hints import Hints

Role: TypeAlias = Literal["inference", "forward", "backward"]
Size: TypeAlias = int | Expr
# the first part of the names of higher-order operators, and of those of collectives
HIGHER_ORDER, COLLECTIVE = "higher_order.", "_c10d_functional."


@dataclass(frozen=True, slots=True)
class NodeRef:
    """The result of an earlier node."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """What the tracer knows about one tensor; strides and offset count elements."""

    dtype: DType
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size
    device: str
    is_conjugate: bool = False  # whether the memory may hold the complex conjugates of the elements

    def __str__(self) -> str:
        offset = "" if self.offset == 0 else f" offset {self.offset}"
        bits = " conjugate" if self.is_conjugate else ""
        return f"{self.dtype.name}[{_row(self.size)}] stride [{_row(self.stride)}]{offset} {self.device}{bits}"


# The metadata of a node's result. A number that is not known while tracing is a symbol or an expression of symbols.
Meta: TypeAlias = "TensorMeta | Size | float | bool | tuple[Meta, ...] | None"
# an argument of a node, which may be a tuple of arguments
Arg: TypeAlias = "NodeRef | Size | float | complex | bool | str | DType | Token | tuple[Arg, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """One call of an operator: its name ("aten.add.Tensor", "getitem"), its arguments and its result's metadata."""

    name: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    meta: Meta
    after: tuple[str, ...] = ()  # nodes that must have run before this node, although it does not read their results

    def __str__(self) -> str:
        given = [_text(a) for a in self.args] + [f"{k}={_text(a)}" for k, a in self.kwargs]
        after = f" after {', '.join(self.after)}" if self.after else ""
        return f"{self.name}: {_text(self.meta)} = {self.op}({', '.join(given)}){after}"


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input of the graph: a tensor or a number.

    `is_static`: every call passes the same tensor, such as a parameter. `is_donated`: the graph may overwrite it.
    """

    name: str
    meta: TensorMeta | Size
    is_static: bool = False
    is_donated: bool = False

    def __str__(self) -> str:
        return f"input {self.name}: {self.meta}{' static' * self.is_static}{' donated' * self.is_donated}"


@dataclass(frozen=True, slots=True)
class LiftedConstant:
    """A tensor that the graph holds itself. `Live.constants` has the tensors, in the order of `Graph.constants`."""

    name: str
    meta: TensorMeta


@dataclass(frozen=True, slots=True)
class Definition:
    """A symbol that stands for a number which no index expression can write, and the body that computes the number."""

    symbol: Symbol
    body: Body

    def __str__(self) -> str:
        return f"define {_symbol(self.symbol)} {_body(self.body)}"


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition on symbols. If the body gives false at a call, the call raises RuntimeError with the message."""

    body: Body
    message: str

    def __str__(self) -> str:
        return f"require {self.message!r} {_body(self.body)}"


@dataclass(slots=True)
class Live:
    """The objects of this process that a graph refers to. They are never printed, compared or stored."""

    constants: tuple[torch.Tensor, ...] = ()
    externals: Mapping[str, Any] = field(default_factory=dict)  # graph modules, functions and other objects, by name
    symbols: Mapping[Symbol, Any] = field(default_factory=dict)  # our symbol -> torch's SymPy symbol or expression
    shape_env: Any = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured graph. Symbols are named in order of first use, so that equal programs have equal texts."""

    role: Role
    inputs: tuple[GraphInput, ...]
    constants: tuple[LiftedConstant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Arg, ...]
    symbols: tuple[Symbol, ...] = ()  # sizes that the caller's tensors have, and numbers that data decides
    # number of an output -> number of the input of which AOTAutograd makes it a view, by the output's layout alone
    rebuilt: Mapping[int, int] = field(default_factory=dict[int, int])
    live: Live = field(default_factory=Live, compare=False, repr=False)
    definitions: tuple[Definition, ...] = ()
    facts: tuple[Fact, ...] = ()  # about numbers that data decides
    guards: tuple[Fact, ...] = ()  # about the caller's sizes, where no guard of Dynamo checks them
    regions: tuple[Region, ...] = ()
    fixed_stride_outputs: tuple[int, ...] = ()  # numbers of the outputs that must have the strides that were traced
    hints: Hints = field(default=(), compare=False)  # the values of sizes in the example inputs; not in the text

    def text(self) -> str:
        """The graph as text, without what only this process knows; the store's key is made of this text."""
        lines = [f"graph {self.role}"]
        lines += [f"symbol {_symbol(s)}" for s in self.symbols]
        lines += [str(line) for line in (*self.definitions, *self.facts, *self.guards)]
        for region in self.regions:
            lines += [f"region {region.name}", *(f"  {line}" for line in region.graph.text().splitlines())]
        lines += [str(given) for given in self.inputs]
        lines += [f"constant {c.name}: {c.meta}" for c in self.constants]
        lines += [f"external {name}: {type(value).__name__}" for name, value in self.live.externals.items()]
        lines += [str(node) for node in self.nodes]
        lines += [f"rebuilt {output} from {self.inputs[number].name}" for output, number in self.rebuilt.items()]
        fixed = f" fixed_strides {_text(self.fixed_stride_outputs)}" if self.fixed_stride_outputs else ""
        return "\n".join([*lines, f"return {_text(self.outputs)}{fixed}"])

    def symbols_of_caller(self) -> tuple[Symbol, ...]:
        """The symbols whose values a call's inputs show: an input is the symbol, or has a size that determines it.

        In a backward these include numbers that the forward computed.
        """
        metas = [given.meta for given in self.inputs]
        known = {*metas, *size_sources((meta, meta.size) for meta in metas if isinstance(meta, TensorMeta))}
        return tuple(s for s in (*self.symbols, *(made.symbol for made in self.definitions)) if s in known)

    def metas(self) -> dict[str, Meta]:
        """The metadata of each input, constant and node, by name."""
        return {each.name: each.meta for each in (*self.inputs, *self.constants, *self.nodes)}

    def bound(self) -> dict[str, Any]:
        """The lifted tensors and external objects of the graph and its regions, by their names in generated code."""
        named = {c.name: t for c, t in zip(self.constants, self.live.constants, strict=True)}
        named.update(self.live.externals)
        for region in self.regions:
            named.update(region.graph.bound())
        return named


@dataclass(frozen=True, slots=True)
class Region:
    """A graph that is an argument of a higher-order operator. Its first inputs are the `sizes` of the outer graph."""

    name: str
    graph: Graph
    sizes: tuple[Symbol, ...] = ()


def _symbol(symbol: Symbol) -> str:
    kind = "" if symbol.kind == "size" else f" {symbol.kind}"
    return f"{symbol.name} in [{symbol.lo}, {symbol.hi}]{kind}"


def _body(body: Body) -> str:
    from minductor.ir.program.printer import print_body

    return "; ".join(print_body(body).splitlines())


def _row(values: Sequence[Size]) -> str:
    return ", ".join([str(v) for v in values])


def _text(value: Any) -> str:
    match value:
        case tuple():
            return f"({', '.join([_text(v) for v in value])})"
        case str() | float() | complex():
            return repr(value)
        case DType():
            return value.name
        case Token(kind, name):
            return f"{kind}:{name}"
        case _:
            return str(value)
