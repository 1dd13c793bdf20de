"""`minductor doctor`: checks whether kernels can be compiled on this machine, and says what is missing.

Takes the environment. Gives a line for each check, and an exit code. Refuses nothing and changes nothing: what it
compiles is in a temporary folder.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from minductor.core.errors import CompilerBroken, CompilerNotFound, MinductorError

Verdict = Literal["ok", "missing", "broken"]

# The function returns the number of threads that run an OpenMP region.
OPENMP = """int minductor_threads() {
    int n = 0;
    #pragma omp parallel num_threads(2) reduction(+ : n)
    n += 1;
    return n;
}
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `is_needed`: nothing can be compiled for the CPU unless the verdict is "ok"."""

    name: str
    verdict: Verdict
    what: str
    advice: str = ""
    is_needed: bool = True

    def lines(self) -> str:
        advice = f"\n{'':17}{self.advice}" if self.advice else ""
        return f"{self.name:<9}{self.verdict:<8}{self.what}{advice}"


def findings(environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """The results of all checks. A check comes after those that it depends on."""
    checks = (_python, _torch, _settings, _compiler, _openmp, _vectors, _cache, _triton)
    return tuple(check(environ) for check in checks)


def _python(environ: Mapping[str, str]) -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch(environ: Mapping[str, str]) -> Finding:
    from minductor.runtime.build.probe import probe

    version = probe().torch
    if not version:
        return Finding("torch", "missing", "not installed", "pip install 'torch>=2.11,<2.14'")
    major, minor = (int(part) for part in version.split(".")[:2])
    if (2, 11) <= (major, minor) < (2, 14):
        return Finding("torch", "ok", version)
    return Finding("torch", "broken", f"{version} is untested", "pip install 'torch>=2.11,<2.14'", is_needed=False)


def _settings(environ: Mapping[str, str]) -> Finding:
    """Checks the environment variables that set options: a compile refuses a value that the option does not accept."""
    from minductor.options import ENVIRONMENT, Options
    from minductor.tracing.trace import Trace

    try:
        Trace.parse(Options.parse(environ=environ).trace)
    except MinductorError as error:
        return Finding("settings", "broken", f"{error.where or 'MINDUCTOR_TRACE'}: {error.what}", error.hint)
    given = [f"{name}={environ[name]}" for name in ENVIRONMENT if name in environ]
    return Finding("settings", "ok", ", ".join(given) or f"none of {', '.join(ENVIRONMENT)} is set")


def _compiler(environ: Mapping[str, str]) -> Finding:
    from minductor.runtime.build.probe import probe
    from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit

    toolchain = Toolchain(probe(), environ)
    try:
        found = toolchain.compiler
    except MinductorError as error:
        return Finding("compiler", "missing", f"{error.what}: {error.why}", error.hint)
    try:
        with tempfile.TemporaryDirectory(prefix="minductor-doctor-") as folder:
            toolchain.compile([Unit("one", EXPORT + "int one() { return 1; }")], Path(folder) / "one.so")
    except CompilerBroken as error:
        return Finding("compiler", "broken", f"{found.path}: {error.why}", error.hint)
    return Finding("compiler", "ok", f"{found.path} ({found.version()})")


def _openmp(environ: Mapping[str, str]) -> Finding:
    """Compiles a function with OpenMP, as kernels are compiled, and runs it on two threads."""
    from minductor.runtime.build.probe import probe
    from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit

    toolchain = Toolchain(probe(), environ)
    try:
        with tempfile.TemporaryDirectory(prefix="minductor-doctor-") as folder:
            out = Path(folder) / "openmp.so"
            Toolchain(toolchain.host, environ, keep=Path(folder)).compile([Unit("openmp", EXPORT + OPENMP)], out)
            threads = ctypes.CDLL(str(out)).minductor_threads()
    except CompilerNotFound:
        return Finding("openmp", "missing", "it comes with the compiler")
    except CompilerBroken:
        return Finding("openmp", "broken", "the compiler does not work")
    except (MinductorError, OSError) as error:
        why = error.what if isinstance(error, MinductorError) else str(error)
        advice = "set CXX to a compiler that builds C++17 with -fopenmp, or install its OpenMP runtime (g++: libgomp1)"
        return Finding("openmp", "broken", why, advice)
    if threads == 2:
        return Finding("openmp", "ok", f"a loop compiled and ran on 2 threads; {toolchain.host.cores} cores here")
    limit = "OMP_THREAD_LIMIT or OMP_DYNAMIC may say so"
    return Finding("openmp", "broken", f"asked for 2 threads, got {threads}", limit, is_needed=False)


def _vectors(environ: Mapping[str, str]) -> Finding:
    from minductor.runtime.build.probe import probe

    host = probe()
    size, caches = host.vector_bytes(), host.caches
    what = f"{size * 8} bits, {size // 4} floats at once; caches {caches.l1 >> 10} and {caches.l2 >> 10} KiB a core"
    return Finding("vectors", "ok", what)


def _cache(environ: Mapping[str, str]) -> Finding:
    from minductor.commands.cache_command import readable
    from minductor.runtime.store.store import Store

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            store = Store.open(None, environ)
        except MinductorError as error:
            return Finding("cache", "broken", f"{error.where or error.what}: {error.why}", error.hint)
    for warning in caught:
        if isinstance(warning.message, MinductorError):
            problem = warning.message
            return Finding("cache", "broken", f"{problem.what}: {problem.why}", problem.hint, is_needed=False)
    root = Store.place(None, environ)
    if not store.root.is_relative_to(root):
        advice = "set MINDUCTOR_CACHE_DIR to a folder that you can write, to keep what is compiled"
        return Finding("cache", "ok", f"{root}, which is read and cannot be written", advice)
    return Finding("cache", "ok", f"{store.root}, {readable(store.size())} of at most {readable(store.limit_bytes)}")


def _triton(environ: Mapping[str, str]) -> Finding:
    from minductor.runtime.build.probe import probe

    version = probe().triton
    if not version:
        return Finding("triton", "missing", "not installed; compiling for the CPU needs none", is_needed=False)
    return Finding("triton", "ok", version, is_needed=False)


def main(argv: list[str]) -> int:
    """The command. Exit code 1: nothing can be compiled for the CPU of this machine."""
    parser = argparse.ArgumentParser(
        prog="minductor doctor",
        description="What this machine has, what it misses, and what to do about it.",
        epilog="Exit code: 0 minductor can compile for the CPU; 1 it cannot, and a line above says why.",
    )
    parser.parse_args(argv)
    found = findings(os.environ)
    for finding in found:
        print(finding.lines())
    broken = [finding.name for finding in found if finding.is_needed and finding.verdict != "ok"]
    if broken:
        print(f"minductor cannot compile for the CPU here: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0
