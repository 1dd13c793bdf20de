"""Takes away what nothing needs: ops of a body, nodes and buffers of a program.

Takes a body or a program. Gives the same without dead ops, dead nodes and undeclared buffers' declarations; the same
object if nothing is dead. Refuses to drop effects, and writes to storages that the caller can see.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.expressions.expr import Symbol
from minductor.ir.program.nodes import (
    Assert,
    Body,
    Extern,
    Kernel,
    Node,
    Op,
    Program,
    Require,
    SymbolDef,
    awaited,
    makes,
    mentioned,
    reads,
    symbols_in,
    views_of,
    writes,
)


def prune_body(body: Body) -> Body:
    """Without the ops that neither an effect nor a result needs; regions are left as they are."""
    needed = [op.is_effect for op in body.ops]
    for position in body.results:
        needed[position] = True
    for position in range(len(body.ops) - 1, -1, -1):
        if needed[position]:
            for arg in body.ops[position].args:
                needed[arg] = True
    if all(needed):
        return body
    place: list[int] = []
    ops: list[Op] = []
    for op, is_needed in zip(body.ops, needed, strict=True):
        place.append(len(ops))
        if is_needed:
            args = tuple(place[a] for a in op.args)
            ops.append(op if args == op.args else replace(op, args=args))
    return Body(tuple(ops), tuple(place[r] for r in body.results))


def live_nodes(program: Program) -> tuple[Node, ...]:
    """The nodes whose results somebody uses: the caller, an effect, or another such node.

    A write makes part of a version, so a read of a version needs all earlier writers of its storage too.
    """
    storages = {view.ref.storage for output in program.outputs for view in views_of(output)}
    storages.update(buffer.name for buffer in program.buffers if buffer.kind != "local")
    table = program.buffer_table()
    makes_sizes = any(makes(node) for node in program.nodes)  # else nobody has to be searched for symbols
    sizes = set(symbols_in((program.outputs, program.guards))) if makes_sizes else set[Symbol]()
    kept: list[Node] = []
    for node in reversed(program.nodes):
        is_live = _has_effect(node) or not sizes.isdisjoint(makes(node))
        if is_live or any(ref.storage in storages for ref in writes(node)):
            kept.append(node)
            storages.update(ref.storage for ref in (*reads(node), *awaited(node)))
            if makes_sizes:
                sizes.update(mentioned(node, table))
    return program.nodes if len(kept) == len(program.nodes) else tuple(reversed(kept))


def _has_effect(node: Node) -> bool:
    if awaited(node):
        return True  # it was given a place in the order
    match node:
        case Extern(effect=effect):
            return effect
        case Kernel(body=body):
            return any(isinstance(op.attrs, Assert) for op in body.ops)
        case Require():
            return True
        case SymbolDef():
            return False


def with_nodes(program: Program, nodes: tuple[Node, ...]) -> Program:
    """The program with other nodes, and only the buffers that these and the outputs mention."""
    used = {ref.storage for node in nodes for ref in (*reads(node), *writes(node), *awaited(node))}
    used.update(view.ref.storage for output in program.outputs for view in views_of(output))
    buffers = tuple(buffer for buffer in program.buffers if buffer.kind != "local" or buffer.name in used)
    return replace(program, nodes=nodes, buffers=buffers)
