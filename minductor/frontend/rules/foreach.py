"""Rules of the `_foreach_` operators, which optimizers call: one operator on every tensor of a list.

- binary: add, sub, mul, div, pow, maximum, minimum, clamp_min, clamp_max, lerp, with a number, a list of numbers, a
  list of tensors, or one tensor
- unary: abs, neg, sqrt, exp, log, sigmoid, tanh, sin, floor, sign, ...
- addcmul, addcdiv, norm, max, clone, zero, copy

Takes lists of tensors, and numbers or lists of numbers. Gives the results of the rule for one tensor, applied to each
item, so that dtypes, NaN and layouts are those of that rule; the `bundle` pass puts the kernels of the items into one
launch. Refuses what the rule for one tensor refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.core.dtypes import DType
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value
from minductor.frontend.rules import create, pointwise, reduce
from minductor.ir.program.nodes import View


def per_item(rule: Rule) -> Rule:
    """A rule for lists: applies `rule` to the k-th items of all lists; what is no list goes to every item."""

    def over_lists(ctx: Lowering, first: tuple[Value, ...], *rest: Value, **named: Value) -> Value:
        metas = ctx.metas
        results: list[Value] = []
        for k, (item, meta) in enumerate(zip(first, metas, strict=True)):
            others = [value[k] if isinstance(value, tuple) else value for value in rest]
            more = {name: value[k] if isinstance(value, tuple) else value for name, value in named.items()}
            with ctx.with_single_result(meta):
                results.append(rule(ctx, item, *others, **more))
        return tuple(results)

    return over_lists


def with_factor(rule: Rule) -> Rule:
    """A rule for the lists of addcmul and addcdiv, whose factor is the fourth positional argument.

    The rule for one tensor takes that factor by the name `value`.
    """
    return per_item(lambda ctx, x, a, b, value=1, **named: rule(ctx, x, a, b, **{"value": value, **named}))


def with_factor_tensor(rule: Rule) -> Rule:
    """As `with_factor`, where the factors are the elements of one 1-d tensor; item k reads the k-th of them."""

    def over_lists(ctx: Lowering, x: Value, a: Value, b: Value, factors: View) -> Value:
        step = factors.stride[0]
        count = len(ctx.metas)
        each_factor = tuple(
            replace(factors, size=(), stride=(), offset=factors.offset + k * step) for k in range(count)
        )
        return with_factor(rule)(ctx, x, a, b, each_factor)

    return over_lists


def norm(ctx: Lowering, x: View, order: float = 2, dtype: DType | None = None) -> Value:
    """The vector norm of all elements of one item of _foreach_norm."""
    return reduce.vector_norm(ctx, x, order, dtype=dtype)


def scalar_power(ctx: Lowering, number: float, exponents: tuple[Value, ...]) -> Value:
    """Lowers _foreach_pow.ScalarAndTensor: one number to the power of each tensor."""
    return per_item(pointwise.power)(ctx, (number,) * len(exponents), exponents)


_KINDS = ("Scalar", "List", "ScalarList", "Tensor")
_BINARY: Mapping[str, Rule] = {
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
_UNARY = (
    "abs neg sqrt rsqrt reciprocal exp expm1 log log1p log2 log10 sigmoid tanh sin cos tan asin acos atan sinh cosh"
    " erf erfc lgamma floor ceil round trunc frac sign"
)
# the binary operators that also take one tensor for all items
_WITH_TENSOR = ("add", "mul", "div")

RULES: Mapping[str, Rule] = {
    **{
        f"aten._foreach_{name}.{kind}": per_item(rule)
        for name, rule in _BINARY.items()
        for kind in _KINDS
        if kind != "Tensor" or name in _WITH_TENSOR
    },
    **{f"aten._foreach_{n}.default": per_item(pointwise.RULES[f"aten.{n}.default"]) for n in _UNARY.split()},
    **{f"aten._foreach_addcmul.{kind}": with_factor(pointwise.addcmul) for kind in ("Scalar", "ScalarList")},
    **{f"aten._foreach_addcdiv.{kind}": with_factor(pointwise.addcdiv) for kind in ("Scalar", "ScalarList")},
    "aten._foreach_addcmul.Tensor": with_factor_tensor(pointwise.addcmul),
    "aten._foreach_addcdiv.Tensor": with_factor_tensor(pointwise.addcdiv),
    "aten._foreach_pow.ScalarAndTensor": scalar_power,
    "aten._foreach_norm.Scalar": per_item(norm),
    "aten._foreach_max.default": per_item(reduce.RULES["aten.max.default"]),
    "aten._foreach_clone.default": per_item(pointwise.clone),
    "aten._foreach_zero.default": per_item(create.constant_fill(0)),
    "aten._foreach_copy.default": per_item(pointwise.copy_values),
}
