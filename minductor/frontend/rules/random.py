"""Random numbers inside kernels under options.fuse_random; without it random operators stay ATen calls.

Takes distributions' parameters. Gives kernels whose numbers depend on a seed, on the operator's place in the graph and
on the element's row-major place, and on nothing else: not on threads, layouts or fusion. The seed is drawn once a call
from torch's default generator, so that `torch.manual_seed` repeats a run. Refuses permutations and samples without
replacement.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): two words each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.core.dtypes import BOOL, F32, F64, I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Operand, Term, Value, row_major, sizes
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]
Draw = Callable[[Loop], Term]  # 64 random bits of an element

WORD = 2.0**-32
# what a dtype holds of a number in [0, 1): with more digits the largest would be rounded to 1
_DIGITS: Mapping[str, int] = MappingProxyType({"bf16": 8, "f16": 11, "f32": 24, "f64": 53})


def draws(ctx: Lowering, meta: TensorMeta) -> Draw:
    """This operator's random bits, for a loop over the elements of a result."""
    seed, stream = ctx.random_stream()
    steps = row_major(sizes(meta.size))

    def draw(loop: Loop) -> Term:
        place = loop.index(sum((c * s for c, s in zip(loop.coords, steps, strict=True)), integer(0)), I64)
        return loop.load(seed, (), I64).op("philox", stream, place)

    return draw


def fused(fn: Callable[..., Value]) -> Rule:
    """A rule that holds only where the user asks for it; a generator of the user's own stays with ATen."""

    def rule(ctx: Lowering, *args: Value, **named: Value) -> Value:
        if not ctx.env.options.fuse_random or named.get("generator") is not None:
            return NotImplemented
        return fn(ctx, *args, **named)

    return rule


def words(bits: Term) -> tuple[Term, Term]:
    """The two words of a draw, as integers in [0, 2**32)."""
    return bits.op("bitwise_and", 0xFFFFFFFF), bits.op("rshift", 32).op("bitwise_and", 0xFFFFFFFF)


def unit(bits: Term, dtype: DType) -> Term:
    """A number in [0, 1) with all the digits of `dtype`."""
    digits = _DIGITS[dtype.name]
    return bits.op("bitwise_and", 2**digits - 1).cast(compute_dtype(dtype)) * 2.0**-digits


def positive(word: Term, dtype: DType) -> Term:
    """A word as a number in (0, 1], whose logarithm is finite."""
    return (word.cast(compute_dtype(dtype)) + 1) * WORD


def gaussian(bits: Term, dtype: DType) -> Term:
    """Box and Muller's transform."""
    first, second = words(bits)
    angle = second.cast(compute_dtype(dtype)) * (WORD * 2 * math.pi)
    return (positive(first, dtype).op("log") * -2).op("sqrt") * angle.op("cos")


def sampled(ctx: Lowering, fn: Callable[..., Term], *parameters: Operand) -> Value:
    """`fn(bits, *parameters)` for each element; parameters are numbers or tensors that broadcast."""
    dtype = ctx.meta.dtype
    if dtype.kind != "float" or dtype.name not in _DIGITS:
        return NotImplemented
    draw = draws(ctx, ctx.meta)
    return ctx.map(lambda loop: fn(draw(loop), *(loop.load(p, None, dtype) for p in parameters)))


def rand(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    return sampled(ctx, lambda bits: unit(bits, ctx.meta.dtype))


def randn(ctx: Lowering, *ignored: Value, **layout: Value) -> Value:
    return sampled(ctx, lambda bits: gaussian(bits, ctx.meta.dtype))


def uniform(ctx: Lowering, x: View, low: Operand = 0.0, high: Operand = 1.0, **ignored: Value) -> Value:
    return sampled(ctx, lambda bits, a, b: unit(bits, x.dtype) * (b - a) + a, low, high)


def normal(ctx: Lowering, mean: Operand = 0.0, std: Operand = 1.0, *ignored: Value, **named: Value) -> Value:
    return sampled(ctx, lambda bits, m, s: gaussian(bits, ctx.meta.dtype) * s + m, mean, std)


def log_normal(ctx: Lowering, x: View, mean: float = 1.0, std: float = 2.0, **ignored: Value) -> Value:
    return sampled(ctx, lambda bits, m, s: (gaussian(bits, x.dtype) * s + m).op("exp"), mean, std)


def exponential(ctx: Lowering, x: View, rate: float = 1.0, **ignored: Value) -> Value:
    return sampled(ctx, lambda bits, r: -positive(words(bits)[0], x.dtype).op("log") / r, rate)


def cauchy(ctx: Lowering, x: View, median: float = 0.0, sigma: float = 1.0, **ignored: Value) -> Value:
    def fn(bits: Term, m: Term, s: Term) -> Term:
        return ((positive(words(bits)[0], x.dtype) - 0.5) * math.pi).op("tan") * s + m

    return sampled(ctx, fn, median, sigma)


def geometric(ctx: Lowering, x: View, p: float, **ignored: Value) -> Value:
    """The number of trials up to the first success."""
    if not 0 < p < 1:
        return NotImplemented
    scale = 1 / math.log1p(-p)
    return sampled(ctx, lambda bits: (positive(words(bits)[0], x.dtype).op("log") * scale).op("ceil").op("maximum", 1))


def bernoulli(ctx: Lowering, x: View, p: Operand | None = None, **ignored: Value) -> Value:
    """1 with the probability `p`, or with the one that the element of `x` says."""
    chance = x if p is None else p
    draw = draws(ctx, ctx.meta)
    width = F64 if isinstance(chance, View) and chance.dtype == F64 else F32

    def fn(loop: Loop) -> Term:
        return (unit(draw(loop), width) < loop.load(chance, None, width)).cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def dropout(ctx: Lowering, x: View, p: float, train: bool | None) -> Value:
    """Each element kept with the probability 1 - p, and scaled so that the mean stays."""
    out, mask = ctx.metas
    if train is False or x.dtype.kind != "float":
        return NotImplemented
    scale = 0.0 if p == 1 else 1 / (1 - p)
    draw = draws(ctx, mask)
    kept = ctx.map(lambda loop: unit(draw(loop), F32).op("ge", p), mask)
    wide = compute_dtype(x.dtype)
    return ctx.map(lambda loop: loop.load(kept, None, BOOL).where(loop.load(x, None, wide) * scale, 0.0), out), kept


def randint(ctx: Lowering, low: Operand, high: Operand, *ignored: Value, **layout: Value) -> Value:
    """low + a number below high - low: a word times the range for ranges below 2**31, else a remainder."""
    assert isinstance(low, int | Expr) and isinstance(high, int | Expr)
    first = as_expr(low)
    span = as_expr(high) - first
    known = as_int(span)
    draw = draws(ctx, ctx.meta)

    def fn(loop: Loop) -> Term:
        bits, length, start = draw(loop), loop.index(span, I64), loop.index(first, I64)
        small = (words(bits)[0] * length).op("rshift", 32)
        large = bits.op("bitwise_and", 2**63 - 1).op("mod", length)
        value = small if known is not None and known < 2**31 else large
        return (start + value).cast(compute_dtype(ctx.meta.dtype))

    return ctx.map(fn)


def randint_below(ctx: Lowering, high: Operand, *ignored: Value, **layout: Value) -> Value:
    return randint(ctx, 0, high)


def like(rule: Rule) -> Rule:
    """The rule's form whose first argument is a tensor of the result's size."""
    return lambda ctx, x, *parameters, **named: rule(ctx, *parameters, **named)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        name: fused(rule)
        for name, rule in {
            "aten.rand.default": rand,
            "aten.rand_like.default": rand,
            "aten.randn.default": randn,
            "aten.randn_like.default": randn,
            "aten.uniform.default": uniform,
            "aten.normal_functional.default": like(normal),
            "aten.normal.float_float": normal,
            "aten.normal.Tensor_float": normal,
            "aten.normal.float_Tensor": normal,
            "aten.normal.Tensor_Tensor": normal,
            "aten.log_normal.default": log_normal,
            "aten.exponential.default": exponential,
            "aten.cauchy.default": cauchy,
            "aten.geometric.default": geometric,
            "aten.bernoulli.default": bernoulli,
            "aten.bernoulli.p": bernoulli,
            "aten.native_dropout.default": dropout,
            "aten.randint.default": randint_below,
            "aten.randint.low": randint,
            "aten.randint_like.default": like(randint_below),
            "aten.randint_like.low_dtype": like(randint),
        }.items()
    }
)
