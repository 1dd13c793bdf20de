"""Calls of md_copy_row: a vector loop that only copies elements in a row.

Takes a loop, the ops by position, the values and where the loop begins and ends. Gives the calls that replace the loop,
one for each store. Refuses (by giving none) a loop that computes or converts, elements that do not lie in a row, also
where data decide on each of them, and storages that the loop also writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.codegen.cpp.cpp_text import index_text
from minductor.codegen.cpp.cpp_values import Values
from minductor.core.expressions.expr import Expr, free_symbols, linear, substitute, symbol
from minductor.ir.program.loops import Loop
from minductor.ir.program.nodes import Check, Load, Op, Store


def row_copies(loop: Loop, ops: Sequence[Op], values: Values, ends: tuple[str, str]) -> Mapping[int, str]:
    """By store the call that copies what it stores; empty if the loop does anything else."""
    inside = {p: ops[p] for p in loop.own_positions}
    stores = {p: op for p, op in inside.items() if isinstance(op.attrs, Store)}
    loads = {p for p, op in inside.items() if isinstance(op.attrs, Load) and inside.keys().isdisjoint(op.args)}
    is_plain = loop.kind == "vector" and not loop.lanes and not loop.is_whole and len(inside) == len(loop.body)
    if not is_plain or inside.keys() != loads | stores.keys() or {op.args[0] for op in stores.values()} != loads:
        return {}
    places = {op.attrs.symbol for op in ops if isinstance(op.attrs, Check) and loop.axis in op.axes}
    if any(
        not places.isdisjoint(free_symbols(op.attrs.index))
        for op in inside.values()
        if isinstance(op.attrs, Load | Store)
    ):
        return {}
    read = {op.attrs.ref.storage for op in inside.values() if isinstance(op.attrs, Load)}
    written = {op.attrs.ref.storage for op in inside.values() if isinstance(op.attrs, Store)}
    calls = {p: _call(inside[store.args[0]], store, loop.axis, values, ends) for p, store in stores.items()}
    return calls if read.isdisjoint(written) and all(calls.values()) else {}


def _call(load: Op, store: Op, axis: str, values: Values, ends: tuple[str, str]) -> str:
    """The call that copies from where the load reads to where the store writes; "" if there is none."""
    assert isinstance(load.attrs, Load) and isinstance(store.attrs, Store)
    source, target = (values.storages[attrs.ref.storage] for attrs in (load.attrs, store.attrs))
    begins = [_begin(attrs.index, axis, values, ends[0]) for attrs in (store.attrs, load.attrs)]
    if source[1] != target[1] or not all(begins):
        return ""
    length = ends[1] if ends[0] == "0" else f"{ends[1]} - {ends[0]}"
    return f"md_copy_row({target[0]} + {begins[0]}, {source[0]} + {begins[1]}, {length});"


def _begin(index: Expr, axis: str, values: Values, start: str) -> str:
    """The index at which the row begins; "" unless neighbours along the axis are neighbours in memory."""
    placed, along = values.placed(index), values.axis(axis)
    split = linear(placed, [along])
    if split is None or split[0][along] != 1:
        return ""
    return index_text(substitute(placed, {along: 0 if start == "0" else symbol(start, "axis")}))
