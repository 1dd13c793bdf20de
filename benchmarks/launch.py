"""What a call from Python to a kernel costs, by each way there is, and what each compiler flag costs and gains.

Takes nothing; `--inductor` also measures TorchInductor's own launch (15 CPU seconds of set-up). Prints the tables of
launch.md. Times are CPU times and the least of several rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import tempfile
import time
import timeit
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit
from minductor.runtime.launch.cuda import Driver, Launch, bind, steps
from minductor.runtime.launch.gpu import build_launcher
from minductor.runtime.launch.load import ENTRY_PRELUDE, entry, load_library, threads

CALLED = f"""
{EXPORT} long kernel(const float* a, const float* b, float* out, long n, long threads) {{ return 0; }}
{EXPORT} long one(float* out, long threads) {{ return 0; }}
{EXPORT} long twelve({", ".join(f"float* p{i}" for i in range(12))}, long n, long threads) {{ return 0; }}
extern "C" __attribute__((visibility("default")))
long objects(PyObject* a, PyObject* b, PyObject* out, long n, long threads) {{
  return kernel((float*)md_tensor_data(a), (float*)md_tensor_data(b), (float*)md_tensor_data(out), n, threads);
}}
{entry("kernel")}{entry("one")}{entry("twelve")}
"""

# silu, then a layer norm without weights: a row kernel of the usual kind, with a row buffer and lanes.
ROWS = (
    EXPORT
    + """int rows(const float* __restrict a, float* __restrict out, long n, long threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
  for (long r = 0; r < n; r++) {
    const float* x = a + r * 1024;
    float row[1024], sums[64] = {0}, squares[64] = {0};
    for (int j = 0; j < 1024; j += 64) {
#pragma omp simd
      for (int l = 0; l < 64; l++) {
        float v = x[j + l];
        float k = __builtin_rintf(v * -1.44269504f);
        float t = __builtin_fmaf(k, -0.693147182f, -v);
        float p = 1.388888889e-3f;
        p = __builtin_fmaf(p, t, 8.333333333e-3f);
        p = __builtin_fmaf(p, t, 4.166666667e-2f);
        p = __builtin_fmaf(p, t, 1.666666667e-1f);
        p = __builtin_fmaf(p, t, 0.5f);
        p = __builtin_fmaf(p * t, t, t + 1.0f);
        float e = p * __builtin_bit_cast(float, ((int)k + 127) << 23);
        float y = v / (1.0f + e);
        row[j + l] = y;
        sums[l] += y;
      }
    }
    float sum = 0, square = 0;
    for (int l = 0; l < 64; l++) sum += sums[l];
    float mean = sum / 1024;
    for (int j = 0; j < 1024; j += 64) {
#pragma omp simd
      for (int l = 0; l < 64; l++) {
        float d = row[j + l] - mean;
        squares[l] += d * d;
      }
    }
    for (int l = 0; l < 64; l++) square += squares[l];
    float scale = 1.0f / __builtin_sqrtf(square / 1024 + 1e-5f);
#pragma omp simd
    for (int j = 0; j < 1024; j++) out[r * 1024 + j] = (row[j] - mean) * scale;
  }
  return 0;
}
"""
)

DYNAMIC = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic")
# What to change in the toolchain's flags: (remove, add).
FLAGS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "the toolchain's": ((), ()),
    "plain -O3": (("-fno-loop-unroll-and-jam",), ()),
    "-O2 that vectorises": (("-O3", "-fno-loop-unroll-and-jam"), DYNAMIC),
    "plain -O2": (("-O3", "-fno-loop-unroll-and-jam"), ("-O2",)),
    "no -pipe": (("-pipe",), ()),
    "exceptions, rtti, unwind tables": (("-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables"), ()),
    "with the C++ library": (("-nodefaultlibs", "-lgomp", "-lm", "-lc", "-lgcc"), ()),
    "gold": ((), ("-fuse-ld=gold",)),
    "256-bit vectors": (("-mprefer-vector-width=512",), ("-mprefer-vector-width=256",)),
}


def least(run: str, names: dict[str, Any]) -> float:
    """Nanoseconds of CPU time."""
    timer = timeit.Timer(run, globals=names, timer=time.process_time)
    return min(timer.repeat(15, 50_000)) / 50_000 * 1e9


def calls(library: Path) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Label to the statement that makes one call, and its names."""
    a, b, out = (torch.randn(8) for _ in range(3))
    names = {"a": a, "b": b, "o": out, "pa": a.data_ptr(), "pb": b.data_ptr(), "po": out.data_ptr()}
    loaded = load_library(library)

    def foreign(kind: type[ctypes.CDLL], symbol: str, argument: type) -> dict[str, Any]:
        function = kind(str(library))[symbol]
        function.argtypes = [argument] * 3 + [ctypes.c_int64] * 2
        function.restype = ctypes.c_int64
        return {**names, "f": function}

    addresses, tensors = "f(pa, pb, po, 8, 2)", "f(a, b, o, 8, 2)"
    methods = "f(a.data_ptr(), b.data_ptr(), o.data_ptr(), 8, 2)"
    packed = "w[0] = pa; w[1] = pb; w[2] = po; w[3] = 8; w[4] = 2"
    cdll, pydll = ctypes.CDLL, ctypes.PyDLL
    return {
        "an empty loop": ("pass", {}),
        "`tensor.data_ptr()`": ("a.data_ptr()", names),
        "`threads().count()`, once a graph call": ("t.count()", {"t": threads()}),
        "ctypes, c_void_p, addresses known": (addresses, foreign(cdll, "kernel", ctypes.c_void_p)),
        "ctypes, c_int64, addresses known": (addresses, foreign(cdll, "kernel", ctypes.c_int64)),
        "ctypes keeping the GIL, addresses known": (addresses, foreign(pydll, "kernel", ctypes.c_void_p)),
        "ctypes and `data_ptr()` of 3": (methods, foreign(cdll, "kernel", ctypes.c_void_p)),
        "ctypes, py_object, addresses found in C": (tensors, foreign(cdll, "objects", ctypes.py_object)),
        "only packing 5 words in a ctypes array": (packed, {**names, "w": (ctypes.c_int64 * 5)()}),
        "**entry**, 3 tensors and 2 ints": (tensors, {**names, "f": loaded.bind("kernel")}),
        "entry, 1 tensor and 1 int": ("f(a, 2)", {**names, "f": loaded.bind("one")}),
        "entry, 12 tensors and 2 ints": (f"f({'a, ' * 12}8, 2)", {**names, "f": loaded.bind("twelve")}),
    }


def gpu_calls(folder: Path, toolchain: Toolchain) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Launches on a GPU, by a driver that does nothing."""
    fake = Path(__file__).parents[1] / "tests" / "runtime" / "fake_driver.cpp"
    command = [*toolchain.compiler.command, "-O2", "-shared", "-fPIC", str(fake), "-o", str(folder / "driver.so")]
    subprocess.run(command, check=True)
    driver = Driver(str(folder / "driver.so"))
    build_launcher(toolchain, folder / "launcher.so")
    launcher = load_library(folder / "launcher.so")
    driver.connect(launcher)
    about = Launch("k", "pppii", steps(("n", 1023, "+", 1024, "//"), {"n": 3}), 128)
    kernel, tensor = driver.load(b"kernel 6k", about), torch.ones(8)
    ways = {
        "**launch on a GPU**, 3 tensors and 1 int": bind(launcher, "k", kernel, about, int),
        "the same by ctypes": driver.slow("k", kernel, about, int),
    }
    return {name: ("f(a, a, a, 5000, 7)", {"f": way, "a": tensor}) for name, way in ways.items()}


def inductor() -> tuple[str, dict[str, Any]]:
    """TorchInductor's launch of an equal kernel: an extension module for each kernel."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    source = 'extern "C" void kernel(const float* a, const float* b, float* out, const int64_t n) {}'
    types = ["const float*", "const float*", "float*", "const int64_t"]
    kernel = CppPythonBindingsCodeCache.load_pybinding(types, "#include <cstdint>\n" + source)
    return "f(a, b, o, 8)", {"f": kernel, **{name: torch.randn(8) for name in "abo"}}


def compile_and_run(
    folder: Path, command: list[str], tensors: tuple[torch.Tensor, torch.Tensor]
) -> tuple[float, float]:
    """CPU milliseconds to compile, and the least of several runs on one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    source, out = tensors
    # Under a name of its own: for the path of a library that is loaded already, the system's loader returns that one.
    library = (folder / "out.so").rename(folder / f"{time.monotonic_ns()}.so")
    run = ctypes.CDLL(str(library))["rows"]
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long], ctypes.c_int64
    ran: list[float] = []
    for _ in range(20):
        start = time.process_time()
        run(source.data_ptr(), out.data_ptr(), len(source), 1)
        ran.append(time.process_time() - start)
    library.unlink()
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3, min(ran) * 1e3


def flags(folder: Path, toolchain: Toolchain) -> None:
    source = folder / "rows.cpp"
    source.write_text(ROWS)
    link = ["-nodefaultlibs", "-lgomp", "-lm", "-lc", "-lgcc"]
    normal = [*toolchain.flags(), "-shared", str(source), "-o", str(folder / "out.so"), *link]
    tensors = torch.randn(1024, 1024), torch.empty(1024, 1024)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in FLAGS}
    for _ in range(9):  # interleaved: what disturbs one round disturbs every row of it
        for name, (removed, added) in FLAGS.items():
            command = [*toolchain.compiler.command, *(flag for flag in normal if flag not in removed), *added]
            measured[name].append(compile_and_run(folder, command, tensors))
    print("| flags | compiling, CPU ms | running, ms |\n|---|---|---|")
    for name, rounds in measured.items():
        print(f"| {name} | {min(a for a, _ in rounds):.0f} | {min(b for _, b in rounds):.2f} |")


def entries(folder: Path, toolchain: Toolchain) -> None:
    """What entries add to compiling."""
    kernels = [
        EXPORT + f"long k{i}(const float* a, float* o, long n) {{ o[0] = a[{i}] + n; return 0; }}\n" for i in range(20)
    ]
    lines = [entry(f"k{i}") for i in range(20)]
    texts = {
        "an empty unit": "",
        "the prelude": ENTRY_PRELUDE,
        "20 kernels": "".join(kernels),
        "20 kernels, the prelude and 20 entries": "".join([ENTRY_PRELUDE, *kernels, *lines]),
    }
    print("| unit | compiling, CPU ms |\n|---|---|")
    for name, text in texts.items():
        spent: list[float] = []
        for _ in range(9):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            toolchain.compile([Unit("unit", text)], folder / "unit.so")
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"| {name} | {min(spent) * 1e3:.0f} |")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inductor", action="store_true", help="also TorchInductor's launch")
    chosen = options.parse_args()
    toolchain = Toolchain(probe(), os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        toolchain.compile([Unit("called", ENTRY_PRELUDE + CALLED)], folder / "called.so")
        rows = {**calls(folder / "called.so"), **gpu_calls(folder, toolchain)}
        if chosen.inductor:
            rows["TorchInductor's launch, 3 tensors and 1 int"] = inductor()
        print("| a call | CPU ns |\n|---|---|")
        for label, (statement, names) in rows.items():
            print(f"| {label} | {least(statement, names):.0f} |")
        print()
        entries(folder, toolchain)
        print()
        flags(folder, toolchain)


if __name__ == "__main__":
    main()
