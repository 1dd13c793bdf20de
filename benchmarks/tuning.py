"""What measuring gains: each kernel by default and tuned, beside TorchInductor's max-autotune.

`python benchmarks/tuning.py ROWS [--device cuda] [--only PATTERN] [--seconds N]` adds a line of JSON for each case to
the file ROWS, and prints a table of it: microseconds of a call as medians of interleaved rounds, and the seconds that
tuning took: those of the first call less those of a first call without tuning. TorchInductor has fresh caches for each
of its first calls. A case that stands in the file is not run again, unless it failed. benchmarks/tuning.md holds what
it said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.bench.measure import seconds_of, short_text

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


def use_caches(folder: str, way: str) -> None:
    """Gives TorchInductor a folder of its own for each way, and clears what it holds in memory."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/{way}"
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/{way}/triton"
    if (inductor := sys.modules.get("torch._inductor.utils")) is not None:
        inductor.clear_caches()


def first_call(function: Callable[..., Any], backend: Any, mode: str | None, inputs: list[Tensor]) -> tuple[Any, ...]:
    """What is compiled, its result, and the seconds of the first call."""
    torch._dynamo.reset()
    # a function of its own, since Dynamo knows a function by its code
    run: Any = torch.compile(lambda *args, f=function: f(*args), backend=backend, mode=mode, dynamic=False)
    begin = time.perf_counter()
    result = run(*inputs)
    if inputs[0].is_cuda:
        torch.cuda.synchronize()
    return run, result, time.perf_counter() - begin


def warm_up(device: str, folder: str, *, has_peer: bool) -> None:
    """Starts what each compiler starts once in a process, so that no case pays for it."""
    import minductor

    use_caches(folder, "warm_up")
    for backend in (minductor.minductor, "inductor") if has_peer else (minductor.minductor,):
        first_call(lambda x: x.sin() + 1, backend, None, [torch.ones(1 << 10, device=device)])


def measured(name: str, device: str, folder: str, *, has_peer: bool) -> dict[str, Any]:
    """A row: seconds of a call and of the first call of each way, and the largest difference from the default."""
    import minductor

    function, shapes, dtype = cases(device)[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=device).to(dtype) for shape in shapes]
    ways: dict[str, tuple[Any, str | None]] = {"default": (minductor.minductor, None)}
    ways["tuned"] = (minductor.minductor, MODE)
    if has_peer:
        ways |= {"peer_default": ("inductor", None), "peer": ("inductor", MODE)}
    calls: dict[str, Callable[[], Any]] = {}
    first: dict[str, float] = {}
    results: dict[str, Tensor] = {}
    failures: dict[str, str] = {}
    caches = tempfile.mkdtemp(dir=folder)
    for way, given in ways.items():
        use_caches(caches, way)
        try:
            run, results[way], first[way] = first_call(function, *given, inputs)
        except Exception as error:
            if not way.startswith("peer"):
                raise
            failures[way] = short_text(error)
        else:
            calls[way] = partial(run, *inputs)
    for way, run in (*calls.items(), *calls.items()):  # what was compiled before a reset is loaded again
        use_caches(caches, way)
        run()
    calls.pop("peer_default", None)
    repeats = {way: max(1, round(ROUND_SECONDS / seconds_of(run, 2, device))) for way, run in calls.items()}
    times: dict[str, list[float]] = {way: [] for way in calls}
    for _ in range(ROUNDS):
        for way, run in calls.items():
            times[way].append(seconds_of(run, repeats[way], device))
    off = (results["tuned"].double() - results["default"].double()).abs().max().item()
    seconds = {way: statistics.median(each) for way, each in times.items()}
    return {"case": name, "seconds": seconds, "first": first, "off": off, "failures": failures}


def tuning_seconds(row: dict[str, Any], default: str, tuned: str) -> float | None:
    """How much longer a first call takes with tuning than without; None if one of the two was not measured."""
    first = row["first"]
    return first[tuned] - first[default] if {default, tuned} <= first.keys() else None


def table(rows: list[dict[str, Any]]) -> str:
    heads = ["case", "default us", "tuned us", "peer us", "default / tuned", "peer / tuned"]
    heads += ["tuning s", "peer's tuning s", "peer's first call s"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    spent: list[tuple[float, float, float]] = []  # of each case with a peer: ours, the peer's, its whole first call
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['case']} | {row['error']} {'| ' * (len(heads) - 1)}|")
            continue
        default, tuned, peer = (row["seconds"].get(way) for way in ("default", "tuned", "peer"))
        shown = [f"{t * 1e6:.1f}" if t else "" for t in (default, tuned, peer)]
        ratios = [f"{default / tuned:.2f}", f"{peer / tuned:.2f}" if peer else ""]
        ours, theirs = tuning_seconds(row, "default", "tuned"), tuning_seconds(row, "peer_default", "peer")
        whole = row["first"].get("peer")
        if ours is not None and theirs is not None:
            spent.append((ours, theirs, whole))
        seconds = ["" if s is None else f"{s:.1f}" for s in (ours, theirs, whole)]
        lines.append(f"| {' | '.join((row['case'], *shown, *ratios, *seconds))} |")
    if spent:
        ours, theirs, whole = map(sum, zip(*spent, strict=True))
        lines += [
            "",
            f"Tuning took {ours:.1f} s in all, {ours / whole:.2f} of TorchInductor's first calls ({whole:.1f} s).",
        ]
        if theirs > 0:  # on a CPU it measures hardly anything
            lines.append(f"That is {ours / theirs:.2f} of what TorchInductor's tuning took ({theirs:.1f} s).")
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
    known = [row for row in known if "error" not in row]
    done = {row["case"] for row in known}
    with torch.no_grad(), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["MINDUCTOR_CACHE_DIR"] = f"{folder}/ours"
        warm_up(given.device, folder, has_peer=not given.no_peer)
        for name in cases(given.device):
            if name in done or not re.search(given.only, name) or time.monotonic() - begin > given.seconds:
                continue
            try:
                row = measured(name, given.device, folder, has_peer=not given.no_peer)
            except Exception as error:
                row = {"case": name, "error": short_text(error)}
            known.append(row)
            with given.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(known))


if __name__ == "__main__":
    main()
