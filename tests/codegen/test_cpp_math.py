"""The C++ mathematics header against float64 torch, and against eager where C++ leaves a choice.

Takes the header, compiled once per target. Gives, for each function, its largest error in units of the last place over
all exponents, dense ranges and special values. Refuses a function that nothing compares: see the last test.
"""

import ctypes
import functools
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from minductor.codegen.cpp import cpp_math
from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import Toolchain
from minductor.runtime.reference.reference import SPELLING
from tests.codegen import fit_cpp_math

FLAGS = (
    *("-std=c++17", "-O3", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=off", "-fopenmp", "-Wall", "-Werror"),
)
INTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
CPP = {"f32": "float", "f64": "double", "bool": "bool"} | {
    n: f"{n.replace('i', 'int').replace('u', 'uint')}_t" for n in INTS
}
NUMPY = {"f32": "f4", "f64": "f8", "bool": "?"} | {n: f"{n[0]}{int(n[1:]) // 8}" for n in INTS}

Array = np.ndarray
Reference = Callable[..., torch.Tensor]


@dataclass(frozen=True, slots=True)
class Case:
    """One function: its types, what it should return, and the units in the last place it may be off."""

    name: str
    takes: tuple[str, ...]
    gives: str
    reference: Reference
    limit: float = 0.0  # 0: the same bits, but for the payload of a NaN


def by_numpy(function: Callable[[Array, Array], Array]) -> Reference:
    """Eager's vector loops give NaN where the quotient overflows; numpy's follow C."""

    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return torch.from_numpy(function(a.numpy(), b.numpy()))

    return reference


def python_remainder(a: Array, b: Array) -> Array:
    """fmod moved to the divisor's sign; a zero keeps the dividend's, as in eager and unlike numpy's."""
    r = np.fmod(a, b)
    return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


def truncated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Eager kills the process on the smallest integer by -1."""
    minus = (b == -1) if b.dtype.is_signed else torch.zeros_like(b, dtype=torch.bool)
    return torch.where(minus, -a, torch.div(a, torch.where(minus, 1, b), rounding_mode="trunc"))


UNARY: dict[str, tuple[Reference, float]] = {
    "exp": (torch.exp, 1.5),
    "exp2": (torch.exp2, 1.5),
    "expm1": (torch.expm1, 2.0),
    "log": (torch.log, 1.5),
    "log2": (torch.log2, 2.0),
    "log10": (torch.log10, 2.0),
    "log1p": (torch.log1p, 2.0),
    "sin": (torch.sin, 1.6),
    "cos": (torch.cos, 1.6),
    "tan": (torch.tan, 2.5),
    "asin": (torch.asin, 2.0),
    "acos": (torch.acos, 2.0),
    "atan": (torch.atan, 2.0),
    "sinh": (torch.sinh, 2.0),
    "cosh": (torch.cosh, 2.0),
    "tanh": (torch.tanh, 2.0),
    "asinh": (torch.asinh, 4.0),
    "acosh": (torch.acosh, 4.0),
    "atanh": (torch.atanh, 4.0),
    "erf": (torch.erf, 2.0),
    "erfc": (torch.erfc, 4.0),
    "erfinv": (torch.erfinv, 4.0),
    "lgamma": (torch.lgamma, 4.0),
    "digamma": (torch.digamma, 1.5),
    "sigmoid": (torch.sigmoid, 2.5),
    "rsqrt": (torch.rsqrt, 1.5),
    "sqrt": (torch.sqrt, 0.51),
    "reciprocal": (torch.reciprocal, 0.51),
    "abs": (torch.abs, 0.0),
    "floor": (torch.floor, 0.0),
    "ceil": (torch.ceil, 0.0),
    "trunc": (torch.trunc, 0.0),
    "round": (torch.round, 0.0),
    "relu": (torch.relu, 0.0),
    "sign": (torch.sign, 0.0),
}
# float64 limits other than 3; torch's own is one of the two
DOUBLE: dict[str, float] = {"digamma": 10.0, "erfinv": 4.0}
BINARY: dict[str, tuple[Reference, float]] = {
    "pow": (torch.pow, 1.0),
    "atan2": (torch.atan2, 2.5),
    "hypot": (torch.hypot, 1.0),
    "fmod": (by_numpy(np.fmod), 0.0),
    "copysign": (torch.copysign, 0.0),
    "maximum": (torch.maximum, 0.0),
    "minimum": (torch.minimum, 0.0),
    "fmax": (torch.fmax, 0.0),
    "fmin": (torch.fmin, 0.0),
}
# Compared with eager in the function's own type: the true value of these is a matter of definition.
EAGER: dict[str, Reference] = {
    "remainder": by_numpy(python_remainder),
    "floordiv": torch.floor_divide,
    "nextafter": torch.nextafter,
}
PREDICATES: dict[str, Reference] = {"isnan": torch.isnan, "isinf": torch.isinf, "signbit": torch.signbit}
INT_BINARY: dict[str, Reference] = {
    **{"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum},
    **{"shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift},
    **{"fmod": torch.fmod, "remainder": torch.remainder, "floordiv": torch.floor_divide},
    "truncdiv": truncated,
    "pow": torch.pow,
}
INT_UNARY: dict[str, Reference] = {"neg": torch.neg, "abs": torch.abs, "sign": torch.sign}
TORCH = {"f32": torch.float32, "f64": torch.float64} | {
    n: getattr(torch, n.replace("i", "int").replace("u", "uint")) for n in INTS
}
# torch has no arithmetic on these
STORAGE_ONLY = ("u16", "u32", "u64")


def converted(dtype: torch.dtype) -> Reference:
    """One element at a time: eager's vector loops differ from its scalar ones for uint32 out of range."""
    return lambda x: torch.stack([v.to(dtype) for v in x])


def through(dtype: torch.dtype) -> Reference:
    return lambda x: x.to(dtype).view(torch.uint16)


def cases() -> Iterable[Case]:
    for t in ("f32", "f64"):
        for name, (reference, limit) in UNARY.items():
            yield Case(f"md_{name}_{t}", (t,), t, reference, limit if t == "f32" else DOUBLE.get(name, limit and 3.0))
        for name, (reference, limit) in BINARY.items():
            yield Case(f"md_{name}_{t}", (t, t), t, reference, limit if t == "f32" else limit and 2.0)
        for name, reference in EAGER.items():
            yield Case(f"md_{name}_{t}", (t, t), t, reference)
        for name, reference in PREDICATES.items():
            yield Case(f"md_{name}_{t}", (t,), "bool", reference)
        for n in INTS:
            yield Case(f"md_{t}_to_{n}", (t,), n, converted(TORCH[n]))
    for n in INTS:
        for name, reference in INT_BINARY.items():
            yield Case(f"md_{name}_{n}", (n, n), n, reference)
        for name, reference in INT_UNARY.items():
            yield Case(f"md_{name}_{n}", (n,), n, reference)
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        yield Case(f"md_f32_to_{name}", ("f32",), "u16", through(dtype))
        yield Case(f"md_{name}_to_f32", ("u16",), "f32", lambda h, dtype=dtype: h.view(dtype).float())
        yield Case(f"md_{name}_round_f32", ("f32",), "f32", lambda x, dtype=dtype: x.to(dtype).float())
    yield Case("md_f32_held_bf16", ("f32",), "u16", lambda x: x.view(torch.uint16)[1::2].contiguous())  # the upper half
    yield Case("md_philox_i64", ("i64", "i64", "i64"), "i64", SPELLING["philox"])


CASES = {case.name: case for case in cases()}


def loop(case: Case) -> str:
    """A kernel that applies one function to arrays."""
    parameters = ", ".join(f"const {CPP[t]}* __restrict a{i}" for i, t in enumerate(case.takes))
    arguments = ", ".join(f"a{i}[i]" for i in range(len(case.takes)))
    return (
        f'extern "C" void k_{case.name}({parameters}, {CPP[case.gives]}* __restrict out, int64_t n) {{\n'
        f"#pragma omp simd\n  for (int64_t i = 0; i < n; ++i) out[i] = {case.name}({arguments});\n}}\n"
    )


def compiled(text: str, folder: Path, name: str, *flags: str) -> Path:
    source, target = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text)
    command = ["g++", *FLAGS, *flags, str(source), "-o", str(target), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def run(library: ctypes.CDLL, case: Case, *arrays: Array) -> Array:
    out = np.empty(arrays[0].shape, NUMPY[case.gives])
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
    getattr(library, f"k_{case.name}")(*pointers, ctypes.c_int64(out.size))
    return out


def shared_object(march: str, names: Iterable[str], folder: Path) -> ctypes.CDLL:
    text = cpp_math.prelude(names) + "".join(loop(CASES[name]) for name in names)
    return ctypes.CDLL(str(compiled(text, folder, "all", f"-march={march}", "-fPIC", "-shared")))


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Every function, for this machine."""
    return shared_object("native", COMPARED, tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The floating functions for a machine without FMA or wide vectors."""
    return shared_object("x86-64", POLYNOMIAL, tmp_path_factory.mktemp("plain"))


SPECIAL = (
    0.0,
    np.inf,
    np.nan,
    1.0,
    0.5,
    2.0,
    1.5,
    2.5,
    3.0,
    1e-45,
    1e-40,
    2**-126,
    3.4028235e38,
    1e-7,
    88.7,
    104.0,
    0.9999999,
)


@functools.cache
def floats(t: str) -> Array:
    """All exponents with both signs, dense ranges, and the values around which branches lie."""
    random = np.random.default_rng(0)
    if t == "f32":
        every = np.arange(0, 2**32, 30011, dtype=np.uint64).astype(np.uint32).view(np.float32)
    else:
        every = random.integers(0, 2**64, 40000, dtype=np.uint64).view(np.float64)
    dense = [random.uniform(-s, s, 40000) for s in (1.0, 4.0, 20.0, 110.0, 1e5)]
    near = [1.0 + random.uniform(-1e-3, 1e-3, 10000)]
    values = np.concatenate([*dense, *near, SPECIAL, np.negative(SPECIAL)]).astype(NUMPY[t])
    found = np.concatenate([every, values])
    found[np.isnan(found)] = np.nan  # quiet: libm's fmax treats signalling ones apart
    return found


@functools.cache
def pairs(t: str) -> tuple[Array, Array]:
    """Random pairs of like size and of any size, and all pairs of special values."""
    random = np.random.default_rng(1)
    every = floats(t)
    a, b = random.choice(every, 60000), random.choice(every, 60000)
    c, d = random.uniform(-20, 20, (2, 60000)).astype(NUMPY[t])
    whole = random.integers(-20, 20, 20000).astype(NUMPY[t])
    special = np.array(list(itertools.product((*SPECIAL, *np.negative(SPECIAL)), repeat=2)), NUMPY[t]).T
    first, second = np.concatenate([a, c, c[:20000], special[0]]), np.concatenate([b, d, whole, special[1]])
    return np.ascontiguousarray(first), np.ascontiguousarray(second)


def edges(n: str) -> Array:
    """Small numbers and those around the limits and the powers of two of an integer type."""
    info = np.iinfo(NUMPY[n])
    near = {
        p + d
        for p in (
            info.min,
            info.max,
            0,
            *(2**k for k in range(1, 64, 2)),
            *(-(2**k) for k in range(1, 64, 2)),
            3,
            7,
            -5,
        )
        for d in (-1, 0, 1)
    }
    return np.array(sorted(v for v in near if info.min <= v <= info.max), NUMPY[n])


def inputs(case: Case) -> tuple[Array, ...]:
    t = case.takes[0]
    if case.name.startswith(("md_f32_to_", "md_f64_to_")) and not case.name.endswith("f16"):
        every = np.array(
            [s * v for s in (1, -1) for k in range(66) for v in (2.0**k - 1, 2.0**k, 2.0**k + 1, 0.7 * 2.0**k)]
        )
        return (np.concatenate([every, SPECIAL, np.negative(SPECIAL)]).astype(NUMPY[t]),)
    if case.name.endswith("16_to_f32"):
        return (np.arange(2**16, dtype=np.uint16),)
    if t in ("f32", "f64"):
        return pairs(t) if len(case.takes) == 2 else (floats(t),)
    values = edges(t)
    if len(case.takes) == 1:
        return (values,)
    if len(case.takes) == 3:
        random = np.random.default_rng(2)
        return tuple(random.choice(values, 20000) for _ in case.takes)
    a, b = (np.ascontiguousarray(v) for v in np.array(list(itertools.product(values, values)), NUMPY[t]).T)
    keep = b != 0 if re.search("div|fmod|remainder", case.name) else np.ones(b.shape, bool)
    if case.name.startswith("md_pow"):
        keep = (b < 70) & (b > -5)  # the rest takes eager long
    return a[keep], b[keep]


def ulps(got: Array, exact: Array) -> Array:
    """Distance to the float64 truth in units of the last place; inf where a special value or a zero's sign differs."""
    with np.errstate(all="ignore"):
        nearest = exact.astype(got.dtype)
        unit = np.spacing(np.minimum(np.abs(nearest), np.finfo(got.dtype).max)).astype(np.float64)
        off = np.abs(got.astype(np.float64) - exact) / unit
        off[np.isnan(off)] = np.inf
        off[(got == nearest) & np.isinf(nearest) | np.isnan(got) & np.isnan(nearest)] = 0.0
        off[(got == 0) & (nearest == 0) & (np.signbit(got) != np.signbit(nearest))] = np.inf
    return off


def excused(case: Case, arrays: Sequence[Array]) -> Array:
    """Places where eager departs from the truth and we with it."""
    x = arrays[0]
    match case.name:
        case "md_sigmoid_f32":
            return x < -87.0  # 1 / (1 + exp(-x)) ends where exp does
        case "md_sigmoid_f64":
            return x < -708.0
        case "md_digamma_f32" | "md_digamma_f64":
            return np.less(x, 0.0)  # next to a root or a pole no relative accuracy is left
        case "md_lgamma_f32" | "md_lgamma_f64":
            return np.less(x, 0.0)
        case _:
            return np.zeros(x.shape, bool)


def expected(case: Case, arrays: Sequence[Array]) -> Array:
    if case.limit:
        return case.reference(*(torch.from_numpy(a).double() for a in arrays)).numpy()
    # Eager's vector and scalar loops take different zeros for equal ones: long arrays show the former.
    return case.reference(*(torch.from_numpy(a) for a in arrays)).numpy()


def check(library: ctypes.CDLL, case: Case) -> None:
    arrays = inputs(case)
    got, want = run(library, case, *arrays), expected(case, arrays)
    if case.limit:
        off = np.where(excused(case, arrays), 0.0, ulps(got, want))
        worst = int(np.argmax(off))
        at = [a[worst] for a in arrays]
        assert off[worst] <= case.limit, f"{off[worst]:.2f} ULP at {at}: {got[worst]!r}, not {want[worst]!r}"
        return
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}.get(got.itemsize) if got.dtype.kind == "f" else None
    same = got == want if bits is None else (got.view(bits) == want.view(bits)) | (np.isnan(got) & np.isnan(want))
    if case.name.startswith("md_f32_to_") and case.name.endswith("f16"):
        same = same | np.isnan(arrays[0]) & (got & 0x7C00 == 0x7C00)
    worst = int(np.argmin(same))
    assert same[worst], f"at {[a[worst] for a in arrays]}: {got[worst]!r}, not {want[worst]!r} ({np.sum(~same)} differ)"


COMPARED = [name for name in CASES if not name.endswith(STORAGE_ONLY) or "_to_" in name]
POLYNOMIAL = [
    name
    for name in COMPARED
    if name.endswith("_f32") or re.match("md_(exp|exp2|expm1|log|log1p|tanh|sigmoid)_f64", name)
]


@pytest.mark.parametrize("name", COMPARED)
def test_function_agrees_with_its_reference(native: ctypes.CDLL, name: str) -> None:
    check(native, CASES[name])


@pytest.mark.parametrize("name", POLYNOMIAL)
def test_function_without_fma_agrees_with_its_reference(plain: ctypes.CDLL, name: str) -> None:
    check(plain, CASES[name])


def test_a_power_that_is_a_double_is_exact(native: ctypes.CDLL) -> None:
    """What is cast to an integer afterwards must not lie below it."""
    whole = [(float(b), float(n)) for b in range(2, 1000) for n in range(1, 53) if b**n < 2**53]
    base, exponent = (np.ascontiguousarray(v) for v in np.array(whole).T)
    exact = np.array([b**n for b, n in whole])
    assert np.array_equal(run(native, CASES["md_pow_f64"], base, exponent), exact)


def test_every_function_of_the_header_is_compared() -> None:
    """Parts of others are compared through them; md_relu_f32 and its like have rows above."""
    named = re.compile(r"md_\w+_(f32|f64|bf16|f16|i\d+|u\d+)$")
    parts = re.compile(r"md_\w*(parts|ldexp|small)_f(32|64)$")
    special = Path(cpp_math.__file__).with_name("cpp_special.h").read_text()  # test_cpp_special.py compares these
    own = [name for name in cpp_math.owners() if not re.search(rf"MD_INLINE \w+ {name}\(", special)]
    own.remove("md_exp_nonpositive_f32")  # see test_exp_of_what_is_at_most_0_has_the_bits_of_exp
    defined = {name for name in own if named.match(name) and not parts.match(name)}
    assert defined <= set(CASES), sorted(defined - set(CASES))
    assert set(CASES) <= defined


@pytest.mark.parametrize("t", ["f32", "f64"])
def test_erf_ends_at_one(native: ctypes.CDLL, t: str) -> None:
    """Gelu multiplies what is left of 1 by x: one unit in the last place is -298 for x = -1e10."""
    far = np.array([6.0, 9.5, 1e3, 1e10, np.inf] * 16, np.float32 if t == "f32" else np.float64)
    for sign in (1, -1):
        assert np.array_equal(run(native, CASES[f"md_erf_{t}"], sign * far), np.full_like(far, sign))


def test_a_changed_coefficient_is_seen(tmp_path: Path) -> None:
    """The comparison itself can fail: one coefficient of exp moved by one part in 50,000."""
    text = cpp_math.prelude(["md_exp_f32"])
    broken = re.sub(r"(MD_C_EXP_F32 [^,]*, 0\.1666)\d+f", r"\g<1>70f", text)
    assert broken != text
    library = compiled(broken + loop(CASES["md_exp_f32"]), tmp_path, "broken", "-march=native", "-fPIC", "-shared")
    with pytest.raises(AssertionError, match="ULP"):
        check(ctypes.CDLL(str(library)), CASES["md_exp_f32"])


@pytest.mark.parametrize("name", ["EXP_F32", "LOG_F32", "ERF_F32", "LOG2_F64P"])
def test_the_header_holds_the_fitted_coefficients(name: str) -> None:
    (fit,) = (fit for fit in fit_cpp_math.FITS if fit.name == name)
    text, error = fit_cpp_math.line(fit)
    assert error <= fit.bound
    assert any(text in header.read_text(encoding="utf-8").splitlines() for header in fit_cpp_math.HEADERS)


def test_every_table_of_the_header_comes_from_the_script() -> None:
    """The fits that are too slow to repeat here: their errors at a few points, with the header's own numbers."""
    lines = [line for header in fit_cpp_math.HEADERS for line in header.read_text(encoding="utf-8").splitlines()]
    tables = {line.split()[1].removeprefix("MD_C_"): line for line in lines if line.startswith("#define MD_C_")}
    assert set(tables) == {fit.name for fit in fit_cpp_math.FITS} | {"TURN"}
    assert tables["TURN"] == fit_cpp_math.turn_line()
    with fit_cpp_math.mp.workdps(40):
        for fit in fit_cpp_math.FITS:
            values = [fit_cpp_math.mpf(text.strip(" f")) for text in tables[fit.name].split(maxsplit=2)[2].split(",")]
            for share in (0.03, 0.5, 0.97):
                t = fit_cpp_math.mpf(fit.lo + share * (fit.hi - fit.lo))
                error = fit.weight(t) * (fit.function(t) - fit_cpp_math.evaluate(values, t))
                assert abs(error) <= 1.1 * fit.bound, (fit.name, t)


SCALAR = re.compile(r"md_(lgamma_f64|digamma|f64_to)")


def scalar_loops(loops: dict[str, str], used: Iterable[str], folder: Path) -> list[str]:
    """The names of the loops that the compiler did not vectorise for AVX-512, whatever this machine is."""
    source = folder / "all.cpp"
    source.write_text(cpp_math.prelude(used) + "".join(loops.values()))
    toolchain = Toolchain(probe(), os.environ)
    flags = [*(flag for flag in toolchain.flags() if flag != "-march=native"), "-march=skylake-avx512"]
    command = [*toolchain.compiler.command, *flags, "-fopt-info-vec", "-c", str(source), "-o", str(folder / "all.o")]
    notes = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    vectorised = {int(n) for n in re.findall(r":(\d+):\d+: optimized: loop vectorized using 64 byte", notes)}
    lines = source.read_text().splitlines()
    where = {name: 1 + next(i for i, line in enumerate(lines) if f"k_{name}(" in line) for name in loops}
    return [name for name, line in where.items() if not vectorised & {line, line + 1, line + 2}]


def test_every_floating_function_vectorises(tmp_path: Path) -> None:
    chosen = [case for case in CASES.values() if re.search("f32|f64", case.name) and not SCALAR.match(case.name)]
    loops = {case.name: loop(case) for case in chosen}
    assert scalar_loops(loops, loops, tmp_path) == []


def test_exp_of_what_is_at_most_0_has_the_bits_of_exp(tmp_path: Path) -> None:
    """Every 509th float that is not above 0, and those at which the result is no longer normal, or not above 0."""
    edges = np.concatenate([np.float32(at).view(np.uint32) + np.arange(-9, 10) for at in (-87.33654, -103.97208, -104)])
    words = np.concatenate([np.arange(2**31, 2**32, 509), edges, np.array([0, 0x7FC00000])]).astype(np.uint32)
    both = [Case(f"md_exp{kind}_f32", ("f32",), "f32", torch.exp) for kind in ("", "_nonpositive")]
    loops = {case.name: loop(case) for case in both}
    assert scalar_loops(loops, loops, tmp_path) == []
    text = cpp_math.prelude(loops) + "".join(loops.values())
    library = ctypes.CDLL(str(compiled(text, tmp_path, "exps", "-march=native", "-fPIC", "-shared")))
    expected, made = (run(library, case, words.view(np.float32)) for case in both)
    is_nan = np.isnan(expected)
    assert ((expected.view(np.uint32) == made.view(np.uint32)) | (is_nan & np.isnan(made))).all() and not is_nan.all()


def test_functions_of_functions_vectorise(tmp_path: Path) -> None:
    """Constants chosen by an inner function must not become branches of the outer one: see md_where."""
    loops: dict[str, str] = {}
    for outer, inner in itertools.product(("maximum", "pow", "fmod", "atan2"), ("log", "cosh", "acosh", "relu")):
        both = Case(f"{outer}_{inner}", ("f32", "f32"), "f32", torch.clone)
        call = f"md_{outer}_f32(md_{inner}_f32(a0[i]), a1[i])"
        loops[both.name] = loop(both).replace(f"{both.name}(a0[i], a1[i])", call)
    limited = Case("maximum_minimum", ("f32", "f32"), "f32", torch.clone)
    call = "md_maximum_f32(md_minimum_f32(a0[i], 2.0f * a0[i]), a1[i])"
    loops[limited.name] = loop(limited).replace(f"{limited.name}(a0[i], a1[i])", call)
    used = [f"md_{part}_f32" for name in loops for part in name.split("_")]
    assert scalar_loops(loops, used, tmp_path) == []


CHOSEN = {
    "given": "{{ out[i] = {f}(a0[i] > 0 ? a0[i] : 1{rest}); }}",
    "given_exp": "{{ out[i] = {f}(md_exp_{t}(a0[i]){rest}); }}",
    "kept": "{{ auto y = {f}(a0[i]{rest}); out[i] = a0[i] > 2 ? a0[i] : y; }}",
    "constant": "{{ auto y = {f}(a0[i]{rest}); out[i] = a0[i] > 2 ? 0 : y; }}",
}


@pytest.mark.parametrize("form", ["given", *(pytest.param(form, marks=pytest.mark.long) for form in [*CHOSEN][1:])])
def test_functions_beside_conditions_vectorise(tmp_path: Path, form: str) -> None:
    """As in softplus, `x > 20 ? x : log1p(exp(x))`: a function that has conditions itself, given or taken by one."""
    loops: dict[str, str] = {}
    for case in CASES.values():
        if {*case.takes, case.gives} in ({"f32"}, {"f64"}) and not SCALAR.match(case.name):
            rest = "".join(f", a{at}[i]" for at in range(1, len(case.takes)))
            plain = f"out[i] = {case.name}(a0[i]{rest});"
            loops[case.name] = loop(case).replace(plain, CHOSEN[form].format(f=case.name, rest=rest, t=case.gives))
            assert plain in loop(case)
    used = [*loops, "md_exp_f32", "md_exp_f64"]
    assert len(loops) > 80 and scalar_loops(loops, used, tmp_path) == []


def test_prelude_holds_only_what_is_used() -> None:
    text = cpp_math.prelude(["md_tanh_f32", "md_exp_f32", "md_exp_f32"])
    assert text == cpp_math.prelude(["md_exp_f32", "md_tanh_f32"])
    assert "md_log" not in text
    assert text.count("md_exp_parts md_exp_parts_f32(") == 1
    assert "#include" not in text
    with pytest.raises(ValueError, match="md_exq_f32"):
        cpp_math.prelude(["md_exq_f32"])


def test_each_section_compiles_with_its_needs_alone(tmp_path: Path) -> None:
    """One unit per section: a need that the mark forgets is an unknown name."""
    units: list[str] = []
    for section in cpp_math.sections():
        body = cpp_math.prelude(section.names).removeprefix(cpp_math.prelude([]))
        units.append(f"namespace n{len(units)} {{\n{body}}}\n")
    defines = re.compile(r"^#define (\w+)", re.MULTILINE)
    cleared = [unit + "".join(f"#undef {name}\n" for name in set(defines.findall(unit))) for unit in units]
    compiled(cpp_math.prelude([]) + "".join(cleared), tmp_path, "sections", "-c")


def test_integers_and_conversions_have_no_undefined_behaviour(tmp_path: Path) -> None:
    """Built with the sanitiser's traps: an overflow, a wild shift or conversion, or SIGFPE ends the program."""
    lines = ["int main() {", "volatile long sink = 0;"]
    for n in INTS:
        t, limit = CPP[n], int(np.iinfo(NUMPY[n]).max)
        values = ", ".join(
            f"({t}){v}u" for v in (0, 1, 2, 63, limit, limit - 1, limit + 1, 2**64 - 1, 2**64 - 2) if v < 2**64
        )
        lines.append(f"const {t} {n}[] = {{{values}}};")
        lines.append(f"for ({t} a : {n}) for ({t} b : {n}) {{")
        lines += [f"sink = sink ^ (long)md_{name}_{n}(a, b);" for name in INT_BINARY]
        lines += [f"sink = sink ^ (long)md_{name}_{n}(a);" for name in INT_UNARY]
        lines.append("}")
    lines.append("const double wild[] = {0.0, 1e9, 3e9, -3e9, 1e19, -1e19, 1.8e19, 1e38, MD_INF, -MD_INF, MD_NAN};")
    lines.append("for (double x : wild) {")
    lines += [f"sink = sink ^ (long)md_{t}_to_{n}(({CPP[t]})x);" for t in ("f32", "f64") for n in INTS]
    lines.append("}\nreturn 0; }")
    flags = ("-march=native", "-O1", "-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error")
    program = compiled(cpp_math.prelude(CASES) + "\n".join(lines), tmp_path, "edges", *flags)
    assert subprocess.run([str(program)], check=False).returncode == 0
