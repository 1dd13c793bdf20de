"""GPU kernels on CPU tensors: launches that go to Triton's interpreter in a process of its own.

Takes the text of a module of kernels, their launches as JSON, and a pool whose workers interpret. Gives, for each
symbol, a function that a wrapper calls as it would a compiled kernel. Refuses a launch of more programs than the target
allows (InterpretRefused). An index out of range and a failed assertion raise the error that eager raises.
"""

from __future__ import annotations

import builtins
import ctypes
from collections.abc import Callable, Mapping
from typing import Any, get_args

import torch

from minductor.core.errors import InterpretRefused
from minductor.ir.artefact.launch_metadata import MOST_IN_INT32, LaunchMetadata, default_launches
from minductor.ir.program.nodes import ErrorKind
from minductor.runtime.build.pool import Pool
from minductor.runtime.build.triton_jobs import AssertFailed, Memory, interpret_kernel
from minductor.runtime.launch.cuda import evaluate, steps

# what a worker's environment says: Triton reads it when it is imported
SETTINGS: Mapping[str, str | None] = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


class Interpreter:
    """The kernels of one graph: the module `text`, launched as `launches`, the text of LAUNCHES, says."""

    def __init__(self, text: str, launches: str, pool: Pool, max_programs: int) -> None:
        self.text = text
        self.pool = pool
        self.max_programs = max_programs
        self.launches = default_launches(launches)

    def bind(self, symbol: str) -> Callable[..., int]:
        """The kernel as a function of its tensors, its numbers and a number of threads, which returns the status 0."""
        metadata = self.launches[symbol]
        numbers = {name: number for number, name in enumerate(metadata.arguments)}
        programs, greatest = steps(metadata.programs, numbers), steps(metadata.greatest_index, numbers)
        count = metadata.pointers

        def launch(*args: Any) -> int:
            tensors, sizes = args[:count], args[count:-1]
            wanted = evaluate(programs, args)
            if wanted > self.max_programs:
                raise InterpretRefused(symbol, wanted, self.max_programs)
            if wanted:
                is_wide = bool(greatest) and evaluate(greatest, args) > MOST_IN_INT32
                self._run(metadata.wide() if is_wide else metadata, wanted, tensors, sizes)
            return 0

        return launch

    def _run(
        self, metadata: LaunchMetadata, programs: int, tensors: tuple[torch.Tensor, ...], sizes: tuple[Any, ...]
    ) -> None:
        storages: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            storages.setdefault(tensor.untyped_storage().data_ptr(), tensor.untyped_storage())
        order = list(storages)
        views: list[Memory] = []
        for tensor in (torch.view_as_real(t) if t.is_complex() else t for t in tensors):
            number, dtype = order.index(tensor.untyped_storage().data_ptr()), str(tensor.dtype).removeprefix("torch.")
            views.append(Memory(number, dtype, int(tensor.storage_offset())))
        before = [ctypes.string_at(at, storage.nbytes()) for at, storage in storages.items()]
        job = self.pool.submit(interpret_kernel, self.text, metadata, programs, before, views, sizes)
        try:
            after = job.result()
        except AssertFailed as failed:
            raise error_of(str(failed)) from None
        for at, old, new in zip(order, before, after, strict=True):
            if old != new:
                ctypes.memmove(at, new, len(new))


def error_of(text: str) -> Exception:
    """The exception for a failed assertion. Messages of index checks begin with the exception's name.

    >>> error_of("IndexError: index is out of bounds"), error_of("Expected: positive")
    (IndexError('index is out of bounds'), RuntimeError('Expected: positive'))
    """
    kind, _, message = text.partition(": ")
    return getattr(builtins, kind)(message) if kind in get_args(ErrorKind) else RuntimeError(text)
