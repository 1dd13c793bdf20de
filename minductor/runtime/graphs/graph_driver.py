"""The device as recordings see it: record, replay, copy, and which stream is the current one.

Takes functions and tensors. Gives recorded graphs. Refuses what torch refuses while it records (`RecordFailed`).
Nothing else under `runtime/graphs/` calls torch.cuda; tests have a driver that writes down what it is asked.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch

Tensors = Sequence[torch.Tensor]
MOST_TOGETHER = 1 << 15  # bytes: one block of a foreach operator copies 65,536 elements, so it is slow for more
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_COUNTING = "torch._inductor.cudagraph_trees"  # torch counts steps there; this package never imports it


class Stream(NamedTuple):
    """A stream of a device, by the device's number and the stream's handle."""

    device: int
    handle: int


class RecordFailed(Exception):
    """A function could not be recorded; the text says why."""


class GraphDriver(Protocol):
    """What recordings ask of a device."""

    def current_stream(self, device: str) -> Stream:
        """The current stream of a device, "cuda" or "cuda:1"."""
        ...

    def is_recording(self) -> bool:
        """Whether somebody, such as the user, records the current stream already."""
        ...

    def make_pool(self) -> Any:
        """The handle of a new pool of memory."""
        ...

    def record(self, run: Callable[[], Tensors], pool: Any, stream: Stream) -> tuple[Any, Tensors]:
        """Records what `run` launches, without running it. Returns the graph and the results of `run`, which lie in the
        pool. Raises RecordFailed."""
        ...

    def outside(self, stream: Stream, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `make` makes, while this thread records, outside of the recording's pool: in memory of `stream`."""
        ...

    def replay(self, graph: Any) -> None:
        """Launches a recorded graph on the current stream of its device."""
        ...

    def lie_there(self, numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
        """A function of a call's arguments: whether the tensors with these numbers begin at these addresses."""
        ...

    def copy(self, into: Tensors, values: Tensors) -> None:
        """Copies tensors into others of the same layouts: small ones in one launch, where their dtypes allow it."""
        ...

    def forbid(self, tensor: torch.Tensor, message: str) -> None:
        """Makes each later use of the tensor's storage an error with this message."""
        ...

    def step(self) -> int:
        """How often torch.compiler.cudagraph_mark_step_begin() was called."""
        ...


def lie_there(numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
    """`GraphDriver.lie_there` in Python; C takes a tenth of its time (`minductor.runtime.launch.cuda.lie_there`)."""
    places = list(addresses)
    return lambda *args: [args[number].data_ptr() for number in numbers] == places


def marked_steps() -> int:
    """How often torch.compiler.cudagraph_mark_step_begin() was called.

    Torch counts the calls, downwards, in a module that this function of torch's imports.
    """
    module = sys.modules.get(_COUNTING)
    return -module.MarkStepBox.mark_step_counter if module is not None else 0


@dataclass(slots=True)
class TorchDriver:
    """GPUs of NVIDIA, by torch.cuda. Graphs are recorded on a stream of each device's own. `places`: `lie_there`."""

    places: Callable[[Sequence[int], Sequence[int]], Callable[..., bool]] = lie_there
    _streams: dict[int, torch.cuda.Stream] = field(default_factory=dict[int, torch.cuda.Stream])
    is_recording = staticmethod(getattr(torch._C, "_cuda_isCurrentStreamCapturing", bool))  # asked at each call
    step = staticmethod(marked_steps)

    def current_stream(self, device: str) -> Stream:
        number = _number(device)
        number = torch.cuda.current_device() if number is None else number
        return _stream(number, torch._C._cuda_getCurrentRawStream(number))

    def make_pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def record(self, run: Callable[[], Tensors], pool: Any, stream: Stream) -> tuple[Any, Tensors]:
        with recording_lock(), torch.cuda.device(stream.device):
            side = self._streams.get(stream.device)
            if side is None:
                side = self._streams[stream.device] = torch.cuda.Stream(stream.device)
            graph = torch.cuda.CUDAGraph()
            clear_workspaces()
            try:
                with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                    results = run()
            except torch.cuda.OutOfMemoryError as error:
                raise RecordFailed(f"there is no room for its pool: {_first_line(error)}") from error
            except Exception as error:  # what the function itself raises is raised again when it runs without a graph
                raise RecordFailed(_first_line(error)) from error
            finally:
                clear_workspaces()
        return graph, results

    def outside(self, stream: Stream, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        number, handle = stream.device, stream.handle
        callers = torch.cuda.ExternalStream(handle, number) if handle else torch.cuda.default_stream(number)
        with torch.cuda.stream(callers), _unguarded():
            return make()

    def replay(self, graph: Any) -> None:
        graph.replay()

    def lie_there(self, numbers: Sequence[int], addresses: Sequence[int]) -> Callable[..., bool]:
        return self.places(numbers, addresses)

    def copy(self, into: Tensors, values: Tensors) -> None:
        small_into: list[torch.Tensor] = []
        small: list[torch.Tensor] = []
        for place, value in zip(into, values, strict=True):
            if place.nbytes > MOST_TOGETHER:
                place.copy_(value, non_blocking=True)
            else:
                small_into.append(place)
                small.append(value)
        if len(small) == 1:
            small_into[0].copy_(small[0], non_blocking=True)
        elif small:
            torch.ops.aten._foreach_copy_(small_into, small, non_blocking=True)

    def forbid(self, tensor: torch.Tensor, message: str) -> None:
        forbid: Any = getattr(torch._C, "_set_storage_data_ptr_access_error_msg", None)
        if forbid is None:
            raise RuntimeError(message)
        forbid(tensor.untyped_storage()._cdata, message)


@functools.lru_cache(maxsize=256)
def _stream(device: int, handle: int) -> Stream:
    """A Stream, which is asked for at each call."""
    return Stream(device, handle)


@functools.lru_cache(maxsize=64)
def _number(device: str) -> int | None:
    """The number of a device, "cuda" or "cuda:1"; None for the current one. Asked at each call."""
    number = device.partition(":")[2]
    return int(number) if number else None


@functools.cache
def recording_lock() -> Lock:
    """The lock of this process for recording: torch waits for the device before it begins, which ends a recording."""
    return Lock()


def clear_workspaces() -> None:
    """Frees the memory that cuBLAS works in, which torch keeps for each stream.

    A recording then takes it from its own pool, where no other pool's replay writes, and leaves nothing in the pool.
    """
    torch._C._cuda_clearCublasWorkspaces()


@contextmanager
def _unguarded() -> Iterator[None]:
    """Lets this thread ask for memory outside of a recording's pool, which CUDA takes for a mistake while it records.

    Torch's allocator does the same for memory of the pool.
    """
    exchange, mode = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode, ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
