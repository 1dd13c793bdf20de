"""Collectives between processes: a call that starts one, and a later call that waits for it.

Takes a node of the namespace `_c10d_functional`. Gives its results. The wait is a write: what the start gave becomes
readable by it, so that readers come after. Until then the collective still reads what it was given, so the wait holds
those versions, and nothing is written over them. Refuses nothing; all keep their order, which has to be the same in
each process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import Meta, TensorMeta
from minductor.frontend.lowering_context.values import Value, sizes, views_in
from minductor.ir.program.nodes import Note, View

if TYPE_CHECKING:
    from minductor.frontend.lower.lower import Lowering

WAIT = "_c10d_functional.wait_tensor.default"


def call(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """What `Lowering` does with a collective."""
    if op == WAIT:
        return _wait(ctx, args)
    facts = schemas.facts(op)
    result = ctx.extern(op, args, kwargs) if facts is None or facts.written else _start(ctx, op, args, kwargs)
    sent = tuple(view for value in (*args, *kwargs.values()) for view in views_in(value))
    for view in views_in(result):
        ctx.in_flight[view.ref.storage] = tuple(v for v in sent if v.ref.storage != view.ref.storage)
    return result


def _start(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Its results are row-major, also where the tracer thinks that they keep the argument's strides."""

    def made(meta: Meta) -> Value:
        if isinstance(meta, tuple):
            return tuple(made(item) for item in meta)
        return ctx.buffer(meta.dtype, sizes(meta.size)) if isinstance(meta, TensorMeta) else None

    result, why = made(ctx.node.meta), schemas.reason(op)
    ctx.notes.append(Note("lower", ctx.node.name, f"{op}: {why}"))
    ctx.add_extern(op, args, kwargs, tuple(views_in(result)), why, is_ordered=True)
    return result


def _wait(ctx: Lowering, args: Sequence[Value]) -> Value:
    """The tensor once it is there, in the layout that the tracer knows."""
    (x,) = args
    assert isinstance(x, View)
    pending = dict.fromkeys(v.ref for v in map(ctx.newest, ctx.in_flight.pop(x.ref.storage, ())) if isinstance(v, View))
    after = ctx.next_version(x)
    why = schemas.reason(WAIT)
    ctx.add_extern(WAIT, (x,), {}, (), why, form="inplace", writes=(after.ref,), is_ordered=True, holds=tuple(pending))
    meta = ctx.meta
    if after.stride == sizes(meta.stride) or not ctx.is_computable(meta, ()):
        return after
    return ctx.map(lambda loop: loop.load(after), meta)
