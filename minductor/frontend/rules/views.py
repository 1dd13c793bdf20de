"""View operators: the same storage through another window. They cost nothing.

Takes a view. Gives a view with the traced size, stride and offset; no kernel. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.frontend.capture import TensorMeta
from minductor.frontend.lower import Lowering
from minductor.frontend.rules import scalars
from minductor.frontend.values import Value
from minductor.ir.nodes import View

Rule = Callable[..., Value]


def window(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    return ctx.window(base)


def windows(ctx: Lowering, base: View, *ignored: Value, **named: Value) -> Value:
    """Several windows on one storage."""
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    return tuple(ctx.window(base, m) if isinstance(m, TensorMeta) else None for m in metas)


_ONE = (
    "view.default _unsafe_view.default reshape.default _reshape_alias.default t.default numpy_T.default"
    " transpose.int permute.default expand.default expand_as.default squeeze.default squeeze.dim squeeze.dims"
    " unsqueeze.default as_strided.default diagonal.default unfold.default"
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
        "aten.slice.Tensor": scalars.slice_tensor,
        "aten.select.int": scalars.select,
    }
)
