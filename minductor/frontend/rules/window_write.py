"""Rules of functional writes into a window: slice_scatter, select_scatter, diagonal_scatter and as_strided_scatter.

AOTAutograd turns in-place writes into these operators: `x[1:] = y` becomes slice_scatter. The window is the view of x
that the source replaces.

Takes the tensor x, the source and the window's arguments. Gives x's buffer, of which a kernel overwrites the window, if
x's old value is dead. Otherwise gives a new tensor: slice_scatter and select_scatter compute it in one pointwise
kernel, the others copy x first. Refuses (to an extern call) sources without elements, and windows that have another
size than the source or do not lie in x, for which eager raises. A write through as_strided to memory between or beside
x's elements makes the whole graph run in eager (UnsupportedInput).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from minductor.core.dtypes import compute_dtype
from minductor.core.errors import UnsupportedInput
from minductor.core.expressions.bounds import at_least, interval
from minductor.core.expressions.expr import as_expr, integer
from minductor.core.expressions.rewrite import delinearize
from minductor.frontend.capture.size_formulas import count, sizes, span
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.overwriting import is_dead, is_fusable_copy, writable
from minductor.frontend.lowering_context.size_requirements import require_index, require_size
from minductor.frontend.lowering_context.values import (
    Operand,
    Rule,
    Value,
    element,
    is_injective,
    is_zero_sized,
    wrap_dim,
)
from minductor.frontend.lowering_context.windows import number, on_diagonal, selected, slice_length, slice_start, sliced
from minductor.frontend.rules.concat import is_at_index, read_slice
from minductor.ir.program.nodes import View


def select_scatter(ctx: Lowering, x: View, source: View, dim: int, index: Operand) -> Value:
    """Lowers select_scatter: x with `source` at one index of a dimension."""
    if is_zero_sized(x) or is_zero_sized(source):
        return NotImplemented
    d = wrap_dim(dim, len(x.size))
    if source.size != (*x.size[:d], *x.size[d + 1 :]) or not require_index(ctx, number(index), d, x.size[d]):
        return NotImplemented
    made = _write_in_place(ctx, x, lambda base: selected(base, d, index), source)
    if made is not None:
        return made

    def fn(loop: KernelBuilder) -> KernelValue:
        value = loop.load(source, [c for k, c in enumerate(loop.coords) if k != d], x.dtype)
        return is_at_index(loop, d, index).where(value, loop.load(x))

    return ctx.map(fn)


def slice_scatter(
    ctx: Lowering,
    x: View,
    source: View,
    dim: int = 0,
    start: Operand | None = None,
    end: Operand | None = None,
    step: Operand = 1,
) -> Value:
    """Lowers slice_scatter: x with `source` in x[.., start:end:step, ..]."""
    if is_zero_sized(x) or is_zero_sized(source):
        return NotImplemented
    d = wrap_dim(dim, len(x.size))
    first = slice_start(start, x.size[d])
    length = slice_length(x.size[d], first, end, step)
    if not require_size(ctx, source.size, (*x.size[:d], length, *x.size[d + 1 :])):
        return NotImplemented
    made = _write_in_place(ctx, x, lambda base: sliced(base, d, first, as_expr(number(step)), source.size[d]), source)
    if made is not None:
        return made

    def fn(loop: KernelBuilder) -> KernelValue:
        value, conditions = read_slice(loop, source, d, first, step, 0)
        value = value.cast(compute_dtype(x.dtype))
        return reduce(KernelValue.both, conditions).where(value, loop.load(x)) if conditions else value

    return ctx.map(fn)


def diagonal_scatter(ctx: Lowering, x: View, source: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Lowers diagonal_scatter: x with `source` on a diagonal, which is the last dimension of the source."""
    if is_zero_sized(x) or is_zero_sized(source):
        return NotImplemented
    target = on_diagonal(x, offset, dim1, dim2)
    if not require_size(ctx, source.size, target.size):
        return NotImplemented
    return _write_window(ctx, x, lambda base: on_diagonal(base, offset, dim1, dim2), source)


def as_strided_scatter(
    ctx: Lowering, x: View, source: View, size: Sequence[Value], stride: Sequence[Value], offset: Operand | None = None
) -> Value:
    """Lowers as_strided_scatter; the offset counts from the start of x's traced storage.

    If the window may lie beside x's elements, depending on symbols, it becomes an extern call, which checks that.
    """
    if is_zero_sized(x):
        return NotImplemented
    traced = ctx.traced(ctx.node.args[0])
    shift = integer(0) if offset is None else as_expr(number(offset)) - as_expr(traced.offset)
    sizes_in, strides_in = (tuple(as_expr(number(n)) for n in row) for row in (size, stride))

    def window(base: View) -> View:
        return replace(base, size=sizes_in, stride=strides_in, offset=base.offset + shift)

    keeps_layout = all((x.size, x.stride) == (sizes(m.size), sizes(m.stride)) for m in (traced, ctx.meta))
    if not keeps_layout or span(x.size, x.stride) != count(x.size) or is_outside(window(x), x):
        raise UnsupportedInput(ctx.node.name, "a write through as_strided that lies beside a tensor's elements")
    if is_within(window(x), x):
        return _write_window(ctx, x, window, source)
    # the extern call counts from the start of x's own storage, which may be another one than when tracing
    start = as_expr(ctx.start_of(x)) + window(x).offset
    return extern(ctx, "aten.as_strided_scatter.default", (x, source, tuple(size), tuple(stride), start), {})


def _write_in_place(ctx: Lowering, x: View, window: Callable[[View], View], source: View) -> View | None:
    """x with `source` written into its window; None if one pointwise kernel had better compute a new tensor.

    Writes in place if x's value is dead, unless x is a pointwise value that could fuse into the new tensor's kernel.
    """
    if is_dead(ctx, x):
        if source == window(x):
            return x
        return None if is_fusable_copy(ctx, x) else _store_window(ctx, x, window(x), source)
    # if elements of x share memory, a pointwise kernel would write elements in the window and beside it to one address
    if is_injective(replace(x, size=sizes(ctx.meta.size), stride=sizes(ctx.meta.stride))):
        return None
    return _write_window(ctx, x, window, source)


def _write_window(ctx: Lowering, x: View, window: Callable[[View], View], source: View) -> View:
    """x, or a copy of it if its value is still needed, with `source` written into the window."""
    if is_dead(ctx, x) and source == window(x):
        return x
    base = writable(ctx, x)
    return _store_window(ctx, base, window(base), source)


def _store_window(ctx: Lowering, x: View, window: View, source: View) -> View:
    """A kernel that writes `source` to `window`, a view of x; gives the new version of x.

    A source that overlaps the window is copied first. If elements of the window share memory, eager's copy_ is called,
    which has its own order of writes.
    """
    if source.ref.storage == x.ref.storage and not _are_disjoint(source, window, x):
        overlapping = source
        source = ctx.fill(ctx.buffer(x.dtype, source.size), lambda loop: loop.load(overlapping))
    if not is_injective(window):
        extern(ctx, "aten.copy_.default", (window, source), {}, "elements of the window share memory")
        made = ctx.newest(x)
        assert isinstance(made, View)
        return made
    made = ctx.next_version(x)
    ctx.fill(replace(window, ref=made.ref), lambda loop: loop.load(source, None, x.dtype))
    return made


def is_within(window: View, x: View) -> bool:
    """Whether the window is known to lie in the memory from x's first element to its last."""
    first = window.offset - x.offset
    return at_least(first, 0) and at_least(span(x.size, x.stride) - span(window.size, window.stride) - first, 0)


def is_outside(window: View, x: View) -> bool:
    """Whether some element of the window is known to lie outside of the memory from x's first element to its last."""
    first = window.offset - x.offset
    return at_least(-first - 1, 0) or at_least(first + span(window.size, window.stride) - span(x.size, x.stride) - 1, 0)


def _are_disjoint(a: View, b: View, x: View) -> bool:
    """Whether two views of x's storage are known to have no element in common: their coordinates in x are disjoint."""
    boxes: list[list[tuple[int | None, int | None]]] = []
    for view in (a, b):
        loop = KernelBuilder(view.size)
        extents = {axis.symbol: axis.extent for axis in loop.axes}
        at = delinearize(element(view, loop.coords) - x.offset, x.size, x.stride, extents)
        if at is None:
            return False
        boxes.append([interval(coordinate, extents) for coordinate in at])
    for (low, high), (other_low, other_high) in zip(*boxes, strict=True):
        if (high is not None and other_low is not None and high < other_low) or (
            other_high is not None and low is not None and other_high < low
        ):
            return True
    return False


RULES: Mapping[str, Rule] = {
    "aten.select_scatter.default": select_scatter,
    "aten.slice_scatter.default": slice_scatter,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.as_strided_scatter.default": as_strided_scatter,
}
