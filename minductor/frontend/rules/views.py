"""Rules of view operators, which make no kernel: view, reshape, transpose, permute, expand, slice, select, split, ...

- one view: view, reshape, t, transpose, permute, expand, squeeze, unsqueeze, diagonal, unfold, narrow, detach, alias
- several views: split, split_with_sizes, chunk, unbind and their `unsafe_` forms
- as_strided, which addresses the storage and not the tensor
- slice and select, whose rules are in `scalars.py` because data may decide their bounds

Takes a view. Gives a view of the same storage with the size, stride and offset that the tracer found. Refuses
(UnsupportedInput, so that the graph runs in eager) an as_strided view that may reach memory beside the elements that
the compiled program has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.dtypes import I64
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import as_expr, integer
from minductor.frontend.capture.captured_graph import Arg, NodeRef, TensorMeta
from minductor.frontend.capture.size_formulas import count, span
from minductor.frontend.graph_passes.fold_copies import WINDOW_WRITES
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value, is_zero_sized
from minductor.frontend.rules import scalars
from minductor.frontend.rules.window_write import is_outside, is_within
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import View


def window(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    """Lowers an operator that returns one view of `base`. The layout comes from the trace, so arguments are ignored."""
    return ctx.window(base)


def windows(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    """Lowers an operator that returns several views of `base`: split, chunk, unbind."""
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    return tuple(ctx.window(base, m) if isinstance(m, TensorMeta) else None for m in metas)


def as_strided(
    ctx: Lowering, base: View, size: Value, stride: Value, storage_offset: Value = None, **named: Value
) -> Value:
    """Lowers as_strided, whose offset counts from the start of the storage (by default: from `base`'s first element).

    The view may address elements of the buffer that are no elements of `base`. What lies beside the buffer of an input
    is not known here, so such a view is refused. Of a local buffer that has gaps between its elements only the whole is
    allowed: eager's operators may have copied the gaps too (diagonal_scatter does), so they hold other values there.
    """
    given = ctx.node.args[0]
    written = given if storage_offset is None else _before_writes(ctx, given)
    view = ctx.window(base)
    view = replace(view, offset=view.offset + as_expr(ctx.traced(given).offset) - as_expr(ctx.traced(written).offset))
    buffer = ctx.buffer_of(base)
    whole = replace(base, size=buffer.size, stride=buffer.stride, offset=integer(0))
    has_gaps = buffer.kind == "local" and not at_least(count(whole.size) - span(whole.size, whole.stride), 0)
    if is_zero_sized(view) or (view in (base, whole) if has_gaps else is_within(view, whole)):
        return view
    if has_gaps or buffer.kind != "local" or written != given or is_outside(view, whole):
        raise UnsupportedInput(ctx.node.name, "a view through as_strided that may lie beside a tensor's elements")
    _require_within(ctx, view, whole)
    return view


def _require_within(ctx: Lowering, view: View, whole: View) -> None:
    """Adds a check to the program: the call raises, as eager does, if the view's symbolic sizes exceed the storage."""
    b = Builder()
    first, end = b.index(view.offset), b.index(view.offset + span(view.size, view.stride))
    is_behind = b.op("ge", first, b.constant(0, I64))
    inside = b.op("logical_and", is_behind, b.op("le", end, b.index(span(whole.size, whole.stride))))
    ctx.require(b.build([inside]), f"setStorage: {ctx.node.name} is out of bounds for storage")


def _before_writes(ctx: Lowering, arg: Arg) -> Arg:
    """The tensor that a chain of functional window writes (slice_scatter, ...) started from; `arg` if there is none.

    Eager copies the whole storage before such a write, so that offsets still count from that storage's start. The
    tracer copies the tensor alone and gives the copy the offset 0.
    """
    nodes = {node.name: node for node in ctx.graph.nodes}
    while isinstance(arg, NodeRef) and arg.name in nodes and nodes[arg.name].op in WINDOW_WRITES:
        arg = nodes[arg.name].args[0]
    return arg


_ONE_VIEW = (
    "view.default _unsafe_view.default reshape.default _reshape_alias.default t.default numpy_T.default"
    " transpose.int permute.default expand.default expand_as.default squeeze.default squeeze.dim squeeze.dims"
    " unsqueeze.default diagonal.default unfold.default"
    " alias.default detach.default lift_fresh.default narrow.default view_as.default movedim.int swapaxes.default"
)
_SEVERAL_VIEWS = (
    "split.Tensor split_with_sizes.default chunk.default unbind.int unsafe_split.Tensor"
    " unsafe_split_with_sizes.default unsafe_chunk.default"
)

RULES: Mapping[str, Rule] = {
    **{f"aten.{name}": window for name in _ONE_VIEW.split()},
    **{f"aten.{name}": windows for name in _SEVERAL_VIEWS.split()},
    "aten.as_strided.default": as_strided,
    "aten.slice.Tensor": scalars.slice_tensor,
    "aten.select.int": scalars.select,
}
