"""How each pointwise operator is written in C++ and in Triton.

Takes an operator of ir/program/ops.py, the dtype it works on and the texts of its arguments. Gives an expression.
Refuses an operator without a row (ValueError); a test checks that every operator has one. Triton kernels are not
written for operators without a Triton spelling (Unwritable).

In a C++ spelling `{0}` to `{2}` are the arguments, `{t}` is the dtype's name, `{T}` its C++ type, `{f}` the suffix
of gcc's float builtins and `{bits}` the dtype's width.

>>> from minductor.core.dtypes import F32, I64
>>> spell_cpp("add", F32, "x0", "x1"), spell_cpp("exp", F32, "x0")
('x0 + x1', 'md_exp_f32(x0)')
>>> spell_cpp("add", I64, "x0", "x1")
'md_add_i64(x0, x1)'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minductor.core.dtypes import DType

CPP_TYPES: Mapping[str, str] = {
    "f32": "float",
    "f64": "double",
    "bool": "bool",
    **{f"i{n}": f"int{n}_t" for n in (8, 16, 32, 64)},
    **{f"u{n}": f"uint{n}_t" for n in (8, 16, 32, 64)},
}
# what an element of a buffer is declared as; a loop over `bool` elements does not vectorise
CPP_STORAGE: Mapping[str, str] = {**CPP_TYPES, "bool": "uint8_t", "bf16": "uint16_t", "f16": "uint16_t"}


# operators with the same sign in C++, Triton and Python
COMPARISONS: Mapping[str, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFIX: Mapping[str, str] = {**COMPARISONS, "add": "+", "sub": "-", "mul": "*"}
BITWISE: Mapping[str, str] = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
# operators that Python's module `math` has under the same name
PYTHON_MATH = "sqrt exp log log2 sin cos tan asin acos atan sinh cosh tanh"


class Spelling(NamedTuple):
    """One operator. `_int`, `_bool` and `_f64` are for dtypes that need another text. "": Triton has no spelling."""

    triton: str
    cpp: str
    cpp_int: str = ""
    cpp_bool: str = ""
    triton_int: str = ""
    triton_bool: str = ""
    triton_f64: str = ""


def _wrapping(name: str, sign: str, cpp_bool: str = "") -> Spelling:
    """An operator on integers that wraps around as in eager: overflow of signed integers is undefined in C++."""
    text = f"{{0}} {sign} {{1}}"
    return Spelling(text, text, f"md_{name}_{{t}}({{0}}, {{1}})", cpp_bool, triton_bool=cpp_bool)


def _logical(sign: str) -> Spelling:
    text = f"({{0}} != 0) {sign} ({{1}} != 0)"
    plain = f"{{0}} {sign} {{1}}"
    return Spelling(text, text, cpp_bool=plain, triton_bool=plain)


def _functions(names: str, triton: str, args: str = "{0}") -> dict[str, Spelling]:
    """Functions of cpp_math.h. `triton` is their Triton spelling, in which NAME stands for the name."""
    return {name: Spelling(triton.replace("NAME", name), f"md_{name}_{{t}}({args})") for name in names.split()}


def _same(name: str) -> Spelling:
    return Spelling(f"libdevice.{name}({{0}})", f"__builtin_{name}{{f}}({{0}})", "{0}", triton_int="{0}")


SPELLINGS: Mapping[str, Spelling] = {
    # name          Triton, C++, C++ for integers, C++ for booleans
    "neg": Spelling("-{0}", "-({0})", "md_neg_{t}({0})"),
    "abs": Spelling("tl.abs({0})", "__builtin_fabs{f}({0})", "md_abs_{t}({0})", "{0}", triton_bool="{0}"),
    "sign": Spelling(
        "md_sign({0})", "md_sign_{t}({0})", cpp_bool="{0}", triton_bool="{0}", triton_int="md_sign_int({0})"
    ),
    "floor": _same("floor"),
    "ceil": _same("ceil"),
    "trunc": _same("trunc"),
    "round": Spelling("libdevice.nearbyint({0})", "__builtin_rint{f}({0})", "{0}", triton_int="{0}"),
    "square": Spelling("{0} * {0}", "{0} * {0}", "md_mul_{t}({0}, {0})"),
    "relu": Spelling("tl.where({0} < 0, 0, {0})", "md_relu_{t}({0})", "md_maximum_{t}({0}, ({T})0)"),
    "bitwise_not": Spelling("~{0}", "({T})~{0}", cpp_bool="!{0}", triton_bool="~{0}"),
    "logical_not": Spelling("{0} == 0", "{0} == 0", cpp_bool="!{0}", triton_bool="~{0}"),
    "isnan": Spelling("{0} != {0}", "{0} != {0}", "false", "false", "{0} != {0}", "{0} != {0}"),
    "isinf": Spelling(
        'tl.abs({0}) == float("inf")',
        "__builtin_fabs{f}({0}) == MD_INF",
        "false",
        "false",
        "{0} != {0}",
        "{0} != {0}",
    ),
    "signbit": Spelling("libdevice.signbit({0}) != 0", "md_bits({0}) >> ({bits} - 1) != 0", "{0} < 0", "false"),
    # Triton's own `/`, sqrt and exp of float32 are approximations: 6 / 3 may be less than 2, and exp(20) is off by
    # tens of units in the last place
    "sqrt": Spelling("tl.sqrt_rn({0})", "__builtin_sqrt{f}({0})", triton_f64="tl.sqrt({0})"),
    "rsqrt": Spelling("libdevice.rsqrt({0})", "1 / __builtin_sqrt{f}({0})"),
    "reciprocal": Spelling("tl.div_rn(1.0, {0})", "1 / {0}", triton_f64="1 / {0}"),
    **_functions("exp expm1 log10 log1p tanh tan erfc erfinv asin acos atan sinh cosh", "libdevice.NAME({0})"),
    **_functions("asinh acosh atanh lgamma erfcx", "libdevice.NAME({0})"),
    **_functions("exp2 log log2 sin cos erf", "tl.NAME({0})"),
    **_functions("i0 i1", "libdevice.cyl_bessel_NAME({0})"),
    **_functions("ndtri", "libdevice.normcdfinv({0})"),
    **_functions("digamma i0e i1e k0 k0e k1 k1e", ""),
    **_functions("atan2 hypot nextafter", "libdevice.NAME({0}, {1})", "{0}, {1}"),
    **_functions("zeta chebyshev_t chebyshev_u chebyshev_v chebyshev_w", "", "{0}, {1}"),
    **_functions("hermite_h hermite_he laguerre_l legendre_p", "", "{0}, {1}"),
    # the error of `/` is 2 ULP at most, like that of eager's exp and sum; exact rounding takes 20 instructions
    "sigmoid": Spelling(
        "1.0 / (1.0 + libdevice.exp(-{0}))", "md_sigmoid_{t}({0})", triton_f64="1 / (1 + libdevice.exp(-{0}))"
    ),
    # by one or two instructions; off by at most 2**-16, as ops.py says
    "fast_exp": Spelling("md_fast_exp({0})", "md_exp_{t}({0})"),
    "fast_erf": Spelling("md_fast_erf({0})", "md_erf_{t}({0})"),
    "fast_tanh": Spelling("md_fast_tanh({0})", "md_tanh_{t}({0})"),
    "fast_sigmoid": Spelling("md_fast_sigmoid({0})", "md_sigmoid_{t}({0})"),
    "add": _wrapping("add", "+"),
    "sub": _wrapping("sub", "-"),
    "mul": _wrapping("mul", "*", "{0} & {1}"),
    "maximum": Spelling("tl.maximum({0}, {1}, tl.PropagateNan.ALL)", "md_maximum_{t}({0}, {1})", cpp_bool="{0} | {1}"),
    "minimum": Spelling("tl.minimum({0}, {1}, tl.PropagateNan.ALL)", "md_minimum_{t}({0}, {1})", cpp_bool="{0} & {1}"),
    "fmax": Spelling("md_fmax({0}, {1})", "md_fmax_{t}({0}, {1})", "md_maximum_{t}({0}, {1})"),
    "fmin": Spelling("md_fmin({0}, {1})", "md_fmin_{t}({0}, {1})", "md_minimum_{t}({0}, {1})"),
    **{name: Spelling(f"{{0}} {sign} {{1}}", f"({{T}})({{0}} {sign} {{1}})") for name, sign in BITWISE.items()},
    "copysign": Spelling("libdevice.copysign({0}, {1})", "__builtin_copysign{f}({0}, {1})"),
    "lshift": Spelling("md_lshift({0}, {1}, {bits})", "md_shl_{t}({0}, {1})"),
    "rshift": Spelling("md_rshift({0}, {1}, {bits})", "md_shr_{t}({0}, {1})"),
    "div": Spelling(
        "tl.div_rn({0}, {1})",
        "{0} / {1}",
        "md_truncdiv_{t}({0}, {1})",
        triton_int="{0} // {1}",
        triton_f64="{0} / {1}",
    ),
    "fast_div": Spelling("{0} / {1}", "{0} / {1}"),
    "truncdiv": Spelling(
        "libdevice.trunc(tl.div_rn({0}, {1}))",
        "__builtin_trunc{f}({0} / {1})",
        "md_truncdiv_{t}({0}, {1})",
        triton_int="{0} // {1}",
        triton_f64="libdevice.trunc({0} / {1})",
    ),
    "floordiv": Spelling(
        "md_floordiv_float({0}, {1})", "md_floordiv_{t}({0}, {1})", triton_int="md_floordiv_int({0}, {1})"
    ),
    "mod": Spelling("md_mod_float({0}, {1})", "md_remainder_{t}({0}, {1})", triton_int="md_mod_int({0}, {1})"),
    "fmod": Spelling("libdevice.fmod({0}, {1})", "md_fmod_{t}({0}, {1})", triton_int="{0} % {1}"),
    "pow": Spelling("libdevice.pow({0}, {1})", "md_pow_{t}({0}, {1})", triton_int="md_pow_int({0}, {1})"),
    **{name: Spelling(f"{{0}} {sign} {{1}}", f"{{0}} {sign} {{1}}") for name, sign in COMPARISONS.items()},
    "logical_and": _logical("&"),
    "logical_or": _logical("|"),
    "logical_xor": _logical("!="),
    "where": Spelling("tl.where({0}, {1}, {2})", "{0} ? {1} : {2}"),
    "fma": Spelling("tl.fma({0}, {1}, {2})", "md_fma({0}, {1}, {2})"),
    "philox": Spelling("md_philox({0}, {1}, {2})", "md_philox_{t}({0}, {1}, {2})"),
}


def spell_cpp(name: str, dtype: DType, *args: str) -> str:
    """The C++ expression of an operator; `dtype` is that of the last argument."""
    row = _spelling(name)
    text = {"int": row.cpp_int, "uint": row.cpp_int, "bool": row.cpp_bool}.get(dtype.kind) or row.cpp
    float_suffix = "f" if dtype.name == "f32" else ""
    return text.format(*args, t=dtype.name, T=CPP_TYPES[dtype.name], f=float_suffix, bits=dtype.bits)


def spell_triton(name: str, dtype: DType, *args: str) -> str:
    """The Triton expression of an operator, or "" if there is none; `dtype` is that of the last argument."""
    row = _spelling(name)
    float_text = row.triton_f64 if dtype.name == "f64" else ""
    text = {"int": row.triton_int, "uint": row.triton_int, "bool": row.triton_bool}.get(dtype.kind, float_text)
    return (text or row.triton).format(*args, bits=dtype.bits)


def _spelling(name: str) -> Spelling:
    if name not in SPELLINGS:
        raise ValueError(f"no spelling for the operator {name!r}")
    return SPELLINGS[name]


def spell_cpp_cast(value: str, old: DType, new: DType) -> str:
    """A value converted to another dtype, as eager converts it."""
    if new.kind == "bool":
        return f"{value} != 0"
    if old.kind == "float" and new.kind in ("int", "uint"):
        return f"md_{old.name}_to_{new.name}({value})"
    return f"({CPP_TYPES[new.name]}){value}"
