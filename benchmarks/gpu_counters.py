"""`python benchmarks/gpu_counters.py`: what bounds a kernel on a GPU, by the counters that `ncu` reads.

Takes `--only`, a pattern of names of `gpu_rows.py` and `gpu_columns.py`, `--jobs`, and `--ncu`, where the profiler is.
First compiles everything in so many processes. Then each function runs once under the profiler, which replays kernels
as often as its counters need, with cold caches and its own clock, so that its times are longer than those of the other
tables. Prints a row for each kernel: microseconds; shares of what the memory, the second-level cache and the
first-level caches can move; of the cycles with an instruction issued and with one for the unit of exponentials; of the
warps that fit; of these warps how many wait for memory, and how many at a barrier; and registers a thread.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gpu_columns
import gpu_rows
import torch

METRICS = {  # a column's title, and the counter
    "us": "gpu__time_duration.sum",
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "L1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "exponentials": "smsp__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "on memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "at barriers": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "registers": "launch__registers_per_thread",
}
MARK = "FillFunctor"  # in the name of the kernel that runs before each function


def cases(only: str) -> dict[str, Any]:
    found = gpu_rows.rows() | gpu_rows.others() | gpu_columns.cases()
    return {name: case for name, case in found.items() if re.search(only, name)}


def run(chosen: Mapping[str, Any]) -> None:
    """Compiles the functions, then runs each once, with a mark before it, where a profiler looks."""
    mark = torch.zeros(1, device="cuda")
    for name, case in chosen.items():
        args = case.make()
        call = torch.compile(case.fn, backend="minductor")
        with torch.no_grad():
            call(*args)
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
            mark.fill_(1)
            call(*args)
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()
        print("ran", name, flush=True)
        torch._dynamo.reset()
        del args
        torch.cuda.empty_cache()


def table(lines: Sequence[str], names: Iterator[str]) -> Iterator[str]:
    """The rows of a table, from what the profiler printed: a title, units, and a line for each kernel."""
    name = ""
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        if not row["ID"]:
            continue  # units
        if MARK in row["Kernel Name"]:
            name = next(names)
            continue
        found = {title: float(row[metric].replace(",", "")) for title, metric in METRICS.items()}
        found["us"] /= 1000
        values = [f"{value:.3g}" for value in found.values()]
        yield f"| {name} | {row['Kernel Name']} | {' | '.join(values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of names")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--ncu", default=shutil.which("ncu") or "/usr/local/cuda/bin/ncu")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch._dynamo.config.recompile_limit = 1000
    chosen = cases(args.only)
    if args.child:
        number, count = map(int, args.child.split("/"))
        run(dict(list(chosen.items())[number::count]))
        return
    command = [sys.executable, __file__, "--only", args.only, "--child"]
    started = [subprocess.Popen([*command, f"{n}/{args.jobs}"], stdout=subprocess.DEVNULL) for n in range(args.jobs)]
    failed = [process.args for process in started if process.wait()]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; failed: {failed or 'none'}\n", flush=True)
    asked = ["--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values())]
    profiler = [args.ncu, *asked, "--profile-from-start", "off", "--target-processes", "all"]
    made = subprocess.run([*profiler, *command, "0/1"], capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(made.stdout[-2000:] + made.stderr[-2000:])
    print(f"| function | kernel | {' | '.join(METRICS)} |\n|---|---|{'---:|' * len(METRICS)}")
    print("\n".join(table(made.stdout.splitlines(), iter(chosen))))


if __name__ == "__main__":
    main()
