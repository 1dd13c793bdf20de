"""What becomes of the benchmarks' graphs on a GPU target: kernels, registers, spills, and the seconds of compiling.

`python benchmarks/gpu_kernels.py [--target sm_90] [CASE ...]` prints a table of the cases of `minductor bench` whose
names contain one of the words. No GPU is needed: graphs run in eager, kernels are compiled and not launched, without
Triton's cache. Seconds are CPU seconds: of a case's graphs down to text (its eager run with them), of its kernels by
Triton, and of the assembler that Triton calls.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from minductor.bench import cases
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.launch_metadata import LAUNCHES, default_launches
from minductor.runtime.build.triton_jobs import KernelFacts, compile_kernel
from minductor.target import Target, by_name


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def children() -> float:
    """CPU seconds of the processes that this one started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def kernels(graph: Compiled, kind: str, arch: str) -> list[KernelFacts]:
    text = graph.sources.get("kernels.py", "")
    launches = default_launches(graph.sources.get(LAUNCHES, "")).values()
    return [compile_kernel(text, launch, kind, arch) for launch in launches]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        table(by_name(args.target), cases.matching((*cases.micro_names(), *cases.model_names()), tuple(args.cases)))


def table(target: Target, names: Sequence[str]) -> None:
    print("| case | kernels | externs | most registers | kernels that spill | to text, s | Triton, s | assembler, s |")
    print("|---|---|---|---|---|---|---|---|")
    total, spilling, seconds, assembling = 0, 0, 0.0, 0.0
    for name in names:
        torch._dynamo.reset()
        seen: list[Compiled] = []
        backend = partial(Compiler(observer=seen.append, is_dry=True), options={"target": target.name})
        program = cases.build(name)
        _, to_text = timed(partial(cases.step, program, torch.compile(program.function, backend=backend)))
        before = children()
        found, in_triton = timed(lambda graphs=seen: [k for g in graphs for k in kernels(g, target.kind, target.arch)])
        in_tools = children() - before
        registers = max((kernel.registers or 0 for kernel in found), default=0)
        spills = sum(bool(kernel.spills) for kernel in found)
        externs = sum(graph.report.externs for graph in seen)
        print(
            f"| {name} | {len(found)} | {externs} | {registers} | {spills} | {to_text:.1f} "
            f"| {in_triton:.1f} | {in_tools:.1f} |",
            flush=True,
        )
        total, spilling, seconds = total + len(found), spilling + spills, seconds + in_triton
        assembling += in_tools
    print(f"| all | {total} | | | {spilling} | | {seconds:.0f} | {assembling:.0f} |")


if __name__ == "__main__":
    main()
