"""Rules of operators that create tensors: zeros, ones, full, empty, arange, linspace, logspace, eye; and tril and triu.

Takes sizes and numbers; all layout arguments (dtype, layout, device, memory format) are ignored, because the traced
result has them. Gives one kernel without loads, which the `inline` pass moves into its readers; `empty` allocates only.
Refuses (to an extern call) numbers of which only the call shows whether they fit the dtype, and integer linspaces.
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.core.dtypes import BOOL, F64, I64, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Rule, Value, rules_for
from minductor.ir.program.nodes import View


def full(ctx: Lowering, like: Value, value: Operand, **layout: Value) -> Value:
    """Lowers full, full_like, new_full and fill: every element is `value`, cast to the result's dtype.

    `like` is a size or a tensor; the traced result has the size already.
    """
    dtype = ctx.meta.dtype
    if isinstance(value, Expr) and dtype.kind in ("int", "uint") and dtype.itemsize < 8:
        return NotImplemented  # eager raises if the number does not fit the dtype
    return ctx.pointwise(lambda x: x, value)


def constant_fill(value: int) -> Rule:
    """Lowers zeros, ones, their `_like` and `new_` forms, and `zero`: every element is the constant `value`."""

    def rule(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
        return ctx.pointwise(lambda x: x, value)

    return rule


def empty(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    """Lowers empty and its forms: the result is allocated with its traced strides, and no kernel writes it."""
    return ctx.uninitialised(ctx.result())


def arange(ctx: Lowering, start: Operand, step: Operand) -> Value:
    """Writes the range start + k * step for the forms of arange and prims.iota.

    As in eager, floating-point ranges are computed in float64 and rounded once, and a range of integers truncates
    `start` and `step` to integers first.
    """
    dtype = ctx.meta.dtype
    if isinstance(start, View | complex) or isinstance(step, View | complex):
        return NotImplemented

    def fn(loop: KernelBuilder) -> KernelValue:
        (place,) = loop.coords
        if dtype.kind == "float":
            return loop.load(start, None, F64) + loop.index(place, F64) * loop.load(step, None, F64)
        first, each = (n if isinstance(n, Expr) else as_expr(int(n)) for n in (start, step))
        return loop.index(first + place * each, dtype)

    return ctx.map(fn)


def arange_end(ctx: Lowering, end: Operand, **layout: Value) -> Value:
    """Lowers arange(end)."""
    return arange(ctx, 0, 1)


def arange_start(ctx: Lowering, start: Operand, end: Operand, step: Operand = 1, **layout: Value) -> Value:
    """Lowers arange(start, end, step)."""
    return arange(ctx, start, step)


def iota(ctx: Lowering, length: Value, *, start: Operand, step: Operand, **layout: Value) -> Value:
    """Lowers prims.iota."""
    return arange(ctx, start, step)


def evenly_spaced(loop: KernelBuilder, start: Operand, end: Operand, steps: int) -> KernelValue:
    """Element k of `steps` equal steps from `start` to `end`, in float64 because digits cancel near zero.

    The first half counts up from `start` and the second half counts down from `end`, as in eager, so that both ends are
    exact.
    """
    (place,) = loop.coords
    first, last = loop.load(start, None, F64), loop.load(end, None, F64)
    if steps == 1:
        return first
    step = (last - first) / float(steps - 1)
    from_start, from_end = loop.index(place, F64), loop.index(steps - 1 - place, F64)
    return (loop.index(place, I64) < steps // 2).where(first + step * from_start, last - step * from_end)


def linspace(ctx: Lowering, start: Operand, end: Operand, steps: int, **layout: Value) -> Value:
    """Lowers linspace of a floating dtype; the ends are numbers or 0-dim tensors."""
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or not isinstance(steps, int):
        return NotImplemented
    return ctx.map(lambda loop: evenly_spaced(loop, start, end, steps).cast(compute_dtype(dtype)))


def logspace(
    ctx: Lowering, start: Operand, end: Operand, steps: int, base: float | None = None, **layout: Value
) -> Value:
    """Lowers logspace of a floating dtype: base ** linspace(start, end).

    The power is taken in float64 too, because it multiplies the rounding error of its exponent.
    """
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or not isinstance(steps, int):
        return NotImplemented
    number = 10.0 if base is None else float(base)

    def fn(loop: KernelBuilder) -> KernelValue:
        exponent = evenly_spaced(loop, start, end, steps)
        return exponent.number(number).op("pow", exponent).cast(compute_dtype(dtype))

    return ctx.map(fn)


def eye(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    """Lowers eye: 1 where the row equals the column, else 0."""

    def fn(loop: KernelBuilder) -> KernelValue:
        row, column = loop.coords
        is_diagonal = loop.index(row - column, I64).equals(0)
        return is_diagonal if ctx.meta.dtype == BOOL else is_diagonal.cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def triangle(*, is_lower: bool) -> Rule:
    """Lowers tril and triu: the element on the kept side of the diagonal, else 0, also in place of a NaN."""

    def rule(ctx: Lowering, x: View, diagonal: int = 0) -> Value:
        def fn(loop: KernelBuilder) -> KernelValue:
            row, column = loop.coords[-2:]
            above = loop.index(column - row, I64)
            is_kept = above <= diagonal if is_lower else above >= diagonal
            value = loop.load(x)
            return is_kept.where(value, value.number(0))

        return ctx.map(fn)

    return rule


RULES: Mapping[str, Rule] = {
    **rules_for("zeros zeros_like new_zeros zero", constant_fill(0)),
    **rules_for("ones ones_like new_ones", constant_fill(1)),
    **rules_for("full full_like fill.Scalar fill.Tensor", full),
    "aten.new_full.default": lambda ctx, x, *given, **layout: full(ctx, *given),
    **rules_for("empty.memory_format empty_strided empty_like empty_permuted new_empty new_empty_strided", empty),
    "aten.arange.default": arange_end,
    **rules_for("arange.start arange.start_step", arange_start),
    "prims.iota.default": iota,
    **rules_for("linspace linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor", linspace),
    **rules_for("logspace logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor", logspace),
    **rules_for("eye eye.m", eye),
    "aten.tril.default": triangle(is_lower=True),
    "aten.triu.default": triangle(is_lower=False),
}
