"""The step of `lower` that puts definitions of symbols, and checks of facts about them, among the lowered nodes.

Takes a `Lowering` with nodes and outputs. Gives the program: the nodes with a `SymbolDef` before the first node that
uses its symbol, and a `Require` for each traced fact about symbols that data decides: after their definitions and
before the first node that uses them. Refuses (UnsupportedInput) a symbol that no input, result or formula defines; the
graph then runs in eager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Symbol
from minductor.frontend.capture.captured_graph import Graph
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Origin, Program, Require, SymbolDef
from minductor.target import Env


def define_symbols(ctx: Lowering, env: Env) -> Program:
    """The program that was lowered, on any target, with definitions and checks of its symbols."""
    del env
    program = ctx.program()
    if not (ctx.graph.symbols or ctx.state.number_count):
        return program
    return replace(program, nodes=_with_definitions(ctx, program))


def _with_definitions(ctx: Lowering, program: Program) -> tuple[ir.Node, ...]:
    """The nodes, with a definition before the first use of each symbol and a check for each guard and fact."""
    graph, buffers = ctx.graph, program.buffer_table()
    known = set(graph.symbols_of_caller())
    definitions = {made.symbol: made.body for made in graph.definitions}
    waiting = [fact for fact in graph.facts if not known.issuperset(ir.symbols_in(fact.body))]
    found: list[ir.Node] = []

    def define_symbols_in(value: object, origins: tuple[Origin, ...], made: Iterable[Symbol] = ()) -> None:
        """Adds definitions, for those origins, of the symbols in `value` that are not known yet and not in `made`."""
        for used in ir.symbols_in(value):
            if used.kind not in ir.CALL_SYMBOL_KINDS or used in known or used in made:
                continue
            if used not in definitions:
                raise UnsupportedInput("a size", f"decided by data ({used}), which no result of a call has")
            define_symbols_in(definitions[used], origins)
            known.add(used)
            found.append(SymbolDef(used, definitions[used], origins))

    for guard in graph.guards:
        origins = _origin_of(graph, guard.body)
        define_symbols_in(guard.body, origins)
        found.append(Require(guard.body, guard.message, origins))
    for node in program.nodes:
        used = ir.required_symbols(node, buffers)
        if waiting and not isinstance(node, SymbolDef | Require):
            touched = set(used)
            for fact in [f for f in waiting if not touched.isdisjoint(ir.symbols_in(f.body))]:
                if known.issuperset(ir.symbols_in(fact.body)):
                    found.append(Require(fact.body, fact.message, node.origins))
                    waiting.remove(fact)
        made = ir.defined_symbols(node)
        define_symbols_in(used, node.origins, made)
        found.append(node)
        known.update(made)
    define_symbols_in(program.outputs, _origin_of(graph, program.outputs))
    late = [fact for fact in waiting if known.issuperset(ir.symbols_in(fact.body))]
    found += [Require(fact.body, fact.message, _origin_of(graph, fact.body)) for fact in late]
    return tuple(found)


def _origin_of(graph: Graph, value: object) -> tuple[Origin, ...]:
    """The first ATen node that has one of the symbols in a value: a parameter of the graph or else a node."""
    wanted = {*ir.symbols_in(value)}
    given = [(each, Origin(each.name, "placeholder")) for each in graph.inputs]
    named = [*given, *((each, Origin(each.name, each.op)) for each in graph.nodes)]
    found = [origin for each, origin in named if not wanted.isdisjoint(ir.symbols_in(each.meta))]
    return (*found, *(origin for _, origin in reversed(named)))[:1]
