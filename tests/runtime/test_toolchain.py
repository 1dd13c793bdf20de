"""The toolchain: one shared object from any number of units, and errors that show the line."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from minductor.core.errors import CompileFailed, CompilerBroken, CompilerNotFound
from minductor.runtime.build.probe import Host, find_compiler, probe
from minductor.runtime.build.toolchain import EXPORT, Toolchain, Unit
from tests.interrupts import interruptible

HOST = probe()


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    return Toolchain(HOST, os.environ, keep=tmp_path / "kept")


def answer(name: str, value: int) -> Unit:
    return Unit(name, EXPORT + f"int {name}() {{ return {value}; }}\n")


def test_one_unit(toolchain: Toolchain, tmp_path: Path) -> None:
    toolchain.compile([answer("one", 41)], tmp_path / "out.so")
    assert ctypes.CDLL(str(tmp_path / "out.so")).one() == 41
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.so"]


@pytest.mark.parametrize("cores", [1, 3])
def test_several_units_make_one_object(tmp_path: Path, cores: int) -> None:
    toolchain = Toolchain(dataclasses.replace(HOST, cores=cores), os.environ)
    units = [answer(f"f{i}", i) for i in range(4)]
    units.append(
        Unit("sum", 'extern "C" int f1(); extern "C" int f3();\n' + EXPORT + "int sum() { return f1() + f3(); }")
    )
    toolchain.compile(units, tmp_path / "out.so")
    library = ctypes.CDLL(str(tmp_path / "out.so"))
    assert [library.f0(), library.f1(), library.f2(), library.f3(), library.sum()] == [0, 1, 2, 3, 4]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.so"]


def test_no_more_than_the_cores_compile_at_a_time(tmp_path: Path) -> None:
    """A compiler that notes when it runs, and waits until it has met a second one, stands in for the real one."""
    (tmp_path / "running").mkdir()
    script = tmp_path / "g++"
    script.write_text(f"""#!{sys.executable}
import os, sys, time
os.chdir({str(tmp_path)!r})
open(f"running/{{os.getpid()}}", "w").close()
end = time.monotonic() + 20
while (count := len(os.listdir("running"))) < 2 and not os.path.exists("met") and time.monotonic() < end:
    time.sleep(0.002)
if count >= 2: open("met", "w").close()
print(count, file=open("counts", "a"))
time.sleep(0.03)
os.unlink(f"running/{{os.getpid()}}")
open(sys.argv[sys.argv.index("-o") + 1], "w").close()
""")
    script.chmod(0o755)
    toolchain = Toolchain(dataclasses.replace(HOST, cores=2), {**os.environ, "CXX": str(script)})
    toolchain.compile([answer(f"f{i}", i) for i in range(6)], tmp_path / "out.so")
    counts = [int(count) for count in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 7 and max(counts) == 2


def test_a_failure_quotes_the_line_and_keeps_the_file(toolchain: Toolchain, tmp_path: Path) -> None:
    text = "int fine;\n  float wrong = undeclared_thing;\nint also_fine;\n"
    with pytest.raises(CompileFailed) as caught:
        toolchain.compile(
            [answer("good", 1), Unit("bad", text)],
            tmp_path / "out.so",
            blame=lambda unit, line: f"model.py:{line + 40} ({unit})",
        )
    error = caught.value
    assert "undeclared_thing" in error.message and "not declared" in error.message
    assert (error.line, error.quoted) == (2, "  float wrong = undeclared_thing;")
    assert error.user_line == "model.py:42 (bad)"
    assert Path(error.kept).read_text() == text and Path(error.kept).is_relative_to(tmp_path / "kept")
    assert "float wrong = undeclared_thing;" in str(error) and error.kept in str(error)
    again = subprocess.run(error.command, shell=True, capture_output=True, text=True, check=False)
    assert again.returncode != 0 and "undeclared_thing" in again.stderr
    assert not (tmp_path / "out.so").exists() and not list(tmp_path.glob(".build-*"))


def test_the_first_error_is_shown_not_a_warning(toolchain: Toolchain, tmp_path: Path) -> None:
    text = '#warning "attention"\nint f() { return x; }\nint g() { return y; }\n'
    with pytest.raises(CompileFailed) as caught:
        toolchain.compile([Unit("two", text)], tmp_path / "out.so")
    assert caught.value.line == 2


def test_errors_are_english_wherever_the_user_lives(tmp_path: Path) -> None:
    script = tmp_path / "g++"
    script.write_text(
        '#!/bin/sh\ncase $LC_ALL in C) echo "$4:1:1: error: plain" >&2;; *) echo "Fehler" >&2;; esac\nexit 1\n'
    )
    script.chmod(0o755)
    toolchain = Toolchain(HOST, {**os.environ, "LC_ALL": "de_DE.UTF-8", "CXX": str(script)}, keep=tmp_path / "kept")
    with pytest.raises(CompilerBroken, match="error: plain; it does not compile an empty file either"):
        toolchain.compile([Unit("bad", "int y = x;")], tmp_path / "out.so")


def test_a_linker_that_fails_is_quoted(toolchain: Toolchain, tmp_path: Path) -> None:
    text = EXPORT + "int twice() { return 1; }\n"
    with pytest.raises(CompileFailed, match="multiple definition") as caught:
        toolchain.compile([Unit("a", text), Unit("b", text)], tmp_path / "out.so")
    assert caught.value.line is None
    assert sorted(p.name for p in Path(caught.value.kept).glob("*.cpp")) == ["a.cpp", "b.cpp"]


def test_a_full_disk_is_no_fault_of_a_kernel(tmp_path: Path) -> None:
    script = tmp_path / "g++"
    script.write_text("#!/bin/sh\necho 'ld: final link failed: No space left on device' >&2\nexit 1\n")
    script.chmod(0o755)
    toolchain = Toolchain(HOST, {**os.environ, "CXX": str(script)}, keep=tmp_path / "kept")
    with pytest.raises(OSError, match="No space left on device") as caught:
        toolchain.compile([answer("one", 1)], tmp_path / "out.so")
    assert caught.value.errno == errno.ENOSPC and not (tmp_path / "kept").exists()


def test_a_compiler_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "g++"
    script.write_text('#!/bin/sh\ncase "$*" in *one.cpp*) kill -9 $$;; esac\nexec g++ "$@"\n')
    script.chmod(0o755)
    toolchain = Toolchain(HOST, {**os.environ, "CXX": str(script)}, keep=tmp_path / "kept")
    with pytest.raises(CompileFailed, match="SIGKILL"):
        toolchain.compile([answer("one", 1)], tmp_path / "out.so")


def test_a_failure_ends_the_other_compilers(tmp_path: Path) -> None:
    script = tmp_path / "g++"
    pids = tmp_path / "pids"
    script.write_text(
        f"#!/bin/sh\necho $$ >> {pids}\n"
        'case "$*" in *f0.cpp*) exit 1;; *f?.cpp*) exec sleep 600;; esac\nexec g++ "$@"\n'
    )
    script.chmod(0o755)
    toolchain = Toolchain(dataclasses.replace(HOST, cores=2), {**os.environ, "CXX": str(script)}, keep=tmp_path / "k")
    with pytest.raises(CompileFailed, match="status 1"):
        toolchain.compile([answer(f"f{i}", i) for i in range(3)], tmp_path / "out.so")
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def test_an_interrupt_ends_the_compiler(tmp_path: Path, before: Any) -> None:
    """`before` is the handler that the tests were started with."""
    script = tmp_path / "g++"
    script.write_text(f"#!/bin/sh\necho $$ > {tmp_path / 'pid'}\nexec sleep 600\n")
    script.chmod(0o755)
    toolchain = Toolchain(HOST, {**os.environ, "CXX": str(script)}, keep=tmp_path / "k")

    ended = threading.Event()

    def interrupt() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            if ended.wait(0.01):
                return
        ended.wait(0.5)  # an interrupt while Popen itself still works would not show who ends the process
        os.kill(os.getpid(), signal.SIGINT)
        if not ended.wait(60):  # nobody noticed: the compiler ends, and the test fails
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    found = signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=interrupt)
    try:
        with interruptible(), pytest.raises(KeyboardInterrupt):
            thread.start()
            toolchain.compile([answer("one", 1)], tmp_path / "out.so")
    finally:
        ended.set()
        signal.signal(signal.SIGINT, found)
        thread.join(60)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not list(tmp_path.glob(".build-*"))


def test_no_compiler(tmp_path: Path) -> None:
    with pytest.raises(CompilerNotFound, match=r"g\+\+, c\+\+, clang\+\+"):
        Toolchain(HOST, {"PATH": str(tmp_path)}).compile([answer("one", 1)], tmp_path / "out.so")


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_told(tmp_path: Path, system: str) -> None:
    with pytest.raises(CompilerNotFound, match=f"Linux only.*{system}"):
        Toolchain(dataclasses.replace(HOST, system=system), os.environ).compile([], tmp_path / "out.so")


def test_the_flags_keep_eagers_values(toolchain: Toolchain) -> None:
    """NaN, infinities, signed zeros, rounding: what -ffast-math or contraction would change."""
    flags = toolchain.flags()
    assert not {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only"} & set(flags)
    assert "-ffp-contract=off" in flags


def test_values_as_compiled(toolchain: Toolchain, tmp_path: Path) -> None:
    text = (
        EXPORT + "int is_nan(double x) { return x != x; }\n"
        + EXPORT + "double nothing(double x) { return x - x; }\n"
        + EXPORT + "double zero(double x) { return x + 0.0; }\n"
        + EXPORT + "double fused(double a, double b, double c) { return a * b + c; }\n"
    )  # fmt: skip
    toolchain.compile([Unit("m", text)], tmp_path / "out.so")
    library = ctypes.CDLL(str(tmp_path / "out.so"))
    for name, count in {"is_nan": 1, "nothing": 1, "zero": 1, "fused": 3}.items():
        getattr(library, name).argtypes = [ctypes.c_double] * count
    for name in ("nothing", "zero", "fused"):
        getattr(library, name).restype = ctypes.c_double
    assert library.is_nan(float("nan")) == 1
    assert library.nothing(float("inf")) != library.nothing(float("inf"))
    assert struct.pack("d", library.zero(-0.0)) == struct.pack("d", 0.0)
    e = 2.0**-30
    assert library.fused(1 + e, 1 - e, -1.0) == 0.0  # one rounding instead of two would give -e*e


@pytest.mark.parametrize(("machine", "flag"), [("x86_64", "-march=native"), ("aarch64", "-mcpu=native")])
def test_each_machine_has_its_row(machine: str, flag: str) -> None:
    flags = Toolchain(dataclasses.replace(HOST, machine=machine), os.environ).flags()
    assert flag in flags and ("-mprefer-vector-width=512" in flags) == (machine == "x86_64")


def test_the_identity_tells_what_the_object_depends_on(tmp_path: Path) -> None:
    def identity(host: Host = HOST, *, sanitize: bool = False, environ: Mapping[str, str] = os.environ) -> str:
        return Toolchain(host, environ).identity(sanitize=sanitize)

    path = find_compiler(os.environ).path
    (tmp_path / "g++").symlink_to(path)
    assert identity() == identity()
    assert identity(sanitize=True) != identity()
    assert identity(dataclasses.replace(HOST, features=())) != identity()
    assert identity(dataclasses.replace(HOST, cores=99)) == identity()
    assert identity(environ={**os.environ, "CXX": "g++ -B/tmp"}) != identity()


def test_the_identity_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    assert Toolchain(probe(), os.environ).identity()


def test_openmp_is_linked_and_the_cxx_library_is_not(toolchain: Toolchain, tmp_path: Path) -> None:
    text = EXPORT + "void f(int* x) {\n#pragma omp parallel\n  x[0] = 1;\n}\n"
    toolchain.compile([Unit("m", text)], tmp_path / "out.so")
    data = (tmp_path / "out.so").read_bytes()
    assert b"libgomp.so" in data and b"libstdc++" not in data


def test_sanitised_code_stops_at_the_fault(toolchain: Toolchain, tmp_path: Path) -> None:
    text = EXPORT + "int read(const int* p, long i) { return p[i]; }"
    toolchain.compile([Unit("m", text)], tmp_path / "out.so", sanitize=True)
    code = (
        "import ctypes, sys\n"
        "read = ctypes.CDLL(sys.argv[1]).read; read.argtypes = [ctypes.c_void_p, ctypes.c_long]\n"
        "libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p\n"
        "p = libc.malloc(ctypes.c_size_t(40))\n"
        "print(read(p, int(sys.argv[2])) * 0)"
    )
    environ = {
        **os.environ,
        "LD_PRELOAD": toolchain.sanitizer_library(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    ran = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "out.so"), index],
            capture_output=True, text=True, env=environ, check=False,
        )
        for index in ("3", "10")
    ]  # fmt: skip
    assert (ran[0].returncode, ran[0].stdout) == (0, "0\n"), ran[0].stderr
    assert ran[1].returncode != 0 and "heap-buffer-overflow" in ran[1].stderr
