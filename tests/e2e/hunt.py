"""`python -m tests.e2e.hunt --count 2000 --results FILE --jobs 2`: random programs through minductor, with a table.

Takes how many from which number on, and a results file of one JSON record a line; started again it goes on where it
was stopped. Gives the table by kind of program, and below --scripts a script for each one that is wrong, as small as it
could be made. When a worker process dies, that is an error of the program that it was at.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pytest_plugin.random_programs.programs import Program
from pytest_plugin.strategies import numbered, programs
from tests.workers import Tasks, append, records, run, share

CHUNK = 50  # programs to a process
SECONDS = 900  # for a program, its shrinking included
# a fifth of the programs each
KINDS: Mapping[str, Callable[[], st.SearchStrategy[Program]]] = {
    "mixed": programs,
    "gradients": lambda: programs(differentiable=True, length=(10, 30)),
    "sizes": lambda: programs(scalable=True, length=(10, 30)),
    "floats": lambda: programs(dtypes=("float32",)),
    "large": lambda: programs(large=True, length=(10, 20), without=("products",)),
}
WORDS = ("right", "wrong", "error", "tracer", "unstable", "refused")


@dataclass(frozen=True)
class Name:
    """The number-th program of a kind.

    >>> Name.parse("mixed.17")
    Name(kind='mixed', number=17)
    """

    kind: str
    number: int

    @staticmethod
    def parse(text: str) -> Name:
        kind, number = text.split(".")
        return Name(kind, int(number))

    def __str__(self) -> str:
        return f"{self.kind}.{self.number}"

    def program(self) -> Program:
        return numbered(len(KINDS) * self.number + list(KINDS).index(self.kind), KINDS[self.kind]())


def names(first: int, count: int) -> list[str]:
    """So many, the kinds in turn; `first` is the number of the first of each kind.

    >>> names(7, 6)
    ['mixed.7', 'gradients.7', 'sizes.7', 'floats.7', 'large.7', 'mixed.8']
    """
    kinds = list(KINDS)
    return [str(Name(kinds[n % len(kinds)], first + n // len(kinds))) for n in range(count)]


def compile_function(*, dynamic: bool | None, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    import torch

    from minductor.driver import Compiler

    chosen: Any = Compiler() if backend == "minductor" else backend
    if backend == "frozen":
        return frozen_anew(dynamic)
    return lambda fn: torch.compile(fn, backend=chosen, fullgraph=True, dynamic=dynamic)


def frozen_anew(dynamic: bool | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Functions whose arguments but the first are weights, and constants. Each call has weights of its own."""
    import torch

    from minductor.driver import Compiler
    from tests.frozen_function import frozen

    def compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            torch.compiler.reset()
            with torch.no_grad():
                return frozen(fn, Compiler(), slice(1, None), options={"freeze": True}, dynamic=dynamic)(*args)

        return call

    return compiled


def work(args: argparse.Namespace) -> None:
    """In a worker: its programs, one after the other."""
    import torch

    for text in args.worker.split(","):
        name = Name.parse(text)
        torch.set_num_threads(2 if name.kind == "large" else 1)
        signal.alarm(SECONDS)
        print(text, flush=True)
        append(args.results, judged(text, args))
    signal.alarm(0)


def judged(text: str, args: argparse.Namespace) -> dict[str, object]:
    import torch

    from pytest_plugin.random_programs.verdict import judge, shrink_bad_program

    start = cpu_seconds()
    torch.set_default_device(None)  # a program is drawn on the CPU
    program = Name.parse(text).program()
    if args.device != "cpu":  # to set it to the CPU would be a mode, in which programs are traced otherwise
        if not program.is_run_by_eager():  # an index out of range ends a process with a GPU
            return {"program": text, "word": "refused", "why": "", "seconds": 0.0}
        torch.set_default_device(args.device)
        program = program.on(args.device)
    dynamic = True if program.scalable else None
    compiling = compile_function(dynamic=dynamic, backend=args.backend)
    found = judge(program, compiling)
    seconds = cpu_seconds() - start
    if found.is_bad:
        small, why = shrink_bad_program(program, compiling, most=args.shrink) if args.shrink else (program, found)
        args.scripts.mkdir(parents=True, exist_ok=True)
        script = small.script(
            backend=args.backend, why=f"{text}: {why.word}: {why.why}", dynamic=bool(dynamic), device=args.device
        )
        (args.scripts / f"{text}.py").write_text(script)
    return {"program": text, "word": found.word, "why": found.why[:1500], "seconds": round(seconds, 2)}


def cpu_seconds() -> float:
    """Of this process and of those that it has waited for: compiling C++ is the larger half."""
    return sum(os.times()[:4])


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    counts: dict[str, dict[str, int]] = {}
    for text, record in found.items():
        row = counts.setdefault(Name.parse(text).kind, dict.fromkeys(WORDS, 0))
        if record["word"] in row:
            row[record["word"]] += 1
    lines = [f"{'kind':<12}{'programs':>9}" + "".join(f"{word:>10}" for word in WORDS)]
    total = {word: sum(row[word] for row in counts.values()) for word in WORDS}
    for kind, row in (*counts.items(), ("all", total)):
        lines.append(f"{kind:<12}{sum(row.values()):>9}" + "".join(f"{n:>10}" for n in row.values()))
    apart = [
        f"{text}: {record['why'].splitlines()[0][:150]}" for text, record in found.items() if record["word"] == "tracer"
    ]
    spent = sum(record.get("seconds", 0.0) for record in found.values())
    lines.append(f"{spent / 60:.1f} CPU minutes, {spent / max(1, len(found)):.2f} s a program")
    return "\n".join([*lines, *(["", "different from eager by the tracer alone:", *apart] if apart else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.hunt", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first program of each kind")
    parser.add_argument("--only", default="", help="names of programs with commas, such as mixed.17")
    parser.add_argument("--kind", default="", help=f"only these of {', '.join(KINDS)}")
    parser.add_argument("--results", type=Path, default=Path("programs.jsonl"))
    parser.add_argument("--scripts", type=Path, default=Path("found_programs"))
    parser.add_argument("--backend", default="minductor", help="of torch.compile, or frozen: minductor with `freeze`")
    parser.add_argument("--device", default="cpu", help="on which programs make their tensors: cpu or cuda")
    parser.add_argument("--shrink", type=int, default=60, help="trials to make a wrong program smaller")
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--again", action="store_true", help="run those that were wrong once more")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        work(args)
        return 0
    wanted = args.only.split(",") if args.only else share(names(args.first, args.count), args.shard)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    kinds = args.kind.split(",") if args.kind else [k for k in KINDS if args.backend != "frozen" or k != "gradients"]
    wanted = [name for name in wanted if Name.parse(name).kind in kinds]  # a frozen graph has no gradients
    done = load(args.results)
    bad = {name for name, record in done.items() if record["word"] in ("wrong", "error")}
    todo = [name for name in wanted if name not in done or (args.again and name in bad)]
    same = ["--results", str(args.results), "--scripts", str(args.scripts), "--shrink", str(args.shrink)]
    command = [
        sys.executable,
        "-m",
        "tests.e2e.hunt",
        *same,
        "--backend",
        args.backend,
        "--device",
        args.device,
        "--worker",
    ]
    tasks = Tasks(
        todo,
        lambda part: [*command, ",".join(part)],
        lambda name, why: append(args.results, {"program": name, "word": "error", "why": why}),
        CHUNK,
    )
    run([tasks], args.jobs)
    found = load(args.results)
    print(table(found))
    return int(any(record["word"] in ("wrong", "error") for record in found.values()))


def load(path: Path) -> dict[str, dict[str, Any]]:
    return {str(record["program"]): record for record in records(path)}


if __name__ == "__main__":
    raise SystemExit(main())
