"""Measures the options of a choice, for `minductor heuristics collect`.

Takes a case: a function with its arguments; and the options that it has, with the features by which a learned choice
decides between them. Gives a `Sample`: what each option takes. Refuses nothing.

All options of a case run in turns of short slices. On a GPU a slice is a replay of a CUDA graph of some calls, and the
median counts. On a CPU one thread runs, and the arguments are copied to other places a few times, since the same
kernel takes other times elsewhere. At each place the least time counts, since other processes only add to it; of these
the median counts.
"""

from __future__ import annotations

import datetime
import itertools
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from unittest.mock import patch

import torch
from torch import Tensor

import minductor
from minductor.driver import Compiler
from minductor.heuristics.samples import Sample, Times
from minductor.ir.program.nodes import Program
from minductor.target import Env
from minductor.version import __version__

if TYPE_CHECKING:
    from minductor.pipeline import Stage

Function: TypeAlias = Callable[..., Any]
PLACES, ROUNDS, SLICE = 4, 6, 0.001  # of the arguments on a CPU; at each place; the seconds of a slice
CALLS, REPLAYS = 4, 15  # calls in a CUDA graph, and how often it runs


class Case(Protocol):
    """A function that is measured. `group`: as in `Sample`."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def called(self) -> Function: ...

    def args(self, device: str) -> tuple[Tensor, ...]: ...


class Found(NamedTuple):
    """The options of a case, its features, the option that is taken today, and the target."""

    options: Sequence[str]
    features: Mapping[str, float]
    default: str
    target: str


class Recorder(Compiler):
    """A compiler that keeps the programs that it gives to the stage `schedule`, and builds nothing."""

    def __init__(self) -> None:
        super().__init__(is_dry=True)
        self.programs: list[tuple[Program, Env]] = []

    def run_stage(self, stage: Stage, value: Any, role: Any, env: Env) -> Any:
        if stage.name == "schedule":
            self.programs.append((value, env))
        return super().run_stage(stage, value, role, env)


def before_schedule(function: Function, args: Sequence[Tensor], target: str) -> tuple[Program, Env]:
    """The program that a function becomes on a target, as the stage `schedule` takes it; "" is the CPU."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="minductor_dry_") as folder:  # a graph that a store has runs no stage
        options: dict[str, Any] = {"cache_dir": folder, "fallback": "error", "target": target}
        torch.compile(lambda *given: function(*given), backend=recorder, dynamic=False, options=options)(*args)
    (found,) = recorder.programs
    return found


def asked(
    choice: str, module: str, default: Callable[[Program], str], function: Function, args: Sequence[Tensor], target: str
) -> Found:
    """What a learned choice is asked when a function is compiled for a target. It is asked once, or ValueError.

    Args:
        choice: the name of the choice.
        module: the name of the module that asks.
        default: gives the option that a program shows, which was compiled without an answer.
        function: the function.
        args: its arguments, on any device.
        target: the name of the target.
    """
    questions: list[tuple[Sequence[str], Mapping[str, float]]] = []

    def learned(about: str, options: Sequence[str], features: Callable[[], Mapping[str, float]], env: Env) -> None:
        if about == choice:
            questions.append((tuple(options), features()))

    with patch(f"{module}.learned", learned):
        program, env = before_schedule(function, args, target)
    if len(questions) != 1:
        raise ValueError(f"{len(questions)} kernels have the choice {choice}")
    return Found(*questions[0], default(program), env.target.name)


class Place(NamedTuple):
    """Where cases are measured. `options`: of all compiles. `clock`: gives the seconds of each call in each round."""

    device: str
    target: str
    clock: Callable[[Mapping[str, Function], Sequence[Tensor]], Mapping[str, Sequence[float]]]
    options: Mapping[str, Any] = {}


def place_of(device: str) -> Place:
    """The CPU or the GPU of this machine."""
    if device == "cpu":
        return Place(device, "", _on_cpu)
    return Place(device, "sm_{}{}".format(*torch.cuda.get_device_capability()), _on_gpu)


def measure(
    choice: str,
    option: str,
    options_of: Callable[[Function, Sequence[Tensor], str], Found],
    case: Case,
    place: Place,
    folder: str,
    turn: AbstractContextManager[Any],
) -> Sample:
    """The times of all options of a case.

    Args:
        choice: the name of the choice.
        option: the compiler's option that forces one.
        options_of: gives the options of a function with arguments on a target.
        case: what is measured.
        place: where.
        folder: for what is compiled.
        turn: is entered while something is measured, so that only one process measures.
    """
    from minductor.runtime.build.probe import software

    torch._dynamo.reset()
    args = case.args(place.device)
    found = options_of(case.called, args, place.target)
    fixed = {**place.options, "cache_dir": folder}
    calls = {name: _forced(case.called, args, {option: name, **fixed}) for name in found.options}
    with turn:
        seconds = place.clock(calls, args)
    return Sample(
        *(choice, case.name, case.group, found.target, _name_of(place.device), datetime.date.today().isoformat()),
        versions={**dict(software()), "python": platform.python_version(), "minductor": __version__},
        features=found.features,
        default=found.default,
        times={name: _times(each) for name, each in seconds.items()},
    )


def _name_of(device: str) -> str:
    """The name of the GPU, or of the CPU."""
    if device != "cpu":
        return torch.cuda.get_device_name()
    from minductor.bench.harness import machine

    return machine()["processor"]


def _forced(function: Function, args: Sequence[Tensor], options: dict[str, Any]) -> Function:
    """The function, compiled with options and called once. All calls share the compiler and its processes."""
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
