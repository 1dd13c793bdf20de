"""Lowers collectives between processes (`_c10d_functional.*`: all_reduce, ..., wait_tensor) to extern calls.

Takes a node of the namespace `_c10d_functional`. Gives the results of the call. A functional collective is two calls:
one starts it, and a later `wait_tensor` waits for its result. Refuses nothing.

- The wait is modelled as an in-place write of the result, so that every reader of the result runs after the wait.
- Until the wait the collective may still read its arguments. The wait therefore keeps them alive (`holds`), and nothing
  overwrites them.
- All collectives keep their order, because each process must start them in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import Meta, TensorMeta
from minductor.frontend.capture.size_formulas import sizes
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Value, views_in
from minductor.ir.program.nodes import View

WAIT = "_c10d_functional.wait_tensor.default"


def call(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Lowers one collective: `wait_tensor`, an in-place collective, or one that returns new tensors."""
    if op == WAIT:
        return _wait(ctx, args)
    facts = schemas.operator_facts(op)
    result = extern(ctx, op, args, kwargs) if facts is None or facts.written else _start(ctx, op, args, kwargs)
    sent = tuple(view for value in (*args, *kwargs.values()) for view in views_in(value))
    for view in views_in(result):
        ctx.state.in_flight[view.ref.storage] = tuple(v for v in sent if v.ref.storage != view.ref.storage)
    return result


def _start(ctx: Lowering, op: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Starts a collective. Its results are row-major, even if the tracer gave them the argument's strides."""

    def made(meta: Meta) -> Value:
        if isinstance(meta, tuple):
            return tuple(made(item) for item in meta)
        return ctx.buffer(meta.dtype, sizes(meta.size)) if isinstance(meta, TensorMeta) else None

    result, why = made(ctx.node.meta), schemas.reason_for_call(op)
    ctx.add_note(f"{op}: {why}")
    ctx.add_extern(op, args, kwargs, tuple(views_in(result)), why, is_ordered=True)
    return result


def _wait(ctx: Lowering, args: Sequence[Value]) -> Value:
    """The result after the wait; a kernel copies it if the traced strides are not row-major."""
    (x,) = args
    assert isinstance(x, View)
    sent = map(ctx.newest, ctx.state.in_flight.pop(x.ref.storage, ()))
    pending = dict.fromkeys(v.ref for v in sent if isinstance(v, View))
    after = ctx.next_version(x)
    why = schemas.reason_for_call(WAIT)
    ctx.add_extern(WAIT, (x,), {}, (), why, form="inplace", writes=(after.ref,), is_ordered=True, holds=tuple(pending))
    meta = ctx.meta
    if after.stride == sizes(meta.stride) or not ctx.is_computable(meta, ()):
        return after
    return ctx.map(lambda loop: loop.load(after), meta)
