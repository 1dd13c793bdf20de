"""Whether a value of a kernel is one that a dtype of memory holds, so that nothing is lost when it is stored.

Takes a value's position, the ops by position, a dtype, and the dtypes of storages. Gives a truth; False where nothing
is known. Refuses nothing.

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

# what they give is what they were given, but for its sign, or 0
CHOOSING = ("neg", "abs", "relu", "maximum", "minimum", "where")
WHOLE = 8  # each dtype has the whole numbers up to it
DEPTH = 8  # operators that are looked through


def is_exact_in_dtype(
    value: int, op_at: Callable[[int], Op], dtype: DType, dtype_of: Callable[[str], DType], depth: int = DEPTH
) -> bool:
    """See above."""
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
        case None if op.name in CHOOSING:
            given = op.args[op.name == "where" :]
        case _:
            return False
    return depth > 0 and all(is_exact_in_dtype(arg, op_at, dtype, dtype_of, depth - 1) for arg in given)


def _is_small_whole(number: LiteralValue) -> bool:
    return not isinstance(number, complex) and abs(number) <= WHOLE and number == int(number)
