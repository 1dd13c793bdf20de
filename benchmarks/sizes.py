"""Kernels with a variant for each size beside kernels compiled for one size, and what choosing costs.

`python -m benchmarks.sizes [--device cuda]` compiles a row reduction, a sum of columns and a matrix product with
symbolic sizes: once with `size_hints` of all sizes, and for each size once with example inputs of that size. It prints
microseconds of a call as medians of interleaved rounds, and the nanoseconds in which a call picks its variant.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from minductor.bench.measure import seconds_of
from minductor.runtime.launch.by_size import by_size

ROUNDS = 11


def measured(
    fn: Callable[..., Any], make: Callable[[int], tuple[Any, ...]], sizes: tuple[int, ...], device: str
) -> None:
    import minductor

    options = {"matmul": "native"} if device == "cuda" else {}
    for size in sizes:
        torch._dynamo.reset()  # else Dynamo finds what was compiled for another size
        several: Any = torch.compile(
            lambda *a: fn(*a), backend=minductor.minductor, dynamic=True, options={**options, "size_hints": sizes}
        )
        given = make(size)
        for each in given:
            for dim in range(each.dim()):
                torch._dynamo.mark_dynamic(each, dim)
        several(*given)
        one: Any = torch.compile(lambda *a: fn(*a), backend=minductor.minductor, dynamic=True, options=options)
        runs = {
            "several": lambda given=given, several=several: several(*given),
            "one": lambda given=given, one=one: one(*given),
        }
        for run in (*runs.values(), *runs.values()):
            run()
        repeats = {name: max(1, round(0.005 / seconds_of(run, 2, device))) for name, run in runs.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                times[name].append(seconds_of(run, repeats[name], device))
        both = {name: statistics.median(each) * 1e6 for name, each in times.items()}
        ratio = both["several"] / both["one"]
        print(f"  {size}: {both['several']:.1f} us, {both['one']:.1f} us for it alone: {ratio:.3f}")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    device = parser.parse_args().device
    sizes = (64, 1024, 16384)
    with torch.no_grad():
        print("softmax of 512 rows")
        measured(lambda x: torch.softmax(x * 2, -1), lambda n: (torch.randn(512, n, device=device),), sizes, device)
        print("sum of the columns of as many rows")
        measured(lambda x: x.exp().sum(0), lambda n: (torch.randn(n, 1000, device=device),), sizes, device)
        if device == "cuda":
            print("product")
            half = torch.bfloat16
            measured(
                lambda a, b: a @ b,
                lambda n: tuple(torch.randn(n, n, device=device, dtype=half) for _ in range(2)),
                (64, 1024, 8192),
                device,
            )
    print(f"choosing: {choosing():.0f} ns")


if __name__ == "__main__":
    main()
