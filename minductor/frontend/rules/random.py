"""Rules of random operators, used under options.fuse_random only; otherwise they are extern calls.

- uniform numbers: rand, rand_like, uniform, bernoulli, randint, randint_like, native_dropout
- other distributions: randn, randn_like, normal, log_normal, exponential, cauchy, geometric

Takes the parameters of the distribution. Gives one kernel over the result, which computes each element's random bits
itself. The bits depend on the seed, on the number of the operator in the graph and on the element's row-major number;
they do not depend on threads, layouts or fusion. The seed is drawn once per call from torch's default generator, so
`torch.manual_seed` repeats a run, but the numbers are not eager's. Refuses (to an extern call) a generator argument;
randperm, multinomial and others that draw without replacement have no rule.

The bits come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011); each element
uses two of the four 32-bit words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from minductor.core.dtypes import BOOL, F32, F64, I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import row_major, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Operand, Rule, Value, rules_for
from minductor.ir.program.nodes import View

Draw = Callable[[KernelBuilder], KernelValue]  # loop -> the 64 random bits of its current element

WORD = 2.0**-32  # scales a 32-bit word to [0, 1)
# bits of mantissa in a uniform number of each dtype: with more bits the largest number would be rounded to 1
_DIGITS: Mapping[str, int] = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}


def draws(ctx: Lowering, meta: TensorMeta) -> Draw:
    """A function that gives the current operator's random bits in a loop over the elements of `meta`."""
    seed, stream = ctx.random_stream()
    steps = row_major(sizes(meta.size))

    def draw(loop: KernelBuilder) -> KernelValue:
        place = loop.index(sum((c * s for c, s in zip(loop.coords, steps, strict=True)), integer(0)), I64)
        return loop.load(seed, (), I64).op("philox", stream, place)

    return draw


def if_fuse_random(fn: Callable[..., Value]) -> Rule:
    """`fn` as a rule that applies only under options.fuse_random and without a generator argument."""

    def rule(ctx: Lowering, *args: Value, **named: Value) -> Value:
        if not ctx.env.options.fuse_random or named.get("generator") is not None:
            return NotImplemented
        return fn(ctx, *args, **named)

    return rule


def words(bits: KernelValue) -> tuple[KernelValue, KernelValue]:
    """The low and the high 32 bits of a draw, as int64 numbers in [0, 2**32)."""
    return bits.op("bitwise_and", 0xFFFFFFFF), bits.op("rshift", 32).op("bitwise_and", 0xFFFFFFFF)


def unit_uniform(bits: KernelValue, dtype: DType) -> KernelValue:
    """A uniform number in [0, 1) with as many mantissa bits as `dtype` has."""
    digits = _DIGITS[dtype.name]
    return bits.op("bitwise_and", 2**digits - 1).cast(compute_dtype(dtype)) * 2.0**-digits


def positive_uniform(word: KernelValue, dtype: DType) -> KernelValue:
    """A 32-bit word as a uniform number in (0, 1], so that its logarithm is finite."""
    return (word.cast(compute_dtype(dtype)) + 1) * WORD


def gaussian(bits: KernelValue, dtype: DType) -> KernelValue:
    """A standard normal number from two uniform ones (Box and Muller, 1958)."""
    first, second = words(bits)
    angle = second.cast(compute_dtype(dtype)) * (WORD * 2 * math.pi)
    return (positive_uniform(first, dtype).op("log") * -2).op("sqrt") * angle.op("cos")


def sampled(ctx: Lowering, fn: Callable[..., KernelValue], *parameters: Operand) -> Value:
    """One kernel of `fn(bits, *parameters)` for each element; parameters are numbers or tensors that broadcast.

    Refuses results that are not of a floating dtype in the table of digits.
    """
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or dtype.name not in _DIGITS:
        return NotImplemented
    draw = draws(ctx, ctx.meta)
    return ctx.map(lambda loop: fn(draw(loop), *(loop.load(p, None, dtype) for p in parameters)))


def rand(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    """Lowers rand and rand_like: uniform in [0, 1)."""
    return sampled(ctx, lambda bits: unit_uniform(bits, ctx.meta.dtype))


def randn(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    """Lowers randn and randn_like: standard normal."""
    return sampled(ctx, lambda bits: gaussian(bits, ctx.meta.dtype))


def uniform(ctx: Lowering, x: View, low: Operand = 0.0, high: Operand = 1.0, **ignored: Value) -> Value:
    """Lowers uniform: uniform in [low, high)."""
    return sampled(ctx, lambda bits, a, b: unit_uniform(bits, x.dtype) * (b - a) + a, low, high)


def normal(ctx: Lowering, mean: Operand = 0.0, std: Operand = 1.0, *ignored: Value, **named: Value) -> Value:
    """Lowers normal, whose mean and standard deviation are numbers or tensors."""
    return sampled(ctx, lambda bits, m, s: gaussian(bits, ctx.meta.dtype) * s + m, mean, std)


def log_normal(ctx: Lowering, x: View, mean: float = 1.0, std: float = 2.0, **ignored: Value) -> Value:
    """Lowers log_normal: exp of a normal number."""
    return sampled(ctx, lambda bits, m, s: (gaussian(bits, x.dtype) * s + m).op("exp"), mean, std)


def exponential(ctx: Lowering, x: View, rate: float = 1.0, **ignored: Value) -> Value:
    """Lowers exponential by inversion: -log(u) / rate."""
    return sampled(ctx, lambda bits, r: -positive_uniform(words(bits)[0], x.dtype).op("log") / r, rate)


def cauchy(ctx: Lowering, x: View, median: float = 0.0, sigma: float = 1.0, **ignored: Value) -> Value:
    """Lowers cauchy by inversion: median + sigma * tan(pi * (u - 1/2))."""

    def fn(bits: KernelValue, m: KernelValue, s: KernelValue) -> KernelValue:
        return ((positive_uniform(words(bits)[0], x.dtype) - 0.5) * math.pi).op("tan") * s + m

    return sampled(ctx, fn, median, sigma)


def geometric(ctx: Lowering, x: View, p: float, **ignored: Value) -> Value:
    """Lowers geometric by inversion: the number of trials up to the first success, at least 1."""
    if not 0 < p < 1:
        return NotImplemented
    scale = 1 / math.log1p(-p)
    return sampled(
        ctx, lambda bits: (positive_uniform(words(bits)[0], x.dtype).op("log") * scale).op("ceil").op("maximum", 1)
    )


def bernoulli(ctx: Lowering, x: View, p: Operand | None = None, **ignored: Value) -> Value:
    """Lowers bernoulli: 1 with probability `p`, or with the probability that is x's element, else 0."""
    chance = x if p is None else p
    draw = draws(ctx, ctx.meta)
    width = F64 if isinstance(chance, View) and chance.dtype == F64 else F32

    def fn(loop: KernelBuilder) -> KernelValue:
        return (unit_uniform(draw(loop), width) < loop.load(chance, None, width)).cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def dropout(ctx: Lowering, x: View, p: float, train: bool | None) -> Value:
    """Lowers native_dropout in training: keeps an element with probability 1 - p and scales it by 1 / (1 - p).

    Makes two kernels: the bool mask, and the product that reads it.
    """
    out, mask = ctx.metas
    if train is False or x.dtype.kind != "float":
        return NotImplemented
    scale = 0.0 if p == 1 else 1 / (1 - p)
    draw = draws(ctx, mask)
    kept = ctx.map(lambda loop: unit_uniform(draw(loop), F32).op("ge", p), mask)
    wide = compute_dtype(x.dtype)
    return ctx.map(lambda loop: loop.load(kept, None, BOOL).where(loop.load(x, None, wide) * scale, 0.0), out), kept


def randint(ctx: Lowering, low: Operand, high: Operand, *ignored: Value, **layout: Value) -> Value:
    """Lowers randint(low, high): `low` plus a number below n = high - low.

    If n is known to be below 2**31 the number is (word * n) >> 32 (Lemire 2019, without the rejection), else the
    remainder of 63 bits by n. The bias of a number's probability is at most n / 2**32 of it.
    """
    assert isinstance(low, int | Expr) and isinstance(high, int | Expr)
    first = as_expr(low)
    span = as_expr(high) - first
    known = as_int(span)
    draw = draws(ctx, ctx.meta)

    def fn(loop: KernelBuilder) -> KernelValue:
        bits, length, start = draw(loop), loop.index(span, I64), loop.index(first, I64)
        small = (words(bits)[0] * length).op("rshift", 32)
        large = bits.op("bitwise_and", 2**63 - 1).op("mod", length)
        value = small if known is not None and known < 2**31 else large
        return (start + value).cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def randint_below(ctx: Lowering, high: Operand, *ignored: Value, **layout: Value) -> Value:
    """Lowers randint(high)."""
    return randint(ctx, 0, high)


def without_like(rule: Rule) -> Rule:
    """`rule` for the overload whose first argument is a tensor of the result's size, which is dropped."""
    return lambda ctx, x, *parameters, **named: rule(ctx, *parameters, **named)


RULES: Mapping[str, Rule] = {
    name: if_fuse_random(rule)
    for name, rule in {
        **rules_for("rand rand_like", rand),
        **rules_for("randn randn_like", randn),
        "aten.uniform.default": uniform,
        "aten.normal_functional.default": without_like(normal),
        **rules_for("normal.float_float normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor", normal),
        "aten.log_normal.default": log_normal,
        "aten.exponential.default": exponential,
        "aten.cauchy.default": cauchy,
        "aten.geometric.default": geometric,
        **rules_for("bernoulli bernoulli.p", bernoulli),
        "aten.native_dropout.default": dropout,
        "aten.randint.default": randint_below,
        "aten.randint.low": randint,
        "aten.randint_like.default": without_like(randint_below),
        "aten.randint_like.low_dtype": without_like(randint),
    }.items()
}
