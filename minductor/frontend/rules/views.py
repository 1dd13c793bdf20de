"""View operators: the same storage through another window. They cost nothing.

Takes a view. Gives a view with the traced size, stride and offset; no kernel. Refuses memory that the tensor's
storage has in eager only, or nowhere (UnsupportedInput: such a graph runs in eager).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from minductor.core.dtypes import I64
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import as_expr, integer
from minductor.frontend.capture.captured_graph import Arg, NodeRef, TensorMeta
from minductor.frontend.graph_passes.fold_copies import WINDOW_WRITES
from minductor.frontend.lower.lower import Lowering, is_zero_sized
from minductor.frontend.lowering_context.required import require
from minductor.frontend.lowering_context.values import Value, count, span
from minductor.frontend.rules import scalars
from minductor.frontend.rules.window_write import is_outside, is_within
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def window(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    return ctx.window(base)


def windows(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    """Several windows on one storage."""
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    return tuple(ctx.window(base, m) if isinstance(m, TensorMeta) else None for m in metas)


def as_strided(
    ctx: Lowering, base: View, size: Value, stride: Value, storage_offset: Value = None, **named: Value
) -> Value:
    """The offset counts from where the storage begins; without one the window begins where the tensor does.

    The window may lie beside the tensor's own elements; whether an input has memory there, nothing guards. Between the
    elements of a result eager may have copied what lay between the argument's: diagonal_scatter does.
    """
    given = ctx.node.args[0]
    written = given if storage_offset is None else _before_writes(ctx, given)
    view = ctx.window(base)
    view = replace(view, offset=view.offset + as_expr(ctx.traced(given).offset) - as_expr(ctx.traced(written).offset))
    buffer = next(b for b in ctx.buffers if b.name == base.ref.storage)
    whole = replace(base, size=buffer.size, stride=buffer.stride, offset=integer(0))
    has_gaps = buffer.kind == "local" and not at_least(count(whole.size) - span(whole.size, whole.stride), 0)
    if is_zero_sized(view) or (view in (base, whole) if has_gaps else is_within(view, whole)):
        return view
    if has_gaps or buffer.kind != "local" or written != given or is_outside(view, whole):
        raise UnsupportedInput(ctx.node.name, "a view through as_strided that may lie beside a tensor's elements")
    _require_within(ctx, view, whole)
    return view


def _require_within(ctx: Lowering, view: View, whole: View) -> None:
    """The call raises where symbols make the view reach out of the storage, as eager does."""
    b = Builder()
    first, end = b.index(view.offset), b.index(view.offset + span(view.size, view.stride))
    is_behind = b.op("ge", first, b.constant(0, I64))
    inside = b.op("logical_and", is_behind, b.op("le", end, b.index(span(whole.size, whole.stride))))
    require(ctx, b, inside, f"setStorage: {ctx.node.name} is out of bounds for storage")


def _before_writes(ctx: Lowering, arg: Arg) -> Arg:
    """The tensor into which windows were written. Eager writes them into a copy of its whole storage, which begins
    where it does; torch traces a copy of the tensor."""
    nodes = {node.name: node for node in ctx.graph.nodes}
    while isinstance(arg, NodeRef) and arg.name in nodes and nodes[arg.name].op in WINDOW_WRITES:
        arg = nodes[arg.name].args[0]
    return arg


_ONE = (
    "view.default _unsafe_view.default reshape.default _reshape_alias.default t.default numpy_T.default"
    " transpose.int permute.default expand.default expand_as.default squeeze.default squeeze.dim squeeze.dims"
    " unsqueeze.default diagonal.default unfold.default"
    " alias.default detach.default lift_fresh.default narrow.default view_as.default movedim.int swapaxes.default"
)
_SEVERAL = (
    "split.Tensor split_with_sizes.default chunk.default unbind.int unsafe_split.Tensor"
    " unsafe_split_with_sizes.default unsafe_chunk.default"
)

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"aten.{name}": window for name in _ONE.split()},
        **{f"aten.{name}": windows for name in _SEVERAL.split()},
        "aten.as_strided.default": as_strided,
        "aten.slice.Tensor": scalars.slice_tensor,
        "aten.select.int": scalars.select,
    }
)
