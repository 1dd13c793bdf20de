"""Rules of scatters, that is, of writes at indices that are data; each also in its in-place form.

- index_put, _unsafe_index_put, _unsafe_masked_index_put_accumulate, masked_scatter, put
- scatter, scatter_add, scatter_reduce: an index per element
- index_add, index_copy, index_fill, index_reduce: an index per slice
- max_unpool2d, max_unpool3d, embedding_dense_backward

Takes the tensor to write, index tensors and source values. Gives two kernels: a copy of the tensor, and one over the
source that writes into the copy. Only the latter is made for an in-place operator, and if the tensor's old value is
dead. Refuses (to an extern call) tensors without elements, masks whose values differ per chosen element, and sums of
bools.

- Every index is checked; one out of range makes the call raise eager's kind of error.
- If several points of the kernel may write one element, they run in the order of the axes
  (passes' `ordered_axes.py`). So the last write wins, and sums have one order.
- If several 16-bit floats may be added to (or multiplied with) one element, they accumulate in a float32 buffer and are
  rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minductor.core.dtypes import BOOL, F32, I32, I64, U8, DType, compute_dtype
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, integer
from minductor.core.expressions.hints import estimate
from minductor.frontend.capture.size_formulas import count, is_one, is_zero, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.overwriting import is_dead, is_fusable_copy, writable
from minductor.frontend.lowering_context.size_requirements import require_broadcast, require_size
from minductor.frontend.lowering_context.values import (
    Coords,
    Operand,
    Rule,
    Value,
    broadcast,
    element,
    is_zero_sized,
    wrap_dim,
)
from minductor.frontend.rules.index import (
    at_least_1d,
    checked_index,
    index_position,
    indexed_coords,
    masked_index,
    ravel,
    replace_coord,
    unravel,
)
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import ErrorKind, View

# A 16-bit tensor is not copied to float32 if it has at least so many elements, and so many times those of the source.
SPARSE_ELEMENTS, SPARSE_RATIO = 1 << 16, 4

# loop -> where its current point writes: coordinates, or (for a 0-dim tensor) an offset from its first element
Where: TypeAlias = Callable[[KernelBuilder], Coords | Expr]
What: TypeAlias = Callable[[KernelBuilder], KernelValue]  # loop -> the value that its current point writes


class Destination(NamedTuple):
    """The tensor `x` that an operator writes, and whether it writes x itself or a copy that becomes the result."""

    ctx: Lowering
    x: View
    is_in_place: bool

    def target(self) -> View:
        """x, or a copy of it if its old value is still needed."""
        return self.x if self.is_in_place else writable(self.ctx, self.x)

    def as_float32(self) -> View:
        """A float32 copy of x in a new buffer."""
        return self.ctx.fill(self.ctx.buffer(F32, self.x.size), lambda loop: loop.load(self.x))

    def finish(self, values: View, fn: Callable[[KernelBuilder, KernelValue], KernelValue]) -> View:
        """The result: a pointwise kernel of `fn(loop, element of values)`, which writes x or a new tensor."""
        if not self.is_in_place:
            return self.ctx.map(lambda loop: fn(loop, loop.load(values)))
        return self.ctx.fill(self.ctx.next_version(self.x), lambda loop: fn(loop, loop.load(values)))

    def snapshot(self, given: Value) -> Value:
        """An operand, or a copy of it if it shares memory with x and x is written in place. Lists item by item."""
        match given:
            case tuple():
                return tuple(self.snapshot(v) for v in given)
            case View() if self.is_in_place and given.ref.storage == self.x.ref.storage:
                return self.ctx.copy_of(given)
            case _:
                return given


def write(ctx: Lowering, out: View, extents: Sequence[Expr], where: Where, what: What, kind: str = "set") -> View:
    """A kernel over `extents` that writes `what` to `out` at `where`; returns the new version of `out`.

    `kind` is that of an Atomic op: "set" stores; "add", "mul", "max" and "min" combine with the element that is there.
    """
    if any(is_zero(n) for n in extents):
        return out
    loop = KernelBuilder(extents)
    at, value = where(loop), what(loop).cast(compute_dtype(out.dtype))
    index = out.offset + at if isinstance(at, Expr) else element(out, at)
    made = ctx.next_version(out)
    loop.b.atomic(made.ref, index, value.at, kind)
    ctx.add_kernel(loop)
    return made


def accumulate_into(into: Destination, extents: Sequence[Expr], where: Where, what: What, kind: str) -> View:
    """Combines values into the tensor by `kind`; in float32 if several 16-bit floats may meet in one element."""
    if not rounds_each_step(into.x.dtype, extents, where, kind):
        return write(into.ctx, into.target(), extents, where, what, kind)
    if is_sparse(into.ctx, into.x, extents):
        return accumulate_sparsely(into, extents, where, what, kind)
    total = write(into.ctx, into.as_float32(), extents, where, what, kind)
    return into.finish(total, lambda loop, value: value)


def is_sparse(ctx: Lowering, x: View, extents: Sequence[Expr]) -> bool:
    """Whether the tensor is so large, compared to the source, that copying it to float32 would cost more than the rest.

    Sizes that are not known are estimated.
    """
    return estimate(x.size, ctx.hints) >= max(SPARSE_ELEMENTS, SPARSE_RATIO * estimate(extents, ctx.hints))


def accumulate_sparsely(into: Destination, extents: Sequence[Expr], where: Where, what: What, kind: str) -> View:
    """Combines values into a large 16-bit tensor by way of a float32 buffer of the source's shape.

    1. Of all points that write one element, one is chosen: each point stores its number in `chosen` at the element.
       `chosen` is not initialized, since it is read only where it has been written.
    2. The buffer gets, at each point, the element's old value.
    3. Each point combines its value into the buffer at the chosen point of its element.
    4. Each point stores the total of its element's chosen point into the tensor.

    Free axes (see `_free_axes`) need no choice: the points of one element have the same coordinate there.
    """
    ctx, x, target = into.ctx, into.x, into.target()
    free = _free_axes(extents, where)
    keys = [integer(1) if c in free else n for c, n in zip(KernelBuilder(extents).coords, extents, strict=True)]
    dims = [d for d, at in enumerate(_coords(where(KernelBuilder(extents)))) if at not in free]
    number_dtype = I32 if at_least((1 << 31) - count(keys), 0) else I64
    chosen = ctx.buffer(number_dtype, [at_least_1d(x).size[d] for d in dims])

    def key(loop: KernelBuilder) -> Coords:
        at = _coords(where(loop))
        return [at[d] for d in dims]

    def representative(loop: KernelBuilder) -> Coords:
        number = loop.b.check(loop.load(chosen, key(loop), I64).at, count(keys), wrap=False, error=None)
        at = unravel(number, keys)
        return [c if c in free else n for c, n in zip(loop.coords, at, strict=True)]

    loop = KernelBuilder(keys)
    number = loop.index(ravel(loop.coords, loop.extents), I64).cast(number_dtype)
    loop.b.atomic(chosen.ref, element(chosen, key(loop)), number.at, "set")
    ctx.add_kernel(loop)
    loop = KernelBuilder(extents)
    old = loop.load(target, _coords(where(loop)) if x.size else ())
    total = ctx.store(loop, ctx.buffer(F32, extents), loop.coords, old)
    total = write(ctx, total, extents, representative, what, kind)
    return write(ctx, target, extents, where, lambda loop: loop.load(total, representative(loop)))


def _coords(at: Coords | Expr) -> Coords:
    """What `Where` gives, as coordinates."""
    return (at,) if isinstance(at, Expr) else at


def _free_axes(extents: Sequence[Expr], where: Where) -> frozenset[Expr]:
    """The axes that are themselves a coordinate of the written element, and along which no index tensor varies."""
    loop = KernelBuilder(extents)
    at = _coords(where(loop))
    varying = {axis for op in loop.b.build().ops for axis in op.axes}
    return frozenset(axis.symbol for axis in loop.axes if axis.symbol in at and axis.name not in varying)


def accumulate_in_zeros(ctx: Lowering, extents: Sequence[Expr], where: Where, what: What) -> View:
    """The current node's result: zeros to which `what` is added at `where`. For gradients of gathers."""
    zeros = Destination(ctx, ctx.pointwise(lambda zero: zero, 0), is_in_place=False)
    return accumulate_into(zeros, extents, where, what, "add")


def rounds_each_step(dtype: DType, extents: Sequence[Expr], where: Where, kind: str) -> bool:
    """Whether several 16-bit floats may be combined into one element, each step rounding to 16 bits.

    Points of a kernel write to different elements if each axis is itself a coordinate of the written element.
    """
    if dtype.itemsize > 2 or dtype.kind != "float" or kind not in ("add", "mul"):
        return False
    loop = KernelBuilder(extents)
    at = _coords(where(loop))
    return any(axis.symbol not in at for axis in loop.axes)


def functional(core: Callable[..., Value]) -> Rule:
    """A rule for the functional form: writes x in place if its value is dead, unless fusion makes the copy free."""

    def rule(ctx: Lowering, x: View, *args: Value, **kwargs: Value) -> Value:
        into = Destination(ctx, x, is_in_place=is_dead(ctx, x) and not is_fusable_copy(ctx, x))
        return _run(core, into, args, kwargs)

    return rule


def in_place(core: Callable[..., Value]) -> Rule:
    """A rule for the in-place form."""
    return lambda ctx, x, *args, **kwargs: _run(core, Destination(ctx, x, is_in_place=True), args, kwargs)


def _run(core: Callable[..., Value], into: Destination, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Runs a write; operands that share memory with an overwritten x are copied first."""
    if is_zero_sized(into.x):
        return NotImplemented  # any index is out of range, and eager has the error message
    return core(into, *(into.snapshot(a) for a in args), **{name: into.snapshot(v) for name, v in kwargs.items()})


# --- index_put ----------------------------------------------------------------------------------------------------


def index_put(into: Destination, indices: Sequence[View | None], values: View, accumulate: bool = False) -> Value:
    """index_put: x[i, :, j] = values, or += with `accumulate`. Addresses x as `index_tensors` of `index.py` does."""
    x = into.x
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given or (accumulate and x.dtype == BOOL) or values.dtype != x.dtype:  # eager raises
        return NotImplemented
    if any(i.dtype in (BOOL, U8) for _, i in given):
        return masked_put(into, given, values, accumulate=accumulate)
    dims = [d for d, _ in given]
    shared = broadcast_shape([i.size for _, i in given])
    first = index_position(indices)
    rest = [n for d, n in enumerate(x.size) if d not in dims]
    extents = [*rest[:first], *shared, *rest[first:]]
    if not require_broadcast(into.ctx, values.size, extents) or not all(
        require_broadcast(into.ctx, i.size, shared) for _, i in given
    ):
        return NotImplemented

    def where(loop: KernelBuilder) -> Coords:
        return indexed_coords(loop, indices, x.size, first, len(shared))

    return accumulate_into(into, extents, where, lambda loop: loop.load(values), "add" if accumulate else "set")


def broadcast_shape(shapes: Sequence[Sequence[Expr]]) -> list[Expr]:
    """The shape to which several shapes broadcast."""
    rank = max(len(shape) for shape in shapes)
    found: list[Expr] = []
    for d in range(rank):
        sizes = [shape[d - rank + len(shape)] for shape in shapes if d - rank + len(shape) >= 0]
        found.append(next((n for n in sizes if not is_one(n)), sizes[0]))
    return found


def masked_put(into: Destination, given: Sequence[tuple[int, View]], values: View, *, accumulate: bool) -> Value:
    """index_put with one mask: a pointwise select, if `values` has the same value for all chosen elements.

    `values` must have size 1 in the dimensions of the mask; else the number of true elements decides what goes where.
    """
    (first, mask), *more = given
    end = first + len(mask.size)
    if more or mask.dtype != BOOL or not require_size(into.ctx, mask.size, into.x.size[first:end]):
        return NotImplemented
    if not require_broadcast(into.ctx, values.size, (*into.x.size[:first], integer(1), *into.x.size[end:])):
        return NotImplemented

    def fn(loop: KernelBuilder, old: KernelValue) -> KernelValue:
        coords = [*loop.coords[:first], as_expr(0), *loop.coords[end:]]
        value = loop.load(values, coords, into.x.dtype)
        return loop.load(mask, loop.coords[first:end]).where(old + value if accumulate else value, old)

    return into.finish(into.x, fn)


def unsafe_masked_put(into: Destination, mask: View, indices: Sequence[View | None], values: View) -> Value:
    """_unsafe_masked_index_put_accumulate: x[indices] += values where the mask is true.

    An index whose mask is false is not checked; it adds 0 to element 0.
    """
    x = into.x
    if any(i is None for i in indices) or len(indices) != len(x.size) or x.dtype == BOOL:
        return NotImplemented
    extents = broadcast_shape([mask.size, values.size, *(i.size for i in indices if i is not None)])

    def where(loop: KernelBuilder) -> Coords:
        holds = loop.load(mask)
        return [masked_index(loop, holds, i, x.size[k], k) for k, i in enumerate(indices) if i is not None]

    def what(loop: KernelBuilder) -> KernelValue:
        return loop.load(mask).where(loop.load(values), 0)

    return accumulate_into(into, extents, where, what, "add")


def masked_scatter(into: Destination, mask: View, source: View) -> Value:
    """masked_scatter: the n-th true element of the mask gets the source's n-th element, in row-major order.

    Two kernels: a cumulative sum of the mask counts the true elements, and a pointwise one gathers from the source.
    """
    ctx, x = into.ctx, into.x
    total = count(x.size)
    if (count(source.size).range[0] or 0) < 1:  # an empty source is legal if the mask is false everywhere
        return NotImplemented
    if mask.dtype != BOOL or is_one(total) or sizes(ctx.meta.size) != x.size:
        return NotImplemented
    loop = KernelBuilder((total,))
    flags = loop.load(mask, broadcast(mask, unravel(loop.coords[0], x.size))).cast(I64)
    running_count = loop.b.scan([flags.at], loop.axes[0].name, combine("sum", I64))
    number = ctx.store(loop, ctx.buffer(I64, (total,)), loop.coords, loop.term(running_count))

    def fn(loop: KernelBuilder, old: KernelValue) -> KernelValue:
        holds, nth = loop.load(mask), loop.load(number, (ravel(loop.coords, loop.extents),)) - 1
        at = loop.b.check(holds.where(nth, 0).at, count(source.size), wrap=False, error="RuntimeError")
        return holds.where(loop.load(source, unravel(at, source.size)), old)

    return into.finish(x, fn)


# --- along one dimension -------------------------------------------------------------------------------------------


def along_dim(into: Destination, dim: int, index: View) -> Where:
    """Addresses x[.., index[c], ..] at each point c of `index`."""
    size, d = at_least_1d(into.x).size, wrap_dim(dim, len(into.x.size))

    def where(loop: KernelBuilder) -> Coords | Expr:
        at = checked_index(loop, index, loop.coords, size[d], d, wrap=False, error="RuntimeError")
        return replace_coord(loop, d, at) if into.x.size else at

    return where


def source_element(source: Operand, x: View) -> What:
    """Loads the source's element at the loop's point, cast to x's dtype; a number or 0-dim tensor serves all points."""
    has_point = isinstance(source, View) and bool(source.size)
    return lambda loop: loop.load(source, loop.coords if has_point else (), x.dtype)


# name of a reduction in ATen's schemas -> kind of the Atomic op
ATOMIC_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("sum", "add", "mean"), "add"),
    **{"prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"},
}


def scatter(into: Destination, dim: int, index: View, source: Operand, *, reduce: str = "") -> Value:
    """scatter.src and scatter.value; with `reduce` ("add", "multiply") the values are combined instead of stored."""
    if reduce and into.x.dtype == BOOL:
        return NotImplemented
    where, what = along_dim(into, dim, index), source_element(source, into.x)
    if reduce:
        return accumulate_into(into, index.size, where, what, ATOMIC_KINDS[reduce])
    return write(into.ctx, into.target(), index.size, where, what)


def scatter_add(into: Destination, dim: int, index: View, source: View) -> Value:
    """scatter_add: scatter that adds."""
    return scatter(into, dim, index, source, reduce="add")


def scatter_reduce(
    into: Destination, dim: int, index: View, source: View, reduce: str, *, include_self: bool = True
) -> Value:
    """scatter_reduce: combines source[c] into x[.., index[c], ..] by "sum", "prod", "mean", "amax" or "amin"."""
    if into.x.dtype == BOOL:
        return NotImplemented
    where, what = along_dim(into, dim, index), source_element(source, into.x)
    return reduce_into(into, index.size, where, what, reduce, include_self=include_self)


def reduce_into(
    into: Destination, extents: Sequence[Expr], where: Where, what: What, reduce: str, *, include_self: bool
) -> View:
    """Combines values into the tensor by the reduction of scatter_reduce and index_reduce ("mean" included).

    Without `include_self`, elements that any value reaches start at the reduction's identity: a kernel writes it first.
    """
    ctx, x = into.ctx, into.x
    is_wide = rounds_each_step(x.dtype, extents, where, ATOMIC_KINDS[reduce])
    total = into.as_float32() if is_wide else into.target()
    if not include_self:
        first = _identity(reduce, x.dtype)
        total = write(ctx, total, extents, where, lambda loop: loop.load(first, None, x.dtype))
    total = write(ctx, total, extents, where, what, ATOMIC_KINDS[reduce])
    if reduce != "mean":
        return into.finish(total, lambda loop, value: value) if is_wide else total
    number = count_writes(ctx, x.size, extents, where, start=int(include_self))
    closing = into if is_wide else Destination(ctx, total, is_in_place=True)
    return closing.finish(total, lambda loop, value: _quotient(value, loop.load(number)))


def count_writes(ctx: Lowering, size: Sequence[Expr], extents: Sequence[Expr], where: Where, start: int) -> View:
    """A tensor of that size that counts the values written to each element, from `start` on."""
    out = ctx.fill(ctx.buffer(I64, size), lambda loop: loop.load(start, None, I64))
    return write(ctx, out, extents, where, lambda loop: loop.load(1, None, I64), "add")


def _quotient(value: KernelValue, number: KernelValue) -> KernelValue:
    """value / max(number, 1); integers round down, as in eager."""
    number = number.op("maximum", 1)
    return value.op("div" if value.dtype.kind == "float" else "floordiv", number.cast(value.dtype))


def _identity(reduce: str, dtype: DType) -> float:
    """The value from which a reduction starts."""
    match reduce:
        case "prod":
            return 1
        case "amax":
            return -float("inf") if dtype.kind == "float" else dtype.min_value
        case "amin":
            return float("inf") if dtype.kind == "float" else dtype.max_value
        case _:
            return 0


# --- whole slices along one dimension ------------------------------------------------------------------------------


def slices(into: Destination, dim: int, index: View, *, error: ErrorKind, wrap: bool = False) -> Where:
    """Addresses x[.., index[k], ..], where k is the loop's coordinate of dimension `dim` of the source."""
    size, d = at_least_1d(into.x).size, wrap_dim(dim, len(into.x.size))

    def where(loop: KernelBuilder) -> Coords | Expr:
        which = loop.coords[d] if loop.coords else as_expr(0)
        at = checked_index(loop, at_least_1d(index), (which,), size[d], d, wrap=wrap, error=error)
        return replace_coord(loop, d, at) if into.x.size else at

    return where


def _are_slices(into: Destination, dim: int, index: View, source: View) -> bool:
    """Whether the source has a slice of x's dtype and size for each index; requires what only the call knows."""
    if source.dtype != into.x.dtype:
        return False
    size = [count(index.size) if d == dim else n for d, n in enumerate(at_least_1d(into.x).size)]
    return require_size(into.ctx, at_least_1d(source).size, size)


def index_add(into: Destination, dim: int, index: View, source: View, *, alpha: float = 1) -> Value:
    """index_add: x[.., index[k], ..] += alpha * source[.., k, ..]."""
    d = wrap_dim(dim, len(into.x.size))
    if into.x.dtype == BOOL or len(source.size) != len(into.x.size) or not _are_slices(into, d, index, source):
        return NotImplemented
    # eager implements this case by scatter_add, which raises RuntimeError
    is_scatter_add = len(into.x.size) > 1 and alpha == 1 and index.dtype == I64
    error: ErrorKind = "RuntimeError" if is_scatter_add else "IndexError"
    value = source_element(source, into.x)
    what = value if alpha == 1 else lambda loop: value(loop) * alpha
    return accumulate_into(into, source.size, slices(into, dim, index, error=error), what, "add")


def index_copy(into: Destination, dim: int, index: View, source: View) -> Value:
    """index_copy: x[.., index[k], ..] = source[.., k, ..]."""
    if index.dtype != I64:
        return NotImplemented
    where = slices(into, dim, index, error="IndexError")
    return write(into.ctx, into.target(), source.size, where, source_element(source, into.x))


def index_fill(into: Destination, dim: int, index: View, value: Operand) -> Value:
    """index_fill: x[.., index[k], ..] = value; negative indices count from the end."""
    x = into.x
    if (isinstance(value, View) and value.size) or index.dtype != I64:
        return NotImplemented
    d = wrap_dim(dim, len(x.size))
    extents = [count(index.size) if k == d else n for k, n in enumerate(at_least_1d(x).size)]
    where = slices(into, dim, index, error="IndexError", wrap=True)
    return write(into.ctx, into.target(), extents, where, source_element(value, x))


def index_reduce(
    into: Destination, dim: int, index: View, source: View, reduce: str, *, include_self: bool = True
) -> Value:
    """index_reduce: combines the slice source[.., k, ..] into x[.., index[k], ..]; reductions as in scatter_reduce."""
    if into.x.dtype == BOOL or not _are_slices(into, wrap_dim(dim, len(into.x.size)), index, source):
        return NotImplemented
    where, what = slices(into, dim, index, error="IndexError"), source_element(source, into.x)
    return reduce_into(into, source.size, where, what, reduce, include_self=include_self)


def put(into: Destination, index: View, source: View, accumulate: bool = False) -> Value:
    """put: x.flatten()[index] = source, or += with `accumulate`; elements are numbered row-major."""
    if index.dtype != I64:
        return NotImplemented
    x = into.x
    if accumulate and x.dtype == BOOL:
        return NotImplemented
    if source.dtype != x.dtype or count(source.size) != count(index.size):  # eager raises
        return NotImplemented

    def where(loop: KernelBuilder) -> Coords:
        return unravel(checked_index(loop, index, loop.coords, count(x.size), 0, wrap=True), x.size)

    def what(loop: KernelBuilder) -> KernelValue:
        is_like = source.size == index.size
        return loop.load(source, None if is_like else unravel(ravel(loop.coords, loop.extents), source.size))

    return accumulate_into(into, index.size, where, what, "add" if accumulate else "set")


def max_unpool(ctx: Lowering, x: View, places: View, area: Sequence[Operand], *window: Value) -> Value:
    """Lowers max_unpool2d and max_unpool3d: x at the row-major `places` of an image of zeros."""
    if is_zero_sized(x) or any(is_zero(n) for n in sizes(ctx.meta.size)):
        return NotImplemented
    size, lead = sizes(ctx.meta.size), len(x.size) - len(area)
    out = ctx.pointwise(lambda zero: zero, 0)

    def where(loop: KernelBuilder) -> Coords:
        number = checked_index(loop, places, loop.coords, count(size[lead:]), lead, wrap=False, error="RuntimeError")
        return [*loop.coords[:lead], *unravel(number, size[lead:])]

    return write(ctx, out, x.size, where, lambda loop: loop.load(x))


# --- gradients ----------------------------------------------------------------------------------------------------


def embedding_dense_backward(
    ctx: Lowering, grad: View, ids: View, rows: Operand, padding: int, scale_by_frequency: bool
) -> Value:
    """Lowers embedding_dense_backward: adds each row of the gradient to the row ids[k] of zeros, in the order of k.

    The row `padding` gets nothing. With `scale_by_frequency` a row is divided by how often its id occurs.
    """
    if is_zero_sized(grad) or any(is_zero(as_expr(n)) for n in ctx.meta.size) or not isinstance(rows, int | Expr):
        return NotImplemented
    size = as_expr(rows)

    def row(loop: KernelBuilder) -> Expr:
        return checked_index(loop, ids, loop.coords[: len(ids.size)], size, 0, wrap=False)

    number: View | None = None
    if scale_by_frequency:
        number = count_writes(ctx, (size,), ids.size, lambda loop: (row(loop),), 0)

    def what(loop: KernelBuilder) -> KernelValue:
        value = loop.load(grad)
        if number is not None:
            value = value / loop.load(number, (row(loop),)).cast(value.dtype)
        if not isinstance(padding, int) or padding >= 0:
            is_padding = loop.load(ids, loop.coords[: len(ids.size)], I64).equals(padding)
            value = is_padding.where(0.0, value)
        return value

    return accumulate_in_zeros(ctx, grad.size, lambda loop: (row(loop), loop.coords[-1]), what)


def _pairs(name: str, core: Callable[..., Value], *overloads: str) -> dict[str, Rule]:
    """Rows for the overloads of an operator and of its in-place form."""
    rows: dict[str, Rule] = {}
    for overload in overloads or ("default",):
        rows[f"aten.{name}.{overload}"] = functional(core)
        rows[f"aten.{name}_.{overload}"] = in_place(core)
    return rows


RULES: Mapping[str, Rule] = {
    **_pairs("index_put", index_put),
    "aten._unsafe_index_put.default": functional(index_put),
    "aten._unsafe_masked_index_put_accumulate.default": functional(unsafe_masked_put),
    **_pairs("masked_scatter", masked_scatter),
    **_pairs("scatter", scatter, "src", "value", "reduce", "value_reduce"),
    **_pairs("scatter_add", scatter_add),
    **_pairs("scatter_reduce", scatter_reduce, "two"),
    **_pairs("index_add", index_add),
    **_pairs("index_copy", index_copy),
    **_pairs("index_fill", index_fill, "int_Scalar", "int_Tensor"),
    **_pairs("index_reduce", index_reduce),
    **_pairs("put", put),
    "aten.max_unpool2d.default": max_unpool,
    "aten.max_unpool3d.default": max_unpool,
    "aten.embedding_dense_backward.default": embedding_dense_backward,
}
