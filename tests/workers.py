"""Runs many small tasks in worker processes, some to a process; a worker that dies costs the one task that it was at.

Takes task names and the command of a worker, which prints each name when it starts on it and appends the task's result
itself. Gives nothing; tells `died` about a task whose worker did not end well. Refuses nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workers:
    """`command(names)` is the argument list of a worker; `died(name, why)` notes a task that took its worker along."""

    command: Callable[[Sequence[str]], Sequence[str]]
    died: Callable[[str, str], None]
    jobs: int = 1
    size: int = 40  # tasks to a process

    def run(self, names: Sequence[str]) -> None:
        parts = [names[start : start + self.size] for start in range(0, len(names), self.size)]
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(self.jobs) as pool:
            # what is compiled here is neither found in the user's stores nor left there
            stores = {"MINDUCTOR_CACHE_DIR": f"{folder}/ours", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/peer"}
            environ = {**os.environ, **stores}
            list(pool.map(lambda part: self._slice(part, environ), parts))

    def _slice(self, names: Sequence[str], environ: Mapping[str, str]) -> None:
        todo = list(names)
        while todo:
            done = subprocess.run(self.command(todo), capture_output=True, text=True, env=environ)
            started = [line for line in done.stdout.splitlines() if line in todo]
            if done.returncode != 0:
                name = started[-1] if started else todo[0]
                last = done.stderr.strip().splitlines()[-1:]
                self.died(name, f"the process died: {done.returncode} {''.join(last)[:300]}")
                started = started or [name]
            todo = todo[len(started) :]


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
