"""What the sizes of a call decide: which variant, and of how many bits indices are; and what choosing costs.

`python -m benchmarks.sizes [--device cuda]` compiles a row reduction, a sum of columns and, on a GPU, a matrix product
with symbolic sizes: once with `size_hints` of all sizes, and for each size once with example inputs of that size. On a
GPU it also compiles kernels with indices of 32 bits, of 64 bits, and for one size. It prints microseconds of a call as
medians of interleaved rounds, on a GPU of replays of a CUDA graph; and the nanoseconds in which a call picks its
variant.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import functional as F

import minductor
from minductor.bench.measure import seconds_of
from minductor.runtime.launch.by_size import by_size
from minductor.runtime.launch.gpu import Kernels

ROUNDS, CALLS = 11, 4
HALF = torch.bfloat16
Run = Callable[[], Any]
Make = Callable[[int], tuple[Any, ...]]


def compiled(
    fn: Callable[..., Any], given: Sequence[Any], options: Mapping[str, Any] | None = None, *, only: int | None = None
) -> Run:
    """A call of a function that is compiled now, with symbolic sizes; `only`: those of so many elements, 0 for none."""
    run: Any = torch.compile(lambda *a: fn(*a), backend=minductor.minductor, options=dict(options or {}))
    given = [each.clone() for each in given]  # marks stay on a tensor
    for each in given:
        for dim, size in enumerate(each.shape):
            if only in (None, size):
                torch._dynamo.mark_dynamic(each, dim)
    run(*given)
    return lambda: run(*given)


def replayed(run: Run) -> Run:
    """A CUDA graph of several calls, so that the host's time is none of the kernels'."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    kept = graph, run  # the memory of its tensors too
    return lambda: kept[0].replay()


def times_of(ways: Mapping[str, Callable[[], Run]], device: str) -> dict[str, float]:
    """Microseconds of a call by way. `ways` compile; each is captured before another one is compiled."""
    runs: dict[str, Run] = {}
    for name, make in ways.items():
        if device == "cuda":  # a captured graph needs nothing of Dynamo
            torch._dynamo.reset()
        run = make()
        runs[name] = replayed(run) if device == "cuda" else run
    calls = CALLS if device == "cuda" else 1
    repeats = {name: max(1, round(0.005 / seconds_of(run, 2, device))) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(seconds_of(run, repeats[name], device) / calls)
    return {name: statistics.median(each) * 1e6 for name, each in times.items()}


def by_hints(fn: Callable[..., Any], make: Make, sizes: tuple[int, ...], device: str) -> None:
    """Prints the times with a variant for each of the sizes, and alone."""
    options = {"matmul": "native"} if device == "cuda" else {}
    for size in sizes:
        given, one = make(size), partial(compiled, only=size)
        torch._dynamo.reset()  # else Dynamo finds what was compiled for another size
        both = times_of(
            {
                "several": lambda given=given, one=one: one(fn, given, {**options, "size_hints": sizes}),
                "one": lambda given=given, one=one: one(fn, given, options),
            },
            device,
        )
        ratio = both["several"] / both["one"]
        print(f"  {size}: {both['several']:.1f} us, {both['one']:.1f} us for it alone: {ratio:.3f}", flush=True)


def by_bits(name: str, fn: Callable[..., Any], given: tuple[Any, ...]) -> None:
    """Prints the times with indices of 32 bits, of 64 bits, and of a kernel for these sizes only."""

    def wide() -> Run:
        plain = Kernels._plain

        def always_wide(self: Kernels, launch: Any) -> Any:
            if not launch.greatest_index:
                return plain(self, launch)
            other = launch.wide()
            return self._of_any_pointers(other, self._configured(other), lambda *args: 1)

        with patch.object(Kernels, "_plain", always_wide):
            return compiled(fn, given)

    found = times_of(
        {"32": lambda: compiled(fn, given), "64": wide, "one": lambda: compiled(fn, given, only=0)}, "cuda"
    )
    print(f"| {name} | {found['32']:.1f} | {found['64']:.1f} | {found['one']:.1f} | {found['64'] / found['32']:.2f} |")


def choosing() -> float:
    """The nanoseconds in which a call picks its variant."""
    call = by_size([lambda *args: None, lambda *args: None], [(64,), (4096,)], (2,))
    plain = lambda *args: None  # noqa: E731
    found: dict[str, list[float]] = {"call": [], "plain": []}
    for _ in range(21):
        for name, run in (("call", call), ("plain", plain)):
            start = time.perf_counter()
            for _ in range(10000):
                run(1, 2, 100, 4)
            found[name].append((time.perf_counter() - start) / 10000 * 1e9)
    return statistics.median(found["call"]) - statistics.median(found["plain"])


def bits() -> None:
    """Prints the table of kernels with indices of 32 and of 64 bits."""
    print("| kernel | 32 bits us | 64 bits us | one size us | 64 / 32 |\n|---|---:|---:|---:|---:|")
    large, side = torch.randn(4096, 4096, device="cuda"), torch.randn(1024, 1000, device="cuda")
    image = torch.randn(16, 64, 56, 56, device="cuda")
    by_bits("gelu of 4096 x 4096", F.gelu, (large,))
    by_bits("x + y.t() of 4096", lambda x, y: x + y.t(), (large, torch.randn_like(large)))
    by_bits("softmax of 4096 x 4096", lambda x: torch.softmax(x, -1), (large,))
    by_bits("softmax of 1024 x 1000", lambda x: torch.softmax(x, -1), (side,))
    by_bits("sum of columns of 4096 x 4096", lambda x: x.exp().sum(0), (large,))
    by_bits("average pool of images", lambda x: F.avg_pool2d(x, 2), (image,))
    by_bits("concatenation, padded", lambda x: F.pad(torch.cat((x, x * 2), 1), (1, 1)), (image,))
    by_bits("cumsum of 1024 x 1000", lambda x: x.cumsum(-1), (side,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    sizes = (64, 1024, 16384)
    with torch.no_grad():
        if device == "cuda":
            bits()
        print("softmax of 512 rows")
        by_hints(lambda x: torch.softmax(x * 2, -1), lambda n: (torch.randn(512, n, device=device),), sizes, device)
        print("sum of the columns of as many rows")
        by_hints(lambda x: x.exp().sum(0), lambda n: (torch.randn(n, 1000, device=device),), sizes, device)
        if device == "cuda":
            print("product")
            by_hints(
                lambda a, b: a @ b,
                lambda n: tuple(torch.randn(n, n, device=device, dtype=HALF) for _ in range(2)),
                (64, 1024, 8192),
                device,
            )
    print(f"choosing: {choosing():.0f} ns")


if __name__ == "__main__":
    main()
