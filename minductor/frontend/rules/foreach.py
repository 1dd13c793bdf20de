"""Operators on lists of tensors, which optimisers use: the element's rule, once for each.

Takes lists, and numbers or lists of numbers. Gives a tuple with a kernel for each; refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.frontend.lower import Lowering
from minductor.frontend.rules import pointwise, reduce
from minductor.frontend.values import Value

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
_SINGLE = "abs neg sqrt rsqrt reciprocal exp log sigmoid tanh sin cos erf floor ceil round trunc sign"
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
        "aten._foreach_norm.Scalar": each(reduce.vector_norm),
        "aten._foreach_copy.default": each(pointwise.copied),
    }
)
