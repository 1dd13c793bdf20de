"""The cache on disk: artefacts under a key, written once and checked on every read.

Takes keys (digests), variants (plain words) and named bytes. Gives entries: folders whose files hold exactly the bytes
that were put, or None. Refuses a root that other users could have written to. It never reads a pickle.
`cache_folder.py` describes the layout on disk.

An entry is written to a temporary folder and renamed into its place, so a reader sees all of it or nothing. The hashes
of an entry show any damage. A damaged entry counts as absent, with a warning, and is built again.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     store = Store(Path(folder))
...     key = digest("graph text", "options")
...     _ = store.put(key, {"kernels.cpp": b"int k;"})
...     entry = store.get(key)
...     entry.contents["kernels.cpp"], store.get(digest("another")), store.stats.hits, store.stats.misses
(b'int k;', None, 1, 1)
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from minductor.core.errors import CacheUnmarked, CorruptEntry, NoCache, StoreUnwritable
from minductor.core.warn import warn
from minductor.runtime.store import cache_folder
from minductor.runtime.store.cache_folder import BESIDE, FOLDERS, bytes_in, delete, folders, identity, read_file, used
from minductor.runtime.user_paths import user_path

R = TypeVar("R")

SCHEMA = 1
MANIFEST = "manifest.json"
DEFAULT_VARIANT = "main"
TALLY = "tally"
# Each attempt but the last meets what another process does to the same entry at this moment.
_ATTEMPTS = 8
# The start of a process, and its first write, remove so many left-overs at most.
_SWEEP_MOST, _SWEEP_S = 256, 0.1


def digest(*parts: str | bytes) -> str:
    """One hash of several parts. Lengths are hashed too, so that different lists of parts have different hashes.

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
    """A complete artefact: its folder and, by file name, the bytes that were checked when the entry was opened.

    Later changes on disk do not affect these bytes.
    """

    key: str
    variant: str
    path: Path
    contents: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(map(len, self.contents.values()))

    def text(self, name: str) -> str:
        return self.contents[name].decode("utf-8")

    def file(self, name: str) -> Path:
        """The path of the file, for uses that need one (loading a shared object)."""
        if name not in self.contents:
            raise KeyError(name)
        return self.path / name


@dataclass(slots=True)
class Stats:
    """What one Store object has done since it was made."""

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
        lock_timeout_s: float = 300.0,
        reads_only: bool = False,
        below: Store | None = None,
    ) -> None:
        """Uses `root` if it is a store, empty or absent. In any other folder, a folder inside it is made the store.

        `reads_only`: the store must exist (NoCache), and nothing in it is made, changed or removed. `below`: another
        store, which is read for entries that this store lacks.
        """
        self.root = root
        self.limit_bytes = limit_bytes
        self.stats = Stats()
        # An entry used within the grace is not evicted: its reader may be about to load the shared object.
        self._grace_s = grace_s
        self._lock_timeout_s = lock_timeout_s
        self._reads_only = reads_only
        self._below = below
        self._is_swept = reads_only
        self._distrusted: set[Path] = set()  # damaged entries that could not be removed
        self._not_kept: StoreUnwritable | None = None  # the warning of the first write
        if reads_only:
            self.root = _found(root)
        else:
            self._prepare()
            cache_folder.sweep_store(self.root, most=_SWEEP_MOST, seconds=_SWEEP_S)  # a warm process writes nothing

    @classmethod
    def open(cls, path: Path | None, environ: Mapping[str, str]) -> Store:
        """The store at `path`, else MINDUCTOR_CACHE_DIR, else ~/.cache/minductor. A private store if that one is
        read-only.

        The private store reads the entries of the read-only one. A folder that is not trusted is refused and not
        replaced, since the user should know of it.
        """
        root = cls.place(path, environ)
        try:
            found = cache_folder.find(root)
            if found is not None and not os.access(found, os.W_OK | os.X_OK):
                return cls._reading(found, StoreUnwritable(str(found), "no permission to write"))
            store = cls(found or root)
            if found is None and not os.access(store.root, os.W_OK | os.X_OK):
                raise PermissionError(f"no permission to write in {store.root}")
        except OSError as error:
            return cls.instead_of(root, error)
        if store.root != root and (root / "entries").is_dir():
            warn(CacheUnmarked(str(root), str(store.root)))
        return store

    @staticmethod
    def place(path: Path | None, environ: Mapping[str, str]) -> Path:
        """The folder that `open` opens."""
        given = path or environ.get("MINDUCTOR_CACHE_DIR") or default_root(environ)
        return user_path("the cache folder", given).absolute()

    @classmethod
    def instead_of(cls, root: Path, error: OSError) -> Store:
        """A private store in place of one that cannot be written, with a warning. It reads the entries of that one."""
        warning = StoreUnwritable(str(root), str(error))
        warn(warning)
        store = cls._reading(cache_folder.find(root), warning)
        store._not_kept = None
        return store

    @classmethod
    def _reading(cls, found: Path | None, not_kept: StoreUnwritable) -> Store:
        """A private store over one that is only read. The warning comes with the first write."""
        folder = cache_folder.private_folder()
        store = cls(folder, below=None if found is None else cls(found, reads_only=True))
        store._not_kept = not_kept
        # The finalizer also runs in forked children; only the process that made the folder may remove it.
        weakref.finalize(store, _remove_if_owner, folder, os.getpid())
        return store

    def _prepare(self) -> None:
        self.root = cache_folder.claim(self.root)
        for name in FOLDERS:
            folder = self.root / name
            if not folder.is_dir():
                cache_folder.own_folder(self.root, folder)
            cache_folder.check_trust(folder)

    # Reading.

    def get(self, key: str, *, variant: str = DEFAULT_VARIANT) -> Entry | None:
        """The checked entry, or None. Counts a hit or a miss."""
        entry = self._get(key, variant)
        self._count(entry is not None)
        return entry

    def _get(self, key: str, variant: str) -> Entry | None:
        entry = self._open(self._place(key, variant))
        return self._below._get(key, variant) if entry is None and self._below is not None else entry

    def pick(self, key: str, choose: Callable[[Sequence[Entry]], Entry | None]) -> Entry | None:
        """The entry that `choose` takes of all entries of the key, sorted by variant. Counts a hit or a miss."""
        found = self._variants(key)
        entry = choose([found[name] for name in sorted(found)])
        self._count(entry is not None)
        return entry

    def _variants(self, key: str) -> dict[str, Entry]:
        found = {} if self._below is None else self._below._variants(key)
        places = folders(self._place(key, DEFAULT_VARIANT).parent)
        found.update({place.name: entry for place in places if (entry := self._open(place)) is not None})
        return found

    def entries(self) -> tuple[Entry, ...]:
        """All undamaged entries, the least recently used first. Changes nothing."""
        found: list[Entry] = []
        for place in sorted(cache_folder.places(self.root), key=lambda place: (used(place), place)):
            with suppress(OSError, ValueError, RecursionError):
                found.append(Entry(place.parent.name, place.name, place, _checked(place)))
        return tuple(found)

    def count(self) -> int:
        """The number of entries, including damaged ones."""
        return sum(1 for _ in cache_folder.places(self.root))

    def size(self) -> int:
        """The bytes of all entries, damaged ones too, and of what is there for a while only."""
        return self._entry_bytes() + self.temporary_size()[1]

    def temporary_size(self) -> tuple[int, int]:
        """The number and the bytes of temporary files and folders: entries being written, locks, left-overs."""
        found = tuple(cache_folder.temporaries(self.root))
        return len(found), sum(map(bytes_in, found))

    def _entry_bytes(self) -> int:
        return sum(map(bytes_in, cache_folder.places(self.root)))

    def _count(self, hit: object) -> None:
        if hit:
            self.stats.hits += 1
        else:
            self.stats.misses += 1

    def _open(self, place: Path) -> Entry | None:
        if self._distrusted and place in self._distrusted:
            return None
        for _ in range(_ATTEMPTS):
            if (seen := identity(place)) is None:
                return None
            try:
                contents = _checked(place)
            except FileNotFoundError:
                why = "a file is missing"
            except (OSError, ValueError, RecursionError) as error:
                why = str(error)
            else:
                if not self._reads_only:
                    with suppress(OSError):
                        os.utime(place)
                return Entry(place.parent.name, place.name, place, contents)
            # Damage, unless another process removed the entry meanwhile, or removed it and wrote it again.
            if identity(place) == seen:
                return self._discard(place, why)
        return None

    def discard(self, entry: Entry, why: str) -> None:
        """Removes an entry that cannot be used, with a warning: the next `get` does not find it."""
        self._discard(entry.path, why)

    def remove(self, entry: Entry) -> None:
        """Removes an entry; the next `get` does not find it."""
        self._drop(entry.path)

    def _discard(self, place: Path, why: str) -> None:
        warn(CorruptEntry(str(place), why))
        self.stats.damaged += 1
        self._drop(place)

    def _drop(self, place: Path) -> None:
        if self._below is not None and not place.is_relative_to(self.root):
            self._below._distrusted.add(place)
        elif self._reads_only:
            self._distrusted.add(place)
        else:
            self._remove(place)

    # Writing.

    def put(self, key: str, files: Mapping[str, bytes], *, variant: str = DEFAULT_VARIANT) -> Entry:
        """Writes an entry. An undamaged entry that exists stays: equal keys mean equal artefacts."""
        place = self._place(key, variant)
        for name in files:
            if not cache_folder.is_word(name) or name == MANIFEST:
                raise ValueError(f"{name!r} cannot be the name of a file in the store")

        def write(folder: Path) -> Entry | None:
            for name, data in files.items():
                _write(folder / name, data)
            _write(folder / MANIFEST, manifest(key, variant, files))
            _sync_folder(folder)
            return self._seal(folder, place)

        if (present := self.in_scratch(write)) is not None:
            return present
        _sync_folder(place.parent)
        self.stats.puts += 1
        self._tally(sum(map(len, files.values())))
        return Entry(key, variant, place, dict(files))

    def _seal(self, folder: Path, place: Path) -> Entry | None:
        """Moves a finished folder into its place, or returns the undamaged entry that is there."""
        for _ in range(_ATTEMPTS):
            for above in (place.parent.parent, place.parent):
                cache_folder.own_folder(self.root, above)
            if _rename(folder, place):
                return None
            if (present := self._open(place)) is not None:
                return present
        raise OSError(f"{place} is damaged and cannot be removed")

    def in_scratch(self, work: Callable[[Path], R]) -> R:
        """The result of `work` in a new folder. `work` runs again in another folder if a file that it wrote vanished.

        Another process may empty the store at any moment, or the user may remove its folder.
        """
        try:
            with self.scratch() as folder:
                return work(folder)
        except (FileNotFoundError, NotADirectoryError):
            self._prepare()
        with self.scratch() as folder:
            return work(folder)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A new folder inside the store, removed afterwards. A later sweep removes the folder if this process dies."""
        self._before_writing()
        folder = self.root / "temporary" / cache_folder.new_name()
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lock(self, key: str, *, timeout_s: float | None = None) -> Iterator[None]:
        """Lets one thread of one process work on a key at a time. Call `get` again once inside.

        The lock saves work and is not needed for correctness. After `timeout_s` seconds of waiting, the block runs
        without it.
        """
        from minductor.runtime.store import key_lock

        self._before_writing()
        path = self.root / "locks" / self._place(key, DEFAULT_VARIANT).parent.name
        for each in (path, key_lock.note_of(path)):
            with suppress(OSError):
                if not stat.S_ISREG(os.lstat(each).st_mode):
                    cache_folder.set_aside(self.root, each, "it is no lock file")
        with key_lock.hold(path, self._lock_timeout_s if timeout_s is None else timeout_s):
            yield

    def _before_writing(self) -> None:
        """What the first write of a process does: it warns if nothing is kept, or removes old sources of failed
        compiles.
        """
        warning, self._not_kept = self._not_kept, None
        if warning is not None:
            warn(warning)
        if not cache_folder.is_store(self.root):  # somebody removed the whole folder
            self._prepare()
        if not self._is_swept:
            self._is_swept = True
            cache_folder.sweep(self.root, most=_SWEEP_MOST, seconds=_SWEEP_S)

    # Removing.

    def clear(self) -> None:
        """Removes every entry, and left-overs of ended processes. Files that running processes write or hold stay."""
        for place in cache_folder.places(self.root):
            self._remove(place)
        for shelf in folders(self.root / "entries"):
            with suppress(OSError):  # the folder contains files of other programs
                shelf.rmdir()
        self.sweep()
        delete(self.root / TALLY)

    def evict(self) -> int:
        """Removes the least recently used entries until the rest fits in nine tenths of the limit. Returns their
        number.
        """
        self.sweep()
        aged = sorted((used(place), place) for place in cache_folder.places(self.root))
        sizes = {place: bytes_in(place) for _, place in aged}
        total, gone = sum(sizes.values()), 0
        recent = time.time() - self._grace_s
        for last, place in aged:
            if total <= self.limit_bytes * 9 // 10 or last > recent:
                break
            self._remove(place)
            total -= sizes[place]
            gone += 1
        self.stats.evicted += gone
        self._write_tally(total)
        return gone

    def sweep(self) -> None:
        """Removes all left-overs of ended processes: half-written folders, locks, and what was set aside."""
        cache_folder.sweep(self.root)

    def _remove(self, place: Path) -> None:
        # Renamed away first: a reader meets all of the entry or nothing of it.
        grave = self.root / "temporary" / cache_folder.new_name()
        with suppress(OSError):
            os.rename(place, grave)
        delete(grave)
        with suppress(OSError):  # another variant is there, or another process removed it
            place.parent.rmdir()

    def _tally(self, added: int) -> None:
        """Adds to the recorded size of the store, and evicts if the record exceeds the limit.

        A scan at every `put` would cost more than many compiles. Two writers at once may lose an addition, so every
        eviction counts anew, as does a record that cannot be right.
        """
        try:
            noted = int(read_file(self.root / TALLY))
            total = noted + added if noted >= 0 else self._entry_bytes()
        except FileNotFoundError:
            total = self._entry_bytes()
        except (OSError, ValueError):
            if (self.root / TALLY).is_dir():  # what no write replaces
                with suppress(OSError):
                    cache_folder.set_aside(self.root, self.root / TALLY, "it is not a file")
            total = self._entry_bytes()
        if total > self.limit_bytes:
            self.evict()
        else:
            self._write_tally(total)

    def _write_tally(self, total: int) -> None:
        with suppress(OSError), self.scratch() as folder:  # it is only a hint, and the disk may be full
            (folder / TALLY).write_text(str(total))
            os.replace(folder / TALLY, self.root / TALLY)

    def _place(self, key: str, variant: str) -> Path:
        if not cache_folder.is_key(key):
            raise ValueError(f"{key!r} cannot be a key of the store: a key is a digest")
        if not cache_folder.is_word(variant):
            raise ValueError(f"{variant!r} cannot be a variant of the store")
        return self.root / "entries" / key[:2] / key / variant


def adopt(root: Path) -> Store:
    """Marks a cache folder of an older minductor as a store; NoCache if it does not look like one.

    Entries that were compiled beside it in the meantime move into it.
    """
    hint = "name the folder that an older minductor used"
    if not (root / "entries").is_dir():
        raise NoCache(str(root), "it has no folder `entries`", hint=hint)
    cache_folder.check_trust(root)
    if not cache_folder.is_store(root) and cache_folder.has_other_entries(root):
        raise NoCache(str(root), "its folder `entries` contains no entry of a cache", hint=hint)
    cache_folder.mark(root)
    store = Store(root)
    if cache_folder.is_store(root / BESIDE):
        beside = Store(root / BESIDE)
        for entry in beside.entries():
            store.put(entry.key, entry.contents, variant=entry.variant)
        beside.clear()
    return store


def _found(root: Path) -> Path:
    """The folder of the store that `root` names; NoCache if there is none."""
    if (found := cache_folder.find(root)) is not None:
        cache_folder.check_trust(found)
        return found
    hint = "name another folder; the first compile makes the one that MINDUCTOR_CACHE_DIR names"
    if not root.is_dir():
        why = "it is not a folder" if os.path.lexists(root) else "there is no such folder"
        raise NoCache(str(root), why, hint=hint)
    if (root / "entries").is_dir():
        hint = f"if an older minductor made it, `minductor cache --dir {root} adopt` takes it over"
    raise NoCache(str(root), f"it has no file {cache_folder.MARKER}", hint=hint)


def default_root(environ: Mapping[str, str]) -> Path:
    """The folder of the cache if the user names none."""
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "minductor"


def manifest(key: str, variant: str, files: Mapping[str, bytes]) -> bytes:
    """The description of an entry: a hash of each file, and one hash of all of that."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    body = {"schema": SCHEMA, "key": key, "variant": variant, "files": hashes}
    return json.dumps({**body, "sha256": digest(json.dumps(body, sort_keys=True))}, indent=1).encode()


def _checked(place: Path) -> dict[str, bytes]:
    """The files of an entry. ValueError says what is wrong with the entry."""
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        raise ValueError("it is not a folder")
    claim = json.loads(read_file(place / MANIFEST))
    if not isinstance(claim, dict):
        raise ValueError("the manifest is not an object")
    seal = claim.pop("sha256", None)
    if seal != digest(json.dumps(claim, sort_keys=True)):
        raise ValueError("the manifest does not match its own hash")
    if (claim.get("schema"), claim.get("key"), claim.get("variant")) != (SCHEMA, place.parent.name, place.name):
        raise ValueError("the manifest belongs to another schema, key or variant")
    contents = {name: read_file(place / name) for name in claim["files"]}
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
    except FileNotFoundError:  # an eviction removed the emptied key
        if not folder.exists():
            raise
        return False
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    return True


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
