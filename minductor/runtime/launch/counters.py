"""Counters for kernels whose last program knows that it is the last one.

Takes a device and a stream. Gives a tensor of int32 that hold 0 whenever a kernel of this stream begins. Refuses
nothing.

A stream runs its kernels one after the other, and each kernel sets what it counted back to 0, so one tensor serves all
kernels of a stream, whichever threads launch them. Kernels of two streams may run at the same time, and a CUDA graph
may run beside the stream on which it was captured. So each stream has counters of its own, and each launch in a graph.
Those of graphs are parts of a tensor that is made before, since a graph that makes its own sets them to 0 by a call in
front of the kernel. A launch in a graph keeps its part for good: nobody tells when a graph is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from minductor.ir.artefact.launch_metadata import COUNTERS

IN_GRAPHS = 256  # launches in graphs that find counters; later ones have counters that their graph sets to 0


def is_captured(device: torch.device) -> bool:
    """Whether the current stream is being captured into a CUDA graph; asked at each launch, so it asks nothing else."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Counters:
    """The counters of the kernels that one Compiler launches."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.device, int], torch.Tensor] = {}
        self._spare: dict[torch.device, tuple[torch.Tensor, Iterator[int]]] = {}

    def of(self, device: torch.device, stream: int) -> torch.Tensor:
        """The counters for the next launch on a stream of a device, which is the current one."""
        if is_captured(device):
            return self._captured(device)
        found = self._held.get((device, stream))
        if found is None:  # another thread may come here meanwhile: both use the ones that are there first
            made = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
            found = self._held.setdefault((device, stream), made)
            if device not in self._spare:
                spare = torch.zeros(IN_GRAPHS, COUNTERS, dtype=torch.int32, device=device)
                self._spare.setdefault(device, (spare, itertools.count()))
        return found

    def _captured(self, device: torch.device) -> torch.Tensor:
        """Counters for one launch in a graph."""
        spare, numbers = self._spare.get(device, (None, itertools.count()))
        number = next(numbers)  # no two threads are given the same one
        if spare is not None and number < IN_GRAPHS:
            return spare[number]
        return torch.zeros(COUNTERS, dtype=torch.int32, device=device)  # the graph keeps the memory
