"""Rules of losses: the gradients of mse, huber, smooth_l1 and soft_margin loss, and binary_cross_entropy itself.

Takes the incoming gradient, the two compared tensors, and ATen's number of the reduction (0 none, 1 mean, 2 sum). Gives
the gradient with respect to the input in one pointwise kernel over the broadcast size; a mean multiplies it by 1/n.
Refuses (to an extern call) a binary_cross_entropy of two dtypes, for which eager raises, and one without elements.

torch could decompose these gradients, but with symbolic sizes its decomposition makes 1/n a float of the graph. The
tracer would then need the sizes as inputs, and compute in float32 what eager computes in float64. The losses that have
no rule here (nll_loss apart, see `index.py`) are decomposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minductor.core.dtypes import F64
from minductor.core.expressions.expr import Expr, as_int
from minductor.frontend.capture.size_formulas import count, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Rule, Value
from minductor.ir.program.nodes import View

# (incoming gradient, x - target, 1 or 1/n, further numbers) -> gradient of x
Slope = Callable[..., KernelValue]
MEAN, SUM = 1, 2


def backward(slope: Slope) -> Rule:
    """Lowers the gradient of a loss whose slope is a function of x - target: one pointwise kernel."""

    def rule(ctx: Lowering, grad: View, x: View, target: View, reduction: int, *numbers: float) -> Value:
        def fn(loop: KernelBuilder) -> KernelValue:
            g, a, b = (loop.load(t, None, ctx.meta.dtype) for t in (grad, x, target))
            return slope(g, a - b, share(g, count(x.size), reduction), *numbers)

        return ctx.map(fn)

    return rule


def share(like: KernelValue, size: Expr, reduction: int) -> KernelValue:
    """1/n if the loss is a mean over `size` = n elements, else 1; divided in float64 and then rounded, as in eager."""
    known = as_int(size) if reduction == MEAN else 1
    if known is not None:
        return like.number(1 / known)
    wide = like.cast(F64)
    return (1.0 / wide.size(size)).cast(like.dtype)


def mse(grad: KernelValue, x: KernelValue, share: KernelValue) -> KernelValue:
    """The derivative of x**2, where x is the difference from the target, times `share` and the incoming gradient."""
    return share * 2.0 * x * grad


def huber(grad: KernelValue, x: KernelValue, share: KernelValue, delta: float) -> KernelValue:
    """The derivative of x**2 / 2 where |x| < delta, and of delta * (|x| - delta / 2) elsewhere."""
    edge = share * grad * delta
    return (x <= -delta).where(-edge, (x >= delta).where(edge, share * x * grad))


def smooth_l1(grad: KernelValue, x: KernelValue, share: KernelValue, beta: float) -> KernelValue:
    """The derivative of x**2 / (2 * beta) where |x| <= beta, and of |x| - beta / 2 elsewhere."""
    edge = share * grad
    return (x < -beta).where(-edge, (x > beta).where(edge, share * x * grad / beta))


def soft_margin(ctx: Lowering, grad: View, x: View, y: View, reduction: int) -> Value:
    """Lowers soft_margin_loss_backward: the derivative of log(1 + exp(-x*y)) is -y * sigmoid(-x*y).

    torch's own formula computes sigmoid as 1 minus another fraction, which cancels where the result is small.
    """

    def fn(loop: KernelBuilder) -> KernelValue:
        slope, a, b = (loop.load(t, None, ctx.meta.dtype) for t in (grad, x, y))
        found = slope * -b * (-(a * b)).op("sigmoid")
        return found / found.size(count(x.size)) if reduction == MEAN else found

    return ctx.map(fn)


def binary_cross_entropy(
    ctx: Lowering, x: View, target: View, weight: View | None = None, reduction: int = MEAN
) -> Value:
    """Lowers binary_cross_entropy: one pointwise kernel, or one reduction over all elements for a mean or a sum.

    As in eager, the kernel asserts that inputs and targets lie in [0, 1] (torch's decomposition does not), and clamps
    each logarithm to at least -100.
    """
    if x.dtype != target.dtype or any(is_zero(n) for n in x.size):
        return NotImplemented

    def value(loop: KernelBuilder, at: Sequence[Expr] | None = None) -> KernelValue:
        p, q = (loop.load(t, at, ctx.meta.dtype) for t in (x, target))
        for name, given in (("input", p), ("target", q)):
            is_probability = (given >= 0.0).both(given <= 1.0)
            loop.b.assertion(is_probability.at, f"all elements of {name} should be between 0 and 1")
        least = p.number(-100.0)
        loss = (q - 1.0) * least.op("maximum", (-p).op("log1p")) - q * least.op("maximum", p.op("log"))
        return loss if weight is None else loss * loop.load(weight, at, ctx.meta.dtype)

    if reduction not in (MEAN, SUM):
        return ctx.map(value)
    size = count(x.size)
    finish = (lambda total: total / total.size(size)) if reduction == MEAN else None
    return store_reduction(ctx, ctx.result(), x.size, range(len(x.size)), value, "sum", finish)


RULES: Mapping[str, Rule] = {
    "aten.binary_cross_entropy.default": binary_cross_entropy,
    "aten.mse_loss_backward.default": backward(mse),
    "aten.huber_loss_backward.default": backward(huber),
    "aten.smooth_l1_loss_backward.default": backward(smooth_l1),
    "aten.soft_margin_loss_backward.default": soft_margin,
}
