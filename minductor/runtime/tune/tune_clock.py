"""The clocks that measure candidates, and what about a GPU decides whether a measurement holds.

Takes a function to run. Gives seconds, and the name of the current GPU. Refuses nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def wall_clock(run: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def device_clock(run: Callable[[], object]) -> float:
    """The seconds that a function takes on the current GPU, between two events of its stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def device_name() -> str:
    """The name of the current GPU, since another GPU may have another winner."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def is_stream_captured() -> bool:
    """Whether the current stream is being captured into a CUDA graph: kernels do not run meanwhile."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def cache_bytes(device: torch.device) -> int:
    """The size of a GPU's second-level cache; 0 for other devices, whose caches are measured as they are."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 0
