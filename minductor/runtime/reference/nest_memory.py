"""Watches the loads and writes of one kernel that runs by its loop nest, and finds those that come in a wrong order.

Takes each access as the elements that it touches, and the thread that makes it. Gives what is wrong with the access, or
"": it may read an element after it was overwritten, share an element with another thread, or write an element of a
scatter out of order. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from minductor.ir.program import nodes as ir

NOBODY = -1  # in place of a thread's number: none, or code outside of all parallel loops
_LAST = 1 << 62  # more than any thread's number


class MemoryWatch:
    """What one kernel has read and written so far.

    Only storages that the kernel both reads and writes, or of which it makes several versions, and those of scatters
    can be accessed in a wrong order.
    """

    def __init__(self, kernel: ir.Kernel, sizes: Mapping[str, int]) -> None:
        """`sizes`: the elements of each storage that the kernel writes."""
        read = {ref.storage for ref in ir.reads(kernel)}
        versions = [ref.storage for ref in ir.writes(kernel)]
        self.shared = {name for name in sizes if name in read or versions.count(name) > 1}
        self.version = {name: torch.full((sizes[name],), NOBODY) for name in self.shared}
        # by storage, the lowest and the highest number of the threads that have read an element
        self.readers = {name: (torch.full((sizes[name],), _LAST), _nobody(sizes[name])) for name in self.shared}
        self.scatters: dict[tuple[int, str], tuple[Tensor, Tensor]] = {}
        self.sizes = sizes

    def load(self, ref: ir.Ref, at: Tensor, thread: int) -> str:
        """Notes that a thread reads these elements of a version."""
        if ref.storage not in self.shared or at.numel() == 0:
            return ""
        if bool((self.version[ref.storage][at] > ref.version).any()):
            return f"{ref} is read after it was overwritten"
        if thread != NOBODY:
            lowest, highest = self.readers[ref.storage]
            lowest[at] = lowest[at].clamp(max=thread)
            highest[at] = highest[at].clamp(min=thread)
        return ""

    def store(self, ref: ir.Ref, at: Tensor, thread: int) -> str:
        """Notes that a thread writes these elements of a version."""
        if ref.storage not in self.shared or at.numel() == 0:
            return ""
        if bool((self.version[ref.storage][at] > ref.version).any()):
            return f"{ref} is written after a later version"
        if thread != NOBODY:
            lowest, highest = (of[at] for of in self.readers[ref.storage])
            if bool(((highest != NOBODY) & ((lowest != thread) | (highest != thread))).any()):
                return f"one iteration of a parallel loop writes elements of {ref} that another one reads"
        self.version[ref.storage][at] = ref.version
        return ""

    def scatter(self, position: int, ref: ir.Ref, at: Tensor, points: Tensor, thread: int) -> str:
        """Notes that a scatter for a CPU writes element `at[n]` at point `points[n]` of the kernel's axes."""
        if at.numel() == 0:
            return ""
        if at.unique().numel() < at.numel():
            return f"two elements of a vector write one element of {ref}"
        key = (position, ref.storage)
        if key not in self.scatters:
            self.scatters[key] = (_nobody(self.sizes[ref.storage]), _nobody(self.sizes[ref.storage]))
        last, writer = self.scatters[key]
        if bool((last[at] > points).any()):
            return f"the points that write one element of {ref} run in another order than the kernel's axes"
        if bool(((writer[at] != NOBODY) & (writer[at] != thread)).any()):
            return f"two iterations of a parallel loop write one element of {ref}"
        last[at] = points
        writer[at] = thread
        return ""

    def join_threads(self) -> None:
        """Notes the end of a parallel loop: accesses before it are no conflict with those after it."""
        for lowest, highest in self.readers.values():
            lowest.fill_(_LAST)
            highest.fill_(NOBODY)
        for _, writer in self.scatters.values():
            writer.fill_(NOBODY)


def _nobody(size: int) -> Tensor:
    return torch.full((size,), NOBODY)
