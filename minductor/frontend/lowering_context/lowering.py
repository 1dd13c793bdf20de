"""What a rule is given as `ctx`: the node that is being lowered, and the ways to make kernels and calls for it.

Takes a captured graph, an `Env`, and what only `lower` knows: how a subgraph is lowered, and which operators are views.
Gives buffers, versions of storages, kernels and extern calls, all collected in `Lowering.state`. Refuses nothing. This
file knows no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from minductor.core.dtypes import F8E4M3FN, F8E5M2, I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, Kind, Symbol, as_expr, integer, symbol
from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import Arg, Graph, Meta, Node, NodeRef, Size, TensorMeta
from minductor.frontend.capture.size_formulas import is_zero, row_major, sizes
from minductor.frontend.graph_passes.last_uses import LastUses, used_results
from minductor.frontend.graph_passes.move_scalars import devices_in, devices_of
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering_state import LoweringState
from minductor.frontend.lowering_context.values import (
    ComplexPair,
    Operand,
    Value,
    dtypes_in,
    element,
    is_zero_sized,
    views_in,
)
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Body, Buffer, Extern, Kernel, NodeNote, Origin, Program, Ref, Require, View
from minductor.ir.program.printer import print_program
from minductor.ir.program.size_sources import size_source
from minductor.target import Env

# Operators for which a target with 8-bit floats gets kernels: eager has little more of them than conversions.
_CONVERSIONS = ("aten._to_copy.default", "aten.clone.default", "aten.copy.default", "aten.copy_.default")


class Lowering:
    """Rules change `state` and nothing else; the other attributes change between rules only."""

    def __init__(
        self, graph: Graph, env: Env, lower_subgraph: Callable[[Graph, Env], Program], view_operators: frozenset[str]
    ) -> None:
        self.graph = graph
        self.env = env
        self.lower_subgraph = lower_subgraph
        self.view_operators = view_operators
        self.hints = graph.hints if env.uses_hints else ()
        self.is_eager_precise = env.options.precision == "eager"
        given = graph.symbols_of_caller()
        self.state = LoweringState(dict.fromkeys(s for s in graph.symbols if s not in given))
        self.values: dict[str, Value] = {}
        self.names_in: dict[str, list[str]] = {}  # storage -> the names of the nodes whose values lie there
        self.last_uses = LastUses(graph)
        self.definitions = {made.symbol: made.body for made in graph.definitions}
        self.origin = Origin("", "")
        self.node: Node
        self.inputs: tuple[ir.Input, ...] = ()
        self.outputs: tuple[ir.Argument, ...] = ()
        self.distinct_outputs: tuple[tuple[int, ...], ...] = ()
        self._metas = graph.metas()
        self._wanted = used_results(graph)
        self._has_one_device = len(devices_of(graph)) < 2

    # --- what the walk over the graph does between rules

    def begin(self, node: Node) -> None:
        """Makes `node` the one that is being lowered."""
        self.node = node
        self.origin = Origin(node.name, node.op)

    def bind(self, name: str, value: Value) -> None:
        """Makes `value` what the node, input or constant of that name stands for."""
        self.values[name] = value
        for view in views_in(value):
            self.names_in.setdefault(view.ref.storage, []).append(name)

    def bind_given(self, name: str, meta: TensorMeta, kind: Literal["input", "constant"]) -> None:
        """Binds a tensor from outside. Its offsets start at 0, as its pointer is the traced tensor's first element."""
        made = self._storage(Buffer(name, meta.dtype, sizes(meta.size), sizes(meta.stride), kind, meta.device))
        self.state.starts[name] = meta.offset
        if meta.is_conjugate:
            self.state.conjugates.add(name)
        self.bind(name, made)

    # --- the program so far, which each step of `lower` changes

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """The nodes so far."""
        return self.state.nodes

    def program(self) -> Program:
        """The program so far."""
        graph, state, outputs = self.graph, self.state, self.outputs
        symbols = graph.symbols_of_caller()
        fixed = (number for number in graph.fixed_stride_outputs if outputs and isinstance(outputs[number], View))
        return Program(
            graph.role,
            symbols,
            self.inputs,
            tuple(state.buffers.values()),
            tuple(state.nodes),
            outputs,
            state.guards,
            tuple(state.notes),
            tuple(state.regions.values()),
            self.distinct_outputs,
            tuple(fixed),
            tuple((s, hint) for s, hint in self.hints if s in symbols),
        )

    def text(self) -> str:
        """The program so far as text."""
        return print_program(self.program())

    # --- values

    def value(self, arg: Arg) -> Value:
        """What an argument stands for; a view is of the newest version of its storage, as in the traced program."""
        match arg:
            case NodeRef(name):
                return self.newest(self.values[name])
            case tuple():
                return tuple([self.value(a) for a in arg])
            case _:
                return arg

    def newest(self, value: Value) -> Value:
        """The value with each view replaced by the same view of the newest version of its storage."""
        versions = self.state.versions
        match value:
            case View(ref):
                version = versions[ref.storage]
                return value if version == ref.version else replace(value, ref=Ref(ref.storage, version))
            case ComplexPair(re, im):
                return ComplexPair(*(replace(v, ref=Ref(v.ref.storage, versions[v.ref.storage])) for v in (re, im)))
            case tuple():
                return tuple([self.newest(v) for v in value])
            case _:
                return value

    def is_computable(self, meta: Meta, args: Sequence[Value], in_pairs: tuple[DType, ...] = ()) -> bool:
        """Whether a kernel can make `meta` of `args`: it knows their dtypes, and all of them are on its device.

        `in_pairs`: complex dtypes that the caller computes as real and imaginary parts.
        """
        if not self._has_one_device:
            places = {*devices_in(meta), *(self.buffer_of(v).device for v in views_in(tuple(args)))}
            if len(places) > 1 or not all(self.env.target.is_here(place) for place in places):
                return False
        found = [d for d in dtypes_in((meta, *args)) if d not in in_pairs]
        unknown = [d for d in found if d.kind == "complex" or d.itemsize == 0 or d.name[:2] == "f8"]
        is_conversion = self.env.target.has_fp8 and self.node.op in _CONVERSIONS
        return not unknown or (is_conversion and all(d in (F8E4M3FN, F8E5M2) for d in unknown))

    # --- symbols

    def undefined_symbols(self, value: object) -> tuple[Symbol, ...]:
        """The symbols in a value that data decides and that no node defines yet."""
        found: dict[Symbol, None] = {}
        for s in ir.symbols_in(value) if self.state.undefined else ():
            found.update(dict.fromkeys(self.undefined_symbols(self.definitions[s]) if s in self.definitions else (s,)))
        return tuple(s for s in found if s in self.state.undefined)

    def mark_defined(self, made: Symbol) -> None:
        """Notes that a node defines that symbol."""
        self.state.undefined.pop(made, None)

    def define(self, made: Symbol, body: Callable[[Builder], int]) -> None:
        """Adds a node that defines `made` as what the body computes from other symbols."""
        b = Builder()
        self.state.nodes.append(ir.SymbolDef(made, b.build([body(b)]), (self.origin,)))
        self.mark_defined(made)

    def new_symbol(self, kind: Kind) -> Symbol:
        """A symbol for a number that the tracer has no symbol for."""
        self.state.number_count += 1
        return symbol(f"n{self.state.number_count - 1}", kind, None, None)

    def read_scalar(self, x: View, made: Symbol) -> None:
        """Adds a call that defines `made` as the one element of a tensor."""
        op = "aten._local_scalar_dense.default"
        self.add_note(f"{op}: {schemas.reason_for_call(op)}")
        self.add_extern(op, (x,), {}, (made,), schemas.reason_for_call(op))
        self.mark_defined(made)

    def require(self, body: Body, message: str) -> None:
        """Adds a check of sizes: the call raises RuntimeError with that message where the body gives false."""
        self.state.nodes.append(Require(body, message, (self.origin,)))

    # --- the current node's metadata

    @property
    def meta(self) -> TensorMeta:
        """The metadata of the node's only result; for several results use `metas`."""
        assert isinstance(self.node.meta, TensorMeta)
        return self.node.meta

    @property
    def metas(self) -> tuple[TensorMeta, ...]:
        """The metadata of the node's results."""
        assert isinstance(self.node.meta, tuple)
        return tuple(m for m in self.node.meta if isinstance(m, TensorMeta))

    @contextmanager
    def with_single_result(self, meta: TensorMeta) -> Iterator[None]:
        """Within it the node has one result, so that a rule for one tensor serves a list of them."""
        node = self.node
        self.node = replace(node, meta=meta)
        try:
            yield
        finally:
            self.node = node

    def is_result_used(self, number: int) -> bool:
        """Whether the graph uses that result of an operator with several."""
        return number in self._wanted.get(self.node.name, ())

    def traced_meta(self, arg: Arg) -> Meta:
        """The metadata of an argument of the current node; None for what is not the result of a node."""
        return self._metas[arg.name] if isinstance(arg, NodeRef) else None

    def traced(self, arg: Arg) -> TensorMeta:
        """The metadata of an argument of the current node that is a tensor."""
        meta = self.traced_meta(arg)
        assert isinstance(meta, TensorMeta)
        return meta

    @property
    def device(self) -> str:
        """The device of the current node's first result, or else of its first tensor argument."""
        return next(devices_in((self.node.meta, *map(self.traced_meta, self.node.args))), "cpu")

    # --- storages and views

    def buffer(
        self, dtype: DType, size: Sequence[Expr], stride: Sequence[Expr] | None = None, device: str = ""
    ) -> View:
        """Allocates a storage, row-major if no stride is given. The caller has to write all of it."""
        name = f"buf{self.state.local_count}"
        self.state.local_count += 1
        strides = row_major(size) if stride is None else tuple(stride)
        return self._storage(Buffer(name, dtype, tuple(size), strides, device=device or self.device))

    def _storage(self, made: Buffer) -> View:
        self.state.buffers[made.name] = made
        self.state.versions[made.name] = 0
        return View(Ref(made.name, 0), made.dtype, made.size, made.stride, integer(0))

    def buffer_of(self, x: View) -> Buffer:
        """The storage that a view lies in."""
        return self.state.buffers[x.ref.storage]

    def start_of(self, x: View) -> Size:
        """The traced offset of the first element of x's storage: inputs and what calls return may be windows."""
        return self.state.starts.get(x.ref.storage, 0)

    def result(self, meta: TensorMeta | None = None) -> View:
        """Allocates a storage with a result's traced layout."""
        like = self.meta if meta is None else meta
        made = self.buffer(like.dtype, sizes(like.size), sizes(like.stride), like.device)
        if like.is_conjugate:
            self.state.conjugates.add(made.ref.storage)
        return made

    def next_version(self, view: View) -> View:
        """The view in the version that the next write of its storage makes."""
        self.state.versions[view.ref.storage] += 1
        return replace(view, ref=Ref(view.ref.storage, self.state.versions[view.ref.storage]))

    def window(self, base: View, meta: TensorMeta | None = None) -> View:
        """The view of `base` that was traced: its own size and stride, its offset relative to the traced base."""
        like = self.meta if meta is None else meta
        shift = as_expr(like.offset) - as_expr(self.traced(self.node.args[0]).offset)
        return View(base.ref, base.dtype, sizes(like.size), sizes(like.stride), base.offset + shift)

    def uninitialised(self, out: View) -> View:
        """Allocates `out` without writing it: for `empty`, and for results without elements."""
        kwargs = {"dtype": out.dtype, "device": ir.Token("device", self.buffer_of(out).device)}
        given = (tuple(out.size), tuple(out.stride))
        self.add_extern("aten.empty_strided.default", given, kwargs, (out,), "nothing to compute")
        return out

    # --- kernels

    def map(self, fn: Callable[[KernelBuilder], KernelValue], meta: TensorMeta | None = None) -> View:
        """A kernel over the elements of the result; `fn` gives the value at `loop.coords`."""
        out = self.result(meta)
        if is_zero_sized(out):
            return self.uninitialised(out)
        return self.fill(out, fn)

    def fill(self, out: View, fn: Callable[[KernelBuilder], KernelValue]) -> View:
        """A kernel over the elements of `out`, which it writes; `fn` gives the value at `loop.coords`."""
        loop = KernelBuilder(out.size)
        return self.store(loop, out, loop.coords, fn(loop))

    def copy_of(self, x: View) -> View:
        """A kernel that copies x to a new row-major buffer."""
        return self.fill(self.buffer(x.dtype, x.size), lambda loop: loop.load(x))

    def pointwise(
        self,
        fn: Callable[..., KernelValue],
        *operands: Operand,
        compute: DType | None = None,
        meta: TensorMeta | None = None,
    ) -> View:
        """`fn` of the operands' elements, each as the compute dtype of `compute` (by default the result's)."""
        dtype = compute or (self.meta if meta is None else meta).dtype
        return self.map(lambda loop: fn(*(loop.load(x, None, dtype) for x in operands)), meta)

    def store(self, loop: KernelBuilder, out: View, coords: Sequence[Expr], value: KernelValue) -> View:
        """Ends a kernel by storing `value` at `coords` of `out`, in `out`'s dtype."""
        if any(is_zero(axis.extent) for axis in loop.axes):
            return self.uninitialised(out) if is_zero_sized(out) else out
        stored = value.cast(out.dtype if self.is_eager_precise else compute_dtype(out.dtype))
        loop.b.store(out.ref, element(out, coords), stored.at)
        self.add_kernel(loop)
        return out

    def add_kernel(self, loop: KernelBuilder) -> None:
        """Ends a kernel whose stores are written already."""
        body = Body(tuple([_with_origin(op, self.origin) for op in loop.body().ops]))
        self.state.nodes.append(Kernel(f"k{self.state.kernel_count}", tuple(loop.axes), body, (self.origin,)))
        self.state.kernel_count += 1

    def random_stream(self) -> tuple[View, int]:
        """The call's seed, drawn once from torch's generator, and a number that tells this operator from others."""
        if self.state.seed is None:
            self.state.seed = self.buffer(I64, ())
            named = {"dtype": I64, "device": ir.Token("device", self.device)}
            limits = (-(2**63), 2**63 - 1, ())
            self.add_extern("aten.randint.low", limits, named, (self.state.seed,), "the seed", is_ordered=True)
        self.state.stream_count += 1
        return self.state.seed, self.state.stream_count - 1

    # --- calls and notes

    def add_note(self, text: str) -> None:
        """Adds a line about the current node, which `explain` shows to the user."""
        self.state.notes.append(NodeNote("lower", self.node.name, text))

    def add_extern(
        self,
        op: str,
        args: Sequence[Value],
        kwargs: Mapping[str, Value],
        results: Sequence[View | Symbol | None],
        reason: str,
        *,
        form: Literal["out", "return", "inplace"] = "return",
        writes: tuple[Ref, ...] = (),
        is_ordered: bool = False,
        holds: tuple[Ref, ...] = (),
    ) -> None:
        """Adds a call of an operator. `reason` says to the user why it is no kernel; for the rest see `ir.Extern`.

        The arguments must be in memory of torch's kind (see `complex_pairs`).
        """
        given = tuple(as_argument(a) for a in args)
        named = tuple((k, as_argument(v)) for k, v in kwargs.items())
        name = f"x{self.state.extern_count}"
        self.state.extern_count += 1
        unknown = self.undefined_symbols([view.size for view in results if isinstance(view, View)])
        rest = (writes, is_ordered, unknown, holds)
        made = Extern(name, op, given, named, tuple(results), (self.origin,), reason, form, *rest)
        facts = schemas.operator_facts(op)
        if facts is not None and not facts.is_capturable:
            made = replace(made, is_capturable=False)
        defined = tuple(s for s in unknown if form == "return" and size_source(made, s) is not None)
        self.state.nodes.append(made if defined == unknown else replace(made, defines=defined))
        for s in defined:
            self.mark_defined(s)


def as_argument(value: Value) -> ir.Argument:
    """A value as an argument of a call or an output; complex numbers must be in memory of torch's kind."""
    assert not isinstance(value, ComplexPair)
    if isinstance(value, tuple):
        return tuple([as_argument(v) for v in value])
    return value


def _with_origin(op: ir.Op, origin: ir.Origin) -> ir.Op:
    """The op as one of that ATen node; the error of a check or an assert names the node and its operator."""
    attrs = op.attrs
    match attrs:
        case ir.Check():
            attrs = replace(attrs, op=origin.op, node=origin.node)
        case ir.Assert():
            attrs = replace(attrs, node=origin.node)
        case ir.Masked():
            attrs = _with_node(attrs, origin.node)
        case _:
            pass
    return ir.Op(op.name, op.args, attrs, op.dtype, op.axes, origin.node)


def _with_node(masked: ir.Masked, node: str) -> ir.Masked:
    """The attributes of a masked op whose body is one of that ATen node."""
    made = [replace(op, node=node) for op in masked.body.ops]
    ops = [replace(op, attrs=_with_node(op.attrs, node)) if isinstance(op.attrs, ir.Masked) else op for op in made]
    return ir.Masked(Body(tuple(ops), masked.body.results), masked.other)
