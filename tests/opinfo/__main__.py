"""`python -m tests.opinfo --dtype float32 --mode forward --results FILE`: torch's operator database through minductor.

Takes dtypes, modes and a results file of one JSON record a line; started again it goes on where it was stopped.
Gives a table by dtype and mode. Each operator runs in a worker process, so a crash costs one operator and is a failure.
With `--target sm_90` every kernel is compiled for that GPU, and with `--target interpret` its numbers come from
Triton's interpreter. With `--peer inductor` the same samples run through TorchInductor as well, for a table beside ours
and the seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minductor.runtime.build.probe import probe
from minductor.runtime.build.toolchain import Toolchain
from minductor.target import TARGETS
from tests.opinfo.table import LEGEND, faster, is_within, needs_another, table
from tests.workers import Tasks, append, records, run, share

SECONDS = 300  # an operator
DTYPES = "float32,float64,bfloat16,float16,int64,int32,uint8,bool"
FLOATS = ("float32", "float64")
MODES = ("forward", "gradient", "inplace", "forward-dynamic", "gradient-dynamic")


def parse(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.opinfo", description=__doc__)
    parser.add_argument("--dtype", default="float32", help=f"several with commas, or all: {DTYPES}")
    parser.add_argument("--mode", default="forward", help=f"several with commas, or all: {','.join(MODES)}")
    parser.add_argument("--results", type=Path, default=Path("opinfo.jsonl"))
    parser.add_argument("--ops", default="", help="names, with commas; all if none is given")
    parser.add_argument("--match", default="", help="a pattern of names instead")
    parser.add_argument("--limit", type=int, default=0, help="samples of an operator, spread; 0 means all")
    parser.add_argument("--fraction", type=float, default=1.0, help="a random part of the samples, such as 0.1")
    parser.add_argument("--seed", type=int, default=0, help="of that part")
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the operators")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes at a time")
    parser.add_argument("--peer", default="", choices=("", "inductor"), help="run the same samples through it too")
    parser.add_argument("--target", default="cpu", choices=sorted(TARGETS), help="what minductor compiles for")
    parser.add_argument("--sanitize", action="store_true", help="build kernels with address and undefined sanitisers")
    parser.add_argument("--freeze", action="store_true", help="every second tensor is a weight, and a constant")
    parser.add_argument("--again", action="store_true", help="run what is in the results and not clean once more")
    parser.add_argument("--bad", action="store_true", help="print what is wrong or failed")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args(args)


Key = tuple[str, str, str, str]  # compiler, dtype, mode, operator


def load(path: Path) -> dict[Key, dict[str, Any]]:
    """The last record of each operator, dtype, mode and compiler."""
    found: list[dict[str, Any]] = records(path)
    return {(r.get("compiler", "minductor"), r["dtype"], r["mode"], r["op"]): r for r in found}


def blank(key: Key) -> dict[str, Any]:
    from tests.opinfo.drive import Record

    compiler, dtype, mode, op = key
    return asdict(Record(op, dtype, mode, compiler))


def work(args: argparse.Namespace) -> None:
    """In a worker: its operators, one after the other."""
    import torch

    from tests.opinfo.drive import Choice, drive, operators
    from tests.opinfo.expected import load as load_rows

    torch.set_num_threads(1)
    dtype = getattr(torch, args.dtype)
    table = operators(dtype, args.mode)
    choice = Choice(args.limit, args.fraction, args.seed)
    rows = () if args.worker == "inductor" else load_rows()
    for name in args.ops.split(","):
        signal.alarm(SECONDS)
        print(name, flush=True)
        try:
            record = asdict(drive(table[name], dtype, args.mode, choice, compiler=args.worker, rows=rows))
        except Exception as reason:  # a broken OpInfo: the others go on
            why = f"{type(reason).__name__}: {reason}"[:300]
            record = blank((args.worker, args.dtype, args.mode, name)) | {"reason": why, "skipped": 1}
        append(args.results, record)
    signal.alarm(0)


@dataclass(frozen=True)
class Run:
    """One compiler, dtype and mode."""

    args: argparse.Namespace
    compiler: str
    dtype: str
    mode: str

    def tasks(self, found: Mapping[Key, dict[str, Any]]) -> Tasks:
        """All operators that have no result yet."""
        names = self._names()
        done = {key[3]: r for key, r in found.items() if key[:3] == self._key("")[:3]}
        if self.args.again:
            todo = [name for name in names if name in done and needs_another(done[name])]
        else:
            todo = [name for name in names if name not in done]
        # a worker for a GPU's kernels starts workers of its own
        return Tasks(todo, self._command, self._died, size=8 if self.args.target == "cpu" else 32)

    def _key(self, name: str) -> Key:
        return self.compiler, self.dtype, self.mode, name

    def _names(self) -> list[str]:
        if self.args.ops:
            return share(self.args.ops.split(","), self.args.shard)
        import torch

        from tests.opinfo.drive import operators

        known = operators(getattr(torch, self.dtype), self.mode)
        return share([name for name in known if re.search(self.args.match, name)], self.args.shard)

    def _command(self, names: Sequence[str]) -> list[str]:
        args = self.args
        command = [sys.executable, "-m", "tests.opinfo", "--worker", self.compiler]
        command += ["--dtype", self.dtype, "--mode", self.mode, "--results", str(args.results)]
        command += ["--limit", str(args.limit), "--fraction", str(args.fraction), "--seed", str(args.seed)]
        return [*command, "--ops", ",".join(names)]

    def _died(self, name: str, why: str) -> None:
        append(self.args.results, blank(self._key(name)) | {"failed": [why]})


def ours(args: argparse.Namespace) -> str:
    if args.target != "cpu":
        return args.target
    if args.freeze:
        return "frozen"
    return "sanitized" if args.sanitize else "minductor"


def preload() -> None:
    """Starts this command anew below the sanitisers' library, which must be a process's first."""
    library = Toolchain(probe(), os.environ).sanitizer_library()
    if library in os.environ.get("LD_PRELOAD", ""):
        return
    stop = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    command = [sys.executable, "-m", "tests.opinfo", *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **stop, "LD_PRELOAD": library})


def runs(args: argparse.Namespace) -> list[Run]:
    """Gradients exist for floats, and are tested for those that have a truth."""
    dtypes = (DTYPES if args.dtype == "all" else args.dtype).split(",")
    modes = MODES if args.mode == "all" else args.mode.split(",")
    pairs = [(d, m) for d in dtypes for m in modes if not m.startswith("gradient") or d in FLOATS]
    return [Run(args, compiler, d, m) for d, m in pairs for compiler in (ours(args), args.peer) if compiler]


def bad(found: Mapping[Key, dict[str, Any]]) -> str:
    """A line for each thing that is not as it should be."""
    lines = [
        f"{op}, {dtype}, {mode}, {what}: {' '.join(line.split())[:400]}"
        for (compiler, dtype, mode, op), r in found.items()
        for what in ("wrong", "failed")
        for line in r[what]
        if compiler != "inductor"
    ]
    return "\n".join(lines)


def main() -> int:
    args = parse(sys.argv[1:])
    if args.worker:
        work(args)
        return 0
    if args.sanitize:
        preload()
    wanted = runs(args)
    before = load(args.results)
    run([one.tasks(before) for one in wanted], args.jobs)
    rows = {(one.compiler, one.dtype, one.mode) for one in wanted}
    found = {key: record for key, record in load(args.results).items() if key[:3] in rows}
    if args.bad and found:
        print(bad(found))
    print("\n".join(text for text in (LEGEND, table(found.values()), faster(found.values())) if text))
    mine = [r for key, r in found.items() if key[0] == ours(args)]
    return int(any(needs_another(record) for record in mine) or not is_within(mine))


if __name__ == "__main__":
    raise SystemExit(main())
