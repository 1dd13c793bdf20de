"""What the cost model predicts for the recipes of kernels on a CPU, beside what this CPU takes for them.

Takes nothing, or `--fit`. Prints the second table of cost_model.md: by kernel and recipe the microseconds measured and
predicted, on one thread and on two, and the regret of the recipe that the compiler would take. `--fit` fits the numbers
of the nominal CPU to every second kernel, in a fixed random order, and prints them; the other half and the kernels
named "other" judge them.
Recipes are forced and run in interleaved rounds, in turn the first one; the least time counts, since other processes
only add to it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import minductor
from minductor.cost.cpu_seconds import cpu_seconds
from minductor.cost.kernel_seconds import fastest
from minductor.ir.program.nodes import Buffer, Kernel
from minductor.passes.rewriting.kernel_axes import merge_kernel_axes
from minductor.passes.schedule import cpu_place, cpu_recipes
from minductor.target import NOMINAL_CPU, CpuMachine, by_name

ROUNDS, SAMPLE = 61, 0.001  # rounds, and the seconds of one sample
THREADS = (1, 2)
CALL = 16e-6  # seconds of a call of the compiled function, which the price of a kernel leaves out
CLEAR = 1.1  # two recipes whose times differ by a smaller factor are not compared
FITTED = (
    *("second_line", "third_line", "memory_line", "third_jump", "memory_wait", "operation", "scalar"),
    *("gather", "narrow_gather", "gathering", "strided", "special", "chain", "loop", "ragged", "join"),
)
Function = Callable[..., Any]
Times = dict[int, dict[str, float]]  # by the number of threads and the recipe
Order = set[tuple[int, str, str]]  # so many threads, and two recipes of which the first one is clearly faster


class Case(NamedTuple):
    """A kernel in all its schedules, and what they take."""

    title: str
    made: Mapping[str, Kernel]
    table: Mapping[str, Buffer]
    times: Times
    order: Order


def randn(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, dtype=dtype)


def cases() -> Iterator[tuple[str, Function, tuple[Tensor, ...]]]:
    """The name of each kernel, its function and its arguments."""
    for size in ((16, 131072), (4, 262144), (1, 1 << 20), (20, 40000), (1, 90300)):
        yield f"sum of rows {size}", lambda x: x.sum(-1), (randn(*size),)
    yield "softmax (16, 131072)", lambda x: torch.softmax(x, -1), (randn(16, 131072),)
    yield "layer_norm (8, 65536)", lambda x, w: F.layer_norm(x, w.shape, w, w), (randn(8, 65536), randn(65536))
    columns = ((2048, 1024), (64, 16384), (16384, 64), (100000, 16), (300, 512), (1000, 100), (2000, 300), (700, 5000))
    for size in columns:
        yield f"sum of columns {size}", lambda x: x.sum(0), (randn(*size),)
    yield "sum of the middle (32, 256, 256)", lambda x: x.sum(1), (randn(32, 256, 256),)
    for size in ((2048, 1024), (300, 400), (64, 4096)):
        yield f"rows and columns {size}", lambda x: (x.sum(0), x.sum(1)), (randn(*size),)
    for size in ((3, 2000, 4, 6), (8, 1000, 8, 4), (2, 5000, 16, 2), (8, 784, 32, 12), (8, 3136, 8, 8)):
        yield f"sums of groups {size}", lambda x: x.sum((1, 3)), (randn(*size),)
        yield f"norms of groups {size}", lambda x: x / (x.sum((1, 3), keepdim=True) + 1), (randn(*size),)
    for size in ((1 << 22,), (1 << 16,), (12000,), (16, 4096), (4, 100000), (15, 30000), (2, 2000000)):
        yield f"gelu {size}", lambda x: F.gelu(x), (randn(*size),)
        yield f"2x + 1 {size}", lambda x: 2 * x + 1, (randn(*size),)
    yield "exp of outer (3, 60000)", lambda x, y: torch.exp(x[:, None] * y[None, :]), (randn(3), randn(60000))
    for rows, length in ((1024, 2048), (64, 64), (200, 300), (4096, 16), (16, 4096), (128, 128), (1000, 700)):
        yield f"x.t() + y {rows, length}", lambda x, y: x.t() + y, (randn(rows, length), randn(length, rows))
    half = randn(1024, 2048, dtype=torch.bfloat16)
    yield "transpose, bf16 (1024, 2048)", lambda x: x.t().contiguous(), (half,)
    yield "gelu of x.t() (512, 512)", lambda x: F.gelu(x.t()).contiguous(), (randn(512, 512),)
    batch = randn(16, 197, 64)
    yield "transposed batch (16, 197, 64)", lambda x: (x * 2).transpose(1, 2).contiguous(), (batch,)
    last = torch.channels_last
    yield "to channels last", lambda x: (2 * x).to(memory_format=last), (randn(8, 64, 56, 56),)
    yield "to channels first", lambda x: (2 * x).contiguous(), (randn(8, 3, 224, 224).to(memory_format=last),)
    yield from gathers()


def gathers() -> Iterator[tuple[str, Function, tuple[Tensor, ...]]]:
    """The kernels that read where data say."""
    places = torch.randint(1024, (700,))
    yield "columns (512, 700)", lambda x, i: x[:, i], (randn(512, 1024), places)
    yield "gelu of columns (512, 700)", lambda x, i: F.gelu(x[:, i]), (randn(512, 1024), places)
    yield "columns (64, 100)", lambda x, i: x[:, i], (randn(64, 1024), places[:100])
    yield "columns (4096, 64)", lambda x, i: x[:, i] * 2, (randn(4096, 128), places[:64] // 8)
    x, i = randn(1024, 1024), torch.randint(1024, (1024, 512))
    yield "gather (1024, 512)", lambda x, i: x.gather(-1, i), (x, i)
    yield "gather, chain (1024, 512)", lambda x, i: (x.gather(-1, i) * 2 + 1).relu() * 3 - 1, (x, i)
    yield "gather, gelu (1024, 512)", lambda x, i: F.gelu(x.gather(-1, i)), (x, i)
    yield "gather, tanh (1024, 512)", lambda x, i: torch.tanh(x.gather(-1, i)), (x, i)
    yield "gather, bf16 (1024, 512)", lambda x, i: x.gather(-1, i) * 2, (x.bfloat16(), i)
    yield "gather of 2**20 in 16 MiB", lambda x, i: x[i], (randn(1 << 22), torch.randint(1 << 22, (1 << 20,)))
    yield "gather of 50,000 in 40 KB", lambda x, i: x[i] * 2 + 1, (randn(10000), torch.randint(10000, (50000,)))
    yield "flip (200000)", lambda x: x.flip(-1) * 2, (randn(200000),)


def others() -> Iterator[tuple[str, Function, tuple[Tensor, ...]]]:
    """Kernels of the same kinds to which nothing is ever fitted, with other sizes, functions and dtypes."""
    yield "other sum of rows (8, 200000)", lambda x: x.sum(-1), (randn(8, 200000),)
    yield "other maximum of rows (3, 50000)", lambda x: x.amax(-1), (randn(3, 50000),)
    yield "other mean of rows (1, 400000)", lambda x: x.mean(-1), (randn(1, 400000),)
    yield "other log_softmax (6, 80000)", lambda x: x.log_softmax(-1), (randn(6, 80000),)
    yield "other sum of columns (500, 2000)", lambda x: x.sum(0), (randn(500, 2000),)
    yield "other sum of columns (30000, 32)", lambda x: x.sum(0), (randn(30000, 32),)
    yield "other squares of columns (5000, 200)", lambda x: (x * x).mean(0), (randn(5000, 200),)
    yield "other sums of groups (4, 900, 6, 10)", lambda x: x.sum((1, 3)), (randn(4, 900, 6, 10),)
    groups = randn(4, 1500, 10, 5)
    yield "other norms of groups (4, 1500, 10, 5)", lambda x: x / (x.sum((1, 3), keepdim=True) + 1), (groups,)
    yield "other tanh (300000,)", torch.tanh, (randn(300000),)
    yield "other 3x (7, 150000)", lambda x: x * 3, (randn(7, 150000),)
    yield "other silu (9, 20000)", lambda x: F.silu(x), (randn(9, 20000),)
    for rows, length in ((600, 900), (3000, 40)):
        yield f"other x.t() * y {rows, length}", lambda x, y: x.t() * y, (randn(rows, length), randn(length, rows))
    yield "other sigmoid of x.t() (256, 1024)", lambda x: torch.sigmoid(x.t()).contiguous(), (randn(256, 1024),)
    yield "other transposed batch (12, 100, 80)", lambda x: (x + 1).transpose(1, 2).contiguous(), (randn(12, 100, 80),)
    last = torch.channels_last
    yield "other to channels last", lambda x: (2 * x).to(memory_format=last), (randn(4, 32, 40, 40),)
    places = torch.randint(500, (300,))
    yield "other columns (800, 300)", lambda x, i: x[:, i] + 1, (randn(800, 500), places)
    yield "other exp of columns (600, 300)", lambda x, i: x[:, i].exp(), (randn(600, 500), places)
    x, i = randn(700, 600), torch.randint(600, (700, 900))
    yield "other gather (700, 900)", lambda x, i: x.gather(-1, i) * 3, (x, i)
    yield "other gather, sigmoid (700, 900)", lambda x, i: torch.sigmoid(x.gather(-1, i)), (x, i)
    yield "other gather, f16 (700, 900)", lambda x, i: x.gather(-1, i) + 1, (x.half(), i)
    yield "other gather, f64 (700, 900)", lambda x, i: x.gather(-1, i) + 1, (x.double(), i)
    yield "other gather of 200,000 in 4 MiB", lambda x, i: x[i] + 1, (randn(1 << 20), torch.randint(1 << 20, (200000,)))
    yield "other flip (400, 900)", lambda x: x.flip(-1).exp(), (randn(400, 900),)


class Recorder(minductor.Compiler):
    """A compiler that keeps the programs that it gives to the stage `schedule`."""

    def __init__(self) -> None:
        super().__init__()
        self.programs: list[Any] = []

    def run_stage(self, stage: Any, value: Any, role: Any, env: Any) -> Any:
        if stage.name == "schedule":
            self.programs.append(value)
        return super().run_stage(stage, value, role, env)


def measured(fn: Function, args: Sequence[Tensor], names: Sequence[str]) -> tuple[Times, Order]:
    """The least seconds of a call of each recipe, and which are clearly faster, in both halves of the rounds."""
    calls = {}
    for name in names:
        calls[name] = torch.compile(
            lambda *given: fn(*given), backend="minductor", dynamic=False, options={"variant": name}
        )
        calls[name](*args)
    found, order = Times(), Order()
    for threads in THREADS:
        torch.set_num_threads(threads)
        once = min(_seconds(call, args, 1) for call in calls.values())
        count = max(1, min(60, int(SAMPLE / once)))
        samples: dict[str, list[float]] = {name: [] for name in names}
        for turn in range(ROUNDS):
            for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
                samples[name].append(_seconds(calls[name], args, count))
        found[threads] = {name: min(each) for name, each in samples.items()}
        for one, other in itertools.permutations(names, 2):
            if all(CLEAR * min(samples[one][half::2]) < min(samples[other][half::2]) for half in (0, 1)):
                order.add((threads, one, other))
    return found, order


def _seconds(call: Function, args: Sequence[Tensor], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call(*args)
    return (time.perf_counter() - begin) / count


def case(title: str, fn: Function, args: tuple[Tensor, ...]) -> Case | None:
    """The case, measured; None if it is more than one kernel, or one with a single recipe."""
    torch._dynamo.reset()
    recorder = Recorder()
    torch.compile(lambda *given: fn(*given), backend=recorder, dynamic=False, options={"fallback": "error"})(*args)
    (program,) = recorder.programs
    kernels = [node for node in program.nodes if isinstance(node, Kernel)]
    if len(kernels) != 1:
        return None
    table, kernel = program.real_table(), merge_kernel_axes(kernels[0])
    drafts = cpu_recipes.drafts(kernel, table, by_name("cpu"), ())
    made = {name: cpu_place.place(draft) for name, draft in drafts.items()}
    return Case(title, made, table, *measured(fn, args, list(made))) if len(made) > 1 else None


def priced(case: Case, machine: CpuMachine, threads: Sequence[int]) -> dict[str, tuple[float, ...]]:
    costs = cpu_seconds(case.made, case.table, machine, threads)
    return {name: tuple(cost.seconds for cost in each) for name, each in costs.items()}


def loss(half: Sequence[Case], machine: CpuMachine) -> float:
    """How far the prices are from the times: of one recipe to the other, and, less weighty, of all together.

    Numbers far from the nominal ones add to it, so that those to which the kernels say nothing stay.
    """
    total = 0.0
    for each in half:
        prices = priced(each, machine, THREADS)
        for number, threads in enumerate(THREADS):
            errors = [math.log(t / (prices[name][number] + CALL)) for name, t in each.times[threads].items()]
            mean = statistics.fmean(errors)
            total += 0.7 * abs(mean) + 2 * statistics.fmean(abs(error - mean) for error in errors)
    far = sum(math.log(a / b) ** 2 for a, b in zip(machine, NOMINAL_CPU, strict=True))
    return total / len(half) + 0.02 * far


def fitted(half: Sequence[Case]) -> CpuMachine:
    """The machine whose prices fit these cases best, one number after the other."""
    machine, least = NOMINAL_CPU, loss(half, NOMINAL_CPU)
    for factor in (1.5, 1.25, 1.1, 1.1):
        for field, by in itertools.product(FITTED, (factor, 1 / factor)):
            while True:
                moved = machine._replace(**{field: getattr(machine, field) * by})
                found = loss(half, moved)
                if found >= least - 1e-4:
                    break
                machine, least = moved, found
    return machine


def report(half: Sequence[Case], machine: CpuMachine) -> None:
    """Prints how well the prices rank these cases."""
    right = wrong = 0
    regrets: list[float] = []
    for each in half:
        prices = priced(each, machine, THREADS)
        for threads, one, other in each.order:
            number = THREADS.index(threads)
            is_right = prices[one][number] < prices[other][number]
            right, wrong = right + is_right, wrong + (not is_right)
        regrets.append(regret(each, machine)[1])
    low = sum(loss <= 1.1 for loss in regrets)
    print(f"{len(half)} kernels: concordance {right / max(1, right + wrong):.2f} of {right + wrong} pairs; regret of")
    print(f"{low} at most 1.10, median {statistics.median(regrets):.2f}, largest {max(regrets):.2f}\n")


def regret(each: Case, machine: CpuMachine) -> tuple[str, float]:
    """The recipe that the compiler takes, and its time over the least, with the number of threads where it is worse."""
    taken = fastest(priced(each, machine, (1, 16)))
    return taken, max(times[taken] / min(times.values()) for times in each.times.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit the numbers of the nominal CPU to half of the cases")
    is_fit = parser.parse_args().fit
    torch._dynamo.config.recompile_limit = 1000
    found: list[Case] = []
    print("| kernel | measured / predicted us by recipe on 1 thread; on 2 | taken | regret |\n|---|---|---|---:|")
    rest: list[Case] = []
    for title, fn, args in itertools.chain(cases(), others()):
        each = case(title, fn, args)
        if each is None:
            continue
        (rest if title.startswith("other") else found).append(each)
        prices = priced(each, NOMINAL_CPU, THREADS)
        taken, lost = regret(each, NOMINAL_CPU)
        texts = [
            f"{name} "
            + "; ".join(
                f"{each.times[n][name] * 1e6:.0f} / {p * 1e6:.0f}" for n, p in zip(THREADS, prices[name], strict=True)
            )
            for name in prices
        ]
        print(f"| {title} | {', '.join(texts)} | {taken} | {lost:.2f} |", flush=True)
    random.Random(0).shuffle(found)
    machine = fitted(found[::2]) if is_fit else NOMINAL_CPU
    if is_fit:
        print(", ".join(f"{field}={getattr(machine, field):.2g}" for field in FITTED))
    print("\nThe half to which `--fit` fits:")
    report(found[::2], machine)
    print("The other half:")
    report(found[1::2], machine)
    print("Other kernels:")
    report(rest, machine)


if __name__ == "__main__":
    main()
