"""A pool of device memory: the recordings in it, in order, and which of their results somebody holds.

Takes recorded results. Gives tensors for callers, and says whether a replay would overwrite one that is held. Refuses
nothing.

A result is lent as a tensor whose storage is not that of the recording but names the same memory (`alias_of`). The
number of references to this storage tells whether a caller, a view or autograd holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from minductor.runtime.graphs.graph_driver import GraphDriver

FOREVER = 1 << 62  # a step that no program reaches


class Lent:
    """The results of a recording in one storage, and the tensors over it that callers are given."""

    def __init__(self, owners: Sequence[torch.Tensor], place: str, *, keeps: bool = False) -> None:
        """`owners` lie in one storage; `place` is the user's line that computes the first, or "".

        `keeps`: whoever gets it may keep it beyond a step.
        """
        self.place = place
        self.step = 0  # in which it was lent last, or in which it may be read at the latest
        self.owner = storage_of(owners[0])
        self._owners = owners
        self._keeps = keeps
        self._renew()

    def _renew(self) -> None:
        self.tensors = alias_of(self._owners)
        self.fresh = [tensor.detach for tensor in self.tensors]  # each makes a caller's tensor, as the owner is
        self.storage = storage_of(self.tensors[0])
        self.unheld = torch._C._storage_Use_Count(self.storage)

    @property
    def is_held(self) -> bool:
        """Whether somebody besides this object has a reference to the lent storage."""
        return torch._C._storage_Use_Count(self.storage) > self.unheld

    def lend(self, step: int) -> None:
        """Notes the step in which callers get tensors of `fresh`; views of these keep the storage held as well."""
        self.step = FOREVER if self._keeps else step

    def take_back(self, driver: GraphDriver) -> None:
        """Makes a later use of what was lent an error, and lends another storage from now on."""
        at = f" at {self.place}" if self.place else ""
        driver.forbid(
            self.tensors[0],
            f"this tensor, computed{at}, was overwritten by the replay of a CUDA graph in a later step; clone it before"
            " torch.compiler.cudagraph_mark_step_begin() begins that step",
        )
        self._renew()


@dataclass(eq=False, slots=True)
class PoolEntry:
    """A recording as its pool knows it: its graph, until that is dropped, and its results.

    `endangered`: the results that a replay may overwrite: its own, and those of later recordings.
    """

    graph: Any
    lent: Sequence[Lent]
    endangered: Sequence[Lent] = ()


@dataclass(eq=False, slots=True)
class Pool:
    """The recordings that share one pool, the earliest first."""

    driver: GraphDriver
    entries: list[PoolEntry] = field(default_factory=list[PoolEntry])
    storages: set[int] = field(default_factory=set[int])  # of the results that callers are given
    _handle: Any = None

    def handle(self) -> Any:
        """The pool's handle; torch frees a pool once no graph uses it, so it is made anew then."""
        if self._handle is None or not any(entry.graph is not None for entry in self.entries):
            self._handle = self.driver.make_pool()
        return self._handle

    def add(self, graph: Any, lent: Sequence[Lent]) -> PoolEntry:
        entry = PoolEntry(graph, lent)
        self.entries.append(entry)
        self._list_results()
        return entry

    def drop(self, entry: PoolEntry) -> None:
        """Drops a graph that another one has replaced. Its results stay known as long as somebody holds one."""
        entry.graph = None
        self.entries = [each for each in self.entries if each.graph is not None or any(x.is_held for x in each.lent)]
        self._list_results()

    def _list_results(self) -> None:
        """Notes which results there are, and which of them each replay may overwrite."""
        self.storages = {lent.storage for entry in self.entries for lent in entry.lent}
        for place, entry in enumerate(self.entries):
            entry.endangered = [lent for later in self.entries[place:] for lent in later.lent]

    def take_back(self, lent: Lent) -> None:
        """Makes a later use of a result that is held an error, so that a replay may overwrite it."""
        is_here = lent.storage in self.storages
        self.storages.discard(lent.storage)
        lent.take_back(self.driver)
        if is_here:
            self.storages.add(lent.storage)


def all_held(results: Sequence[Lent]) -> list[Lent]:
    """The results that somebody holds. Asked for each result at each call."""
    count = torch._C._storage_Use_Count
    return [lent for lent in results if count(lent.storage) > lent.unheld]


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's storage, for `torch._C._storage_Use_Count`."""
    return tensor.untyped_storage()._cdata


def alias_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors like these of one storage, in a storage that is another object, and that keeps the memory alive."""
    first = tensors[0]
    if first.untyped_storage().nbytes() == 0:
        other = torch.empty(0, dtype=torch.uint8, device=first.device)
    else:
        other = from_dlpack(torch._C._to_dlpack(_bytes(first)))
    return [_placed(other, tensor) for tensor in tensors]


def _placed(owner: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor in the storage of `owner`, with the layout of another."""
    empty = torch.empty(0, dtype=like.dtype, device=like.device)
    return empty.set_(owner.untyped_storage(), like.storage_offset(), like.size(), like.stride())


def copied_out(driver: GraphDriver, values: Sequence[Any], lent: Collection[int]) -> list[Any]:
    """The values, with copies of the tensors whose storages are among `lent`; equal storages are copied once."""
    found = list(values)
    groups: dict[int, list[int]] = {}
    for place, value in enumerate(values):
        if isinstance(value, torch.Tensor) and (storage := storage_of(value)) in lent:
            groups.setdefault(storage, []).append(place)
    into: list[torch.Tensor] = []
    of: list[torch.Tensor] = []
    for places in groups.values():
        first = values[places[0]]
        whole = _bytes(first) if len(places) > 1 or _is_partial(first) else first
        made = torch.empty_strided(whole.size(), whole.stride(), dtype=whole.dtype, device=whole.device)
        into.append(made)
        of.append(whole)
        for place in places:
            found[place] = made if whole is first else _placed(made, values[place])
    if into:
        driver.copy(into, of)
    return found


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())


def _is_partial(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a part of its storage, or has elements that share memory."""
    return tensor.storage_offset() != 0 or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.itemsize
