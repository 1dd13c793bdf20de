"""Lowers a captured graph to a Program: a kernel per computed tensor, views as index maps, extern calls for the rest.

Takes a `Graph` and an `Env`. Gives a Program whose outputs have the sizes, strides and dtypes of the traced ones.
Refuses operators without a rule under options.fallback == "error" (FallbackRefused); else they become extern calls,
with a note. `lower` walks the nodes in order and lowers each by its rule; the driver has run the graph passes of
`pipeline.py` before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from minductor.core.dtypes import C64, C128
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.capture.captured_graph import COLLECTIVE, HIGHER_ORDER, Arg, Graph, Node, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import sizes
from minductor.frontend.lower.symbol_definitions import place_definitions
from minductor.frontend.lowering_context.complex_pairs import materialize
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.lowering import Lowering, as_argument
from minductor.frontend.lowering_context.rule_transaction import lower_by_rule
from minductor.frontend.lowering_context.values import Value, dtypes_in, views_in
from minductor.frontend.rules.table import RULES
from minductor.frontend.rules.views import RULES as VIEW_RULES
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Extern, Kernel, Program, Ref, View
from minductor.target import Env

# Operators whose rules define the symbols of their results; other operators that have such symbols are called.
_DEFINING_SYMBOLS = ("aten._local_scalar_dense.default", "aten.slice.Tensor", "aten.select.int")


def lower(graph: Graph, env: Env) -> Program:
    """The program of a graph, or of a subgraph of it, that the graph passes have rewritten."""
    return _Walk(graph, env).program()


class _Walk:
    """Lowers the nodes of one graph in order."""

    def __init__(self, graph: Graph, env: Env) -> None:
        self.graph = graph
        self.ctx = Lowering(graph, env, lower, frozenset(VIEW_RULES))

    def program(self) -> Program:
        """The lowered graph."""
        graph, ctx = self.graph, self.ctx
        inputs = tuple([self._input(number) for number in range(len(graph.inputs))])
        for constant in graph.constants:
            ctx.bind_given(constant.name, constant.meta, "constant")
        for node in graph.nodes:
            ctx.begin(node)
            count = len(ctx.state.nodes)
            ctx.bind(node.name, self._value_of(node))
            self._order_after(count, node.after)
        outputs = tuple([self._output(a, graph.rebuilt.get(number)) for number, a in enumerate(graph.outputs)])
        self._drop_unread(outputs)
        state, symbols = ctx.state, graph.symbols_of_caller()
        return Program(
            graph.role,
            symbols,
            inputs,
            tuple(state.buffers.values()),
            place_definitions(graph, state.nodes, state.buffers, outputs)
            if graph.symbols or state.number_count
            else tuple(state.nodes),
            outputs,
            state.guards,
            tuple(state.notes),
            tuple(state.regions.values()),
            self._distinct_objects(outputs),
            tuple(number for number in graph.fixed_stride_outputs if isinstance(outputs[number], View)),
            tuple((s, hint) for s, hint in ctx.hints if s in symbols),
        )

    def _input(self, number: int) -> ir.Input:
        given = self.graph.inputs[number]
        if not isinstance(given.meta, TensorMeta):
            self.ctx.bind(given.name, given.meta)
            return ir.Input(given.name, as_expr(given.meta))
        self.ctx.bind_given(given.name, given.meta, "input")
        return ir.Input(given.name, None, given.is_static, given.is_donated)

    def _value_of(self, node: Node) -> Value:
        """Adds what computes a node, by its rule or as an extern call, and returns its value."""
        ctx = self.ctx
        if isinstance(node.meta, int | float | Expr) and node.op != "aten._local_scalar_dense.default":
            return node.meta  # arithmetic on numbers: the tracer has its value
        args = [ctx.value(a) for a in node.args]
        if node.op == "getitem":
            of, number = args
            assert isinstance(of, tuple) and isinstance(number, int)
            return of[number]
        kwargs = {name: ctx.value(a) for name, a in node.kwargs}
        if node.op.startswith((HIGHER_ORDER, COLLECTIVE)):
            from minductor.frontend.rules import higher_order

            kwargs = {name: materialize(ctx, a) for name, a in kwargs.items()}
            return higher_order.call(ctx, node.op, [materialize(ctx, a) for a in args], kwargs)
        rule = self._rule(node, args)
        return extern(ctx, node.op, args, kwargs) if rule is None else lower_by_rule(ctx, rule, args, kwargs)

    def _rule(self, node: Node, args: Sequence[Value]) -> Callable[..., Value] | None:
        """The rule that lowers a node with such arguments; None if the node becomes an extern call."""
        if node.op not in _DEFINING_SYMBOLS and self.ctx.undefined_symbols(node.meta):
            return None
        is_possible = node.op in VIEW_RULES or self.ctx.is_computable(node.meta, args, in_pairs=(C64, C128))
        if not is_possible:
            return None
        if any(dtype.kind == "complex" for dtype in dtypes_in((node.meta, *args))):
            from minductor.frontend.rules.complex import RULES as COMPLEX_RULES

            return COMPLEX_RULES.get(node.op)
        return RULES.get(node.op)

    def _order_after(self, count: int, names: Sequence[str]) -> None:
        """Makes the calls and kernels from position `count` on wait for the values of those names."""
        nodes = self.ctx.state.nodes
        if not names or count == len(nodes):
            return
        made = {ref for node in nodes[:count] for ref in ir.writes(node)}
        values = tuple([self.ctx.values[name] for name in names])
        refs = tuple(dict.fromkeys(view.ref for view in views_in(values) if view.ref in made))
        for number, node in enumerate(nodes[count:], count):
            if isinstance(node, Kernel | Extern):
                nodes[number] = replace(node, after=refs)

    def _output(self, arg: Arg, base: int | None) -> ir.Argument:
        """An output. If it is a view of input number `base`, it is made of that input's memory.

        AOTAutograd replays such a view on the caller's tensor, by the offset in the storage that it finds here. What
        the traced program computes for it need not be that view.
        """
        ctx = self.ctx
        value = as_argument(materialize(ctx, ctx.value(arg)))
        if base is None or not isinstance(value, View) or not isinstance(arg, NodeRef):
            return value
        given = self.graph.inputs[base]
        meta, input_meta = ctx.traced_meta(arg), given.meta
        if not isinstance(meta, TensorMeta) or not isinstance(input_meta, TensorMeta) or meta.dtype != input_meta.dtype:
            return value
        ref = Ref(given.name, ctx.state.versions[given.name])
        # A write of the whole tensor is traced as new memory, whose start need not be the tensor's own.
        root = ctx.buffer_of(value)
        is_whole = (root.size, root.stride) == (sizes(input_meta.size), sizes(input_meta.stride))
        offset = value.offset if is_whole else as_expr(meta.offset) - as_expr(input_meta.offset)
        first = offset.range[0]
        if first is None or first < 0:  # the traced program computes it elsewhere: the view will be made by replay
            return value
        return View(ref, meta.dtype, sizes(meta.size), sizes(meta.stride), offset)

    def _distinct_objects(self, outputs: Sequence[ir.Argument]) -> tuple[tuple[int, ...], ...]:
        """The numbers of outputs that must be new tensor objects, grouped: the outputs of a group are one object.

        Such an output is the same view of the same memory as an input or an earlier output, but another node of the
        graph. All other outputs that are the same view are one object, as in eager.
        """
        given = {i.name: self.ctx.values[i.name] for i in self.graph.inputs}
        first = {replace(v, ref=Ref(name, 0)): name for name, v in given.items() if isinstance(v, View)}
        groups: dict[tuple[View, str], list[int]] = {}
        for number, (arg, view) in enumerate(zip(self.graph.outputs, outputs, strict=True)):
            # The caller replays an output in `rebuilt` as a view of an input, and uses the layout only.
            if isinstance(arg, NodeRef) and isinstance(view, View) and number not in self.graph.rebuilt:
                key = replace(view, ref=Ref(view.ref.storage, 0))
                if first.setdefault(key, arg.name) != arg.name:
                    groups.setdefault((key, arg.name), []).append(number)
        return tuple(tuple(group) for group in groups.values())

    def _drop_unread(self, outputs: tuple[ir.Argument, ...]) -> None:
        """Drops uninitialised storages that nothing reads: those of full_like(empty(...)), say."""
        state = self.ctx.state
        if not state.uninitialised:
            return
        used = {view.ref.storage for view in ir.views_of(outputs)}
        used.update(ref.storage for node in state.nodes for ref in (*ir.reads(node), *ir.awaited_refs(node)))
        dropped = state.uninitialised - used
        state.nodes = [n for n in state.nodes if not any(ref.storage in dropped for ref in ir.writes(n))]
        state.buffers = {name: b for name, b in state.buffers.items() if name not in dropped}
