"""`python -m tests.e2e.hunt --count 2000 --results FILE --jobs 2`: random programs through minductor, with a table.

Takes how many, and a results file of one JSON record a line; started again it goes on where it was stopped. Gives the
table by kind of program, and below --scripts a script for each one that is wrong, as small as it could be made. When a
worker process dies, that is an error of the program that it was at.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pytest_plugin.programs import Program
from pytest_plugin.strategies import numbered, programs
from tests.workers import Tasks, append, records, run, share

CHUNK = 25  # programs of one seed
SECONDS = 900  # for a program, its shrinking included
# a fifth of the programs each; the mixed ones twice
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
    """kind.chunk.number: the number-th program of the chunk-th seed.

    >>> Name.parse("mixed.3.17")
    Name(kind='mixed', chunk=3, number=17)
    """

    kind: str
    chunk: int
    number: int

    @staticmethod
    def parse(text: str) -> Name:
        kind, chunk, number = text.split(".")
        return Name(kind, int(chunk), int(number))

    def __str__(self) -> str:
        return f"{self.kind}.{self.chunk}.{self.number}"


def names(count: int) -> list[str]:
    """The first so many: chunks of every kind in turn."""
    kinds = list(KINDS)
    return [str(Name(kinds[n // CHUNK % len(kinds)], n // CHUNK, n % CHUNK)) for n in range(count)]


def chunk(name: Name) -> list[Program]:
    return numbered(name.chunk, CHUNK, KINDS[name.kind]())


def compile_function(*, dynamic: bool | None, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    import torch

    from minductor.driver import Compiler

    chosen: Any = Compiler() if backend == "minductor" else backend
    return lambda fn: torch.compile(fn, backend=chosen, fullgraph=True, dynamic=dynamic)


def work(args: argparse.Namespace) -> None:
    """In a worker: its programs, one after the other."""
    import torch

    made: dict[tuple[str, int], list[Program]] = {}
    for text in args.worker.split(","):
        name = Name.parse(text)
        torch.set_num_threads(2 if name.kind == "large" else 1)
        signal.alarm(SECONDS)
        print(text, flush=True)
        key = (name.kind, name.chunk)
        if key not in made:
            made[key] = chunk(name)
        if name.number < len(made[key]):  # hypothesis may know fewer
            append(args.results, judged(text, made[key][name.number], args))
        else:
            append(args.results, {"program": text, "word": "none"})
    signal.alarm(0)


def judged(text: str, program: Program, args: argparse.Namespace) -> dict[str, object]:
    from pytest_plugin.verdict import smallest, verdict

    start = time.process_time()
    dynamic = True if program.scalable else None
    compiling = compile_function(dynamic=dynamic, backend=args.backend)
    found = verdict(program, compiling)
    seconds = time.process_time() - start
    if found.is_bad:
        small, why = smallest(program, compiling, most=args.shrink) if args.shrink else (program, found)
        args.scripts.mkdir(parents=True, exist_ok=True)
        script = small.script(backend=args.backend, why=f"{text}: {why.word}: {why.why}", dynamic=bool(dynamic))
        (args.scripts / f"{text}.py").write_text(script)
    return {"program": text, "word": found.word, "why": found.why[:1500], "seconds": round(seconds, 2)}


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
    return "\n".join([*lines, *(["", "different from eager by the tracer alone:", *apart] if apart else [])])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.e2e.hunt", description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--only", default="", help="names of programs with commas, such as mixed.3.17")
    parser.add_argument("--kind", default="", help=f"only these of {', '.join(KINDS)}")
    parser.add_argument("--results", type=Path, default=Path("programs.jsonl"))
    parser.add_argument("--scripts", type=Path, default=Path("found_programs"))
    parser.add_argument("--backend", default="minductor")
    parser.add_argument("--shrink", type=int, default=60, help="trials to make a wrong program smaller")
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--again", action="store_true", help="run those that were wrong once more")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        work(args)
        return 0
    wanted = args.only.split(",") if args.only else share_of_chunks(args.count, args.shard)
    wanted = [name for name in wanted if not args.kind or Name.parse(name).kind in args.kind.split(",")]
    done = load(args.results)
    bad = {name for name, record in done.items() if record["word"] in ("wrong", "error")}
    todo = [name for name in wanted if name not in done or (args.again and name in bad)]
    same = ["--results", str(args.results), "--scripts", str(args.scripts), "--shrink", str(args.shrink)]
    command = [sys.executable, "-m", "tests.e2e.hunt", *same, "--backend", args.backend, "--worker"]
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


def share_of_chunks(count: int, shard: str) -> list[str]:
    """Whole chunks, since to make one program is to make its chunk."""
    parts = [names(count)[start : start + CHUNK] for start in range(0, count, CHUNK)]
    return [name for n in share([str(n) for n in range(len(parts))], shard) for name in parts[int(n)]]


def load(path: Path) -> dict[str, dict[str, Any]]:
    return {str(record["program"]): record for record in records(path)}


if __name__ == "__main__":
    raise SystemExit(main())
