"""Loads the part of a package that a GPU runs: the machine code for this kind of GPU, and the weights on it.

Takes a package's archive and manifest. Gives what the wrapper in C++ is connected with, and the memory of the weights
on the GPU, which they are sent to once. Refuses (PackageElsewhere) a process without a GPU of NVIDIA, a GPU that the
package has no code for, and a driver older than the CUDA that made the code. It compiles, measures and copies nothing.

The GPU is the one that is current when the package is loaded.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass

import torch

from minductor.core.errors import LoadFailed, PackageElsewhere, PackageRefused
from minductor.ir.artefact.launch_metadata import LAUNCHES, LaunchMetadata
from minductor.ir.artefact.manifest import GpuCode, Manifest
from minductor.runtime.launch.cuda import Driver
from minductor.runtime.launch.cuda_cpp_wrapper import FindFunction, GpuParts, torch_function
from minductor.runtime.launch.gpu import BINARIES, Kernels
from minductor.runtime.launch.launch import KERNELS
from minductor.runtime.launch.load import Library
from minductor.runtime.package.archive import Archive
from minductor.runtime.package.gpu_binaries import ALIGNED, ANY, CODE, TABLE, unpack
from minductor.target import TARGETS, by_name, of_capability


@dataclass(frozen=True, slots=True)
class LocalGpu:
    """The GPU of this process that a package runs on."""

    device: torch.device
    capability: tuple[int, int]
    driver: Driver
    find: FindFunction = torch_function


def local_gpu() -> LocalGpu | None:
    """The current GPU of this process; None if there is none of NVIDIA."""
    if torch.version.hip is not None or not torch.cuda.is_available():
        return None
    number = torch.cuda.current_device()
    return LocalGpu(torch.device("cuda", number), torch.cuda.get_device_capability(number), Driver())


@dataclass(frozen=True, slots=True)
class GpuPackage:
    """The part of a package for the GPU of this process."""

    archive: Archive
    gpu: LocalGpu
    code: GpuCode

    @property
    def prefix(self) -> str:
        """What the names of the entries begin with."""
        return f"{self.code.target}_"

    def entry(self, name: str) -> memoryview:
        found = self.archive.entries.get(f"{self.prefix}{name}")
        if found is None:
            raise PackageRefused(str(self.archive.path), f"it has no {self.prefix}{name}")
        return found

    def connect(self, library: Library) -> tuple[dict[str, Callable[..., int]], list[object]]:
        """Connects the wrapper's library with the GPU; see `cuda_cpp_wrapper.py: GpuParts`."""
        kernels = self._kernels() if f"{self.prefix}{KERNELS}" in self.archive.entries else None
        ctypes.c_int32.from_address(library.address("md_gpu")).value = self.gpu.device.index or 0
        return GpuParts(self.gpu.driver, kernels, self.gpu.find).connect(library)

    def _kernels(self) -> Kernels:
        files = unpack(str(self.archive.path), bytes(self.entry(TABLE)), self.entry(CODE))
        texts = {name: bytes(self.entry(name)) for name in (KERNELS, LAUNCHES)}

        def of_any_pointers(launch: LaunchMetadata) -> dict[str, bytes]:
            return files(ANY, [launch.name])

        def of_other_sizes(launch: LaunchMetadata) -> dict[str, bytes]:
            return files(ALIGNED, [launch.name])

        aligned = files(ALIGNED, None)
        self._check_shared(aligned[BINARIES])
        contents = {**aligned, **texts}
        return Kernels(contents, self.gpu.driver, None, of_any_pointers, of_other_sizes)

    def _check_shared(self, table: bytes) -> None:
        """Raises PackageElsewhere for a kernel that needs more shared memory than a program has on this GPU."""
        here = of_capability(*self.gpu.capability)
        for name, row in json.loads(table).items():
            if here is not None and row["shared"] > here.shared_memory:
                why = f"{name} needs {row['shared']} bytes of shared memory, and {here.name} has {here.shared_memory}"
                hint = "load it on a GPU that has more, or export the program for the CPU"
                raise PackageElsewhere(str(self.archive.path), why, hint=hint)

    def sent(self, data: memoryview) -> torch.Tensor:
        """The bytes of the weights on the GPU."""
        if not data:
            return torch.empty(0, dtype=torch.uint8, device=self.gpu.device)
        return torch.frombuffer(data, dtype=torch.uint8).to(self.gpu.device)


def gpu_package(archive: Archive, manifest: Manifest, gpu: LocalGpu | None) -> GpuPackage:
    """The part of a package for a GPU. Raises PackageElsewhere if the package has none for it, or there is no GPU."""
    path, names = str(archive.path), ", ".join(code.target for code in manifest.gpus)
    if gpu is None:
        why = f"it is made for GPUs of NVIDIA ({names}), and torch finds none in this process"
        raise PackageElsewhere(path, why, hint="load it on a machine with such a GPU, or export it for the CPU")
    here = of_capability(*gpu.capability)
    found = [code for code in manifest.gpus if here is not None and here.runs(by_name(code.target))]
    if not found:
        major, minor = gpu.capability
        runs = [name for name, row in TARGETS.items() if here is not None and here.runs(row)]
        hint = f"export it with target={runs[-1]!r}" if runs else "minductor has no target for this GPU"
        raise PackageElsewhere(path, f"it has machine code for {names}, and this GPU is sm_{major}{minor}", hint=hint)
    code = max(found, key=lambda code: int(by_name(code.target).arch))
    _check_driver(path, gpu.driver, code)
    return GpuPackage(archive, gpu, code)


def _check_driver(path: str, driver: Driver, code: GpuCode) -> None:
    """Raises PackageElsewhere for a driver that is older than the code by a major version of CUDA."""
    try:
        version = int(driver.version())
    except LoadFailed as error:
        raise PackageElsewhere(path, f"the driver does not answer: {error.why}") from error
    if code.cuda and version // 1000 < int(code.cuda.partition(".")[0]):
        has = f"{version // 1000}.{version % 1000 // 10}"
        hint = "install a newer driver, or export it with the Triton of an older CUDA"
        why = f"its machine code is made with CUDA {code.cuda}, and the driver here has CUDA {has}"
        raise PackageElsewhere(path, why, hint=hint)
