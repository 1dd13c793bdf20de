"""`python benchmarks/gpu_columns.py`: sums of columns on a GPU, alone and beside rows, as gradients need them.

Takes `--jobs` and `--only`, a pattern of names. First compiles everything in so many processes, then measures in one:
replays of CUDA graphs, so that no launch is counted. Prints a row for each function: the microseconds of TorchInductor
and of minductor in their default modes, their ratio, and the largest difference from eager, beside the largest element.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.testing import do_bench_cudagraph

aten = torch.ops.aten
BF16, F32 = torch.bfloat16, torch.float32


class Case(NamedTuple):
    """A function, and what makes its arguments."""

    fn: Callable[..., Any]
    make: Callable[[], tuple[Tensor, ...]]


def randn(*size: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def sums(x: Tensor) -> Tensor:
    return x.sum(0)


def gelu_backward(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of gelu, and that of the bias in front of it."""
    y = aten.gelu_backward(g, x)
    return y, y.sum(0)


def relu_backward(g: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    d = aten.threshold_backward(g, y, 0)
    return d, d.sum(0)


def joined(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of three projections in one matrix, and that of their bias."""
    batch, heads, tokens, size = q.shape
    x = torch.cat([t.transpose(1, 2).reshape(batch * tokens, heads * size) for t in (q, k, v)], -1)
    return x, x.sum(0)


def norm_backward(g: Tensor, w: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    return aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, rstd, w, w, [True, True, True])


def norm_and_residual(g: Tensor, w: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, residual: Tensor) -> Any:
    """The gradients of a layer norm, joined with that of a residual, and that of a bias behind it."""
    dx, dw, db = norm_backward(g, w, x, mean, rstd)
    y = residual + dx
    return y, dw, db, y.sum(0)


def var_mean(x: Tensor) -> Any:
    return torch.var_mean(x.float(), 0)


def batch_norm_backward(g: Tensor, x: Tensor, y: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
    """The gradients of a batch norm of channels in a row, behind a relu."""
    d, scaled = aten.threshold_backward(g, y, 0).float(), (x.float() - mean) * rstd
    total, slope = d.sum(0), (d * scaled).sum(0)
    return (w * rstd * (d - total / len(x) - scaled * (slope / len(x)))).to(x.dtype), slope, total


def alike(count: int, rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(randn(rows, columns, dtype=dtype) for _ in range(count))


def heads(batch: int, tokens: int, count: int) -> tuple[Tensor, ...]:
    return tuple(randn(batch, tokens, count, 64).transpose(1, 2) for _ in range(3))


def of_norm(rows: int, columns: int, dtype: torch.dtype, *, is_joined: bool) -> tuple[Tensor, ...]:
    x, g, residual = alike(3, rows, columns, dtype)
    given = (g, randn(columns, dtype=dtype), x, randn(rows, 1, dtype=F32), randn(rows, 1, dtype=F32))
    return (*given, residual) if is_joined else given


def of_batch_norm(rows: int, columns: int) -> tuple[Tensor, ...]:
    return (*alike(3, rows, columns, BF16), *(randn(columns, dtype=F32) for _ in range(3)))


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}

    def add(name: str, fn: Callable[..., Any], make: Callable[..., tuple[Tensor, ...]], *args: Any) -> None:
        found[name] = Case(fn, partial(make, *args))

    for rows, columns in ((6304, 512), (4096, 768), (8192, 1000), (16384, 4096), (131072, 512)):
        for dtype, kind in ((BF16, ""), (F32, " float32")):
            add(f"sums {rows} x {columns}{kind}", sums, alike, 1, rows, columns, dtype)
    add("sums 1024 x 32000", sums, alike, 1, 1024, 32000, BF16)
    for rows, columns in ((6304, 2048), (8192, 3072), (32768, 1024)):
        add(f"gelu backward {rows} x {columns}", gelu_backward, alike, 2, rows, columns, BF16)
        add(f"relu backward {rows} x {columns}", relu_backward, alike, 2, rows, columns, BF16)
    for batch, tokens, count in ((32, 197, 8), (8, 512, 12), (8, 1024, 16)):
        add(f"three projections {batch * tokens} x {64 * count}", joined, heads, batch, tokens, count)
    for rows, columns in (
        (6304, 512),
        (4096, 768),
        (8192, 1024),
        (16384, 256),
        (4096, 4096),
        (2048, 8192),
        (65536, 64),
    ):
        for dtype, kind in ((BF16, ""), (F32, " float32"))[: 2 if columns in (512, 768, 4096) else 1]:
            make = partial(of_norm, rows, columns, dtype)
            add(f"layer norm backward {rows} x {columns}{kind}", norm_backward, partial(make, is_joined=False))
            add(f"with a residual {rows} x {columns}{kind}", norm_and_residual, partial(make, is_joined=True))
    for rows, columns in ((401408, 64), (100352, 256), (25088, 512), (6272, 1024)):
        add(f"variances {rows} x {columns}", var_mean, alike, 1, rows, columns, BF16)
        add(f"batch norm backward {rows} x {columns}", batch_norm_backward, of_batch_norm, rows, columns)
    return found


def compiled(case: Case) -> dict[str, Callable[..., Any]]:
    return {name: torch.compile(case.fn, backend=name, dynamic=False) for name in ("inductor", "minductor")}


def first(result: Any) -> Tensor:
    return (result[0] if isinstance(result, tuple) else result).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = {name: case for name, case in cases().items() if re.search(given.only, name)}
    if given.warm:
        number, count = map(int, given.warm.split("/"))
        for case in list(chosen.values())[number::count]:
            torch._dynamo.reset()
            for call in compiled(case).values():
                call(*case.make())
        return
    command = [sys.executable, __file__, "--only", given.only, "--warm"]
    started = [subprocess.Popen([*command, f"{n}/{given.jobs}"]) for n in range(given.jobs)]
    failed = [process.args for process in started if process.wait()]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; failed: {failed or 'none'}\n")
    print("| function | TorchInductor, us | minductor, us | beside it | difference |\n|---|---:|---:|---:|---:|")
    ratios: list[float] = []
    for name, case in chosen.items():
        torch._dynamo.reset()
        args = case.make()
        wanted, calls = first(case.fn(*args)), compiled(case)
        error = (first(calls["minductor"](*args)) - wanted).abs().max() / wanted.abs().max()
        calls["inductor"](*args)
        peer, ours = (do_bench_cudagraph(partial(call, *args), rep=8) * 1e3 for call in calls.values())
        ratios.append(peer / ours)
        print(f"| {name} | {peer:.1f} | {ours:.1f} | {peer / ours:.2f} | {error.item():.1e} |", flush=True)
    print(f"\nGeometric mean: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
