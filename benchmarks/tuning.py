"""What measuring gains: each kernel by default and tuned, beside TorchInductor's max-autotune.

`python benchmarks/tuning.py ROWS [--device cuda] [--only PATTERN] [--seconds N]` adds a line of JSON for each case to
the file ROWS, and prints a table of it: microseconds of a call as medians of interleaved rounds, and the seconds that
the first call took. A case that stands in the file is not run again. benchmarks/tuning.md holds what it said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

BF16 = torch.bfloat16
MODE = "max-autotune-no-cudagraphs"
ROUNDS, ROUND_SECONDS = 11, 0.005


def row_cases(elements: int) -> dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], torch.dtype]]:
    found: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], torch.dtype]] = {}
    for length in (128, 1024, 4096, 32768, 131072):
        shape = (elements // length, length)
        found[f"softmax of {length}"] = (lambda x: torch.softmax(x, -1), (shape,), torch.float32)
        found[f"layer_norm of {length}"] = (
            lambda x, w, b: F.layer_norm(x, w.shape, w, b),
            (shape, (length,), (length,)),
            torch.float32,
        )
    return found


def cases(device: str) -> Mapping[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], torch.dtype]]:
    """By name the function, the shapes and the dtype. `elements` of a tensor: many on a GPU, few on a CPU."""
    elements = 1 << (26 if device == "cuda" else 22)
    side = 2048 if device == "cuda" else 256
    rows, wide = (elements // 4096, 4096), (4096, elements // 4096)
    found = row_cases(elements)
    found |= {
        "cumsum": (lambda x: x.cumsum(0), ((elements // 4,),), torch.float32),
        "sum of rows": (lambda x: x.sum(1), (rows,), torch.float32),
        "sum of columns": (lambda x: x.sum(0), (rows,), torch.float32),
        "sum of all": (lambda x: x.exp().sum(), (rows,), torch.float32),
        "x + y.t()": (lambda x, y: x + y.t(), (rows, wide), torch.float32),
        "bias, gelu, residual": (lambda x, b, y: F.gelu(x + b) + y, (rows, (4096,), rows), torch.float32),
        "cross entropy": (
            lambda x, w: F.cross_entropy(x, (w * 1000).long().abs() % x.shape[1]),
            ((elements >> 17, 1 << 17), (elements >> 17,)),
            torch.float32,
        ),
        "group_norm, silu": (
            lambda x: F.silu(F.group_norm(x, 8)),
            ((elements >> 18, 64, 64, 64),),
            torch.float32,
        ),
        "product": (lambda a, b: a @ b, ((side, side), (side, side)), BF16),
        "product, gelu": (lambda a, b: F.gelu(a @ b) + 1, ((2 * side, side), (side, 2 * side)), BF16),
        "product of few": (lambda a, b: torch.relu(a @ b), ((16, 2 * side), (2 * side, 2 * side)), BF16),
    }
    return found


def seconds_of(run: Callable[[], Any], repeats: int, device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def measured(name: str, device: str, *, has_peer: bool) -> dict[str, Any]:
    """A row: seconds of a call and of the first call of each way, and the largest difference from the default."""
    import minductor

    function, shapes, dtype = cases(device)[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device).to(dtype) for shape in shapes]
    ways = {"default": (minductor.minductor, None), "tuned": (minductor.minductor, MODE)}
    if has_peer:
        ways["peer"] = ("inductor", MODE)
    calls: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    results: dict[str, Tensor] = {}
    for way, (backend, mode) in ways.items():
        torch._dynamo.reset()
        # a function of its own, since Dynamo knows a function by its code
        run: Any = torch.compile(lambda *args, f=function: f(*args), backend=backend, mode=mode, dynamic=False)
        begin = time.perf_counter()
        results[way] = run(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()
        first[way] = time.perf_counter() - begin
        calls[way] = lambda run=run: run(*inputs)
    for run in (*calls.values(), *calls.values()):  # what was compiled before a reset is loaded again
        run()
    repeats = {way: max(1, round(ROUND_SECONDS / seconds_of(run, 2, device))) for way, run in calls.items()}
    times: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(ROUNDS):
        for way, run in calls.items():
            times[way].append(seconds_of(run, repeats[way], device))
    off = (results["tuned"].double() - results["default"].double()).abs().max().item()
    return {"case": name, "seconds": {w: statistics.median(t) for w, t in times.items()}, "first": first, "off": off}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| case | default us | tuned us | peer us | default / tuned | peer / tuned | tuning s | peer's s |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['case']} | {row['error']} | | | | | | |")
            continue
        default, tuned, peer = (row["seconds"].get(way) for way in ("default", "tuned", "peer"))
        shown = [f"{t * 1e6:.1f}" if t else "" for t in (default, tuned, peer)]
        ratios = [f"{default / tuned:.2f}", f"{peer / tuned:.2f}" if peer else ""]
        spent = [row["first"]["tuned"] - row["first"]["default"], row["first"].get("peer", 0.0)]
        lines.append(f"| {row['case']} | {' | '.join((*shown, *ratios, *(f'{s:.1f}' for s in spent)))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="a pattern of cases")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no case after so many")
    parser.add_argument("--no-peer", action="store_true", help="leave TorchInductor out")
    given = parser.parse_args()
    begin = time.monotonic()
    known = [json.loads(line) for line in given.rows.read_text().splitlines()] if given.rows.exists() else []
    done = {row["case"] for row in known}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        os.environ["MINDUCTOR_CACHE_DIR"], os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/ours", f"{folder}/peer"
        for name in cases(given.device):
            if name in done or not re.search(given.only, name) or time.monotonic() - begin > given.seconds:
                continue
            try:
                row = measured(name, given.device, has_peer=not given.no_peer)
            except Exception as error:
                row = {"case": name, "error": f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"}
            known.append(row)
            with given.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(known))


if __name__ == "__main__":
    main()
