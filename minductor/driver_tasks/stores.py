"""The stores of a Compiler: one for each folder that a call names, opened when it is first used.

Takes folders. Gives stores, and runs work in one. Refuses nothing: when a store cannot be written any more, a private
one takes its place, with a warning.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from minductor.runtime.store.store import Store

R = TypeVar("R")

# What the system says of a disk that is full or may not be written.
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM))


class Stores:
    """Stores by the folder that the option `cache_dir` names; with `given`, that one for all folders."""

    def __init__(self, environ: Mapping[str, str], given: Store | None) -> None:
        self._environ = environ
        self._given = given
        self._opened: dict[str, Store] = {}
        self._lock = Lock()

    def of(self, folder: str) -> Store:
        """The store of a folder; of the user's, if `folder` is empty."""
        if self._given is not None:
            return self._given
        from minductor.runtime.store.store import Store

        with self._lock:
            if folder not in self._opened:
                self._opened[folder] = Store.open(Path(folder) if folder else None, self._environ)
            return self._opened[folder]

    def use(self, folder: str, work: Callable[[Store], R]) -> R:
        """What `work` gives with the store of a folder, or with its private replacement if the disk is full."""
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
        """Closes what was opened; what is on disk stays."""
        with self._lock:
            self._opened.clear()
