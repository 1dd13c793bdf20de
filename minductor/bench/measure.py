"""One measurement in a process of its own: `python -m minductor.bench.measure REQUEST ANSWER`.

Takes: the path of a JSON request, `{"do": "running" | "first call", "case": ..., ...}`. Gives: its answer as JSON at
the second path. Refuses: unknown requests. A backend that raises is a `failures` entry, not an error of the benchmark.

A fresh process per measurement gives memory back and keeps one case's caches, threads and Dynamo state out of the next.
"""

import importlib
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Only what every process that has a model to compile has imported anyway; `preload` brings the rest.
import torch
from torch import Tensor

from minductor.bench import cases, frozen_backends

SAMPLE_SECONDS = 0.012
MAX_REPEATS = 40
# OpenMP's idle threads spin for some milliseconds; without a pause their CPU time would be the next backend's.
SETTLE_SECONDS = 0.008


def compile_with(backend: str, function: cases.Function) -> cases.Function:
    """`function` compiled by a backend.

    torch.compile is given minductor's object and not its name, so that a checkout that is not installed works.
    """
    match backend:
        case "eager":
            return function
        case "minductor":
            return torch.compile(function, backend=importlib.import_module("minductor").minductor)
        case "minductor-frozen":
            ours = importlib.import_module("minductor").minductor
            return torch.compile(function, backend=ours, options=dict(frozen_backends.MINDUCTOR))
        case "inductor-frozen":
            return frozen_backends.inductor_frozen(function)
        case "openvino":
            return frozen_backends.openvino(function)
        case _:
            return torch.compile(function, backend=backend)


def short_text(error: Exception) -> str:
    """The class and the first line of an error; of the backend's own error where Dynamo wrapped that error."""
    error = getattr(error, "inner_exception", error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def error_in_ulp(got: Tensor, truth: Tensor) -> float:
    """The largest error of a result, in eps of its dtype times the truth's largest element.

    For integers: the number of elements that differ.

    >>> error_in_ulp(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], dtype=torch.float64))
    0.0
    >>> error_in_ulp(torch.tensor([1.0]), torch.tensor([float("nan")], dtype=torch.float64))
    inf
    """
    if got.shape != truth.shape:
        return float("inf")
    if not got.is_floating_point():
        return float((got != truth).sum())
    wide, finite = got.double(), truth.isfinite()
    if not torch.equal(wide.nan_to_num()[~finite], truth.nan_to_num()[~finite]):
        return float("inf")
    if not torch.equal(wide.isnan(), truth.isnan()):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(truth[finite].abs().max()) or 1.0
    return float((wide - truth)[finite].abs().max()) / (scale * torch.finfo(got.dtype).eps)


def worst(got: Iterable[Tensor], eager: Iterable[Tensor], truth: Iterable[Tensor]) -> dict[str, float]:
    """The error of the result whose error is the largest share of its bound.

    The bound is twice eager's error, or 4 ULP if that is more; for integers, it is eager's error.
    """
    found: list[dict[str, float]] = []
    for index, (ours, theirs, exact) in enumerate(zip(got, eager, truth, strict=True)):
        error, reference = error_in_ulp(ours, exact), error_in_ulp(theirs, exact)
        bound = max(2 * reference, 4.0) if theirs.is_floating_point() else reference
        found.append({"result": index, "error": error, "eager": reference, "bound": bound})
    return max(found, key=lambda each: each["error"] / (each["bound"] or 0.5))


def seconds_of(run: Callable[[], Any], repeats: int, device: str) -> float:
    """Seconds of one call, over `repeats` calls: on a GPU between two events of its stream."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3 / repeats
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def sample(program: cases.Program, function: cases.Function, repeats: int) -> tuple[float, float]:
    """CPU and wall seconds of one call, over `repeats` calls."""
    time.sleep(SETTLE_SECONDS)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        cases.step(program, function)
    return (time.process_time() - cpu) / repeats, (time.perf_counter() - wall) / repeats


def running(case: str, backends: list[str], rounds: int, size: str) -> dict[str, Any]:
    """Measures all backends in this process. Each round runs them in a new random order."""
    program = cases.build(case, size=size)
    exact = cases.build(case, size=size, precision="float64")
    truth = cases.results_and_state(exact, exact.function)
    eager = cases.results_and_state(program, program.function)
    functions: dict[str, cases.Function] = {}
    accuracy: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for backend in backends:
        try:
            function = compile_with(backend, program.function)
            accuracy[backend] = worst(cases.results_and_state(program, function), eager, truth)
            functions[backend] = function
        except Exception as error:
            failures[backend] = short_text(error)
    del exact, truth, eager
    repeats = {}
    for backend, function in functions.items():
        sample(program, function, 2)
        seconds = sample(program, function, 1)[1]
        repeats[backend] = max(1, min(MAX_REPEATS, round(SAMPLE_SECONDS / seconds)))
    samples: dict[str, dict[str, list[float]]] = {backend: {"cpu": [], "wall": []} for backend in functions}
    shuffle = random.Random(0).shuffle
    order = list(functions)
    for _ in range(rounds):
        shuffle(order)
        for backend in order:
            cpu, wall = sample(program, functions[backend], repeats[backend])
            samples[backend]["cpu"].append(cpu)
            samples[backend]["wall"].append(wall)
    return {"case": case, "samples": samples, "accuracy": accuracy, "failures": failures}


def descendants_cpu() -> float:
    """CPU seconds of the live descendants; getrusage counts a child only once it is dead and waited for."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return 0.0
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(int(field) for field in fields[11:15])  # user and system, its own and its dead children's
    ours, found = {os.getpid()}, 0
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            return found / os.sysconf("SC_CLK_TCK")
        found += sum(ticks[pid] for pid in more)
        ours |= more


def cpu_seconds() -> float:
    """CPU seconds of this process and of everything it ever started."""
    total = descendants_cpu()
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def preload(names: list[str]) -> None:
    """Imports the modules that an earlier process imported in its first call, except those that were generated."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # generated, or it needs hardware that is not here
            continue


def first_call(case: str, backend: str, modules: list[str], size: str) -> dict[str, Any]:
    """Compile and run once; the answer also names the modules that it imported."""
    preload(modules)
    program = cases.build(case, size=size)
    cases.step(program, program.function)  # so that eager's own first call (threads, oneDNN) is not counted
    before = set(sys.modules)
    cpu, wall = cpu_seconds(), time.perf_counter()
    try:
        cases.step(program, compile_with(backend, program.function))
    except Exception as error:
        return {"failure": short_text(error)}
    wall = time.perf_counter() - wall
    return {"cpu": cpu_seconds() - cpu, "wall": wall, "modules": [name for name in sys.modules if name not in before]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request.pop("do"):
        case "running":
            return running(**request)
        case "first call":
            return first_call(**request)
        case other:
            raise ValueError(f"nothing to measure is called {other!r}")


def main(argv: list[str]) -> int:
    source, target = (Path(argument) for argument in argv)
    target.write_text(json.dumps(answer(json.loads(source.read_text(encoding="utf-8")))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
