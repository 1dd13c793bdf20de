"""Rules of special functions, and of functions of a number's bits and digits.

- Bessel functions: i0, i0e, i1, i1e, the modified ones i0, i1, k0, k1, spherical_bessel_j0
- erfcx, ndtri, log_ndtr, zeta, polygamma
- orthogonal polynomials: Chebyshev (also shifted), Hermite, Laguerre, Legendre
- ldexp, frexp, round with decimals, angle of real numbers

Takes operands that broadcast. Gives one kernel per result, computed in the compute dtype of the promoted dtype.
Refuses (by having no rule) the incomplete gamma functions and airy_ai, whose algorithms iterate until they converge,
and bessel_j0, j1, y0 and y1: eager's float64 results have only seven correct digits, so a test could not tell right
from wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from minductor.core.dtypes import F32, F64, I32, I64, DType, compute_dtype
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Rule, Value, number_dtype
from minductor.frontend.rules.pointwise import elementwise, one_op
from minductor.ir.program.nodes import View


def spherical_bessel_j0(x: KernelValue) -> KernelValue:
    """sin(x) / x; its Taylor series below 1/2, where the quotient loses digits; 0 at infinities."""
    square = x * x
    series = x.number(0.0)
    for k in range(8, 0, -1):
        series = (series + 1.0) * square * (-1.0 / ((2 * k) * (2 * k + 1)))
    series = series + 1.0
    quotient = x.op("isinf").where(0.0, x.op("sin") / x)
    return (x.op("abs") < 0.5).where(series, quotient)


def log_ndtr(x: KernelValue) -> KernelValue:
    """The logarithm of the normal distribution function; below -1 by erfcx, which does not underflow."""
    t = x * math.sqrt(0.5)
    tail = ((-t).op("erfcx") * 0.5).op("log") - t * t
    return (x < -1.0).where(tail, (t.op("erfc") * -0.5).op("log1p"))


def trigamma(x: KernelValue) -> KernelValue:
    """The second derivative of log(gamma): six steps of the recurrence, then the asymptotic series.

    The series has as many terms as ATen's (aten/src/ATen/native/Math.h). Below 1/2 it uses the reflection formula.
    """
    y = (x < 0.5).where(1.0 - x, x)
    total = y.number(0.0)
    for k in range(6):
        total = total + 1.0 / ((y + float(k)) * (y + float(k)))
    z = y + 6.0
    q = 1.0 / (z * z)
    series = 1.0 + 0.5 / z + q * (1 / 6 - q * (1 / 30 - q * (1 / 42)))
    total = total + series / z
    sine = (x * math.pi).op("sin")
    return (x < 0.5).where((math.pi * math.pi) / (sine * sine) - total, total)


def polygamma(ctx: Lowering, order: int, x: View) -> Value:
    """Lowers polygamma: the derivative of digamma of that order, by trigamma or Hurwitz' zeta function, in float64."""
    if order == 0:
        return ctx.pointwise(lambda v: v.op("digamma"), x)

    def fn(v: KernelValue) -> KernelValue:
        wide = v.cast(F64)
        if order == 1:
            return trigamma(wide).cast(v.dtype)
        sign = 1.0 if order % 2 else -1.0
        return (wide.number(order + 1.0).op("zeta", wide) * (sign * math.gamma(order + 1))).cast(v.dtype)

    return NotImplemented if order < 0 or order > 100 else ctx.pointwise(fn, x)


def shifted_polynomial(name: str) -> Rule:
    """A rule for a shifted Chebyshev polynomial: the polynomial `name` at 2 * x - 1."""
    return elementwise(lambda x, n: (x + x - 1.0).op(name, n))


def ldexp(ctx: Lowering, x: Operand, exponent: Operand) -> Value:
    """Lowers ldexp: x * 2 ** exponent, where the power has the exponent's dtype (float32 if integer), as in eager."""
    power_dtype = number_dtype(exponent)
    power_dtype = power_dtype if power_dtype.kind == "float" else F32

    def fn(loop: KernelBuilder) -> KernelValue:
        count = loop.load(exponent, None, power_dtype)
        power = count.number(2.0).op("pow", count).cast(power_dtype)
        return loop.load(x, None, ctx.meta.dtype) * power.cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def frexp(ctx: Lowering, x: View) -> Value:
    """Lowers frexp: two kernels, for the mantissa in [1/2, 1) and for the exponent.

    0, infinities and NaN are their own mantissa and have the exponent 0.
    """
    if x.dtype.kind != "float":
        return NotImplemented
    results: list[Value] = []
    for number, meta in enumerate(ctx.metas):
        with ctx.with_single_result(meta):
            results.append(ctx.pointwise(lambda v, n=number: _mantissa_and_exponent(v)[n], x, compute=x.dtype))
    return tuple(results)


def _mantissa_and_exponent(x: KernelValue) -> tuple[KernelValue, KernelValue]:
    """The mantissa and the int32 exponent of a float, from its bits; subnormal numbers are scaled up first."""
    dtype, whole = (F64, I64) if x.dtype == F64 else (F32, I32)
    digits, width = dtype.mantissa, dtype.bits
    bias = (1 << (width - digits - 2)) - 1
    tiny = x.op("abs") < 2.0 ** (1 - bias)
    scaled = tiny.where(x * 2.0 ** (digits + 2), x)
    bits = _bitcast(scaled, whole)
    field = bits.op("rshift", digits).op("bitwise_and", 2 * bias + 1)
    exponent = field - (bias - 1) - tiny.where(field.number(digits + 2), field.number(0))
    sign_and_digits = -(1 << (width - 1)) + (1 << digits) - 1
    mantissa = _bitcast(bits.op("bitwise_and", sign_and_digits).op("bitwise_or", (bias - 1) << digits), dtype)
    is_special = x.equals(0.0).either(x.op("isnan")).either(x.op("isinf"))
    return is_special.where(x, mantissa), is_special.where(exponent.number(0), exponent).cast(I32)


def _bitcast(x: KernelValue, dtype: DType) -> KernelValue:
    """The bits of a value read as `dtype`."""
    return KernelValue(x.b, x.b.bitcast(x.at, dtype))


def round_decimals(ctx: Lowering, x: View, decimals: int = 0) -> Value:
    """Lowers round.decimals: scales by a power of 10, rounds half to even and scales back, as eager does.

    Each step is rounded to x's dtype, because another rounding before the jump would change a whole digit.
    """
    dtype = ctx.meta.dtype
    if dtype.kind != "float":
        return NotImplemented
    try:
        power = math.pow(10.0, abs(decimals))
    except OverflowError:
        return NotImplemented

    def fn(v: KernelValue) -> KernelValue:
        if decimals == 0:
            return v.op("round")
        scale = v.number(power).cast(dtype)
        if decimals > 0:
            return (v * scale).cast(dtype).op("round") / scale
        return (v / scale).cast(dtype).op("round") * scale

    return ctx.pointwise(fn, x)


def angle(x: KernelValue) -> KernelValue:
    """The angle of a real number: pi if negative, else 0; NaN passes."""
    return x.op("isnan").where(x, (x < 0.0).where(x.number(math.pi), x.number(0.0)))


_NAMES: Mapping[str, str] = {
    **{name: name for name in ("i0e", "i1", "i1e", "erfcx", "ndtri")},
    "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1",
    "modified_bessel_k0": "k0",
    "modified_bessel_k1": "k1",
    "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e",
}
_POLYNOMIALS: Mapping[str, str] = {
    **{f"chebyshev_polynomial_{kind}": f"chebyshev_{kind}" for kind in "tuvw"},
    "hermite_polynomial_h": "hermite_h",
    "hermite_polynomial_he": "hermite_he",
    "laguerre_polynomial_l": "laguerre_l",
    "legendre_polynomial_p": "legendre_p",
}
_KINDS = ("default", "x_scalar", "n_scalar")

RULES: Mapping[str, Rule] = {
    "aten.i0.default": one_op("i0"),
    **{f"aten.special_{theirs}.default": one_op(ours) for theirs, ours in _NAMES.items()},
    **{f"aten.special_zeta.{kind}": one_op("zeta") for kind in ("default", "self_scalar", "other_scalar")},
    **{f"aten.special_{theirs}.{kind}": one_op(ours) for theirs, ours in _POLYNOMIALS.items() for kind in _KINDS},
    **{
        f"aten.special_shifted_chebyshev_polynomial_{name}.{kind}": shifted_polynomial(f"chebyshev_{name}")
        for name in "tuvw"
        for kind in _KINDS
    },
    "aten.special_spherical_bessel_j0.default": elementwise(spherical_bessel_j0),
    "aten.special_log_ndtr.default": elementwise(log_ndtr),
    "aten.polygamma.default": polygamma,
    "aten.ldexp.Tensor": ldexp,
    "aten.frexp.Tensor": frexp,
    "aten.round.decimals": round_decimals,
    "aten.angle.default": elementwise(angle),
}
