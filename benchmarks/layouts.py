"""Kernels that change a layout, beside eager and TorchInductor: `python benchmarks/layouts.py ROWS [--only PATTERN]`.

Takes a file of results, one JSON array a line, written once a case is measured; what the file holds is not measured
again. Prints the table of layouts.md. The number of threads is OMP_NUM_THREADS.

All ways are called in turns in one process, and the least time of each counts: CPU time with one thread, which other
processes disturb less, and else the clock. Results are compared with eager's before they are timed.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROUNDS = 15
Function = Callable[..., Any]


class Case(NamedTuple):
    """A function, the shape of each argument, and their dtype."""

    function: Function
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32


def permuted(*order: int) -> Function:
    """A function that doubles its argument and lays it out in another order of its axes."""
    return lambda x: (x * 2).permute(order).contiguous()


def added(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x.t() + y
    return z, z.sum(0)


SIDES = (960, 1000, 1024, 2048)
DTYPES = (torch.int8, torch.bfloat16, torch.float16, torch.int16, torch.float64, torch.int64)
CASES: Mapping[str, Case] = {
    **{f"x.t() + y, {n}": Case(added, ((n, n), (n, n))) for n in SIDES},
    **{f"x.t() + y, 1000, {str(d)[6:]}": Case(added, ((1000, 1000), (1000, 1000)), d) for d in DTYPES},
    "NCHW to NHWC": Case(permuted(0, 2, 3, 1), ((8, 64, 56, 56),)),
    **{f"NCHW to NHWC, {str(d)[6:]}": Case(permuted(0, 2, 3, 1), ((8, 64, 56, 56),), d) for d in DTYPES},
    "NHWC to NCHW": Case(permuted(0, 3, 1, 2), ((8, 56, 56, 64),)),
    "3-d, 2 1 0": Case(permuted(2, 1, 0), ((96, 100, 104),)),
    "3-d, 0 2 1, int8": Case(permuted(0, 2, 1), ((16, 300, 200),), torch.int8),
    "4-d, 3 1 0 2": Case(permuted(3, 1, 0, 2), ((24, 31, 40, 37),)),
    "5-d, 0 4 2 3 1, int16": Case(permuted(0, 4, 2, 3, 1), ((4, 24, 12, 13, 40),), torch.int16),
    "x.t() + y, and its column sums, 960": Case(halves, ((960, 960), (960, 960))),
}


def measured(case: Case) -> list[float]:
    """Microseconds of eager, TorchInductor and minductor."""
    given = [(torch.randn(*shape) * 20).to(case.dtype) for shape in case.shapes]
    torch._dynamo.reset()
    ways = [case.function, torch.compile(case.function), torch.compile(case.function, backend="minductor")]
    for way in ways[1:]:
        torch.testing.assert_close(way(*given), case.function(*given), rtol=2e-2, atol=1e-2)
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    least = [float("inf")] * len(ways)
    for _ in range(ROUNDS):
        for number, way in enumerate(ways):
            began = clock()
            way(*given)
            way(*given)
            least[number] = min(least[number], (clock() - began) / 2)
    return [1e6 * seconds for seconds in least]


def main() -> None:
    parser = argparse.ArgumentParser(description="Layout changes beside eager and TorchInductor.")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    lines = options.rows.read_text(encoding="utf-8").splitlines() if options.rows.exists() else []
    rows: dict[str, list[float]] = dict(map(json.loads, lines))
    for name in filter(re.compile(options.only).search, CASES):
        if name not in rows:
            rows[name] = measured(CASES[name])
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, rows[name]]) + "\n")
    print("| case | eager us | TorchInductor us | minductor us | eager / ours | TorchInductor / ours |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in filter(rows.__contains__, CASES):
        eager, inductor, ours = rows[name]
        print(f"| {name} | {eager:.0f} | {inductor:.0f} | {ours:.0f} | {eager / ours:.2f} | {inductor / ours:.2f} |")


if __name__ == "__main__":
    main()
