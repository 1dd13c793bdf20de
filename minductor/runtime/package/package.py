"""Loads a package: the exported program as a callable, without the compiler.

Takes the path of a package. Gives a callable with the program's own arguments and results. Refuses damaged or altered
files (PackageRefused), a machine or torch that lacks what the code needs (PackageElsewhere), and calls with inputs
other than those it was exported for (WrongInput), before anything of the program runs.

Loading runs native code: load only what you trust. The weights stay in the mapped file, which processes share; those
of a program for GPUs are sent to the GPU, once. Buffers that the program changes belong to the loaded package. There
are no gradients.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as trees

from minductor.core.dtypes import by_name
from minductor.core.errors import LoadFailed, PackageElsewhere, PackageRefused
from minductor.ir.artefact.manifest import Manifest, Weight
from minductor.runtime.build.probe import probe
from minductor.runtime.launch import launch_cpp_wrapper
from minductor.runtime.launch.launch import LIBRARY, WRAPPER, WRAPPER_CPP, Call, copied, launch
from minductor.runtime.launch.load import Library, load_library
from minductor.runtime.package.archive import Archive, open_archive
from minductor.runtime.package.package_call_check import CallCheck
from minductor.runtime.package.pytree_json import read_tree
from minductor.runtime.user_paths import user_path

if TYPE_CHECKING:
    from minductor.runtime.package.package_gpu import GpuPackage

MANIFEST, PLAN, CONSTANTS, PLAIN = "manifest.json", "plan.json", "constants.bin", "plain.so"


class Package:
    """An exported program. `manifest` describes it; `state` are the buffers that its calls change, by name."""

    def __init__(self, manifest: Manifest, call: Call, state: Mapping[str, Any], device: str = "cpu") -> None:
        self.manifest = manifest
        self.state = state
        self._call = call
        self._inputs = CallCheck(manifest, device)
        self._results = read_tree(manifest.out_spec)

    @property
    def needs_torch(self) -> tuple[str, ...]:
        """The operators for which the program calls torch."""
        return self.manifest.needs_torch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program once; WrongInput if an argument is not of the exported type, dtype, size or device."""
        given = self._inputs.read(args, kwargs)
        with torch.no_grad():
            results = self._call([*given, *self.state.values()])
        return trees.tree_unflatten(list(results), self._results)


def load(path: str | os.PathLike[str]) -> Package:
    """Loads the program of a package file. This runs native code from the file: load what you trust.

    The program is not called. A program for GPUs is loaded for the GPU that is the current one now.

    Args:
        path: a file that `minductor.export` has written.

    Returns:
        A callable with the arguments and results of the exported program; `manifest` describes both.

    Raises:
        BadArgument: `path` is no path.
        PackageRefused: the file is no package, is damaged, or cannot be read.
        PackageElsewhere: the package needs another processor, GPU, driver, torch or minductor.

    Examples:
        >>> import torch, minductor
        >>> minductor.export(torch.nn.Linear(4, 2), (torch.ones(1, 4),), "linear.zip")  # doctest: +SKIP
        >>> minductor.load("linear.zip")(torch.ones(1, 4))  # doctest: +SKIP
    """
    archive = open_archive(user_path("the path of a package", path))
    manifest = read_manifest(archive)
    _check_machine(archive.path, manifest)
    gpu = None
    if manifest.gpus:
        from minductor.runtime.package import package_gpu

        gpu = package_gpu.gpu_package(archive, manifest, package_gpu.local_gpu())
    sent = None if gpu is None else gpu.sent(archive.entries.get(CONSTANTS, memoryview(b"")))
    held = {weight.name: _weight(archive, weight, sent) for weight in manifest.weights if not weight.is_state}
    changed = {weight.name: _weight(archive, weight, sent) for weight in manifest.weights if weight.is_state}
    state = {name: copied(value, value.shape, value.stride()) for name, value in changed.items()}
    try:
        call = _call(archive, held, gpu)
    except (AttributeError, ImportError, LoadFailed) as error:
        reason = error.why if isinstance(error, LoadFailed) else error
        why = f"made with torch {manifest.torch}, it does not find in torch {torch.__version__}: {reason}"
        raise PackageElsewhere(str(archive.path), why) from error
    return Package(manifest, call, state, "cpu" if gpu is None else str(gpu.gpu.device))


def _entry(archive: Archive, name: str) -> bytes:
    found = archive.entries.get(name)
    if found is None:
        raise PackageRefused(str(archive.path), f"it has no {name}")
    return bytes(found)


def read_manifest(archive: Archive) -> Manifest:
    """The package's description of itself."""
    try:
        return Manifest.read(_entry(archive, MANIFEST).decode())
    except ValueError as error:
        raise PackageRefused(str(archive.path), str(error)) from error


def machine() -> str:
    """The kind of machine for which a shared object is built, without the processor's features."""
    return f"{platform.system()} {platform.machine()}".lower()


def _check_machine(path: Path, manifest: Manifest) -> None:
    if manifest.machine != machine():
        raise PackageElsewhere(str(path), f"it is made for {manifest.machine}, and this is {machine()}")
    if manifest.interface != launch_cpp_wrapper.interface():
        raise PackageElsewhere(
            str(path), f"minductor {manifest.minductor} wrote machine code that this version cannot call"
        )
    missing = sorted({*manifest.features} - {*probe().features})
    if missing:
        raise PackageElsewhere(str(path), f"its code may use {', '.join(missing)}, which this processor lacks")


def _weight(archive: Archive, weight: Weight, sent: torch.Tensor | None) -> torch.Tensor:
    """A tensor whose memory is in the mapped file, or in `sent`, the bytes of all weights on a GPU."""
    dtype = getattr(torch, by_name(weight.layout.dtype).torch_name)
    size, stride = tuple(map(int, weight.layout.size)), tuple(map(int, weight.layout.stride))
    if not weight.bytes:
        return torch.empty_strided(size, stride, dtype=dtype, device=None if sent is None else sent.device)
    held = archive.entries.get(CONSTANTS, memoryview(b""))[weight.offset : weight.offset + weight.bytes]
    if len(held) != weight.bytes:
        raise PackageRefused(str(archive.path), f"{weight.name} is outside of its constants")
    if sent is not None:
        return sent[weight.offset : weight.offset + weight.bytes].view(dtype).as_strided(size, stride)
    return torch.frombuffer(held, dtype=torch.uint8).view(dtype).as_strided(size, stride)


def _call(archive: Archive, held: Mapping[str, torch.Tensor], gpu: GpuPackage | None) -> Call:
    """The compiled call, for a wrapper in Python or C++."""
    name = archive.path.name
    library = _library(archive, LIBRARY if gpu is None else f"{gpu.prefix}{LIBRARY}")
    if gpu is not None:
        if library is None:
            raise PackageRefused(str(archive.path), f"it has no {gpu.prefix}{LIBRARY}")
        return launch_cpp_wrapper.launch(library, name, held, [], connect=gpu.connect)
    if WRAPPER_CPP in archive.entries and library is not None:
        return launch_cpp_wrapper.launch(library, name, held, [])
    return launch(_entry(archive, WRAPPER).decode(), None if library is None else library.bind, name, held, [])


def _library(archive: Archive, name: str) -> Library | None:
    """The machine code, loaded from a temporary file that only this user can write and that is removed at once."""
    if name not in archive.entries:
        return None
    with tempfile.TemporaryDirectory(prefix="minductor-") as folder:  # mode 0700
        file = Path(folder) / LIBRARY
        file.write_bytes(archive.entries[name])
        return load_library(file)
