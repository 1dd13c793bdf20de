"""Processes that are killed, stopped, or meet `cache clear`: no wrong result afterwards, and nothing left for ever."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from minductor.core.errors import WaitsForAnother
from minductor.runtime.store import cache_folder, key_lock
from minductor.runtime.store.store import Store, digest

ROOT = Path(__file__).parents[2]
KEY = digest("key")
FILES = {"a": b"1" * 100, "b": b"2" * 100}

# Runs `work` and stops for good at the n-th call into the system that changes anything on disk.
STEPS = """
import os, sys, time, warnings
from pathlib import Path
from minductor.runtime.store.store import Store, digest
root, work, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def stepped(event, args):
    global left
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    changes = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.utime", "os.truncate")
    if not writes and not changes:
        return
    # by a path in the store, or by a name in a folder that is open
    if isinstance(args[0], str) and str(root) in args[0] or event in ("os.remove", "os.rmdir") and args[1] != -1:
        left -= 1
        if left == 0:
            print("here", flush=True)
            time.sleep(600)
KEY, FILES = digest("key"), {"a": b"1" * 100, "b": b"2" * 100}
sys.addaudithook(stepped)
if work == "sweep":
    Store(root).sweep()
else:
    store = Store(root, limit_bytes=1 if work == "evict" else 1 << 30, grace_s=-10.0)
    if work == "clear":
        store.clear()
    else:
        with store.lock(KEY):
            store.put(KEY, FILES)
print("done", flush=True)
"""
# How many such calls each makes at most; that depends on filelock's version.
WORKS = {"put": 27, "evict": 37, "clear": 28, "sweep": 21}


@contextmanager
def process(code: str, *args: object, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, killed at the end of the block."""
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate(timeout=60)


def prepared(root: Path, work: str) -> None:
    """The store that a killed process found: empty, or with an entry and what ended processes left."""
    if work in ("clear", "sweep"):
        store = Store(root)
        store.put(KEY, FILES)
        left = root / "temporary" / f"{2**22 + 7}{store_name()}"
        left.mkdir()
        (left / "half").write_text("half")
        (root / "locks" / digest("left")).touch()


def store_name() -> str:
    """The end of a name that a process of this machine gave."""
    return cache_folder.new_name().removeprefix(str(os.getpid()))


def line(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline()


def check_after(root: Path) -> None:
    """What the next process finds: the entry or none, a store that works, and nothing of the dead one."""
    store = Store(root)
    entry = store.get(KEY)
    assert entry is None or dict(entry.contents) == FILES
    assert store.stats.damaged == 0
    with store.lock(KEY):
        store.put(KEY, FILES)
    again = store.get(KEY)
    assert again is not None and dict(again.contents) == FILES
    # the first write swept: nothing is there for a while only
    assert store.temporary_size()[0] == 0
    known = {cache_folder.MARKER, *cache_folder.FOLDERS, "tally"}
    assert {path.name for path in root.iterdir()} <= known
    store.put(digest("next"), FILES)
    assert 0 < int((root / "tally").read_text()) <= store.size()  # what the dead one had not noted is missing


@pytest.mark.parametrize("work", WORKS)
def test_no_step_is_left_out(tmp_path: Path, work: str) -> None:
    prepared(tmp_path / "store", work)
    with process(STEPS, tmp_path / "store", work, WORKS[work] + 1, TMPDIR=str(tmp_path)) as run:
        assert line(run) == "done\n", "more steps than WORKS says"
    check_after(tmp_path / "store")


def kills() -> list[object]:
    """Each step of each work; one in seven is no long test."""
    steps = [(work, step) for work, count in WORKS.items() for step in range(1, count + 1)]
    return [
        pytest.param(work, step, marks=() if number % 7 == 0 else pytest.mark.long, id=f"{work}-{step}")
        for number, (work, step) in enumerate(steps)
    ]


@pytest.mark.parametrize(("work", "step"), kills())
def test_a_process_killed_at_a_step(tmp_path: Path, work: str, step: int) -> None:
    prepared(tmp_path / "store", work)
    with process(STEPS, tmp_path / "store", work, step, TMPDIR=str(tmp_path)) as run:
        assert line(run) in ("here\n", "done\n")
    check_after(tmp_path / "store")


# Compiles one graph in `root` with the compiler in CXX, and says what came out.
COMPILE = """
import os, sys, torch
from pathlib import Path
from torch.fx.experimental.proxy_tensor import make_fx
from minductor.driver import Compiler
from minductor.options import Options
from minductor.runtime.store.store import Store
from minductor.target import Env, by_name
given = torch.arange(6.0)
compiler = Compiler(store=Store(Path(sys.argv[1])))
for factor in map(int, sys.argv[2].split(",")):
    gm = make_fx(lambda x: x * factor + 1, tracing_mode="fake")(given)
    env = Env(Options.parse(None, {}, {}), by_name("cpu"))
    result = compiler.compile_graph(gm, [given], role="inference", env=env)([given])[0]
    assert torch.equal(result, given * factor + 1), (factor, result)
print("right", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("ended", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_killed_while_the_compiler_runs(tmp_path: Path, ended: signal.Signals) -> None:
    root, slow = tmp_path / "store", tmp_path / "g++"
    slow.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nsleep 600\n')
    slow.chmod(0o755)
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + COMPILE
    with process(code, root, 3, CXX=str(slow)) as run:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().endswith("\n"))
        run.send_signal(ended)
        run.wait(60)
    with suppress(ProcessLookupError):  # a process that is killed ends nobody
        os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    with process(COMPILE, root, 3) as run:
        assert line(run) == "right\n"
    store = Store(root)
    assert len(store.entries()) == 1 and store.temporary_size()[0] == 0


# Stopped processes and locks.

HOLDS = """
import sys, time
from pathlib import Path
from minductor.runtime.store.store import Store, digest
with Store(Path(sys.argv[1])).lock(digest("key")):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_waits_says_for_whom_and_then_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lock, "SAY_AFTER_S", 0.02)
    store = Store(tmp_path / "store")
    with process(HOLDS, store.root) as holder:
        assert line(holder) == "held\n"
        told = rf"waiting for process {holder.pid} \(.*python.*store"
        with pytest.warns(WaitsForAnother, match=told), store.lock(KEY, timeout_s=0.1):
            store.put(KEY, FILES)
        holder.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{holder.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        told = rf"waiting for process {holder.pid}, which is stopped, \(.*python"
        with pytest.warns(WaitsForAnother, match=told), store.lock(KEY, timeout_s=0.1):
            assert store.get(KEY) is not None
    with store.lock(KEY, timeout_s=60):  # the dead one's, and what it noted, are gone
        pass
    assert store.temporary_size()[0] == 0


@pytest.mark.parametrize("note", ["", "[]", "{", '{"name": 3}', '{"name": "x", "pid": "y", "command": 1}', "folder"])
def test_a_note_that_is_none_does_not_stop_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, note: str) -> None:
    monkeypatch.setattr(key_lock, "SAY_AFTER_S", 0.01)
    store = Store(tmp_path / "store")
    with store.lock(KEY):
        path = store.root / "locks" / f"{KEY}.holder"
        path.unlink()
        path.mkdir() if note == "folder" else path.write_text(note)
        with pytest.warns(WaitsForAnother, match="waiting for another process"), store.lock(KEY, timeout_s=0.03):
            pass


def test_a_holder_elsewhere_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lock, "SAY_AFTER_S", 0.01)
    store = Store(tmp_path / "store")
    with store.lock(KEY):
        name = f"7-{'0' * 12}-{'1' * 16}"
        told = json.dumps({"name": name, "pid": 7, "command": "python train.py"})
        (store.root / "locks" / f"{KEY}.holder").write_text(told)
        expected = r"process 7 of another machine or container \(python train.py\)"
        with pytest.warns(WaitsForAnother, match=expected), store.lock(KEY, timeout_s=0.03):
            pass


def test_what_processes_of_elsewhere_write_is_spared(tmp_path: Path) -> None:
    """Two containers share a folder and not the numbers of processes: 1 here is not 1 there."""
    store = Store(tmp_path / "store")
    theirs = store.root / "temporary" / f"{2**22 + 7}-{'0' * 12}-{'1' * 16}"
    theirs.mkdir()
    store.sweep()
    store.clear()
    assert theirs.is_dir()
    os.utime(theirs, (0, 0))
    store.sweep()
    assert not theirs.exists()


# Clearing beside processes that compile.

BESIDE = """
import os, sys
from pathlib import Path
from minductor.runtime.build.probe import probe
from minductor.runtime.store.store import Store, digest
from minductor.runtime.build.toolchain import Toolchain, Unit
store, toolchain = Store(Path(sys.argv[1])), Toolchain(probe(), os.environ)
def compiled(folder):
    toolchain.compile([Unit("one", text), Unit("two", text)], folder / "out.so")
    return (folder / "out.so").read_bytes()
failed = []
for number in range(int(sys.argv[2])):
    text = f"int f{os.getpid()}_{number};"
    try:
        with store.lock(digest(text)):
            entry = store.get(digest(text)) or store.put(digest(text), {"out.so": store.in_scratch(compiled)})
        assert entry.contents["out.so"] == text.encode() * 2
    except Exception as error:
        failed.append(repr(error))
print(len(failed), failed[:3], flush=True)
"""
# Puts its inputs together, as slowly as a compiler of nothing.
JOINS = """#!/bin/sh
for word; do
  case "$last$word" in
    -o*) out="$word";;
    *.cpp|*.o) from="$from $word";;
  esac
  case "$word" in -o) last=-o;; *) last=;; esac
done
sleep 0.005
cat $from > "$out"
"""


def cleared_beside(tmp_path: Path, clear: Callable[[], None], count: int) -> list[str]:
    """What three processes that compile say, while this one calls `clear` without a break."""
    (tmp_path / "g++").write_text(JOINS)
    (tmp_path / "g++").chmod(0o755)
    with ExitStack() as all_of_them:
        compiling = [
            all_of_them.enter_context(process(BESIDE, tmp_path / "store", count, CXX=str(tmp_path / "g++")))
            for _ in range(3)
        ]
        said: list[str] = []
        threads = [threading.Thread(target=lambda run=run: said.append(line(run))) for run in compiling]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while any(thread.is_alive() for thread in threads):
            assert time.monotonic() < end, "a process that compiles never ends"
            clear()
        return said


def test_clearing_beside_processes_that_compile(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert cleared_beside(tmp_path, store.clear, 6) == ["0 []\n"] * 3
    store.clear()
    assert store.temporary_size() == (0, 0) and store.count() == 0


@pytest.mark.long
def test_a_compile_goes_on_where_the_whole_folder_is_removed_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def remove() -> None:
        shutil.rmtree(store.root, ignore_errors=True)
        time.sleep(0.3)  # what vanished is made again once, so that the second attempt needs a moment

    assert cleared_beside(tmp_path, remove, 40) == ["0 []\n"] * 3


@pytest.mark.long
def test_the_command_beside_processes_that_compile(tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store(root)
    with process(COMPILE, root, "3,4,5,6,7,8") as one, process(COMPILE, root, "8,7,6,5,4,3") as other:
        for _ in range(12):
            command = [sys.executable, "-m", "minductor", "cache", "--dir", str(root), "clear"]
            subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=ROOT)
        assert (line(one), line(other)) == ("right\n", "right\n")


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.005)
