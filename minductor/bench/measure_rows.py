"""Measures the recipes of kernels that reduce rows, for `minductor heuristics collect rows`.

Takes a device, and kernels by name. Gives a `Sample` for each kernel: its features, and what each of its recipes takes.
Refuses (ValueError) functions that are not one kernel, and kernels with a single recipe.

All recipes of a kernel run in turns of short slices. On a GPU a slice is a replay of a CUDA graph of some calls, and
the median counts. On a CPU one thread runs, and the arguments are copied to other places a few times, since the same
kernel takes other times elsewhere. At each place the least time counts, since other processes only add to it; of these
the median counts.
"""

from __future__ import annotations

import datetime
import itertools
import math
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import minductor
from minductor.cost.kernel_seconds import fastest
from minductor.driver import Compiler
from minductor.heuristics.features import features_of
from minductor.heuristics.samples import Sample, Times
from minductor.ir.program.nodes import Kernel, Program
from minductor.target import Env
from minductor.version import __version__

if TYPE_CHECKING:
    from minductor.pipeline import Stage

Function = Callable[..., Any]
PLACES, ROUNDS, SLICE = 4, 6, 0.001  # of the arguments on a CPU; at each place; the seconds of a slice
CALLS, REPLAYS = 4, 15  # calls in a CUDA graph, and how often it runs
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

    def args(self, device: str) -> tuple[Tensor, Tensor]:
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
        row = draw.choice(usual) if draw.random() < 0.5 else int(_log_uniform(draw, *rows))
        count = max(LEAST_ROWS, int(_log_uniform(draw, *elements) / row) // WHOLE * WHOLE)
        for name in draw.sample(functions, OF_ONE_SIZE):
            yield RowCase(name, draw.choice(dtypes), count, row)


def _log_uniform(draw: random.Random, least: float, most: float) -> float:
    return math.exp(draw.uniform(math.log(least), math.log(most)))


class _Recorder(Compiler):
    """A compiler that keeps the programs that it gives to the stage `schedule`, and builds nothing."""

    def __init__(self) -> None:
        super().__init__(is_dry=True)
        self.programs: list[tuple[Program, Env]] = []

    def run_stage(self, stage: Stage, value: Any, role: Any, env: Env) -> Any:
        if stage.name == "schedule":
            self.programs.append((value, env))
        return super().run_stage(stage, value, role, env)


class _Kernels(NamedTuple):
    """One kernel by each of its recipes, and where it is compiled for. `default`: the recipe of the lowest price."""

    made: Mapping[str, Kernel]
    features: Mapping[str, float]
    default: str
    target: str


def measure_rows(case: RowCase, device: str, folder: str, turn: AbstractContextManager[Any]) -> Sample:
    """The times of all recipes of a case.

    Args:
        case: the kernel.
        device: "cpu" or "cuda".
        folder: for what is compiled.
        turn: is entered while something is measured, so that only one process measures.
    """
    from minductor.runtime.build.probe import software

    torch._dynamo.reset()
    function, args = ALL_FUNCTIONS[case.function], case.args(device)
    found = kernels_of(function, args, "" if device == "cpu" else "sm_{}{}".format(*torch.cuda.get_device_capability()))
    calls = {name: _forced(function, args, name, folder) for name in found.made}
    with turn:
        seconds = _on_gpu(calls, args) if device != "cpu" else _on_cpu(calls, args)
    return Sample(
        *("rows", case.name, case.group, found.target, device_name(device), datetime.date.today().isoformat()),
        versions={**dict(software()), "python": platform.python_version(), "minductor": __version__},
        features=found.features,
        default=found.default,
        times={name: _times(each) for name, each in seconds.items()},
    )


def device_name(device: str) -> str:
    """The name of the GPU, or of the CPU."""
    if device != "cpu":
        return torch.cuda.get_device_name()
    from minductor.bench.harness import machine

    return machine()["processor"]


def kernels_of(function: Function, args: Sequence[Tensor], target: str) -> _Kernels:
    """The kernel that a function becomes on a target, by each recipe; "" is the CPU."""
    recorder = _Recorder()
    with tempfile.TemporaryDirectory(prefix="minductor_rows_") as folder:  # a graph that a store has runs no stage
        options: dict[str, Any] = {"cache_dir": folder, "fallback": "error", "target": target}
        torch.compile(lambda *given: function(*given), backend=recorder, dynamic=False, options=options)(*args)
    ((program, env),) = recorder.programs
    kernels = [node for node in program.nodes if isinstance(node, Kernel)]
    if len(kernels) != 1:
        raise ValueError(f"{len(kernels)} kernels")
    return _scheduled(kernels[0], program, env)


def _scheduled(kernel: Kernel, program: Program, env: Env) -> _Kernels:
    """The kernel by each of its recipes."""
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
    return _Kernels(made, features, fastest(prices), env.target.name)


def _forced(function: Function, args: Sequence[Tensor], recipe: str, folder: str) -> Function:
    """The function, compiled by a recipe and called once. All calls share the compiler and its processes."""
    options: dict[str, Any] = {"variant": recipe, "cache_dir": folder}
    call = torch.compile(lambda *given: function(*given), backend=minductor.minductor, dynamic=False, options=options)
    call(*args)
    return call


# --- clocks


def _on_cpu(calls: Mapping[str, Function], args: Sequence[Tensor]) -> dict[str, list[float]]:
    """By recipe the least seconds of a call at each place."""
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {name: [] for name in calls}
    places: list[Sequence[Tensor]] = []
    for _ in range(PLACES):
        places.append(args := [each.clone() for each in args])  # those before stay, so that these lie elsewhere
        once = min(_slice_of_cpu(call, args, 1) for call in calls.values() for _ in range(3))
        count = max(1, min(200, int(SLICE / once)))
        here: dict[str, list[float]] = {name: [] for name in calls}
        _interleave(here, {name: partial(_slice_of_cpu, call, args, count) for name, call in calls.items()}, ROUNDS)
        for name, each in here.items():
            found[name].append(min(each))
    return found


def _slice_of_cpu(call: Function, args: Sequence[Tensor], count: int) -> float:
    """The seconds of a call, of `count` calls one after the other."""
    begin = time.process_time()
    for _ in range(count):
        call(*args)
    return (time.process_time() - begin) / count


def _on_gpu(calls: Mapping[str, Function], args: Sequence[Tensor]) -> dict[str, list[float]]:
    """By recipe the seconds of a call in each replay."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    graphs = {name: _graph(call, args) for name, call in calls.items()}
    _interleave(found, {name: partial(_slice_of_gpu, graph) for name, graph in graphs.items()}, REPLAYS)
    return found


def _graph(call: Function, args: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
    """Some calls as a graph."""
    call(*args)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call(*args)
    return graph


def _slice_of_gpu(graph: torch.cuda.CUDAGraph) -> float:
    """The seconds of a call, of those in a graph."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    graph.replay()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / CALLS / 1e3


def _interleave(found: Mapping[str, list[float]], slices: Mapping[str, Callable[[], float]], rounds: int) -> None:
    """Adds the seconds of each slice in each round to `found`; the first round does not count."""
    for number in range(rounds + 1):
        for name in itertools.islice(itertools.cycle(slices), number % len(slices), number % len(slices) + len(slices)):
            each = slices[name]()
            if number:
                found[name].append(each)


def _times(seconds: Sequence[float]) -> Times:
    """The median, and the spread."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return Times(float(f"{middle:.4g}"), round((high - low) / middle, 4), len(seconds))
