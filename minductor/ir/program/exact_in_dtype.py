"""Whether storing a value of a kernel in a dtype loses nothing, because the dtype can represent the value exactly.

Takes the position of a value, the ops by position, a dtype, and the dtypes of storages. Gives True if it is proved, and
False if it is not known. Refuses nothing.

>>> from minductor.core.dtypes import BF16, F32, by_name
>>> from minductor.ir.program.build import Builder
>>> b = Builder()
>>> one, third = b.constant(1, F32), b.constant(1 / 3, F32)
>>> values = (one, b.op("neg", one), third, b.round_to(third, BF16))
>>> [is_exact_in_dtype(value, b.__getitem__, BF16, by_name) for value in values]
[True, True, False, True]
"""

from __future__ import annotations

from collections.abc import Callable

from minductor.core.dtypes import DType
from minductor.ir.program.nodes import Constant, LiteralValue, Load, Masked, Op, Reduce, Round

# Operators whose result is one of their arguments, apart from the sign, or 0.
SELECTING = ("neg", "abs", "relu", "maximum", "minimum", "where")
MAX_EXACT_INTEGER = 8  # every float dtype represents the integers up to this one
DEPTH = 8  # how many operators the search follows from the value towards its arguments


def is_exact_in_dtype(
    value: int, op_at: Callable[[int], Op], dtype: DType, dtype_of: Callable[[str], DType], depth: int = DEPTH
) -> bool:
    """Whether `dtype` is proved to represent the value at that position exactly."""
    op = op_at(value)
    match op.attrs:
        case Constant(number):
            return _is_small_whole(number)
        case Load(ref):
            return dtype_of(ref.storage) == dtype
        case Round(rounded):
            return rounded == dtype
        case Masked(body, other) if _is_small_whole(other):
            return depth > 0 and is_exact_in_dtype(body.results[0], body.ops.__getitem__, dtype, dtype_of, depth - 1)
        case Reduce(_, how) if how.name in ("max", "min"):
            given = op.args
        case None if op.name == "copysign":
            given = op.args[:1]
        case None if op.name in SELECTING:
            given = op.args[op.name == "where" :]
        case _:
            return False
    return depth > 0 and all(is_exact_in_dtype(arg, op_at, dtype, dtype_of, depth - 1) for arg in given)


def _is_small_whole(number: LiteralValue) -> bool:
    return not isinstance(number, complex) and abs(number) <= MAX_EXACT_INTEGER and number == int(number)
