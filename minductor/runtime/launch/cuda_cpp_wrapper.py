"""Connects a wrapper in C++ with a GPU: torch's functions for CUDA, the driver's, and the kernels.

Takes a loaded library, and the kernels of its graph. Fills the tables of the library (minductor_cuda.h), and gives the
functions that Python launches kernels by where the machine code does not take the arguments. Refuses (LoadFailed) a
torch that lacks a function which the library calls.

A kernel whose launches are measured is launched by Python. Once the fastest launch is known, if it is the same for all
sizes, the library is told of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from minductor.core.errors import LoadFailed
from minductor.runtime.launch.cuda import Driver
from minductor.runtime.launch.gpu import Kernels, NativeKernel
from minductor.runtime.launch.load import Library

LIBRARY = "libtorch_cuda.so"
FindFunction = Callable[[str], int]  # from the name of a function of torch to its address; 0 if there is none


class _Link(ctypes.Structure):
    """`md_Link` of minductor_cuda.h."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.POINTER(ctypes.c_void_p)))


class _Kernel(ctypes.Structure):
    """`md_Kernel` of minductor_cuda.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kinds", ctypes.c_char_p),
        ("launch", ctypes.c_void_p),
        ("scratch", ctypes.c_int64),
        ("has_counter", ctypes.c_int64),
        ("other", ctypes.c_void_p),
    )


def torch_function(name: str) -> int:
    """The address of a function of the torch of this process; 0 if there is none of that name."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / LIBRARY))  # loaded already: torch needs it
    found = getattr(library, name, None)
    return 0 if found is None else ctypes.cast(found, ctypes.c_void_p).value or 0


@dataclass(slots=True)
class GpuParts:
    """What a wrapper in C++ for a GPU is connected with. `kernels`: None if its graph has none."""

    driver: Driver
    kernels: Kernels | None
    find: FindFunction = torch_function
    held: list[object] = field(default_factory=list[object])  # what the library points at

    def connect(self, library: Library) -> tuple[dict[str, Callable[..., int]], list[object]]:
        """Fills the tables of a library. Returns a function for each kernel, which launches it from Python, and what
        the library points at.
        """
        for link in _rows(library.address("md_links"), _Link):
            address = self._find(link.name.decode(), library)
            link.function[0] = address
        if self.kernels is None:
            return {}, self.held
        self.driver.connect(library)
        rows = list(_rows(library.address("md_kernels"), _Kernel))
        return {row.name.decode(): self._bound(self.kernels, row) for row in rows}, self.held

    def _find(self, name: str, library: Library) -> int:
        try:
            address = self.find(name)
        except OSError as error:
            raise LoadFailed(str(library.path), f"torch {torch.__version__} has no CUDA: {error}") from None
        if not address:
            raise LoadFailed(str(library.path), f"torch {torch.__version__} has no function {name}")
        return address

    def _bound(self, kernels: Kernels, row: _Kernel) -> Callable[..., int]:
        """Fills in a kernel. Returns the function that launches it from Python."""
        symbol = row.name.decode()
        kinds = kernels.kinds(symbol).encode()
        self.held.append(kinds)
        row.kinds = kinds
        found = kernels.native(symbol)
        self._tell(row, found)
        return found.other if found.record is not None else self._until_known(kernels, row, found)

    def _tell(self, row: _Kernel, kernel: NativeKernel) -> None:
        """Makes the library launch a kernel itself. Another thread may be about to launch it: the record comes last."""
        if kernel.record is not None:
            self.held.append(kernel.record)
            row.scratch, row.has_counter = kernel.scratch, kernel.has_counter
            row.launch = kernel.record.address

    def _until_known(self, kernels: Kernels, row: _Kernel, measured: NativeKernel) -> Callable[..., int]:
        """The launch of a kernel that is measured; behind a call the library is told which launch is the fastest."""
        taken = [measured]

        def run(*args: Any) -> int:
            if taken[0].record is not None:  # the library launches it, but for these arguments
                return taken[0].other(*args)
            status = measured.other(*args)
            taken[0] = kernels.native(row.name.decode())
            self._tell(row, taken[0])
            return status

        return run


def _rows(address: int, kind: type[Any]) -> Iterator[Any]:
    """The structures of an array that ends with one without a name."""
    while (row := kind.from_address(address)).name:
        yield row
        address += ctypes.sizeof(kind)
