"""NVIDIA's driver: from a kernel's binary to a built-in function that launches it.

Takes the bytes of a cubin, and what a launch needs to know. Gives functions of tensors, numbers and a stream, which
return the status 0 as kernels for a CPU do. Refuses a machine without a driver, and a binary that the driver refuses
(LoadFailed). Torch makes the CUDA context; this file makes none.

A launch runs in C: cuda_launch.h reads the arguments, and minductor_launch.h calls the driver. Without a C++ compiler,
ctypes does the same in ten times the time. Wrappers in C++ include minductor_launch.h too.

>>> evaluate(steps(("s0", 1023, "+", 1024, "//", 4, "*"), {"s0": 2}), [None, None, 5000])
20
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, floordiv, mod, mul, sub
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from minductor.core.errors import LoadFailed
from minductor.ir.artefact.launch_metadata import MOST_IN_INT32, Postfix
from minductor.runtime.launch.load import Library, c_api
from minductor.target import Target, of_capability

DRIVER = "libcuda.so.1"
DEFAULT_SHARED = 48 * 1024  # bytes of a program; the driver must be asked for more
ALIGNMENT = 16  # bytes; minductor_launch.h says the same
MAX_STACK = 64
# of kernels that ran, in minductor_launch.h as well, with the hint
LATE_ERRORS = frozenset((700, 702, 710, *range(714, 720)))
LATE_HINT = "; it or a kernel before it failed: with CUDA_LAUNCH_BLOCKING=1 each launch waits, and the error names it"
METH_FASTCALL = 0x80  # of Python's C API: a function of an array of arguments and their number
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# as `md_driver` in minductor_launch.h has them
_TABLE = (
    *("cuLaunchKernel", "cuGetErrorString", "cuPointerGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"),
    "cuStreamIsCapturing",
)
END, CONSTANT, ARGUMENT = range(3)
# What a number of programs is computed with. Their codes in minductor_launch.h follow ARGUMENT, in order.
OPERATORS: Mapping[int | str, Callable[..., Any]] = MappingProxyType(
    {"+": add, "-": sub, "*": mul, "//": floordiv, "%": mod, "min": min, "max": max}
)
CODES: Mapping[int | str, int] = MappingProxyType({name: code for code, name in enumerate(OPERATORS, ARGUMENT + 1)})
# As in minductor_launch.h, a division by zero has a result.
_DIVISIONS: Mapping[int | str, Callable[[int, int], int]] = MappingProxyType(
    {"//": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else a}
)
_PYTHON = MappingProxyType({CODES[name]: function for name, function in {**OPERATORS, **_DIVISIONS}.items()})
Steps = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Launch:
    """What launches need beside the binary.

    `kinds` has a letter per argument: p pointer, i integer, d double; 2, 3 and 4 an integer that 2 to
    this power divides.
    """

    entry: str  # the kernel's name in the binary
    kinds: str
    programs: Steps
    threads: int
    shared: int = 0  # bytes of a program
    is_aligned: bool = True  # it relies on pointers at multiples of ALIGNMENT
    greatest_index: Steps = ()  # what no index exceeds, if the kernel relies on 32 bits to hold it

    def takes(self, args: Sequence[Any]) -> bool:
        """Whether the kernel takes these arguments of the launch: pointers that are aligned, and such sizes."""
        for kind, arg in zip(self.kinds, args, strict=True):
            if kind == "p" and self.is_aligned and arg.data_ptr() % ALIGNMENT:
                return False
            if kind.isdecimal() and arg % (1 << int(kind)):
                return False
        return not self.greatest_index or evaluate(self.greatest_index, args) <= MOST_IN_INT32


def steps(programs: Postfix, arguments: Mapping[str, int]) -> Steps:
    """A number that a launch computes, such as that of its programs, for the stack machine of minductor_launch.h.

    `arguments`: the number of each argument of the launch, by name.
    """
    found: list[tuple[int, int]] = []
    depth = most = 0
    for item in programs:
        if item in CODES:
            found.append((CODES[item], 0))
            depth -= 1
            continue
        found.append((CONSTANT, item) if isinstance(item, int) else (ARGUMENT, arguments[item]))
        depth += 1
        most = max(most, depth)
    if most > MAX_STACK:
        raise ValueError(f"a number of programs with more than {MAX_STACK} open operands: {programs}")
    return tuple(found)


def evaluate(programs: Steps, arguments: Sequence[Any]) -> int:
    """The number that steps compute, as the stack machine of minductor_launch.h computes it."""
    stack: list[int] = []
    for code, value in programs:
        if code in _PYTHON:
            right = stack.pop()
            stack.append(_PYTHON[code](stack.pop(), right))
        else:
            stack.append(value if code == CONSTANT else int(arguments[value]))
    return stack[-1]


class Driver:
    """The driver's library."""

    def __init__(self, path: str = DRIVER) -> None:
        self.path = path
        try:
            self._handle = ctypes.CDLL(path)
        except OSError as error:
            raise LoadFailed(path, str(error)) from None

    def load(self, binary: bytes, launch: Launch) -> int:
        """The kernel's handle, for all devices. Each device loads the kernel at its first launch there."""
        library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        none = (None, None, ctypes.c_uint(0), None, None, ctypes.c_uint(0))
        self._call("cuLibraryLoadData", ctypes.byref(library), ctypes.c_char_p(binary), *none)
        self._call("cuLibraryGetKernel", ctypes.byref(kernel), library, launch.entry.encode())
        if launch.shared > DEFAULT_SHARED:
            count = ctypes.c_int()
            self._call("cuDeviceGetCount", ctypes.byref(count))
            for device in map(ctypes.c_int, range(count.value)):
                self._call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, ctypes.c_int(launch.shared), kernel, device)
        return kernel.value or 0

    def _call(self, name: str, *args: Any) -> None:
        try:
            function = self._handle[name]
        except AttributeError:
            raise LoadFailed(self.path, f"it has no {name}: a driver of CUDA 12 or later is needed") from None
        if status := function(*args):
            raise LoadFailed(self.path, f"{name}: {self.error(status)}")

    def error(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._handle["cuGetErrorString"](status, ctypes.byref(text))
        return (text.value or b"unknown").decode()

    def version(self) -> str:
        """The version of CUDA that the driver has, such as "12080".

        The binary of a kernel does not depend on it, but how fast the kernel runs may.
        """
        found = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(found))
        return str(found.value)

    def connect(self, launcher: Library) -> None:
        """Passes the addresses of the driver's functions to the compiled launcher."""
        table = launcher.address("md_driver")
        for number, name in enumerate(_TABLE):
            found = ctypes.cast(self._handle[name], ctypes.c_void_p).value or 0
            ctypes.c_void_p.from_address(table + number * ctypes.sizeof(ctypes.c_void_p)).value = found

    def slow(self, symbol: str, kernel: int, launch: Launch, other: Callable[..., int]) -> Callable[..., int]:
        """The launch by ctypes, for a machine without a C++ compiler."""
        types = {"p": ctypes.c_void_p, **dict.fromkeys("i234", ctypes.c_int64), "d": ctypes.c_double}

        def run(*args: Any) -> int:
            if len(args) != len(launch.kinds):
                raise TypeError(f"{symbol} takes {len(launch.kinds)} arguments")
            if not launch.takes(args):
                return other(*args)
            values = [arg.data_ptr() if kind == "p" else arg for kind, arg in zip(launch.kinds, args, strict=True)]
            programs = evaluate(launch.programs, args)
            if programs > 0:
                words = [types[kind](value) for kind, value in zip(launch.kinds[:-1], values[:-1], strict=True)]
                self._launch(symbol, kernel, launch, programs, [*words, *(ctypes.c_void_p() for _ in range(2))], args)
            return 0

        return run

    def _launch(
        self, symbol: str, kernel: int, launch: Launch, programs: int, words: Sequence[Any], args: Sequence[Any]
    ) -> None:
        if programs > 2**31 - 1:
            raise OverflowError(f"{symbol} would have {programs} programs")
        row = (ctypes.c_void_p * len(words))(*(ctypes.addressof(word) for word in words))
        shape = [ctypes.c_uint(n) for n in (programs, 1, 1, launch.threads, 1, 1, launch.shared)]
        given = (ctypes.c_void_p(kernel), *shape, ctypes.c_void_p(args[-1]), row, None)
        if status := self._handle["cuLaunchKernel"](*given):
            hint = LATE_HINT if status in LATE_ERRORS else ""
            raise RuntimeError(f"CUDA error: {self.error(status)} ({status}, at the launch of {symbol}){hint}")


# the fields of Python's PyMethodDef
_METHOD = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class _Record(ctypes.Structure):
    """`md_Launch` of minductor_launch.h."""

    _fields_ = (
        *_METHOD,
        ("kernel", ctypes.c_void_p),
        ("programs", ctypes.c_void_p),
        ("greatest_index", ctypes.c_void_p),
        ("kinds", ctypes.c_char_p),
        *((name, ctypes.c_int) for name in ("count", "threads", "shared", "is_aligned")),
    )


def bind(launcher: Library, symbol: str, kernel: int, launch: Launch, other: Callable[..., int]) -> Callable[..., int]:
    """The kernel as a built-in function. For arguments that the binary does not take, the function calls `other`."""
    made = record(symbol, kernel, launch, launcher.address("md_launch"))
    own = (made.address, made, other)
    make = c_api("PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(made.address, own, None)


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """An `md_Launch` of minductor_launch.h at an address; it is there as long as this object."""

    address: int
    held: tuple[object, ...]


def record(symbol: str, kernel: int, launch: Launch, call: int = 0) -> LaunchRecord:
    """What C needs for launches of a kernel. `call`: the address of the function that Python calls."""
    programs, greatest = _words(launch.programs), _words(launch.greatest_index)
    made = _Record(
        symbol.encode(),
        call,
        METH_FASTCALL,
        None,
        kernel,
        ctypes.addressof(programs),
        ctypes.addressof(greatest) if launch.greatest_index else None,
        launch.kinds.encode(),
        len(launch.kinds),
        launch.threads,
        launch.shared,
        launch.is_aligned,
    )
    return LaunchRecord(ctypes.addressof(made), (made, programs, greatest))


class _Places(ctypes.Structure):
    """`md_Places` of cuda_launch.h."""

    _fields_ = (
        *_METHOD,
        ("numbers", ctypes.POINTER(ctypes.c_longlong)),
        ("addresses", ctypes.POINTER(ctypes.c_void_p)),
        ("count", ctypes.c_long),
    )


def lie_there(launcher: Library, numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
    """A built-in function of a call's arguments: whether the tensors with these numbers begin at these addresses."""
    tables = (ctypes.c_longlong * len(numbers))(*numbers), (ctypes.c_void_p * len(numbers))(*addresses)
    made = _Places(b"lie_there", launcher.address("md_lie_there"), METH_FASTCALL, None, *tables, len(numbers))
    make = c_api("PyCFunction_NewEx", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    return make(ctypes.addressof(made), (ctypes.addressof(made), made, tables), None)


def _words(counted: Steps) -> ctypes.Array[ctypes.c_int64]:
    """Steps as minductor_launch.h reads them."""
    flat = [word for step in (*counted, (END, 0)) for word in step]
    return (ctypes.c_int64 * len(flat))(*flat)


def launcher_text() -> str:
    """The source of the library that `bind` needs."""
    folder = Path(__file__).parent
    files = (folder / "include" / "minductor_launch.h", folder / "cuda_launch.h")
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def target_of(device: str) -> Target | None:
    """The target of a device of this process; None if the device is not NVIDIA's, or older than all known targets."""
    if torch.version.hip is not None or not torch.cuda.is_available():
        return None
    return of_capability(*torch.cuda.get_device_capability(device))
