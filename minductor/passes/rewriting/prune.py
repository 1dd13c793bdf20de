"""Dead code elimination: removes ops of a body, and nodes and buffers of a program, that nothing needs.

Takes a body or a program. Gives it without dead ops, or without dead nodes and the buffers that only those used; the
same object if nothing is dead. Refuses to remove effects, and writes to storages that the caller can see.
"""

from __future__ import annotations

from collections.abc import Set
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
    Ref,
    Require,
    Store,
    SymbolDef,
    awaited_refs,
    defined_symbols,
    reads,
    required_symbols,
    symbols_in,
    views_of,
    writes,
)


def prune_body(body: Body, dropped: Set[Ref] = frozenset()) -> Body:
    """The body without stores of `dropped` versions, and without the ops that no effect and no result needs.

    The bodies of masked ops stay as they are.
    """
    needed = [
        op.is_effect and not (dropped and isinstance(op.attrs, Store) and op.attrs.ref in dropped) for op in body.ops
    ]
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
            ops.append(op if args == op.args else Op(op.name, args, op.attrs, op.dtype, op.axes, op.node))
    return Body(tuple(ops), tuple(place[r] for r in body.results))


def drop_effect(_: Op) -> bool:
    """Keeps no effect of a spliced body: the value of its store is used directly."""
    return False


def live_nodes(program: Program) -> tuple[Node, ...]:
    """The nodes whose results are used: by the caller, by an effect, or by another live node.

    A node may write only part of a storage, so a read of a version also needs all earlier writers of that storage.
    """
    storages = {view.ref.storage for output in program.outputs for view in views_of(output)}
    storages.update(buffer.name for buffer in program.buffers if buffer.kind != "local")
    table = program.buffer_table()
    makes_sizes = any(defined_symbols(node) for node in program.nodes)  # else no node has to be searched for symbols
    sizes = set(symbols_in((program.outputs, program.guards))) if makes_sizes else set[Symbol]()
    kept: list[Node] = []
    for node in reversed(program.nodes):
        is_live = _has_effect(node) or not sizes.isdisjoint(defined_symbols(node))
        if is_live or any(ref.storage in storages for ref in writes(node)):
            kept.append(node)
            storages.update(ref.storage for ref in (*reads(node), *awaited_refs(node)))
            if makes_sizes:
                sizes.update(required_symbols(node, table))
    return program.nodes if len(kept) == len(program.nodes) else tuple(reversed(kept))


def _has_effect(node: Node) -> bool:
    """Whether a node must run even if no node uses its results."""
    if awaited_refs(node):
        return True  # the user asked for its place in the order, so it has to run
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
    """The program with these nodes, and with only those buffers of its own that they or the outputs use."""
    used = {ref.storage for node in nodes for ref in (*reads(node), *writes(node), *awaited_refs(node))}
    used.update(view.ref.storage for output in program.outputs for view in views_of(output))
    buffers = tuple(buffer for buffer in program.buffers if buffer.kind != "local" or buffer.name in used)
    return replace(program, nodes=nodes, buffers=buffers)
