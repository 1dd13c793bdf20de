"""A compiled function takes memory that it had before, in place of new pages from the system."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

# Counts the pages that 20 calls get from the system; each makes 12 tensors of 4 MiB, which are freed together.
PROGRAM = """
import resource
import torch
from minductor.driver import Compiler

torch.compile(lambda x: x + 1, backend=Compiler())(torch.ones(4))
x = torch.ones(1024, 1024)
for call in range(23):
    if call == 3:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [x + n for n in range(12)]
    del tensors
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(**variables: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_calls_take_memory_that_was_freed() -> None:
    assert pages() < 4096  # the tensors of one call have 12,288


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_thresholds_that_the_user_fixed_stay() -> None:
    assert pages(MALLOC_MMAP_THRESHOLD_="131072") > 20 * 12288 - 4096
