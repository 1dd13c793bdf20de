"""What the cost model predicts for the recipes of kernels on a GPU, beside what this GPU takes for them.

Takes nothing, or `--fit SECONDS`. Prints the first table of cost_model.md: by kernel and recipe the microseconds
measured and predicted, and the regret of the recipe that the compiler would take, which is its time over that of the
fastest. It needs a GPU that minductor launches on. Recipes are forced by `options={"variant": NAME}` and timed as
replays of a CUDA graph of 4 calls, all recipes of a kernel in interleaved rounds. Every second kernel, by name, belongs
to the half to which the machine's numbers were fitted; the other half judges them. `--fit` fits them anew and prints
them. Most kernels move 2**27 elements, so that nothing stays in the cache between two calls.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor

import minductor
from minductor.cost.kernel_seconds import fastest
from minductor.cost.seconds import seconds
from minductor.ir.program.nodes import Buffer, Kernel
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import gpu_place, gpu_recipes
from minductor.target import NOMINAL, Env, Machine

ELEMENTS = 2**27
ROUNDS, CALLS = 9, 4
CLEAR = 1.1  # two recipes whose times differ by a smaller factor are not compared
FITTED = (
    *("bandwidth", "cache_bandwidth", "latency", "cache_latency", "operations", "program", "join", "sector"),
    *("access", "exchange"),
)
PRIOR = 0.12  # the weight of a number's change, beside that of the errors of predictions
Function = Callable[..., Any]


class Case(NamedTuple):
    """The kernels of a function by the recipe that is forced, and what the function takes, in microseconds."""

    title: str
    made: Mapping[str, Sequence[Kernel]]
    table: Mapping[str, Buffer]
    env: Env
    times: Mapping[str, float]
    copy: float  # microseconds of a copy of as many bytes as arguments and results have


def tensor(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=dtype)


def places(count: int, *size: int) -> Tensor:
    return torch.randint(0, count, size, device="cuda")


def cases() -> Iterator[tuple[str, Function, Callable[[], tuple[Tensor, ...]]]]:
    """The name of each kernel, its function, and a function that makes its arguments."""
    for n in (128, 256, 1000, 1024, 4096, 4097, 8192, 16384, 32768, 50257, 65536, 131072, 262144):
        many = partial(tensor, ELEMENTS // n, n)
        yield f"softmax {n}", lambda x: torch.softmax(x, -1), lambda many=many: (many(),)
        ln: Function = lambda x, w, b: F.layer_norm(x, w.shape, w, b)  # noqa: E731
        yield f"layer_norm {n}", ln, lambda many=many, n=n: (many(), tensor(n), tensor(n))
        yield f"rms_norm {n}", lambda x, w: F.rms_norm(x, w.shape, w), lambda many=many, n=n: (many(), tensor(n))
    rows = partial(tensor, ELEMENTS // 8192, 8192)
    f32 = torch.float32
    yield "sum 8192", lambda x: x.sum(-1), lambda: (rows(),)
    yield "argmax 8192", lambda x: x.argmax(-1), lambda: (rows(),)
    yield "softmax f32 4096", lambda x: torch.softmax(x, -1), lambda: (tensor(16384, 4096, dtype=f32),)
    yield "var_mean 2048", lambda x: torch.var_mean(x, -1), lambda: (tensor(65536, 2048),)
    for classes, count in ((32000, 4096), (128256, 1024)):
        targets = partial(places, classes, count)
        scores = partial(tensor, count, classes)
        yield f"cross_entropy {classes}", F.cross_entropy, lambda scores=scores, targets=targets: (scores(), targets())
    image = partial(tensor, 32, 256, 64, 64)
    yield "group_norm silu", lambda x, w: F.silu(F.group_norm(x, 32, w, w)), lambda: (image(), tensor(256))
    yield from strided()


def strided() -> Iterator[tuple[str, Function, Callable[[], tuple[Tensor, ...]]]]:
    """The kernels whose accesses are contiguous along several axes, and those that reduce other axes than the last."""
    f32 = torch.float32
    yield "x + y.t()", lambda x, y: x + y.t(), lambda: (tensor(8192, 8192), tensor(8192, 8192))
    yield "x + y.t() f32", lambda x: x + x.t(), lambda: (tensor(6000, 6000, dtype=f32),)
    last = torch.channels_last
    yield "to channels last", lambda x: (x * 2).contiguous(memory_format=last), lambda: (tensor(64, 256, 56, 56),)
    yield "permute 2 0 1", lambda x: x.permute(2, 0, 1).contiguous() * 2, lambda: (tensor(512, 512, 256),)
    yield "sum of columns", lambda x: x.sum(0), lambda: (tensor(16384, 8192),)
    yield "sum of 512 columns", lambda x: x.sum(0), lambda: (tensor(131072, 512),)
    yield "sum of columns f32", lambda x: x.sum(0), lambda: (tensor(8192, 8192, dtype=f32),)
    yield "mean of the middle", lambda x: x.mean(1), lambda: (tensor(64, 1024, 1024),)
    yield "softmax of the middle", lambda x: torch.softmax(x, 1), lambda: (tensor(64, 512, 1024),)
    yield "sum over an axis of 4", lambda x: x.sum(1), lambda: (tensor(65536, 4, 512),)
    embedding = partial(tensor, 100_000, 256)
    for count in (4, 16):
        at = partial(places, 100_000, 262144 // count, count)
        yield f"sum of {count} gathered rows", lambda w, i: w[i].sum(1), lambda at=at: (embedding(), at())
    yield "embedding", lambda w, i: w[i] * 2, lambda: (tensor(100_000, 1024), places(100_000, 65536))
    bytes_ = partial(torch.randint, -128, 127, (16384, 8192), device="cuda", dtype=torch.int8)
    yield "int8 dequantised", lambda q, s: q.bfloat16() * s[:, None], lambda: (bytes_(), tensor(16384))


class Recorder(minductor.Compiler):
    """A compiler that keeps the programs that it gives to the stage `schedule`."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[tuple[Any, Env]] = []

    def run_stage(self, stage: Any, value: Any, role: Any, env: Any) -> Any:
        if stage.name == "schedule":
            self.programs.append((value, env))
        return super().run_stage(stage, value, role, env)


def case(title: str, fn: Function, args: tuple[Tensor, ...]) -> Case | None:
    """The case, measured; None if no kernel has several recipes."""
    torch._dynamo.reset()
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:  # a graph that a store has runs no stage
        options: dict[str, Any] = {"fallback": "error", "cache_dir": folder}
        torch.compile(lambda *given: fn(*given), backend=recorder, dynamic=False, options=options)(*args)
    ((program, env),) = recorder.programs
    table = program.real_table()
    legal: list[dict[str, Kernel]] = []
    for node in program.nodes:
        if isinstance(node, Kernel):
            drafts = gpu_recipes.drafts(merge_kernel_axes(node), table, env, program.hints)
            legal.append({name: gpu_place.place(draft) for name, draft in drafts.items()})
    names = [recipe.name for recipe in gpu_recipes.ALL if any(len(k) > 1 and recipe.name in k for k in legal)]
    own = [kernels[taken(kernels, table, env, env.target.machine or NOMINAL)] for kernels in legal]
    made = {name: [kernels.get(name, k) for kernels, k in zip(legal, own, strict=True)] for name in names}
    return Case(title, made, table, env, *measured(fn, args, names)) if len(names) > 1 else None


def taken(kernels: Mapping[str, Kernel], table: Mapping[str, Buffer], env: Env, machine: Machine) -> str:
    """The recipe that the compiler takes for one kernel."""
    target = replace(env.target, machine=machine)
    return fastest({name: (seconds(kernel, table, target, ()).seconds,) for name, kernel in kernels.items()})


def measured(fn: Function, args: tuple[Tensor, ...], names: Sequence[str]) -> tuple[dict[str, float], float]:
    """The median microseconds of a call by each recipe, and of a copy."""
    calls: dict[str, Function] = {}
    for name in names:
        forced = torch.compile(lambda *given: fn(*given), backend="minductor", dynamic=False, options={"variant": name})
        calls[name] = partial(forced, *args)
    results = fn(*args)
    size = sum(each.nbytes for each in (*args, *(results if isinstance(results, tuple) else (results,))))
    source = torch.empty(size // 32, 16, dtype=torch.uint8, device="cuda")
    calls["copy"] = partial(torch.empty_like(source).copy_, source)
    graphs = {name: _graph(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            samples[name].append(first.elapsed_time(last) / CALLS * 1e3)
    times = {name: statistics.median(each) for name, each in samples.items()}
    copy = times.pop("copy")
    return times, copy


def _graph(call: Function) -> torch.cuda.CUDAGraph:
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def priced(each: Case, machine: Machine) -> dict[str, float]:
    """The predicted microseconds by recipe."""
    target = replace(each.env.target, machine=machine)
    return {
        name: 1e6 * sum(seconds(kernel, each.table, target, ()).seconds for kernel in kernels)
        for name, kernels in each.made.items()
    }


def regret(each: Case, machine: Machine) -> tuple[str, float]:
    """The recipe with the lowest price, and its time over that of the fastest one."""
    name = fastest({name: (price,) for name, price in priced(each, machine).items()})
    return name, each.times[name] / min(each.times.values())


def loss(half: Sequence[Case], machine: Machine, nominal: Machine) -> float:
    """How far prices are from times, and twice the regret. Numbers far from the nominal ones add to it."""
    total = 0.0
    for each in half:
        errors = [abs(math.log(price / each.times[name])) for name, price in priced(each, machine).items()]
        total += statistics.fmean(errors) + 2 * math.log(regret(each, machine)[1])
    far = statistics.fmean(math.log(getattr(machine, n) / getattr(nominal, n)) ** 2 for n in FITTED)
    return total / len(half) + PRIOR * far


def fitted(half: Sequence[Case], nominal: Machine, limit: float) -> Machine:
    """The machine whose prices fit these cases best, found by random changes of one number for `limit` seconds."""
    draw, end = random.Random(1), time.monotonic() + limit
    machine, least = nominal, loss(half, nominal, nominal)
    while time.monotonic() < end:
        name = draw.choice(FITTED)
        moved = replace(machine, **{name: getattr(machine, name) * math.exp(draw.gauss(0, 0.25))})
        if (found := loss(half, moved, nominal)) < least:
            machine, least = moved, found
    return machine


def report(half: Sequence[Case], machine: Machine) -> str:
    """How well the prices rank these cases."""
    right = wrong = 0
    for each in half:
        prices = priced(each, machine)
        for one, first in each.times.items():
            for other, second in each.times.items():
                if first * CLEAR < second:
                    right, wrong = right + (prices[one] < prices[other]), wrong + (prices[one] >= prices[other])
    regrets = [regret(each, machine)[1] for each in half]
    low = sum(lost <= 1.1 for lost in regrets)
    ranked = f"{len(half)} kernels: concordance {right / max(1, right + wrong):.2f} of {right + wrong} pairs"
    worst = f"median {statistics.median(regrets):.2f}, largest {max(regrets):.2f}"
    return f"{ranked}; regret of {low} at most 1.10, {worst}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", type=float, default=0.0, help="seconds for which the machine's numbers are fitted")
    limit = parser.parse_args().fit
    torch._dynamo.config.recompile_limit = 1000
    found: list[Case] = []
    print("| kernel | copy | measured / predicted us by recipe | taken | regret |\n|---|---:|---|---|---:|")
    for title, fn, make in cases():
        each = case(title, fn, make())
        if each is None:
            continue
        found.append(each)
        machine = each.env.target.machine or NOMINAL
        name, lost = regret(each, machine)
        row = ", ".join(f"{name} {each.times[name]:.0f} / {p:.0f}" for name, p in priced(each, machine).items())
        print(f"| {title} | {each.copy:.0f} | {row} | {name} | {lost:.2f} |", flush=True)
        torch.cuda.empty_cache()
    found.sort(key=lambda each: each.title)
    machine = nominal = found[0].env.target.machine or NOMINAL
    if limit:
        machine = fitted(found[::2], nominal, limit)
        print(", ".join(f"{field}={getattr(machine, field):.2g}" for field in FITTED))
    print(f"\nThe half to which the numbers were fitted: {report(found[::2], machine)}")
    print(f"The other half: {report(found[1::2], machine)}")


if __name__ == "__main__":
    main()
