"""The tables of minductor/codegen/cpp/cpp_special.h: Chebyshev interpolation, or a power series as it stands.

Takes a function on [-1, 1] and a degree, or the terms of a series. Gives coefficients of powers, as doubles, and
writes them into the header's `#define MD_C_...` lines (`--write`) or prints the lines that differ.

    python tests/codegen/fit_cpp_special.py [--write]
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mpmath import mp, mpf

HEADER = Path(__file__).parents[2] / "minductor" / "codegen" / "cpp" / "cpp_special.h"
DIGITS = 60
Real = Callable[[mpf], mpf]


def interpolated(function: Real, degree: int) -> list[mpf]:
    """The polynomial through the Chebyshev nodes, in powers of t."""
    count = degree + 1
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    values = [function(t) for t in nodes]
    powers = [[mpf(1)], [mpf(0), mpf(1)]]
    for _ in range(2, count):
        twice = [mpf(0), *(2 * c for c in powers[-1])]
        powers.append([a - b for a, b in zip(twice, [*powers[-2], mpf(0), mpf(0)], strict=True)])
    total = [mpf(0)] * count
    for k in range(count):
        scale = mpf(1 if k == 0 else 2) / count
        weight = scale * sum(v * mp.cos(k * mp.acos(t)) for v, t in zip(values, nodes, strict=True))
        for n, c in enumerate(powers[k]):
            total[n] += weight * c
    return total


def beyond(start: int, function: Real) -> Real:
    """A function on [start, inf) by t = 2 * start / x - 1; at infinity its limit, taken very far out."""
    return lambda t: function(2 * start / (1 + t))


def bessel_i(order: int) -> Real:
    return lambda x: mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)


def bessel_k(order: int) -> Real:
    return lambda x: mp.sqrt(x) * mp.exp(x) * mp.besselk(order, x)


def erfcx_part(t: mpf) -> mpf:
    """(1 + 2x) * exp(x**2) * erfc(x) for t = (x - 3.75) / (x + 3.75), after Shepherd and Laframboise (1981)."""
    x = mpf("3.75") * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def harmonic(k: int) -> mpf:
    return mp.harmonic(k) - mp.euler


def tables() -> Mapping[str, Sequence[mpf]]:
    """Name -> coefficients; q is x**2 / 4 in the series."""
    with mp.workdps(DIGITS):
        squares = [1 / mp.factorial(k) ** 2 for k in range(30)]
        steps = [1 / (mp.factorial(k) * mp.factorial(k + 1)) for k in range(30)]
        return {
            "I0": squares,
            "I1": steps,
            "K0": [harmonic(k) * c for k, c in enumerate(squares[:12])],
            "K1": [(harmonic(k) + harmonic(k + 1)) * c for k, c in enumerate(steps[:12])],
            "I0_FAR": interpolated(beyond(8, bessel_i(0)), 26),
            "I1_FAR": interpolated(beyond(8, bessel_i(1)), 26),
            "K0_FAR": interpolated(beyond(1, bessel_k(0)), 38),
            "K1_FAR": interpolated(beyond(1, bessel_k(1)), 38),
            "ERFCX": interpolated(erfcx_part, 34),
        }


def lines() -> dict[str, str]:
    return {f"MD_C_{n}": f"#define MD_C_{n} " + ", ".join(repr(float(c)) for c in v) for n, v in tables().items()}


def main(arguments: Sequence[str]) -> int:
    fresh = lines()
    old = HEADER.read_text(encoding="utf-8").splitlines()
    new = [fresh.get(([*line.split(), "", ""])[1], line) if line.startswith("#define MD_C_") else line for line in old]
    stale = [b for a, b in zip(old, new, strict=True) if a != b]
    print("\n".join(stale) or "the header holds these coefficients")
    if "--write" in arguments:
        HEADER.write_text("\n".join(new) + "\n", encoding="utf-8")
        return 0
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
