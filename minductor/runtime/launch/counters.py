"""Counters for kernels whose last program knows that it is the last one.

Takes a device and a stream. Gives a tensor of int32 that hold 0 whenever a kernel of this stream begins. Refuses
nothing.

A stream runs its kernels one after the other, and each kernel sets what it counted back to 0, so one tensor serves all
kernels of a stream, whichever threads launch them. Kernels of two streams may run at the same time, and a CUDA graph
may run beside the stream on which it was captured. So each stream has a counter of its own, and each launch in a graph.
"""

from __future__ import annotations

import torch

from minductor.ir.artefact.launch_metadata import COUNTERS


def is_captured(device: torch.device) -> bool:
    """Whether the current stream is being captured into a CUDA graph; asked at each launch, so it asks nothing else."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class Counters:
    """The counters of the kernels that one Compiler launches."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.device, int], torch.Tensor] = {}

    def of(self, device: torch.device, stream: int) -> torch.Tensor:
        """The counter for the next launch on a stream of a device, which is the current one."""
        if is_captured(device):  # the graph sets it to 0 whenever it runs, and keeps the memory
            return torch.zeros(COUNTERS, dtype=torch.int32, device=device)
        found = self._held.get((device, stream))
        if found is None:  # another thread may come here meanwhile: both use the one that is there first
            made = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
            found = self._held.setdefault((device, stream), made)
        return found
