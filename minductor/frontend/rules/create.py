"""Tensors from nothing: constants, ranges, triangles.

Takes sizes and numbers. Gives one kernel without loads (which `inline` moves into whoever reads it); memory that nobody
is promised anything about is allocated and left alone. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import BOOL, F64, I64, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Operand, Term, Value
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def full(ctx: Lowering, like: Value, value: Operand, **layout: Value) -> Value:
    """One number everywhere; `like` is a size, or a tensor of it."""
    dtype = ctx.meta.dtype
    if isinstance(value, Expr) and dtype.kind in ("int", "uint") and dtype.itemsize < 8:
        return NotImplemented  # it may be too large, which raises
    return ctx.pointwise(lambda x: x, value)


def filled(value: int) -> Rule:
    """zeros, ones and their kin: all arguments concern the layout, which the metadata has."""

    def rule(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
        return ctx.pointwise(lambda x: x, value)

    return rule


def empty(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    return ctx.uninitialised(ctx.result())


def arange(ctx: Lowering, start: Operand, step: Operand) -> Value:
    """Floating-point ranges are computed in float64 and rounded once, as in eager; integer ones cut their bounds."""
    dtype = ctx.meta.dtype
    if isinstance(start, View | complex) or isinstance(step, View | complex):
        return NotImplemented

    def fn(loop: Loop) -> Term:
        (place,) = loop.coords
        if dtype.kind == "float":
            return loop.load(start, None, F64) + loop.index(place, F64) * loop.load(step, None, F64)
        first, each = (n if isinstance(n, Expr) else as_expr(int(n)) for n in (start, step))
        return loop.index(first + place * each, dtype)

    return ctx.map(fn)


def arange_end(ctx: Lowering, end: Operand, **layout: Value) -> Value:
    return arange(ctx, 0, 1)


def arange_start(ctx: Lowering, start: Operand, end: Operand, step: Operand = 1, **layout: Value) -> Value:
    return arange(ctx, start, step)


def iota(ctx: Lowering, length: Value, *, start: Operand, step: Operand, **layout: Value) -> Value:
    return arange(ctx, start, step)


def even_steps(loop: Loop, start: Operand, end: Operand, steps: int) -> Term:
    """From both ends towards the middle, so that both are exact; in float64, since near zero digits cancel."""
    (place,) = loop.coords
    first, last = loop.load(start, None, F64), loop.load(end, None, F64)
    if steps == 1:
        return first
    step = (last - first) / float(steps - 1)
    near, far = loop.index(place, F64), loop.index(steps - 1 - place, F64)
    return (loop.index(place, I64) < steps // 2).where(first + step * near, last - step * far)


def linspace(ctx: Lowering, start: Operand, end: Operand, steps: int, **layout: Value) -> Value:
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or not isinstance(steps, int):
        return NotImplemented
    return ctx.map(lambda loop: even_steps(loop, start, end, steps).cast(compute_dtype(dtype)))


def logspace(
    ctx: Lowering, start: Operand, end: Operand, steps: int, base: float | None = None, **layout: Value
) -> Value:
    """Powers of the base; an exponent is rounded where its error is not yet multiplied."""
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or not isinstance(steps, int):
        return NotImplemented
    number = 10.0 if base is None else float(base)

    def fn(loop: Loop) -> Term:
        exponent = even_steps(loop, start, end, steps)
        return exponent.number(number).op("pow", exponent).cast(compute_dtype(dtype))

    return ctx.map(fn)


def eye(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    def fn(loop: Loop) -> Term:
        row, column = loop.coords
        is_diagonal = loop.index(row - column, I64).equals(0)
        return is_diagonal if ctx.meta.dtype == BOOL else is_diagonal.cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def triangle(*, is_lower: bool) -> Rule:
    """tril and triu: what is on the wrong side of a diagonal is 0, and is not read into it."""

    def rule(ctx: Lowering, x: View, diagonal: int = 0) -> Value:
        def fn(loop: Loop) -> Term:
            row, column = loop.coords[-2:]
            above = loop.index(column - row, I64)
            kept = above <= diagonal if is_lower else above >= diagonal
            value = loop.load(x)
            return kept.where(value, value.number(0))

        return ctx.map(fn)

    return rule


def _variants(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten.{name}": rule for name in names.split()}


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **_variants("zeros.default zeros_like.default new_zeros.default zero.default", filled(0)),
        **_variants("ones.default ones_like.default new_ones.default", filled(1)),
        **_variants("full.default full_like.default fill.Scalar fill.Tensor", full),
        "aten.new_full.default": lambda ctx, x, *given, **layout: full(ctx, *given),
        **_variants(
            "empty.memory_format empty_strided.default empty_like.default empty_permuted.default new_empty.default"
            " new_empty_strided.default",
            empty,
        ),
        **_variants("arange.default", arange_end),
        **_variants("arange.start arange.start_step", arange_start),
        "prims.iota.default": iota,
        **_variants("linspace.default linspace.Tensor_Tensor linspace.Tensor_Scalar linspace.Scalar_Tensor", linspace),
        **_variants("logspace.default logspace.Tensor_Tensor logspace.Tensor_Scalar logspace.Scalar_Tensor", logspace),
        **_variants("eye.default eye.m", eye),
        **_variants("tril.default", triangle(is_lower=True)),
        **_variants("triu.default", triangle(is_lower=False)),
    }
)
