"""Lets the C library keep freed memory for the next call, which would otherwise get its pages anew from the system.

Takes nothing. Frees one large block that is never written, once in a process. glibc gives a freed block back to the
system if it is larger than a threshold, 128 KiB at first, and the top of its heap if twice as much is free there. The
threshold grows to the largest block freed so far, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). A program whose tensors
are smaller has thousands of page faults in each step. With it at most 64 MiB stay at the top of the heap. Who sets
MALLOC_MMAP_THRESHOLD_ or MALLOC_TRIM_THRESHOLD_ has fixed the thresholds, and nothing changes; nor does it with another
C library.

Without it training steps of small models took up to 1.17 times as long, a frozen MobileNet 1.4 times
(benchmarks/training.md).
"""

from __future__ import annotations

from functools import lru_cache

import torch

LARGEST = (32 << 20) - (64 << 10)  # bytes: glibc's largest threshold, less what its own header takes


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Raises glibc's thresholds by freeing a block of the largest size for which they grow."""
    torch.UntypedStorage(LARGEST)
