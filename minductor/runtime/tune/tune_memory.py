"""The memory in which the candidates of a choice are tried: each begins with what the caller's tensors held.

Takes the arguments of a call, and which of them candidates write and overwrite. Gives the means to begin a run, to
compare what two candidates leave, and to put everything back. Refuses copies for which there is no room (NoRoom).

Candidates run on the caller's own tensors, so that tensors which share memory still do. Copies are flat, from the first
to the last byte, one for memory that several arguments share. They stay on the device where its peak hardly rises for
them, and are kept by the host otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

SMALL = 1 << 20  # bytes of copies that stay on the device, whatever else is there
SHARE = 10  # of the bytes of the arguments, one in so many may be taken on the device
LEAST_CHUNK, MOST_CHUNK = 1 << 18, 1 << 24  # bytes that are compared at a time
COMPARED = 20  # times the bytes of a chunk that comparing it takes, at most: floats of 16 bits are widened
FILLING = 0xA5  # every byte of what candidates only write, before they run: what none writes is found
# of floats by their bytes, as a share of their size and of what is usual around: products may be those of TF32
TOLERANCES: Mapping[int, float] = MappingProxyType({8: 1e-8, 4: 1e-3, 1: 0.3})
HALVES: Mapping[torch.dtype, float] = MappingProxyType({torch.float16: 1e-2, torch.bfloat16: 5e-2})
WHOLE: Mapping[int, torch.dtype] = MappingProxyType({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64})
REAL: Mapping[torch.dtype, torch.dtype] = MappingProxyType(
    {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
)
USUAL = 10  # times a size that nine in ten exceed: of values around zero their mean is less
ROUNDED = 0.01  # of integers that were made from floats: the share that may differ where bits may


class NoRoom(RuntimeError):
    """There is no memory for the copies that trying candidates needs."""


def free_host_memory() -> int:
    """The bytes that the machine, or the control group of this process, has left."""
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
    """How many bytes less are in use on a device than were at its peak: copies of so many do not raise it."""
    if device.type != "cuda":
        return 0
    return torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)


def reach(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte, and behind its last one."""
    if not tensor.numel():
        return 0, 0
    span = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + span * tensor.element_size()


@dataclass(slots=True)
class _Span:
    """Bytes of one storage that candidates write; arguments that overlap there share it."""

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
    """The memory that candidates write, with copies of what it held and of what the default leaves there."""

    def __init__(
        self,
        args: Sequence[Any],
        overwritten: Sequence[int],
        written: Sequence[int] | None = (),
        room: Callable[[], int] = free_host_memory,
    ) -> None:
        """`overwritten` and `written` are numbers of arguments; every overwritten one counts as written.

        Where `written` is None, all tensors are compared, and the overwritten ones are put back.
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
        given = sum(end - start for start, end in reaches.values())
        self.chunk = min(max(LEAST_CHUNK, given // SHARE // COMPARED // 16 * 16), MOST_CHUNK)
        self.is_far = self._copy(given, room)
        self.has_read = any(span.is_read and span.is_kept for span in self.spans)

    def _place(self, number: int, start: int, end: int, *, is_read: bool, is_kept: bool) -> None:
        """Gives an argument a span of its own, or the last one if that reaches into its bytes."""
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
        """Copies what is there and makes room for results; gives whether the host keeps both for a device."""
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
                except torch.OutOfMemoryError:  # what is free there may lie in pieces
                    pass
            if wanted > (left := room()):
                raise NoRoom(f"copies of what candidates write take {wanted} bytes, and the host has {left} left")
            self._take(is_near=False)
        except NoRoom:
            raise
        except (RuntimeError, MemoryError) as error:
            raise NoRoom(f"copies of what candidates write could not be made: {error}") from error
        return any(device.type != "cpu" for device in devices)

    def _take(self, *, is_near: bool) -> None:
        """Makes the copies: where the memory is, or with the host."""
        for span in self.spans:
            size = span.end - span.start
            place = span.device if is_near else torch.device("cpu")
            flat = torch.empty(0, dtype=torch.uint8, device=span.device)
            span.memory = flat.set_(span.storage, span.start, (size,), (1,))
            if span.is_kept:
                span.before = torch.empty(size, dtype=torch.uint8, device=place).copy_(span.memory)
            span.results = torch.empty(size, dtype=torch.uint8, device=place)

    def rewind(self) -> None:
        """Puts back what candidates read; what they only write stays as the last one left it."""
        for span in self.spans:
            if span.is_read and span.is_kept:
                span.memory.copy_(span.before)

    def begin(self) -> None:
        """The state in which each candidate begins whose results are compared."""
        self.rewind()
        for span in self.spans:
            if span.is_kept and not span.is_read:
                span.memory.fill_(FILLING)

    def keep(self) -> None:
        """Takes what is there now for the right results."""
        for span in self.spans:
            span.results.copy_(span.memory)

    def restore(self) -> None:
        """Puts back all that was there, byte by byte."""
        for span in self.spans:
            if span.is_kept:
                span.memory.copy_(span.before)

    def difference(self, affects: str) -> str:
        """What tells the results that are there now from those that were kept; "" if they are as good.

        Floats may differ by a tolerance, and have NaN and infinities at the same places. Integers are equal; where a
        choice `affects` "bits", a few of them may differ, as those that were rounded from floats.
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
        """How many elements may be wrong."""
        may_differ = affects == "bits" and not dtype.is_floating_point
        return int(ROUNDED * length / dtype.itemsize) if may_differ else 0


def _typed(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes as numbers that every device can compare."""
    return data.view(dtype if dtype.is_floating_point else WHOLE[dtype.itemsize])


def _wrong(new: torch.Tensor, old: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Which elements of new results are not those of the old ones; both are bytes."""
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
    """The mean of absolute values; where a few are far larger than others, as in a mask, a size of the others."""
    others = sizes[sizes > 0]
    if not others.numel():
        return sizes.new_zeros(())
    small = others.kthvalue(1 + others.numel() // 10).values
    mean = sizes.mean(dtype=torch.float64).to(sizes.dtype)
    return torch.minimum(mean, USUAL * small.clamp(max=torch.finfo(sizes.dtype).max / USUAL))
