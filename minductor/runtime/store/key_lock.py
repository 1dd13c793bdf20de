"""A lock for each key: of several processes that want the same artefact, one builds it and the others wait.

Takes the path of a lock file, and how long to wait. Gives a block that one thread of one process runs at a time. A
process that waits for more than five seconds warns and names the process it waits for. Refuses nothing: after the time
is over the block runs without the lock, which saves work and is not needed for correctness.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from minductor.core.errors import WaitsForAnother
from minductor.core.warn import warn
from minductor.runtime.store.cache_folder import has_ended, new_name, read_file

SAY_AFTER_S = 5.0


@contextmanager
def hold(path: Path, limit_s: float) -> Iterator[None]:
    """The block under the lock, or without it after `limit_s` seconds of waiting.

    Each call makes a new lock object. So two threads of a process exclude each other as two processes do, and a forked
    child neither holds nor releases its parent's lock (filelock takes care of that).
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600, poll_interval=0.01)
    note = note_of(path)
    try:
        try:
            lock.acquire(timeout=min(SAY_AFTER_S, limit_s))
        except Timeout:
            if limit_s <= SAY_AFTER_S:
                raise
            warn(WaitsForAnother(_describe_holder(note), f"{limit_s:g}"))
            lock.acquire(timeout=limit_s - SAY_AFTER_S)
    except Timeout:
        yield
        return
    owner = os.getpid()
    try:
        _write_note(note)
        yield
    finally:
        if os.getpid() == owner:  # a forked child leaves the block too
            for left in (note, path):
                with suppress(OSError):
                    left.unlink(missing_ok=True)
        lock.release()


def note_of(path: Path) -> Path:
    """The file in which the holder of a lock names itself."""
    return path.with_name(f"{path.name}.holder")


def _write_note(note: Path) -> None:
    """Writes which process holds the lock, for those who wait."""
    command = " ".join(shlex.join(sys.orig_argv).split())
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(note, flags, 0o600), "w") as file:
            json.dump({"name": new_name(), "pid": os.getpid(), "command": command[:200]}, file)


def _describe_holder(note: Path) -> str:
    """A description of the process that holds the lock."""
    try:
        holder = json.loads(read_file(note))
        name, pid, command = str(holder["name"]), int(holder["pid"]), str(holder["command"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
    if has_ended(name) is None:
        return f"process {pid} of another machine or container ({command})"
    return f"process {pid}{_state(pid)} ({command})"


def _state(pid: int) -> str:
    """Whether the process is stopped, for instance by Ctrl-Z, where the system tells."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    return ", which is stopped," if state in "Tt" else ""
