"""Writes at places that data decide: index_put, the scatter family, index_add and its kin, max_unpool, embedding's
gradient.

Takes the tensor that is written, index tensors and values. Gives a copy of the tensor and a kernel that writes into it,
or that kernel alone where the tensor is dead or the operator works in place. Every index is checked. Points of a kernel
run in the order of its axes where they may meet (ordered_axes.py), so that the last of several writes wins and sums
have one order. Sums and products of 16-bit floats that may meet are carried in a float32 buffer and rounded once.
Refuses (to an extern call) masks whose values do not broadcast, and sums of bools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from minductor.core.dtypes import BOOL, F32, I32, I64, U8, DType, compute_dtype
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr, integer
from minductor.frontend.capture.size_formulas import count, is_one, is_zero, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.overwriting import is_dead, is_fusable_copy, writable
from minductor.frontend.lowering_context.size_requirements import require_broadcast, require_size
from minductor.frontend.lowering_context.values import Operand, Value, broadcast, element, is_zero_sized, wrap_dim
from minductor.frontend.rules.index import (
    Coords,
    at_least_1d,
    checked_index,
    index_position,
    indexed_coords,
    masked_index,
    ravel,
    replace_coord,
    unravel,
)
from minductor.ir.plan.storage import typical_size
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import ErrorKind, View

# A tensor of so many elements, and so many times as many as there are values to add, is not copied to float32.
SPARSE_ELEMENTS, SPARSE_RATIO = 1 << 16, 4

Rule = Callable[..., Value]
# where a point of a kernel writes: coordinates, or a place in the storage
Where: TypeAlias = Callable[[KernelBuilder], Coords | Expr]
What: TypeAlias = Callable[[KernelBuilder], KernelValue]


@dataclass(frozen=True, slots=True)
class Destination:
    """What is written: a tensor itself, or a copy of it that becomes the result, if its value is wanted later."""

    ctx: Lowering
    x: View
    is_in_place: bool

    def target(self) -> View:
        return self.x if self.is_in_place else writable(self.ctx, self.x)

    def wide(self) -> View:
        """The values as float32 in a buffer of their own."""
        out = self.ctx.buffer(F32, self.x.size)
        loop = KernelBuilder(out.size)
        return self.ctx.store(loop, out, loop.coords, loop.load(self.x))

    def finish(self, values: View, fn: Callable[[KernelBuilder, KernelValue], KernelValue]) -> View:
        """The result, made of `values` element by element."""
        if not self.is_in_place:
            return self.ctx.map(lambda loop: fn(loop, loop.load(values)))
        loop = KernelBuilder(self.x.size)
        value = fn(loop, loop.load(values))
        return self.ctx.store(loop, self.ctx.next_version(self.x), loop.coords, value)

    def snapshot(self, given: Value) -> Value:
        """An operand that does not change while the tensor is written: another window on it is copied before."""
        match given:
            case tuple():
                return tuple(self.snapshot(v) for v in given)
            case View() if self.is_in_place and given.ref.storage == self.x.ref.storage:
                loop = KernelBuilder(given.size)
                return self.ctx.store(loop, self.ctx.buffer(given.dtype, given.size), loop.coords, loop.load(given))
            case _:
                return given


def write(ctx: Lowering, out: View, extents: Sequence[Expr], where: Where, what: What, kind: str = "set") -> View:
    """A kernel over `extents` that stores, or joins by `kind`, `what` at `where`."""
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
    """Joins values into the tensor by `kind`."""
    if not rounds_each_step(into.x.dtype, extents, where, kind):
        return write(into.ctx, into.target(), extents, where, what, kind)
    if is_sparse(into.x, extents):
        return accumulate_sparsely(into, extents, where, what, kind)
    total = write(into.ctx, into.wide(), extents, where, what, kind)
    return into.finish(total, lambda loop, value: value)


def is_sparse(x: View, extents: Sequence[Expr]) -> bool:
    """Whether so few values go to a tensor that a float32 copy of the tensor would cost more than all else.

    It is a judgement of cost, so a size that only the call knows counts as a typical one.
    """
    return typical_size(count(x.size)) >= max(SPARSE_ELEMENTS, SPARSE_RATIO * typical_size(count(extents)))


def accumulate_sparsely(into: Destination, extents: Sequence[Expr], where: Where, what: What, kind: str) -> View:
    """Joins values into a tensor of 16-bit floats in a float32 buffer that has the shape of the values.

    Of the points that write to one element, the element's number in `chosen` names one, whose place in the buffer
    holds the sum. `chosen` is written only where it is read. Along a free axis all of this is the same.
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
    return (at,) if isinstance(at, Expr) else at


def _free_axes(extents: Sequence[Expr], where: Where) -> frozenset[Expr]:
    """The axes of a write that are a coordinate by themselves, and along which no index varies."""
    loop = KernelBuilder(extents)
    at = _coords(where(loop))
    varying = {axis for op in loop.b.build().ops for axis in op.axes}
    return frozenset(axis.symbol for axis in loop.axes if axis.symbol in at and axis.name not in varying)


def accumulate_in_zeros(ctx: Lowering, extents: Sequence[Expr], where: Where, what: What) -> View:
    """A result of the current node that holds the sums of the values that go to each element."""
    return accumulate_into(
        Destination(ctx, ctx.pointwise(lambda zero: zero, 0), is_in_place=False), extents, where, what, "add"
    )


def rounds_each_step(dtype: DType, extents: Sequence[Expr], where: Where, kind: str) -> bool:
    """Whether an element of a 16-bit dtype may get several terms, each of which would be rounded to that dtype.

    Points of a kernel write to different elements if each axis is a coordinate by itself.
    """
    if dtype.itemsize > 2 or dtype.kind != "float" or kind not in ("add", "mul"):
        return False
    loop = KernelBuilder(extents)
    at = _coords(where(loop))
    return any(axis.symbol not in at for axis in loop.axes)


def functional(core: Callable[..., Value]) -> Rule:
    """A value that is dead is written over, unless a copy of it costs nothing."""

    def rule(ctx: Lowering, x: View, *args: Value, **kwargs: Value) -> Value:
        return _rule(
            core, Destination(ctx, x, is_in_place=is_dead(ctx, x) and not is_fusable_copy(ctx, x)), args, kwargs
        )

    return rule


def in_place(core: Callable[..., Value]) -> Rule:
    return lambda ctx, x, *args, **kwargs: _rule(core, Destination(ctx, x, is_in_place=True), args, kwargs)


def _rule(core: Callable[..., Value], into: Destination, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if is_zero_sized(into.x):
        return NotImplemented  # an index into nothing is an error that eager words best
    return core(into, *(into.snapshot(a) for a in args), **{name: into.snapshot(v) for name, v in kwargs.items()})


# --- index_put ----------------------------------------------------------------------------------------------------


def index_put(into: Destination, indices: Sequence[View | None], values: View, accumulate: bool = False) -> Value:
    """x[i, :, j] = values, or += values: as `index_tensors` in rules/index.py reads."""
    x = into.x
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given or (accumulate and x.dtype == BOOL) or values.dtype != x.dtype:  # the last raises
        return NotImplemented
    if any(i.dtype in (BOOL, U8) for _, i in given):
        return masked_put(into, given, values, accumulate=accumulate)
    dims = [d for d, _ in given]
    shared = shape_together([i.size for _, i in given])
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


def shape_together(shapes: Sequence[Sequence[Expr]]) -> list[Expr]:
    """The shape that several broadcast to."""
    rank = max(len(shape) for shape in shapes)
    found: list[Expr] = []
    for d in range(rank):
        sizes = [shape[d - rank + len(shape)] for shape in shapes if d - rank + len(shape) >= 0]
        found.append(next((n for n in sizes if not is_one(n)), sizes[0]))
    return found


def masked_put(into: Destination, given: Sequence[tuple[int, View]], values: View, *, accumulate: bool) -> Value:
    """One mask chooses elements: a select, if all that it chooses along its dimensions get the same value."""
    (first, mask), *more = given
    end = first + len(mask.size)
    if more or mask.dtype != BOOL or not require_size(into.ctx, mask.size, into.x.size[first:end]):
        return NotImplemented
    # `values` has one element for all that the mask chose
    if not require_broadcast(into.ctx, values.size, (*into.x.size[:first], integer(1), *into.x.size[end:])):
        return NotImplemented

    def fn(loop: KernelBuilder, old: KernelValue) -> KernelValue:
        coords = [*loop.coords[:first], as_expr(0), *loop.coords[end:]]
        value = loop.load(values, coords, into.x.dtype)
        return loop.load(mask, loop.coords[first:end]).where(old + value if accumulate else value, old)

    return into.finish(into.x, fn)


def unsafe_masked_put(into: Destination, mask: View, indices: Sequence[View | None], values: View) -> Value:
    """x[indices] += values where the mask holds; an index that is masked out may be anything."""
    x = into.x
    if any(i is None for i in indices) or len(indices) != len(x.size) or x.dtype == BOOL:
        return NotImplemented
    extents = shape_together([mask.size, values.size, *(i.size for i in indices if i is not None)])

    def where(loop: KernelBuilder) -> Coords:
        holds = loop.load(mask)
        return [masked_index(loop, holds, i, x.size[k], k) for k, i in enumerate(indices) if i is not None]

    def what(loop: KernelBuilder) -> KernelValue:
        return loop.load(mask).where(loop.load(values), 0)

    return accumulate_into(into, extents, where, what, "add")


def masked_scatter(into: Destination, mask: View, source: View) -> Value:
    """The source's elements in turn where the mask holds: a running count of the mask says which."""
    ctx, x = into.ctx, into.x
    total = count(x.size)
    if (count(source.size).range[0] or 0) < 1:  # data may leave nothing to read, where the mask holds nowhere
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


def along(into: Destination, dim: int, index: View) -> Where:
    """x[.., index[c], ..] at each point c of the index."""
    size, d = at_least_1d(into.x).size, wrap_dim(dim, len(into.x.size))

    def where(loop: KernelBuilder) -> Coords | Expr:
        at = checked_index(loop, index, loop.coords, size[d], d, wrap=False, error="RuntimeError")
        return replace_coord(loop, d, at) if into.x.size else at

    return where


def each(source: Operand, x: View) -> What:
    """The source's element at the loop's point, as x's dtype; one without dimensions is the same for all."""
    has_point = isinstance(source, View) and bool(source.size)
    return lambda loop: loop.load(source, loop.coords if has_point else (), x.dtype)


JOINS: Mapping[str, str] = MappingProxyType(
    {"sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}
)


def scatter(into: Destination, dim: int, index: View, source: Operand, *, reduce: str = "") -> Value:
    """scatter.src, scatter.value, and their forms that join instead of storing."""
    if reduce and into.x.dtype == BOOL:
        return NotImplemented
    where, what = along(into, dim, index), each(source, into.x)
    if reduce:
        return accumulate_into(into, index.size, where, what, JOINS[reduce])
    return write(into.ctx, into.target(), index.size, where, what)


def scatter_add(into: Destination, dim: int, index: View, source: View) -> Value:
    return scatter(into, dim, index, source, reduce="add")


def scatter_reduce(
    into: Destination, dim: int, index: View, source: View, reduce: str, *, include_self: bool = True
) -> Value:
    if into.x.dtype == BOOL:
        return NotImplemented
    where, what = along(into, dim, index), each(source, into.x)
    return joined(into, index.size, where, what, reduce, include_self=include_self)


def joined(
    into: Destination, extents: Sequence[Expr], where: Where, what: What, reduce: str, *, include_self: bool
) -> View:
    """Joins values into the tensor; without `include_self` its elements that are reached begin at the identity."""
    ctx, x = into.ctx, into.x
    is_wide = rounds_each_step(x.dtype, extents, where, JOINS[reduce])
    total = into.wide() if is_wide else into.target()
    if not include_self:
        first = _identity(reduce, x.dtype)
        total = write(ctx, total, extents, where, lambda loop: loop.load(first, None, x.dtype))
    total = write(ctx, total, extents, where, what, JOINS[reduce])
    if reduce != "mean":
        return into.finish(total, lambda loop, value: value) if is_wide else total
    number = counted(ctx, x.size, extents, where, start=int(include_self))
    closing = into if is_wide else Destination(ctx, total, is_in_place=True)
    return closing.finish(total, lambda loop, value: _quotient(value, loop.load(number)))


def counted(ctx: Lowering, size: Sequence[Expr], extents: Sequence[Expr], where: Where, start: int) -> View:
    """How many values go to each element."""
    out = ctx.buffer(I64, size)
    loop = KernelBuilder(size)
    out = ctx.store(loop, out, loop.coords, loop.load(start, None, I64))
    return write(ctx, out, extents, where, lambda loop: loop.load(1, None, I64), "add")


def _quotient(value: KernelValue, number: KernelValue) -> KernelValue:
    """A mean; that of integers is rounded down."""
    number = number.op("maximum", 1)
    return (
        value / number.cast(value.dtype)
        if value.dtype.kind == "float"
        else value.op("floordiv", number.cast(value.dtype))
    )


def _identity(reduce: str, dtype: DType) -> float:
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
    """x[.., index[k], ..] for the k of a loop over slices."""
    size, d = at_least_1d(into.x).size, wrap_dim(dim, len(into.x.size))

    def where(loop: KernelBuilder) -> Coords | Expr:
        which = loop.coords[d] if loop.coords else as_expr(0)
        at = checked_index(loop, at_least_1d(index), (which,), size[d], d, wrap=wrap, error=error)
        return replace_coord(loop, d, at) if into.x.size else at

    return where


def _are_slices(into: Destination, dim: int, index: View, source: View) -> bool:
    """Whether the source has a slice of the tensor's size and dtype for each index."""
    if source.dtype != into.x.dtype:
        return False
    size = [count(index.size) if d == dim else n for d, n in enumerate(at_least_1d(into.x).size)]
    return require_size(into.ctx, at_least_1d(source).size, size)


def index_add(into: Destination, dim: int, index: View, source: View, *, alpha: float = 1) -> Value:
    d = wrap_dim(dim, len(into.x.size))
    if into.x.dtype == BOOL or len(source.size) != len(into.x.size) or not _are_slices(into, d, index, source):
        return NotImplemented
    # eager adds whole slices by scatter_add, which has another kind of error
    is_scatter_add = len(into.x.size) > 1 and alpha == 1 and index.dtype == I64
    error: ErrorKind = "RuntimeError" if is_scatter_add else "IndexError"
    value = each(source, into.x)
    what = value if alpha == 1 else lambda loop: value(loop) * alpha
    return accumulate_into(into, source.size, slices(into, dim, index, error=error), what, "add")


def index_copy(into: Destination, dim: int, index: View, source: View) -> Value:
    if index.dtype != I64:
        return NotImplemented
    where = slices(into, dim, index, error="IndexError")
    return write(into.ctx, into.target(), source.size, where, each(source, into.x))


def index_fill(into: Destination, dim: int, index: View, value: Operand) -> Value:
    x = into.x
    if (isinstance(value, View) and value.size) or index.dtype != I64:
        return NotImplemented
    d = wrap_dim(dim, len(x.size))
    extents = [count(index.size) if k == d else n for k, n in enumerate(at_least_1d(x).size)]
    where = slices(into, dim, index, error="IndexError", wrap=True)
    return write(into.ctx, into.target(), extents, where, each(value, x))


def index_reduce(
    into: Destination, dim: int, index: View, source: View, reduce: str, *, include_self: bool = True
) -> Value:
    if into.x.dtype == BOOL or not _are_slices(into, wrap_dim(dim, len(into.x.size)), index, source):
        return NotImplemented
    where, what = slices(into, dim, index, error="IndexError"), each(source, into.x)
    return joined(into, source.size, where, what, reduce, include_self=include_self)


def put(into: Destination, index: View, source: View, accumulate: bool = False) -> Value:
    """An element by its number in row-major order, whatever the layout."""
    if index.dtype != I64:
        return NotImplemented
    x = into.x
    if accumulate and x.dtype == BOOL:
        return NotImplemented
    if source.dtype != x.dtype or count(source.size) != count(index.size):  # the call raises
        return NotImplemented

    def where(loop: KernelBuilder) -> Coords:
        return unravel(checked_index(loop, index, loop.coords, count(x.size), 0, wrap=True), x.size)

    def what(loop: KernelBuilder) -> KernelValue:
        return loop.load(
            source,
            loop.coords if source.size == index.size else unravel(ravel(loop.coords, loop.extents), source.size),
        )

    return accumulate_into(into, index.size, where, what, "add" if accumulate else "set")


def max_unpool(ctx: Lowering, x: View, places: View, area: Sequence[Operand], *window: Value) -> Value:
    """Each element to its place in an image of zeros, which it names by a number in row-major order."""
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
    """Each row of the gradient goes to the row that its id names, in the order of the ids."""
    if is_zero_sized(grad) or any(is_zero(as_expr(n)) for n in ctx.meta.size) or not isinstance(rows, int | Expr):
        return NotImplemented
    size = as_expr(rows)

    def row(loop: KernelBuilder) -> Expr:
        return checked_index(loop, ids, loop.coords[: len(ids.size)], size, 0, wrap=False)

    number: View | None = None
    if scale_by_frequency:
        number = counted(ctx, (size,), ids.size, lambda loop: (row(loop),), 0)

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
    """The operator and the one that works in place."""
    rows: dict[str, Rule] = {}
    for overload in overloads or ("default",):
        rows[f"aten.{name}.{overload}"] = functional(core)
        rows[f"aten.{name}_.{overload}"] = in_place(core)
    return rows


RULES: Mapping[str, Rule] = MappingProxyType(
    {
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
)
