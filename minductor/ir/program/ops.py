"""The tables of pointwise operators and of named reductions that a body may use.

Takes an operator's name. Gives its arity, result dtype and cost. Refuses an unknown name with ValueError. Frontend
rules emit these names, `operator_spelling.py` spells each one in each language, and `reference.py` evaluates each one.

The unit of `cost` is one simple vector operation (an add). Prices (`minductor/cost`) turn it into seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from minductor.core.dtypes import BOOL, DType

ResultKind = Literal["same", "bool"]


@dataclass(frozen=True, slots=True)
class PointwiseOp:
    """A pointwise operator. `result`: "bool", or "same" as the last argument. All value arguments have one dtype."""

    arity: int
    cost: int = 1
    result: ResultKind = "same"


def _row(arity: int, cost: int, names: str, result: ResultKind = "same") -> dict[str, PointwiseOp]:
    return {name: PointwiseOp(arity, cost, result) for name in names.split()}


# Semantics are torch's: maximum/minimum propagate NaN and fmax/fmin ignore it; floordiv and mod round down as Python,
# truncdiv and fmod towards zero; shifts by the width or more give 0 (or -1); float-to-int casts are as eager's.
POINTWISE: Mapping[str, PointwiseOp] = {
    **_row(1, 1, "neg abs sign floor ceil round trunc square relu bitwise_not logical_not"),
    **_row(1, 4, "sqrt reciprocal rsqrt"),
    **_row(1, 10, "exp exp2 expm1 log log2 log10 log1p sigmoid tanh sin cos tan"),
    **_row(1, 4, "fast_exp fast_sigmoid"),  # off by at most 2**-16 of the value
    **_row(1, 5, "fast_erf fast_tanh"),  # off by at most 2**-20
    **_row(1, 15, "erf erfc erfinv asin acos atan sinh cosh asinh acosh atanh lgamma digamma"),
    **_row(1, 40, "i0 i0e i1 i1e k0 k0e k1 k1e erfcx ndtri"),  # special functions
    **_row(1, 1, "isnan isinf signbit", "bool"),
    **_row(1, 1, "cast bitcast round_to"),  # to the op's dtype; round_to stays float32 (see nodes.Round)
    **_row(2, 1, "add sub mul maximum minimum fmax fmin bitwise_and bitwise_or bitwise_xor copysign"),
    **_row(2, 2, "lshift rshift"),
    **_row(2, 2, "fast_div"),  # off by at most two units in the last place
    **_row(2, 4, "div truncdiv floordiv mod fmod"),
    **_row(2, 20, "pow atan2 hypot nextafter"),
    **_row(2, 100, "zeta chebyshev_t chebyshev_u chebyshev_v chebyshev_w"),
    **_row(2, 100, "hermite_h hermite_he laguerre_l legendre_p"),
    **_row(2, 1, "eq ne lt le gt ge logical_and logical_or logical_xor", "bool"),
    **_row(3, 1, "where fma"),
    **_row(3, 50, "philox"),  # seed, stream, counter: 64 random bits (Philox4x32-10, its first two words)
}


def result_dtype(name: str, args: tuple[DType, ...]) -> DType:
    """The result dtype of a pointwise operator for arguments of these dtypes; ValueError for a wrong name or arity."""
    op = POINTWISE.get(name)
    if op is None:
        raise ValueError(f"unknown pointwise operator {name!r}")
    if len(args) != op.arity:
        raise ValueError(f"{name} takes {op.arity} values, not {len(args)}")
    return BOOL if op.result == "bool" else args[-1]


FUNCTION = 10  # the cost of an op that is a function, such as an exponential


def op_cost(name: str) -> int:
    """The cost of one evaluation, in vector operations; an op that is not pointwise counts as one."""
    op = POINTWISE.get(name)
    return op.cost if op is not None else 1


# The number of values that each named reduction carries. `combine(name, dtype)` in build.py gives its Combine.
COMBINES: Mapping[str, int] = {
    "sum": 1,
    "prod": 1,
    "max": 1,  # NaN wins, as in amax
    "min": 1,
    "any": 1,
    "all": 1,
    "xor": 1,
    "argmax": 2,  # value, index: the first of equals wins, NaN beats numbers
    "argmin": 2,
    "last_max": 2,  # value, index: the last of equals wins, NaN beats numbers
    "last_min": 2,
    "logsumexp": 2,  # maximum, sum of exp(x - maximum)
    "welford": 3,  # mean, sum of squared distances, count
    "online_softmax": 3,  # maximum, shift, sum of exp(x - shift): see `softmax_terms` in build.py
    "fast_online_softmax": 3,  # the same with fast_exp
}
