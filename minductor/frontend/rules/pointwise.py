"""Rules of pointwise operators: each output element is a function of the input elements at the same coordinates.

- arithmetic: add, sub, mul, div, remainder, fmod, floor_divide, pow, square, addcmul, addcdiv, lerp, fma
- functions: exp, log, sqrt, sin, tanh, erf, ... (`_UNARY`), atan2, hypot, copysign, nextafter
- rounding: floor, ceil, round, trunc, frac, sign
- comparisons, logic and bits: eq, lt, ..., logical_and, ..., bitwise_and, ..., shifts, isnan, isinf, signbit
- selection: where, masked_fill, maximum, minimum, fmax, fmin, clamp, nan_to_num
- conversion and copies: _to_copy, clone, copy, copy_, view.dtype
- activations and their gradients: relu here, the others as formulas in `formulas.py`

Takes operands (tensors, numbers, sizes) that broadcast. Gives one kernel per result over the result's size, computed
in the compute dtype of the dtype that torch promotes to; the compute dtype of 16-bit floats is float32, and the store
rounds. Refuses (to an extern call) what raises in eager, and what needs 16-bit floats inside a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from minductor.core.dtypes import BOOL, F8E4M3FN, F16, F32, DType, compute_dtype
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Rule, Value, is_zero_sized, promoted, rules_for
from minductor.frontend.quirks.torch_versions import ignores_nan_bound, saturates_fp8
from minductor.frontend.rules import formulas
from minductor.ir.program.nodes import Token, View


def elementwise(fn: Callable[..., KernelValue]) -> Rule:
    """A rule that computes `fn` of all its arguments, each cast to the compute dtype of the result."""

    def rule(ctx: Lowering, *operands: Operand) -> Value:
        return ctx.pointwise(fn, *operands)

    return rule


def one_op(name: str) -> Rule:
    """A rule that is one op of the IR."""
    return elementwise(lambda x, *more: x.op(name, *more))


def relu(ctx: Lowering, x: Operand) -> Value:
    """Lowers relu. Eager keeps -0.0 on a CPU and makes it 0.0 on a GPU; NaN passes on both."""
    if ctx.device.partition(":")[0] != "cuda":
        return one_op("relu")(ctx, x)
    return elementwise(lambda x: x.op("le", 0).where(0, x))(ctx, x)


def discontinuous(fn: Callable[..., KernelValue]) -> Rule:
    """As `elementwise`, for a discontinuous `fn` (floor, sign, remainder): its arguments are rounded to their dtypes.

    A kernel holds 16-bit floats in float32. A jump of `fn` may lie between that value and the rounded one that eager
    reads from memory.
    """

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
    """The value as a store to a tensor of `dtype` and a load from it would give it: rounded to `dtype`."""
    return value.cast(dtype).cast(compute_dtype(dtype))


def comparison(name: str) -> Rule:
    """A rule that compares two operands in their promoted dtype, to which both are rounded as in eager, and gives bool.

    Without the rounding a 16-bit value that a kernel holds in float32 would rarely equal the same value read from
    memory; the gradient of amax makes that comparison. A comparison with zero needs the rounding for float16 only:
    it rounds small float32 numbers to zero, while bfloat16 has the range of float32.
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
    """A rule for isnan, isinf and signbit: `fn` of each element, rounded to its dtype."""

    def rule(ctx: Lowering, x: View) -> Value:
        return ctx.map(lambda loop: fn(_load_as_stored(loop, x)))

    return rule


def _load_as_stored(loop: KernelBuilder, x: View) -> KernelValue:
    """Loads an element rounded to its dtype: in 16 bits it may be infinite or 0 where it is not so in float32."""
    return as_stored(loop.load(x), x.dtype)


def nan_to_num(
    ctx: Lowering, x: View, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Lowers nan_to_num; infinities become the largest and lowest finite numbers of the dtype unless others are given.

    An integer tensor is copied; a complex one stays an extern call.
    """
    if x.dtype.kind != "float":
        return ctx.pointwise(lambda t: t, x) if x.dtype.kind != "complex" else NotImplemented
    largest = x.dtype.max_value

    def fn(loop: KernelBuilder) -> KernelValue:
        t = _load_as_stored(loop, x)
        high, low = t.op("eq", math.inf), t.op("eq", -math.inf)
        finite = high.where(largest if posinf is None else posinf, low.where(-largest if neginf is None else neginf, t))
        return t.op("isnan").where(nan or 0.0, finite)

    return ctx.map(fn)


def is_infinite(x: KernelValue) -> KernelValue:
    """Whether a value is infinite; false for all integers, written as x != x."""
    return x.op("isinf") if x.dtype.kind == "float" else x.op("ne", x)


def is_nan(x: KernelValue) -> KernelValue:
    """Whether a value is NaN; false for all integers."""
    return x.op("isnan") if x.dtype.kind == "float" else x.op("ne", x)


def is_nonzero(x: KernelValue) -> KernelValue:
    """The truth value of a number: whether it is not 0 (true for NaN)."""
    return x if x.dtype == BOOL else x.op("ne", 0)


def logical(name: str) -> Rule:
    """A rule for logical_and, or, xor and not: an op on the truth values of operands of any dtypes; gives bool."""

    def rule(ctx: Lowering, *operands: View) -> Value:
        def fn(loop: KernelBuilder) -> KernelValue:
            first, *more = (is_nonzero(_load_as_stored(loop, x)) for x in operands)
            return first.op(name, *more)

        return ctx.map(fn)

    return rule


def bitwise(name: str, on_bools: str) -> Rule:
    """A rule for a bitwise operator, which on bools is the logical op `on_bools`."""

    def fn(x: KernelValue, *more: KernelValue) -> KernelValue:
        return x.op(on_bools if x.dtype == BOOL else name, *more)

    return elementwise(fn)


def ignoring_nan(name: str, on_whole: str) -> Rule:
    """A rule for fmax and fmin, which prefer a number to NaN; for integers and bools they are maximum and minimum."""
    return elementwise(lambda x, y: x.op(name if x.dtype.kind == "float" else on_whole, y))


def rounding(name: str) -> Rule:
    """A rule for floor, ceil, round (half to even) and trunc; integers pass unchanged."""
    return discontinuous(lambda x: x.op(name) if x.dtype.kind == "float" else x)


def add(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """Lowers add: x + alpha * y; on bools `x or y`, as in eager."""
    if isinstance(alpha, bool) and ctx.meta.dtype != BOOL:  # eager raises
        return NotImplemented
    if ctx.meta.dtype == BOOL:
        return ctx.pointwise(lambda a, b: a.either(b) if alpha else a, x, y)
    return ctx.pointwise(lambda a, b: a + (b if alpha == 1 else b * alpha), x, y)


def sub(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """Lowers sub: x - alpha * y; eager refuses bools."""
    if any(isinstance(n, bool) or (isinstance(n, View) and n.dtype == BOOL) for n in (x, y, alpha)):  # eager raises
        return NotImplemented
    return ctx.pointwise(lambda a, b: a - (b if alpha == 1 else b * alpha), x, y)


def rsub(ctx: Lowering, x: Operand, y: Operand, alpha: float = 1) -> Value:
    """Lowers rsub: y - alpha * x."""
    return sub(ctx, y, x, alpha)


def mul(ctx: Lowering, x: Operand, y: Operand) -> Value:
    """Lowers mul: x * y; on bools `x and y`, as in eager."""
    if ctx.meta.dtype == BOOL:
        return ctx.pointwise(KernelValue.both, x, y)
    return ctx.pointwise(KernelValue.__mul__, x, y)


def div(ctx: Lowering, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """Lowers div: a true division, or one that rounds to floor or towards zero ("trunc")."""
    match rounding_mode:
        case None:
            return ctx.pointwise(KernelValue.__truediv__, x, y)
        case "floor":
            return division("floordiv")(ctx, x, y)
        case _:
            return division("truncdiv")(ctx, x, y)


def can_be_zero(divisor: Operand) -> bool:
    """Whether a divisor may be 0, so that an integer division by it needs an assertion.

    An assertion is an effect of its kernel, which then does not fuse into the readers of the quotient.
    """
    if isinstance(divisor, Expr):
        return not at_least(divisor, 1) and not at_least(-divisor, 1)
    return isinstance(divisor, View) or divisor == 0


def division(name: str) -> Rule:
    """A rule for floor_divide, remainder and fmod: the op `name`; integer division by 0 raises as in eager."""

    def rule(ctx: Lowering, x: Operand, y: Operand) -> Value:
        def fn(a: KernelValue, b: KernelValue) -> KernelValue:
            if b.dtype.kind in ("int", "uint") and can_be_zero(y):
                b.b.assertion(b.op("ne", 0).at, "ZeroDivisionError")
            return a.op(name, b)

        return discontinuous(fn)(ctx, x, y)

    return rule


def power(ctx: Lowering, x: Operand, y: Operand) -> Value:
    """Lowers pow. Exponents 0 to 3, -1 and -2 are products, and 1/2 and -1/2 are roots, as in eager.

    Eager computes float16 roots by `pow`, and so does this rule.
    """
    if ctx.meta.dtype.kind in ("int", "uint") and isinstance(y, int) and y < 0:  # eager raises
        return NotImplemented
    is_half_root = ctx.meta.dtype == F16 and y in (0.5, -0.5)
    if isinstance(y, int | float) and not isinstance(y, bool) and y in formulas.SMALL_POWERS and not is_half_root:
        return ctx.pointwise(lambda a: formulas.small_power(a, y), x)
    return ctx.pointwise(lambda a, b: a.op("pow", b), x, y)


def nextafter(ctx: Lowering, x: Operand, y: Operand) -> Value:
    """Lowers nextafter; refuses 16-bit floats, because a kernel holds them in float32, whose next number is another."""
    if compute_dtype(ctx.meta.dtype) != ctx.meta.dtype:
        return NotImplemented
    return ctx.pointwise(lambda a, b: a.op("nextafter", b), x, y)


def where(ctx: Lowering, condition: View, x: Operand, y: Operand) -> Value:
    """Lowers where; `x` and `y` are tensors or numbers, cast to the result's dtype."""
    dtype = ctx.meta.dtype

    def fn(loop: KernelBuilder) -> KernelValue:
        return is_nonzero(_load_as_stored(loop, condition)).where(loop.load(x, None, dtype), loop.load(y, None, dtype))

    return ctx.map(fn)


def masked_fill(ctx: Lowering, x: View, mask: View, value: Operand) -> Value:
    """Lowers masked_fill: `value` where the mask is true, else x."""
    if isinstance(value, View) and value.dtype not in (x.dtype, BOOL) and x.dtype != BOOL:
        return NotImplemented  # eager raises if the value does not fit x's dtype
    return where(ctx, mask, value, x)


def to_copy(ctx: Lowering, x: View, dtype: DType | None = None, **layout: Value) -> Value:
    """Lowers _to_copy and convert_element_type: a copy with a cast.

    A cast that the program asked for rounds to the result's dtype, even if the value then stays in a register. A cast
    to integers or bool first rounds its argument to its own dtype, because it is discontinuous.
    """
    load = KernelBuilder.load if ctx.meta.dtype.kind == "float" else _load_as_stored
    return ctx.map(lambda loop: overflow_as_eager(load(loop, x), ctx.meta.dtype).cast(ctx.meta.dtype))


def overflow_as_eager(value: KernelValue, dtype: DType) -> KernelValue:
    """The value to convert to `dtype`: NaN in place of what is too large for float8_e4m3fn, if this torch makes it NaN.

    The conversion of our kernels saturates at the largest number, as eager's does in torch 2.11 but not in all others.
    """
    if dtype != F8E4M3FN or saturates_fp8():
        return value
    value = value.cast(F32)
    return (value.op("abs") > F8E4M3FN.max_value + 16).where(math.nan, value)  # 16: half a step of the format


def clone(ctx: Lowering, x: View, *ignored: Value, **layout: Value) -> Value:
    """Lowers clone and lift_fresh_copy: a copy in the traced layout."""
    return ctx.map(lambda loop: loop.load(x))


def copy_values(ctx: Lowering, x: View, source: Operand, non_blocking: Value = None) -> Value:
    """Lowers copy (functional): the source's values, broadcast to x's size and cast to x's dtype."""
    return ctx.map(lambda loop: overflow_as_eager(loop.load(source), ctx.meta.dtype).cast(ctx.meta.dtype))


def copy_into(ctx: Lowering, x: View, source: Operand, non_blocking: Value = None) -> Value:
    """Lowers copy_: a kernel that overwrites x in place, broadcasting and casting `source`.

    If source and x are different views of one storage, the source is first copied to a buffer, because the write may
    overtake the reads.
    """
    if is_zero_sized(x):
        return x
    if isinstance(source, View) and source.ref.storage == x.ref.storage:
        if source == x:
            return x
        overlapping = source
        source = ctx.fill(ctx.buffer(x.dtype, x.size), lambda loop: loop.load(overlapping))
    return ctx.fill(ctx.next_version(x), lambda loop: overflow_as_eager(loop.load(source, None, x.dtype), x.dtype))


def clamp(ctx: Lowering, x: View, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Lowers clamp with tensor bounds, and clamp_min: minimum(high, maximum(low, x)).

    As in eager, a NaN of x or of a bound passes, the upper bound wins if the bounds cross, and x's signed zero stays
    beside a bound of 0.
    """
    bounds = [(name, b) for name, b in (("maximum", low), ("minimum", high)) if b is not None]

    def fn(a: KernelValue, *limits: KernelValue) -> KernelValue:
        for (name, _), limit in zip(bounds, limits, strict=True):
            a = limit.op(name, a)
        return a

    return ctx.pointwise(fn, x, *(b for _, b in bounds))


def clamp_by_numbers(ctx: Lowering, x: View, low: Operand | None = None, high: Operand | None = None) -> Value:
    """Lowers clamp with numbers.

    A NaN as the only bound is ignored by some versions of torch and makes every element NaN in others;
    `ignores_nan_bound` finds out which.
    """
    bound = low if high is None else high
    has_two = low is not None and high is not None
    if bound is None or has_two or (isinstance(bound, int | float) and bound == bound) or not ignores_nan_bound():
        return clamp(ctx, x, low, high)
    name = "maximum" if high is None else "minimum"
    return ctx.pointwise(lambda a, limit: is_nan(limit).where(a, limit.op(name, a)), x, bound)


def clamp_max(ctx: Lowering, x: View, high: Operand) -> Value:
    """Lowers clamp_max."""
    return clamp(ctx, x, None, high)


def addcmul(ctx: Lowering, x: View, a: View, b: View, value: Operand = 1) -> Value:
    """Lowers addcmul: x + a * value * b, multiplied in eager's order."""
    if isinstance(value, int | float) and value == 1:
        return ctx.pointwise(lambda x, a, b: x + a * b, x, a, b)
    return ctx.pointwise(lambda x, a, b, factor: x + a * factor * b, x, a, b, value)


def addcdiv(ctx: Lowering, x: View, a: View, b: View, value: Operand = 1) -> Value:
    """Lowers addcdiv: x + a * value / b, computed in eager's order."""
    if isinstance(value, int | float) and value == 1:
        return ctx.pointwise(lambda x, a, b: x + a / b, x, a, b)
    return ctx.pointwise(lambda x, a, b, factor: x + a * factor / b, x, a, b, value)


def formula_rule(fn: Callable[..., KernelValue], tensors: int) -> Rule:
    """A rule for a formula of `formulas.py`: the first `tensors` arguments are operands, the others its parameters."""

    def rule(ctx: Lowering, *args: Operand, **named: float | str | bool | View) -> Value:
        operands, parameters = args[:tensors], args[tensors:]
        return ctx.pointwise(lambda *terms: fn(*terms, *parameters, **named), *operands)

    return rule


def bitcast(ctx: Lowering, x: View, dtype: DType) -> Value:
    """Lowers view.dtype between dtypes of one width: a kernel that reinterprets the bits.

    Refuses 16-bit floats and bools, whose bits a kernel does not hold.
    """
    if x.dtype == dtype:
        return ctx.window(x)
    unfit = any(compute_dtype(d) != d or d == BOOL for d in (x.dtype, dtype))
    if unfit or x.dtype.itemsize != dtype.itemsize:
        return NotImplemented
    return ctx.map(lambda loop: loop.term(loop.b.bitcast(loop.load(x).at, dtype)))


def scalar_tensor(ctx: Lowering, value: Operand, **layout: Token | DType | Expr) -> Value:
    """Lowers scalar_tensor: a 0-dim tensor of one number."""
    return ctx.pointwise(lambda x: x, value)


_UNARY = (
    "neg abs sqrt reciprocal rsqrt exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan erf erfc"
    " erfinv asin acos atan sinh cosh asinh acosh atanh lgamma digamma"
)
_BINARY = "maximum minimum copysign atan2 hypot"
_COMPARE = "eq ne lt le gt ge"

RULES: Mapping[str, Rule] = {
    **{f"aten.{name}.default": one_op(name) for name in (*_UNARY.split(), *_BINARY.split())},
    **{f"aten.{name}.default": rounding(name) for name in ("floor", "ceil", "round", "trunc")},
    **{f"aten.{name}.{kind}": comparison(name) for name in _COMPARE.split() for kind in ("Tensor", "Scalar")},
    **{f"aten.logical_{name}.default": logical(f"logical_{name}") for name in ("and", "or", "xor", "not")},
    "aten.nextafter.default": nextafter,
    **rules_for("copysign.Tensor copysign.Scalar", one_op("copysign")),
    **rules_for("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor", division("mod")),
    **rules_for("fmod.Tensor fmod.Scalar", division("fmod")),
    **rules_for("floor_divide floor_divide.Scalar", division("floordiv")),
    **rules_for("sign sgn", discontinuous(lambda x: x if x.dtype == BOOL else x.op("sign"))),
    "aten.special_erf.default": one_op("erf"),
    "aten.square.default": one_op("square"),
    "aten.relu.default": relu,
    "aten.bitwise_not.default": bitwise("bitwise_not", "logical_not"),
    **{
        f"aten.bitwise_{name}.{kind}": bitwise(f"bitwise_{name}", f"logical_{name}")
        for name in ("and", "or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **rules_for("bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar", one_op("lshift")),
    **rules_for("bitwise_left_shift.Scalar_Tensor __lshift__.Tensor __lshift__.Scalar", one_op("lshift")),
    **rules_for("bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar", one_op("rshift")),
    **rules_for("bitwise_right_shift.Scalar_Tensor __rshift__.Tensor __rshift__.Scalar", one_op("rshift")),
    "aten.isnan.default": predicate(is_nan),
    "aten.nan_to_num.default": nan_to_num,
    "aten.isinf.default": predicate(is_infinite),
    "aten.signbit.default": predicate(lambda x: x.op("signbit") if x.dtype.kind == "float" else x < 0),
    **rules_for("add.Tensor add.Scalar", add),
    **rules_for("sub.Tensor sub.Scalar", sub),
    **rules_for("rsub.Tensor rsub.Scalar", rsub),
    **rules_for("mul.Tensor mul.Scalar", mul),
    **rules_for("div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode true_divide.Tensor", div),
    **rules_for("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar", power),
    **rules_for("where.self where.ScalarOther where.ScalarSelf where.Scalar", where),
    **rules_for("masked_fill.Scalar masked_fill.Tensor", masked_fill),
    "aten.clamp.default": clamp_by_numbers,
    **rules_for("clamp.Tensor clamp_min clamp_min.Tensor", clamp),
    **rules_for("clamp_max clamp_max.Tensor", clamp_max),
    "aten.addcmul.default": addcmul,
    "aten.addcdiv.default": addcdiv,
    "prims.fma.default": one_op("fma"),
    "aten.frac.default": discontinuous(lambda x: x - x.op("trunc")),
    **rules_for("lerp.Scalar lerp.Tensor", elementwise(formulas.lerp)),
    "aten._to_copy.default": to_copy,
    "prims.convert_element_type.default": to_copy,
    **rules_for("clone lift_fresh_copy", clone),
    "aten.copy.default": copy_values,
    "aten.copy_.default": copy_into,
    "aten.fmax.default": ignoring_nan("fmax", "maximum"),
    "aten.fmin.default": ignoring_nan("fmin", "minimum"),
    "aten.view.dtype": bitcast,
    "aten.scalar_tensor.default": scalar_tensor,
    **{op: formula_rule(fn, tensors) for op, (fn, tensors) in formulas.FORMULAS.items()},
}
