"""The stores of a Compiler: one for each cache folder, opened when it is first used.

Takes folders. Gives stores, runs functions on a store, and tells which entries serve a graph. Refuses nothing: if a
store can no longer be written, a private store in a temporary folder replaces it, with a warning.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from math import log2
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from minductor.core.expressions.hints import Hints
    from minductor.runtime.store.store import Entry, Store

R = TypeVar("R")

# The errors of a disk that is full, or that this process may not write.
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM))
HINTS = "hints.json"  # the hints of an entry, in a file of an entry that has some
NEAR = 4.0  # an entry serves if each of its hints is at most so many times larger or smaller
MOST_ENTRIES = 8  # of one graph; if there are so many, the nearest one serves however far it is


class Stores:
    """The stores by folder, as the option `cache_dir` names it. A store that is `given` serves all folders."""

    def __init__(self, environ: Mapping[str, str], given: Store | None) -> None:
        self._environ = environ
        self._given = given
        self._opened: dict[str, Store] = {}
        self._lock = Lock()

    def of(self, folder: str) -> Store:
        """The store in `folder`; "" means the user's cache folder."""
        if self._given is not None:
            return self._given
        from minductor.runtime.store.store import Store

        with self._lock:
            if folder not in self._opened:
                self._opened[folder] = Store.open(Path(folder) if folder else None, self._environ)
            return self._opened[folder]

    def use(self, folder: str, work: Callable[[Store], R]) -> R:
        """The result of `work` on the store in `folder`, or on a private store if the disk cannot be written."""
        store = self.of(folder)
        try:
            return work(store)
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            made = store.instead_of(store.root, error)
        with self._lock:
            if self._given is store:
                self._given = made
            else:
                self._opened[folder] = made
        return work(made)

    def forget(self) -> None:
        """Closes the opened stores; their files stay."""
        with self._lock:
            self._opened.clear()


def hints_file(hints: Hints) -> dict[str, bytes]:
    """The file of an entry that was compiled for these hints; no file without hints."""
    return {HINTS: json.dumps({symbol.name: hint for symbol, hint in hints}).encode()} if hints else {}


def serving(entries: Sequence[Entry], hints: Hints) -> Sequence[Entry]:
    """The entries that may serve a graph with these hints, the nearest one first.

    Every entry of the graph's key gives right results for all sizes; those that were compiled for far smaller or larger
    sizes give them more slowly.
    """
    if not hints:
        return entries
    found: list[tuple[float, Entry]] = []
    for entry in entries:
        known: dict[str, int] = json.loads(entry.text(HINTS)) if HINTS in entry.contents else {}
        apart = [abs(log2(max(1, hint) / max(1, known.get(symbol.name, hint)))) for symbol, hint in hints]
        if max(apart) <= log2(NEAR) or len(entries) >= MOST_ENTRIES:
            found.append((sum(apart), entry))
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]
