"""Functions that Triton lacks: their texts, and which of them a module needs.

Takes the text of kernels. Gives the functions whose names the text contains, each after the functions that it calls.
Refuses nothing.

Triton's integer division rounds toward zero, eager's rounds down. `mod` has the sign of the divisor, `fmod` the sign of
the dividend.

>>> print(prelude("x = md_mod_int(a, b)").splitlines()[1])
def md_mod_int(a, b):
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FUNCTIONS: Mapping[str, str] = {
    "md_floordiv_int": """def md_floordiv_int(a, b):
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
""",
    "md_mod_int": """def md_mod_int(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "md_mod_float": """def md_mod_float(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "md_floordiv_float": """def md_floordiv_float(a, b):
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    lower = libdevice.floor(quotient)
    near = tl.where(quotient - lower > 0.5, lower + 1, lower)
    whole = tl.where(quotient != 0, near, libdevice.copysign(quotient, a / b))
    return tl.where(b == 0, a / b, whole)
""",
    "md_lshift": """def md_lshift(a, b, bits: tl.constexpr):
    return tl.where((b < 0) | (b >= bits), 0, a << tl.where((b < 0) | (b >= bits), 0, b)).to(a.dtype)
""",
    "md_rshift": """def md_rshift(a, b, bits: tl.constexpr):
    return a >> tl.where((b < 0) | (b >= bits), bits - 1, b)
""",
    "md_sign": """def md_sign(a):
    return tl.where(a > 0, 1, tl.where(a < 0, -1, a)).to(a.dtype)
""",
    "md_sign_int": """def md_sign_int(a):
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)
""",
    "md_fmax": """def md_fmax(a, b):
    return tl.where(a != a, b, tl.where(b != b, a, tl.maximum(a, b)))
""",
    "md_fmin": """def md_fmin(a, b):
    return tl.where(a != a, b, tl.where(b != b, a, tl.minimum(a, b)))
""",
    "md_pow_int": """def md_pow_int(a, b):
    result = tl.where(b < 0, tl.where(a == 1, 1, tl.where(a == -1, tl.where(b % 2 == 0, 1, -1), 0)), 1).to(a.dtype)
    power = a
    left = tl.where(b < 0, 0, b)
    for _ in tl.static_range(6):
        result = tl.where(left % 2 == 1, result * power, result)
        power = power * power
        left = left // 2
    return result
""",
    "md_to_f8e5m2": """def md_to_f8e5m2(a):
    # the hardware ends at the largest number, eager goes on to infinity where that is as near
    bits = a.to(tl.float8e5).to(tl.uint8, bitcast=True)
    return tl.where(tl.abs(a) >= 61440.0, (bits & 0x80) | 0x7C, bits).to(tl.float8e5, bitcast=True)
""",
    # the forms that keep numbers below 2**-126 take four instructions and eight; these make them 0
    "md_fast_exp": """def md_fast_exp(a):
    power = a * 1.4426950408889634
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [power], tl.float32, is_pure=True, pack=1)
""",
    "md_fast_reciprocal": """def md_fast_reciprocal(a):
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [a], tl.float32, is_pure=True, pack=1)
""",
    "md_fast_sigmoid": """def md_fast_sigmoid(a):
    return md_fast_reciprocal(1.0 + md_fast_exp(-a))
""",
    "md_fast_tanh": """def md_fast_tanh(a):
    return 2.0 * md_fast_sigmoid(2.0 * a) - 1.0
""",
    "md_fast_erf": """def md_fast_erf(a):
    # Abramowitz and Stegun, "Handbook of Mathematical Functions", 1964: 7.1.26
    size = tl.abs(a)
    part = md_fast_reciprocal(1.0 + 0.3275911 * size)
    rest = tl.fma(part, 1.061405429, -1.453152027)
    rest = tl.fma(part, rest, 1.421413741)
    rest = tl.fma(part, rest, -0.284496736)
    rest = tl.fma(part, rest, 0.254829592) * part
    return libdevice.copysign(1.0 - rest * md_fast_exp(-size * size), a)
""",
    "md_index_div": """def md_index_div(a, b):
    return md_floordiv_int(a, b)
""",
    "md_index_mod": """def md_index_mod(a, b):
    return md_mod_int(a, b)
""",
    "md_philox": """def md_philox(seed, stream, counter):
    # Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the first two words
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    c0 = counter.to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    c2 = stream.to(tl.uint32)
    c3 = c2 * 0
    for _ in tl.static_range(10):
        a = c0
        b = c2
        c0 = tl.umulhi(b, 0xCD9E8D57) ^ c1 ^ k0
        c1 = b * 0xCD9E8D57
        c2 = tl.umulhi(a, 0xD2511F53) ^ c3 ^ k1
        c3 = a * 0xD2511F53
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0.to(tl.int64) | (c1.to(tl.int64) << 32)
""",
}
# The same for GPUs that have other instructions.
OF_AMD: Mapping[str, str] = {
    "md_fast_exp": """def md_fast_exp(a):
    return tl.exp(a)
""",
    "md_fast_reciprocal": """def md_fast_reciprocal(a):
    return 1.0 / a
""",
}
_NAME = re.compile(r"\bmd_\w+")


def prelude(text: str, *, is_amd: bool = False) -> str:
    """The functions that a text needs, each a `triton.jit` function."""
    known = {**FUNCTIONS, **OF_AMD} if is_amd else FUNCTIONS
    order: list[str] = []

    def take(text: str) -> None:
        for name in sorted(known.keys() & _NAME.findall(text)):
            if name not in order and f"def {name}(" not in text:
                take(known[name])
                order.append(name)

    take(text)
    return "\n\n".join(f"@triton.jit\n{known[name]}" for name in order)
