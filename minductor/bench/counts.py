"""`minductor bench --counts`: kernels, bytes moved and peak memory of TorchInductor and minductor. No clock is read.

Takes: a command line. Gives: a table with a verdict for each case, JSON where asked; exit code 1 if a verdict fails.
Refuses: unknown cases, and names similar ones.

Both compilers are counted in the same way. Bytes: for each launch of a generated kernel, the distinct bytes of every
buffer that it reads, and of every buffer that it writes (`counted_cost.py`). Calls of operators are counted apart. They
are part of the verdict only if the two compilers make different calls. Peak: the most bytes that are allocated at once
during one call (forward, and backward if the case has one) beyond those allocated before it, from torch's allocation
events. A first call is not counted.
"""

import argparse
import dataclasses
import gc
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from minductor.analysis.domain import buffer_bytes
from minductor.bench import cases, peer
from minductor.bench.bench_results import Counts, Launch
from minductor.bench.bench_tables import align
from minductor.bench.claims import OURS, PEER
from minductor.core.errors import UnknownTarget
from minductor.driver import Compiler
from minductor.ir.program.nodes import Extern, Kernel, Program, Ref, reads, writes
from minductor.ir.report.counted_cost import kernel_cost
from minductor.target import TARGETS, Target, by_name

CPU = TARGETS["cpu"]
SLACK = 1.02  # in one case, on bytes


@dataclass(frozen=True, slots=True)
class Counted:
    """One case under one compiler: sums over its graphs, the externs by name, and the peak if it could be measured."""

    kernels: int
    bytes: int
    externs: Mapping[str, int]
    extern_bytes: int
    peak: int | None
    failure: str = ""

    @property
    def total(self) -> int:
        return self.bytes + self.extern_bytes


def summed(graphs: Iterable[Counts], peak: int | None, failure: str = "") -> Counted:
    kernels = [launch for graph in graphs for launch in graph.kernels]
    externs = [launch for graph in graphs for launch in graph.externs]
    return Counted(
        len(kernels),
        sum(launch.bytes for launch in kernels),
        dict(sorted(Counter(launch.name for launch in externs).items())),
        sum(launch.bytes for launch in externs),
        peak,
        failure,
    )


class Watching(Compiler):
    """A compiler that records each graph that it compiles."""

    def __init__(self, folder: str, target: Target) -> None:
        super().__init__(environ={**os.environ, "MINDUCTOR_CACHE_DIR": folder}, is_dry=target.is_gpu)
        self.found: list[Counts] = []

    def run_stage(self, stage: Any, value: Any, role: Any, env: Any) -> Any:
        if stage.gives == "plan":
            self.found.append(counted(value))
        return super().run_stage(stage, value, role, env)


def counted(program: Program) -> Counts:
    """The facts of one of our programs, including its regions."""
    buffers = program.real_table()
    costs = [
        (node.name, kernel_cost(node, buffers, program.hints)) for node in program.nodes if isinstance(node, Kernel)
    ]
    kernels = [Launch(name, cost.read, cost.written) for name, cost in costs]
    calls = [node for node in program.nodes if isinstance(node, Extern)]
    sizes = {name: buffer_bytes(buffer, program.hints) for name, buffer in buffers.items()}
    externs = [Launch(n.op, _bytes(reads(n), sizes), _bytes(writes(n), sizes)) for n in calls]
    for region in map(counted, program.regions):
        kernels += region.kernels
        externs += region.externs
    return Counts(tuple(kernels), tuple(externs))


def _bytes(refs: Iterable[Ref], sizes: Mapping[str, int]) -> int:
    return sum(sizes[name] for name in {ref.storage for ref in refs})


def measured_peak(call: Callable[[], object]) -> int:
    """The most bytes that are allocated at once during a call, beyond those before it."""
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = call()
    del result
    results: Any = profile.profiler
    held = peak = 0
    for event in results.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def count(
    backend: str, function: Callable[..., Any], run: Callable[[Callable[..., Any]], object], target: Target = CPU
) -> Counted:
    """The sums over all graphs of a function. `run` takes the compiled function and calls it."""
    return summed(*details(backend, function, run, target))


def details(
    backend: str, function: Callable[..., Any], run: Callable[[Callable[..., Any]], object], target: Target = CPU
) -> tuple[list[Counts], int | None, str]:
    """The counts of each graph, the peak in bytes, and the error of the run or "".

    The peak is None if the run fails, and for a GPU target, since its GPU need not be here.
    """
    torch._dynamo.reset()
    with ExitStack() as stack:
        if backend == OURS:
            watching = Watching(stack.enter_context(tempfile.TemporaryDirectory(prefix="minductor_counts_")), target)
            ours = partial(watching, options={"target": target.name})
            compiled, found = torch.compile(function, backend=ours), watching.found
        else:
            found = stack.enter_context(peer.recording(target))
            compiled = torch.compile(function, backend=backend)
        try:
            run(compiled)
            return found, None if target.is_gpu else measured_peak(lambda: run(compiled)), ""
        except (
            Exception
        ) as error:  # operators may fail on what TorchInductor's kernels, which compute nothing here, left
            return found, None, f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def count_case(case: str, backend: str, size: str, target: Target = CPU) -> Counted:
    program = cases.build(case, size=size)
    return count(backend, program.function, lambda function: cases.step(program, function), target)


# --- verdicts


def verdict(ours: Counted, theirs: Counted) -> str:
    """ "pass", or "FAIL: " with the error, or with what is worse under minductor than under TorchInductor."""
    if ours.failure:
        return f"FAIL: {ours.failure}"
    is_same = ours.extern_bytes == theirs.extern_bytes
    mine, other = (ours.bytes, theirs.bytes) if is_same else (ours.total, theirs.total)
    is_higher = ours.peak is not None and theirs.peak is not None and ours.peak > theirs.peak
    faults = [name for name, is_worse in (("bytes", mine > SLACK * other), ("peak", is_higher)) if is_worse]
    return f"FAIL: {', '.join(faults)}" if faults else "pass"


def table(found: Mapping[str, Mapping[str, Counted]]) -> str:
    """One row per case, first TorchInductor's figure and then ours."""
    rows = [["case", "kernels", "externs", "bytes", "extern bytes", "ours/theirs", "peak", "ours/theirs", "verdict"]]
    for case, both in found.items():
        ours, theirs = both[OURS], both[PEER]
        rows.append(
            [
                case,
                f"{theirs.kernels} {ours.kernels}",
                f"{sum(theirs.externs.values())} {sum(ours.externs.values())}",
                f"{theirs.bytes} {ours.bytes}",
                f"{theirs.extern_bytes} {ours.extern_bytes}",
                quotient(ours.total, theirs.total),
                f"{'-' if theirs.peak is None else theirs.peak} {'-' if ours.peak is None else ours.peak}",
                "-" if ours.peak is None or theirs.peak is None else quotient(ours.peak, theirs.peak),
                verdict(ours, theirs),
            ]
        )
    return align(rows)


def quotient(a: int, b: int) -> str:
    return f"{a / b:.3f}" if b else "1.000" if a == b else "-"


def render(found: Mapping[str, Mapping[str, Counted]], target: Target = CPU) -> str:
    """The table and the sums, as a page."""
    sums = {name: sum(both[name].bytes for both in found.values()) for name in (PEER, OURS)}
    kernels = {name: sum(both[name].kernels for both in found.values()) for name in (PEER, OURS)}
    passed = sum(verdict(both[OURS], both[PEER]) == "pass" for both in found.values())
    option = "" if target is CPU else f" --target {target.name}"
    return "\n\n".join(
        [
            "# Kernels, bytes and peak memory beside TorchInductor",
            f"Made by `minductor bench --counts{option}`; torch {torch.__version__}. In each pair "
            "TorchInductor's figure is the first and ours the second.\n"
            "Bytes: for each launch the distinct bytes of every buffer read plus written; calls of operators stand "
            "apart.\n"
            "Peak: the most bytes allocated at once during one call, from torch's allocation events.",
            f"Cases that pass: {passed} of {len(found)}. Kernels: {kernels[PEER]} and {kernels[OURS]}. "
            f"Their bytes: {sums[PEER]} and {sums[OURS]} ({quotient(sums[OURS], sums[PEER])}).",
            f"```\n{table(found)}\n```\n",
        ]
    )


# --- the command


def main(argv: list[str]) -> int:
    """Counts the cases of the command line. The exit code is 1 if a verdict fails."""
    parser = argparse.ArgumentParser(prog="minductor bench --counts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="cases whose name contains NAME")
    parser.add_argument("--target", default="cpu", help="what to compile for; a GPU need not be here")
    parser.add_argument("--size", choices=("bench", "tiny"), default="bench", help="size of the models")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures here")
    parser.add_argument("--text", type=Path, metavar="PATH", help="write the page here")
    given = parser.parse_args(argv)
    try:
        names = cases.matching(cases.micro_names() + cases.model_names(), tuple(given.only))
        target = by_name(given.target)
    except (ValueError, UnknownTarget) as error:
        parser.error(str(error))
    for problem in filter(None, map(cases.no_place, (given.json, given.text))):
        parser.error(problem)
    found: dict[str, dict[str, Counted]] = {}
    for number, case in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {case}", file=sys.stderr, flush=True)
        found[case] = {backend: count_case(case, backend, given.size, target) for backend in (PEER, OURS)}
    print(render(found, target))
    if given.text is not None:
        given.text.write_text(render(found, target), encoding="utf-8")
    if given.json is not None:
        data: dict[str, dict[str, Any]] = {}
        for case, both in found.items():
            figures = {name: dataclasses.asdict(each) for name, each in both.items()}
            data[case] = {**figures, "verdict": verdict(both[OURS], both[PEER])}
        given.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return int(any(verdict(both[OURS], both[PEER]) != "pass" for both in found.values()))
