"""Gradients of losses, and the one loss that asks its arguments for their values.

Takes the loss's gradient, what it compared, and ATen's reduction (1 is the mean, 2 the sum). Gives the gradient of the
first of the two: pointwise, times the share of one element where the loss is a mean. Refuses (to an extern call)
probabilities of two dtypes, as eager does, and none at all.

Gradients are rules, and not taken apart by torch, which makes the share a float of the graph where sizes are symbols:
its tracer then needs the sizes as inputs, and computes in float32 what eager computes in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from minductor.core.dtypes import F64
from minductor.core.expressions.expr import Expr, as_int
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Term, Value, count, is_zero
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
# (gradient, x - target, the share, further numbers) -> the gradient of x
Slope = Callable[..., Term]
MEAN, SUM = 1, 2


def backward(slope: Slope) -> Rule:
    """The rule of a loss whose slope depends on a difference."""

    def rule(ctx: Lowering, grad: View, x: View, target: View, reduction: int, *numbers: float) -> Value:
        def fn(loop: Loop) -> Term:
            g, a, b = (loop.load(t, None, ctx.meta.dtype) for t in (grad, x, target))
            return slope(g, a - b, share(g, count(x.size), reduction), *numbers)

        return ctx.map(fn)

    return rule


def share(like: Term, size: Expr, reduction: int) -> Term:
    """1, or one element's part of a mean: divided in float64, as in eager."""
    known = as_int(size) if reduction == MEAN else 1
    if known is not None:
        return like.number(1 / known)
    wide = like.cast(F64)
    return (1.0 / wide.size(size)).cast(like.dtype)


def mse(grad: Term, x: Term, share: Term) -> Term:
    return share * 2.0 * x * grad


def huber(grad: Term, x: Term, share: Term, delta: float) -> Term:
    edge = share * grad * delta
    return (x <= -delta).where(-edge, (x >= delta).where(edge, share * x * grad))


def smooth_l1(grad: Term, x: Term, share: Term, beta: float) -> Term:
    edge = share * grad
    return (x < -beta).where(-edge, (x > beta).where(edge, share * x * grad / beta))


def soft_margin(ctx: Lowering, grad: View, x: View, y: View, reduction: int) -> Value:
    """The slope of log(1 + exp(-x*y)), without the difference from 1 that cancels where it is small."""

    def fn(loop: Loop) -> Term:
        slope, a, b = (loop.load(t, None, ctx.meta.dtype) for t in (grad, x, y))
        found = slope * -b * (-(a * b)).op("sigmoid")
        return found / found.size(count(x.size)) if reduction == MEAN else found

    return ctx.map(fn)


def binary_cross_entropy(
    ctx: Lowering, x: View, target: View, weight: View | None = None, reduction: int = MEAN
) -> Value:
    """Of probabilities, which torch's own formula does not ask to be any; a logarithm counts as at least -100."""
    if x.dtype != target.dtype or any(is_zero(n) for n in x.size):
        return NotImplemented

    def value(loop: Loop, at: Sequence[Expr] | None = None) -> Term:
        p, q = (loop.load(t, at, ctx.meta.dtype) for t in (x, target))
        for name, given in (("input", p), ("target", q)):
            is_probability = (given >= 0.0).both(given <= 1.0)
            loop.b.assertion(is_probability.at, f"all elements of {name} should be between 0 and 1")
        loss = (q - 1.0) * (-p).op("log1p").op("maximum", -100.0) - q * p.op("log").op("maximum", -100.0)
        return loss if weight is None else loss * loop.load(weight, at, ctx.meta.dtype)

    if reduction not in (MEAN, SUM):
        return ctx.map(value)
    size = count(x.size)
    finish = (lambda total: total / total.size(size)) if reduction == MEAN else None
    return ctx.reduction(ctx.result(), x.size, range(len(x.size)), value, "sum", finish)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.binary_cross_entropy.default": binary_cross_entropy,
        "aten.mse_loss_backward.default": backward(mse),
        "aten.huber_loss_backward.default": backward(huber),
        "aten.smooth_l1_loss_backward.default": backward(smooth_l1),
        "aten.soft_margin_loss_backward.default": soft_margin,
    }
)
