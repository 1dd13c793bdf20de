"""Lowers a captured graph to a Program: a kernel per computed tensor, views as index maps, extern calls for the rest.

Takes a `Graph` and an `Env`. Gives a Program whose outputs have the sizes, strides and dtypes of the traced ones.
Refuses operators without a rule under options.fallback == "error" (FallbackRefused); else they become extern calls,
with a note. The driver has run the graph passes of `pipeline.py` before. The rest are the steps of `LOWERING_STEPS`
there: `lower_nodes` walks the nodes in order and lowers each by its rule, `deliver_outputs` and `define_symbols` finish
the program. `lower` runs them for a subgraph, which has no stages of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from minductor.core.dtypes import C64, C128
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.capture.captured_graph import COLLECTIVE, HIGHER_ORDER, Graph, Node, TensorMeta
from minductor.frontend.lower.deliver_outputs import deliver_outputs
from minductor.frontend.lower.symbol_definitions import define_symbols
from minductor.frontend.lowering_context.complex_pairs import materialize
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.rule_transaction import lower_by_rule
from minductor.frontend.lowering_context.values import Value, dtypes_in, views_in
from minductor.frontend.rules.table import RULES
from minductor.frontend.rules.views import RULES as VIEW_RULES
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Extern, Kernel, Program
from minductor.target import Env

# Operators whose rules define the symbols of their results; other operators that have such symbols are called.
_ITEM = "aten._local_scalar_dense.default"
_DEFINING_SYMBOLS = (_ITEM, "aten.slice.Tensor", "aten.select.int")


def lower(graph: Graph, env: Env) -> Program:
    """The program of a graph, or of a subgraph of it, that the graph passes have rewritten."""
    return define_symbols(deliver_outputs(lower_nodes(graph, env), env), env)


def lower_nodes(graph: Graph, env: Env) -> Lowering:
    """What lowers a graph, with all of its nodes lowered."""
    return _Walk(graph, env).lowered()


class _Walk:
    """Lowers the nodes of one graph in order."""

    def __init__(self, graph: Graph, env: Env) -> None:
        self.graph = graph
        self.ctx = Lowering(graph, env, lower, frozenset(VIEW_RULES))

    def lowered(self) -> Lowering:
        """What lowers the graph, with its nodes lowered."""
        graph, ctx = self.graph, self.ctx
        ctx.inputs = tuple([self._input(number) for number in range(len(graph.inputs))])
        for constant in graph.constants:
            ctx.bind_given(constant.name, constant.meta, "constant")
        for node in graph.nodes:
            ctx.begin(node)
            count = len(ctx.state.nodes)
            ctx.bind(node.name, self._value_of(node))
            self._order_after(count, node.after)
        return ctx

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
        if isinstance(node.meta, int | float | Expr) and node.op != _ITEM:
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
        is_anywhere = node.op in VIEW_RULES or node.op == _ITEM  # on any device: no kernel of this one is needed
        if not (is_anywhere or self.ctx.is_computable(node.meta, args, in_pairs=(C64, C128))):
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
