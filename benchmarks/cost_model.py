"""What the cost model predicts for the recipes of reductions, beside what a GPU takes for them.

Takes the seconds that it may run. Prints the table of cost_model.md: by kernel and recipe the microseconds measured and
predicted, and the regret, which is the time of the recipe with the lowest price over that of the fastest one. It needs
a GPU that minductor launches on. Rows hold 2**27 elements, so that no row stays in the cache between two calls.
"""

from __future__ import annotations

import argparse
import io
import re
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import minductor
from minductor.core.errors import MinductorError
from minductor.tracing.trace import Trace

ELEMENTS = 1 << 27
CALLS, ROUNDS = 4, 7
PRICE = re.compile(r"(\w+) ([\d.e+]+) us")


def tensor(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def cases() -> Iterator[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]]:
    """The name of each kernel, its function and its arguments."""
    for length in (1024, 4096, 8192, 16384, 32768):
        x, w = tensor(ELEMENTS // length, length), tensor(length)
        yield f"softmax {length}", lambda x: torch.softmax(x, -1), (x,)
        yield f"layer_norm {length}", lambda x, w: F.layer_norm(x, w.shape, w, w), (x, w)
        yield f"rms_norm {length}", lambda x, w: F.rms_norm(x, w.shape, w), (x, w)
    yield "argmax 8192", lambda x: x.argmax(-1), (tensor(ELEMENTS // 8192, 8192),)
    table, index = tensor(100_000, 256), torch.randint(0, 100_000, (65536, 4), device="cuda")
    yield "sum of 4 gathered rows", lambda t, i: t[i].sum(1), (table, index)
    yield "sum over an axis of 4", lambda x: x.sum(1), (tensor(65536, 4, 512),)


def predictions(fn: Callable[..., Any], args: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """The price of each legal recipe in microseconds, from the note of the stage `schedule`."""
    out = io.StringIO()
    compiler = minductor.Compiler(trace=Trace.parse("2", out=out))
    torch.compile(lambda *given: fn(*given), backend=compiler, dynamic=False)(*args)
    notes = [line for line in out.getvalue().splitlines() if " schedule note: " in line]
    return {name: float(price) for line in notes for name, price in PRICE.findall(line)}


def measured(
    fn: Callable[..., Any], args: tuple[torch.Tensor, ...], names: list[str], seconds: float
) -> dict[str, float]:
    """The median microseconds of a replay of each recipe as a CUDA graph, rounds interleaved."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    for name in names:
        compiled = torch.compile(
            lambda *given: fn(*given), backend="minductor", dynamic=False, options={"variant": name}
        )
        try:
            compiled(*args)
        except MinductorError as error:
            print(f"{name}: {error}")
            continue
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for _ in range(CALLS):
                compiled(*args)
    times: dict[str, list[float]] = {name: [] for name in graphs}
    end = time.monotonic() + seconds
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            times[name].append(first.elapsed_time(last) / CALLS * 1e3)
        if time.monotonic() > end:
            break
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    end = time.monotonic() + parser.parse_args().seconds
    torch._dynamo.config.recompile_limit = 1000
    print("| kernel | measured / predicted us by recipe | taken | regret |\n|---|---|---|---:|")
    regrets: list[float] = []
    for title, fn, args in cases():
        if time.monotonic() > end:
            break
        prices = predictions(fn, args)
        times = measured(fn, args, list(prices), 10)
        cheapest = min(times, key=lambda name: prices[name])
        regrets.append(times[cheapest] / min(times.values()))
        row = ", ".join(f"{name} {times[name]:.0f} / {prices[name]:.0f}" for name in times)
        print(f"| {title} | {row} | {cheapest} | {regrets[-1]:.2f} |", flush=True)
    print(f"\nregret: median {statistics.median(regrets):.2f}, largest {max(regrets):.2f}")


if __name__ == "__main__":
    main()
