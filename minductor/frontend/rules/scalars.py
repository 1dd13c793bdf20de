"""Numbers read from tensors, what is promised of them, and windows whose place such a number decides.

Takes tensors and numbers. Gives symbols: one for what an item holds, others for the size and offset of a slice; and
requirements. Refuses nothing: a promise that does not hold raises RuntimeError at the call, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import BOOL, I64
from minductor.core.expressions.expr import Expr, Symbol, as_expr
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.required import require_index
from minductor.frontend.lowering_context.values import Operand, Value, count, is_one, wrap_dim
from minductor.frontend.rules.pointwise import is_nonzero
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Body, Require, View

Rule = Callable[..., Value]

NOT_TRUE = "Expected Tensor with single nonzero value, but got zero"  # eager's words


def local_scalar(ctx: Lowering, x: View) -> Value:
    """The number that a tensor holds.

    Where the tracer calls it by a symbol of its own, that is it; where a promise has made it something else (a
    constant, another size), the promise is kept to.
    """
    meta = ctx.node.meta
    assert isinstance(meta, int | float | Expr)
    unknown = ctx.undefined(meta)
    if isinstance(meta, Symbol) and unknown == (meta,):
        ctx.read_scalar(x, meta)
        return meta
    raw = ctx.new_symbol("truth" if x.dtype.kind == "bool" else "real" if x.dtype.kind == "float" else "size")
    ctx.read_scalar(x, raw)
    if len(unknown) == 1 and raw.kind == "truth":  # torch asks whether an integer of its own is 1
        ctx.define(unknown[0], lambda b: b.cast(b.index(raw), I64))
    elif (body := _equal(raw, meta)) is not None:
        ctx.nodes.append(Require(body, f"{ctx.node.name} is not {meta}, as was promised", (ctx.origin,)))
    return meta


def _equal(raw: Symbol, meta: Expr | float) -> Body | None:
    b = Builder()
    at = b.index(raw)
    other = b.index(meta) if isinstance(meta, Expr) else b.constant(meta, b.dtype(at))
    return None if b.dtype(at) != b.dtype(other) else b.build([b.op("eq", at, other)])


def assert_scalar(ctx: Lowering, condition: Operand, message: str) -> Value:
    """What torch cannot answer while tracing; what it can, the ranges of symbols and `local_scalar` see to."""
    b = Builder()
    match condition:
        case Symbol(kind="truth"):
            known = ctx.definitions.get(condition)
            body = b.build([b.index(condition)]) if known is None else known
        case Expr():
            body = b.build([b.op("ne", b.index(condition), b.constant(0, I64))])
        case bool() | int():
            body = b.build([b.constant(bool(condition), BOOL)])
        case _:
            return NotImplemented
    if condition is not True:
        ctx.nodes.append(Require(body, message, (ctx.origin,)))
    return None


def assert_async(ctx: Lowering, x: View, message: str = NOT_TRUE) -> Value:
    """An assertion inside a kernel: it may be joined with the kernel that computes its condition."""
    if not is_one(count(x.size)):
        return NotImplemented
    loop = Loop(x.size)
    loop.b.assertion(is_nonzero(loop.load(x)).at, message)
    ctx.add_kernel(loop)
    return None


def functional_assert_async(ctx: Lowering, x: View, message: str, token: View) -> Value:
    """The token only orders it after others, as its place in the graph does."""
    return NotImplemented if assert_async(ctx, x, message) is NotImplemented else token


def nothing(ctx: Lowering, *ignored: Value, **named: Value) -> Value:
    """A fact that the symbols' ranges hold already."""
    return None


def slice_tensor(
    ctx: Lowering, x: View, dim: int = 0, start: Operand | None = None, end: Operand | None = None, step: int = 1
) -> Value:
    """A window; where data decide its ends, its size and offset are computed as eager cuts them."""
    size, offset = _unknown_parts(ctx, dim := wrap_dim(dim, len(x.size)))
    extent = x.size[dim]

    def bounds(b: Builder) -> tuple[int, int]:
        first = _cut(b, 0 if start is None else start, extent)
        last = _cut(b, extent if end is None else end, extent)
        return first, b.op("maximum", last, first)

    def length(b: Builder) -> int:
        first, last = bounds(b)
        span = b.op("add", b.op("sub", last, first), b.constant(step - 1, I64))
        return b.op("floordiv", span, b.constant(step, I64))

    if size is not None:
        ctx.define(size, length)
    if offset is not None:
        ctx.define(offset, lambda b: _shifted(ctx, b, bounds(b)[0], x.stride[dim]))
    return ctx.window(x)


def select(ctx: Lowering, x: View, dim: int, index: Operand) -> Value:
    """A window at one place along a dimension; outside of it the call raises."""
    _, offset = _unknown_parts(ctx, dim := wrap_dim(dim, len(x.size)))
    if offset is not None and isinstance(index, int | Expr):
        extent = x.size[dim]
        if not require_index(ctx, index, dim, extent):
            return NotImplemented
        ctx.define(offset, lambda b: _shifted(ctx, b, _wrapped(b, index, extent), x.stride[dim]))
    return ctx.window(x)


def _unknown_parts(ctx: Lowering, dim: int) -> tuple[Symbol | None, Symbol | None]:
    """The symbols, if nobody has told them, that are the window's size along a dimension and its offset."""
    meta = ctx.meta
    unknown = ctx.undefined((meta.size, meta.offset))
    size = meta.size[dim] if dim < len(meta.size) else None
    found = (s if isinstance(s, Symbol) and s in unknown else None for s in (size, meta.offset))
    return next(found), next(found)


def _number(b: Builder, value: Operand | Expr) -> int:
    assert isinstance(value, int | Expr)
    return b.index(as_expr(value))


def _wrapped(b: Builder, index: Operand, extent: Expr) -> int:
    at = _number(b, index)
    return b.op("where", b.op("lt", at, b.constant(0, I64)), b.op("add", at, b.index(extent)), at)


def _cut(b: Builder, end: Operand, extent: Expr) -> int:
    """An end of a slice, counted from the start and moved into the dimension."""
    at = b.op("maximum", _wrapped(b, end, extent), b.constant(0, I64))
    return b.op("minimum", at, b.index(extent))


def _shifted(ctx: Lowering, b: Builder, places: int, stride: Expr) -> int:
    """The traced offset of a window that starts that many places into the current node's first argument."""
    base = ctx.traced(ctx.node.args[0])
    return b.op("add", b.index(as_expr(base.offset)), b.op("mul", places, b.index(stride)))


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten._local_scalar_dense.default": local_scalar,
        "aten._assert_scalar.default": assert_scalar,
        "aten._assert_async.default": assert_async,
        "aten._assert_async.msg": assert_async,
        "aten._functional_assert_async.msg": functional_assert_async,
        "aten.sym_constrain_range.default": nothing,
        "aten.sym_constrain_range_for_size.default": nothing,
    }
)
