"""Rows of 5 to 1024 elements in each recipe of a CPU, beside eager: `python benchmarks/short_rows.py [--dtypes ...]`.

Takes dtypes and lengths. Prints a line of `short_rows.md` for each function, dtype and length: microseconds of CPU time
of 1 Mi elements on one thread, the least of interleaved rounds, in eager, in the recipe that is taken, and in each
recipe that is legal there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional as F

import minductor
from minductor.driver import Compiled

ELEMENTS, ROUNDS = 1 << 20, 25
RECIPES = ("rows", "side_by_side", "phases")
FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
        "rms_norm": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
        "sum": lambda x: x.sum(-1),
    }
)


def compiled(fn: Callable[[Tensor], Tensor], x: Tensor, variant: str) -> tuple[Callable[[], Tensor], set[str]]:
    """A call of the compiled function, and the recipes that its kernels have."""
    torch._dynamo.reset()
    seen: list[Compiled] = []
    compiler = minductor.Compiler(observer=seen.append)
    call = torch.compile(fn, backend=compiler, dynamic=False, options={"variant": variant})
    call(x)
    return partial(call, x), {each for row in seen[0].report.variants for each in row[3]}


def measured(fn: Callable[[Tensor], Tensor], x: Tensor) -> Mapping[str, float]:
    """The least seconds of eager, of the recipe that is taken, and of each legal one."""
    taken, legal = compiled(fn, x, "")
    calls = {"eager": partial(fn, x), "taken": taken}
    calls |= {recipe: compiled(fn, x, recipe)[0] for recipe in RECIPES if recipe in legal}
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtypes", default="float32,bfloat16,float16")
    parser.add_argument("--lengths", default="5,12,20,32,48,64,100,128,256,512,1024")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, fn in FUNCTIONS.items():
        for dtype in options.dtypes.split(","):
            for length in map(int, options.lengths.split(",")):
                x = torch.randn(ELEMENTS // length, length).to(getattr(torch, dtype))
                with torch.no_grad():
                    found = measured(fn, x)
                cells = [f"{found[each] * 1e6:.0f}" if each in found else "" for each in ("eager", "taken", *RECIPES)]
                cells.append(f"{found['eager'] / found['taken']:.2f}")
                print(f"| {name} | {dtype} | {length} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
