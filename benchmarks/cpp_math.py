"""What the functions of minductor/codegen/cpp/cpp_math.h cost beside torch's eager ones, on one thread and in cache.

Takes this machine. Gives a table in Markdown: nanoseconds an element for each, and whether g++ vectorised the loop.
Refuses to compare anything but the arithmetic: 16,384 elements, which stay in the second-level cache.

    python benchmarks/cpp_math.py > benchmarks/cpp_math.md
"""

import ctypes
import platform
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from minductor.codegen.cpp import cpp_math

COUNT, ROUNDS, REPEATS = 16384, 25, 10
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math"),
    *("-ffp-contract=off", "-fopenmp", "-fPIC", "-shared"),
)
UNARY = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "sigmoid"),
    *("sqrt", "rsqrt", "reciprocal", "floor", "round", "lgamma", "digamma"),
)
BINARY = ("pow", "atan2", "hypot", "fmod", "remainder", "maximum", "fmax", "nextafter")
# torch's function and the number of arguments
FUNCTIONS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    **{name: (getattr(torch, name), 1) for name in UNARY},
    **{name: (getattr(torch, name), 2) for name in BINARY},
    "floordiv": (torch.floor_divide, 2),
}
RANGES = {"asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "erfinv": (-1, 1), "acosh": (1, 20), "log1p": (-0.9, 9)}
POSITIVE = ("log", "log2", "log10", "sqrt", "rsqrt", "pow", "lgamma", "digamma")


def fastest(call: Callable[[], object]) -> float:
    """Nanoseconds an element, the best of several rounds: the machine is shared."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(REPEATS):
            call()
        best = min(best, time.perf_counter() - start)
    return best / REPEATS / COUNT * 1e9


def loop(name: str, t: str, arguments: int) -> str:
    cpp = {"f32": "float", "f64": "double"}[t]
    parameters = ", ".join(f"const {cpp}* __restrict a{i}" for i in range(arguments))
    values = ", ".join(f"a{i}[i]" for i in range(arguments))
    return (
        f'extern "C" void {name}_{t}({parameters}, {cpp}* __restrict out, int64_t n) {{\n'
        f"#pragma omp simd\n  for (int64_t i = 0; i < n; ++i) out[i] = md_{name}_{t}({values});\n}}\n"
    )


def build(t: str, folder: Path) -> tuple[ctypes.CDLL, set[str]]:
    """All loops of one type, and the names of those that were vectorised."""
    text = cpp_math.prelude(f"md_{name}_{t}" for name in FUNCTIONS)
    text += "".join(loop(name, t, arguments) for name, (_, arguments) in FUNCTIONS.items())
    source, target = folder / f"{t}.cpp", folder / f"{t}.so"
    source.write_text(text)
    command = ["g++", *FLAGS, "-fopt-info-vec", str(source), "-o", str(target), "-lm"]
    notes = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    at = {int(n) for n in re.findall(r":(\d+):\d+: optimized: loop vectorized", notes)}
    lines = text.splitlines()
    where = {name: 1 + next(i for i, line in enumerate(lines) if f"void {name}_{t}(" in line) for name in FUNCTIONS}
    return ctypes.CDLL(str(target)), {name for name, line in where.items() if at & {line, line + 1, line + 2}}


def inputs(name: str, dtype: torch.dtype, arguments: int) -> list[torch.Tensor]:
    low, high = RANGES.get(name, (0.1, 4.0) if name in POSITIVE else (-4.0, 4.0))
    generator = torch.Generator().manual_seed(0)
    return [torch.empty(COUNT, dtype=dtype).uniform_(low, high, generator=generator) for _ in range(arguments)]


def measure(name: str, t: str, library: ctypes.CDLL) -> tuple[float, float]:
    function, arguments = FUNCTIONS[name]
    values = inputs(name, {"f32": torch.float32, "f64": torch.float64}[t], arguments)
    out = torch.empty_like(values[0])
    kernel = getattr(library, f"{name}_{t}")
    addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*values, out)]
    ours = fastest(lambda: kernel(*addresses, ctypes.c_int64(COUNT)))
    return ours, fastest(lambda: function(*values, out=out))


def compile_seconds(names: list[str], folder: Path) -> float:
    """CPU seconds from text to shared object for one kernel, the best of three."""
    source = folder / "one.cpp"
    body = "".join(loop(name, "f32", 1) for name in names)
    source.write_text(cpp_math.prelude(f"md_{name}_f32" for name in names) + body)
    best = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["g++", *FLAGS, str(source), "-o", str(folder / "one.so")], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def main() -> None:
    torch.set_num_threads(1)
    print("# The CPU mathematics header beside eager\n")
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"{platform.machine()}, {capability}, torch {torch.__version__}, one thread, {COUNT} elements in cache.")
    print("Nanoseconds an element, best of rounds on a shared machine; eager includes about 0.03 ns of dispatch.\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for t in ("f32", "f64"):
            library, vectorised = build(t, folder)
            print(f"## {t}\n\n| function | ours | eager | ratio | vectorised |\n|---|---|---|---|---|")
            for function in FUNCTIONS:
                ours, eager = measure(function, t, library)
                yes = "yes" if function in vectorised else "no"
                print(f"| {function} | {ours:.3f} | {eager:.3f} | {eager / ours:.2f} | {yes} |")
            print()
        seconds = compile_seconds(["exp", "erf"], folder)
        print(f"A kernel that uses exp and erf compiles and links in {seconds:.2f} CPU seconds.")


if __name__ == "__main__":
    main()
