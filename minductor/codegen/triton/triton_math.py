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
_NAME = re.compile(r"\bmd_\w+")


def prelude(text: str) -> str:
    """The functions that a text needs, each a `triton.jit` function."""
    needed: set[str] = set()
    pending = _NAME.findall(text)
    while pending:
        name = pending.pop()
        if name in FUNCTIONS and name not in needed:
            needed.add(name)
            pending += _NAME.findall(FUNCTIONS[name])
    order = sorted(needed, key=lambda name: (name.startswith("md_index"), name))
    return "\n\n".join(f"@triton.jit\n{FUNCTIONS[name]}" for name in order)
