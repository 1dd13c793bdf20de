"""`minductor bench`: eager, TorchInductor and minductor side by side, in one run.

Takes: a command line. Gives: tables on stdout, JSON and a PNG where asked; exit code 1 if a claim fails. Refuses:
unknown cases and backends, and a plot without matplotlib, before anything is measured. The errors name similar ones.

Every measurement runs in a fresh process (`measure`); the caches of all backends live in a temporary folder that is
empty at the start, and a cold first call gets one of its own.
"""

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from minductor.bench import bench_results, bench_tables, cases, claims, counts, micro, plot

BACKENDS = (claims.EAGER, claims.PEER, claims.OURS)
FROZEN_BACKENDS = (*BACKENDS[:2], claims.PEER_FROZEN, "openvino", claims.OURS, claims.OURS_FROZEN)
FIRST_CALL_CASES = (cases.FLAGSHIP, cases.GPT_TRAINING)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The command line, parsed and checked."""

    running: tuple[str, ...]
    first_calls: tuple[str, ...]
    backends: tuple[str, ...]
    rounds: int
    first_call_runs: int
    size: str
    json: Path | None
    plot: Path | None


class MeasureError(Exception):
    """A measuring process failed. The text is its exit code and the last line of its errors."""


def parse(argv: list[str]) -> Settings:
    """Read the command line. Without any of the groups, all but --frozen and --training are run."""
    parser = argparse.ArgumentParser(prog="minductor bench", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--counts", action="store_true", help="count kernels, bytes and peak memory instead; `--counts --help`")
    add("--models", action="store_true", help="run the models")
    add("--micro", action="store_true", help="run the micro cases")
    add("--frozen", action="store_true", help="run twelve inference models, also with weights as constants")
    add("--training", action="store_true", help="run training steps of the same twelve models")
    add("--first-calls", action="store_true", help="time cold and warm first calls")
    add("--only", action="append", default=[], metavar="NAME", help="only cases whose name contains NAME")
    add("--rounds", type=int, default=20, help="interleaved rounds of each running case (default 20)")
    add("--first-call-runs", type=int, default=3, help="fresh processes for each first call (default 3)")
    add("--backends", help=f"comma separated (default {','.join(BACKENDS)}; more of them with --frozen)")
    add("--size", choices=("bench", "tiny"), default="bench", help="size of the models")
    add("--json", type=Path, metavar="PATH", help="write the results here")
    add("--plot", type=Path, metavar="PATH", help="write a PNG here")
    given = parser.parse_args(argv)
    is_all = not (given.models or given.micro or given.frozen or given.training or given.first_calls)
    names = cases.micro_names() if given.micro or is_all else ()
    names += cases.model_names() if given.models or is_all else ()
    names += cases.frozen_names() if given.frozen else ()
    names += cases.training_names() if given.training else ()
    first = FIRST_CALL_CASES if given.first_calls or is_all else ()
    try:
        chosen = cases.matching(tuple(dict.fromkeys(names + first)), tuple(given.only))
    except ValueError as error:
        parser.error(str(error))
    if given.rounds < 1 or given.first_call_runs < 1:
        parser.error("at least one round and one run are needed")
    if given.plot is not None and (problem := plot.missing()):
        parser.error(problem)
    usual = FROZEN_BACKENDS if given.frozen else BACKENDS
    backends = usual if given.backends is None else tuple(dict.fromkeys(given.backends.split(",")))
    for problem in (*map(cases.unknown_backend, backends), *map(cases.no_place, (given.json, given.plot))):
        if problem:
            parser.error(problem)
    running, first = (tuple(name for name in group if name in chosen) for group in (names, first))
    return Settings(running, first, backends, given.rounds, given.first_call_runs, given.size, given.json, given.plot)


def machine() -> dict[str, str]:
    """The facts about this machine that the figures depend on, without its name and paths."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        processor = models[0] if models else processor
    return {
        "processor": processor,
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def measure(request: dict[str, Any], caches: Path) -> dict[str, Any]:
    """Runs one measurement in a fresh process whose compilers keep their caches below `caches`."""
    root = Path(__file__).resolve().parents[2]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(root), environment.get("PYTHONPATH"))))
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    environment["MINDUCTOR_CACHE_DIR"] = str(caches / "minductor")
    with tempfile.TemporaryDirectory(prefix="minductor_bench_") as folder:
        source, target = Path(folder) / "request.json", Path(folder) / "answer.json"
        source.write_text(json.dumps(request), encoding="utf-8")
        command = [sys.executable, "-m", "minductor.bench.measure", str(source), str(target)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not target.exists():
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise MeasureError(f"exit code {done.returncode}: {last[0]}"[:300])
        return json.loads(target.read_text(encoding="utf-8"))


def measure_running(case: str, settings: Settings, caches: Path) -> bench_results.Running:
    """The running times of a case.

    If the measuring process fails, each backend is tried in a process of its own. Those that fail there are left out.
    """
    request = {"do": "running", "case": case, "rounds": settings.rounds, "size": settings.size}
    try:
        return bench_results.running_of(measure({**request, "backends": list(settings.backends)}, caches))
    except MeasureError:
        failures = {}
        alive = []
        for backend in settings.backends:
            try:
                measure({**request, "backends": [backend], "rounds": 1}, caches)
                alive.append(backend)
            except MeasureError as error:
                failures[backend] = str(error)
        if not failures:
            raise
        found = bench_results.running_of(measure({**request, "backends": alive}, caches))
        return dataclasses.replace(found, failures={**found.failures, **failures})


def measure_first_call(case: str, settings: Settings, scratch: Path) -> list[bench_results.FirstCall]:
    """Cold and warm first calls of every compiling backend, interleaved.

    The first process of a backend fills its warm cache and tells which modules a first call imports; the timed ones
    import those beforehand.
    """
    backends = tuple(dict.fromkeys((*settings.backends, claims.AOT)))
    modules: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    seconds: dict[str, dict[str, Any]] = {kind: {} for kind in ("cold", "warm", claims.WARM_WITH_IMPORTS)}
    for backend in (name for name in backends if name != claims.EAGER):
        request = {"do": "first call", "case": case, "backend": backend, "modules": [], "size": settings.size}
        found = measure_or_failure(request, scratch / "warm")
        if "failure" in found:
            failures[backend] = found["failure"]
        else:
            modules[backend] = found["modules"]
    for run in range(settings.first_call_runs):
        for backend, names in modules.items():
            request = {"do": "first call", "case": case, "backend": backend, "size": settings.size}
            for kind, of_kind in seconds.items():
                imported = [] if kind == claims.WARM_WITH_IMPORTS else names
                caches = scratch / (f"cold_{backend}_{run}" if kind == "cold" else "warm")
                found = measure_or_failure({**request, "modules": imported}, caches)
                if "failure" in found:
                    failures[backend] = found["failure"]
                    continue
                for clock, figures in of_kind.setdefault(backend, {"cpu": [], "wall": []}).items():
                    figures.append(found[clock])
    calls: list[bench_results.FirstCall] = []
    for kind, of_kind in seconds.items():
        samples = bench_results.samples_of({name: runs for name, runs in of_kind.items() if name not in failures})
        calls.append(bench_results.FirstCall(case, kind, samples, failures))
    return calls


def measure_or_failure(request: dict[str, Any], caches: Path) -> dict[str, Any]:
    try:
        return measure(request, caches)
    except MeasureError as error:
        return {"failure": str(error)}


def run(settings: Settings) -> bench_results.Results:
    """Measure everything that the settings ask for; the results so far are saved after each case."""
    found = bench_results.Results(machine(), settings.backends, settings.rounds, (), (), dict(micro.REMOVED))
    with tempfile.TemporaryDirectory(prefix="minductor_bench_") as folder:
        total = len(settings.first_calls) + len(settings.running)
        for count, case in enumerate((*settings.first_calls, *settings.running), 1):
            is_first_call = count <= len(settings.first_calls)
            print(f"[{count}/{total}] {'first call of ' if is_first_call else ''}{case}", file=sys.stderr, flush=True)
            if is_first_call:
                calls = measure_first_call(case, settings, Path(folder) / f"first_{count}")
                found = dataclasses.replace(found, first_calls=(*found.first_calls, *calls))
            else:
                one = measure_running(case, settings, Path(folder) / "running")
                found = dataclasses.replace(found, running=(*found.running, one))
            save(found, settings.json)
    return found


def save(found: bench_results.Results, path: Path | None) -> None:
    if path is not None:
        judged = tuple(dataclasses.asdict(claim) for claim in claims.check(found))
        path.write_text(bench_results.dump(found, judged), encoding="utf-8")


def main(argv: list[str]) -> int:
    """The command. Exit code 1 says that a claim failed, 2 that it could not be measured."""
    if "--counts" in argv:
        return counts.main([argument for argument in argv if argument != "--counts"])
    settings = parse(argv)
    try:
        found = run(settings)
    except MeasureError as error:
        print(f"minductor bench: a measuring process died: {error}", file=sys.stderr)
        return 2
    judged = claims.check(found)
    print(bench_tables.render(found, judged))
    if settings.plot is not None and found.running:
        plot.draw(found, settings.plot)
    return int(any(claim.verdict == "FAIL" for claim in judged))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
