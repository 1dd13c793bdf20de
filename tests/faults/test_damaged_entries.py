"""Damage to each file of a store, and other kinds of things in their places: a warning at most, and eager's values."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from minductor.core.errors import CacheMended, CorruptEntry, StoreUnwritable
from minductor.driver import Compiled, Compiler
from minductor.options import Options
from minductor.runtime.store import cache_folder
from minductor.runtime.store.store import MANIFEST, Store, digest
from minductor.target import Env, by_name

KEY, OTHER = digest("key"), digest("other")  # on different shelves: a new entry makes the shelf a folder again
FILES = {"kernels.so": bytes(range(256)) * 4, "wrapper.py": b"call = 1", "empty.txt": b""}
GIVEN = torch.arange(6.0)


def flip(at: float) -> Callable[[Path], None]:
    """Flips a bit of the byte at that share of a file."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes()) or bytearray(1)
        data[min(int(at * len(data)), len(data) - 1)] ^= 0x10
        path.write_bytes(data)

    return change


def cut(share: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: min(int(share * len(data)), len(data) - 1)] if data else b"x")

    return change


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in the place of a file or folder."""

    def change(path: Path) -> None:
        cache_folder.delete(path)
        make(path)

    return change


def link_to_copy(path: Path) -> None:
    """Its own bytes, but behind a link."""
    copy = path.with_name(f"{path.name}.copy")
    shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    cache_folder.delete(path)
    path.symlink_to(copy)


DAMAGE: Mapping[str, Callable[[Path], Any]] = {
    **{f"flip-{at}": flip(at) for at in (0.0, 0.3, 0.5, 0.9, 1.0)},
    **{f"cut-{share}": cut(share) for share in (0.0, 0.5, 1.0)},
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"\n\0"),
    "removed": lambda path: path.unlink(),
    "folder": instead(Path.mkdir),
    "full-folder": instead(lambda path: (path / "a" / "b").mkdir(parents=True)),
    "broken-link": instead(lambda path: path.symlink_to("/nowhere/at/all")),
    "loop": instead(lambda path: path.symlink_to(path.name)),
    "endless": instead(lambda path: path.symlink_to("/dev/zero")),
    "link": link_to_copy,
    "pipe": instead(os.mkfifo),
    "huge": lambda path: os.truncate(path, 1 << 42),
}
SAMPLE = ("flip-0.5", "cut-1.0", "link", "pipe")


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """No test of this file takes a minute: a pipe that is read waits for ever."""

    def late(number: int, frame: object) -> None:
        raise TimeoutError("a test of damage waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_no_damage_to_a_file_is_read(tmp_path: Path, name: str, kind: str) -> None:
    store = Store(tmp_path / "store")
    entry = store.put(KEY, FILES)
    DAMAGE[kind](entry.path / name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read = store.get(KEY)
    assert read is None or (dict(read.contents) == FILES and name == MANIFEST)
    assert [type(w.message) for w in caught] == ([] if read else [CorruptEntry])
    store.put(KEY, FILES)
    again = Store(store.root).get(KEY)
    assert again is not None and dict(again.contents) == FILES
    store.sweep()
    assert store.temporary_size()[0] == 0


# --- other kinds of things where the store has its own

KINDS: Mapping[str, Callable[[Path], Any]] = {
    name: DAMAGE[name] for name in ("folder", "full-folder", "broken-link", "loop", "link", "pipe")
} | {"file": instead(lambda path: path.write_bytes(b"mine"))}
PLACES: Mapping[str, str] = {
    "shelf": f"entries/{KEY[:2]}",
    "key": f"entries/{KEY[:2]}/{KEY}",
    "entry": f"entries/{KEY[:2]}/{KEY}/main",
    "lock": f"locks/{KEY}",
    "note": f"locks/{KEY}.holder",
    "tally": "tally",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_another_kind_of_thing_is_out_of_the_way_after_one_use(tmp_path: Path, place: str, kind: str) -> None:
    """It is set aside or removed with one warning, and the next process meets none of it."""
    store = Store(tmp_path / "store")
    store.put(KEY, FILES)
    path = store.root / PLACES[place]
    if not os.path.lexists(path):
        path.write_bytes(b"")
    KINDS[kind](path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            store = Store(store.root)
            with store.lock(KEY):
                if store.get(KEY) is None:
                    store.put(KEY, FILES)
            store.put(OTHER, FILES)
    assert [w.category for w in caught if w.category not in (CorruptEntry, CacheMended)] == []
    assert len(caught) <= 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Store(store.root)
        with again.lock(KEY):
            entry = again.get(KEY)
        assert entry is not None and dict(entry.contents) == FILES
        assert int((store.root / "tally").read_text()) > 0
    # A link to a folder with whole entries is as good as that folder.
    assert path.is_symlink() == (kind == "link" and place in ("shelf", "key"))
    assert place not in ("lock", "note") or not path.exists()


def test_what_was_set_aside_stays_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    folder = store.root / "locks" / KEY
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.warns(CacheMended, match="it is no lock file"), store.lock(KEY):
        pass
    store.clear()
    (kept,) = (store.root / cache_folder.QUARANTINE).iterdir()
    assert (kept / "mine").read_text() == "mine"
    assert store.temporary_size() == (1, 4) and store.size() == 4
    now = cache_folder.time.time()
    monkeypatch.setattr(cache_folder.time, "time", lambda: now + 25 * 3600)
    store.sweep()
    assert not kept.exists() and store.size() == 0


# --- tallies and left-overs


@pytest.mark.parametrize("text", ["-1", "-99999999999", "", "x", "1e9", "\0", "9" * 5000, "nan", "0x10"])
def test_a_tally_that_cannot_be_right_is_counted_anew(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path / "store")
    store.put(KEY, FILES)
    (store.root / "tally").write_text(text)
    store.put(digest("next"), FILES)
    assert int((store.root / "tally").read_text()) == store.size()
    assert len(store.entries()) == 2


def test_a_process_removes_what_ended_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    here = cache_folder.new_name().removeprefix(str(os.getpid()))
    root = Store(tmp_path / "store").root
    ended, failed = f"{2**22 + 7}{here}", tmp_path / "minductor-failed-abcdefgh"
    for folder in (root / "temporary" / ended, tmp_path / f"minductor-store-{ended}", failed, tmp_path / "minductor-x"):
        (folder / "deeper").mkdir(parents=True)
        (folder / "deeper" / "file").write_bytes(bytes(100))
    os.utime(failed, (0, 0))
    fresh = tmp_path / "minductor-failed-ijklmnop"
    fresh.mkdir()
    (root / "locks" / KEY).touch()
    read = Store(root, reads_only=True)
    assert read.temporary_size() == (2, 100) and read.size() == 100
    assert read.get(KEY) is None and read.temporary_size()[0] == 2, "reading removes nothing"
    store = Store(root)
    assert store.temporary_size() == (0, 0), "a process that compiles nothing new removes it too"
    assert failed.exists()
    store.put(KEY, FILES)
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, "minductor-x", "store"]


def test_a_start_looks_at_so_many_left_overs_and_no_more(tmp_path: Path) -> None:
    here = cache_folder.new_name().removeprefix(str(os.getpid()))
    store = Store(tmp_path / "store")
    for number in range(30):
        (store.root / "temporary" / f"{2**22 + 7 + number}{here}").mkdir()
    cache_folder.sweep(store.root, most=10)
    assert store.temporary_size()[0] == 20
    cache_folder.sweep(store.root, seconds=-1.0)
    assert store.temporary_size()[0] == 20
    store.sweep()
    assert store.temporary_size()[0] == 0
    for number in range(300):
        (store.root / "temporary" / f"{2**22 + 7 + number}{here}").mkdir()
    assert 300 - 256 <= Store(store.root).temporary_size()[0] < 300


# --- a store that is only read


def read_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a folder what a disk is that is mounted read-only, for root too, who writes everywhere."""

    def refuse(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            writes = name != "open" or (args and args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if isinstance(path, str | os.PathLike) and Path(os.fspath(path)).is_relative_to(root):
                if name == "access":
                    return not args[0] & os.W_OK and real(path, *args)
                if writes:
                    raise OSError(30, "Read-only file system", str(path))
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, name, call)

    for name in ("access", "mkdir", "open", "rename", "replace", "rmdir", "unlink", "utime", "remove", "chmod"):
        refuse(name)


def compiled(store: Store | None, environ: Mapping[str, str], factor: int, seen: list[Compiled]) -> None:
    compiler = Compiler(store=store, environ={**os.environ, **environ}, observer=seen.append)
    gm = make_fx(lambda x: x * factor + 1, tracing_mode="fake")(GIVEN)
    env = Env(Options.parse(None, {}, {}), by_name("cpu"))
    call = compiler.compile_graph(gm, [GIVEN], role="inference", env=env)
    torch.testing.assert_close(call([GIVEN])[0], GIVEN * factor + 1)


def test_a_warm_store_on_a_read_only_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    seen: list[Compiled] = []
    environ = {"MINDUCTOR_CACHE_DIR": str(root)}
    compiled(None, environ, 2, seen)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    with monkeypatch.context() as patch:
        read_only(root, patch)
        with warnings.catch_warnings():
            warnings.simplefilter("error", StoreUnwritable)  # nothing is to be kept
            compiled(None, environ, 2, seen)
        with pytest.warns(StoreUnwritable) as said:
            store = Store.open(root, {})
            compiled(store, {}, 3, seen)
            compiled(store, {}, 3, seen)
            compiled(store, {}, 2, seen)
        assert len([w for w in said if w.category is StoreUnwritable]) == 1
    assert [made.was_hit for made in seen] == [False, True, False, True, True]
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_a_damaged_entry_on_a_read_only_disk_is_built_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    (store.put(KEY, FILES).path / "wrapper.py").write_text("damaged")
    read_only(store.root, monkeypatch)
    store = Store.open(store.root, {})
    with pytest.warns(CorruptEntry):
        assert store.get(KEY) is None
    with pytest.warns(StoreUnwritable):
        store.put(KEY, FILES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = store.get(KEY)
    assert entry is not None and dict(entry.contents) == FILES


def test_a_disk_that_becomes_full_is_still_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.put(KEY, FILES)
    with pytest.warns(StoreUnwritable):
        other = Store.instead_of(store.root, OSError(28, "No space left on device"))
    entry = other.get(KEY)
    assert entry is not None and dict(entry.contents) == FILES and other.root != store.root


def test_a_store_without_the_right_to_write_is_read(tmp_path: Path) -> None:
    """As the system itself refuses it, to a user who is not root."""
    store = Store(tmp_path / "store")
    store.put(KEY, FILES)
    somebody = os.geteuid() or 12345
    folder = Path(os.path.realpath("/tmp")) / f"minductor-test-{os.urandom(8).hex()}"
    shutil.copytree(store.root, folder, symlinks=True)
    try:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, somebody, -1)
            path.chmod(0o500 if path.is_dir() else 0o400)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if os.geteuid() != somebody:
                    os.setuid(somebody)
                warnings.simplefilter("error")
                entry = Store.open(folder, {}).get(KEY)
                status = 0 if entry is not None and dict(entry.contents) == FILES else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700)
        shutil.rmtree(folder)


# --- whole artefacts


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with one compiled graph."""
    store = Store(tmp_path_factory.mktemp("made") / "store")
    compiled(store, {}, 5, [])
    return store


ARTEFACT = ("wrapper.py", "kernels.so", "report.json", "guards.json", MANIFEST)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) in zip(ARTEFACT, SAMPLE, strict=False) else pytest.mark.long)
        for name in ARTEFACT
        for kind in DAMAGE
    ],
)
def test_a_damaged_artefact_gives_eagers_values(made: Store, tmp_path: Path, name: str, kind: str) -> None:
    store = Store(tmp_path / "store")
    (whole,) = made.entries()
    entry = store.put(whole.key, whole.contents, variant=whole.variant)
    DAMAGE[kind](entry.path / name)
    seen: list[Compiled] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(store, {}, 5, seen)
    assert [made.was_hit for made in seen] == [name == MANIFEST and not caught]
    compiled(store, {}, 5, seen)
    assert seen[-1].was_hit and store.count() == 1
