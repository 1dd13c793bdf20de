"""The pool: jobs in processes of their own, which end with their parent and are nobody's inheritance."""

from __future__ import annotations

import importlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minductor.runtime.build.pool import Pool, WorkerDied, pool_size

pytestmark = pytest.mark.own_workers
ROOT = Path(__file__).parents[2]


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool(2) as pool:
        yield pool


def run(code: str) -> subprocess.Popen[str]:
    text = "import os, sys, time\nfrom minductor.runtime.build.pool import Pool\n" + code
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_jobs_run_elsewhere_and_in_order_of_asking(pool: Pool) -> None:
    futures = [pool.submit(math.factorial, n) for n in range(20)]
    assert [future.result(60) for future in futures] == [math.factorial(n) for n in range(20)]
    assert pool.submit(os.getpid).result(60) != os.getpid()


def test_keywords_and_large_values(pool: Pool) -> None:
    assert pool.submit(sorted, [1, 3, 2], reverse=True).result(60) == [3, 2, 1]
    big = bytes(3_000_000)
    assert pool.submit(bytes.__add__, big, b"x").result(60) == big + b"x"


def test_no_more_workers_than_the_size() -> None:
    with Pool(2) as pool:
        naps = [pool.submit(time.sleep, 0.1) for _ in range(2)]
        pids = {future.result(60) for future in [pool.submit(os.getpid) for _ in range(10)]}
        assert len(pids) <= 2 and all(nap.result(60) is None for nap in naps)


def test_a_worker_is_used_again() -> None:
    with Pool(1) as pool:
        assert pool.submit(os.getpid).result(60) == pool.submit(os.getpid).result(60)


def test_nothing_starts_before_the_first_job() -> None:
    before = threading.active_count()
    pool = Pool(2)
    assert threading.active_count() == before
    pool.close()


def test_close_ends_the_workers_and_a_later_job_starts_anew() -> None:
    pool = Pool(1)
    first = pool.submit(os.getpid).result(60)
    pool.close()
    assert is_gone(first)
    assert pool.submit(os.getpid).result(60) != first
    pool.close()


def test_an_error_keeps_its_class_and_says_where(pool: Pool) -> None:
    with pytest.raises(ValueError, match="math domain error") as caught:
        pool.submit(math.sqrt, -1).result(60)
    assert "in a worker of minductor" in caught.value.__notes__[0]
    assert pool.submit(math.sqrt, 4).result(60) == 2


def test_an_error_or_a_result_that_does_not_pickle_is_told_as_text(pool: Pool) -> None:
    with pytest.raises(Exception, match="pickle"):
        pool.submit(threading.Lock).result(60)
    with pytest.raises(RuntimeError, match="Odd: cannot travel"):
        pool.submit(eval, "(_ for _ in ()).throw(type('Odd', (Exception,), {})('cannot travel'))").result(60)
    assert pool.submit(math.sqrt, 4).result(60) == 2


def test_a_job_that_exits_ends_the_job_only() -> None:
    with Pool(1) as pool:
        pid = pool.submit(os.getpid).result(60)
        with pytest.raises(SystemExit):
            pool.submit(sys.exit, 3).result(60)
        assert pool.submit(os.getpid).result(60) == pid


def test_a_worker_that_dies_is_told_and_replaced(pool: Pool) -> None:
    others = {*worker_pids(os.getpid())}  # other tests of this process go on with theirs
    with pytest.raises(WorkerDied, match="status 3"):
        pool.submit(os._exit, 3).result(60)
    job = pool.submit(time.sleep, 600)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        pool.submit(eval, "__import__('os').kill(__import__('os').getpid(), 9)").result(60)
    assert pool.submit(math.sqrt, 4).result(60) == 2
    assert not job.done()
    for pid in {*worker_pids(os.getpid())} - others:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied):
        job.result(60)


def worker_pids(parent: int) -> Iterator[int]:
    for task in Path(f"/proc/{parent}/task").iterdir():
        for pid in text_of(task / "children").split():
            if "pool.py" in text_of(Path(f"/proc/{pid}/cmdline")):
                yield int(pid)


def text_of(file: Path) -> str:
    """The text of a file of a thread or a process; "" if that has ended by now."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_what_a_job_prints_is_no_answer(pool: Pool, capfd: pytest.CaptureFixture[str]) -> None:
    assert pool.submit(print, "hello from a job", flush=True).result(60) is None
    assert pool.submit(os.write, 1, b"raw bytes").result(60) == 9
    assert "hello from a job" in capfd.readouterr().err


def test_jobs_see_no_gpu_and_no_interpreter() -> None:
    with Pool(1, environ={**os.environ, "CUDA_VISIBLE_DEVICES": "0", "TRITON_INTERPRET": "1", "KEPT": "yes"}) as pool:
        seen = [
            pool.submit(os.getenv, name).result(60) for name in ("CUDA_VISIBLE_DEVICES", "TRITON_INTERPRET", "KEPT")
        ]
    assert seen == ["", None, "yes"]


ELSEWHERE = """
class Odd(Exception):
    def __init__(self, code, text):
        super().__init__(text)  # which does not bring it back from a pickle

def job(x):
    return x + 1

def odd():
    raise Odd(7, "cannot travel")
"""


def test_jobs_import_from_where_the_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here_for_this_test.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    elsewhere = importlib.import_module("only_here_for_this_test")
    with Pool(1) as pool:
        assert pool.submit(elsewhere.job, 1).result(60) == 2
        with pytest.raises(RuntimeError, match="Odd: cannot travel"):
            pool.submit(elsewhere.odd).result(60)
        assert pool.submit(elsewhere.job, 2).result(60) == 3


def test_what_does_not_pickle_is_refused_at_once(pool: Pool) -> None:
    with pytest.raises(Exception, match="pickle"):
        pool.submit(lambda: 1)


def test_functions_of_the_main_module_are_refused() -> None:
    process = run("def job(): pass\ntry: Pool(1).submit(job)\nexcept ValueError as error: print(error)")
    output, errors = process.communicate(timeout=60)
    assert "is defined in the main module" in output, errors


def test_a_pool_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Pool(0)


@pytest.mark.parametrize(
    ("cores", "count", "size"), [(8, "2", 4), (2, "2", 1), (2, "64", 1), (4, "0", 4), (4, "odd", 4)]
)
def test_the_share_of_a_test_worker(cores: int, count: str, size: int) -> None:
    assert pool_size(cores, {"PYTEST_XDIST_WORKER_COUNT": count}) == size


def test_workers_die_with_a_killed_parent() -> None:
    process = run(
        "p = Pool(1)\nprint(p.submit(os.getpid).result(), flush=True)\np.submit(time.sleep, 600)\ntime.sleep(600)"
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    until(lambda: is_gone(worker))


def test_workers_die_though_a_forked_child_holds_their_pipe() -> None:
    process = run(
        "p = Pool(1)\nprint(p.submit(os.getpid).result(), flush=True)\n"
        "child = os.fork()\n"
        "if child == 0: os.close(1); os.close(2); time.sleep(600)\n"
        "print(child, flush=True)\ntime.sleep(600)"
    )
    assert process.stdout is not None
    worker, child = int(process.stdout.readline()), int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    try:
        until(lambda: is_gone(worker))
    finally:
        os.kill(child, signal.SIGKILL)


def test_an_interpreter_that_ends_waits_for_no_worker() -> None:
    process = run("p = Pool(2)\nprint(p.submit(os.getpid).result())")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    until(lambda: is_gone(int(output)))


def test_a_forked_child_starts_its_own() -> None:
    process = run(
        "p = Pool(1)\nfirst = p.submit(os.getpid).result()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    other = p.submit(os.getpid).result(30)\n"
        "    p.close()\n"
        "    os._exit(0 if other != first else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert p.submit(os.getpid).result(30) == first\n"
        "p.close()\nprint('done')"
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "done\n"), errors


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """What `multiprocessing` would run again in each worker."""
    script = tmp_path / "script.py"
    script.write_text(
        "import math\nfrom minductor.runtime.build.pool import Pool\nprint('once')\n"
        "print(Pool(2).submit(math.gcd, 4, 6).result())\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environ, check=False)
    assert ran.stdout == "once\n2\n", ran.stderr
