"""Worker processes for compile jobs in Python: Triton's. (g++ is a process of its own.)

Takes functions of importable modules, with arguments that can be pickled. Gives futures. Refuses to start a worker
before the first job, and to share a worker with a forked child.

A worker is a fresh interpreter that never imports the user's main module: `multiprocessing` would run a script without
a `__main__` guard again in each worker. This file is also the program of a worker; it imports the standard library
only.

>>> import math
>>> with Pool(1) as pool:
...     pool.submit(math.gcd, 12, 18).result()
6
"""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import IO, Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PR_SET_PDEATHSIG = 1
# Jobs see no GPU. Without the third variable, which is removed, Triton compiles kernels and does not interpret them.
BLIND: Mapping[str, str | None] = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TRITON_INTERPRET": None}


class WorkerDied(RuntimeError):
    """A worker ended during a job: it was killed, ran out of memory, or crashed."""


def pool_size(cores: int, environ: Mapping[str, str]) -> int:
    """This process's share of the cores; the workers of pytest-xdist share them equally.

    >>> pool_size(8, {}), pool_size(8, {"PYTEST_XDIST_WORKER_COUNT": "3"}), pool_size(1, {})
    (8, 2, 1)
    """
    sharing = environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    return max(1, cores // max(1, int(sharing) if sharing.isdecimal() else 1))


class Pool:
    """At most `size` workers. Each starts when a job finds no idle one."""

    def __init__(
        self, size: int, *, environ: Mapping[str, str] | None = None, settings: Mapping[str, str | None] = BLIND
    ) -> None:
        """`settings` change the environment of workers; None removes a variable."""
        if size < 1:
            raise ValueError(f"a pool has at least one worker, not {size}")
        self.size = size
        self._environ = {**(os.environ if environ is None else environ), **settings}
        self._live: _Live | None = None

    def submit(self, job: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs job(*args, **kwargs) in a worker. An argument that cannot be pickled raises here, not in the future."""
        if getattr(job, "__module__", None) == "__main__":
            raise ValueError(f"{job} is defined in the main module, which workers do not import")
        payload = pickle.dumps((job, args, kwargs))
        # After a fork the threads that serve the workers exist in the parent only.
        if self._live is None or self._live.owner != os.getpid():
            self._live = _Live(self.size, self._environ)
        return self._live.threads.submit(self._live.run, payload)

    def close(self) -> None:
        """Waits for the jobs and ends the workers. A later job starts new ones."""
        live, self._live = self._live, None
        if live is not None and live.owner == os.getpid():
            live.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Live:
    """The threads and idle workers that exist after the first job."""

    def __init__(self, size: int, environ: Mapping[str, str | None]) -> None:
        self.owner = os.getpid()
        self.environ = environ
        self.threads = ThreadPoolExecutor(size, thread_name_prefix="minductor-pool")
        self.idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()

    def run(self, payload: bytes) -> Any:
        try:
            worker = self.idle.get_nowait()
        except queue.Empty:
            worker = _Worker(self.environ)
        try:
            ok, value, trace = worker.call(payload)
        except BaseException:
            worker.close()
            raise
        self.idle.put(worker)
        if ok:
            return value
        value.add_note(f"in a worker of minductor:\n{trace}")
        raise value

    def close(self) -> None:
        self.threads.shutdown(wait=True)
        while True:
            try:
                self.idle.get_nowait().close()
            except queue.Empty:
                return


class _Worker:
    """One process, which reads jobs from its standard input and writes results to its standard output."""

    def __init__(self, environ: Mapping[str, str | None]) -> None:
        self._process = subprocess.Popen(
            # -P: the folder of this file must not become a place to import from
            [sys.executable, "-P", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: value for name, value in environ.items() if value is not None},
        )
        self._send(pickle.dumps(sys.path))

    def _send(self, payload: bytes) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, payload)
        except BrokenPipeError:
            raise self._death() from None

    def call(self, payload: bytes) -> tuple[bool, Any, str]:
        self._send(payload)
        assert self._process.stdout is not None
        answer = _read(self._process.stdout)
        if answer is None:
            raise self._death()
        return pickle.loads(answer)

    def _death(self) -> WorkerDied:
        status = self._process.wait()
        how = f"was stopped by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return WorkerDied(f"a compile worker {how} in the middle of a job")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            self._process.kill()
        self._process.stdout.close()
        self._process.wait()


def _write(stream: IO[bytes], payload: bytes) -> None:
    stream.write(len(payload).to_bytes(8, "little") + payload)
    stream.flush()


def _read(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


# What runs in a worker.


def _die_with(parent: int) -> None:
    """Ends the worker with its parent. The end of the input does so too, unless a forked child holds the pipe open."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(0)


def _answer(payload: bytes) -> bytes:
    try:
        job, args, kwargs = pickle.loads(payload)
        return pickle.dumps((True, job(*args, **kwargs), ""))
    except BaseException as error:  # a job that exits ends the job and not the worker
        trace = traceback.format_exc()
        try:
            answer = pickle.dumps((False, error, trace))
            pickle.loads(answer)
        except Exception:  # the error cannot be rebuilt from its args: its text is sent
            answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), trace))
        return answer


def _serve() -> None:
    _die_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a job prints must not end up among the answers
    first = _read(sys.stdin.buffer)
    if first is not None:
        sys.path[:] = pickle.loads(first)
    while (payload := _read(sys.stdin.buffer)) is not None:
        _write(answers, _answer(payload))


if __name__ == "__main__":
    _serve()
