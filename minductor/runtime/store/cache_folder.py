"""The folder of a store on disk: its place, the names that belong to the store, and left-overs.

Takes paths. Gives the folder that a store uses, and removes left-overs of ended processes. Refuses a folder that other
users could have written to (StoreRefused).

A folder is a store if it contains the file MARKER, whose name ends in the number of the layout below. Nothing is
removed from a folder without the marker. In a store, nothing is removed whose name the store would not give.

    root/minductor-cache-1                                          MARKER
    root/entries/<2 of key>/<key>/<variant>/{manifest.json, ...}    complete, never changed, only removed
    root/locks/<key>, <key>.holder                                  who compiles that key at this moment
    root/temporary/<process>-<random>/                              being written, or left by a process that died
    root/quarantine/<process>-<random>                              what was in the way of the above, for a day
    root/tally                                                      about how many bytes the entries have; a hint

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     find(Path(folder)), claim(Path(folder)) == find(Path(folder)) == Path(folder)
(None, True)
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from minductor.core.errors import CacheMended, StoreRefused
from minductor.core.warn import warn

MARKER = "minductor-cache-1"
# The name of the store inside a folder that contains other files.
BESIDE = "minductor-cache"
FOLDERS = ("entries", "locks", "temporary")
QUARANTINE = "quarantine"
_PRIVATE = "minductor-store-"  # the prefix of a temporary store that replaces one that cannot be written
_FAILED = "minductor-failed-"  # the prefix of a temporary folder with sources that failed to compile
_HEX = frozenset("0123456789abcdef")
_DAY_S = 24 * 3600.0
_LARGEST = 2 * 1024**3  # no file of a store has more bytes
_TEXT = "This folder is a cache of minductor. `minductor cache --dir FOLDER clear` empties it.\n"


# The form of names. Compiling regular expressions for them would take a millisecond of every first call.


def is_key(name: str) -> bool:
    """Whether a name has the form of a key: a SHA-256 in hexadecimal digits."""
    return _is_hex(name, 64)


def is_word(name: str) -> bool:
    """Whether a name can be a variant or a file of an entry: up to 200 letters, digits and signs of "_.+-".

    >>> is_word("kernels.py"), is_word(".hidden"), is_word("a/b"), is_word("")
    (True, False, False, False)
    """
    plain = name.replace("_", "a")
    is_plain = plain[:1].isalnum() and all(letter.isalnum() or letter in ".+-" for letter in plain)
    return is_plain and name.isascii() and len(name) <= 200


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and _HEX.issuperset(text)


def _is_lock(name: str) -> bool:
    return is_key(name.removesuffix(".holder"))


def _process_of(name: str) -> tuple[int, str] | None:
    """The process that gave a name by `new_name`, and its `_place`; None for a name of another form.

    >>> _process_of("17-0123456789ab-0123456789abcdef"), _process_of("17-0123456789abcdef"), _process_of("a-b")
    ((17, '0123456789ab'), (17, ''), None)
    """
    process, *places, drawn = name.split("-") if "-" in name else ("", "")
    is_number = process.isascii() and process.isdigit() and len(process) <= 10
    is_placed = len(places) <= 1 and all(_is_hex(place, 12) for place in places)
    return (int(process), "".join(places)) if is_number and is_placed and _is_hex(drawn, 16) else None


def _is_temporary(name: str) -> bool:
    return _process_of(name) is not None


def _is_private(name: str) -> bool:
    return name.startswith(_PRIVATE) and _is_temporary(name.removeprefix(_PRIVATE))


def _is_failed(name: str) -> bool:
    """Whether `tempfile.mkdtemp` made the name: eight letters, digits or underscores stand behind the prefix."""
    drawn = name.removeprefix(_FAILED).replace("_", "a")
    return (
        name.startswith(_FAILED) and len(drawn) == 8 and drawn.isascii() and drawn.isalnum() and drawn == drawn.lower()
    )


# Which folder it is.


def is_store(root: Path) -> bool:
    """Whether the folder carries the marker."""
    return _is_kind(root / MARKER, stat.S_ISREG)


def find(root: Path) -> Path | None:
    """The folder of the store that `root` names, or None. Changes nothing."""
    while not is_store(root):
        if not _is_kind(root / BESIDE, stat.S_ISDIR):
            return None
        root /= BESIDE
    return root


def claim(root: Path) -> Path:
    """The folder of the store for `root`: `root` itself if it is a store, empty or absent; else BESIDE in it."""
    if not is_store(root):
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_trust(root)
        if next(os.scandir(root), None) is None:
            mark(root)
        if not is_store(root):  # asked again, because another process may have marked it meanwhile
            return claim(root / BESIDE)
    check_trust(root)
    return root


def mark(root: Path) -> None:
    """Makes a store of the folder."""
    with suppress(FileExistsError):
        handle = os.open(root / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(_TEXT)


def own_folder(root: Path, folder: Path) -> None:
    """Makes a folder of the store. A file or link in its place is moved to the quarantine."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not _is_kind(folder, stat.S_ISDIR):
            set_aside(root, folder, "it is not a folder")
            folder.mkdir(mode=0o700, exist_ok=True)


def check_trust(folder: Path) -> None:
    """Raises StoreRefused unless the folder is no link, belongs to this user, and only this user can write to it."""
    state = os.lstat(folder)
    if stat.S_ISLNK(state.st_mode):
        raise StoreRefused(str(folder), "it is a symbolic link")
    if not stat.S_ISDIR(state.st_mode):
        raise StoreRefused(str(folder), "it is not a folder")
    if not hasattr(os, "geteuid"):  # Windows has no such owner; profile folders are private there
        return
    if state.st_uid != os.geteuid():
        raise StoreRefused(str(folder), f"it belongs to user {state.st_uid}, we are {os.geteuid()}")
    if state.st_mode & 0o022:
        raise StoreRefused(str(folder), f"others may write in it (mode {stat.S_IMODE(state.st_mode):04o})")


# What in it is the store's own.


def places(root: Path) -> Iterator[Path]:
    """The folder of each entry. Names that the store does not give are skipped."""
    for shelf in folders(root / "entries"):
        for key in folders(shelf):
            if is_key(key.name) and key.name.startswith(shelf.name) and len(shelf.name) == 2:
                yield from tuple(_named(key, is_word))


def has_other_entries(root: Path) -> bool:
    """Whether the folder `entries` belongs to another program: it contains something, but no entry of a store."""
    shelves = all(_is_hex(item.name, 2) for item in _scan(root / "entries"))
    return not shelves and next(places(root), None) is None


def temporaries(root: Path) -> Iterator[Path]:
    """Everything temporary: folders being written, left-overs, locks, and the quarantine."""
    for name, is_ours in (("temporary", _is_temporary), (QUARANTINE, _is_temporary), ("locks", _is_lock)):
        yield from _named(root / name, is_ours)


def new_name() -> str:
    """A unique name that tells other processes whether the process that gave it still runs."""
    return f"{os.getpid()}-{_place()}-{secrets.token_hex(8)}"


@functools.cache
def _place() -> str:
    """Identifies the numbering of processes: the machine since its start, and the namespace of process numbers.

    Containers may share a folder while their process numbers differ.
    """
    words = [os.uname().nodename if hasattr(os, "uname") else "", ""]
    with suppress(OSError):
        words[1] = Path("/proc/sys/kernel/random/boot_id").read_text()
    with suppress(OSError):
        words.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def has_ended(name: str) -> bool | None:
    """Whether the process that made a name by `new_name` has ended; None if that cannot be known."""
    made = _process_of(name)
    if made is None or made[1] != _place():
        return None
    try:
        os.kill(made[0], 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass
    return False


# Removing.


def set_aside(root: Path, path: Path, why: str) -> None:
    """Moves something that is in the way of the store to the quarantine, with a warning."""
    folder = root / QUARANTINE
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        os.rename(path, folder / new_name())
    except FileNotFoundError:  # another process was quicker
        return
    warn(CacheMended(str(path), why, str(folder)))


def sweep(root: Path, *, most: int | None = None, seconds: float = float("inf")) -> None:
    """Removes left-overs of ended processes, and sources of failed compiles that are more than a week old.

    Looks at no more than `most` names of each kind and takes little longer than `seconds`; the next sweep does the
    rest.
    """
    end = time.monotonic() + seconds
    sweep_store(root, most=most, seconds=seconds)
    for is_ours, age in ((_is_private, 30 * _DAY_S), (_is_failed, 7 * _DAY_S)):
        for left in itertools.islice(_named(Path(tempfile.gettempdir()), is_ours), most):
            if time.monotonic() > end:
                return
            if _is_left(left, age) and _is_our_folder(left):
                delete(left)


def sweep_store(root: Path, *, most: int | None, seconds: float) -> None:
    """Removes left-overs of ended processes in a store, within the same limits."""
    end = time.monotonic() + seconds
    for left in itertools.islice(temporaries(root), most):
        if time.monotonic() > end:
            return
        if left.parent.name == "locks":
            _remove_free_lock(left)
        elif _is_left(left, _DAY_S):
            delete(left)


def private_folder() -> Path:
    """A new folder for a store that replaces one that cannot be written."""
    folder = Path(tempfile.gettempdir()) / f"{_PRIVATE}{new_name()}"
    folder.mkdir(mode=0o700)
    return folder


def _is_left(path: Path, age_s: float) -> bool:
    # The age covers a process number that was given out again, or one of another machine.
    state, old = _state(path), time.time() - age_s
    if state is None or path.parent.name == QUARANTINE:  # what was set aside stays a day, whoever did it
        return state is not None and state.st_ctime < old
    return has_ended(path.name.removeprefix(_PRIVATE)) is True or state.st_mtime < old


def _is_our_folder(path: Path) -> bool:
    state = _state(path)
    is_ours = state is not None and (not hasattr(os, "geteuid") or state.st_uid == os.geteuid())
    return is_ours and _is_kind(path, stat.S_ISDIR)


def _remove_free_lock(path: Path) -> None:
    """Removes a lock file and the note beside it, unless a process holds the lock."""
    from filelock import FileLock, Timeout

    lock = path.with_name(path.name.removesuffix(".holder"))
    with suppress(Timeout, OSError), FileLock(lock, mode=0o600, blocking=False):
        lock.with_name(f"{lock.name}.holder").unlink(missing_ok=True)
        lock.unlink(missing_ok=True)


def delete(path: Path) -> None:
    """Removes a folder, or a file if damage put one in the folder's place."""
    if _is_kind(path, stat.S_ISDIR):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


# Reading.


def read_file(path: Path) -> bytes:
    """The bytes of a plain file. Raises OSError or ValueError for links, folders, pipes and devices; never blocks."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            raise ValueError(f"{path.name} is no plain file, or too large")
        with open(handle, "rb", buffering=0, closefd=False) as file:
            return file.readall()
    finally:
        os.close(handle)


def _scan(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The content of a folder; empty if it is no folder, or cannot be read."""
    with suppress(OSError), os.scandir(folder) as found:
        yield from found


def _named(folder: Path, is_ours: Callable[[str], bool]) -> Iterator[Path]:
    return (Path(item.path) for item in _scan(folder) if is_ours(item.name))


def folders(folder: Path) -> tuple[Path, ...]:
    """The folders in a folder, sorted by name; links do not count."""
    return tuple(sorted(Path(item.path) for item in _scan(folder) if item.is_dir(follow_symlinks=False)))


def bytes_in(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    state = _state(path)
    if state is None:
        return 0
    if not stat.S_ISDIR(state.st_mode):
        return state.st_size
    return sum(bytes_in(Path(item.path)) for item in _scan(path))


def used(path: Path) -> float:
    """When a folder was last written or read, in seconds since 1970; 0 if it does not exist."""
    state = _state(path)
    return 0.0 if state is None else state.st_mtime


def identity(place: Path) -> tuple[int, int] | None:
    """A value that distinguishes a folder from another one that takes its name later."""
    state = _state(place)
    return None if state is None else (state.st_ino, state.st_ctime_ns)


def _is_kind(path: Path, kind: Callable[[int], bool]) -> bool:
    state = _state(path)
    return state is not None and kind(state.st_mode)


def _state(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
