"""What becomes of the benchmarks' graphs on a GPU target: kernels, registers, spills, and the seconds of compiling.

`python benchmarks/gpu_kernels.py [--target sm_90]` prints a table of the cases of `minductor bench`. No GPU is needed:
graphs run in eager, kernels are compiled and not launched. Seconds are CPU seconds of this process, for a case's graphs
down to text (its eager run with them), and for its kernels by Triton.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from minductor.bench import cases
from minductor.driver import Compiled, Compiler
from minductor.runtime.triton_jobs import KernelFacts, compile_kernel, launches
from minductor.target import by_name


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def kernels(graph: Compiled, kind: str, arch: str) -> list[KernelFacts]:
    text = graph.sources.get("kernels.py", "")
    return [compile_kernel(text, symbol, kind, arch) for symbol in launches(text)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_90")
    target = by_name(parser.parse_args().target)
    print("| case | kernels | externs | most registers | kernels that spill | to text, s | Triton, s |")
    print("|---|---|---|---|---|---|---|")
    total, spilling, seconds = 0, 0, 0.0
    for name in (*cases.micro_names(), *cases.model_names()):
        torch._dynamo.reset()
        seen: list[Compiled] = []
        backend = partial(Compiler(observer=seen.append, is_dry=True), options={"target": target.name})
        program = cases.build(name)
        _, to_text = timed(partial(cases.step, program, torch.compile(program.function, backend=backend)))
        found, in_triton = timed(lambda graphs=seen: [k for g in graphs for k in kernels(g, target.kind, target.arch)])
        registers = max((kernel.registers or 0 for kernel in found), default=0)
        spills = sum(bool(kernel.spills) for kernel in found)
        externs = sum(graph.report.externs for graph in seen)
        print(f"| {name} | {len(found)} | {externs} | {registers} | {spills} | {to_text:.1f} | {in_triton:.1f} |")
        total, spilling, seconds = total + len(found), spilling + spills, seconds + in_triton
    print(f"| all | {total} | | | {spilling} | | {seconds:.0f} |")


if __name__ == "__main__":
    main()
