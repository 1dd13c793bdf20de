"""What a call of a compiled graph costs beside its kernels: ours and TorchInductor's, on tensors too small to matter.

Takes nothing; gives a table in microseconds (the least of many rounds, the two compilers in turn). Run it by
`python benchmarks/overhead.py`; benchmarks/overhead.md holds what it said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from minductor.bench.models import make

ROUNDS, CALLS = 15, 300


def least(calls: dict[str, Callable[[], Any]], count: int = CALLS) -> dict[str, float]:
    """Microseconds a call, the least of interleaved rounds."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / count * 1e6)
    return best


def chain(length: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """That many kernels if nothing is fused."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(length):
            x = x.sin()
        return x

    return run


def compiled(fn: Any, backend: str, **options: object) -> Any:
    torch._dynamo.reset()
    return torch.compile(fn, backend=backend, options=options or None)


def per_kernel() -> float:
    """The slope between graphs of 10 and of 110 kernels; each writes over the result before it."""
    x = torch.randn(8)
    few, many = (compiled(chain(n), "minductor", fuse=False) for n in (10, 110))
    few(x), many(x)
    best = least({"few": lambda: few(x), "many": lambda: many(x)})
    return (best["many"] - best["few"]) / 100


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        print(f"{'one launch more in a graph':<40} us   minductor {per_kernel():7.2f}")
        x = torch.randn(8)
        workload = make("gpt", size="tiny")
        cases: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "one kernel, one input": (lambda x: torch.relu(x) + 1, (x,)),
            "GPT of 2 layers, inference": (workload.module.eval(), workload.inputs),
        }
        for name, (fn, inputs) in cases.items():
            made = {backend: torch.compile(fn, backend=backend) for backend in ("minductor", "inductor", "eager")}
            for call in made.values():
                call(*inputs)
            best = least({b: lambda call=call, given=inputs: call(*given) for b, call in made.items()})
            row = "   ".join(f"{backend} {value:7.1f}" for backend, value in best.items())
            print(f"{name:<40} us   {row}")


if __name__ == "__main__":
    main()
