"""Pooling and resampling beside eager and TorchInductor: `python benchmarks/pooling.py FILE [--table] [name ...]`.

Takes a file of JSON lines and parts of cases' names. Measures each case with static and with dynamic sizes, forward and
forward with backward, and appends a line for each to the file; lines that the file has are not measured again.
`--table` prints the file as a table of `pooling.md` instead: milliseconds of eager, the least of interleaved rounds on
one thread, and the times of eager and of TorchInductor over ours.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed
from torch.nn import functional as F

SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 0.6, 9, 60
BACKENDS = ("eager", "inductor", "minductor")
Case = tuple[Callable[..., Tensor], tuple[Callable[[], Tensor], ...]]


def randn(*size: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Callable[[], Tensor]:
    """An argument; `last`: its channels are its innermost dimension."""
    layout = torch.channels_last if last else torch.contiguous_format
    return lambda: torch.randn(size).to(dtype).to(memory_format=layout)


def resized(mode: str, **how: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, mode=mode, **how)


def sampled(mode: str, padding: str = "zeros") -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, align_corners=False)


def positions(*size: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(*size, len(size) - 1) * 2 - 1


ODD, EVEN, SMALL, SOLID = (8, 32, 61, 61), (8, 32, 56, 56), (4, 16, 48, 48), (2, 16, 16, 32, 32)
LINE, HALF = (8, 64, 1001), torch.bfloat16
CASES: Mapping[str, Case] = MappingProxyType(
    {
        "adaptive avg 2d": (lambda x: F.adaptive_avg_pool2d(x, 7), (randn(*ODD),)),
        "adaptive avg 2d, divides": (lambda x: F.adaptive_avg_pool2d(x, 7), (randn(*EVEN),)),
        "adaptive avg 2d to 1": (lambda x: F.adaptive_avg_pool2d(x, 1), (randn(*ODD),)),
        "adaptive avg 2d, larger": (lambda x: F.adaptive_avg_pool2d(x, 31), (randn(8, 32, 13, 13),)),
        "adaptive avg 2d, last": (lambda x: F.adaptive_avg_pool2d(x, 7), (randn(*ODD, last=True),)),
        "adaptive avg 2d, bf16": (lambda x: F.adaptive_avg_pool2d(x, 7), (randn(*ODD, dtype=HALF),)),
        "adaptive avg 1d": (lambda x: F.adaptive_avg_pool1d(x, 50), (randn(*LINE),)),
        "adaptive avg 3d": (lambda x: F.adaptive_avg_pool3d(x, 5), (randn(*SOLID),)),
        "adaptive max 2d": (lambda x: F.adaptive_max_pool2d(x, 7), (randn(*ODD),)),
        "adaptive max 2d, last": (lambda x: F.adaptive_max_pool2d(x, 7), (randn(*ODD, last=True),)),
        "adaptive max 1d": (lambda x: F.adaptive_max_pool1d(x, 50), (randn(*LINE),)),
        "area to 20": (resized("area", size=(20, 20)), (randn(*ODD),)),
        "area by half": (resized("area", scale_factor=0.5), (randn(*EVEN),)),
        "avg 1d": (lambda x: F.avg_pool1d(x, 4), (randn(*LINE),)),
        "avg 2d of 2": (lambda x: F.avg_pool2d(x, 2), (randn(*EVEN),)),
        "avg 2d of 3 by 2": (lambda x: F.avg_pool2d(x, 3, 2, 1), (randn(*EVEN),)),
        "avg 2d of 3 by 1": (lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), (randn(*EVEN),)),
        "avg 2d of 7 by 1": (lambda x: F.avg_pool2d(x, 7, 1, 3), (randn(*EVEN),)),
        "avg 2d of 3 by 2, last": (lambda x: F.avg_pool2d(x, 3, 2, 1), (randn(*EVEN, last=True),)),
        "avg 2d of 3 by 2, bf16": (lambda x: F.avg_pool2d(x, 3, 2, 1), (randn(*EVEN, dtype=HALF),)),
        "avg 3d of 2": (lambda x: F.avg_pool3d(x, 2), (randn(*SOLID),)),
        "avg 3d of 3 by 2": (lambda x: F.avg_pool3d(x, 3, 2, 1), (randn(*SOLID),)),
        "max 1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (randn(*LINE),)),
        "max 2d of 2": (lambda x: F.max_pool2d(x, 2), (randn(*EVEN),)),
        "max 2d of 3 by 2": (lambda x: F.max_pool2d(x, 3, 2, 1), (randn(*EVEN),)),
        "max 2d of 5 by 1": (lambda x: F.max_pool2d(x, 5, 1, 2), (randn(*EVEN),)),
        "max 2d of 9 by 1": (lambda x: F.max_pool2d(x, 9, 1, 4), (randn(*SMALL),)),
        "max 2d of 3 by 2, last": (lambda x: F.max_pool2d(x, 3, 2, 1), (randn(*EVEN, last=True),)),
        "max 2d of 3 by 2, bf16": (lambda x: F.max_pool2d(x, 3, 2, 1), (randn(*EVEN, dtype=HALF),)),
        "max 3d of 2": (lambda x: F.max_pool3d(x, 2), (randn(*SOLID),)),
        "nearest by 2": (resized("nearest", scale_factor=2), (randn(*SMALL),)),
        "nearest to odd": (resized("nearest", size=(85, 77)), (randn(*SMALL),)),
        "nearest by 2, last": (resized("nearest", scale_factor=2), (randn(*SMALL, last=True),)),
        "nearest 3d by 2": (resized("nearest", scale_factor=2), (randn(2, 8, 8, 24, 24),)),
        "linear by 2": (resized("linear", scale_factor=2), (randn(*LINE),)),
        "bilinear by 2": (resized("bilinear", scale_factor=2), (randn(*SMALL),)),
        "bilinear aligned": (resized("bilinear", size=(85, 77), align_corners=True), (randn(*SMALL),)),
        "bilinear down": (resized("bilinear", size=(23, 19)), (randn(*EVEN),)),
        "bilinear by 2, last": (resized("bilinear", scale_factor=2), (randn(*SMALL, last=True),)),
        "bilinear by 2, bf16": (resized("bilinear", scale_factor=2), (randn(*SMALL, dtype=HALF),)),
        "bicubic by 2": (resized("bicubic", scale_factor=2), (randn(*SMALL),)),
        "trilinear by 2": (resized("trilinear", scale_factor=2), (randn(2, 8, 8, 24, 24),)),
        "grid_sample": (sampled("bilinear"), (randn(*SMALL), positions(4, 64, 64))),
        "grid_sample border": (sampled("bilinear", "border"), (randn(*SMALL), positions(4, 64, 64))),
        "grid_sample nearest": (sampled("nearest"), (randn(*SMALL), positions(4, 64, 64))),
        "grid_sample bicubic": (sampled("bicubic"), (randn(*SMALL), positions(4, 64, 64))),
        "grid_sample 3d": (sampled("bilinear"), (randn(2, 8, 8, 24, 24), positions(2, 8, 24, 24))),
    }
)


def step(fn: Callable[..., Tensor], args: tuple[Tensor, ...], grad: Tensor) -> None:
    """A forward and backward pass."""
    torch.autograd.grad(fn(*args), args, grad)


def seconds(call: Callable[[], object], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def measured(case: Case, *, is_dynamic: bool, is_trained: bool, backends: tuple[str, ...]) -> dict[str, float]:
    """The least seconds of each backend that compiles the case; other processes on the machine only add to them."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    fn, makers = case
    args = tuple(make().requires_grad_(is_trained) for make in makers)
    grad = torch.randn_like(fn(*args).detach())
    calls: dict[str, Callable[[], object]] = {}
    for name in backends:
        each = fn if name == "eager" else torch.compile(fn, backend=name, dynamic=is_dynamic)
        calls[name] = partial(step, each, args, grad) if is_trained else partial(each, *args)
        try:
            seconds(calls[name], 3)
        except BackendCompilerFailed as error:  # TorchInductor refuses some dynamic sizes
            print(f"{name}: {str(error).splitlines()[0]}")
            del calls[name]
    repeats = max(1, int(1e-3 / seconds(calls["eager"], 3)))
    least = dict.fromkeys(calls, float("inf"))
    begin = time.perf_counter()
    for number in range(MOST_ROUNDS):
        least = {name: min(least[name], seconds(call, repeats)) for name, call in calls.items()}
        if number >= LEAST_ROUNDS and time.perf_counter() - begin > SECONDS:
            break
    return least


def print_table(rows: Mapping[str, Mapping[str, float]]) -> None:
    """A line for each case: eager's milliseconds and both ratios, for each way of running it."""
    for name in CASES:
        cells: list[str] = []
        for way in ("static forward", "static both", "dynamic forward", "dynamic both"):
            if (row := rows.get(f"{name}: {way}")) is None:
                cells.append("")
                continue
            eager, inductor, ours = (row.get(backend, float("nan")) for backend in BACKENDS)
            cells.append(f"{eager * 1e3:.2f} {eager / ours:.2f} {inductor / ours:.2f}")
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--ways", default="static forward,static both,dynamic forward,dynamic both")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    lines = options.file.read_text().splitlines() if options.file.exists() else ()
    rows: dict[str, Mapping[str, float]] = {row.pop("row"): row for row in map(json.loads, lines)}
    if options.table:
        return print_table(rows)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.set_num_threads(1)
    backends = tuple(options.backends.split(","))
    for name, case in CASES.items():
        if options.names and not any(part in name for part in options.names):
            continue
        for way in options.ways.split(","):
            if f"{name}: {way}" in rows:
                continue
            how = {"is_dynamic": way.startswith("dynamic"), "is_trained": way.endswith("both")}
            found = measured(case, **how, backends=backends)
            with options.file.open("a") as file:
                file.write(json.dumps({"row": f"{name}: {way}", **found}) + "\n")
            print(f"{name}: {way}: {', '.join(f'{backend} {s * 1e3:.3f}' for backend, s in found.items())}", flush=True)


if __name__ == "__main__":
    main()
