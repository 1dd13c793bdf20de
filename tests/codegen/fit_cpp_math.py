"""Minimax fits behind minductor/codegen/cpp/cpp_math.h and cpp_double.h.

Takes a table of functions with interval, weight and degree. Gives each polynomial's coefficients, rounded to the
type that evaluates them, and writes them into the headers' `#define MD_C_...` lines (`--write`) or prints the lines
that differ. Refuses a fit whose error exceeds the bound stated in its row.

    python tests/codegen/fit_cpp_math.py [--write]
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpmath import mp, mpf

CODEGEN = Path(__file__).parents[2] / "minductor" / "codegen" / "cpp"
HEADERS = (CODEGEN / "cpp_math.h", CODEGEN / "cpp_double.h")
GRID = 240  # points on which the error is looked at
Real = Callable[[mpf], mpf]


@dataclass(frozen=True, slots=True)
class Fit:
    """`sum(c[i] * t**i)` approximates `function(t)` for t in [lo, hi]; `weight * error` is levelled."""

    name: str
    function: Real
    weight: Real
    lo: float
    hi: float
    degree: int
    bound: float  # largest accepted |weight * error| of the rounded coefficients
    double: bool = False


def taylor(series: Callable[[int], mpf], t: mpf) -> mpf:
    """Sum a power series whose closed form cancels near t = 0."""
    total, power = mpf(0), mpf(1)
    for k in range(60):
        total += series(k) * power
        power *= t
    return total


def exp_tail(r: mpf) -> mpf:
    """(exp(r) - 1 - r) / r**2."""
    return taylor(lambda k: 1 / mp.factorial(k + 2), r)


def log_tail(f: mpf) -> mpf:
    """(log(1 + f) - f + f**2 / 2) / f**3."""
    return mpf(1) / 3 if f == 0 else (mp.log1p(f) - f + f * f / 2) / f**3


def odd_tail(function: Real, limit: mpf) -> Real:
    """t = x**2 -> (function(x) - x) / x**3, with its limit at 0."""

    def tail(t: mpf) -> mpf:
        x = mp.sqrt(t)
        return limit if t == 0 else (function(x) - x) / x**3

    return tail


def odd_weight(function: Real) -> Real:
    """Turn an error of the tail above into a relative error of the function."""

    def weight(t: mpf) -> mpf:
        x = mp.sqrt(t)
        return t if t == 0 else x**3 / function(x)

    return weight


def cos_tail(t: mpf) -> mpf:
    """(cos(x) - 1 + x**2 / 2) / x**4 for t = x**2."""
    return taylor(lambda k: (-1) ** k / mp.factorial(2 * k + 4), t)


def erf_ratio(t: mpf) -> mpf:
    """erf(x) / x - 1 for t = x**2."""
    x = mp.sqrt(t)
    return 2 / mp.sqrt(mp.pi) - 1 if t == 0 else mp.erf(x) / x - 1


def erfc_root(a: mpf) -> mpf:
    """The fourth root of erfc(a)."""
    return mp.erfc(a) ** (mpf(1) / 4)


def log2_ratio(t: mpf) -> mpf:
    """log2((1 + s) / (1 - s)) / s for t = s**2."""
    s = mp.sqrt(t)
    return 2 / mp.log(2) if t == 0 else 2 * mp.atanh(s) / s / mp.log(2)


def atanh_tail(t: mpf) -> mpf:
    """(log((1 + s) / (1 - s)) - 2 * s) / s**3 for t = s**2."""
    return taylor(lambda k: mpf(2) / (2 * k + 3), t)


def atanh_rest(t: mpf) -> mpf:
    """(log((1 + s) / (1 - s)) - 2 * s - 2/3 * s**3) / s**5 for t = s**2."""
    return taylor(lambda k: mpf(2) / (2 * k + 5), t)


def erfc_scaled(s: mpf) -> mpf:
    """erfc(a) * exp(a**2) for s = (a - 3) / (a + 3)."""
    a = 3 * (1 + s) / (1 - s)
    return mp.erfc(a) * mp.exp(a * a)


def erfc_level(s: mpf) -> mpf:
    """erfc(a) * exp(a**2) * (a + 1), which varies little, for s = (a - 1) / (a + 1)."""
    a = (1 + s) / (1 - s)
    return mp.erfc(a) * mp.exp(a * a) * (a + 1)


def erfinv_ratio(w: mpf) -> mpf:
    """erfinv(x) / x for w = -log(1 - x**2)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.sqrt(mp.pi) / 2 if w == 0 else mp.erfinv(x) / x


def turns() -> list[float]:
    """2 / pi modulo 4 / 2**k, nearest zero, as high and low doubles for k = 0, 27, 54, 81."""
    parts: list[float] = []
    with mp.workdps(80):
        for k in (0, 27, 54, 81):
            period = mpf(4) / mpf(2) ** k
            value = mpf(2) / mp.pi
            value -= period * mp.nint(value / period)
            high = float(value)
            parts += [high, float(value - mpf(high))]
    return parts


HALF_LN2 = 0.34657359
WIDE_QUARTER = 0.86  # pi/4, and what the reduction of huge arguments leaves above it

FITS: tuple[Fit, ...] = (
    Fit("EXP_F32", exp_tail, lambda r: r**2 / mp.exp(r), -HALF_LN2, HALF_LN2, 4, 4e-9),
    Fit(
        "EXP2_F32",
        lambda r: (mp.mpf(2) ** r - 1) / r if r else mp.log(2),
        lambda r: r / mpf(2) ** r,
        -0.5,
        0.5,
        5,
        8e-9,
    ),
    Fit("LOG_F32", log_tail, lambda f: f**3 / mp.log1p(f) if f else f, -1 / 3, 1 / 3, 8, 2e-8),
    Fit("SIN_F32", odd_tail(mp.sin, mpf(-1) / 6), odd_weight(mp.sin), 0, WIDE_QUARTER**2, 3, 2e-9),
    Fit("COS_F32", cos_tail, lambda t: t**2 / mp.cos(mp.sqrt(t)), 0, WIDE_QUARTER**2, 2, 1e-8),
    Fit("TANH_F32", odd_tail(mp.tanh, mpf(-1) / 3), odd_weight(mp.tanh), 0, 0.625**2, 4, 1e-8),
    Fit("ERF_F32", erf_ratio, lambda t: 1 / (1 + erf_ratio(t)), 0, 1, 5, 5e-8),
    Fit("ERFROOT_F32", erfc_root, lambda a: 4 * erfc_root(a) ** 3 / mp.erf(a), 1, 4, 7, 3e-8),
    Fit("SINH_F32", odd_tail(mp.sinh, mpf(1) / 6), odd_weight(mp.sinh), 0, 1, 3, 4e-9),
    Fit("TAN_F32", odd_tail(mp.tan, mpf(1) / 3), odd_weight(mp.tan), 0, WIDE_QUARTER**2, 6, 2e-8),
    Fit("ASIN_F32", odd_tail(mp.asin, mpf(1) / 6), odd_weight(mp.asin), 0, 0.25, 4, 1e-8),
    Fit("ATAN_F32", odd_tail(mp.atan, mpf(-1) / 3), odd_weight(mp.atan), 0, 1, 8, 2e-8),
    Fit("ERFC_F32", erfc_scaled, lambda s: 1 / erfc_scaled(s), -1, 0.56, 11, 4e-8),
    Fit("ERFINV_F32", lambda t: erfinv_ratio(t + 2.5), lambda t: 1 / erfinv_ratio(t + 2.5), -2.5, 2.5, 10, 5e-8),
    Fit(
        "ERFINVT_F32",
        lambda t: erfinv_ratio((t + 3) ** 2),
        lambda t: 1 / erfinv_ratio((t + 3) ** 2),
        -0.77,
        1.1,
        9,
        4e-8,
    ),
    Fit(
        "ERFINV_F64",
        lambda t: erfinv_ratio(t + 2.5),
        lambda t: 1 / erfinv_ratio(t + 2.5),
        -2.5,
        2.5,
        8,
        1e-6,
        double=True,
    ),
    Fit(
        "ERFINVT_F64",
        lambda t: erfinv_ratio((t + 4) ** 2),
        lambda t: 1 / erfinv_ratio((t + 4) ** 2),
        -1.77,
        2.03,
        12,
        2e-7,
        double=True,
    ),
    Fit("EXP_F64", exp_tail, lambda r: r**2 / mp.exp(r), -HALF_LN2, HALF_LN2, 9, 3e-17, double=True),
    Fit("LOG_F64", atanh_tail, lambda t: t / 2, 0, 0.04, 7, 2e-17, double=True),
    Fit("SIN_F64", odd_tail(mp.sin, mpf(-1) / 6), odd_weight(mp.sin), 0, 0.79**2, 5, 1e-17, double=True),
    Fit("COS_F64", cos_tail, lambda t: t**2 / mp.cos(mp.sqrt(t)), 0, 0.79**2, 5, 1e-18, double=True),
    Fit("SINH_F64", odd_tail(mp.sinh, mpf(1) / 6), odd_weight(mp.sinh), 0, 1, 6, 1e-17, double=True),
    Fit("ASIN_F64", odd_tail(mp.asin, mpf(1) / 6), odd_weight(mp.asin), 0, 0.25, 11, 3e-17, double=True),
    Fit("ATAN_F64", odd_tail(mp.atan, mpf(-1) / 3), odd_weight(mp.atan), 0, 0.17158, 10, 3e-18, double=True),
    Fit("ERF_F64", erf_ratio, lambda t: 1 / (1 + erf_ratio(t)), 0, 0.9**2, 11, 2e-17, double=True),
    Fit("ERFC_F64", erfc_level, lambda s: 1 / erfc_level(s), -0.12, 27 / 29, 24, 3e-17, double=True),
    Fit("LOGPAIR_F64", atanh_rest, lambda t: t**2 / 2, 0, 0.04, 6, 1e-18, double=True),
    Fit("TANH_F64", odd_tail(mp.tanh, mpf(-1) / 3), odd_weight(mp.tanh), 0, 0.625**2, 11, 2e-17, double=True),
    Fit("LOG2_F64P", log2_ratio, lambda t: 1 / log2_ratio(t), 0, 0.04, 4, 3e-11, double=True),
    Fit("EXP2_F64P", lambda r: mpf(2) ** r, lambda r: mpf(2) ** -r, -0.5, 0.5, 6, 3e-9, double=True),
)


def rounded(value: mpf, *, double: bool) -> mpf:
    return mpf(float(value)) if double else mpf(float(np.float32(float(value))))


def evaluate(coefficients: Sequence[mpf], t: mpf) -> mpf:
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * t + c
    return total


def exchange(points: Sequence[mpf], target: Sequence[mpf], weight: Sequence[mpf], powers: Sequence[int]) -> list[mpf]:
    """Remez exchange on a grid: coefficients of t**power that level the weighted error."""
    n = len(powers) + 1
    chosen = [round(i * (len(points) - 1) / (n - 1)) for i in range(n)]
    best, smallest = [mpf(0)] * (n - 1), mp.inf
    for _ in range(20):
        system, right = mp.matrix(n, n), mp.matrix(n, 1)
        for row, index in enumerate(chosen):
            for column, power in enumerate(powers):
                system[row, column] = weight[index] * points[index] ** power
            system[row, n - 1] = (-1) ** row
            right[row] = weight[index] * target[index]
        solution = mp.lu_solve(system, right)
        error = [
            w * (f - sum(solution[j] * t**p for j, p in enumerate(powers)))
            for t, f, w in zip(points, target, weight, strict=True)
        ]
        worst = max(abs(e) for e in error)
        if worst < smallest:
            best, smallest = [solution[j] for j in range(n - 1)], worst
        fresh = extrema(error, n)
        if fresh == chosen or len(fresh) < n:
            break
        chosen = fresh
    return best


def extrema(error: Sequence[mpf], count: int) -> list[int]:
    """The grid positions of `count` alternating extrema, dropping the smallest from the ends."""
    peaks: list[int] = []
    for i, e in enumerate(error):
        if peaks and (error[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    return peaks


def solve(fit: Fit) -> tuple[list[float], float]:
    """Coefficients of one row and the largest weighted error they leave.

    The first three are rounded one at a time, the rest refitted around them: a rounded low coefficient otherwise
    costs more than the whole of the fit's own error.
    """
    with mp.workdps(40):
        lo, hi = mpf(fit.lo), mpf(fit.hi)
        points = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / (GRID - 1)) for i in range(GRID)]
        weight = [fit.weight(t) for t in points]
        target = [fit.function(t) for t in points]
        fixed: list[mpf] = []
        for _ in range(3):
            rest = [f - evaluate(fixed, t) for t, f in zip(points, target, strict=True)]
            found = exchange(points, rest, weight, range(len(fixed), fit.degree + 1))
            fixed.append(rounded(found[0], double=fit.double))
        rest = [f - evaluate(fixed, t) for t, f in zip(points, target, strict=True)]
        tail = exchange(points, rest, weight, range(len(fixed), fit.degree + 1)) if fit.degree >= len(fixed) else []
        fixed += [rounded(c, double=fit.double) for c in tail]
        worst = max(abs(w * (f - evaluate(fixed, t))) for t, f, w in zip(points, target, weight, strict=True))
        return [float(c) for c in fixed], float(worst)


def literal(value: float, *, double: bool) -> str:
    """The shortest decimal that reads back as the same number."""
    return repr(value) if double else f"{np.float32(value)!s}f"


def line(fit: Fit) -> tuple[str, float]:
    """The header's line for one row, and the error its coefficients leave."""
    coefficients, worst = solve(fit)
    return define(fit.name, [literal(c, double=fit.double) for c in coefficients]), worst


def define(name: str, literals: Sequence[str]) -> str:
    return f"#define MD_C_{name} " + ", ".join(literals)


def turn_line() -> str:
    return define("TURN", [literal(c, double=True) for c in turns()])


def refreshed(header: Path, by_name: Mapping[str, str], *, write: bool) -> list[str]:
    """The lines of one header that differ from the fits."""
    text = header.read_text(encoding="utf-8").splitlines()
    fresh = [by_name.get(old.split()[1], old) if old.startswith("#define MD_C_") else old for old in text]
    if write:
        header.write_text("\n".join(fresh) + "\n", encoding="utf-8")
    return [new for old, new in zip(text, fresh, strict=True) if old != new]


def main(arguments: Sequence[str]) -> int:
    found = [turn_line()]
    for fit in FITS:
        fresh, worst = line(fit)
        print(f"{fit.name:14s} degree {fit.degree} error {worst:.2e}")
        if worst > fit.bound:
            print(f"refused: more than {fit.bound:.2e}")
            return 1
        found.append(fresh)
    by_name = {fresh.split()[1]: fresh for fresh in found}
    stale = [new for header in HEADERS for new in refreshed(header, by_name, write="--write" in arguments)]
    print("\n".join(stale) or "the headers hold these coefficients")
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
