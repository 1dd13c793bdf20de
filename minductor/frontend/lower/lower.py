"""From a captured graph to a Program: one kernel per computed buffer, views as index maps, the rest as extern calls.

Takes a `Graph` and an `Env`. Gives a Program whose outputs have the sizes, strides and dtypes of the traced ones.
Refuses operators without a rule only under options.fallback == "error"; else they become extern calls, with a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from minductor.core.dtypes import C64, C128, F8E4M3FN, F8E5M2, I64, DType, compute_dtype
from minductor.core.errors import FallbackRefused, UnsupportedInput
from minductor.core.expressions.expr import Expr, Kind, Symbol, as_expr, integer, symbol
from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import (
    COLLECTIVE,
    HIGHER_ORDER,
    Arg,
    Graph,
    Meta,
    Node,
    NodeRef,
    Size,
    TensorMeta,
)
from minductor.frontend.graph_passes.dead_code import dead_code, used
from minductor.frontend.graph_passes.fold_copies import WINDOW_WRITES, fold_copies
from minductor.frontend.graph_passes.inline_ordered import inline_ordered
from minductor.frontend.graph_passes.last_uses import Lifetimes, wanted_results
from minductor.frontend.graph_passes.move_scalars import devices, devices_of, move_scalars
from minductor.frontend.graph_passes.select_parts import select_parts
from minductor.frontend.graph_passes.share_rows import share_rows
from minductor.frontend.lower.settle import given_by_caller, settle
from minductor.frontend.lowering_context import long_reductions
from minductor.frontend.lowering_context.attempt import attempt
from minductor.frontend.lowering_context.complex_pairs import whole
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import (
    Operand,
    Pair,
    Term,
    Value,
    count,
    dtypes_in,
    element,
    is_injective,
    is_one,
    is_row_major,
    is_zero,
    row_major,
    sizes,
    span,
    views_in,
)
from minductor.frontend.rules import higher_order
from minductor.ir.program import nodes as ir
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Buffer, Extern, Kernel, NodeNote, Origin, Program, Ref, View
from minductor.target import Env

MAX_CHAIN = 1  # writes into copies that may come before one that gets a kernel of its own
# operators whose rules tell the symbols of their results themselves; others that do are called
_TELLERS = ("aten._local_scalar_dense.default", "aten.slice.Tensor", "aten.select.int")

# what kernels do with a float of 8 bits: eager does little more
_CONVERSIONS = ("aten._to_copy.default", "aten.clone.default", "aten.copy.default", "aten.copy_.default")


def lower(graph: Graph, env: Env) -> Program:
    """Walks the nodes in order; each becomes a value of the environment."""
    graph = select_parts(fold_copies(inline_ordered(move_scalars(graph))))
    return Lowering(dead_code(graph if env.target.is_gpu else share_rows(graph)), env).run()


class Lowering:
    """What a rule is given as `ctx`: the current node's metadata, and the ways to make kernels and extern calls."""

    def __init__(self, graph: Graph, env: Env) -> None:
        self.graph = graph
        self.env = env
        self.is_eager_precise = env.options.precision == "eager"
        self.values: dict[str, Value] = {}
        self.buffers: list[Buffer] = []
        self.nodes: list[ir.Node] = []
        self.notes: list[ir.FusionRefusal | ir.MergedKernel | NodeNote] = []
        self.guards: list[ir.Guard] = []
        self.versions: dict[str, int] = {}
        self._metas = graph.metas()
        self.origin = Origin("", "")
        self.node: Node
        self._wanted = wanted_results(graph)
        shown = (arg for number, arg in enumerate(graph.outputs) if number not in graph.laid)
        self._shown = {arg.name for arg in shown if isinstance(arg, NodeRef)}  # results that only the user sees
        self._lifetimes = Lifetimes(graph)
        self._names: dict[str, list[str]] = {}  # storage -> the names whose values lie there
        self._starts: dict[str, Size] = {}
        self._devices: dict[str, str] = {}
        self.dtypes: dict[str, DType] = {}  # of storages
        self._is_on_one = len(devices_of(graph)) < 2
        self._kernels = 0
        self._externs = 0
        self._uninitialised: set[str] = set()
        self._locals = 0
        self.definitions = {made.symbol: made.body for made in graph.definitions}
        self._open = dict.fromkeys(s for s in graph.symbols if s not in given_by_caller(graph))
        self._numbers = 0
        self.seed: View | None = None
        self._streams = 0
        self.regions: dict[str, Program] = {}
        self.in_flight: dict[str, tuple[View, ...]] = {}  # a collective's result -> what it still reads
        self.conjugates: set[str] = set()  # storages that may hold the conjugates of their elements
        self.joined: dict[View | Pair, View] = {}  # complex numbers in parts -> the same in memory of their own

    def run(self) -> Program:
        inputs = [self._input(number) for number in range(len(self.graph.inputs))]
        for constant in self.graph.constants:
            self._name(constant.name, self._given(constant.name, constant.meta, "constant"))
        for node in self.graph.nodes:
            self.node = node
            self.origin = Origin(node.name, node.op)
            count = len(self.nodes)
            self._name(node.name, self._visit(node))
            self._put_after(count, node.after)
        rebuilt = self.graph.rebuilt
        outputs = tuple(self._output(a, rebuilt.get(number)) for number, a in enumerate(self.graph.outputs))
        self._drop_unread(outputs)
        return Program(
            self.graph.role,
            given_by_caller(self.graph),
            tuple(inputs),
            tuple(self.buffers),
            settle(self.graph, self.nodes, {b.name: b for b in self.buffers}, outputs)
            if self.graph.symbols or self._numbers
            else tuple(self.nodes),
            outputs,
            tuple(self.guards),
            tuple(self.notes),
            tuple(self.regions.values()),
            self._own_objects(outputs),
            tuple(number for number in self.graph.laid if isinstance(outputs[number], View)),
        )

    def _own_objects(self, outputs: Sequence[ir.Argument]) -> tuple[tuple[int, ...], ...]:
        """Outputs that are not the node of which an equal output, or the input, is: each such node's are an object."""
        whole = {i.name: self.values[i.name] for i in self.graph.inputs}
        first = {replace(v, ref=Ref(name, 0)): name for name, v in whole.items() if isinstance(v, View)}
        groups: dict[tuple[View, str], list[int]] = {}
        for number, (arg, view) in enumerate(zip(self.graph.outputs, outputs, strict=True)):
            # of what the caller makes anew only the layout counts
            if isinstance(arg, NodeRef) and isinstance(view, View) and number not in self.graph.rebuilt:
                key = replace(view, ref=Ref(view.ref.storage, 0))
                if first.setdefault(key, arg.name) != arg.name:
                    groups.setdefault((key, arg.name), []).append(number)
        return tuple(tuple(group) for group in groups.values())

    def _output(self, arg: Arg, base: int | None) -> ir.Argument:
        """An output; one that is a view of an input is made of that, whatever the traced program computes there.

        AOTAutograd makes the caller's view of the caller's tensor, by the offset in the storage that it finds here.
        """
        value = self._argument(whole(self, self.value(arg)))
        if base is None or not isinstance(value, View) or not isinstance(arg, NodeRef):
            return value
        given = self.graph.inputs[base]
        meta, input_meta = self._metas[arg.name], given.meta
        if not isinstance(meta, TensorMeta) or not isinstance(input_meta, TensorMeta) or meta.dtype != input_meta.dtype:
            return value
        ref = Ref(given.name, self.versions[given.name])
        # what a write made of the whole tensor is traced as new memory, whose start need not be the tensor's own
        root = next(b for b in self.buffers if b.name == value.ref.storage)
        is_whole = (root.size, root.stride) == (sizes(input_meta.size), sizes(input_meta.stride))
        offset = value.offset if is_whole else as_expr(meta.offset) - as_expr(input_meta.offset)
        first = offset.range[0]
        if first is None or first < 0:  # the traced program computes it elsewhere: the view will be made by replay
            return value
        return View(ref, meta.dtype, sizes(meta.size), sizes(meta.stride), offset)

    def _put_after(self, count: int, names: Sequence[str]) -> None:
        """Those nodes from a position on that are calls or kernels begin when these values have been computed."""
        if not names or count == len(self.nodes):
            return
        made = {ref for node in self.nodes[:count] for ref in ir.writes(node)}
        values = tuple([self.values[name] for name in names])
        refs = tuple(dict.fromkeys(view.ref for view in views_in(values) if view.ref in made))
        for number, node in enumerate(self.nodes[count:], count):
            if isinstance(node, Kernel | Extern):
                self.nodes[number] = replace(node, after=refs)

    def _drop_unread(self, outputs: tuple[ir.Argument, ...]) -> None:
        """Memory that was asked for only as a pattern, e.g. for full_like(empty(...)), is not allocated."""
        if not self._uninitialised:
            return
        used = {view.ref.storage for view in ir.views_of(outputs)}
        used.update(ref.storage for node in self.nodes for ref in (*ir.reads(node), *ir.awaited_refs(node)))
        dropped = self._uninitialised - used
        self.nodes = [n for n in self.nodes if not any(ref.storage in dropped for ref in ir.writes(n))]
        self.buffers = [b for b in self.buffers if b.name not in dropped]

    def _input(self, number: int) -> ir.Input:
        given = self.graph.inputs[number]
        if not isinstance(given.meta, TensorMeta):
            self.values[given.name] = given.meta
            return ir.Input(given.name, as_expr(given.meta))
        self._name(given.name, self._given(given.name, given.meta, "input"))
        return ir.Input(given.name, None, given.is_static, given.is_donated)

    def _given(self, name: str, meta: TensorMeta, kind: str) -> View:
        """A tensor from outside: its pointer is the traced tensor's first element, so that offsets start at 0."""
        size, stride = sizes(meta.size), sizes(meta.stride)
        assert kind in ("input", "constant")
        self.buffers.append(Buffer(name, meta.dtype, size, stride, kind, meta.device))
        self._devices[name], self.dtypes[name] = meta.device, meta.dtype
        self._starts[name] = meta.offset
        if meta.is_conjugate:
            self.conjugates.add(name)
        self.versions[name] = 0
        return View(Ref(name, 0), meta.dtype, size, stride, integer(0))

    def _name(self, name: str, value: Value) -> None:
        """Binds a node's name to its value."""
        self.values[name] = value
        for view in views_in(value):
            self._names.setdefault(view.ref.storage, []).append(name)

    def _visit(self, node: Node) -> Value:
        if isinstance(node.meta, int | float | Expr) and node.op != "aten._local_scalar_dense.default":
            return node.meta  # arithmetic on numbers: the tracer has its value
        args = [self.value(a) for a in node.args]
        if node.op == "getitem":
            of, number = args
            assert isinstance(of, tuple) and isinstance(number, int)
            return of[number]
        kwargs = {name: self.value(a) for name, a in node.kwargs}
        if node.op.startswith((HIGHER_ORDER, COLLECTIVE)):
            kwargs = {name: whole(self, a) for name, a in kwargs.items()}
            return higher_order.call(self, node.op, [whole(self, a) for a in args], kwargs)
        rules, complex_rules, views = self.tables()
        is_complex = any(dtype.kind == "complex" for dtype in dtypes_in((node.meta, *args)))
        rule = (complex_rules if is_complex else rules).get(node.op)
        tells = bool(self._open) and node.op not in _TELLERS and bool(self.undefined(node.meta))
        if rule is not None and not tells and (node.op in views or self.is_computable(node.meta, args, (C64, C128))):
            result = attempt(self, rule, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.extern(node.op, args, kwargs)

    @staticmethod
    def tables() -> tuple[Mapping[str, Callable[..., Value]], ...]:
        """All rules, those for complex numbers, and those that compute nothing; imported late: rules import this."""
        from minductor.frontend.rules.complex import RULES as COMPLEX
        from minductor.frontend.rules.table import RULES
        from minductor.frontend.rules.views import RULES as VIEWS

        return RULES, COMPLEX, VIEWS

    def is_computable(self, meta: Meta, args: Sequence[Value], parted: tuple[DType, ...] = ()) -> bool:
        """Whether kernels know the dtypes at hand, or these in parts, and all is on their device."""
        if not self._is_on_one:
            places = {*devices(meta), *(self._devices[v.ref.storage] for v in views_in(tuple(args)))}
            if len(places) > 1 or not all(self.env.target.is_here(place) for place in places):
                return False
        found = [d for d in dtypes_in((meta, *args)) if d not in parted]
        unknown = [d for d in found if d.kind == "complex" or d.itemsize == 0 or d.name[:2] == "f8"]
        is_conversion = self.env.target.has_fp8 and self.node.op in _CONVERSIONS
        return not unknown or (is_conversion and all(d in (F8E4M3FN, F8E5M2) for d in unknown))

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
        match value:
            case View(ref):
                version = self.versions[ref.storage]
                return value if version == ref.version else replace(value, ref=Ref(ref.storage, version))
            case Pair(re, im):
                return Pair(*(replace(v, ref=Ref(v.ref.storage, self.versions[v.ref.storage])) for v in (re, im)))
            case tuple():
                return tuple([self.newest(v) for v in value])
            case _:
                return value

    # --- numbers

    def undefined(self, value: object) -> tuple[Symbol, ...]:
        """The symbols in a value that data decides and that no node has told yet."""
        found: dict[Symbol, None] = {}
        for s in ir.symbols_in(value) if self._open else ():
            found.update(dict.fromkeys(self.undefined(self.definitions[s]) if s in self.definitions else (s,)))
        return tuple(s for s in found if s in self._open)

    def told(self, made: Symbol) -> None:
        """A call about to be added gives that number."""
        self._open.pop(made, None)

    def define(self, made: Symbol, body: Callable[[Builder], int]) -> None:
        """`made` is what the body computes from other numbers."""
        b = Builder()
        self.nodes.append(ir.SymbolDef(made, b.build([body(b)]), (self.origin,)))
        self._open.pop(made, None)

    def new_symbol(self, kind: Kind) -> Symbol:
        """A number that the tracer has no name for."""
        self._numbers += 1
        return symbol(f"n{self._numbers - 1}", kind, None, None)

    def read_scalar(self, x: View, made: Symbol) -> None:
        """`made` is the one element of a tensor."""
        op = "aten._local_scalar_dense.default"
        self.notes.append(NodeNote("lower", self.node.name, f"{op}: {schemas.reason(op)}"))
        self.add_extern(op, (x,), {}, (made,), schemas.reason(op))
        self._open.pop(made, None)

    # --- what rules ask for

    @property
    def meta(self) -> TensorMeta:
        """The node's result; for several results use `metas`."""
        assert isinstance(self.node.meta, TensorMeta)
        return self.node.meta

    @property
    def metas(self) -> tuple[TensorMeta, ...]:
        assert isinstance(self.node.meta, tuple)
        return tuple(m for m in self.node.meta if isinstance(m, TensorMeta))

    @contextmanager
    def one_of_several(self, meta: TensorMeta) -> Iterator[None]:
        """Within it the node has one result, so that a rule for one tensor serves a list of them."""
        node = self.node
        self.node = replace(node, meta=meta)
        try:
            yield
        finally:
            self.node = node

    def is_wanted(self, number: int) -> bool:
        """Whether anybody uses that result of an operator with several."""
        return number in self._wanted.get(self.node.name, ())

    @property
    def device(self) -> str:
        """Where the current node computes."""
        return next(devices((self.node.meta, *map(self.traced_meta, self.node.args))), "cpu")

    def buffer(
        self, dtype: DType, size: Sequence[Expr], stride: Sequence[Expr] | None = None, device: str = ""
    ) -> View:
        """A new storage of our own, row-major if no stride is given; whoever asks writes all of it."""
        name = f"buf{self._locals}"
        self._locals += 1
        strides = row_major(size) if stride is None else tuple(stride)
        self._devices[name] = where = device or self.device
        self.dtypes[name] = dtype
        self.buffers.append(Buffer(name, dtype, tuple(size), strides, device=where))
        self.versions[name] = 0
        return View(Ref(name, 0), dtype, tuple(size), strides, integer(0))

    def result(self, meta: TensorMeta | None = None) -> View:
        """A new storage with a result's traced layout."""
        like = self.meta if meta is None else meta
        made = self.buffer(like.dtype, sizes(like.size), sizes(like.stride), like.device)
        if like.is_conjugate:
            self.conjugates.add(made.ref.storage)
        return made

    def next_version(self, view: View) -> View:
        """The version that the next write of this view's storage makes."""
        self.versions[view.ref.storage] += 1
        return replace(view, ref=Ref(view.ref.storage, self.versions[view.ref.storage]))

    # --- writing over values that are dead

    def is_dead(self, x: View, node: Node | None = None) -> bool:
        """Whether a node (the current one) is the last to want x's storage, so that its result may be made there.

        An input is so if it is donated, or if the graph overwrites all of it later and this node's result is not
        wanted after that; the result must have x's layout. A window's tensor may be wanted once more: by the write of
        this result into the same window, which then has nothing to do.
        """
        node, lives = node or self.node, self._lifetimes
        now, like, storage = lives.position[node.name], node.meta, x.ref.storage
        if not isinstance(like, TensorMeta) or not is_injective(x) or x.dtype != self.dtypes[storage]:
            return False
        if (x.dtype, x.size, x.stride) != (like.dtype, sizes(like.size), sizes(like.stride)):
            return False
        outer = lives.enclosing(node)
        names = self._names.get(storage, ())
        if any(lives.is_used_after(name, now, but=outer) for name in names):
            return False
        if not self._may_hold(storage, node):
            return False
        if outer is None or not any(lives.is_used_after(name, now) for name in names):
            return True
        around = self.value(outer.args[0])
        return isinstance(around, View) and self.is_dead(around, outer)

    def is_unwanted(self, storage: str) -> bool:
        """Whether nobody reads a storage's present version but the current node, and that only once."""
        lives, names = self._lifetimes, self._names.get(storage, ())
        given = (*self.node.args, *(value for _, value in self.node.kwargs))
        if sum(name in names for arg in given for name in used(arg)) > 1:
            return False
        now = lives.position[self.node.name]
        return not any(lives.is_used_after(name, now) for name in names) and self._may_hold(storage, self.node)

    def _may_hold(self, storage: str, node: Node) -> bool:
        """Whether a node's result may be in a storage: not in a constant, nor in what a collective still reads, nor in
        an input that is not written later or of which the result would still be wanted then."""
        lives = self._lifetimes
        if any(view.ref.storage == storage for sent in self.in_flight.values() for view in sent):
            return False
        given = next((i for i in self.graph.inputs if i.name == storage), None)
        if given is None:  # a call that returned it may have left gaps
            made = next(b for b in reversed(self.buffers) if b.name == storage)
            return made.kind == "local" and span(made.size, made.stride) == count(made.size)
        end = lives.end if given.is_donated else lives.overwritten.get(storage, -1)
        return lives.position[node.name] < end and lives.last_use(node.name, self._is_view) <= end

    def _is_view(self, node: Node) -> bool:
        """Whether a node's result may be in the memory of its first argument."""
        facts = schemas.facts(node.op)
        return (
            node.op == "getitem"
            or node.op in self.tables()[2]
            or (facts is not None and any(place is not None for place in facts.returned))
        )

    def is_fusable(self, x: View) -> bool:
        """Whether x is pointwise and nobody needs it in memory, so that a write into a copy of it costs no copy."""
        depth, storage = 0, x.ref.storage
        for node in reversed(self.nodes):
            if storage in {ref.storage for ref in ir.reads(node)} and isinstance(node, Extern):
                return False
            if storage not in {ref.storage for ref in ir.writes(node)}:
                continue
            if not isinstance(node, Kernel) or self.versions[storage] > 0 or depth > MAX_CHAIN:
                return False
            if any(isinstance(op.attrs, ir.Reduce | ir.Scan | ir.Atomic) for op in node.body.ops):
                return False
            if node.origins[0].op not in WINDOW_WRITES:
                return bool(ir.reads(node))  # a constant is written at the speed of memory
            depth, storage = depth + 1, ir.reads(node)[-1].storage  # the written tensor is read last
        return False

    def writable(self, x: View) -> View:
        """x itself if its old value is dead and no other argument is in its memory, else a copy in the result's layout.

        For the first argument of a functional write, which then makes a `next_version` of what it is given.
        """
        if self.is_dead(x) and self._is_alone(x):
            return x
        return self.map(lambda loop: loop.load(x))

    def _is_alone(self, x: View) -> bool:
        """Whether no argument of the current node but the first is in x's memory."""
        others = [self.value(arg) for arg in (*self.node.args[1:], *(arg for _, arg in self.node.kwargs))]
        return all(view.ref.storage != x.ref.storage for view in views_in(tuple(others)))

    def store(self, loop: Loop, out: View, coords: Sequence[Expr], value: Term) -> View:
        """Ends a kernel: `value` goes to `coords` of `out`, rounded by the store."""
        if any(is_zero(axis.extent) for axis in loop.axes):
            return self.uninitialised(out) if is_zero_sized(out) else out
        stored = value.cast(out.dtype if self.is_eager_precise else compute_dtype(out.dtype))
        loop.b.store(out.ref, element(out, coords), stored.at)
        self.add_kernel(loop)
        return out

    def add_kernel(self, loop: Loop) -> None:
        """Ends a kernel that has its effects."""
        body = loop.body()
        if any(isinstance(op.attrs, ir.Check | ir.Assert) for op in body.ops):
            body = replace(body, ops=tuple([_with_origin(op, self.origin) for op in body.ops]))
        self.nodes.append(Kernel(f"k{self._kernels}", tuple(loop.axes), body, (self.origin,)))
        self._kernels += 1

    def uninitialised(self, out: View) -> View:
        """Allocates without writing: for `empty`, and for results without elements."""
        kwargs = {"dtype": out.dtype, "device": ir.Token("device", self._devices[out.ref.storage])}
        given = (tuple(out.size), tuple(out.stride))
        self.add_extern("aten.empty_strided.default", given, kwargs, (out,), "nothing to compute")
        self._uninitialised.add(out.ref.storage)
        return out

    def random_stream(self) -> tuple[View, int]:
        """The call's seed, drawn once from torch's generator, and a number that tells this operator from others."""
        if self.seed is None:
            self.seed = self.buffer(I64, ())
            named = {"dtype": I64, "device": ir.Token("device", self.device)}
            limits = (-(2**63), 2**63 - 1, ())
            self.add_extern("aten.randint.low", limits, named, (self.seed,), "the seed", is_ordered=True)
        self._streams += 1
        return self.seed, self._streams - 1

    def map(self, fn: Callable[[Loop], Term], meta: TensorMeta | None = None) -> View:
        """A kernel over the elements of the result; `fn` gives the value at `loop.coords`."""
        out = self.result(meta)
        if is_zero_sized(out):
            return self.uninitialised(out)
        loop = Loop(out.size)
        return self.store(loop, out, loop.coords, fn(loop))

    def pointwise(
        self, fn: Callable[..., Term], *operands: Operand, compute: DType | None = None, meta: TensorMeta | None = None
    ) -> View:
        """`fn` of the operands' elements, each as the compute dtype of `compute` (by default the result's)."""
        dtype = compute or (self.meta if meta is None else meta).dtype
        return self.map(lambda loop: fn(*(loop.load(x, None, dtype) for x in operands)), meta)

    def reduction(
        self,
        out: View,
        extents: Sequence[Expr],
        reduced: Sequence[int],
        value: Callable[[Loop, tuple[Expr, ...]], Term | Sequence[Term]],
        how: str,
        finish: Callable[[Term], Term] | None = None,
    ) -> View:
        """`value` at each point of `extents`, joined over the dimensions `reduced`; `out` has the kept ones, or all.

        The kernel's axes are the kept dimensions in order, then the reduced ones.
        """
        zero = integer(0)
        kept = [d for d in range(len(extents)) if d not in reduced]
        places = kept if len(out.size) < len(extents) else [d if d in kept else None for d in range(len(extents))]
        at = [None if d is None else kept.index(d) for d in places]  # of each of out's dimensions, among the kept ones
        if (cut := long_reductions.cut(extents, reduced, value, self.env.target)) is not None:
            extents, reduced, value = long_reductions.partial(self, extents, reduced, value, how, cut)
            kept = [d for d in range(len(extents)) if d not in reduced]
        loop = Loop([extents[d] for d in (*kept, *reduced)])
        by_dim = dict(zip((*kept, *reduced), loop.coords, strict=True))
        found = value(loop, tuple(by_dim[d] for d in range(len(extents))))
        terms = [found] if isinstance(found, Term) else list(found)
        joined = loop.reduce(terms, range(len(kept), len(extents)), how)
        coords = [zero if n is None else loop.coords[n] for n in at]
        return self.store(loop, out, coords, joined if finish is None else finish(joined))

    def window(self, base: View, meta: TensorMeta | None = None) -> View:
        """A view that the tracer made of `base`: its own size and stride, its offset relative to the traced base."""
        like = self.meta if meta is None else meta
        return View(base.ref, base.dtype, sizes(like.size), sizes(like.stride), base.offset + self._shift(like))

    def _shift(self, meta: TensorMeta) -> Expr:
        base = self.traced(self.node.args[0])
        return as_expr(meta.offset) - as_expr(base.offset)

    def traced(self, arg: Arg) -> TensorMeta:
        """The metadata of an argument of the current node."""
        meta = self.traced_meta(arg)
        assert isinstance(meta, TensorMeta)
        return meta

    def start_of(self, x: View) -> Size:
        """Where the first element of x's buffer is in its storage: inputs and what calls return may be windows."""
        return self._starts.get(x.ref.storage, 0)

    def traced_meta(self, arg: Arg) -> Meta:
        return self._metas[arg.name] if isinstance(arg, NodeRef) else None

    # --- extern calls

    def extern(self, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], reason: str = "") -> Value:
        """A call of an ATen operator; its results are new storages, or versions and views of its arguments' ones."""
        facts = schemas.facts(op)
        if facts is None:
            raise UnsupportedInput(self.node.name, f"the operator {op}")
        args, kwargs = [whole(self, a) for a in args], {name: whole(self, a) for name, a in kwargs.items()}
        if facts.copy_op:
            return self._copied_view(facts.copy_op, args, kwargs)
        why = reason or schemas.reason(op)
        if not reason and not schemas.is_expected(op) and self.env.options.fallback == "error":
            raise FallbackRefused(op, why, node=self.node.name)
        self.notes.append(NodeNote("lower", self.node.name, f"{op}: {why}"))
        meta = self.node.meta
        if facts.written:
            metas = meta if isinstance(meta, tuple) and len(facts.returned) > 1 else (meta,) * len(facts.returned)
            values = self.in_place(op, args, kwargs, metas, why)
            return values[0] if len(values) == 1 else values or None
        if op in schemas.IN_PLACE_FORMS and self._has_dead_target(args):
            return self.in_place(schemas.IN_PLACE_FORMS[op], args, kwargs, (meta,), why)[0]
        if isinstance(meta, TensorMeta):
            out = self.result(meta)
            dense = is_row_major(out.size, out.stride) and not is_zero_sized(out)
            if facts.out_op and dense and not self.undefined(out.size):
                self.add_extern(facts.out_op, args, kwargs, (out,), why, form="out", is_ordered=facts.is_ordered)
            else:
                self.add_extern(op, args, kwargs, (out,), why, is_ordered=facts.is_ordered)
                self._starts[out.ref.storage] = meta.offset
            return out
        row, tree = higher_order.new_results(self, meta if isinstance(meta, tuple) else ())
        self.add_extern(op, args, kwargs, row, why, is_ordered=facts.is_ordered)
        return tree if isinstance(meta, tuple) else None

    def _has_dead_target(self, args: Sequence[Value]) -> bool:
        """Whether the first argument may be written over."""
        target = args[0]
        return (
            isinstance(target, View) and not is_zero_sized(target) and self.is_dead(target) and self._is_alone(target)
        )

    def _copied_view(self, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A view that changes the dtype becomes a copy: memory that is planned has no aliases that the plan ignores.

        Its `out=` form keeps the strides of the view, which the form that returns a new tensor would not.
        """
        if not isinstance(self.node.meta, TensorMeta):
            raise UnsupportedInput(self.node.name, f"views whose number data decides ({self.node.op})")
        out = self.result()
        if any(is_zero(s) and not is_one(n) for n, s in zip(out.size, out.stride, strict=True)):
            raise UnsupportedInput(self.node.name, f"an overlapping view ({self.node.op})")
        reason = "its view is copied"
        self.notes.append(NodeNote("lower", self.node.name, f"{op}: {reason}"))
        if op == "aten._conj_copy.out" and self.node.name in self._shown:  # with the strides that its argument has
            self.add_extern("aten.conj_physical.default", args, kwargs, (out,), reason)
        else:
            self.add_extern(op, args, kwargs, (out,), reason, form="out")
        return out

    def in_place(
        self, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], metas: Sequence[Meta], why: str
    ) -> tuple[Value, ...]:
        """A call that writes arguments: its results are these after the write, or new tensors.

        The call is given the versions before the write.
        """
        facts = schemas.facts(op)
        assert facts is not None
        by_place: dict[int | str, Value] = {**dict(enumerate(args)), **kwargs}
        by_place.update((n, kwargs[name]) for n, name in enumerate(schemas.names(op)) if name in kwargs)
        changed = [v for place in facts.written for v in views_in(by_place.get(place))]
        results: list[View | Symbol | None] = []
        values: list[Value] = []
        for place, meta in zip(facts.returned, metas, strict=True):
            row, value = higher_order.new_results(self, meta) if place is None else ([None], by_place[place])
            results += row
            values.append(value)
        writes = tuple(self.next_version(v).ref for v in {v.ref.storage: v for v in changed}.values())
        form = "inplace" if all(r is None for r in results) else "return"
        made = results if form == "return" else ()
        self.add_extern(op, args, kwargs, made, why, form=form, writes=writes, is_ordered=facts.is_ordered)
        return tuple(self.newest(v) for v in values)

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
        given = tuple(self._argument(a) for a in args)
        named = tuple((k, self._argument(v)) for k, v in kwargs.items())
        name = f"x{self._externs}"
        self._externs += 1
        unknown = self.undefined([view.size for view in results if isinstance(view, View)])
        rest = (writes, is_ordered, unknown, holds)
        made = Extern(name, op, given, named, tuple(results), (self.origin,), reason, form, *rest)
        facts = schemas.facts(op)
        if facts is not None and not facts.is_capturable:
            made = replace(made, is_capturable=False)
        told = tuple(s for s in unknown if form == "return" and ir.size_source(made, s) is not None)
        self.nodes.append(made if told == unknown else replace(made, defines=told))
        for s in told:
            self._open.pop(s)

    def _argument(self, value: Value) -> ir.Argument:
        assert not isinstance(value, Pair)  # calls are given complex memory
        if isinstance(value, tuple):
            return tuple([self._argument(v) for v in value])
        return value


def _with_origin(op: ir.Op, origin: ir.Origin) -> ir.Op:
    """A check or assert whose error names the ATen node and its operator."""
    match op.attrs:
        case ir.Check():
            return replace(op, attrs=replace(op.attrs, op=origin.op, node=origin.node))
        case ir.Assert():
            return replace(op, attrs=replace(op.attrs, node=origin.node))
        case _:
            return op


def is_zero_sized(view: View) -> bool:
    return any(is_zero(n) for n in view.size)
