"""Pointwise operators: one output element from the elements at the same place.

Takes operands that broadcast. Gives one kernel a result, computed in the dtype that torch promotes to; refuses nothing.
Three tables: operators that are one op of the IR, comparisons, and formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import BOOL, F8E4M3FN, F16, F32, DType, compute_dtype
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Value, is_zero_sized, promoted
from minductor.frontend.quirks.torch_versions import ignores_nan_bound, saturates_fp8
from minductor.frontend.rules import formulas
from minductor.ir.program.nodes import Token, View

Rule = Callable[..., Value]


def elementwise(fn: Callable[..., KernelValue]) -> Rule:
    """All arguments are operands, computed in the result's dtype."""

    def rule(ctx: Lowering, *operands: Operand) -> Value:
        return ctx.pointwise(fn, *operands)

    return rule


def one_op(name: str) -> Rule:
    return elementwise(lambda x, *more: x.op(name, *more))


def relu(ctx: Lowering, x: Operand) -> Value:
    """The larger of x and 0. Eager gives -0.0 as it is on a CPU, and as 0.0 on a GPU."""
    if ctx.device.partition(":")[0] != "cuda":
        return one_op("relu")(ctx, x)
    return elementwise(lambda x: x.op("le", 0).where(0, x))(ctx, x)


def stepped(fn: Callable[..., KernelValue]) -> Rule:
    """As `elementwise`, of a function that jumps: a jump may lie between what a kernel keeps in float32 of a 16-bit
    value and what memory holds of it."""

    def rule(ctx: Lowering, *operands: Operand) -> Value:
        dtype = ctx.meta.dtype

        def rounded(loop: KernelBuilder) -> KernelValue:
            terms = [loop.load(x, None, dtype) for x in operands]
            return fn(
                *(as_stored(t, dtype) if isinstance(x, View) else t for t, x in zip(terms, operands, strict=True))
            )

        return ctx.map(rounded)

    return rule


def as_stored(value: KernelValue, dtype: DType) -> KernelValue:
    """A value as memory holds it; a kernel computes floats of 16 bits in float32."""
    return value.cast(dtype).cast(compute_dtype(dtype))


def comparison(name: str) -> Rule:
    """Computed in the operands' common dtype, to which they are rounded as in eager; the result is bool.

    A 16-bit value that a kernel kept in float32 is else never equal to the one that memory holds: the gradient of a
    maximum asks for what was equal to it. Beside zero the rounding says something of float16 alone, which has small
    numbers for far fewer of float32's.
    """

    def rule(ctx: Lowering, *operands: Operand) -> Value:
        dtype = promoted(operands)
        is_sign = dtype != F16 and any(not isinstance(x, View | Expr) and x == 0 for x in operands)

        def fn(loop: KernelBuilder) -> KernelValue:
            terms = [loop.load(x, None, dtype) for x in operands]
            first, *more = terms if is_sign else [t.cast(dtype) for t in terms]
            return first.op(name, *more)

        return ctx.map(fn)

    return rule


def predicate(fn: Callable[[KernelValue], KernelValue]) -> Rule:
    """A question about a floating-point value; no integer is infinite or not a number."""

    def rule(ctx: Lowering, x: View) -> Value:
        return ctx.map(lambda loop: fn(_rounded(loop, x)))

    return rule


def _rounded(loop: KernelBuilder, x: View) -> KernelValue:
    """An element as memory holds it: what a kernel keeps in float32 may be infinite or 0 in 16 bits."""
    return as_stored(loop.load(x), x.dtype)


def nan_to_num(
    ctx: Lowering, x: View, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Infinities become the largest numbers of the dtype, if no others are given."""
    if x.dtype.kind != "float":
        return ctx.pointwise(lambda t: t, x) if x.dtype.kind != "complex" else NotImplemented
    largest = x.dtype.max_value

    def fn(loop: KernelBuilder) -> KernelValue:
        t = _rounded(loop, x)
        high, low = t.op("eq", math.inf), t.op("eq", -math.inf)
        finite = high.where(largest if posinf is None else posinf, low.where(-largest if neginf is None else neginf, t))
        return t.op("isnan").where(nan or 0.0, finite)

    return ctx.map(fn)


def is_infinite(x: KernelValue) -> KernelValue:
    return x.op("isinf") if x.dtype.kind == "float" else x.op("ne", x)


def is_nan(x: KernelValue) -> KernelValue:
    return x.op("isnan") if x.dtype.kind == "float" else x.op("ne", x)


def is_nonzero(x: KernelValue) -> KernelValue:
    return x if x.dtype == BOOL else x.op("ne", 0)


def logical(name: str) -> Rule:
    """On the truth of each operand, whatever its dtype."""

    def rule(ctx: Lowering, *operands: View) -> Value:
        def fn(loop: KernelBuilder) -> KernelValue:
            first, *more = (is_nonzero(_rounded(loop, x)) for x in operands)
            return first.op(name, *more)

        return ctx.map(fn)

    return rule


def bitwise(name: str, on_bools: str) -> Rule:
    """On bools the bitwise operators are the logical ones."""

    def fn(x: KernelValue, *more: KernelValue) -> KernelValue:
        return x.op(on_bools if x.dtype == BOOL else name, *more)

    return elementwise(fn)


def ignoring_nan(name: str, on_whole: str) -> Rule:
    """fmax and fmin; integers and bools have no NaN to ignore."""
    return elementwise(lambda x, y: x.op(name if x.dtype.kind == "float" else on_whole, y))


def rounding(name: str) -> Rule:
    """Integers are round already."""
    return stepped(lambda x: x.op(name) if x.dtype.kind == "float" else x)


def add(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """x + alpha * y; on bools, `or`."""
    if isinstance(alpha, bool) and ctx.meta.dtype != BOOL:  # the call raises
        return NotImplemented
    if ctx.meta.dtype == BOOL:
        return ctx.pointwise(lambda a, b: a.either(b) if alpha else a, x, y)
    return ctx.pointwise(lambda a, b: a + (b if alpha == 1 else b * alpha), x, y)


def sub(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    if any(isinstance(n, bool) or (isinstance(n, View) and n.dtype == BOOL) for n in (x, y, alpha)):  # the call raises
        return NotImplemented
    return ctx.pointwise(lambda a, b: a - (b if alpha == 1 else b * alpha), x, y)


def rsub(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    return sub(ctx, y, x, alpha)


def mul(ctx: Lowering, x: Operand, y: Operand) -> Value:
    if ctx.meta.dtype == BOOL:
        return ctx.pointwise(KernelValue.both, x, y)
    return ctx.pointwise(KernelValue.__mul__, x, y)


def div(ctx: Lowering, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    match rounding_mode:
        case None:
            return ctx.pointwise(KernelValue.__truediv__, x, y)
        case "floor":
            return division("floordiv")(ctx, x, y)
        case _:
            return division("truncdiv")(ctx, x, y)


def may_be_zero(divisor: Operand) -> bool:
    """Whether a division needs to look: an assertion keeps its kernel apart from those that use the quotient."""
    if isinstance(divisor, Expr):
        return not at_least(divisor, 1) and not at_least(-divisor, 1)
    return isinstance(divisor, View) or divisor == 0


def division(name: str) -> Rule:
    """Quotients and remainders of integers: eager raises where a divisor is 0."""

    def rule(ctx: Lowering, x: Operand, y: Operand) -> Value:
        def fn(a: KernelValue, b: KernelValue) -> KernelValue:
            if b.dtype.kind in ("int", "uint") and may_be_zero(y):
                b.b.assertion(b.op("ne", 0).at, "ZeroDivisionError")
            return a.op(name, b)

        return stepped(fn)(ctx, x, y)

    return rule


def power(ctx: Lowering, x: Operand, y: Operand) -> Value:
    """Small constant exponents are products, and roots but for float16, as in eager."""
    if ctx.meta.dtype.kind in ("int", "uint") and isinstance(y, int) and y < 0:  # the call raises
        return NotImplemented
    is_called = ctx.meta.dtype == F16 and y in (0.5, -0.5)
    if isinstance(y, int | float) and not isinstance(y, bool) and y in formulas.SMALL_POWERS and not is_called:
        return ctx.pointwise(lambda a: formulas.small_power(a, y), x)
    return ctx.pointwise(lambda a, b: a.op("pow", b), x, y)


def nextafter(ctx: Lowering, x: Operand, y: Operand) -> Value:
    """A step of the dtype's own; a 16-bit float is not kept as itself inside kernels."""
    if compute_dtype(ctx.meta.dtype) != ctx.meta.dtype:
        return NotImplemented
    return ctx.pointwise(lambda a, b: a.op("nextafter", b), x, y)


def where(ctx: Lowering, condition: View, x: Operand, y: Operand) -> Value:
    dtype = ctx.meta.dtype

    def fn(loop: KernelBuilder) -> KernelValue:
        return is_nonzero(_rounded(loop, condition)).where(loop.load(x, None, dtype), loop.load(y, None, dtype))

    return ctx.map(fn)


def masked_fill(ctx: Lowering, x: View, mask: View, value: Operand) -> Value:
    if isinstance(value, View) and value.dtype not in (x.dtype, BOOL) and x.dtype != BOOL:
        return NotImplemented  # it may be too large, which raises
    return where(ctx, mask, value, x)


def to_copy(ctx: Lowering, x: View, dtype: DType | None = None, **layout: Value) -> Value:
    """A cast that the program asked for rounds, even where the value stays in a register."""
    load = KernelBuilder.load if ctx.meta.dtype.kind == "float" else _rounded
    return ctx.map(lambda loop: fitted(load(loop, x), ctx.meta.dtype).cast(ctx.meta.dtype))


def fitted(value: KernelValue, dtype: DType) -> KernelValue:
    """What is to be converted: too large for float8_e4m3fn, kernels end at the largest, which not every eager does."""
    if dtype != F8E4M3FN or saturates_fp8():
        return value
    value = value.cast(F32)
    return (value.op("abs") > F8E4M3FN.max_value + 16).where(math.nan, value)  # half a step beyond it


def copy(ctx: Lowering, x: View, *ignored: Value, **layout: Value) -> Value:
    return ctx.map(lambda loop: loop.load(x))


def copied(ctx: Lowering, x: View, source: Operand, non_blocking: Value = None) -> Value:
    """aten.copy: x's layout and dtype with the source's values."""
    return ctx.map(lambda loop: fitted(loop.load(source), ctx.meta.dtype).cast(ctx.meta.dtype))


def copy_into(ctx: Lowering, x: View, source: Operand, non_blocking: Value = None) -> Value:
    """aten.copy_: the next version of x's storage; the same one if x has no elements."""
    if is_zero_sized(x):
        return x
    if isinstance(source, View) and source.ref.storage == x.ref.storage:
        if source == x:
            return x
        # another window on what is written: all of it is read before
        snapshot = ctx.buffer(x.dtype, x.size)
        loop = KernelBuilder(x.size)
        source = ctx.store(loop, snapshot, loop.coords, loop.load(source))
    loop = KernelBuilder(x.size)
    value = fitted(loop.load(source, None, x.dtype), x.dtype)
    return ctx.store(loop, ctx.next_version(x), loop.coords, value)


def clamp(ctx: Lowering, x: View, low: Operand | None = None, high: Operand | None = None) -> Value:
    """NaN passes; the upper bound wins where the bounds cross; a zero keeps its sign beside another."""
    bounds = [(name, b) for name, b in (("maximum", low), ("minimum", high)) if b is not None]

    def fn(a: KernelValue, *limits: KernelValue) -> KernelValue:
        for (name, _), limit in zip(bounds, limits, strict=True):
            a = limit.op(name, a)
        return a

    return ctx.pointwise(fn, x, *(b for _, b in bounds))


def clamp_by_numbers(ctx: Lowering, x: View, low: Operand | None = None, high: Operand | None = None) -> Value:
    """As eager of the torch that is there where the only bound is NaN."""
    bound = low if high is None else high
    has_two = low is not None and high is not None
    if bound is None or has_two or (isinstance(bound, int | float) and bound == bound) or not ignores_nan_bound():
        return clamp(ctx, x, low, high)
    name = "maximum" if high is None else "minimum"
    return ctx.pointwise(lambda a, limit: is_nan(limit).where(a, limit.op(name, a)), x, bound)


def clamp_max(ctx: Lowering, x: View, high: Operand) -> Value:
    return clamp(ctx, x, None, high)


def addcmul(ctx: Lowering, x: View, a: View, b: View, value: Operand = 1) -> Value:
    if isinstance(value, int | float) and value == 1:
        return ctx.pointwise(lambda x, a, b: x + a * b, x, a, b)
    return ctx.pointwise(lambda x, a, b, factor: x + a * factor * b, x, a, b, value)


def addcdiv(ctx: Lowering, x: View, a: View, b: View, value: Operand = 1) -> Value:
    if isinstance(value, int | float) and value == 1:
        return ctx.pointwise(lambda x, a, b: x + a / b, x, a, b)
    return ctx.pointwise(lambda x, a, b, factor: x + a * factor / b, x, a, b, value)


def with_numbers(fn: Callable[..., KernelValue], tensors: int) -> Rule:
    """The first `tensors` arguments are operands, the others parameters of the formula."""

    def rule(ctx: Lowering, *args: Operand, **named: float | str | bool | View) -> Value:
        operands, parameters = args[:tensors], args[tensors:]
        return ctx.pointwise(lambda *terms: fn(*terms, *parameters, **named), *operands)

    return rule


def bitcast(ctx: Lowering, x: View, dtype: DType) -> Value:
    """view.dtype between dtypes of one width; 16-bit floats are not kept as their bits inside kernels."""
    if x.dtype == dtype:
        return ctx.window(x)
    unfit = any(compute_dtype(d) != d or d == BOOL for d in (x.dtype, dtype))
    if unfit or x.dtype.itemsize != dtype.itemsize:
        return NotImplemented
    return ctx.map(lambda loop: loop.term(loop.b.bitcast(loop.load(x).at, dtype)))


def scalar_tensor(ctx: Lowering, value: Operand, **layout: Token | DType | Expr) -> Value:
    return ctx.pointwise(lambda x: x, value)


_UNARY = (
    "neg abs sqrt reciprocal rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan erf erfc"
    " erfinv asin acos atan sinh cosh asinh acosh atanh lgamma digamma"
)
_BINARY = "maximum minimum copysign atan2 hypot"
_COMPARE = "eq ne lt le gt ge"

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{f"aten.{name}.default": one_op(name) for name in (*_UNARY.split(), *_BINARY.split())},
        **{f"aten.{name}.default": rounding(name) for name in ("floor", "ceil", "round", "trunc")},
        **{f"aten.{name}.{kind}": comparison(name) for name in _COMPARE.split() for kind in ("Tensor", "Scalar")},
        **{f"aten.logical_{name}.default": logical(f"logical_{name}") for name in ("and", "or", "xor", "not")},
        "aten.nextafter.default": nextafter,
        "aten.copysign.Tensor": one_op("copysign"),
        "aten.copysign.Scalar": one_op("copysign"),
        "aten.remainder.Tensor": division("mod"),
        "aten.remainder.Scalar": division("mod"),
        "aten.remainder.Scalar_Tensor": division("mod"),
        "aten.fmod.Tensor": division("fmod"),
        "aten.fmod.Scalar": division("fmod"),
        "aten.floor_divide.default": division("floordiv"),
        "aten.floor_divide.Scalar": division("floordiv"),
        "aten.sign.default": stepped(lambda x: x if x.dtype == BOOL else x.op("sign")),
        "aten.sgn.default": stepped(lambda x: x if x.dtype == BOOL else x.op("sign")),
        "aten.special_erf.default": one_op("erf"),
        "aten.square.default": one_op("square"),
        "aten.relu.default": relu,
        "aten.bitwise_not.default": bitwise("bitwise_not", "logical_not"),
        **{
            f"aten.bitwise_{name}.{kind}": bitwise(f"bitwise_{name}", f"logical_{name}")
            for name in ("and", "or", "xor")
            for kind in ("Tensor", "Scalar", "Scalar_Tensor")
        },
        **{
            f"aten.bitwise_{long}_shift.{kind}": one_op(short)
            for long, short in (("left", "lshift"), ("right", "rshift"))
            for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
        },
        **{
            f"aten.__{short}__.{kind}": one_op(short) for short in ("lshift", "rshift") for kind in ("Tensor", "Scalar")
        },
        "aten.isnan.default": predicate(is_nan),
        "aten.nan_to_num.default": nan_to_num,
        "aten.isinf.default": predicate(is_infinite),
        "aten.signbit.default": predicate(lambda x: x.op("signbit") if x.dtype.kind == "float" else x < 0),
        "aten.add.Tensor": add,
        "aten.add.Scalar": add,
        "aten.sub.Tensor": sub,
        "aten.sub.Scalar": sub,
        "aten.rsub.Tensor": rsub,
        "aten.rsub.Scalar": rsub,
        "aten.mul.Tensor": mul,
        "aten.mul.Scalar": mul,
        "aten.div.Tensor": div,
        "aten.div.Scalar": div,
        "aten.div.Tensor_mode": div,
        "aten.div.Scalar_mode": div,
        "aten.true_divide.Tensor": div,
        "aten.pow.Tensor_Tensor": power,
        "aten.pow.Tensor_Scalar": power,
        "aten.pow.Scalar": power,
        "aten.where.self": where,
        "aten.where.ScalarOther": where,
        "aten.where.ScalarSelf": where,
        "aten.where.Scalar": where,
        "aten.masked_fill.Scalar": masked_fill,
        "aten.masked_fill.Tensor": masked_fill,
        "aten.clamp.default": clamp_by_numbers,
        "aten.clamp.Tensor": clamp,
        "aten.clamp_min.default": clamp,
        "aten.clamp_min.Tensor": clamp,
        "aten.clamp_max.default": clamp_max,
        "aten.clamp_max.Tensor": clamp_max,
        "aten.addcmul.default": addcmul,
        "aten.addcdiv.default": addcdiv,
        "prims.fma.default": one_op("fma"),
        "aten.frac.default": stepped(lambda x: x - x.op("trunc")),
        "aten.lerp.Scalar": elementwise(formulas.lerp),
        "aten.lerp.Tensor": elementwise(formulas.lerp),
        "aten._to_copy.default": to_copy,
        "prims.convert_element_type.default": to_copy,
        "aten.clone.default": copy,
        "aten.lift_fresh_copy.default": copy,
        "aten.copy.default": copied,
        "aten.copy_.default": copy_into,
        "aten.fmax.default": ignoring_nan("fmax", "maximum"),
        "aten.fmin.default": ignoring_nan("fmin", "minimum"),
        "aten.view.dtype": bitcast,
        "aten.scalar_tensor.default": scalar_tensor,
        **{op: with_numbers(fn, tensors) for op, (fn, tensors) in formulas.TABLE.items()},
    }
)
