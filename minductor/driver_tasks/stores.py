"""The stores of a Compiler: one for each cache folder, opened when it is first used.

Takes folders. Gives stores, and runs functions on a store. Refuses nothing: if a store can no longer be written, a
private store in a temporary folder replaces it, with a warning.
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

# The errors of a disk that is full, or that this process may not write.
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM))


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
