"""Special functions, and functions of a number's digits: frexp, ldexp, rounding to decimals.

Takes operands that broadcast. Gives one kernel a result, computed in the dtype that torch promotes to. Refuses (to an
extern call) the incomplete gamma functions and Airy's, which need iterations of their own kind, and Bessel's J and Y,
of which eager's float64 is good to seven digits only: nothing says what is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import F32, F64, I32, I64, DType, compute_dtype
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Value, number_dtype
from minductor.frontend.rules.pointwise import elementwise, one_op
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def spherical_bessel_j0(x: KernelValue) -> KernelValue:
    """sin(x) / x, by its series where the quotient would lose digits."""
    square = x * x
    series = x.number(0.0)
    for k in range(8, 0, -1):
        series = (series + 1.0) * square * (-1.0 / ((2 * k) * (2 * k + 1)))
    near = series + 1.0
    far = x.op("isinf").where(0.0, x.op("sin") / x)
    return (x.op("abs") < 0.5).where(near, far)


def log_ndtr(x: KernelValue) -> KernelValue:
    """The logarithm of the normal distribution; its tail by the scaled complement, which does not underflow."""
    t = x * math.sqrt(0.5)
    tail = ((-t).op("erfcx") * 0.5).op("log") - t * t
    return (x < -1.0).where(tail, (t.op("erfc") * -0.5).op("log1p"))


def trigamma(x: KernelValue) -> KernelValue:
    """Recurrence by six, then as many terms of the asymptotic series as eager takes; on the left by reflection."""
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
    """The derivatives of digamma, of which all but the first are Hurwitz' zeta."""
    if order == 0:
        return ctx.pointwise(lambda v: v.op("digamma"), x)

    def fn(v: KernelValue) -> KernelValue:
        wide = v.cast(F64)
        if order == 1:
            return trigamma(wide).cast(v.dtype)
        sign = 1.0 if order % 2 else -1.0
        return (wide.number(order + 1.0).op("zeta", wide) * (sign * math.gamma(order + 1))).cast(v.dtype)

    return NotImplemented if order < 0 or order > 100 else ctx.pointwise(fn, x)


def shifted(name: str) -> Rule:
    """The polynomials on [0, 1] instead of [-1, 1]."""
    return elementwise(lambda x, n: (x + x - 1.0).op(name, n))


def ldexp(ctx: Lowering, x: Operand, exponent: Operand) -> Value:
    """x * 2 ** exponent, where the power has the exponent's own dtype, as in eager."""
    own = number_dtype(exponent)
    own = own if own.kind == "float" else F32

    def fn(loop: KernelBuilder) -> KernelValue:
        count = loop.load(exponent, None, own)
        power = count.number(2.0).op("pow", count).cast(own)
        return loop.load(x, None, ctx.meta.dtype) * power.cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def frexp(ctx: Lowering, x: View) -> Value:
    """Mantissa in [1/2, 1) and exponent, by the number's bits; 0, infinities and NaN are their own mantissa."""
    if x.dtype.kind != "float":
        return NotImplemented
    results: list[Value] = []
    for number, meta in enumerate(ctx.metas):
        with ctx.with_single_result(meta):
            results.append(ctx.pointwise(lambda v, n=number: _taken_apart(v)[n], x, compute=x.dtype))
    return tuple(results)


def _taken_apart(x: KernelValue) -> tuple[KernelValue, KernelValue]:
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
    itself = x.equals(0.0).either(x.op("isnan")).either(x.op("isinf"))
    return itself.where(x, mantissa), itself.where(exponent.number(0), exponent).cast(I32)


def _bitcast(x: KernelValue, dtype: DType) -> KernelValue:
    return KernelValue(x.b, x.b.bitcast(x.at, dtype))


def round_decimals(ctx: Lowering, x: View, decimals: int = 0) -> Value:
    """Scaled, rounded and scaled back, each step in x's own dtype: a digit hangs on it."""
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
    """Of a real number; a NaN stays."""
    return x.op("isnan").where(x, (x < 0.0).where(x.number(math.pi), x.number(0.0)))


_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("i0e", "i1", "i1e", "erfcx", "ndtri")},
        "modified_bessel_i0": "i0",
        "modified_bessel_i1": "i1",
        "modified_bessel_k0": "k0",
        "modified_bessel_k1": "k1",
        "scaled_modified_bessel_k0": "k0e",
        "scaled_modified_bessel_k1": "k1e",
    }
)
_POLYNOMIALS: Mapping[str, str] = MappingProxyType(
    {
        **{f"chebyshev_polynomial_{kind}": f"chebyshev_{kind}" for kind in "tuvw"},
        "hermite_polynomial_h": "hermite_h",
        "hermite_polynomial_he": "hermite_he",
        "laguerre_polynomial_l": "laguerre_l",
        "legendre_polynomial_p": "legendre_p",
    }
)
_KINDS = ("default", "x_scalar", "n_scalar")

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.i0.default": one_op("i0"),
        **{f"aten.special_{theirs}.default": one_op(ours) for theirs, ours in _NAMES.items()},
        **{f"aten.special_zeta.{kind}": one_op("zeta") for kind in ("default", "self_scalar", "other_scalar")},
        **{f"aten.special_{theirs}.{kind}": one_op(ours) for theirs, ours in _POLYNOMIALS.items() for kind in _KINDS},
        **{
            f"aten.special_shifted_chebyshev_polynomial_{name}.{kind}": shifted(f"chebyshev_{name}")
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
)
