"""`python benchmarks/huge_pages.py`: large results with pages of 2 MiB below them, and without.

Prints a row for each program and size: milliseconds of eager and of minductor with small and with huge pages, medians
of interleaved rounds. Each round frees its result, so that the next one takes new memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.runtime.launch import launch

ROUNDS = 9
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "x * 2 + 1": lambda x: x * 2 + 1,
    "gelu": F.gelu,
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
}


def timed(call: Callable[[Tensor], Tensor], x: Tensor) -> float:
    start = time.perf_counter()
    call(x)
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    print("| program | MiB | eager | small pages | huge pages | gain |\n|---|---:|---:|---:|---:|---:|")
    for rows in (2048, 4096, 8192, 16384, 65536):
        x = torch.randn(rows, 1024)
        for name, program in PROGRAMS.items():
            torch._dynamo.reset()
            compiled = torch.compile(program, backend="minductor", dynamic=False)
            times: dict[str, list[float]] = {"eager": [], "small": [], "huge": []}
            for _ in range(ROUNDS + 2):
                times["eager"].append(timed(program, x))
                with mock.patch.object(launch, "_madvise", lambda: None):
                    times["small"].append(timed(compiled, x))
                times["huge"].append(timed(compiled, x))
            eager, small, huge = (statistics.median(each[2:]) for each in times.values())
            size = x.nbytes >> 20
            print(f"| {name} | {size} | {eager:.2f} | {small:.2f} | {huge:.2f} | {small / huge:.2f} |", flush=True)


if __name__ == "__main__":
    main()
