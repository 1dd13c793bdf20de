"""What the toy's kernels can say: the operators of minductor's IR in C99, and the list of those that are missing.

minductor calls torch for whatever `LACKS` names, so a backend may begin with ten operators and grow.
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.core.dtypes import DTYPES, DType
from minductor.ir.program.ops import POINTWISE

# In a spelling {0} to {2} are the arguments, {f} the suffix of float's functions in math.h.
ALWAYS: Mapping[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "relu": "{0} < 0 ? 0 : {0}",
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}",  # NaN wins
    "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_xor": "!{0} != !{1}",
    "logical_not": "!{0}",
    "isnan": "{0} != {0}",
    "isinf": "{0} == INFINITY || {0} == -INFINITY",
    "where": "{0} ? {1} : {2}",
    "cast": "({T}){0}",
    "round_to": "{0}",  # and then to the narrower type and back
}
# Functions of math.h whose names are the operators'.
OF_ONE = "floor ceil trunc sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh erf erfc"
OF_TWO = "pow atan2 fmod hypot copysign"
OF_FLOATS: Mapping[str, str] = {
    "div": "{0} / {1}",
    "reciprocal": "1 / {0}",
    "abs": "fabs{f}({0})",
    "sigmoid": "1 / (1 + exp{f}(-{0}))",
    "rsqrt": "1 / sqrt{f}({0})",
    "round": "rint{f}({0})",
    **{name: f"{name}{{f}}({{0}})" for name in OF_ONE.split()},
    **{name: f"{name}{{f}}({{0}}, {{1}})" for name in OF_TWO.split()},
    "fma": "fma{f}({0}, {1}, {2})",
}
OF_INTEGERS: Mapping[str, str] = {
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
}

# Besides operators: indices that data decide, sums along the way, and writes that may meet.
OTHERS = "check assert scan atomic_add atomic_mul atomic_min atomic_max atomic_set atomic_and atomic_or"
LACKS = frozenset(
    (
        *OTHERS.split(),
        *(POINTWISE.keys() - ALWAYS.keys() - OF_FLOATS.keys() - OF_INTEGERS.keys()),
        *(f"{name} {dtype}" for name in OF_FLOATS for dtype in DTYPES if dtype.kind != "float"),
        *(f"{name} {dtype}" for name in OF_INTEGERS for dtype in DTYPES if dtype.kind == "float"),
    )
)

# What a value is declared as. An element of memory is the same, but for those of 16 bits: the IR computes in float.
TYPES: Mapping[str, str] = {
    "bool": "bool",
    "f32": "float",
    "f64": "double",
    **{f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}_t" for sign in "iu" for bits in (8, 16, 32, 64)},
}
ELEMENTS: Mapping[str, str] = {**TYPES, "f16": "_Float16", "bf16": "uint16_t"}

PRELUDE = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Indices round towards minus infinity, as in Python. */
static inline int64_t toy_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t toy_mod(int64_t a, int64_t b) { return a - toy_div(a, b) * b; }
static inline int64_t toy_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t toy_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* bfloat16 is the upper half of a float. */
static inline float toy_from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline uint16_t toy_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return value != value ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
"""


def spelled(name: str, dtype: DType, result: DType, *args: str) -> str:
    """The expression for an operator on values of a dtype.

    >>> from minductor.core.dtypes import F32
    >>> spelled("sigmoid", F32, F32, "x0")
    '1 / (1 + expf(-x0))'
    """
    text = ALWAYS.get(name) or OF_FLOATS.get(name) or OF_INTEGERS[name]
    return text.format(*args, f="f" if dtype.name == "f32" else "", T=TYPES[result.name])


def widened(dtype: DType, text: str) -> str:
    """An element of memory as a value."""
    return f"toy_from_bf16({text})" if dtype.name == "bf16" else text


def narrowed(dtype: DType, text: str) -> str:
    """A value as an element of memory."""
    match dtype.name:
        case "bf16":
            return f"toy_to_bf16({text})"
        case "f16":
            return f"(_Float16){text}"
        case _:
            return text
