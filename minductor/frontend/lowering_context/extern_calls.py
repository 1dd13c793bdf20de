"""Calls of ATen operators that no rule makes kernels of.

Takes the lowering, an operator and its arguments. Gives the results: new storages, or new versions and views of the
arguments' storages. Refuses (UnsupportedInput) operators that torch does not have, views whose number data decides and
overlapping views that change the dtype; and (FallbackRefused) calls for want of a rule under fallback == "error".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.core.errors import FallbackRefused, UnsupportedInput
from minductor.core.expressions.expr import Symbol
from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import Meta, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import is_one, is_row_major, is_zero
from minductor.frontend.lowering_context.complex_pairs import materialize
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.overwriting import is_dead, is_only_argument_in
from minductor.frontend.lowering_context.values import Value, is_zero_sized, views_in
from minductor.ir.program.nodes import View


def extern(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], reason: str = "") -> Value:
    """Adds a call of `op` for the current node and returns its results; `reason` tells the user why it is a call."""
    facts = schemas.operator_facts(op)
    if facts is None:
        raise UnsupportedInput(ctx.node.name, f"the operator {op}")
    args, kwargs = [materialize(ctx, a) for a in args], {name: materialize(ctx, a) for name, a in kwargs.items()}
    if facts.copy_op:
        return _copied_view(ctx, facts.copy_op, args, kwargs)
    why = reason or schemas.reason_for_call(op)
    if not reason and not schemas.is_expected_call(op) and ctx.env.options.fallback == "error":
        raise FallbackRefused(op, why, node=ctx.node.name)
    ctx.add_note(f"{op}: {why}")
    meta = ctx.node.meta
    if facts.written:
        metas = meta if isinstance(meta, tuple) and len(facts.returned) > 1 else (meta,) * len(facts.returned)
        values = in_place(ctx, op, args, kwargs, metas, why)
        return values[0] if len(values) == 1 else values or None
    if op in schemas.IN_PLACE_FORMS and _has_dead_target(ctx, args):
        return in_place(ctx, schemas.IN_PLACE_FORMS[op], args, kwargs, (meta,), why)[0]
    if isinstance(meta, TensorMeta):
        out = ctx.result(meta)
        dense = is_row_major(out.size, out.stride) and not is_zero_sized(out)
        if facts.out_op and dense and not ctx.undefined_symbols(out.size):
            ctx.add_extern(facts.out_op, args, kwargs, (out,), why, form="out", is_ordered=facts.is_ordered)
        else:
            ctx.add_extern(op, args, kwargs, (out,), why, is_ordered=facts.is_ordered)
            ctx.state.starts[out.ref.storage] = meta.offset
        return out
    row, tree = new_results(ctx, meta if isinstance(meta, tuple) else ())
    ctx.add_extern(op, args, kwargs, row, why, is_ordered=facts.is_ordered)
    return tree if isinstance(meta, tuple) else None


def _has_dead_target(ctx: Lowering, args: Sequence[Value]) -> bool:
    """Whether the first argument may be overwritten."""
    target = args[0]
    if not isinstance(target, View) or is_zero_sized(target):
        return False
    return is_dead(ctx, target) and is_only_argument_in(ctx, target)


def _copied_view(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Calls the variant of a view operator that copies: a plan has no two storages that share memory.

    The `out=` form keeps the strides of the view, which the form that returns a new tensor would not.
    """
    name = ctx.node.name
    if not isinstance(ctx.node.meta, TensorMeta):
        raise UnsupportedInput(name, f"views whose number data decides ({ctx.node.op})")
    out = ctx.result()
    if any(is_zero(s) and not is_one(n) for n, s in zip(out.size, out.stride, strict=True)):
        raise UnsupportedInput(name, f"an overlapping view ({ctx.node.op})")
    reason = "its view is copied"
    ctx.add_note(f"{op}: {reason}")
    numbers = {number for number, arg in enumerate(ctx.graph.outputs) if arg == NodeRef(name)}
    if op == "aten._conj_copy.out" and not numbers.issubset(ctx.graph.fixed_stride_outputs):
        # the user sees the strides that the argument has
        ctx.add_extern("aten.conj_physical.default", args, kwargs, (out,), reason)
    else:
        ctx.add_extern(op, args, kwargs, (out,), reason, form="out")
    return out


def in_place(
    ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value], metas: Sequence[Meta], why: str
) -> tuple[Value, ...]:
    """Adds a call that writes arguments and returns its results: the arguments after the write, or new tensors.

    The call is given the versions before the write. `metas` has the metadata of each result.
    """
    facts = schemas.operator_facts(op)
    assert facts is not None
    by_place: dict[int | str, Value] = {**dict(enumerate(args)), **kwargs}
    by_place.update((n, kwargs[name]) for n, name in enumerate(schemas.parameter_names(op)) if name in kwargs)
    changed = [v for place in facts.written for v in views_in(by_place.get(place))]
    results: list[View | Symbol | None] = []
    values: list[Value] = []
    for place, meta in zip(facts.returned, metas, strict=True):
        row, value = new_results(ctx, meta) if place is None else ([None], by_place[place])
        results += row
        values.append(value)
    writes = tuple(ctx.next_version(v).ref for v in {v.ref.storage: v for v in changed}.values())
    form = "inplace" if all(r is None for r in results) else "return"
    made = results if form == "return" else ()
    ctx.add_extern(op, args, kwargs, made, why, form=form, writes=writes, is_ordered=facts.is_ordered)
    return tuple(ctx.newest(v) for v in values)


def new_results(ctx: Lowering, meta: Meta) -> tuple[list[View | Symbol | None], Value]:
    """A new storage for each tensor in a tree of results: as a flat list, and in the tree."""
    match meta:
        case TensorMeta():
            made = ctx.result(meta)
            return [made], made
        case tuple():
            row: list[View | Symbol | None] = []
            tree: list[Value] = []
            for item in meta:
                found, value = new_results(ctx, item)
                row += found
                tree.append(value)
            return row, tuple(tree)
        case Symbol() if ctx.undefined_symbols(meta):  # a number that the call decides
            ctx.mark_defined(meta)
            return [meta], meta
        case _:
            return [None], meta
