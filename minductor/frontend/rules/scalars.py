"""Rules of data-dependent numbers: item(), assertions about them, and slices and selects whose bounds they are.

- _local_scalar_dense (what `tensor.item()` becomes)
- _assert_scalar, _assert_async, _functional_assert_async, sym_constrain_range (what `torch._check` becomes)
- slice.Tensor and select.int, whose rows are in `views.py`

Takes tensors and numbers. Gives symbols, which later nodes use as sizes: one for the number that a tensor holds, and
others for the size and the offset of a slice with such bounds; and `Require` nodes for what the program promised of
them. Refuses nothing. A promise that does not hold raises RuntimeError at the call, as in eager.
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.core.dtypes import BOOL, I64
from minductor.core.expressions.expr import Expr, Symbol, as_expr
from minductor.frontend.capture.size_formulas import count, is_one
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.size_requirements import require_index
from minductor.frontend.lowering_context.values import Operand, Rule, Value, rules_for, wrap_dim
from minductor.frontend.rules.pointwise import is_nonzero
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Body, View

NOT_TRUE = "Expected Tensor with single nonzero value, but got zero"  # eager's message


def local_scalar(ctx: Lowering, x: View) -> Value:
    """Lowers _local_scalar_dense: reads the number of a one-element tensor into a symbol, by an extern call.

    If the tracer has a symbol for the number that nothing else defines, the call defines that symbol. If a promise of
    the program (torch._check) made the number a constant or another size, the number is read into a new symbol and a
    `Require` node checks the promise.
    """
    meta = ctx.node.meta
    assert isinstance(meta, int | float | Expr)
    unknown = ctx.undefined_symbols(meta)
    if isinstance(meta, Symbol) and unknown == (meta,):
        ctx.read_scalar(x, meta)
        return meta
    raw = ctx.new_symbol("truth" if x.dtype.kind == "bool" else "real" if x.dtype.kind == "float" else "size")
    ctx.read_scalar(x, raw)
    if len(unknown) == 1 and raw.kind == "truth":  # torch's symbol is an integer, and the bool is whether that is 1
        ctx.define(unknown[0], lambda b: b.cast(b.index(raw), I64))
    elif (body := _equal(raw, meta)) is not None:
        ctx.require(body, f"{ctx.node.name} is not {meta}, as the program had promised")
    return meta


def _equal(raw: Symbol, meta: Expr | float) -> Body | None:
    """A body that computes raw == meta; None if their dtypes differ, so that they cannot be compared."""
    b = Builder()
    at = b.index(raw)
    other = b.index(meta) if isinstance(meta, Expr) else b.constant(meta, b.dtype(at))
    return None if b.dtype(at) != b.dtype(other) else b.build([b.op("eq", at, other)])


def assert_scalar(ctx: Lowering, condition: Operand, message: str) -> Value:
    """Lowers _assert_scalar of a condition that the tracer could not decide: a `Require` node with `message`.

    Conditions that the tracer did decide live on as ranges of symbols, and in the checks of `local_scalar`.
    """
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
        ctx.require(body, message)
    return None


def assert_async(ctx: Lowering, x: View, message: str = NOT_TRUE) -> Value:
    """Lowers _assert_async of a one-element tensor: a kernel that asserts it, so that it fuses with its producer."""
    if not is_one(count(x.size)):
        return NotImplemented
    loop = KernelBuilder(x.size)
    loop.b.assertion(is_nonzero(loop.load(x)).at, message)
    ctx.add_kernel(loop)
    return None


def functional_assert_async(ctx: Lowering, x: View, message: str, token: View) -> Value:
    """Lowers _functional_assert_async; `token` orders assertions, and the order of the graph does so already."""
    return NotImplemented if assert_async(ctx, x, message) is NotImplemented else token


def no_check(ctx: Lowering, *ignored: Value, **named: Value) -> Value:
    """Lowers sym_constrain_range to nothing: the tracer has put the range into the symbol."""
    return None


def slice_tensor(
    ctx: Lowering, x: View, dim: int = 0, start: Operand | None = None, end: Operand | None = None, step: int = 1
) -> Value:
    """Lowers slice.Tensor: a view; if data decide its bounds, the program computes its size and offset.

    As in eager, bounds count from the end if negative and are clamped to the dimension.
    """
    size, offset = _undefined_size_and_offset(ctx, dim := wrap_dim(dim, len(x.size)))
    extent = x.size[dim]

    def bounds(b: Builder) -> tuple[int, int]:
        first = _clamped(b, 0 if start is None else start, extent)
        last = _clamped(b, extent if end is None else end, extent)
        return first, b.op("maximum", last, first)

    def length(b: Builder) -> int:
        first, last = bounds(b)
        span = b.op("add", b.op("sub", last, first), b.constant(step - 1, I64))
        return b.op("floordiv", span, b.constant(step, I64))

    if size is not None:
        ctx.define(size, length)
    if offset is not None:
        ctx.define(offset, lambda b: _offset_of(ctx, b, bounds(b)[0], x.stride[dim]))
    return ctx.window(x)


def select(ctx: Lowering, x: View, dim: int, index: Operand) -> Value:
    """Lowers select.int: a view at one index of a dimension; the call raises if the index is out of range."""
    _, offset = _undefined_size_and_offset(ctx, dim := wrap_dim(dim, len(x.size)))
    if offset is not None and isinstance(index, int | Expr):
        extent = x.size[dim]
        if not require_index(ctx, index, dim, extent):
            return NotImplemented
        ctx.define(offset, lambda b: _offset_of(ctx, b, _wrapped(b, index, extent), x.stride[dim]))
    return ctx.window(x)


def _undefined_size_and_offset(ctx: Lowering, dim: int) -> tuple[Symbol | None, Symbol | None]:
    """The result's size along `dim` and its offset, each if it is a symbol that no node defines yet, else None."""
    meta = ctx.meta
    unknown = ctx.undefined_symbols((meta.size, meta.offset))
    size = meta.size[dim] if dim < len(meta.size) else None
    found = (s if isinstance(s, Symbol) and s in unknown else None for s in (size, meta.offset))
    return next(found), next(found)


def _number(b: Builder, value: Operand | Expr) -> int:
    """An int or a size as a value of the body."""
    assert isinstance(value, int | Expr)
    return b.index(as_expr(value))


def _wrapped(b: Builder, index: Operand, extent: Expr) -> int:
    """An index that may count from the end, counted from the start."""
    at = _number(b, index)
    return b.op("where", b.op("lt", at, b.constant(0, I64)), b.op("add", at, b.index(extent)), at)


def _clamped(b: Builder, end: Operand, extent: Expr) -> int:
    """A bound of a slice, counted from the start and clamped to [0, extent]."""
    at = b.op("maximum", _wrapped(b, end, extent), b.constant(0, I64))
    return b.op("minimum", at, b.index(extent))


def _offset_of(ctx: Lowering, b: Builder, places: int, stride: Expr) -> int:
    """The traced storage offset of a view that starts `places` elements into the node's first argument along a dim."""
    base = ctx.traced(ctx.node.args[0])
    return b.op("add", b.index(as_expr(base.offset)), b.op("mul", places, b.index(stride)))


RULES: Mapping[str, Rule] = {
    "aten._local_scalar_dense.default": local_scalar,
    "aten._assert_scalar.default": assert_scalar,
    **rules_for("_assert_async _assert_async.msg", assert_async),
    "aten._functional_assert_async.msg": functional_assert_async,
    **rules_for("sym_constrain_range sym_constrain_range_for_size", no_check),
}
