"""Numbers that are known once per call: where each is defined, and where what has to hold of it is checked.

Takes a graph and its lowered nodes. Gives the nodes with each definition of a symbol before the first who mentions it,
and each fact about what data decides behind the definitions and before those who rely on it. Refuses a symbol that
nothing tells; the graph then runs in eager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.expr import Symbol
from minductor.frontend.capture.captured_graph import Graph
from minductor.ir.program import nodes as ir
from minductor.ir.program.nodes import Buffer, Require, SymbolDef


def place_definitions(
    graph: Graph, nodes: Sequence[ir.Node], buffers: Mapping[str, Buffer], outputs: object
) -> tuple[ir.Node, ...]:
    """The nodes with definitions and facts among them; see above."""
    known = set(graph.symbols_of_caller())
    definitions = {made.symbol: made.body for made in graph.definitions}
    waiting = [fact for fact in graph.facts if not known.issuperset(ir.symbols_in(fact.body))]
    found: list[ir.Node] = []

    def need(value: object, own: Iterable[Symbol] = ()) -> None:
        """Defines what `value` mentions."""
        for used in ir.symbols_in(value):
            if used.kind not in ir.CALL_SYMBOL_KINDS or used in known or used in own:
                continue
            if used not in definitions:
                raise UnsupportedInput("a size", f"decided by data in a way that no result tells ({used})")
            need(definitions[used])
            known.add(used)
            found.append(SymbolDef(used, definitions[used]))

    for guard in graph.guards:
        need(guard.body)
        found.append(Require(guard.body, guard.message))
    for node in nodes:
        used = ir.required_symbols(node, buffers)
        if waiting and not isinstance(node, SymbolDef | Require):
            touched = set(used)
            for fact in [f for f in waiting if not touched.isdisjoint(ir.symbols_in(f.body))]:
                if known.issuperset(ir.symbols_in(fact.body)):
                    found.append(Require(fact.body, fact.message))
                    waiting.remove(fact)
        made = ir.defined_symbols(node)
        need(used, made)
        found.append(node)
        known.update(made)
    need(outputs)
    found += [Require(f.body, f.message) for f in waiting if known.issuperset(ir.symbols_in(f.body))]
    return tuple(found)
