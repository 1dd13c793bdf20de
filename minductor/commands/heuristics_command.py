"""`minductor heuristics`: measures the options of a choice on this machine, learns from that, shows what is learned.

Takes the command's arguments, and files of measurements. Gives a file of measurements, or a Python module, and an exit
code. Refuses files that hold no measurements, and measurements that teach nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from minductor.core.errors import BadHeuristic, MinductorError
from minductor.heuristics import generated, learned
from minductor.heuristics.features import FEATURES
from minductor.heuristics.samples import Sample, cases_of, failed_line, line_of, read

DEVICES = ("cpu", "cuda")
OF_CPU = ("rows",)  # choices that a CPU has too
LOST = "CUDA error"  # in the text of an error after which a process cannot use its GPU any more


class Named(Protocol):
    """A kernel that is measured, by its name."""

    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=Named)


def main(argv: list[str]) -> int:
    """The command. Exit code 1: the measurements or what is generated are damaged, or they teach nothing."""
    parser = argparse.ArgumentParser(
        prog="minductor heuristics",
        description="Measures the options of a choice, learns which one to take, and shows what was learned.",
        epilog="Exit code: 0 done; 1 the measurements are damaged or teach nothing; 2 a wrong command line.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("collect", help="measure kernels, and add a line for each to a file")
    one.add_argument("choice", choices=tuple(FEATURES))
    one.add_argument("--device", choices=DEVICES, default="cpu")
    one.add_argument("--out", type=Path, required=True, help="the file; kernels that it has are not measured again")
    one.add_argument("--seconds", type=float, default=200.0, help="no kernel is begun later")
    one.add_argument("--jobs", type=int, default=1, help="processes that compile; one of them measures at a time")
    one.add_argument("--part", type=int, help=argparse.SUPPRESS)
    two = commands.add_parser("learn", help="write the Python module that a file of measurements teaches")
    two.add_argument("file", type=Path)
    two.add_argument("--out", type=Path, default=Path(generated.__file__).parent, help="the folder of the module")
    commands.add_parser("show", help="what is learned, and from which measurements")
    given = parser.parse_args(argv)
    try:
        if given.command == "collect":
            return _collect(given, argv)
        return _learn(given.file, given.out) if given.command == "learn" else _show()
    except MinductorError as error:
        print(f"minductor heuristics: {error}", file=sys.stderr)
        return 1


# --- collect


def collect(cases: Iterable[C], measure: Callable[[C], Sample], out: Path, until: Callable[[], bool]) -> None:
    """Adds a line to `out` for each kernel that it does not have yet.

    Args:
        cases: the kernels.
        measure: gives a kernel's times. Where it raises, the line says so.
        out: the file of measurements.
        until: whether it is time to stop.
    """
    done = cases_of(_lines_of(out)) if out.exists() else set[str]()
    for case in cases:
        if until():
            return
        if case.name in done:
            continue
        done.add(case.name)
        try:
            line = line_of(measure(case))
        except Exception as error:  # the other kernels are measured
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            line = failed_line(case.name, text)
            if LOST in text:
                _add(out, line)
                raise BadHeuristic(
                    "the GPU is lost", where=case.name, why=text, hint="run the command again"
                ) from error
        _add(out, line)


def _collect(given: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measures until the time is over, in several processes if they are asked for."""
    if given.device == "cpu" and given.choice not in OF_CPU:
        why, hint = "only GPUs have this choice", "pass --device cuda"
        raise BadHeuristic(f"{given.choice} cannot be measured on cpu", why=why, hint=hint)
    if given.part is None:
        _open(given.out)
    if given.jobs > 1 and given.part is None:
        root = Path(__file__).resolve().parents[2]
        path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "minductor", "heuristics", *argv]
        parts = [[*command, "--part", str(part)] for part in range(given.jobs)]
        started = [subprocess.Popen(each, env={**os.environ, "PYTHONPATH": path}) for each in parts]
        codes = [process.wait() for process in started]
        print(_summary(given.out))
        return 1 if all(codes) else 0
    _measure(given)
    if given.part is None:
        print(_summary(given.out))
    return 0


def _measure(given: argparse.Namespace) -> None:
    """Measures this process's part of the kernels."""
    import tempfile

    import filelock
    import torch

    from minductor.bench.clients import CLIENTS, measure_case
    from minductor.bench.measure_options import Case, place_of

    if given.device == "cuda" and not torch.cuda.is_available():
        raise BadHeuristic("nothing can be measured on cuda", why="torch finds no GPU", hint="pass --device cpu")
    end = time.monotonic() + given.seconds
    turn = filelock.FileLock(f"{given.out}.lock")
    place = place_of(given.device)
    cases = islice(CLIENTS[given.choice].cases(given.device), given.part or 0, None, given.jobs)
    many = torch._dynamo.config.patch(recompile_limit=1 << 20)
    with torch.no_grad(), many, tempfile.TemporaryDirectory(prefix="minductor_rows_") as folder:

        def measure(case: Case) -> Sample:
            return measure_case(given.choice, case, place, folder, turn)

        collect(cases, measure, given.out, lambda: time.monotonic() > end)


def _add(out: Path, line: str) -> None:
    """Adds a line in one write, since other processes add to the file too."""
    with out.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _open(out: Path) -> None:
    """Makes the file if there is none. Takes away a last line that a process did not finish."""
    try:
        with out.open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
    except OSError as error:
        hint = "pass --out, a file in a folder that exists"
        raise BadHeuristic("the measurements cannot be written", where=str(out), why=str(error), hint=hint) from error


def _summary(out: Path) -> str:
    lines = _lines_of(out)
    return f"{len(read(lines, str(out)))} kernels with times in {out}, of {len(cases_of(lines))} that were tried"


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadHeuristic("these measurements cannot be read", where=str(path), why=str(error)) from error


# --- learn and show


def _learn(file: Path, folder: Path) -> int:
    """Writes the module, and says how it does on the kernels that were held out."""
    from minductor.heuristics.generate import generate, module_name
    from minductor.heuristics.learn import learn

    found = learn(read(_lines_of(file), str(file)))
    first = found.samples[0]
    name = module_name(first.choice, first.target)
    path = folder / f"{name}.py"
    try:
        path.write_text(generate(found), encoding="utf-8")
    except OSError as error:
        raise BadHeuristic(
            "the module cannot be written", where=str(path), why=str(error), hint="pass --out"
        ) from error
    print(f"{path}: depth {found.depth}, leaves of {found.leaf}, threshold {found.threshold}")
    for title, figures in (("cross-validation", found.validation), ("held out", found.held_out)):
        print(f"  {title}: " + _figures(figures._asdict()))
    if (first.choice, first.target) not in learned.GENERATED:
        row = f'("{first.choice}", "{first.target}"): "{name}",'
        print(f"It is used once minductor/heuristics/learned.py: GENERATED has the row\n    {row}")
    return 0


def _figures(figures: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures.items())


def _show() -> int:
    """Prints each learned choice with its metadata."""
    from minductor.heuristics.metadata import metadata_of

    if not learned.GENERATED:
        print("Nothing is learned: prices and rules decide.")
    for (choice, target), name in learned.GENERATED.items():
        module = import_module(f"{generated.__name__}.{name}")
        found = metadata_of(getattr(module, "METADATA", None), module.__name__)
        versions = ", ".join(f"{package} {version}" for package, version in found.versions.items())
        print(f"{choice} for {target}: {module.__name__}")
        print(f"  learned on {found.date} from {found.kernels} kernels on {found.device}, {versions}")
        print(f"  options: {', '.join(found.options)}; threshold {found.threshold}")
        print(f"  held out: {_figures(found.held_out)}")
    return 0
