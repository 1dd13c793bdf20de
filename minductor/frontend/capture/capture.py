"""Reads an ATen graph of torch.fx into plain data, whose text is the larger part of the store's key.

Takes the GraphModule that AOTAutograd hands to a compiler, and the graph's role. Gives a `Graph`: nodes, inputs (with
what AOTAutograd knows about them: static, donated), outputs, symbols, and the inner graphs of higher-order operators.
`Graph.live` holds the objects of this process (lifted tensors, torch's symbols), which are not in the text. Refuses
(UnsupportedInput) tensors that no kernel can read: sparse, quantised and nested tensors, and tensor subclasses.

>>> import torch
>>> from torch.fx.experimental.proxy_tensor import make_fx
>>> x = torch.ones(2, 3)
>>> print(capture(make_fx(lambda x: x.t() * 2, tracing_mode="fake")(x), "inference").text())
graph inference
input x_1: f32[2, 3] stride [3, 1] cpu
t: f32[3, 2] stride [1, 3] cpu = aten.t.default(x_1)
mul: f32[3, 2] stride [1, 3] cpu = aten.mul.Tensor(t, 2)
return (mul)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from minductor.core.dtypes import TORCH_NAMES, DType
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Expr, Symbol
from minductor.frontend.capture.captured_graph import (
    HIGHER_ORDER,
    Arg,
    Graph,
    GraphInput,
    LiftedConstant,
    Live,
    Meta,
    Node,
    NodeRef,
    Region,
    Role,
    Size,
    TensorMeta,
)
from minductor.frontend.capture.user_places import Sources
from minductor.frontend.quirks.torch_versions import (
    donated_indices,
    has_guards,
    outputs_without_aliases,
    rebuilt_outputs,
    static_indices,
)
from minductor.ir.program.nodes import CALL_SYMBOL_KINDS, Token, symbols_in

if TYPE_CHECKING:  # a graph of the store needs no estimates
    from minductor.core.expressions.hints import Hints

FOLDED = "minductor_folded"  # the key in the metadata of an input that holds what a frozen graph computed once


def capture(gm: fx.GraphModule, role: Role) -> Graph:
    """The graph as plain data, with AOTAutograd's metadata about its inputs; changes none of them."""
    return _Reader(gm, role).read()


class _Reader:
    """Reads one graph; `outer` reads the graph that calls it as the region `name`, None for the whole graph."""

    def __init__(self, gm: fx.GraphModule, role: Role, outer: _Reader | None = None, name: str = "") -> None:
        self.gm = gm
        self.role: Role = role
        self.outer = outer
        self.prefix = f"{name}_" if name else ""  # keeps the names of constants and externals unique among regions
        self.before = () if outer is None or outer.sizes is None else outer.sizes.known()
        self.regions: list[Region] = []
        self.externals: dict[str, Any] = {}
        self.attributes: dict[str, Arg] = {}  # name of a `get_attr` node -> the argument that replaces it
        self.is_higher_order = False  # whether the arguments that are being read are a higher-order operator's
        self.inputs: list[GraphInput] = []
        self.constants: list[LiftedConstant] = []
        self.tensors: list[torch.Tensor] = []
        self.nodes: list[Node] = []
        self.outputs: tuple[Arg, ...] = ()
        self.names: dict[Any, str] = {}  # target of a call -> the operator's name
        self.sizes: Any = None  # the SizeReader, from the first symbolic size on

    def read(self) -> Graph:
        statics: frozenset[int] = frozenset()
        donated: frozenset[int] = frozenset()
        if self.outer is None:
            statics = frozenset(static_indices()) if self.role != "backward" else statics
            donated = self._unshared(donated_indices()) if self.role == "backward" else donated
        for node in self.gm.graph.nodes:
            match node.op:
                case "placeholder":
                    number = len(self.inputs)
                    meta = self._input_meta(node)
                    is_static = number in statics or FOLDED in node.meta
                    self.inputs.append(GraphInput(node.name, meta, is_static, number in donated))
                case "get_attr":
                    self._attribute(node)
                case "output":
                    self.outputs = self._outputs(node.args[0])
                case "call_function":
                    self.nodes.append(self._call(node))
                case _:
                    raise UnsupportedInput(node.name, f"a node of kind {node.op}")
        live = Live(tuple(self.tensors), self.externals)
        parts = (tuple(self.inputs), tuple(self.constants), tuple(self.nodes))
        if self.outer is not None:
            graph = Graph(self.role, *parts, self.outputs, live=live, regions=tuple(self.regions))
            return replace(graph, fixed_stride_outputs=_tensors(self.outputs))
        rebuilt = rebuilt_outputs() if self.role != "backward" else {}
        graph = Graph(self.role, *parts, self.outputs, (), rebuilt, live, regions=tuple(self.regions))
        graph = replace(graph, fixed_stride_outputs=() if self.role == "backward" else self._fixed_stride_outputs())
        if (sizes := self.sizes) is None:
            return graph
        facts = sizes.facts()  # before symbols(), because a fact may have symbols of its own
        guards = () if has_guards() else sizes.guards(self._named_sizes())
        live.symbols, live.shape_env = sizes.torch_symbols(), sizes.shape_env
        found = {"symbols": sizes.symbols(), "definitions": sizes.definitions(), "hints": self._hints()}
        return replace(graph, **found, facts=facts, guards=guards)

    def _hints(self) -> Hints:
        """The example values of sizes; none for an export, whose package is called with sizes that nobody knows."""
        return self.sizes.hints() if has_guards() else ()

    def _named_sizes(self) -> dict[Symbol, str]:
        """Symbol -> the name that messages give it: that of an input, or `x.size(0)` for a size of the input x."""
        named: dict[Symbol, str] = {}
        for given in self.inputs:
            if isinstance(given.meta, Symbol):
                named.setdefault(given.meta, given.name)
            for dim, size in enumerate(given.meta.size if isinstance(given.meta, TensorMeta) else ()):
                if isinstance(size, Symbol):
                    named.setdefault(size, f"{given.name}.size({dim})")
        return named

    def _fixed_stride_outputs(self) -> tuple[int, ...]:
        """The outputs that are read by their traced strides: views, bases of views, and what the backward saves."""
        plain = outputs_without_aliases()
        if plain is None:
            return () if self.role == "inference" else _tensors(self.outputs)
        return tuple(number for number in _tensors(self.outputs) if number not in plain)

    def region(self, name: str) -> Region:
        """The graph as a region. Its first inputs are the symbols that it uses and that the outer graph knows."""
        graph = self.read()
        if self.sizes is None:
            return Region(name, graph)
        used = symbols_in((graph.inputs, graph.constants, graph.nodes, graph.outputs))
        own = {given.meta for given in graph.inputs}
        foreign = [s for s in used if s.kind in CALL_SYMBOL_KINDS and s not in own]
        outer = tuple(s for s in foreign if self.sizes.is_given(s, self.before))
        taken = {given.name for given in graph.inputs}
        first = tuple(GraphInput(f"size_{s.name}" if s.name in taken else s.name, s) for s in outer)
        definitions = tuple(d for d in self.sizes.definitions() if d.symbol not in outer)
        symbols = tuple(s for s in self.sizes.symbols() if s in used)
        graph = replace(graph, inputs=(*first, *graph.inputs), symbols=symbols, definitions=definitions)
        return Region(name, replace(graph, hints=self._hints()), outer)

    def _unshared(self, donated: Sequence[int]) -> frozenset[int]:
        """The donated inputs that share memory with no other input.

        AOTAutograd donates both a saved tensor and a saved view of it; neither may then be overwritten.
        """
        values = [node.meta.get("val") for node in self.gm.graph.nodes if node.op == "placeholder"]
        storages = [v.untyped_storage()._cdata if isinstance(v, torch.Tensor) else None for v in values]
        return frozenset(n for n in donated if storages.count(storages[n]) == 1)

    def _input_meta(self, node: fx.Node) -> TensorMeta | Size:
        value = node.meta.get("val")
        is_jagged = isinstance(value, torch.SymInt) and value.node.is_nested_int()  # the size of a jagged dimension
        if not node.users and (is_jagged or not isinstance(value, torch.Tensor | int | torch.SymInt)):
            return 0  # an object that the graph does not use, such as a device mesh, is captured as the number 0
        meta = self._meta(value, node)
        if not isinstance(meta, TensorMeta | int | Expr) or isinstance(meta, bool):
            raise UnsupportedInput(node.name, f"a {type(value).__name__}")
        if isinstance(meta, TensorMeta) and node.meta["val"].is_neg():
            raise UnsupportedInput(node.name, "a tensor whose memory holds the negatives of its elements")
        return meta

    def _attribute(self, node: fx.Node) -> None:
        """Reads a `get_attr` node: a tensor becomes a constant, any other object an external.

        A graph module that can be captured becomes a region too.
        """
        value: Any = operator.attrgetter(str(node.target))(self.gm)
        if isinstance(value, torch.Tensor):
            meta = self._tensor(value, node)
            self.constants.append(LiftedConstant(self.prefix + node.name, meta))
            self.tensors.append(value)
            self.attributes[node.name] = NodeRef(self.prefix + node.name)
            return
        name = self._external(node.name, value)
        self.attributes[node.name] = Token("external", name)
        if any(region.name == name for region in self.regions):
            return
        if isinstance(value, fx.GraphModule):
            with suppress(UnsupportedInput):  # the operator that takes the graph then runs it in eager
                self.regions.append(_Reader(value, self.role, self, name).region(name))

    def _external(self, name: str, value: Any) -> str:
        """The name by which generated code refers to `value`, an object of this process."""
        if (known := next((n for n, v in self.externals.items() if v is value), None)) is not None:
            return known
        self.externals[self.prefix + name] = value
        return self.prefix + name

    def _outputs(self, given: Any) -> tuple[Arg, ...]:
        return tuple(self._arg(a) for a in (given if isinstance(given, tuple | list) else (given,)))

    def _call(self, node: fx.Node) -> Node:
        op = self.names.get(node.target)
        if op is None:
            op = self.names[node.target] = _op_name(node)
        self.is_higher_order = op.startswith(HIGHER_ORDER)
        args = tuple([self._arg(a) for a in node.args])
        kwargs = tuple([(k, self._arg(a)) for k, a in node.kwargs.items()]) if node.kwargs else ()
        if op in _VIEWS:
            self._assume(node.meta["val"].shape, args[1])
        value = _value_by_use(node) if self.is_higher_order else node.meta.get("val")
        return Node(node.name, op, args, kwargs, self._meta(value, node))

    def _assume(self, shape: Sequence[Any], wanted: Arg) -> None:
        """Sizes of a view that the program gives are those numbers, where torch notes a quotient of other sizes."""
        for traced, size in zip(shape, wanted if isinstance(wanted, tuple) else (), strict=False):
            if isinstance(traced, torch.SymInt) and isinstance(size, int) and size >= 0:
                self._reader().assume(traced, size)

    def _arg(self, value: Any) -> Arg:
        match value:
            case fx.Node():
                return self.attributes.get(value.name) or NodeRef(value.name)
            case None | bool() | int() | float() | complex() | str():
                return value
            case tuple() | list():
                return tuple([self._arg(v) for v in value])
            case torch.dtype():
                return dtype_of(value)
            case torch.device():
                return Token("device", str(value))
            case torch.layout() | torch.memory_format():
                kind = "layout" if isinstance(value, torch.layout) else "memory_format"
                return Token(kind, str(value).removeprefix("torch."))
            case torch.SymInt():
                return self._size(value)
            case torch.SymFloat() | torch.SymBool():
                return self._reader().scalar(value)
            case torch._ops.OpOverload():
                return Token("operator", str(value))
            case _ if self.is_higher_order and _is_set(value):
                return Token("external", self._external(f"object{len(self.externals)}", value))
            case _:
                raise UnsupportedInput("an argument", f"a {type(value).__name__}")

    def _meta(self, value: Any, node: fx.Node) -> Meta:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, node)
        if isinstance(value, tuple | list):
            return tuple([self._meta(v, node) for v in value])
        if isinstance(value, int | float) or value is None:
            return value
        if isinstance(value, torch.SymInt):
            return self._size(value)
        if isinstance(value, torch.SymFloat | torch.SymBool):
            return self._reader().scalar(value)
        raise UnsupportedInput(node.name, f"a {type(value).__name__}")

    def _tensor(self, value: torch.Tensor, node: fx.Node) -> TensorMeta:
        if value.layout is not torch.strided:
            raise UnsupportedInput(node.name, f"a tensor of layout {value.layout}")
        if value.is_quantized or value.is_nested or not is_plain(value):
            kind = "quantised" if value.is_quantized else "nested" if value.is_nested else type(value).__name__
            raise UnsupportedInput(node.name, f"a tensor of kind {kind}")
        device = str(value.device)
        size, stride, offset = tuple(value.shape), value.stride(), value.storage_offset()
        if all(type(n) is int for n in (*size, *stride)) and isinstance(offset, int):
            return TensorMeta(dtype_of(value.dtype), size, stride, offset, device, value.is_conj())
        layout = (self._row(size), self._row(stride), self._size(offset))
        return TensorMeta(dtype_of(value.dtype), *layout, device, value.is_conj())

    def _row(self, sizes: Sequence[Any]) -> tuple[Size, ...]:
        return tuple([self._size(n) for n in sizes])

    def _size(self, value: Any) -> Size:
        return value if isinstance(value, int) else self._reader().read(value)

    def _reader(self) -> Any:
        if self.outer is not None and self.sizes is None:
            self.sizes = self.outer._reader()  # regions and the outer graph share one table of symbols
        if self.sizes is None:
            from minductor.frontend.capture.symbolic_sizes import SizeReader  # a static graph needs no SymPy

            self.sizes = SizeReader()
        return self.sizes


_VIEWS = ("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default")


def is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor is a plain tensor, parameter, buffer or fake tensor, and of no other subclass."""
    from torch._subclasses.fake_tensor import FakeTensor

    return type(value) in (torch.Tensor, torch.nn.Parameter, FakeTensor) or isinstance(value, torch.nn.Buffer)


@lru_cache(64)
def dtype_of(dtype: torch.dtype) -> DType:
    """Our dtype for torch's."""
    name = str(dtype).removeprefix("torch.")
    if name not in TORCH_NAMES:
        raise UnsupportedInput("a tensor", f"of dtype {name}")
    return TORCH_NAMES[name]


def _tensors(outputs: Sequence[Arg]) -> tuple[int, ...]:
    """The numbers of the outputs that are results of nodes."""
    return tuple(number for number, arg in enumerate(outputs) if isinstance(arg, NodeRef))


def _op_name(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if target is operator.getitem:
        return "getitem"
    if isinstance(target, torch._ops.HigherOrderOperator):
        if getattr(torch.ops.higher_order, target._name, None) is not target:
            raise UnsupportedInput(node.name, f"the higher-order operator {target.name()}")
        return HIGHER_ORDER + target._name
    # Python arithmetic on sizes: the metadata has its value, so only people read the name
    return getattr(target, "__name__", str(target))


def _value_by_use(node: fx.Node) -> Any:
    """The traced value of a node. The partitioner makes some calls without one: their users' values are collected."""
    if "val" in node.meta:
        return node.meta["val"]
    items = [(user.args[1], user) for user in node.users if user.target is operator.getitem]
    values = {number: _value_by_use(user) for number, user in items if isinstance(number, int)}
    if node.target is torch.ops.higher_order.run_and_save_rng_state:
        values[0] = torch.get_rng_state()  # the traced state has a size that nothing defines
    return tuple([values.get(n) for n in range(1 + max(values))]) if values else None


def _is_set(value: object) -> bool:
    """Whether an object is known while tracing: it holds no node of the graph and no symbolic number."""
    leaves: list[object] = tree_leaves(value)
    return not any(isinstance(leaf, fx.Node | torch.SymInt | torch.SymFloat | torch.SymBool) for leaf in leaves)


# --- sources ------------------------------------------------------------------------------------------------------


def sources(gm: fx.GraphModule) -> Sources:
    """Where the nodes of a graph come from: the user's lines, modules, and forward nodes."""
    return Sources(gm)
