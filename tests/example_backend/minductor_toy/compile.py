"""From the texts of a graph's kernels to functions that launch them: the C compiler and ctypes."""

from __future__ import annotations

import ctypes
import functools
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minductor.backends import Artefact, Env
from minductor.core.errors import BackendError
from minductor.ir.artefact.source import Unit

LIBRARY = "toy.so"
# Signed integers wrap around, and a product and a sum stay two roundings: as in eager.
FLAGS = ("-std=gnu99", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC")


@functools.cache
def probe() -> str:
    """What a library depends on beside its text: the compiler, and whom it compiles for."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise BackendError("the toy has no C compiler", hint="install one as `cc`")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    return f"{version.splitlines()[0]} {platform.machine()}"


def build(units: Sequence[Unit], folder: Path, env: Env) -> Mapping[str, bytes]:
    """Compiles into a folder that is gone afterwards; gives the files that the store keeps."""
    sources = [folder / unit.file for unit in units]
    for unit, source in zip(units, sources, strict=True):
        source.write_text(unit.text, encoding="utf-8")
    level = f"-O{env.options.backend_options['toy.optimise']}"
    subprocess.run(["cc", level, *FLAGS, *sources, "-o", folder / LIBRARY, "-lm"], check=True)
    return {LIBRARY: (folder / LIBRARY).read_bytes()}


def load(artefact: Artefact, env: Env) -> ctypes.CDLL:
    """The library of one graph, new or out of the store."""
    return ctypes.CDLL(str(artefact.file(LIBRARY)))


def launch(library: ctypes.CDLL, symbol: str) -> Callable[..., int]:
    """A kernel as a function of tensors, integers and floats; it returns 0 or the number of an error."""
    function = library[symbol]
    function.restype = ctypes.c_int64

    def launched(*args: Any) -> int:
        return function(*(_given(arg) for arg in args))

    return launched


def _given(arg: Any) -> Any:
    if isinstance(arg, int):
        return ctypes.c_int64(arg)
    return ctypes.c_double(arg) if isinstance(arg, float) else ctypes.c_void_p(arg.data_ptr())
