"""The store: what was put is what is read, whatever happens to the disk, the process or the other process."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minductor.core.errors import CorruptEntry, StoreRefused, StoreUnwritable
from minductor.runtime.store import store as store_module
from minductor.runtime.store.cache_folder import MARKER
from minductor.runtime.store.store import MANIFEST, Entry, Store, digest

ROOT = Path(__file__).parents[2]
KEY = digest("key")
FILES = {"kernels.so": bytes(range(256)) * 4, "plan.json": b'{"lines": []}', "empty.txt": b""}


def python(code: str, *args: object, wait: bool = True) -> subprocess.Popen[str]:
    """Another process that runs `code` with the store imported."""
    text = "import os, sys, time\nfrom pathlib import Path\nfrom minductor.runtime.store.store import *\n" + code
    process = subprocess.Popen(
        [sys.executable, "-c", text, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if wait:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    return process


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.005)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", grace_s=0.0)


# Reading and writing.


def test_what_is_put_is_read(store: Store) -> None:
    assert store.get(KEY) is None
    written = store.put(KEY, FILES)
    read = store.get(KEY)
    assert read == written
    assert read is not None and dict(read.contents) == FILES
    assert read.contents["plan.json"] == FILES["plan.json"] and read.text("empty.txt") == ""
    assert read.file("kernels.so").read_bytes() == FILES["kernels.so"]
    assert (store.stats.hits, store.stats.misses, store.stats.puts) == (1, 1, 1)
    assert store.entries() == (written,)
    assert store.size() > sum(map(len, FILES.values()))


def test_another_store_on_the_same_folder_reads_it(store: Store) -> None:
    store.put(KEY, FILES)
    other = Store(store.root).get(KEY)
    assert other is not None and dict(other.contents) == FILES


def test_the_first_of_two_equal_keys_stays(store: Store) -> None:
    first = store.put(KEY, FILES)
    inode = first.path.stat().st_ino
    second = store.put(KEY, {"other": b"x"})
    assert dict(second.contents) == FILES
    assert first.path.stat().st_ino == inode
    assert list((store.root / "temporary").iterdir()) == []


def variants(store: Store) -> list[Entry]:
    found: list[Entry] = []
    store.pick(KEY, found.extend)
    return found


def test_variants_of_a_key(store: Store) -> None:
    assert variants(store) == []
    b = store.put(KEY, {"f": b"2"}, variant="b")
    a = store.put(KEY, {"f": b"1"}, variant="a")
    assert variants(store) == [a, b]
    assert store.get(KEY) is None
    assert store.get(KEY, variant="b") == b
    assert store.pick(KEY, lambda entries: entries[1]) == b
    hits, misses = store.stats.hits, store.stats.misses
    assert store.pick(KEY, lambda entries: None) is None
    assert (store.stats.hits, store.stats.misses) == (hits, misses + 1)


@pytest.mark.parametrize("word", ["", ".", "..", "../x", "a/b", "/a", "a\x00b", ".hidden", "a" * 300, "a\n"])
def test_words_that_are_no_file_names_are_refused(store: Store, word: str) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        store.get(word)
    with pytest.raises(ValueError, match="cannot be"):
        store.put(KEY, {}, variant=word)
    with pytest.raises(ValueError, match="cannot be"):
        store.put(KEY, {word: b""})
    with pytest.raises(ValueError, match="cannot be"):
        store.put(KEY, {MANIFEST: b""})
    assert store.entries() == ()


def test_clear(store: Store) -> None:
    store.put(KEY, FILES)
    with store.lock(KEY):
        pass
    store.clear()
    assert store.get(KEY) is None and store.size() == 0
    assert sorted(p.name for p in store.root.rglob("*")) == ["entries", "locks", MARKER, "temporary"]
    store.put(KEY, FILES)
    assert store.get(KEY) is not None


@given(st.lists(st.binary(max_size=9)), st.lists(st.binary(max_size=9)))
def test_digest_tells_lists_apart(left: list[bytes], right: list[bytes]) -> None:
    assert (digest(*left) == digest(*right)) == (left == right)


def test_digest_takes_any_text() -> None:
    assert digest("é") == digest("é".encode())
    assert len(digest("\ud800")) == 64


# Damage.


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_damage_gives_altered_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bit flips, truncations, growth, loss: the old bytes or a miss with a warning, and then a rebuild."""
    store = Store(tmp_path_factory.mktemp("damage") / "store")
    path = store.put(KEY, FILES).path / data.draw(st.sampled_from([*FILES, MANIFEST]))
    before = path.read_bytes()
    match data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "replace"])):
        case "flip" if before:
            at = data.draw(st.integers(0, len(before) * 8 - 1))
            after = bytearray(before)
            after[at // 8] ^= 1 << at % 8
            path.write_bytes(after)
        case "cut" if before:
            path.write_bytes(before[: data.draw(st.integers(0, len(before) - 1))])
        case "remove":
            path.unlink()
        case "replace":
            path.write_bytes(data.draw(st.binary(max_size=200)))
        case _:
            path.write_bytes(before + data.draw(st.binary(min_size=1, max_size=8)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        entry = store.get(KEY)
    if entry is None:
        assert [w.category for w in caught] == [CorruptEntry]
        assert store.stats.damaged == 1 and not path.parent.exists()
    else:
        # White space of the manifest says nothing, and some replacements equal what they replace.
        assert dict(entry.contents) == FILES
    store.put(KEY, FILES)
    again = Store(store.root).get(KEY)
    assert again is not None and dict(again.contents) == FILES


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"null", b"{}", b"\xff\xfe", b'{"sha256": 3}', b'{"schema": 1, "files": {}}', b"[" * 100_000],
)
def test_a_manifest_that_is_none(store: Store, text: bytes) -> None:
    (store.put(KEY, FILES).path / MANIFEST).write_bytes(text)
    with pytest.warns(CorruptEntry):
        assert store.get(KEY) is None
    assert store.get(KEY) is None


def test_an_entry_under_another_key_is_damage(store: Store) -> None:
    """A folder moved by hand has whole files that belong to another graph."""
    entry = store.put(KEY, FILES)
    other = digest("other")
    place = store.root / "entries" / other[:2] / other
    place.mkdir(parents=True)
    entry.path.rename(place / "main")
    with pytest.warns(CorruptEntry, match="another"):
        assert store.get(other) is None


def test_a_manifest_that_leaves_a_file_out_is_damage(store: Store) -> None:
    """Every file it still names is whole; only its hash of itself can tell."""
    path = store.put(KEY, FILES).path / MANIFEST
    claim = json.loads(path.read_text())
    del claim["files"]["plan.json"]
    path.write_text(json.dumps(claim))
    with pytest.warns(CorruptEntry, match="its own hash"):
        assert store.get(KEY) is None


def test_an_entry_of_another_schema_is_rebuilt(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SCHEMA", 999)
    store.put(KEY, FILES)
    monkeypatch.undo()
    with pytest.warns(CorruptEntry, match="schema"):
        assert store.get(KEY) is None


def test_a_file_in_the_place_of_an_entry(store: Store) -> None:
    entry = store.put(KEY, FILES)
    store.clear()
    entry.path.parent.mkdir(parents=True)
    entry.path.write_text("not a folder")
    with pytest.warns(CorruptEntry):
        assert store.get(KEY) is None
    store.put(KEY, FILES)
    assert store.get(KEY) is not None


def test_put_over_a_damaged_entry_replaces_it(store: Store) -> None:
    (store.put(KEY, FILES).path / "plan.json").write_text("x")
    with pytest.warns(CorruptEntry):
        entry = store.put(KEY, FILES)
    assert store.get(KEY) == entry


def test_a_damaged_variant_leaves_the_others(store: Store) -> None:
    a = store.put(KEY, FILES, variant="a")
    (store.put(KEY, FILES, variant="b").path / "plan.json").unlink()
    with pytest.warns(CorruptEntry):
        assert variants(store) == [a]


def test_an_unreadable_tally_is_a_reason_to_count(store: Store) -> None:
    store.put(KEY, FILES)
    (store.root / "tally").write_bytes(b"\xff\x00")
    store.put(digest("next"), FILES)
    assert int((store.root / "tally").read_text()) == store.size()


# Size.


def test_evicts_what_was_unused_longest(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=10_000, grace_s=0.0)
    keys = [digest(str(i)) for i in range(4)]
    for age, key in zip((400, 300, 200, 100), keys, strict=True):
        path = store.put(key, {"f": bytes(2_000)}).path
        os.utime(path, (time.time() - age,) * 2)
    assert store.get(keys[0]) is not None  # now it is the youngest
    store.put(digest("last"), {"f": bytes(3_000)})
    assert store.size() <= 10_000
    left = {entry.key for entry in store.entries()}
    assert keys[0] in left and digest("last") in left and keys[1] not in left
    assert store.stats.evicted >= 1


def test_what_was_used_a_moment_ago_is_not_evicted(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=1, grace_s=60.0)
    store.put(KEY, FILES)
    assert store.get(KEY) is not None


def test_stays_bounded_over_many_puts(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=20_000, grace_s=0.0)
    for i in range(40):
        store.put(digest(str(i)), {"f": bytes(1_000)})
        assert store.size() < 30_000


# Trust.


def test_the_folder_is_private(store: Store) -> None:
    for folder in (store.root, *(p for p in store.root.rglob("*") if p.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o770, 0o777, 0o1777])
def test_a_folder_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "open"
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(StoreRefused, match=r"MD013.*\n.*open(.|\n)*others may write"):
        Store(root)
    with pytest.raises(StoreRefused):
        Store.open(root, {})


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(StoreRefused, match="symbolic link"):
        Store(tmp_path / "link")


def test_a_link_inside_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (store.root / "entries").rmdir()
    (store.root / "entries").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreRefused, match="symbolic link"):
        Store(store.root)


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "foreign"
    root.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(root, 12345, 12345)
    else:  # only root gives folders away; for others, be somebody else
        somebody = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody)
    with pytest.raises(StoreRefused, match="belongs to user"):
        Store.open(root, {})


def test_open_finds_the_folder(tmp_path: Path) -> None:
    assert Store.open(tmp_path / "a", {"MINDUCTOR_CACHE_DIR": str(tmp_path / "b")}).root == tmp_path / "a"
    assert Store.open(None, {"MINDUCTOR_CACHE_DIR": str(tmp_path / "b")}).root == tmp_path / "b"
    assert Store.open(None, {"HOME": str(tmp_path)}).root == tmp_path / ".cache" / "minductor"


def test_an_unwritable_folder_gives_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(StoreUnwritable, match="MINDUCTOR_CACHE_DIR"):
        store = Store.open(tmp_path / "file" / "below", {})
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700
    store.put(KEY, FILES)
    assert store.get(KEY) is not None
    root = store.root
    del store
    assert not root.exists()


def test_a_folder_without_write_permission_gives_a_private_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere, so say it for the system
    with pytest.warns(StoreUnwritable):
        store = Store.open(tmp_path / "read_only", {})
    assert store.root != tmp_path / "read_only"


# Other processes, threads, and ends that come too early.

BUILD = """
store = Store(Path(sys.argv[1]))
key = digest("shared")
with store.lock(key):
    entry = store.get(key)
    if entry is None:
        with open(sys.argv[2], "a") as log: log.write("built\\n")
        time.sleep(0.3)
        entry = store.put(key, {"f": b"x" * 1000})
assert entry.contents["f"] == b"x" * 1000
"""


def test_two_processes_build_once_and_both_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    both = [python(BUILD, tmp_path / "store", log, wait=False) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert log.read_text() == "built\n"


def test_threads_build_once_and_all_read(store: Store) -> None:
    built: list[int] = []
    read: list[bytes] = []

    def work() -> None:
        with store.lock(KEY):
            entry = store.get(KEY)
            if entry is None:
                built.append(1)
                time.sleep(0.05)
                entry = store.put(KEY, FILES)
        read.append(entry.contents["plan.json"])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert built == [1] and read == [FILES["plan.json"]] * 6


def test_locks_of_different_keys_do_not_wait(store: Store) -> None:
    with store.lock(KEY), store.lock(digest("other")):
        pass


def test_whoever_waits_too_long_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", lock_timeout_s=0.05)
    with store.lock(KEY), store.lock(KEY):
        store.put(KEY, FILES)
    assert store.get(KEY) is not None


def test_writers_without_a_lock_agree(store: Store) -> None:
    """The lock saves work only: racing writers of a key leave one whole entry."""
    threads = [threading.Thread(target=store.put, args=(KEY, FILES)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    entry = store.get(KEY)
    assert entry is not None and dict(entry.contents) == FILES
    assert list((store.root / "temporary").iterdir()) == []


def test_readers_and_evictions_at_once_see_all_or_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit_bytes=1, grace_s=-10.0)
    stop = threading.Event()
    seen: set[bool] = set()

    def churn() -> None:
        while not stop.is_set():
            store.put(KEY, FILES)  # and evicts it at once, since the limit is a byte

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an eviction is no damage
            end = time.monotonic() + 2
            while time.monotonic() < end:
                entry = store.get(KEY)
                assert entry is None or dict(entry.contents) == FILES
                seen.add(entry is None)
    finally:
        stop.set()
        thread.join(60)
    assert seen == {True, False} and store.stats.damaged == 0


# Stops for ever inside the n-th step of put: after each file, before and after the rename.
KILLED = """
import minductor.runtime.store.store as module
steps = int(sys.argv[2])
def pause(real):
    def step(*args):
        global steps
        steps -= 1
        if steps == 0:
            print("here", flush=True)
            time.sleep(600)
        return real(*args)
    return step
for name in ("_write", "_sync_folder", "_rename"):
    setattr(module, name, pause(getattr(module, name)))
store = Store(Path(sys.argv[1]))
with store.lock(digest("key")):
    store.put(digest("key"), {"a": b"1" * 100, "b": b"2" * 100})
"""


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6])
def test_a_process_killed_while_writing(tmp_path: Path, step: int) -> None:
    store = Store(tmp_path / "store")
    process = python(KILLED, store.root, step, wait=False)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    was_complete = step == 6
    assert (store.get(KEY) is not None) == was_complete
    assert len(list((store.root / "temporary").iterdir())) == (0 if was_complete else 1)
    with store.lock(KEY):  # the kernel dropped the dead one's lock
        store.put(KEY, {"a": b"1" * 100, "b": b"2" * 100})
    entry = store.get(KEY)
    assert entry is not None and entry.contents["a"] == b"1" * 100
    store.sweep()
    assert list((store.root / "temporary").iterdir()) == []


def test_a_sweep_leaves_the_living_alone(store: Store) -> None:
    with store.scratch() as folder:
        store.sweep()
        assert folder.is_dir()
        old = time.time() - 2 * 24 * 3600
        os.utime(folder, (old, old))
        store.sweep()
        assert not folder.exists()


def test_a_sweep_removes_locks_that_nobody_holds(store: Store) -> None:
    left = store.root / "locks" / digest("left")
    left.touch()
    left.with_name(f"{left.name}.holder").touch()
    with store.lock(KEY):
        store.sweep()
        assert sorted(p.name for p in left.parent.iterdir()) == [KEY, f"{KEY}.holder"]
    assert list(left.parent.iterdir()) == []


def test_a_forked_child_neither_has_nor_drops_the_lock(tmp_path: Path) -> None:
    """The child of a fork inside the block leaves the block too, and its parent must still be alone afterwards."""
    code = """
from filelock import FileLock, Timeout
def state():
    try:
        with FileLock(store.root / "locks" / KEY).acquire(timeout=0.1):
            return "free"
    except Timeout:
        return "held"
KEY = digest("key")
store = Store(Path(sys.argv[1]))
with store.lock(KEY):
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print(state())
print(state())
"""
    process = python(code, tmp_path / "store", wait=False)
    output, errors = process.communicate(timeout=60)
    assert output == "held\nfree\n", errors


def test_a_forked_child_uses_the_store(store: Store) -> None:
    store.put(KEY, FILES)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with store.lock(digest("child")):
                status = 0 if store.get(KEY) is not None and store.put(digest("child"), FILES) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get(digest("child")) is not None


def test_a_private_store_outlives_a_forked_child(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = """
import warnings; warnings.simplefilter("ignore")
store = Store.open(Path(sys.argv[1]) / "below", {})
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert store.root.is_dir()
print(store.root)
"""
    process = python(code, tmp_path / "file", wait=False)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert not Path(output.strip()).exists()


def test_importing_starts_nothing_and_loads_little() -> None:
    code = """
import threading
assert threading.active_count() == 1
loaded = {"multiprocessing", "concurrent", "subprocess", "pickle", "torch", "filelock", "minductor.runtime.build.pool"}
print(sorted(loaded & set(sys.modules)), len(os.listdir("/proc/self/task")))
"""
    process = python(code, wait=False)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "[] 1\n"), errors


def test_no_pickle_lies_in_the_store(store: Store) -> None:
    store.put(KEY, FILES)
    claim = json.loads((store.root / "entries" / KEY[:2] / KEY / "main" / MANIFEST).read_text())
    assert set(claim) == {"schema", "key", "variant", "files", "sha256"}
    assert "pickle" not in Path(store_module.__file__).read_text().split('"""')[2]
