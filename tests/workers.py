"""Runs many small tasks in worker processes, some to a process; a worker that dies costs the one task that it was at.

Takes batches of task names, each with the command of its workers. A worker prints each name when it starts on it and
appends the task's result itself. Gives nothing; tells `died` about a task whose worker did not end well. Refuses
nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tasks:
    """`command(names)` is the argument list of a worker; `died(name, why)` notes a task that took its worker along."""

    names: Sequence[str]
    command: Callable[[Sequence[str]], Sequence[str]]
    died: Callable[[str, str], None]
    size: int = 8  # tasks to a process

    def parts(self) -> list[Sequence[str]]:
        return [self.names[start : start + self.size] for start in range(0, len(self.names), self.size)]

    def run(self, part: Sequence[str], environ: Mapping[str, str]) -> None:
        todo = list(part)
        while todo:
            done = subprocess.run(self.command(todo), capture_output=True, text=True, env=environ)
            started = [line for line in done.stdout.splitlines() if line in todo]
            if done.returncode != 0:
                name = started[-1] if started else todo[0]
                last = done.stderr.strip().splitlines()[-1:]
                self.died(name, f"the process died: {done.returncode} {''.join(last)[:300]}")
                started = started or [name]
            todo = todo[len(started) :]


def run(batches: Iterable[Tasks], jobs: int = 1) -> None:
    """All tasks by the same `jobs` workers, which are busy until the last part of the last batch has begun."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        # what is compiled here is neither found in the user's stores nor left there
        stores = {"MINDUCTOR_CACHE_DIR": f"{folder}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/peer"}
        environ = {**os.environ, **stores}
        begun = [pool.submit(tasks.run, part, environ) for tasks in batches for part in tasks.parts()]
        for part in begun:
            part.result()


def share(names: Sequence[str], shard: str) -> list[str]:
    """The i-th of n parts, by "i/n" with i from 1.

    >>> share("abcdefg", "2/3")
    ['b', 'e']
    """
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"a shard is i/n with 1 <= i <= n, not {shard!r}")
    return list(names[int(number) - 1 :: int(count)])


def append(path: Path, record: Mapping[str, object]) -> None:
    """One line in one write, so that the lines of several processes stay whole."""
    with path.open("a", buffering=1 << 22) as file:
        file.write(json.dumps(record) + "\n")


def records(path: Path) -> list[dict[str, object]]:
    """What is in the file; a last line that was cut off by a kill is not there."""
    found: list[dict[str, object]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found
