"""What calls on float16 and bfloat16 cost beside torch's eager ones, on one thread.

Takes this machine. Gives a table in Markdown: microseconds of CPU time for a call of eager and of ours, and their
ratio. Refuses wall clocks, which a shared machine stretches: medians of interleaved rounds of the thread's own time.

    python benchmarks/sixteen_bits.py > benchmarks/sixteen_bits.md
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

SIZE, ROUNDS, SECONDS = 1024, 11, 0.004  # SIZE * SIZE elements; a round takes so long
CASES: dict[str, tuple[Callable[..., Any], str]] = {  # the letters name what `tensors` gives
    "neg": (torch.neg, "a"),
    "add": (torch.add, "ab"),
    "add a row": (torch.add, "aw"),
    "mul": (torch.mul, "ab"),
    "relu": (torch.relu, "a"),
    "exp": (torch.exp, "a"),
    "gelu": (F.gelu, "a"),
    "silu": (F.silu, "a"),
    "floor of a product": (lambda x, y: torch.floor(x * y), "ab"),
    "where": (lambda x, y: torch.where(x > y, x, y), "ab"),
    "compare": (torch.gt, "ab"),
    "compare a product": (lambda x, y: x * 1.5 > y, "ab"),
    "copysign": (torch.copysign, "ab"),
    "softmax of rows": (lambda x: x.softmax(1), "a"),
    "layer_norm": (lambda x, w: F.layer_norm(x, (SIZE,), w), "aw"),
    "sum of rows": (lambda x: x.sum(1), "a"),
    "sum of columns": (lambda x: x.sum(0), "a"),
    "nansum": (lambda x: x.nansum(1), "a"),
    "maximum of rows": (lambda x: x.amax(1), "a"),
    "cumsum of rows": (lambda x: x.cumsum(1), "a"),
    "cumsum of columns": (lambda x: x.cumsum(0), "a"),
    "cumprod of rows": (lambda x: x.cumprod(1), "a"),
    "to float32": (Tensor.float, "a"),
    "from float32": (lambda x, f: f.to(x.dtype), "af"),
    "to the other 16 bits": (
        lambda x: x.to(torch.float16 if x.dtype == torch.bfloat16 else torch.bfloat16),
        "a",
    ),
    "to int32": (Tensor.int, "a"),
    "copy": (torch.clone, "a"),
    "transpose": (lambda x: x.t().contiguous(), "a"),
    "pad": (lambda x: F.pad(x, (1, 1)), "a"),
    "cat": (lambda x, y: torch.cat([x, y], 1), "ab"),
    "matmul, add, gelu": (lambda m, k, w: F.gelu(m @ k + w), "mkw"),
}


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    """Matrices, a row, and a float32 matrix, by letter."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (SIZE, SIZE), "b": (SIZE, SIZE), "w": (SIZE,), "f": (SIZE, SIZE), "m": (64, 256), "k": (256, SIZE)}
    made = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: value if name == "f" else value.to(dtype) for name, value in made.items()}


def microseconds(calls: tuple[Callable[..., Any], ...], given: list[Tensor]) -> list[float]:
    """The median of each call's rounds."""
    start = time.thread_time()
    calls[0](*given)
    repeats = max(1, int(SECONDS / max(time.thread_time() - start, 1e-6)))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, found, strict=True):
            call(*given)
            start = time.thread_time()
            for _ in range(repeats):
                call(*given)
            times.append((time.thread_time() - start) / repeats * 1e6)
    return [statistics.median(times) for times in found]


def main() -> None:
    torch.set_num_threads(1)
    print("# Calls on float16 and bfloat16 beside eager's\n")
    print(
        f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, one thread, {SIZE} x {SIZE} elements."
    )
    print(
        f"Microseconds of CPU time, medians of {ROUNDS} interleaved rounds on a shared machine. Ours includes about 25"
    )
    print("for the call itself, which is all that a copy or a change of sign loses.\n")
    print("| call | float16: eager | ours | ratio | bfloat16: eager | ours | ratio |\n|---|---|---|---|---|---|---|")
    with torch.no_grad():
        for name, (function, letters) in CASES.items():
            row = f"| {name} |"
            for dtype in (torch.float16, torch.bfloat16):
                torch.compiler.reset()
                given = [tensors(dtype)[letter] for letter in letters]
                compiled = torch.compile(function, backend="minductor")
                compiled(*given)
                eager, ours = microseconds((function, compiled), given)
                row += f" {eager:.0f} | {ours:.0f} | {eager / ours:.2f} |"
            print(row, flush=True)


if __name__ == "__main__":
    main()
