"""Kernels that reduce rows, and their recipes: the choice `rows`.

Takes a device. Gives kernels without end (`row_cases`), and the recipes of a function (`row_options`). Refuses
(ValueError) functions that are not one kernel, and kernels with a single recipe.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from minductor.bench.measure_options import Found, Function, before_schedule
from minductor.cost.kernel_seconds import fastest
from minductor.heuristics.features import features_of
from minductor.ir.program.nodes import Kernel, Program
from minductor.target import Env

PARTS = "_in_parts"  # at the end of recipes that pay with several threads: one thread cannot judge them
CPU_ELEMENTS, GPU_ELEMENTS = (1 << 12, 1 << 21), (1 << 18, 1 << 27)  # of a kernel: at least, at most
CPU_ROW, GPU_ROW = (2, 64), (16, 1 << 17)  # elements of a row; a CPU has one recipe for longer rows
GPU_DTYPES, CPU_DTYPES = ("bfloat16", "float32", "float16"), ("float32", "float32", "float32", "bfloat16")
OF_ONE_SIZE = 3  # functions
LEAST_ROWS = 256  # fewer long rows become several kernels on a GPU, and have one recipe on a CPU
USUAL_ROWS = (64, 128, 256, 512, 768, 1000, 1024, 2048, 3072, 4096, 5120, 8192, 16384, 32000, 50257)  # of models
SHORT_ROWS = (2, 3, 4, 8, 12, 16, 24, 32, 48, 64)

# Functions of rows and weights.
FUNCTIONS: Mapping[str, Function] = {
    "softmax": lambda x, w: x.softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, w.shape, w, w),
    "var_mean": lambda x, w: torch.var_mean(x, -1),
    "logsumexp": lambda x, w: x.logsumexp(-1),
    "largest": lambda x, w: x.amax(-1),
    "least_square": lambda x, w: (x * x + w).amin(-1),
    "largest_product": lambda x, w: (x * w).amax(-1),
}
# Of most of the first ones a CPU has a single recipe. Its loops for a place are unlike those for other reductions, and
# few kernels have such; what was not measured is left to prices. The others have recipes that only a CPU has.
GPU_FUNCTIONS: Mapping[str, Function] = {
    "place_of_largest": lambda x, w: x.argmax(-1),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "weighted_softmax": lambda x, w: (x * w).softmax(-1) * x,
    "sum_of_softmax": lambda x, w: (x.softmax(-1) * w).sum(-1),
    "norm_of_gelu": lambda x, w: F.layer_norm(F.gelu(x), w.shape, w),
    "centred": lambda x, w: (x - x.mean(-1, keepdim=True)).abs().sum(-1),
    "rms_norm": lambda x, w: F.rms_norm(x, w.shape, w),
    "sum": lambda x, w: x.sum(-1),
    "normalize": lambda x, w: x / x.square().sum(-1, keepdim=True).sqrt(),
}
CPU_FUNCTIONS: Mapping[str, Function] = {
    "range": lambda x, w: x.amax(-1) - x.amin(-1),
    "is_any_positive": lambda x, w: (x > 0).any(-1),
    "least": lambda x, w: x.clamp(-1, 1).amin(-1),
    "sum_of_groups": lambda x, w: x.unflatten(0, GROUPS).sum((1, 3)),
    "norm_of_groups": lambda x, w: x.unflatten(0, GROUPS) / (x.unflatten(0, GROUPS).sum((1, 3), keepdim=True) + 1),
}
ALL_FUNCTIONS: Mapping[str, Function] = {**FUNCTIONS, **GPU_FUNCTIONS, **CPU_FUNCTIONS}
GROUPS = (32, -1, 8)  # so many samples have rows of 8 groups
WHOLE = 256  # rows: the least number that makes whole groups


class RowCase(NamedTuple):
    """A function of rows and weights, with the arguments' size and dtype."""

    function: str
    dtype: str
    rows: int
    row: int

    @property
    def name(self) -> str:
        return f"{self.function} {self.dtype} {self.group}"

    @property
    def group(self) -> str:
        return f"{self.rows}x{self.row}"

    @property
    def called(self) -> Function:
        return ALL_FUNCTIONS[self.function]

    def args(self, device: str) -> tuple[Tensor, ...]:
        dtype = getattr(torch, self.dtype)
        x = torch.randn(self.rows, self.row, device=device, dtype=dtype)
        return x, torch.randn(self.row, device=device, dtype=dtype)


def row_cases(device: str) -> Iterator[RowCase]:
    """Kernels without end, the same ones each time."""
    draw = random.Random(0)
    is_gpu = device != "cpu"
    usual, rows, elements = (USUAL_ROWS, GPU_ROW, GPU_ELEMENTS) if is_gpu else (SHORT_ROWS, CPU_ROW, CPU_ELEMENTS)
    dtypes = GPU_DTYPES if is_gpu else CPU_DTYPES
    functions = [*FUNCTIONS, *(GPU_FUNCTIONS if is_gpu else CPU_FUNCTIONS)]
    while True:
        row = draw.choice(usual) if draw.random() < 0.5 else int(log_uniform(draw, *rows))
        count = max(LEAST_ROWS, int(log_uniform(draw, *elements) / row) // WHOLE * WHOLE)
        for name in draw.sample(functions, OF_ONE_SIZE):
            yield RowCase(name, draw.choice(dtypes), count, row)


def log_uniform(draw: random.Random, least: float, most: float) -> float:
    return math.exp(draw.uniform(math.log(least), math.log(most)))


def row_options(function: Function, args: Sequence[Tensor], target: str) -> Found:
    """The recipes of the kernel that a function becomes on a target; "" is the CPU."""
    program, env = before_schedule(function, args, target)
    kernels = [node for node in program.nodes if isinstance(node, Kernel)]
    if len(kernels) != 1:
        raise ValueError(f"{len(kernels)} kernels")
    return _scheduled(kernels[0], program, env)


def _scheduled(kernel: Kernel, program: Program, env: Env) -> Found:
    """The recipes of a kernel."""
    from minductor.cost.cpu_seconds import cpu_seconds
    from minductor.cost.seconds import seconds
    from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
    from minductor.passes.schedule import cpu_place, cpu_recipes, gpu_place, gpu_recipes

    table, kernel, hints = program.real_table(), merge_kernel_axes(kernel), program.hints
    prices: dict[str, tuple[float, ...]]
    if env.target.is_gpu:
        drafts = gpu_recipes.drafts(kernel, table, env, hints)
        made = {name: gpu_place.place(draft) for name, draft in drafts.items()}
        prices = {name: (seconds(each, table, env.target, hints).seconds,) for name, each in made.items()}
    else:
        drafts = cpu_recipes.drafts(kernel, table, env.target, hints)
        if parts := [name for name in drafts if name.endswith(PARTS)]:
            raise ValueError(f"{parts[0]} is legal, and one thread cannot judge it")
        made = {name: cpu_place.place(draft) for name, draft in drafts.items()}
        costs = cpu_seconds(made, table, env.target.cpu)
        prices = {name: tuple(cost.seconds for cost in each) for name, each in costs.items()}
    if len(made) < 2:
        raise ValueError(f"a single recipe, {', '.join(made)}")
    features = features_of(next(iter(made.values())), table, hints)
    return Found(tuple(made), features, fastest(prices), env.target.name)
