"""A device for torch that is called "toy" and lies in the CPU's memory.

A real device brings an extension in C++ that does what this file does; minductor needs nothing of it but that torch
knows the device. Its tensors are the CPU's, relabelled by way of DLPack, so that both see the same bytes. Whatever
eager mode asks of a toy tensor, the CPU does.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

ON_CPU, ON_TOY = 1, 12  # DLPack's kDLCPU and kDLExtDev
# The CPU's kernels of these look at no memory, or only at one number: they take a toy tensor as it is.
AS_IT_IS = """
    as_strided view unfold _reshape_alias view_as_real view_as_complex _local_scalar_dense
    set_.source_Tensor set_.source_Storage_storage_offset
"""
LIBRARY = "mm.out(Tensor self, Tensor mat2, *, Tensor(a!) out) -> Tensor(a!)"


class Module:
    """`torch.toy`."""

    device = contextlib.nullcontext  # of one device each is current

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """The CPU's generator draws the toy's numbers."""


def register() -> None:
    """Makes the device known; torch calls it once, by the entry point of `torch.backends`."""
    _setup_privateuseone_for_python_backend("toy", backend_module=Module())
    aten, fallback = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    for name in AS_IT_IS.split():
        packet, _, overload = name.partition(".")
        aten.impl(name, _by_cpu(getattr(getattr(torch.ops.aten, packet), overload or "default")), "PrivateUse1")
    aten.impl("empty.memory_format", _empty, "PrivateUse1")
    aten.impl("empty_strided", _empty_strided, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("convolution_overrideable", _convolution, "PrivateUse1")
    aten.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
    fallback.fallback(_on_cpu, "PrivateUse1")
    own = torch.library.Library("toy", "DEF")  # the library of the device: what minductor calls in place of aten.mm
    own.define(LIBRARY)
    own.impl("mm.out", _mm, "PrivateUse1")
    Module.libraries = (aten, fallback, own)  # they end when nobody holds them


def relabelled(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """A tensor of the same memory on another device."""
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # DLTensor opens with the address of the data, 8 bytes, then the type of the device.
    ctypes.cast(pointer(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_int32))[2] = device
    return torch.utils.dlpack.from_dlpack(capsule)


def _by_cpu(op: Any) -> Any:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return lambda *args, **kwargs: op.redispatch(keys, *args, **kwargs)


def _empty(size: Any, *, dtype: Any = None, memory_format: Any = None, **where: Any) -> torch.Tensor:
    made = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format)
    return relabelled(made, ON_TOY)


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **where: Any) -> torch.Tensor:
    return relabelled(torch.empty_strided(size, stride, dtype=dtype), ON_TOY)


def _copy_from(source: torch.Tensor, into: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    there, here = (relabelled(t, ON_CPU) if t.device.type == "toy" else t for t in (source, into))
    here.copy_(there)
    return into


def _convolution(*args: Any) -> Any:
    """Torch asks each device for one of its own."""
    return _on_cpu(torch.ops.aten.convolution.default, *args)


def _convolution_backward(grad: Any, given: Any, weight: Any, *how: Any) -> Any:
    return _on_cpu(torch.ops.aten.convolution_backward.default, grad, given, weight, [weight.shape[0]], *how)


def _mm(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    torch.mm(relabelled(left, ON_CPU), relabelled(right, ON_CPU), out=relabelled(out, ON_CPU))
    return out


def _on_cpu(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any other operator: on the CPU, with the same memory."""
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def down(given: Any) -> Any:
        if isinstance(given, torch.device):
            return torch.device("cpu")
        if not isinstance(given, torch.Tensor) or given.device.type != "toy":
            return given
        here = relabelled(given, ON_CPU)
        if not given.numel():  # it may be one to resize and write into, for which the CPU has to own it
            here = torch.empty_like(here)
        pairs.append((given, here))
        return here

    def up(made: Any) -> Any:
        if not isinstance(made, torch.Tensor):
            return made
        given = next((toy for toy, here in pairs if here is made), None)
        return relabelled(made, ON_TOY) if given is None else given

    # The dispatcher hands a number over as a number where the schema says tensor.
    rows = zip(args, op._schema.arguments, strict=False)
    args = tuple(
        torch.tensor(a) if str(s.type) == "Tensor" and isinstance(a, complex | float | int) else a for a, s in rows
    )
    args, kwargs = tree_map(down, (args, kwargs))
    result = op(*args, **kwargs)
    for toy, here in pairs:
        if here.shape != toy.shape:
            toy.set_(relabelled(here, ON_TOY))
    return tree_map(up, result)
