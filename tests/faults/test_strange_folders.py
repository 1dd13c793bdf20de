"""Cache folders that are something else: nothing of others is removed or changed, and compiling goes on."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from minductor.__main__ import main
from minductor.core.errors import CacheMended, CacheUnmarked, MinductorWarning, NoCache, StoreRefused, StoreUnwritable
from minductor.runtime.store import cache_folder
from minductor.runtime.store.cache_folder import BESIDE, FOLDERS, MARKER
from minductor.runtime.store.store import Store, adopt, digest

KEY, OTHER = digest("key"), digest("other")
FILES = {"kernels.so": bytes(range(256)), "report.json": b'{"role": "forward", "kernel_names": ["add_0"]}'}
DAY_S = 24 * 3600.0


def picture(folder: Path) -> dict[str, tuple[int, int, str]]:
    """All that lies below a folder: by path the kind and mode, the time of its last change, and what is in it."""
    found: dict[str, tuple[int, int, str]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        state = os.lstat(path)
        text = os.readlink(path) if path.is_symlink() else path.read_bytes().hex() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_mtime_ns, text)
    return found


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Somebody's own folder, with the names that a store uses."""
    root = tmp_path / "project"
    for name in ("entries/2024/january/report", "failed/run", "locks", "temporary/7-0123456789abcdef", "notes"):
        (root / name).mkdir(parents=True, mode=0o700)
        (root / name / "mine.txt").write_text(name)
    (root / "tally").write_text("-7")
    (root / "locks" / digest("mine")).write_text("mine")
    root.chmod(0o700)
    return root


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The store of a minductor that wrote no marker."""
    store = Store(tmp_path / "old")
    store.put(KEY, FILES)
    (store.root / MARKER).unlink()
    return store.root


# Commands.


@pytest.mark.parametrize("action", ["size", "list", "clear"])
def test_a_command_leaves_a_folder_alone_that_is_no_cache(
    foreign: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = picture(foreign)
    assert main(["cache", "--dir", str(foreign), action]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "this is no cache of minductor" in err and str(foreign) in err and "adopt" in err
    assert picture(foreign) == before


@pytest.mark.parametrize("action", ["size", "list", "clear", "adopt"])
def test_a_mistyped_folder_is_an_error_and_is_not_made(
    tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", "--dir", str(tmp_path / "mistyped" / "deeper"), action]) == 1
    assert "this is no cache of minductor" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_users_cache_before_the_first_compile_is_empty_and_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    for action in ("size", "list", "clear"):
        assert main(["cache", action]) == 0
        assert capsys.readouterr().out.startswith("0 entries")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cache").mkdir()  # an empty folder is as unused as none
    for action in ("size", "list", "clear"):
        assert main(["cache", action]) == 0
        assert capsys.readouterr().out.startswith("0 entries")
    assert list((tmp_path / "cache").iterdir()) == []


def test_clearing_what_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that it had removed what stayed."""
    store = Store(tmp_path / "cache")
    store.put(KEY, FILES)
    may, rename = os.access, os.rename

    def refused(source: str | Path, place: str | Path) -> None:
        if Path(source).is_relative_to(store.root):
            raise PermissionError(f"read-only: {source}")
        rename(source, place)

    monkeypatch.setattr(os, "rename", refused)
    monkeypatch.setattr(os, "access", lambda path, mode: may(path, mode) and not Path(path).is_relative_to(store.root))
    assert main(["cache", "--dir", str(store.root), "clear"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("removed 0 entries, 0 B") and "1 entry of " in err and "cannot be removed" in err
    assert store.count() == 1


@pytest.mark.parametrize("action", ["size", "list"])
def test_looking_changes_nothing(tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not what is damaged, left over, wrong or somebody else's either."""
    root = tmp_path / "cache"
    store = Store(root)
    (store.put(KEY, FILES).path / "report.json").write_text("damaged")
    store.put(OTHER, FILES)
    (root / "tally").write_text("-5")
    (root / "temporary" / "1-0123456789abcdef").mkdir()
    (root / "entries" / "notes.txt").write_text("mine")
    before = picture(root)
    assert main(["cache", "--dir", str(root), action]) == 0
    out = capsys.readouterr().out
    assert "1 entry and 1 damaged" in out if action == "size" else out.endswith("forward: add_0\n")
    assert picture(root) == before


# Stores.


def test_a_store_in_a_folder_of_others_is_a_folder_of_its_own(foreign: Path) -> None:
    before = picture(foreign)
    for _ in range(2):
        store = Store(foreign, limit_bytes=1, grace_s=-10.0)
        assert store.root == foreign / BESIDE
        store.put(KEY, FILES)
        store.sweep()
        store.evict()
        store.clear()
        shutil.rmtree(store.root)
        after = picture(foreign)
        assert {**after, ".": before["."]} == before


def test_foreign_names_in_a_store_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache", limit_bytes=1, grace_s=-10.0)
    mine = [
        *("README", "entries/notes.txt", "entries/ab/notes.txt", "entries/2024/january/report/mine.txt"),
        *("locks/notes.txt", "temporary/notes.txt", "temporary/old/mine.txt", "failed/mine.txt", "tally.txt"),
        f"entries/{KEY[:2]}/{OTHER}/main/mine.txt",  # not where that key belongs
    ]
    for name in mine:
        path = store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (0, 0))
        os.utime(path.parent, (0, 0))
    store.put(KEY, FILES)
    store.evict()
    store.put(OTHER, FILES)
    store.sweep()
    store.clear()
    assert store.entries() == ()
    assert [(store.root / name).read_text() for name in mine] == mine


def test_an_old_store_is_neither_used_nor_changed_until_it_is_adopted(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = picture(old)
    with pytest.warns(CacheUnmarked, match="adopt"):
        store = Store.open(old, {})
    assert store.root == old / BESIDE and store.get(KEY) is None
    store.put(OTHER, FILES)
    after = picture(old)
    assert {name: after[name] for name in before if name != "."} == {n: r for n, r in before.items() if n != "."}
    assert main(["cache", "--dir", str(old), "adopt"]) == 0
    assert "2 entries" in capsys.readouterr().out
    adopted = Store.open(old, {})
    assert adopted.root == old and {entry.key for entry in adopted.entries()} == {KEY, OTHER}


def test_only_what_looks_like_a_store_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    with pytest.raises(NoCache, match="no folder `entries`"):
        adopt(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_entries_of_somebody_else_are_not_adopted(foreign: Path, old: Path) -> None:
    before = picture(foreign)
    with pytest.raises(NoCache, match="no entry of a cache"):
        adopt(foreign)
    assert picture(foreign) == before
    # beside entries of a store they are left alone, and a store may be empty
    (old / "entries" / "notes.txt").write_text("mine")
    assert adopt(old).count() == 1
    (foreign.parent / "emptied" / "entries" / "ab").mkdir(parents=True, mode=0o700)
    (foreign.parent / "emptied").chmod(0o700)
    assert adopt(foreign.parent / "emptied").count() == 0


@pytest.mark.parametrize("made", [Path.mkdir, Path.touch], ids=["folder", "damaged"])
def test_the_marker_counts_by_its_name(tmp_path: Path, made: Callable[[Path], None]) -> None:
    """A marker that is cut off is one; a folder of that name is somebody else's."""
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    made(root / MARKER)
    store = Store(root)
    assert store.root == (root if (root / MARKER).is_file() else root / BESIDE)


def test_a_store_of_another_layout_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.put(KEY, FILES)
    (store.root / MARKER).rename(store.root / "minductor-cache-2")
    before = picture(store.root)
    assert Store(store.root).root == store.root / BESIDE
    after = picture(store.root)
    assert {name: after[name] for name in before if name != "."} == {n: r for n, r in before.items() if n != "."}


def test_a_removed_store_is_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    store.put(KEY, FILES)
    shutil.rmtree(store.root)
    assert store.get(KEY) is None
    with store.lock(KEY):
        store.put(KEY, FILES)
    assert (store.root / MARKER).is_file() and Store(store.root).get(KEY) is not None


# Kinds.


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_something_else_in_the_place_of_a_folder_is_set_aside(tmp_path: Path, name: str, kind: str) -> None:
    store = Store(tmp_path / "cache")
    (store.root / name).rmdir()
    place = store.root / name
    place.write_text("mine") if kind == "file" else os.mkfifo(place)
    with pytest.warns(CacheMended, match=name):
        store = Store(store.root)
    (kept,) = (store.root / cache_folder.QUARANTINE).iterdir()
    assert stat.S_ISFIFO(kept.stat().st_mode) if kind == "fifo" else kept.read_text() == "mine"
    store.put(KEY, FILES)
    assert Store(store.root).get(KEY) is not None


def test_a_cache_folder_that_is_a_file_gives_a_private_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.warns(StoreUnwritable):
        store = Store.open(tmp_path / "file", {})
    store.put(KEY, FILES)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("make", ["others", "link"])
def test_a_folder_that_is_not_trusted_is_not_changed(
    tmp_path: Path, make: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "cache")
    store.put(KEY, FILES)
    root = store.root
    if make == "others":
        root.chmod(0o777)
    else:
        (tmp_path / "link").symlink_to(root)
        root = tmp_path / "link"
    before = picture(store.root)
    for action in ("size", "list", "clear"):
        assert main(["cache", "--dir", str(root), action]) == 1
        assert "not trusted" in capsys.readouterr().err
    with pytest.raises(StoreRefused):
        Store.open(root, {})
    assert picture(store.root) == before


def test_opening_a_sound_store_says_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    for _ in range(2):
        Store.open(tmp_path / "cache", {}).put(KEY, FILES)
    assert [w for w in recwarn if isinstance(w.message, MinductorWarning)] == []
