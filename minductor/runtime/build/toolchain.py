"""Compiles C++ text to one shared object with this machine's compiler.

Takes translation units. Gives a file that `load` opens. Refuses a machine without a compiler (CompilerNotFound), a
compiler that cannot compile an empty file (CompilerBroken), text that does not compile (CompileFailed, which quotes the
generated line and keeps the source), and a compiler that takes too long (CompileFailed).

>>> import ctypes, os, tempfile
>>> from minductor.runtime.build.probe import probe
>>> with tempfile.TemporaryDirectory() as folder:
...     out = Path(folder) / "one.so"
...     Toolchain(probe(), os.environ).compile([Unit("one", EXPORT + "int one() { return 1; }")], out)
...     ctypes.CDLL(str(out)).one()
1
"""

from __future__ import annotations

import errno
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn

from minductor.core.errors import CompileFailed, CompilerBroken, CompilerNotFound
from minductor.runtime.build.probe import Compiler, Host, find_compiler, search_path

# Precedes a kernel: the symbol is exported, and the kernel is not inlined into a caller.
EXPORT = 'extern "C" __attribute__((noinline, visibility("default"))) '

# What decides values. NaN, infinities and signed zeros are as in eager, so -ffast-math is never used. Nothing reads
# errno or traps. Contraction is off, since the text writes FMA where it is wanted.
_SEMANTICS = ("-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fopenmp")
# What decides the code's form: features that the text never uses are off.
_FORM = ("-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables", "-g0")
# Loop unroll-and-jam takes a fifth of g++'s time for a row kernel and makes it 6% faster: benchmarks/launch.md.
# With tree-bit-ccp, g++ 12 assumes that each second row of `a[row * 300]` is aligned after it has unrolled the loop
# over rows. Its aligned load then ends the program. With tree-pre, g++ computes what follows from a constant arm of
# `c ? x : 1.0f` on a path of its own, and with tree-sink it moves what `c ? x : f(x)` may not need behind a branch.
# Either leaves the loop scalar: softplus takes 5 times as long.
_OPTIMISE: Mapping[str, tuple[str, ...]] = {
    "gnu": ("-O3", "-fno-loop-unroll-and-jam", "-fno-tree-bit-ccp", "-fno-tree-pre", "-fno-tree-sink", "-pipe"),
    "clang": ("-O3",),
}
_ARCHITECTURE: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "aarch64": ("-mcpu=native",),
}
# The libraries are listed, since g++ would add the C++ library, which nothing uses and which costs the linker 8 ms.
_LINK: Mapping[str, tuple[str, ...]] = {
    "gnu": ("-nodefaultlibs", "-lgomp", "-lm", "-lc", "-lgcc"),
    "clang": ("-nostdlib++",),
}
_SANITIZE = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g1")
_ERROR = re.compile(r"^(?P<file>[^\n:]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>[^\n]*)$", re.MULTILINE)
_EMPTY = ("-x", "c++", os.devnull, "-x", "none")
_FULL = "No space left on device"
_TIMEOUT_S = 300.0
_TRIAL_S = 60.0
_MOST_LOG = 1 << 20  # bytes of what a compiler says; the rest is read and dropped

# From the name of a unit and a line in it to the user's line, or "".
Blame = Callable[[str, int], str]


class Unit(NamedTuple):
    """One translation unit; the name becomes the file's."""

    name: str
    text: str


class Toolchain:
    """The compiler, with the flags for this host.

    `keep`: the folder for sources that failed to compile. `is_portable`: for every processor of the host's kind, such
    as x86-64, and not for this one.
    """

    def __init__(
        self, host: Host, environ: Mapping[str, str], *, keep: Path | None = None, is_portable: bool = False
    ) -> None:
        self.host = host
        self._environ = environ
        self._keep = keep
        self._is_portable = is_portable

    def portable(self) -> Toolchain:
        """The same compiler, for every processor of the host's kind."""
        return Toolchain(self.host, self._environ, keep=self._keep, is_portable=True)

    @cached_property
    def compiler(self) -> Compiler:
        if self.host.system != "linux":
            raise CompilerNotFound((), install=f"kernels are built on Linux only, and this is {self.host.system}")
        return find_compiler(self._environ)

    def flags(self, *, sanitize: bool = False) -> tuple[str, ...]:
        """The compiler's flags for each unit."""
        return (
            *_OPTIMISE[self.compiler.family],
            *(() if self._is_portable else _ARCHITECTURE.get(self.host.machine, ())),
            *_SEMANTICS,
            *(_SANITIZE if sanitize else ()),
            *_FORM,
        )

    def identity(self, *, sanitize: bool = False) -> str:
        """What a shared object depends on beside its text, for keys. Runs nothing."""
        return "\n".join((self.compiler.stamp, *self.flags(sanitize=sanitize), self.host.fingerprint()))

    def compile(
        self,
        units: Sequence[Unit],
        out: Path,
        *,
        sanitize: bool = False,
        blame: Blame = lambda unit, line: "",
        include: Sequence[str] = (),
        more_flags: Sequence[str] = (),
        link_with: Sequence[str] = (),
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """Builds `out`. One unit takes one process. More units take up to `cores` processes at a time, and one that
        links.

        After `timeout_s` seconds the processes are stopped. Raises FileNotFoundError if the folder of `out` vanishes
        meanwhile. `include`: folders of headers. `more_flags`: further flags for each unit. `link_with`: names of
        shared objects that the process will have loaded. The linker gets empty files of these names, since reading
        torch's takes it 0.2 s.
        """
        flags = [*self.compiler.command, *self.flags(sanitize=sanitize), *(f"-I{folder}" for folder in include)]
        flags += more_flags
        with tempfile.TemporaryDirectory(prefix=".build-", dir=out.parent) as name:
            link = [] if sanitize else list(_LINK[self.compiler.family])
            trial = (*self.compiler.command, *self.flags(sanitize=sanitize), "-shared", *_EMPTY, *link)
            environ = {**self._environ, "PATH": search_path(self._environ)}
            job = _Job(Path(name), environ, self._keep, blame, trial, timeout_s, time.monotonic() + timeout_s)
            sources = [job.folder / f"{unit.name}.cpp" for unit in units]
            for source, unit in zip(sources, units, strict=True):
                source.write_text(unit.text, encoding="utf-8")
            if link_with:
                link[:0] = [
                    "-Wl,--no-as-needed",
                    *(str(job.folder / needed) for needed in link_with),
                    "-Wl,--as-needed",
                ]
                empty = [*self.compiler.command, "-shared", "-nostdlib", "-x", "c", os.devnull]
                job.run([[*empty, f"-Wl,-soname,{n}", "-o", str(job.folder / n)] for n in link_with], at_once=1)
            built = job.folder / "built.so"
            if len(sources) == 1:
                job.run([[*flags, "-shared", str(sources[0]), "-o", str(built), *link]], at_once=1)
            else:
                objects = [str(source.with_suffix(".o")) for source in sources]
                commands = [[*flags, "-c", str(s), "-o", o] for s, o in zip(sources, objects, strict=True)]
                job.run(commands, at_once=max(1, self.host.cores))
                job.run([[*flags, "-shared", *objects, "-o", str(built), *link]], at_once=1)
            if not built.exists():
                job.fail(flags, "the compiler gave status 0 and wrote no file")
            os.replace(built, out)

    def shell_command(
        self,
        units: Sequence[str],
        out: str,
        *,
        sanitize: bool = False,
        include: Sequence[str] = (),
        link_with: Sequence[str] = (),
    ) -> str:
        """A line for a shell that builds `out` from the files `units` as `compile` does, in one process.

        `include`: folders of headers. `link_with`: paths of shared objects that `out` needs.
        """
        flags = [*self.compiler.command, *self.flags(sanitize=sanitize), *(f"-I{folder}" for folder in include)]
        needed = ("-Wl,--no-as-needed", *link_with, "-Wl,--as-needed") if link_with else ()
        link = () if sanitize else _LINK[self.compiler.family]
        return shlex.join([*flags, "-shared", *units, "-o", out, *needed, *link])

    def sanitizer_library(self) -> str:
        """The value of LD_PRELOAD that a process needs before it loads something built with `sanitize`.

        It includes the C++ library: Python does not load that, and the sanitizer looks for its `throw` at the start.
        """
        found: list[str] = []
        for name in ("libasan.so", "libstdc++.so.6"):
            ask = [*self.compiler.command, f"-print-file-name={name}"]
            found.append(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
        return ":".join(found)


class _Job(NamedTuple):
    """One build, in a temporary folder."""

    folder: Path
    environ: Mapping[str, str]
    keep: Path | None
    blame: Blame
    trial: Sequence[str]  # compiles an empty file: if it fails, the compiler is broken, and not a kernel
    timeout_s: float
    end: float  # by time.monotonic

    def run(self, commands: Sequence[Sequence[str]], *, at_once: int) -> None:
        """Runs all commands. The first failure, in their order, stops the others and is raised."""
        # LC_ALL: _ERROR reads English. TMPDIR: the compiler's own left-overs go away with the folder.
        environ = {**self.environ, "LC_ALL": "C", "TMPDIR": str(self.folder)}
        running: list[tuple[Sequence[str], subprocess.Popen[bytes]]] = []
        try:
            for command in commands:
                if len(running) == at_once:
                    self._finish(*running.pop(0))
                running.append((command, _start(command, environ)))
            while running:
                self._finish(*running.pop(0))
        finally:
            for _, process in running:
                _end(process)

    def _finish(self, command: Sequence[str], process: subprocess.Popen[bytes]) -> None:
        try:
            log = _output_until(process, self.end)
        finally:  # also after an interrupt: the process is no longer among the running ones
            is_late = process.poll() is None
            _end(process)
        if is_late:
            limit = f"{self.timeout_s:g} s, the option compiler_timeout"
            self._refuse(command, f"the compiler had not finished after {limit}, and was stopped")
        if process.returncode != 0:
            self._explain(command, process.returncode, log)

    def fail(self, command: Sequence[str], why: str) -> NoReturn:
        """Raises CompilerBroken if the compiler cannot compile an empty file either, else CompileFailed."""
        self._check_folder()
        if not self._compiles_nothing():
            raise CompilerBroken(command[0], f"{why}; it does not compile an empty file either")
        self._refuse(command, why)

    def _refuse(self, command: Sequence[str], why: str) -> NoReturn:
        """Raises CompileFailed for a failure that no line of the source caused."""
        kept = self._kept()
        raise CompileFailed(why, kept=str(kept), command=self._kept_command(command, kept))

    def _kept_command(self, command: Sequence[str], kept: Path) -> str:
        """The command for the files that are kept."""
        return shlex.join(str(kept / Path(word).name) if str(self.folder) in word else word for word in command)

    def _explain(self, command: Sequence[str], status: int, log: str) -> NoReturn:
        if _FULL in log:  # the disk is full: no kernel is wrong
            raise OSError(errno.ENOSPC, _FULL, str(self.folder))
        found = _ERROR.search(log)
        source = Path(found["file"]) if found is not None else None
        if found is None or source is None or source.parent != self.folder:
            self.fail(command, _reason(log, status))
        kept = self._kept()
        line = int(found["line"])
        lines = source.read_text(encoding="utf-8").splitlines()
        raise CompileFailed(
            found["text"],
            kept=str(kept / source.name),
            line=line,
            quoted=lines[line - 1] if 0 < line <= len(lines) else "",
            user_line=self.blame(source.stem, line),
            command=self._kept_command(command, kept),
        )

    def _compiles_nothing(self) -> bool:
        """Whether the compiler makes a shared object of an empty file."""
        made = self.folder / "trial"
        process = _start([*self.trial, "-o", str(made)], self.environ)
        try:
            _output_until(process, time.monotonic() + _TRIAL_S)
        finally:
            _end(process)
        is_made = process.returncode == 0 and made.exists()
        made.unlink(missing_ok=True)
        return is_made

    def _check_folder(self) -> None:
        if not any(self.folder.glob("*.cpp")):  # another process or the user removed them
            raise FileNotFoundError(errno.ENOENT, "the folder of a compile has vanished", str(self.folder))

    def _kept(self) -> Path:
        self._check_folder()
        if self.keep is None:
            kept = Path(tempfile.mkdtemp(prefix="minductor-failed-"))
        else:
            self.keep.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = Path(tempfile.mkdtemp(prefix="", dir=self.keep))
        for file in self.folder.glob("*"):
            shutil.copy(file, kept)
        return kept


def _start(command: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a compiler with a process group of its own, so that its children can be ended with it."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            process_group=0,
        )
    except OSError as error:  # a file that is no program
        raise CompilerBroken(command[0], f"it cannot be started: {error.strerror}") from error


def _output_until(process: subprocess.Popen[bytes], end: float) -> str:
    """The output of a process until it ends or the time is `end`."""
    assert process.stdout is not None
    pipe, log = process.stdout.fileno(), bytearray()
    ready = select.poll()
    ready.register(pipe, select.POLLIN)
    while (left := end - time.monotonic()) > 0:
        has_ended = process.poll() is not None  # asked first: what it wrote is in the pipe then
        if ready.poll(0 if has_ended else min(left, 0.1) * 1000):
            piece = os.read(pipe, 1 << 16)
            log += piece[: max(0, _MOST_LOG - len(log))]
            if piece:
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
            break
        if has_ended:  # another process still holds the pipe open
            break
    return log.decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a compiler that still runs, and all processes that it started."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with process:  # waits, and closes what it would have written to
        pass


def _reason(log: str, status: int) -> str:
    """The most helpful line of a log in which no line of the source is to blame: the linker, a library, a signal."""
    if status < 0:
        return f"the compiler was stopped by {signal.Signals(-status).name}"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    words = ("multiple definition", "undefined reference", "cannot find", "error")
    helpful = [line for word in words for line in lines if word in line]
    return next(iter([*helpful, *lines]), f"the compiler gave status {status} and no text")
