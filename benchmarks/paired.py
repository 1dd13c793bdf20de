"""`python benchmarks/paired.py OLD NEW`: the micro cases, or with `--models` the models, in two checkouts, in turns.

Takes two directories that hold minductor, the number of threads and cases, and how often to start anew. Prints a row
of `paired.md` for each case: milliseconds of both, the ratio of old to new, and the ratios of the single starts. On one
thread the times are those of the processor, which other processes change less than those of the clock.

A shared machine changes its speed within seconds, and the same kernel takes up to twice the time in a process whose
pages lie elsewhere. So two processes, one of each checkout, take turns of 20 ms in which the other one sleeps; the
ratio of neighbouring turns counts, and its median over all turns. Several starts give as many placements of memory;
their median is the figure of a case. A first pair of turns, which compiles, is not counted.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

TURN_S = 0.02
MODEL = "model/"  # begins the names of the models


class Side(NamedTuple):
    """A process that measures one checkout."""

    process: subprocess.Popen[str]

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


class Row(NamedTuple):
    """One case of one start: milliseconds of both sides, and the median of old to new over neighbouring turns."""

    old: float
    new: float
    ratio: float


def serve(threads: int) -> None:
    """Measures the case that each line of the input names: prints the milliseconds of a call, its lower quartile."""
    import torch

    from minductor.bench import cases, micro

    clock = time.process_time if threads == 1 else time.perf_counter
    torch.set_num_threads(threads)
    print(*micro.CASES, *cases.model_names(), flush=True)
    current, call = "", lambda: None
    for line in sys.stdin:
        if line.strip() != current:
            current = line.strip()
            torch._dynamo.reset()
            call = model_caller(current) if current.startswith(MODEL) else caller(micro.CASES[current])
            for _ in range(3):
                call()
        call()
        times: list[float] = []
        end = time.perf_counter() + TURN_S
        while time.perf_counter() < end:
            start = clock()
            call()
            times.append(clock() - start)
        print(sorted(times)[len(times) // 4] * 1e3, flush=True)


def caller(case):  # a Micro of the checkout that is measured
    """Calls the compiled case once, with its gradients if it has any."""
    import torch

    torch.manual_seed(0)
    inputs = [x.requires_grad_(case.backward and x.is_floating_point()) for x in case.inputs()]
    compiled = torch.compile(case.fn, backend="minductor", dynamic=False)

    def call() -> None:
        made = compiled(*inputs)
        if case.backward:
            results = made if isinstance(made, tuple) else (made,)
            torch.autograd.grad(results, [x for x in inputs if x.requires_grad], [torch.ones_like(y) for y in results])

    return call


def model_caller(name: str):
    """Runs a compiled model once: a forward pass, or a loss and its gradients."""
    import torch

    from minductor.bench import cases

    torch.manual_seed(0)
    program = cases.build(name)
    compiled = torch.compile(program.function, backend="minductor", dynamic=False)
    return lambda: cases.step(program, compiled)


def started(root: Path, threads: int, cache: str) -> tuple[Side, list[str]]:
    env = {**os.environ, "PYTHONPATH": str(root.resolve()), "MINDUCTOR_CACHE_DIR": cache}
    command = [sys.executable, "-P", __file__, "--serve", "--threads", str(threads)]
    process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Side(process), process.stdout.readline().split()


def measure(sides: tuple[Side, Side], case: str, turns: int) -> Row:
    found: list[tuple[float, float]] = []
    for turn in range(turns + 1):
        order = sides if turn % 2 else sides[::-1]
        times = [float(side.ask(case)) for side in order]
        found.append((times[0], times[1]) if turn % 2 else (times[1], times[0]))
    old, new = zip(*found[1:], strict=True)
    return Row(statistics.median(old), statistics.median(new), statistics.median(a / b for a, b in found[1:]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("roots", nargs="*", type=Path, help="the old checkout and the new one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", default="", help="names with commas; all if none is given")
    parser.add_argument("--models", action="store_true", help="the models instead of the micro cases")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.threads)
        return
    rows: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(asked.starts):
            pairs = [started(root, asked.threads, f"{cache}/{n}") for n, root in enumerate(asked.roots)]
            (old, old_names), (new, new_names) = pairs
            names = [name for name in new_names if name in old_names and name.startswith(MODEL) == asked.models]
            for case in asked.cases.split(",") if asked.cases else names:
                rows.setdefault(case, []).append(measure((old, new), case, asked.turns))
            for side in (old, new):
                side.process.kill()
                side.process.wait()
    print("| case | old | new | old / new | of each start |\n|---|---:|---:|---:|---|")
    gains: list[float] = []
    for case, found in rows.items():
        old_ms, new_ms, gain = (statistics.median(values) for values in zip(*found, strict=True))
        gains.append(gain)
        each = " ".join(f"{row.ratio:.2f}" for row in sorted(found, key=lambda row: row.ratio))
        print(f"| {case} | {old_ms:.3f} | {new_ms:.3f} | {gain:.2f} | {each} |")
    print(f"\nGeometric mean of old / new: {math.exp(statistics.mean(map(math.log, gains))):.3f}")


if __name__ == "__main__":
    main()
