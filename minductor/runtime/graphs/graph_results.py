"""Where recorded functions make their results: outside of the pool, so that no other graph writes there.

Takes what a wrapper says of a result's storage. Gives its memory. Refuses nothing.

A result that lies outside of the pool is lent to the caller as it is, who may hold it for as long as they like: its
graph is not replayed meanwhile, and no other one writes there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import torch

from minductor.runtime.graphs.graph_driver import GraphDriver, Stream
from minductor.runtime.graphs.graph_pool import storage_of


class _Recording(local):
    """Of a thread that records: the stream in whose memory results are made, and the storages made there."""

    stream: Stream | None = None

    def __init__(self) -> None:
        self.storages: set[int] = set()


class ResultMemory:
    """Makes the storages of results: where torch makes them, but in a recording outside of the pool."""

    def __init__(self, driver: GraphDriver) -> None:
        self._driver = driver
        self._here = _Recording()

    @contextmanager
    def outside(self, stream: Stream) -> Iterator[set[int]]:
        """While this thread records what `stream` will run. Gives the storages that were made outside of the pool."""
        self._here.stream, self._here.storages = stream, set()
        try:
            yield self._here.storages
        finally:
            self._here.stream = None

    def empty(self, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
        """A tensor in a new storage. Sizes and strides are in elements."""
        stream = self._here.stream
        if stream is None:
            return new_result(0, size, stride, dtype, device)
        made = self._driver.outside(stream, lambda: new_result(0, size, stride, dtype, device))
        self._here.storages.add(storage_of(made))
        return made


def new_result(last: int, *layout: Any) -> torch.Tensor:
    """What `empty_result` is in a wrapper that is loaded without a driver; `layout`: as for `ResultMemory.empty`."""
    size, stride, dtype, device = layout
    return torch.empty_strided(size, stride, dtype=dtype, device=device)
