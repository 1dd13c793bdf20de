"""Formulas of activation functions and of their gradients, used by the rules of pointwise operators.

gelu, silu, sigmoid, tanh, softplus, mish, logit, leaky_relu, elu, threshold, hardtanh, hardsigmoid, hardswish,
hardshrink, softshrink and their `_backward` operators; lerp, xlogy, and powers with small exponents.

Takes KernelValues (elements of tensors in the compute dtype) and Python numbers in the order of the ATen
schema. Gives the result. `FORMULAS` says how many leading arguments of each operator are tensors.

The formulas take the steps of ATen's CPU kernels (most of which are in aten/src/ATen/native/cpu/Activation.cpp), so
that rounding, NaN and infinities agree with eager. In a gradient, `grad` is the incoming gradient and `x` the input
(`y`: the result) of the forward operator.

>>> sorted(SMALL_POWERS)[:3]
[-2, -1, -0.5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from minductor.frontend.lowering_context.kernel_builder import KernelValue

SMALL_POWERS = frozenset((2, 3, 0.5, 1, -0.5, -1, -2, 0))


def small_power(x: KernelValue, exponent: float) -> KernelValue:
    """x ** exponent for an exponent in SMALL_POWERS, which eager computes by products and roots instead of `pow`.

    For integers only 0, 1, 2 and 3 are products.
    """
    if x.dtype.kind != "float" and exponent not in (0, 1, 2, 3):
        return x.op("pow", exponent)
    match exponent:
        case 0:
            return x.number(1)
        case 1:
            return x
        case 2:
            return x.op("square")
        case 3:
            return x * x * x
        case 0.5:
            return x.op("sqrt")
        case -0.5:
            return x.op("rsqrt")
        case -1:
            return x.op("reciprocal")
        case _:
            return x.op("square").op("reciprocal")


def lerp(start: KernelValue, end: KernelValue, weight: KernelValue) -> KernelValue:
    """start + weight * (end - start); from weight 1/2 on it counts back from `end`, so that both ends are exact."""
    return (weight.op("abs") < 0.5).where(start + weight * (end - start), end - (end - start) * (1.0 - weight))


# --- gelu ---------------------------------------------------------------------------------------------------------

# gelu(x) is nearly x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3))) (Hendrycks and Gimpel, 2016)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def gelu(x: KernelValue, approximate: str = "none") -> KernelValue:
    """x * Phi(x), with the normal distribution Phi by erf or by its tanh approximation."""
    if approximate == "tanh":
        inner = (x + x * x * x * _TANH_CUBIC) * _TANH_SCALE
        return x * 0.5 * (inner.op("tanh") + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).op("erf") + 1.0)


def gelu_backward(grad: KernelValue, x: KernelValue, approximate: str = "none") -> KernelValue:
    """grad * (Phi(x) + x * phi(x)), or the derivative of the tanh approximation."""
    if approximate == "tanh":
        square = x * x
        tanh = ((x + square * x * _TANH_CUBIC) * _TANH_SCALE).op("tanh")
        inner = (square * (3 * _TANH_CUBIC) + 1.0) * _TANH_SCALE
        left = (tanh + 1.0) * 0.5
        right = x * 0.5 * (1.0 - tanh * tanh) * inner
        return grad * (left + right)
    cdf = ((x * math.sqrt(0.5)).op("erf") + 1.0) * 0.5
    pdf = (x * x * -0.5).op("exp") * (1 / math.sqrt(2 * math.pi))
    return grad * (cdf + x * pdf)


# --- from sigmoid and tanh ----------------------------------------------------------------------------------------


def silu(x: KernelValue) -> KernelValue:
    """x * sigmoid(x)."""
    return x * x.op("sigmoid")


def silu_backward(grad: KernelValue, x: KernelValue) -> KernelValue:
    """grad * s * (1 + x * (1 - s)), where s = sigmoid(x)."""
    s = x.op("sigmoid")
    return grad * s * (x * (1.0 - s) + 1.0)


def sigmoid_backward(grad: KernelValue, y: KernelValue) -> KernelValue:
    """grad * (1 - y) * y, where y = sigmoid(x)."""
    return grad * (1.0 - y) * y


def tanh_backward(grad: KernelValue, y: KernelValue) -> KernelValue:
    """grad * (1 - y**2), where y = tanh(x)."""
    return grad * (1.0 - y * y)


def softplus(x: KernelValue, beta: float = 1, threshold: float = 20) -> KernelValue:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`."""
    scaled = x * float(beta)
    return (scaled > float(threshold)).where(x, scaled.op("exp").op("log1p") / float(beta))


def softplus_backward(grad: KernelValue, x: KernelValue, beta: float = 1, threshold: float = 20) -> KernelValue:
    """grad * sigmoid(beta * x); grad where beta * x is above `threshold`."""
    scaled = x * float(beta)
    z = scaled.op("exp")
    return (scaled > float(threshold)).where(grad, grad * z / (z + 1.0))


def mish(x: KernelValue) -> KernelValue:
    """x * tanh(softplus(x))."""
    return x * x.op("exp").op("log1p").op("tanh")


def mish_backward(grad: KernelValue, x: KernelValue) -> KernelValue:
    """grad * (t + x * sigmoid(x) * (1 - t**2)), where t = tanh(softplus(x))."""
    s, t = x.op("sigmoid"), x.op("exp").op("log1p").op("tanh")
    return grad * (t + x * s * (1.0 - t * t))


def logit(x: KernelValue, eps: float | None = None) -> KernelValue:
    """log(x / (1 - x)), with x clamped to [eps, 1 - eps] if there is an eps."""
    if eps is not None:
        x = (x < eps).where(eps, (x > 1.0 - eps).where(1.0 - eps, x))
    return (x / (1.0 - x)).op("log")


def logit_backward(grad: KernelValue, x: KernelValue, eps: float | None = None) -> KernelValue:
    """grad / (x * (1 - x)); outside of the domain NaN, or 0 where an eps clamped x."""
    slope = grad / (x * (1.0 - x))
    if eps is None:
        return (x < 0.0).either(x > 1.0).where(math.nan, slope)
    return (x < eps).either(x > 1.0 - eps).where(0.0, slope)


# --- piecewise ----------------------------------------------------------------------------------------------------


def leaky_relu(x: KernelValue, slope: float = 0.01) -> KernelValue:
    """x where it is positive, else x * slope."""
    return (x > 0).where(x, x * slope)


def leaky_relu_backward(grad: KernelValue, x: KernelValue, slope: float, is_result: object = False) -> KernelValue:
    """grad where x is positive, else grad * slope."""
    return (x > 0).where(grad, grad * slope)


def elu(x: KernelValue, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> KernelValue:
    """scale * x where x is positive, else scale * alpha * (exp(input_scale * x) - 1)."""
    negative = (x * float(input_scale)).op("expm1") * (float(alpha) * float(scale))
    return (x > 0).where(x * float(scale), negative)


def threshold(x: KernelValue, limit: float, value: float) -> KernelValue:
    """`value` where x is at most `limit`, else x; NaN passes."""
    return (x <= limit).where(value, x)


def threshold_backward(grad: KernelValue, x: KernelValue, limit: float) -> KernelValue:
    """0 where x is at most `limit`, else grad; also the gradient of relu."""
    return (x <= limit).where(0, grad)


def hardtanh(x: KernelValue, low: float = -1, high: float = 1) -> KernelValue:
    """x clamped to [low, high]; NaN passes, and x comes second in the maximum so that its signed zero stays."""
    return x.number(high).op("minimum", x.number(low).op("maximum", x))


def hardtanh_backward(grad: KernelValue, x: KernelValue, low: float, high: float) -> KernelValue:
    """grad where x lies strictly between the limits, else 0."""
    return (x <= low).either(x >= high).where(0, grad)


def hardsigmoid(x: KernelValue) -> KernelValue:
    """(x + 3) / 6 clamped to [0, 1]."""
    return hardtanh(x + 3.0, 0, 6) / 6.0


def hardsigmoid_backward(grad: KernelValue, x: KernelValue) -> KernelValue:
    """grad / 6 where -3 < x < 3, else 0."""
    sixth = 0.1666666716337204  # 1/6 in float32, which eager uses for float64 too
    return (x > -3.0).both(x < 3.0).where(grad * sixth, 0.0)


def hardswish(x: KernelValue) -> KernelValue:
    """x * hardsigmoid(x), in eager's order of steps."""
    return x * hardtanh(x + 3.0, 0, 6) / 6.0


def hardswish_backward(grad: KernelValue, x: KernelValue) -> KernelValue:
    """0 up to -3, grad * (x / 3 + 1/2) up to 3, then grad."""
    middle = grad * (x / 3.0 + 0.5)
    return (x <= -3.0).where(0.0, (x < 3.0).where(middle, grad))


def hardshrink(x: KernelValue, limit: float = 0.5) -> KernelValue:
    """0 where |x| is at most `limit`, else x."""
    return (x >= -limit).both(x <= limit).where(0, x)


def softshrink(x: KernelValue, limit: float = 0.5) -> KernelValue:
    """x shrunk by `limit` towards 0. Between the limits it is x * 0, so that NaN passes."""
    inside = x * 0.0
    return (x > limit).where(x - limit, (x < -limit).where(x + limit, inside))


def shrink_backward(grad: KernelValue, x: KernelValue, limit: float) -> KernelValue:
    """The gradient of hardshrink and softshrink: 0 where |x| is at most `limit`, else grad."""
    return (x >= -limit).both(x <= limit).where(0, grad)


def xlogy(x: KernelValue, y: KernelValue) -> KernelValue:
    """x * log(y), but 0 if x is 0, and NaN if y is NaN."""
    return y.op("isnan").where(math.nan, x.equals(0.0).where(0.0, x * y.op("log")))


# operator -> (formula, how many of its leading arguments are tensors)
FORMULAS: Mapping[str, tuple[Callable[..., KernelValue], int]] = {
    "aten.gelu.default": (gelu, 1),
    "aten.gelu_backward.default": (gelu_backward, 2),
    "aten.silu.default": (silu, 1),
    "aten.silu_backward.default": (silu_backward, 2),
    "aten.sigmoid_backward.default": (sigmoid_backward, 2),
    "aten.tanh_backward.default": (tanh_backward, 2),
    "aten.softplus.default": (softplus, 1),
    "aten.softplus_backward.default": (softplus_backward, 2),
    "aten.mish.default": (mish, 1),
    "aten.mish_backward.default": (mish_backward, 2),
    "aten.logit.default": (logit, 1),
    "aten.logit_backward.default": (logit_backward, 2),
    "aten.leaky_relu.default": (leaky_relu, 1),
    "aten.leaky_relu_backward.default": (leaky_relu_backward, 2),
    "aten.elu.default": (elu, 1),
    "aten.threshold.default": (threshold, 1),
    "aten.threshold_backward.default": (threshold_backward, 2),
    "aten.hardtanh.default": (hardtanh, 1),
    "aten.hardtanh_backward.default": (hardtanh_backward, 2),
    "aten.hardsigmoid.default": (hardsigmoid, 1),
    "aten.hardsigmoid_backward.default": (hardsigmoid_backward, 2),
    "aten.hardswish.default": (hardswish, 1),
    "aten.hardswish_backward.default": (hardswish_backward, 2),
    "aten.hardshrink.default": (hardshrink, 1),
    "aten.hardshrink_backward.default": (shrink_backward, 2),
    "aten.softshrink.default": (softshrink, 1),
    "aten.softshrink_backward.default": (shrink_backward, 2),
    "aten.xlogy.Tensor": (xlogy, 2),
}
