"""Facts about this machine, for compiler flags, run-time tests and keys of the store.

Takes /proc, /sys, the environment and the metadata of installed packages. Gives a Host. Refuses to run a compiler or to
import a package, since every start from the store probes too. No generated text depends on these facts.

>>> host = probe()
>>> host.cores >= 1, len(host.fingerprint())
(True, 64)
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from minductor.core.errors import CompilerNotFound

COMPILERS = ("g++", "c++", "clang++")
WRONG_CXX = "set CXX to the path of a C++ compiler, or unset it: then g++, c++ or clang++ is taken"


class Caches(NamedTuple):
    """The bytes of the data caches that one core can use; 0 where the system does not tell."""

    l1: int = 0
    l2: int = 0


@dataclass(frozen=True, slots=True)
class Host:
    """The machine, and the versions of packages in this process."""

    system: str
    machine: str
    cores: int
    features: tuple[str, ...]
    caches: Caches
    python: str
    torch: str
    triton: str

    def fingerprint(self) -> str:
        """Equal for machines that can run each other's native code.

        The number of cores is left out: the text does not depend on it, and a process with fewer cores shall hit the
        cache.
        """
        text = "\n".join((self.system, self.machine, *self.features))
        return hashlib.sha256(text.encode()).hexdigest()

    def vector_bytes(self) -> int:
        """The width in bytes of the widest vector register that the compiler will use."""
        return next((size for feature, size in _VECTOR_BYTES.items() if feature in self.features), 16)


# First match wins. `asimd` is NEON; SVE registers have a length of their own, 16 bytes is what all of them have.
_VECTOR_BYTES: Mapping[str, int] = {"avx512f": 64, "avx2": 32, "avx": 32, "sse2": 16, "asimd": 16}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: its command, and what identifies it without running it."""

    command: tuple[str, ...]
    path: Path
    family: Literal["gnu", "clang"]
    stamp: str

    def version(self) -> str:
        """Runs the compiler for its version, which people read; no key contains it."""
        try:
            ran = subprocess.run([*self.command, "--version"], capture_output=True, text=True, check=False)
        except OSError:
            return "unknown"
        return ran.stdout.partition("\n")[0] or "unknown"


def probe() -> Host:
    """The facts about this machine; takes about a millisecond."""
    system, machine = (os.uname().sysname, os.uname().machine) if hasattr(os, "uname") else (sys.platform, "unknown")
    return Host(
        system=system.lower(),
        machine=machine,
        cores=_cores(),
        features=features(_text(Path("/proc/cpuinfo"))),
        caches=_caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        python=".".join(map(str, sys.version_info[:3])),
        torch=version("torch"),
        triton=version("triton"),
    )


@lru_cache(maxsize=1)
def cpu_maker() -> str:
    """The maker of this machine's CPU, as the CPU names it: "AuthenticAMD", "GenuineIntel"; "" where none is named."""
    found = re.search(r"^vendor_id\s*:\s*(\S+)", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return found[1] if found else ""


def has_block_pointers(triton: str) -> bool:
    """Whether that version of Triton still has `tl.make_block_ptr`.

    >>> [has_block_pointers(version) for version in ("3.6.0", "3.8.0+git1", "3.9.0", "4.0", "")]
    [True, True, False, False, False]
    """
    numbers = re.match(r"(\d+)\.(\d+)", triton)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < (3, 9)


def find_compiler(environ: Mapping[str, str]) -> Compiler:
    """The compiler that CXX names, else the first known one on PATH. CompilerNotFound lists what was tried.

    The path, time and size of its file identify the compiler: asking for its version would start a process every time.
    """
    cxx = environ.get("CXX", "")
    try:
        wanted = shlex.split(cxx)
    except ValueError as error:
        why = f"CXX is {cxx!r}, which is no command: {error}"
        raise CompilerNotFound([f"CXX={cxx}"], why=why, install=WRONG_CXX) from None
    for command in [wanted] if wanted else [[name] for name in COMPILERS]:
        found = shutil.which(command[0], path=search_path(environ))
        if found is None:
            continue
        path = Path(found).resolve()
        # With a launcher such as ccache, the compiler is the second word.
        names = (path.name, *(Path(word).name for word in command[1:]))
        state = path.stat()
        return Compiler(
            command=(found, *command[1:]),
            path=path,
            family="clang" if any("clang" in name for name in names) else "gnu",
            stamp=f"{' '.join((str(path), *command[1:]))} {state.st_mtime_ns} {state.st_size}",
        )
    if wanted:
        why = f"CXX is {cxx!r}, and there is no program {wanted[0]!r}"
        raise CompilerNotFound([f"CXX={cxx}"], why=why, install=WRONG_CXX)
    raise CompilerNotFound(COMPILERS)


def search_path(environ: Mapping[str, str]) -> str:
    """The folders in which programs are searched: PATH, or the system's default if PATH is not set.

    >>> search_path({"PATH": "/opt/bin"})
    '/opt/bin'
    """
    return environ["PATH"] if "PATH" in environ else os.confstr("CS_PATH") or os.defpath


def features(cpuinfo: str) -> tuple[str, ...]:
    """The instruction sets that all cores in the text of /proc/cpuinfo have, sorted.

    >>> features("flags\\t\\t: sse2 avx2\\nflags\\t\\t: avx2 avx512f sse2\\n")
    ('avx2', 'sse2')
    """
    rows = [line.partition(":") for line in cpuinfo.splitlines()]
    sets = [set(words.split()) for name, _, words in rows if name.strip() in ("flags", "Features")]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _caches(folder: Path) -> Caches:
    sizes = {"1": 0, "2": 0}
    for index in sorted(folder.glob("index*")):
        level = _text(index / "level").strip()
        if level in sizes and _text(index / "type").strip() in ("Data", "Unified"):
            sizes[level] = _bytes(_text(index / "size").strip())
    return Caches(sizes["1"], sizes["2"])


def _bytes(text: str) -> int:
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    digits = text.rstrip("KMG")
    return int(digits) * units.get(text[len(digits) :], 1) if digits.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def software() -> tuple[tuple[str, str], ...]:
    """The packages that decide how fast a GPU's kernels are, with their versions; without those that are missing."""
    found = ((name, version(name).partition("+")[0]) for name in ("torch", "triton"))
    return tuple((name, each) for name, each in found if each)


def version(package: str) -> str:
    """The installed version of a package, which need not be imported for that; empty: there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
