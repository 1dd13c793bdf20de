"""Kernels that read at computed places, beside eager on one thread: `python benchmarks/gathers.py [name ...]`.

Takes parts of names. Prints a line of `gathers.md` for each case: milliseconds of eager and of ours, the least of
interleaved rounds, and their ratio.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ROUNDS = 41
Case = tuple[Callable[..., Tensor], tuple[Callable[[], Tensor], ...]]


def randn(*size: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Callable[[], Tensor]:
    """An argument; `last`: its channels are its innermost dimension."""
    layout = torch.channels_last if last else torch.contiguous_format
    return lambda: torch.randn(size).to(dtype).to(memory_format=layout)


def resized(**how: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", **how)


IMAGE, SMALL, FEATURES = (8, 16, 64, 64), (4, 16, 64, 64), (8, 64, 56, 56)
CASES: Mapping[str, Case] = MappingProxyType(
    {
        **{
            f"{mode} pad": (lambda x, mode=mode: F.pad(x, (3, 3, 3, 3), mode=mode), (randn(*IMAGE),))
            for mode in ("reflect", "replicate", "circular", "constant")
        },
        "reflect pad, bf16": (partial(F.pad, pad=(3, 3, 3, 3), mode="reflect"), (randn(*IMAGE, dtype=torch.bfloat16),)),
        "roll of rows": (lambda x: x.roll(5, -1), (randn(1024, 1024),)),
        "roll of images": (lambda x: x.roll((3, 5), (-2, -1)), (randn(16, 256, 256),)),
        "flip": (lambda x: x.flip(-1), (randn(1024, 1024),)),
        "bilinear": (resized(), (randn(*SMALL),)),
        "bilinear, bf16": (resized(), (randn(*SMALL, dtype=torch.bfloat16),)),
        "bilinear, aligned": (resized(align_corners=True), (randn(*SMALL),)),
        "bilinear, channels last": (resized(), (randn(*SMALL, last=True),)),
        "grid_sample": (partial(F.grid_sample, align_corners=False), (randn(*SMALL), lambda: torch.rand(4, 64, 64, 2))),
        "average pool, channels last": (lambda x: F.avg_pool2d(x, 3, 2, 1), (randn(*FEATURES, last=True),)),
        "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), (randn(*FEATURES),)),
        "group norm, channels last": (lambda x: F.group_norm(x, 8), (randn(*FEATURES, last=True),)),
        "columns": (lambda x, i: x[:, i], (randn(512, 1024), lambda: torch.randint(1024, (700,)))),
        "gather": (lambda x, i: x.gather(-1, i), (randn(512, 1024), lambda: torch.randint(1024, (512, 1024)))),
        "embedding": (F.embedding, (lambda: torch.randint(4096, (4096,)), randn(4096, 256))),
    }
)


def seconds(fn: Callable[..., Tensor], args: tuple[Tensor, ...]) -> float:
    begin = time.perf_counter()
    fn(*args)
    return time.perf_counter() - begin


def measured(case: Case) -> tuple[float, float]:
    """The least times of eager and of ours: what other processes take from the machine only adds to them."""
    fn, makers = case
    torch._dynamo.reset()
    args = tuple(make() for make in makers)
    compiled = torch.compile(fn, backend="minductor", dynamic=False)
    for _ in range(3):
        seconds(fn, args)
        seconds(compiled, args)
    rounds = [(seconds(fn, args), seconds(compiled, args)) for _ in range(ROUNDS)]
    eager, ours = zip(*rounds, strict=True)
    return min(eager), min(ours)


def main() -> None:
    torch.set_num_threads(1)
    for name, case in CASES.items():
        if len(sys.argv) < 2 or any(part in name for part in sys.argv[1:]):
            with torch.no_grad():
                eager, ours = measured(case)
            print(f"| {name} | {eager * 1e3:.3f} | {ours * 1e3:.3f} | {eager / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
