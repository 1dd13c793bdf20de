"""The cache on disk: artefacts under a key, written once, checked on every read.

Takes keys and variants (plain words, mostly digests) and named bytes. Gives entries: folders whose files have the
bytes that were put there, or nothing. Refuses a root that somebody else could have written to, and any form of pickle.

    root/entries/<2 of key>/<key>/<variant>/{manifest.json, ...}    complete, never changed, only removed
    root/locks/<key>                                                one flight per key; never needed for correctness
    root/temporary/<pid>-<random>/                                  being written, or left by a process that died
    root/tally                                                      about how many bytes lie here; a hint, see `put`

An entry is written beside its place and renamed into it, so a reader sees all of it or nothing. What a crash, a full
disk or a cosmic ray did to it shows in its hashes: then it counts as absent, with a warning, and is built again.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     store = Store(Path(folder))
...     key = digest("graph text", "options")
...     _ = store.put(key, {"kernels.cpp": b"int k;"})
...     entry = store.get(key)
...     entry.read("kernels.cpp"), store.get(digest("another")), store.stats.hits, store.stats.misses
(b'int k;', None, 1, 1)
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from minductor.core.errors import CorruptEntry, StoreRefused, StoreUnwritable

SCHEMA = 1
MANIFEST = "manifest.json"
DEFAULT_VARIANT = "main"
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_ABANDONED_S = 24 * 3600.0
# Each attempt but the last meets what another process does to the same entry at this moment.
_ATTEMPTS = 8


def digest(*parts: str | bytes) -> str:
    """One hash of several parts; lengths are hashed too, so that no two lists of parts run together.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete artefact: its folder and, by file name, the bytes that were checked when it was opened."""

    key: str
    variant: str
    path: Path
    contents: Mapping[str, bytes]

    @property
    def size(self) -> int:
        return sum(len(data) for data in self.contents.values())

    def read(self, name: str) -> bytes:
        """The bytes as they were checked: no later change on disk, and no eviction, reaches them."""
        return self.contents[name]

    def text(self, name: str) -> str:
        return self.contents[name].decode("utf-8")

    def file(self, name: str) -> Path:
        """Where the file lies, for what needs a path (loading a shared object)."""
        if name not in self.contents:
            raise KeyError(name)
        return self.path / name


@dataclass(slots=True)
class Stats:
    """What one Store object did since it was made. Of no meaning across processes."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    damaged: int = 0
    evicted: int = 0


class Store:
    """A cache below one folder. Any number of processes and threads may use the same folder at once."""

    def __init__(
        self,
        root: Path,
        *,
        limit_bytes: int = 2 * 1024**3,
        grace_s: float = 60.0,
        lock_timeout_s: float = 600.0,
    ) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.stats = Stats()
        # An entry used within the grace is not evicted: its reader may be about to load the shared object.
        self._grace_s = grace_s
        self._lock_timeout_s = lock_timeout_s
        self._prepare()

    @classmethod
    def open(cls, path: Path | None, environ: Mapping[str, str]) -> Store:
        """The store at `path`, else MINDUCTOR_CACHE_DIR, else ~/.cache/minductor; a private one if that is read-only.

        A folder that is not trusted is refused and not replaced: the user should know.
        """
        root = path or Path(environ.get("MINDUCTOR_CACHE_DIR") or default_root(environ))
        try:
            store = cls(root.expanduser().absolute())
            if not os.access(store.root, os.W_OK | os.X_OK):
                raise PermissionError(f"no permission to write in {store.root}")
        except OSError as error:
            return cls.instead_of(root, error)
        return store

    @classmethod
    def instead_of(cls, root: Path, error: OSError) -> Store:
        """A private store in the place of one that cannot be written, with a warning."""
        warnings.warn(StoreUnwritable(str(root), str(error)), stacklevel=3)
        folder = Path(tempfile.mkdtemp(prefix="minductor-"))
        store = cls(folder)
        # The finalizer also runs in forked children; only the process that made the folder may remove it.
        weakref.finalize(store, _remove_if_owner, folder, os.getpid())
        return store

    def _prepare(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_trust(self.root)
        for name in ("entries", "locks", "temporary"):
            folder = self.root / name
            folder.mkdir(mode=0o700, exist_ok=True)
            check_trust(folder)

    # Reading.

    def get(self, key: str, *, variant: str = DEFAULT_VARIANT) -> Entry | None:
        """The entry, checked, or None. Counts a hit or a miss."""
        entry = self._open(self._place(key, variant))
        self._count(entry is not None)
        return entry

    def variants(self, key: str) -> tuple[Entry, ...]:
        """All entries of the key, by name of the variant. Counts one hit if there is any, else one miss."""
        places = sorted(_folders(self._place(key, DEFAULT_VARIANT).parent))
        found = tuple(entry for place in places if (entry := self._open(place)) is not None)
        self._count(bool(found))
        return found

    def entries(self) -> tuple[Entry, ...]:
        """Everything that is here and whole, the longest unused first."""
        aged = sorted((_used(place), place) for place in self._places())
        return tuple(entry for _, place in aged if (entry := self._open(place, touch=False)) is not None)

    def size(self) -> int:
        """The bytes of all files of all entries, damaged ones too."""
        return sum(_bytes_in(place) for place in self._places())

    def _count(self, hit: object) -> None:
        if hit:
            self.stats.hits += 1
        else:
            self.stats.misses += 1

    def _open(self, place: Path, *, touch: bool = True) -> Entry | None:
        for _ in range(_ATTEMPTS):
            if (seen := _identity(place)) is None:
                return None
            try:
                contents = _checked(place)
            except FileNotFoundError:
                why = "a file is missing"
            except (OSError, ValueError, RecursionError) as error:
                why = str(error)
            else:
                if touch:
                    with suppress(OSError):  # a folder that is read-only for us may still be read
                        os.utime(place)
                return Entry(place.parent.name, place.name, place, contents)
            # Damage, unless another process removed the entry meanwhile, or removed it and wrote it again.
            if _identity(place) == seen:
                return self._discard(place, why)
        return None

    def _discard(self, place: Path, why: str) -> None:
        warnings.warn(CorruptEntry(str(place), why), stacklevel=4)
        self.stats.damaged += 1
        self._remove(place)

    # Writing.

    def put(self, key: str, files: Mapping[str, bytes], *, variant: str = DEFAULT_VARIANT) -> Entry:
        """Writes an entry. One that is already there and whole stays: equal keys mean equal artefacts."""
        place = self._place(key, variant)
        for name in files:
            if not _WORD.fullmatch(name) or name == MANIFEST:
                raise ValueError(f"{name!r} cannot be the name of a file in the store")
        with self.scratch() as folder:
            for name, data in files.items():
                _write(folder / name, data)
            _write(folder / MANIFEST, manifest(key, variant, files))
            _sync_folder(folder)
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for _ in range(_ATTEMPTS):
                if _rename(folder, place):
                    break
                if (present := self._open(place)) is not None:
                    return present
            else:
                raise OSError(f"{place} is damaged and cannot be removed")
        _sync_folder(place.parent)
        self.stats.puts += 1
        self._tally(sum(map(len, files.values())))
        return Entry(key, variant, place, dict(files))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A fresh folder inside the store, gone afterwards; a later sweep removes it if this process dies."""
        folder = self.root / "temporary" / f"{os.getpid()}-{secrets.token_hex(8)}"
        folder.mkdir(mode=0o700, parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Single flight: one thread of one process at a time. Look again with `get` once inside.

        The lock saves work and is not needed for correctness, so whoever waits too long goes on without it. It is a
        new one each time: two threads of a process exclude each other like two processes do, and a forked child neither
        has its parent's nor gives it up (filelock sees to that).
        """
        from filelock import FileLock, Timeout

        name = self._place(key, DEFAULT_VARIANT).parent.name
        flight = FileLock(self.root / "locks" / name, mode=0o600, poll_interval=0.01)
        with ExitStack() as held:
            with suppress(Timeout):
                held.enter_context(flight.acquire(timeout=self._lock_timeout_s))
            yield

    # Removing.

    def clear(self) -> None:
        """Removes every entry, lock file and left-over; the folder itself stays."""
        for place in self._places():
            self._remove(place)
        for name in ("entries", "locks", "temporary", "failed"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        (self.root / "tally").unlink(missing_ok=True)
        self._prepare()

    def evict(self) -> int:
        """Removes the longest unused entries until the rest fit in nine tenths of the limit; how many went."""
        self.sweep()
        aged = sorted((_used(place), place) for place in self._places())
        sizes = {place: _bytes_in(place) for _, place in aged}
        total, gone = sum(sizes.values()), 0
        recent = time.time() - self._grace_s
        for used, place in aged:
            if total <= self.limit_bytes * 9 // 10 or used > recent:
                break
            self._remove(place)
            total -= sizes[place]
            gone += 1
        self.stats.evicted += gone
        self._write_tally(total)
        return gone

    def sweep(self) -> None:
        """Removes what dead processes left behind: half-written folders, and locks that nobody used for a day."""
        old = time.time() - _ABANDONED_S
        for left in _listed(self.root / "temporary"):
            pid = left.name.partition("-")[0]
            # The age covers a process number that was given out again, or one of another machine.
            if _used(left) < old or not (pid.isdecimal() and _is_alive(int(pid))):
                _delete(left)
        for lock in _listed(self.root / "locks"):
            if _used(lock) < old:
                lock.unlink(missing_ok=True)

    def _remove(self, place: Path) -> None:
        # Renamed away first: a reader meets all of the entry or nothing of it.
        grave = self.root / "temporary" / f"{os.getpid()}-{secrets.token_hex(8)}"
        with suppress(OSError):
            os.rename(place, grave)
        _delete(grave)
        with suppress(OSError):  # another variant lives there, or somebody was quicker
            place.parent.rmdir()

    def _tally(self, added: int) -> None:
        """Notes the bytes and evicts when the note says so: a scan at every put would cost more than many compiles.

        Two writers at once may lose an addition; every eviction counts anew, and a note that cannot be read is a
        reason to count.
        """
        try:
            total = int((self.root / "tally").read_text()) + added
        except FileNotFoundError:
            total = self.size()
        except (OSError, ValueError):
            total = self.limit_bytes + 1
        if total > self.limit_bytes:
            self.evict()
        else:
            self._write_tally(total)

    def _write_tally(self, total: int) -> None:
        with suppress(OSError), self.scratch() as folder:  # it is only a hint, and the disk may be full
            (folder / "tally").write_text(str(total))
            os.replace(folder / "tally", self.root / "tally")

    # Places.

    def _place(self, key: str, variant: str) -> Path:
        for word in (key, variant):
            if not _WORD.fullmatch(word):
                raise ValueError(f"{word!r} cannot be a key or variant of the store")
        return self.root / "entries" / key[:2] / key / variant

    def _places(self) -> Iterator[Path]:
        for shelf in _folders(self.root / "entries"):
            for key in _folders(shelf):
                yield from _folders(key)


def default_root(environ: Mapping[str, str]) -> Path:
    """Where the cache lies if nobody says otherwise."""
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "minductor"


def manifest(key: str, variant: str, files: Mapping[str, bytes]) -> bytes:
    """What an entry says about itself: a hash of each file, and one over all that."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    body = {"schema": SCHEMA, "key": key, "variant": variant, "files": hashes}
    return json.dumps({**body, "sha256": digest(json.dumps(body, sort_keys=True))}, indent=1).encode()


def check_trust(folder: Path) -> None:
    """Raises StoreRefused unless the folder is a real one, ours, and writable by us alone."""
    state = os.lstat(folder)
    if stat.S_ISLNK(state.st_mode):
        raise StoreRefused(str(folder), "it is a symbolic link")
    if not stat.S_ISDIR(state.st_mode):
        raise StoreRefused(str(folder), "it is not a folder")
    if not hasattr(os, "geteuid"):  # Windows keeps rights elsewhere; profile folders are private there
        return
    if state.st_uid != os.geteuid():
        raise StoreRefused(str(folder), f"it belongs to user {state.st_uid}, we are {os.geteuid()}")
    if state.st_mode & 0o022:
        raise StoreRefused(str(folder), f"others may write in it (mode {stat.S_IMODE(state.st_mode):04o})")


def _checked(place: Path) -> dict[str, bytes]:
    """The files of an entry; ValueError says what is wrong with it."""
    claim = json.loads((place / MANIFEST).read_bytes())
    if not isinstance(claim, dict):
        raise ValueError("the manifest is not an object")
    seal = claim.pop("sha256", None)
    if seal != digest(json.dumps(claim, sort_keys=True)):
        raise ValueError("the manifest does not match its own hash")
    if (claim.get("schema"), claim.get("key"), claim.get("variant")) != (SCHEMA, place.parent.name, place.name):
        raise ValueError("the manifest belongs to another schema, key or variant")
    contents = {name: (place / name).read_bytes() for name in claim["files"]}
    for name, data in contents.items():
        if hashlib.sha256(data).hexdigest() != claim["files"][name]:
            raise ValueError(f"{name} does not match its hash")
    return contents


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # not every system opens folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _rename(folder: Path, place: Path) -> bool:
    """Moves a folder into its place; False if that place is taken."""
    try:
        os.rename(folder, place)
    except FileNotFoundError:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # an eviction removed the emptied key
        return _rename(folder, place) if folder.exists() else False
    except OSError:
        if not place.exists():
            raise
        return False
    return True


def _listed(folder: Path) -> tuple[Path, ...]:
    try:
        return tuple(Path(item.path) for item in os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _folders(folder: Path) -> tuple[Path, ...]:
    return tuple(item for item in _listed(folder) if item.is_dir() and not item.is_symlink())


def _delete(path: Path) -> None:
    """Removes a folder or, where damage put one, a file."""
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _bytes_in(place: Path) -> int:
    total = 0
    for item in _listed(place):
        with suppress(OSError):
            total += item.stat().st_size
    return total


def _identity(place: Path) -> tuple[int, int] | None:
    """What tells a folder from another one that takes its name later."""
    try:
        state = place.stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


def _used(place: Path) -> float:
    try:
        return place.stat().st_mtime
    except OSError:
        return 0.0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
