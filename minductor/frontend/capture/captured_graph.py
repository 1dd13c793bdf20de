"""The captured graph as plain data: nodes, inputs, outputs, symbols and the graphs of higher-order operators.

Takes what `capture` reads from torch. Gives frozen dataclasses whose text is the larger part of the store's key: equal
programs have equal texts. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, Symbol
from minductor.ir.program.nodes import Body, Token
from minductor.ir.program.size_sources import size_sources

Role: TypeAlias = Literal["inference", "forward", "backward"]
Size: TypeAlias = int | Expr
# how the names of such operators begin
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
    is_conjugate: bool = False  # memory may hold the conjugates of the elements

    def __str__(self) -> str:
        offset = "" if self.offset == 0 else f" offset {self.offset}"
        bits = " conjugate" if self.is_conjugate else ""
        return f"{self.dtype.name}[{_row(self.size)}] stride [{_row(self.stride)}]{offset} {self.device}{bits}"


# a bool or a float is one that is known while tracing; else they are symbols of these kinds
Meta: TypeAlias = "TensorMeta | Size | float | bool | tuple[Meta, ...] | None"
# what a node is called with: a tree of these
Arg: TypeAlias = "NodeRef | Size | float | complex | bool | str | DType | Token | tuple[Arg, ...] | None"


@dataclass(frozen=True, slots=True)
class Node:
    """One call: an operator's name ("aten.add.Tensor", "getitem"), its arguments, and what it gives."""

    name: str
    op: str
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    meta: Meta
    after: tuple[str, ...] = ()  # nodes whose values have to be there when it begins, although it reads them not

    def __str__(self) -> str:
        given = [_text(a) for a in self.args] + [f"{k}={_text(a)}" for k, a in self.kwargs]
        after = f" after {', '.join(self.after)}" if self.after else ""
        return f"{self.name}: {_text(self.meta)} = {self.op}({', '.join(given)}){after}"


@dataclass(frozen=True, slots=True)
class GraphInput:
    """A parameter, in calling order. `is_static`: the same tensor at each call; `is_donated`: may be overwritten."""

    name: str
    meta: TensorMeta | Size
    is_static: bool = False
    is_donated: bool = False

    def __str__(self) -> str:
        return f"input {self.name}: {self.meta}{' static' * self.is_static}{' donated' * self.is_donated}"


@dataclass(frozen=True, slots=True)
class LiftedConstant:
    """A tensor that the graph holds itself; the tensor is `Live.constants` at the same place."""

    name: str
    meta: TensorMeta


@dataclass(frozen=True, slots=True)
class Definition:
    """A symbol for what the index algebra cannot write, and the body that computes it from other symbols."""

    symbol: Symbol
    body: Body

    def __str__(self) -> str:
        return f"define {_symbol(self.symbol)} {_body(self.body)}"


@dataclass(frozen=True, slots=True)
class Fact:
    """What has to hold of symbols that data decides; where the body yields false, the call raises RuntimeError."""

    body: Body
    message: str

    def __str__(self) -> str:
        return f"require {self.message!r} {_body(self.body)}"


@dataclass(slots=True)
class Live:
    """What a graph refers to in this process only: never printed, compared or stored."""

    constants: tuple[torch.Tensor, ...] = ()
    externals: Mapping[str, Any] = field(default_factory=dict)  # graph modules, tables, functions: by name
    symbols: Mapping[Symbol, Any] = field(default_factory=dict)  # ours -> torch's SymPy symbol or expression
    shape_env: Any = None


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured graph. Symbols are named in order of first use, so that equal programs have equal texts."""

    role: Role
    inputs: tuple[GraphInput, ...]
    constants: tuple[LiftedConstant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Arg, ...]
    symbols: tuple[Symbol, ...] = ()  # given by the caller, or decided by data
    # outputs that are views of an input, by their numbers: the caller uses the layout only, and takes it of that input
    rebuilt: Mapping[int, int] = field(default_factory=dict[int, int])
    live: Live = field(default_factory=Live, compare=False, repr=False)
    definitions: tuple[Definition, ...] = ()
    facts: tuple[Fact, ...] = ()
    guards: tuple[Fact, ...] = ()  # facts about the caller's sizes that the graph has to check itself
    regions: tuple[Region, ...] = ()
    # outputs, by number, whose traced strides are relied upon by whoever takes them
    laid: tuple[int, ...] = ()

    def text(self) -> str:
        lines = [f"graph {self.role}"]
        lines += [f"symbol {_symbol(s)}" for s in self.symbols]
        lines += [str(told) for told in (*self.definitions, *self.facts, *self.guards)]
        for region in self.regions:
            lines += [f"region {region.name}", *(f"  {line}" for line in region.graph.text().splitlines())]
        lines += [str(given) for given in self.inputs]
        lines += [f"constant {c.name}: {c.meta}" for c in self.constants]
        lines += [f"external {name}: {type(value).__name__}" for name, value in self.live.externals.items()]
        lines += [str(node) for node in self.nodes]
        lines += [f"rebuilt {output} from {self.inputs[number].name}" for output, number in self.rebuilt.items()]
        laid = f" laid {_text(self.laid)}" if self.laid else ""
        return "\n".join([*lines, f"return {_text(self.outputs)}{laid}"])

    def symbols_of_caller(self) -> tuple[Symbol, ...]:
        """The symbols that an input is or that its size defines; in a backward also those that the forward computed."""
        metas = [given.meta for given in self.inputs]
        known = {*metas, *size_sources((meta, meta.size) for meta in metas if isinstance(meta, TensorMeta))}
        return tuple(s for s in (*self.symbols, *(made.symbol for made in self.definitions)) if s in known)

    def metas(self) -> dict[str, Meta]:
        """What the tracer knows of each input, constant and node, by name."""
        return {each.name: each.meta for each in (*self.inputs, *self.constants, *self.nodes)}

    def bound(self) -> dict[str, Any]:
        """What the generated code refers to by name: lifted tensors and other objects, those of regions too."""
        named = {c.name: t for c, t in zip(self.constants, self.live.constants, strict=True)}
        named.update(self.live.externals)
        for region in self.regions:
            named.update(region.graph.bound())
        return named


@dataclass(frozen=True, slots=True)
class Region:
    """A graph that a higher-order operator of the outer one is given; its first inputs are sizes known there."""

    name: str
    graph: Graph
    sizes: tuple[Symbol, ...] = ()


def _symbol(known: Symbol) -> str:
    kind = "" if known.kind == "size" else f" {known.kind}"
    return f"{known.name} in [{known.lo}, {known.hi}]{kind}"


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
