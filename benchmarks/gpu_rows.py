"""`python benchmarks/gpu_rows.py`: rows and other kernels on a GPU, beside a copy, eager and TorchInductor, in one run.

Takes `--jobs` and `--only`, a pattern of names. First compiles everything in so many processes, then measures in one:
CUDA events around 5 calls, medians of 7 interleaved rounds. Prints a row for each kernel: the microseconds of a copy of
as many bytes as arguments and results have, and the shares of its bandwidth that eager, TorchInductor and minductor
reach, all in their default modes. bfloat16 unless said, no gradients.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

ELEMENTS = 1 << 27
LENGTHS = (128, 256, 1000, 1024, 4096, 4097, 8192, 16384, 32768, 50257, 65536, 131072, 262144)
ROUNDS, CALLS = 7, 5
BF16, F32 = torch.bfloat16, torch.float32


class Case(NamedTuple):
    """A function, and what makes its arguments."""

    fn: Callable[..., Any]
    make: Callable[[], tuple[Tensor, ...]]


def randn(*size: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def drawn(most: int, *size: int) -> Tensor:
    return torch.randint(most, size, device="cuda")


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight)


def rows() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for n in LENGTHS:
        found[f"softmax {n}"] = Case(softmax, lambda n=n: (randn(ELEMENTS // n, n),))
        found[f"layer_norm {n}"] = Case(layer_norm, lambda n=n: (randn(ELEMENTS // n, n), randn(n), randn(n)))
        found[f"rms_norm {n}"] = Case(rms_norm, lambda n=n: (randn(ELEMENTS // n, n), randn(n)))
    return found


def others() -> dict[str, Case]:
    """The kernels that SPEED names."""
    return {
        "sum of 4 gathered rows": Case(
            lambda w, i: w[i].sum(1), lambda: (randn(100_000, 256), drawn(100_000, 65536, 4))
        ),
        "cross entropy of 32,000": Case(F.cross_entropy, lambda: (randn(4096, 32000), drawn(32000, 4096))),
        "cross entropy of 128,256": Case(F.cross_entropy, lambda: (randn(1024, 128256), drawn(128256, 1024))),
        "group norm, silu": Case(
            lambda x, w, b: F.silu(F.group_norm(x, 32, w, b)), lambda: (randn(32, 256, 64, 64), randn(256), randn(256))
        ),
        "x + y.t()": Case(lambda x, y: x + y.t(), lambda: (randn(8192, 8192), randn(8192, 8192))),
        "x + y.t() float32": Case(
            lambda x, y: x + y.t(), lambda: (randn(6000, 6000, dtype=F32), randn(6000, 6000, dtype=F32))
        ),
        "to channels last": Case(
            lambda x: (x * 2).contiguous(memory_format=torch.channels_last), lambda: (randn(64, 256, 56, 56),)
        ),
        "permute 2 0 1": Case(lambda x: x.permute(2, 0, 1).contiguous() * 2, lambda: (randn(512, 512, 256),)),
        "cat": Case(
            lambda a, b, c: torch.cat([a * 2, b * 3, c * 4], 1),
            lambda: (randn(8192, 1024), randn(8192, 2048), randn(8192, 4096)),
        ),
        "cat of odd parts": Case(
            lambda a, b, c: torch.cat([a * 2, b * 3, c * 4], 1),
            lambda: (randn(8192, 1000), randn(8192, 2001), randn(8192, 4095)),
        ),
        "cat over dim 0": Case(
            lambda a, b: torch.cat([a * 2, b + 1], 0), lambda: (randn(4096, 8192), randn(4096, 8192))
        ),
        "sum over dim 0": Case(lambda x: x.sum(0), lambda: (randn(16384, 8192),)),
        "sum over dim 0, 512 columns": Case(lambda x: x.sum(0), lambda: (randn(131072, 512),)),
        "sum over dim 0 float32": Case(lambda x: x.sum(0), lambda: (randn(8192, 8192, dtype=F32),)),
        "bias, gelu, residual": Case(
            lambda x, b, r: F.gelu(x + b) + r, lambda: (randn(16384, 4096), randn(4096), randn(16384, 4096))
        ),
        "int8 dequantised": Case(
            lambda q, s: q.to(BF16) * s[:, None],
            lambda: (torch.randint(-128, 127, (16384, 8192), device="cuda", dtype=torch.int8), randn(16384)),
        ),
    }


def calls_of(case: Case, args: Sequence[Tensor]) -> dict[str, Callable[[], Any]]:
    """By name what is measured; compiled at the first call."""
    result = case.fn(*args)
    size = sum(t.nbytes for t in (*args, result)) // 2
    source, target = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
    peer = torch.compile(lambda *given: case.fn(*given), dynamic=False)
    ours = torch.compile(lambda *given: case.fn(*given), backend="minductor", dynamic=False)
    return {
        "copy": lambda: target.copy_(source),
        "eager": lambda: case.fn(*args),
        "inductor": lambda: peer(*args),
        "minductor": lambda: ours(*args),
    }


def measured(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """The median microseconds of a call of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(CALLS):
                call()
            end.record()
            end.synchronize()
            if turn:
                times[name].append(begin.elapsed_time(end) * 1000 / CALLS)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = {name: case for name, case in (rows() | others()).items() if re.search(args.only, name)}
    torch._dynamo.config.recompile_limit = 1000
    torch.set_grad_enabled(False)
    if args.warm:
        number, count = map(int, args.warm.split("/"))
        for case in list(cases.values())[number::count]:
            for call in calls_of(case, case.make()).values():
                call()
            torch._dynamo.reset()
        return
    command = [sys.executable, __file__, "--only", args.only, "--warm"]
    started = [subprocess.Popen([*command, f"{n}/{args.jobs}"]) for n in range(args.jobs)]
    failed = [process.args for process in started if process.wait()]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; failed: {failed or 'none'}\n")
    print("| kernel | copy, us | eager | TorchInductor | minductor | beside it |\n|---|---:|---:|---:|---:|---:|")
    for name, case in cases.items():
        found = measured(calls_of(case, case.make()))
        share = [f"{found['copy'] / found[each]:.0%}" for each in ("eager", "inductor", "minductor")]
        ratio = found["inductor"] / found["minductor"]
        print(f"| {name} | {found['copy']:.0f} | {' | '.join(share)} | {ratio:.2f} |", flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
