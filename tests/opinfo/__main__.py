"""`python -m tests.opinfo --dtype float32 --mode forward --results FILE`: torch's operator database through minductor.

Takes dtypes, modes and a results file of one JSON record a line; started again it goes on where it was stopped.
Gives a table by dtype and mode. Workers of one process run a slice of the operators each, so a crash costs one of them.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

SLICE = 60  # operators to a process
SECONDS = 300  # an operator


def parse(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.opinfo", description=__doc__)
    parser.add_argument("--dtype", default="float32", help="several with commas")
    parser.add_argument("--mode", default="forward", help="forward, gradient, inplace; several with commas")
    parser.add_argument("--results", type=Path, default=Path("opinfo.jsonl"))
    parser.add_argument("--ops", default="", help="names, with commas; all if none is given")
    parser.add_argument("--limit", type=int, default=0, help="samples of an operator; 0 means all")
    parser.add_argument("--again", action="store_true", help="run what is in the results and not right once more")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(args)


def load(path: Path) -> dict[tuple[str, str, str], dict[str, object]]:
    """The last record of each operator, dtype and mode."""
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {(r["dtype"], r["mode"], r["op"]): r for r in records}


def append(path: Path, record: dict[str, object]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def work(args: argparse.Namespace) -> None:
    """In a worker: its operators, one after the other."""
    import torch

    from tests.opinfo.drive import Driver, operators

    torch.set_num_threads(1)
    table = operators(getattr(torch, args.dtype), args.mode)
    for name in args.ops.split(","):
        signal.alarm(SECONDS)
        print(name, flush=True)
        try:
            record = asdict(Driver(table[name], getattr(torch, args.dtype), args.mode).run(args.limit))
        except Exception as reason:  # a broken OpInfo: the others go on
            record = blank(name, args) | {"reason": f"{type(reason).__name__}: {reason}"[:300], "skipped": 1}
        append(args.results, record)


def blank(name: str, args: argparse.Namespace) -> dict[str, object]:
    return {"op": name, "dtype": args.dtype, "mode": args.mode, "right": 0, "wrong": [], "failed": [], "skipped": 0}


def known(dtype: str, mode: str) -> list[str]:
    import torch

    from tests.opinfo.drive import operators

    return list(operators(getattr(torch, dtype), mode))


def run(args: argparse.Namespace) -> None:
    """All operators of one dtype and mode that have no result yet."""
    names = args.ops.split(",") if args.ops else known(args.dtype, args.mode)
    done = load(args.results)
    before = {op for (dtype, mode, op), r in done.items() if (dtype, mode) == (args.dtype, args.mode)}
    if args.again:
        before = {op for op in before if not needs_another(done[args.dtype, args.mode, op])}
        names = [name for name in names if name in {op for (d, m, op) in done if (d, m) == (args.dtype, args.mode)}]
    todo = [name for name in names if name not in before]
    while todo:
        command = [sys.executable, "-m", "tests.opinfo", "--worker", "--dtype", args.dtype, "--mode", args.mode]
        command += ["--results", str(args.results), "--limit", str(args.limit), "--ops", ",".join(todo[:SLICE])]
        done_worker = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started = done_worker.stdout.split()
        if done_worker.returncode != 0:
            name = started[-1] if started else todo[0]
            append(args.results, blank(name, args) | {"failed": [f"the process died: {done_worker.returncode}"]})
            started = started or [name]
        todo = todo[len(started) :]


def needs_another(record: dict[str, object]) -> bool:
    return bool(record["wrong"] or record["failed"])


def table(records: Iterable[dict[str, object]]) -> str:
    """Samples and operators by dtype and mode."""
    rows: dict[tuple[str, str], list[int]] = {}
    for record in records:
        row = rows.setdefault((str(record["dtype"]), str(record["mode"])), [0] * 6)
        counts = (1, record["right"], len(record["wrong"]), len(record["failed"]), record["skipped"])  # type: ignore[arg-type]
        for place, count in enumerate(counts):
            row[place] += count  # type: ignore[operator]
        row[5] += not needs_another(record)
    lines = [f"{'dtype':<10}{'mode':<10}{'ops':>6}{'clean':>7}{'right':>8}{'wrong':>7}{'failed':>8}{'skipped':>9}"]
    for (dtype, mode), (ops, right, wrong, failed, skipped, clean) in rows.items():
        lines.append(f"{dtype:<10}{mode:<10}{ops:>6}{clean:>7}{right:>8}{wrong:>7}{failed:>8}{skipped:>9}")
    return "\n".join(lines)


def main() -> int:
    args = parse(sys.argv[1:])
    if args.worker:
        work(args)
        return 0
    for dtype in args.dtype.split(","):
        for mode in args.mode.split(","):
            run(argparse.Namespace(**{**vars(args), "dtype": dtype, "mode": mode}))
    records = load(args.results).values()
    print(table(records))
    return int(any(needs_another(record) for record in records))


if __name__ == "__main__":
    raise SystemExit(main())
