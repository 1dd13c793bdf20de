"""The special functions of the C++ header against mpmath, and its tables against the script that makes them.

Takes points all over each function's range. Gives the largest error in units of the last place of a double.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

from minductor.codegen.cpp import cpp_math
from tests.codegen import fit_cpp_special

FLAGS = "-std=c++17 -O3 -march=native -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp -shared -fPIC"
ULPS = 3.0
Array = np.ndarray
NEAR = np.concatenate([np.linspace(-9, 9, 24), [-7.99, 8.01, 1e-8, 25.0, -25.5, 300.0]])
POSITIVE = np.concatenate([np.linspace(0.01, 3, 16), [1e-9, 0.999, 1.001, 8.0, 25.0, 300.0]])
SHARES = np.concatenate([np.linspace(0.001, 0.999, 22), 10.0 ** -np.arange(4.0, 300.0, 37.0)])
DEGREES = np.array([0.0, 1.0, 2.0, 3.7, 5.0, 9.0])


def scaled(function: Callable[..., mpf], order: int, sign: int) -> Callable[[mpf], mpf]:
    return lambda x: function(order, x) * mp.exp(sign * (abs(x) if sign < 0 else x))


def ndtri(p: mpf) -> mpf:
    start = -mp.sqrt(-2 * mp.log(p))
    return (
        mp.findroot(lambda y: mp.log(mp.ncdf(y)) - mp.log(p), start) if p < 0.4 else mp.sqrt(2) * mp.erfinv(2 * p - 1)
    )


UNARY: dict[str, tuple[Callable[[mpf], mpf], Array]] = {
    "i0": (lambda x: mp.besseli(0, x), NEAR),
    "i1": (lambda x: mp.besseli(1, x), NEAR),
    "i0e": (scaled(mp.besseli, 0, -1), NEAR),
    "i1e": (scaled(mp.besseli, 1, -1), NEAR),
    "k0": (lambda x: mp.besselk(0, x), POSITIVE),
    "k1": (lambda x: mp.besselk(1, x), POSITIVE),
    "k0e": (scaled(mp.besselk, 0, 1), POSITIVE),
    "k1e": (scaled(mp.besselk, 1, 1), POSITIVE),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), NEAR),
    "ndtri": (ndtri, SHARES),
}
BINARY: dict[str, tuple[Callable[[mpf, mpf], mpf], Array, Array]] = {
    "zeta": (mp.zeta, 1.0 + POSITIVE[3:18], 1.0 + POSITIVE[3:18] ** 3),
    "chebyshev_t": (lambda x, n: mp.chebyt(int(n), x), np.linspace(-2.1, 2.3, 6), DEGREES),
    "chebyshev_u": (lambda x, n: mp.chebyu(int(n), x), np.linspace(-2.1, 2.3, 6), DEGREES),
    "hermite_h": (lambda x, n: mp.hermite(int(n), x), np.linspace(-2.1, 2.3, 6), DEGREES),
    "laguerre_l": (lambda x, n: mp.laguerre(int(n), 0, x), np.linspace(-2.1, 2.3, 6), DEGREES),
    "legendre_p": (lambda x, n: mp.legendre(int(n), x), np.linspace(-2.1, 2.3, 6), DEGREES),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("special")
    text = cpp_math.prelude([f"md_{name}_f64" for name in (*UNARY, *BINARY)])
    for names, parameters, values in (
        (UNARY, "const double* a, ", "a[i]"),
        (BINARY, "const double* a, const double* b, ", "a[i], b[i]"),
    ):
        for name in names:
            text += f'extern "C" void k_{name}({parameters}double* out, int64_t n) {{\n'
            text += f"#pragma omp simd\n  for (int64_t i = 0; i < n; ++i) out[i] = md_{name}_f64({values});\n}}\n"
    (folder / "all.cpp").write_text(text)
    subprocess.run(["g++", *FLAGS.split(), str(folder / "all.cpp"), "-o", str(folder / "all.so"), "-lm"], check=True)
    return ctypes.CDLL(str(folder / "all.so"))


def run(library: ctypes.CDLL, name: str, *arrays: Array) -> Array:
    out = np.empty_like(arrays[0])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(library, f"k_{name}")(*pointers, ctypes.c_int64(out.size))
    return out


def worst(got: Array, exact: list[mpf]) -> float:
    return max(
        float(abs(mpf(float(a)) - b) / (abs(b) * mpf(2) ** -52)) if b else abs(float(a))
        for a, b in zip(got, exact, strict=True)
    )


@pytest.mark.parametrize("name", UNARY)
def test_one_argument(library: ctypes.CDLL, name: str) -> None:
    function, points = UNARY[name]
    with mp.workdps(60):
        assert worst(run(library, name, points), [function(mpf(float(x))) for x in points]) <= ULPS


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(library: ctypes.CDLL, name: str) -> None:
    function, first, second = BINARY[name]
    limit = ULPS if name == "zeta" else 16.0  # a recurrence adds up as many errors as it has steps
    with mp.workdps(60):
        exact = [function(mpf(float(a)), mpf(float(b))) for a, b in zip(first, second, strict=True)]
        got = run(library, name, first, second)
        if name != "zeta":  # near their roots the error is of the size of their terms
            got, exact = got + 10.0, [value + 10 for value in exact]
        assert worst(got, exact) <= limit


def test_every_function_of_the_header_is_compared() -> None:
    """The float ones call the double ones; polynomials that differ in their first term count once."""
    text = fit_cpp_special.HEADER.read_text(encoding="utf-8")
    defined = set(re.findall(r"^MD_INLINE float md_(\w+)_f32\(", text, re.MULTILINE))
    assert defined == {*UNARY, *BINARY, "chebyshev_v", "chebyshev_w", "hermite_he"}


def test_the_tables_come_from_the_script() -> None:
    text = fit_cpp_special.HEADER.read_text(encoding="utf-8").splitlines()
    tables = {line.split()[1]: line for line in text if line.startswith("#define MD_C_")}
    assert tables == fit_cpp_special.lines()
