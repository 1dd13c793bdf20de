"""The memory in which candidates of a choice are tried: each starts with the contents of the caller's tensors.

Takes the arguments of a call, and which of them candidates write and overwrite. Gives methods that prepare a run,
compare the results of two candidates, and restore the contents. Refuses copies for which there is no memory (NoRoom).

Candidates run on the caller's own tensors, so that tensors that share memory still do. A copy is flat, from the first
to the last byte; arguments that share memory share a copy. Copies stay on the device if they hardly raise its peak, and
are kept in host memory otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

SMALL = 1 << 20  # bytes: copies up to this size always stay on the device
SHARE = 20  # copies on the device may take one in so many bytes of the arguments; as many are for comparing
COLD_SHARE = 4  # arguments of more than one in so many bytes of a cache are not expected there: other work has used it
LEAST_CHUNK, MOST_CHUNK = 1 << 18, 1 << 24  # bytes that one comparison covers
COMPARED = 20  # comparing a chunk takes at most so many times its bytes: 16-bit floats are widened
FILLING = 0xA5  # fills memory that candidates only write, so that an element that is not written is found
# by the bytes of a float: a relative tolerance, of its own size and of a typical size (matmul may use TF32)
TOLERANCES: Mapping[int, float] = MappingProxyType({8: 1e-8, 4: 1e-3, 1: 0.3})
HALVES: Mapping[torch.dtype, float] = MappingProxyType({torch.float16: 1e-2, torch.bfloat16: 5e-2})
WHOLE: Mapping[int, torch.dtype] = MappingProxyType({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64})
REAL: Mapping[torch.dtype, torch.dtype] = MappingProxyType(
    {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
)
USUAL = 10  # the typical size is at most so many times the size that nine in ten values exceed
SAMPLE = 1 << 16  # values of a chunk among which that size is sought: among millions it would take most of a comparison
ROUNDED = 0.01  # the share of integers that may differ if a choice affects bits: they may be rounded floats


class NoRoom(RuntimeError):
    """There is no memory for the copies that a measurement needs."""


def free_host_memory() -> int:
    """The free bytes of the machine, or of this process's control group if that has less."""
    found = [1 << 62]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
        group = Path("/sys/fs/cgroup")
        limit, used = ((group / name).read_text(encoding="utf-8") for name in ("memory.max", "memory.current"))
        found.append(int(limit) - int(used))
    except (OSError, ValueError):  # another system, or a group without a limit
        pass
    return min(found)


def _spare(device: torch.device) -> int:
    """How far the memory in use on a device is below its peak: copies of so many bytes do not raise the peak."""
    if device.type != "cuda":
        return 0
    return torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)


def cache_flush(memory: TrialMemory, cache: Callable[[torch.device], int]) -> Callable[[], object] | None:
    """A function that empties the cache of the device of a call, by writing a buffer of the cache's size.

    `cache` gives the bytes of a device's cache. The result is None if kernels find the call's tensors in the cache,
    which small tensors are since the kernel before wrote them, or if the buffer would raise the peak: it may take half
    a tenth of what is allocated, since the other half is for copies.
    """
    if len(memory.devices) != 1:
        return None
    (device,) = memory.devices
    size = cache(device)
    if not size or memory.given * COLD_SHARE <= size:
        return None
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else memory.given
    if size > max(SMALL, _spare(device), held // SHARE):
        return None
    try:
        return torch.empty(size, dtype=torch.uint8, device=device).zero_
    except torch.OutOfMemoryError:  # free memory may be fragmented
        return None


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the byte after its last one."""
    if not tensor.numel():
        return 0, 0
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()


@dataclass(slots=True)
class _Span:
    """Bytes of one storage that candidates write. Arguments that overlap there share a span."""

    storage: torch.UntypedStorage
    start: int  # in the storage
    end: int
    device: torch.device
    is_read: bool
    is_kept: bool  # what it held is put back
    memory: torch.Tensor
    before: torch.Tensor
    results: torch.Tensor


class TrialMemory:
    """The memory that candidates write, with copies of its contents and of the default's results."""

    def __init__(
        self,
        args: Sequence[Any],
        overwritten: Sequence[int],
        written: Sequence[int] | None = (),
        room: Callable[[], int] = free_host_memory,
    ) -> None:
        """`overwritten` and `written` are numbers of arguments; an overwritten argument counts as written.

        If `written` is None, all tensors are compared, and the overwritten ones are restored.
        """
        tensors = {number: arg for number, arg in enumerate(args) if isinstance(arg, torch.Tensor) and arg.numel()}
        compared = tensors if written is None else {*overwritten, *written}
        self.tensors = {number: tensors[number] for number in sorted(compared) if number in tensors}
        self.spans: list[_Span] = []
        self.places: dict[int, tuple[_Span, int]] = {}  # of each argument that is written: where it begins
        reaches = {number: reach(tensor) for number, tensor in tensors.items()}
        for number in sorted(self.tensors, key=reaches.__getitem__):
            start, end = reaches[number]
            others = (other for n, other in reaches.items() if n != number)
            is_read = number in overwritten or any(start < last and first < end for first, last in others)
            is_kept = written is not None or number in overwritten
            self._place(number, start, end, is_read=is_read, is_kept=is_kept)
        self.given = sum(end - start for start, end in reaches.values())  # bytes
        self.devices = {tensor.device for tensor in tensors.values()}
        self.chunk = min(max(LEAST_CHUNK, self.given // SHARE // COMPARED // 16 * 16), MOST_CHUNK)
        self.is_far = self._copy(self.given, room)
        self.has_read = any(span.is_read and span.is_kept for span in self.spans)

    def _place(self, number: int, start: int, end: int, *, is_read: bool, is_kept: bool) -> None:
        """Adds an argument to the last span if it overlaps the span's bytes, else to a new one."""
        tensor = self.tensors[number]
        storage = tensor.untyped_storage()
        first, behind = start - storage.data_ptr(), min(end - storage.data_ptr(), storage.nbytes())
        last = self.spans[-1] if self.spans else None
        if last is not None and last.storage.data_ptr() == storage.data_ptr() and first < last.end:
            last.end = max(last.end, behind)
            last.is_read = last.is_read or is_read
            last.is_kept = last.is_kept or is_kept
        else:
            nothing = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            last = _Span(storage, first, behind, tensor.device, is_read, is_kept, nothing, nothing, nothing)
            self.spans.append(last)
        self.places[number] = (last, first - last.start)

    def _copy(self, given: int, room: Callable[[], int]) -> bool:
        """Copies the contents and allocates memory for results. Returns whether the host holds these for a device."""
        wanted = sum((1 + span.is_kept) * (span.end - span.start) for span in self.spans)
        devices = {span.device for span in self.spans}
        for device in devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # other streams may still use the memory
        try:
            if wanted <= max(SMALL, given // SHARE, min(map(_spare, devices), default=0)):
                try:
                    self._take(is_near=True)
                    return False
                except torch.OutOfMemoryError:  # free memory may be fragmented
                    pass
            if wanted > (left := room()):
                raise NoRoom(
                    f"copies of the memory that candidates write take {wanted} bytes, and the host has {left} left"
                )
            self._take(is_near=False)
        except NoRoom:
            raise
        except (RuntimeError, MemoryError) as error:
            raise NoRoom(f"copies of the memory that candidates write could not be made: {error}") from error
        return any(device.type != "cpu" for device in devices)

    def _take(self, *, is_near: bool) -> None:
        """Makes the copies: on the device, or in host memory."""
        for span in self.spans:
            size = span.end - span.start
            place = span.device if is_near else torch.device("cpu")
            flat = torch.empty(0, dtype=torch.uint8, device=span.device)
            span.memory = flat.set_(span.storage, span.start, (size,), (1,))
            if span.is_kept:
                span.before = torch.empty(size, dtype=torch.uint8, device=place).copy_(span.memory)
            span.results = torch.empty(size, dtype=torch.uint8, device=place)

    def rewind(self) -> None:
        """Restores what candidates read. What they only write stays."""
        for span in self.spans:
            if span.is_read and span.is_kept:
                span.memory.copy_(span.before)

    def begin(self) -> None:
        """Prepares the memory for a candidate whose results are compared."""
        self.rewind()
        for span in self.spans:
            if span.is_kept and not span.is_read:
                span.memory.fill_(FILLING)

    def keep(self) -> None:
        """Records the current contents as the right results."""
        for span in self.spans:
            span.results.copy_(span.memory)

    def restore(self) -> None:
        """Restores all contents, byte by byte."""
        for span in self.spans:
            if span.is_kept:
                span.memory.copy_(span.before)

    def difference(self, affects: str) -> str:
        """The first difference between the current contents and the recorded results; "" if they agree.

        Floats may differ by a tolerance, but NaN and infinities must be at the same places. Integers must be equal. If
        a choice `affects` "bits", a few integers may differ, since floats may have been rounded to them.
        """
        for number, tensor in self.tensors.items():
            span, offset = self.places[number]
            dtype = REAL.get(tensor.dtype, tensor.dtype)
            first, last = reach(tensor)
            length = min(last - first, span.end - span.start - offset)
            faults = 0
            for start in range(0, length, self.chunk):
                here = slice(offset + start, offset + min(start + self.chunk, length))
                new, old = span.memory[here].clone(), span.results[here].to(span.device, copy=True)
                wrong = _wrong(new, old, dtype)
                faults += int(wrong.sum())
                if faults > self._forgiven(affects, dtype, length):
                    place = int(wrong.to(torch.uint8).argmax())
                    values = (_typed(data, dtype)[place].item() for data in (new, old))
                    at = start // dtype.itemsize + place
                    return "argument {}, element {} is {}, where the default has {}".format(number, at, *values)
        return ""

    def _forgiven(self, affects: str, dtype: torch.dtype, length: int) -> int:
        """How many elements may differ."""
        may_differ = affects == "bits" and not dtype.is_floating_point
        return int(ROUNDED * length / dtype.itemsize) if may_differ else 0


def _typed(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as numbers that every device can compare."""
    return data.view(dtype if dtype.is_floating_point else WHOLE[dtype.itemsize])


def _wrong(new: torch.Tensor, old: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Which elements of new results differ from the old ones; both are given as bytes."""
    a, b = _typed(new, dtype), _typed(old, dtype)
    if not dtype.is_floating_point:
        return a != b
    if dtype.itemsize < 4:
        a, b = a.float(), b.float()
    tolerance = HALVES.get(dtype) or TOLERANCES[dtype.itemsize]
    is_finite = b.isfinite()
    near = (a - b).abs() <= tolerance * _usual_size(b[is_finite].abs()) + tolerance * b.abs()
    return ~torch.where(is_finite & a.isfinite(), near, (a == b) | (a.isnan() & b.isnan()))


def _usual_size(sizes: torch.Tensor) -> torch.Tensor:
    """A typical absolute value: the mean, or less if a few values are far larger than the others, as in a mask."""
    others = sizes[sizes > 0]
    if not others.numel():
        return sizes.new_zeros(())
    sample = others[:: others.numel() // SAMPLE | 1]  # an odd step meets all columns of rows of even length
    small = sample.kthvalue(1 + sample.numel() // 10).values
    mean = sizes.mean(dtype=torch.float64).to(sizes.dtype)
    return torch.minimum(mean, USUAL * small.clamp(max=torch.finfo(sizes.dtype).max / USUAL))
