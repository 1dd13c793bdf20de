"""Windows of tensors: the parts that select, slice and diagonal view, and that their scatters write.

Takes a view, and a window's arguments or a node. Gives the window as a view of the same storage. Refuses (None) nodes
that write other windows.
"""

from __future__ import annotations

from dataclasses import replace

from minductor.core.expressions.algebra import maximum, minimum
from minductor.core.expressions.expr import Expr, as_expr, as_int
from minductor.frontend.capture.argument_trees import node_names_in
from minductor.frontend.capture.captured_graph import Node
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Value, wrap_dim, wrap_index
from minductor.ir.program.nodes import View


def selected(x: View, dim: int, index: Operand) -> View:
    """The view x.select(dim, index)."""
    d = wrap_dim(dim, len(x.size))
    rest = [k for k in range(len(x.size)) if k != d]
    size, stride = tuple(x.size[k] for k in rest), tuple(x.stride[k] for k in rest)
    return replace(x, size=size, stride=stride, offset=x.offset + wrap_index(index, x.size[d]) * x.stride[d])


def sliced(x: View, dim: int, first: Expr, step: Expr, count: Expr) -> View:
    """The view of `count` indices of a dimension, from `first` on in steps of `step`."""
    size = tuple(count if d == dim else n for d, n in enumerate(x.size))
    stride = tuple(s * step if d == dim else s for d, s in enumerate(x.stride))
    return replace(x, size=size, stride=stride, offset=x.offset + first * x.stride[dim])


def on_diagonal(x: View, offset: int, dim1: int, dim2: int) -> View:
    """The view x.diagonal(offset, dim1, dim2), whose last dimension runs along the diagonal."""
    one, two = wrap_dim(dim1, len(x.size)), wrap_dim(dim2, len(x.size))
    rest = [d for d in range(len(x.size)) if d not in (one, two)]
    length = maximum(minimum(x.size[one] + min(offset, 0), x.size[two] - max(offset, 0)), 0)
    shift = offset * x.stride[two] if offset >= 0 else -offset * x.stride[one]
    size = (*(x.size[d] for d in rest), length)
    stride = (*(x.stride[d] for d in rest), x.stride[one] + x.stride[two])
    return replace(x, size=size, stride=stride, offset=x.offset + shift)


def slice_start(start: Operand | None, size: Expr) -> Expr:
    """The first index of a slice, counted from the start and clamped to the dimension."""
    place = maximum(wrap_index(0 if start is None else start, size), 0)
    return minimum(place, size) if as_int(size) is not None else place


def slice_length(size: Expr, first: Expr, end: Operand | None, step: Operand) -> Expr:
    """How many indices of a dimension a slice from `first` on has."""
    last = size if end is None else minimum(slice_start(end, size), size)
    return maximum(last - first + number(step) - 1, 0) // number(step)


def number(value: object) -> int | Expr:
    """An argument that must be an int or a size."""
    assert isinstance(value, int | Expr)
    return value


def window_written_by(ctx: Lowering, node: Node, x: View) -> View | None:
    """The window of its first argument, `x`, that a node writes; None for nodes that write no such window."""
    if node.kwargs or not all(name in ctx.values for name in node_names_in(node.args[2:])):
        return None  # sizes that are computed later
    rest: tuple[Value, ...] = tuple(ctx.value(arg) for arg in node.args[2:])
    if not all(value is None or isinstance(value, int | Expr) for value in rest):
        return None
    match node.op, rest:
        case "aten.select_scatter.default", (int(dim), int() | Expr() as index):
            return selected(x, dim, index)
        case "aten.slice_scatter.default", (int(dim), start, end, *steps):
            d, step = wrap_dim(dim, len(x.size)), number(steps[0]) if steps else 1
            first = slice_start(None if start is None else number(start), x.size[d])
            length = slice_length(x.size[d], first, None if end is None else number(end), step)
            return sliced(x, d, first, as_expr(step), length)
        case "aten.diagonal_scatter.default", _ if all(isinstance(value, int) for value in rest):
            return on_diagonal(x, *[value for value in (*rest, *(0, 0, 1)[len(rest) :]) if isinstance(value, int)])
        case _:
            return None
