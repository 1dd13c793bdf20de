"""Operators on lists of tensors, which optimisers use: the element's rule, once for each.

Takes lists, and numbers or lists of numbers. Gives a kernel for each, which `bundle` joins; refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from minductor.core.dtypes import DType
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.values import Value
from minductor.frontend.rules import create, pointwise, reduce
from minductor.ir.program.nodes import View

Rule = Callable[..., Value]


def each(rule: Rule) -> Rule:
    """`rule` on the k-th item of each list; what is no list is given to all."""

    def over_lists(ctx: Lowering, first: tuple[Value, ...], *rest: Value, **named: Value) -> Value:
        metas = ctx.metas
        results: list[Value] = []
        for k, (item, meta) in enumerate(zip(first, metas, strict=True)):
            others = [value[k] if isinstance(value, tuple) else value for value in rest]
            more = {name: value[k] if isinstance(value, tuple) else value for name, value in named.items()}
            with ctx.one_of_several(meta):
                results.append(rule(ctx, item, *others, **more))
        return tuple(results)

    return over_lists


def scaled(rule: Rule) -> Rule:
    """addcmul and addcdiv take their factor by position here, by name in the element's operator."""
    return each(lambda ctx, x, a, b, value=1, **named: rule(ctx, x, a, b, **{"value": value, **named}))


def scaled_by_tensor(rule: Rule) -> Rule:
    """The same with the factors as the elements of one tensor."""

    def over_lists(ctx: Lowering, x: Value, a: Value, b: Value, factors: View) -> Value:
        step = factors.stride[0]
        count = len(ctx.metas)
        each_factor = tuple(
            replace(factors, size=(), stride=(), offset=factors.offset + k * step) for k in range(count)
        )
        return scaled(rule)(ctx, x, a, b, each_factor)

    return over_lists


def norm(ctx: Lowering, x: View, order: float = 2, dtype: DType | None = None) -> Value:
    return reduce.vector_norm(ctx, x, order, dtype=dtype)


def scalar_power(ctx: Lowering, number: float, exponents: tuple[Value, ...]) -> Value:
    """One number to the power of each tensor."""
    return each(pointwise.power)(ctx, (number,) * len(exponents), exponents)


_KINDS = ("Scalar", "List", "ScalarList", "Tensor")
_PAIRS: Mapping[str, Rule] = MappingProxyType(
    {
        "add": pointwise.add,
        "sub": pointwise.sub,
        "mul": pointwise.mul,
        "div": pointwise.div,
        "pow": pointwise.power,
        "maximum": pointwise.one_op("maximum"),
        "minimum": pointwise.one_op("minimum"),
        "clamp_min": pointwise.clamp,
        "clamp_max": pointwise.clamp_max,
        "lerp": pointwise.RULES["aten.lerp.Tensor"],
    }
)
_SINGLE = (
    "abs neg sqrt rsqrt reciprocal exp expm1 log log1p log2 log10 sigmoid tanh sin cos tan asin acos atan sinh cosh"
    " erf erfc lgamma floor ceil round trunc frac sign"
)
# only these take one tensor for all
_WITH_TENSOR = ("add", "mul", "div")

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **{
            f"aten._foreach_{name}.{kind}": each(rule)
            for name, rule in _PAIRS.items()
            for kind in _KINDS
            if kind != "Tensor" or name in _WITH_TENSOR
        },
        **{f"aten._foreach_{name}.default": each(pointwise.RULES[f"aten.{name}.default"]) for name in _SINGLE.split()},
        **{f"aten._foreach_addcmul.{kind}": scaled(pointwise.addcmul) for kind in ("Scalar", "ScalarList")},
        **{f"aten._foreach_addcdiv.{kind}": scaled(pointwise.addcdiv) for kind in ("Scalar", "ScalarList")},
        "aten._foreach_addcmul.Tensor": scaled_by_tensor(pointwise.addcmul),
        "aten._foreach_addcdiv.Tensor": scaled_by_tensor(pointwise.addcdiv),
        "aten._foreach_pow.ScalarAndTensor": scalar_power,
        "aten._foreach_norm.Scalar": each(norm),
        "aten._foreach_max.default": each(reduce.RULES["aten.max.default"]),
        "aten._foreach_clone.default": each(pointwise.copy),
        "aten._foreach_zero.default": each(create.filled(0)),
        "aten._foreach_copy.default": each(pointwise.copied),
    }
)
