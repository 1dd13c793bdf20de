"""Compares each call of a graph with its memory plan: options={"verify_memory": "assert" | "log"}.

Takes the planned storages, and from the wrapper each event when it happens: allocate, give (an operator made the
tensor), alias, transfer, free, and each call with its tensors. Gives nothing while the events match the plan. Refuses
(MemoryFault, or a line of the log) an unplanned event, a missing event, a tensor in another storage than planned, and
storage that is still alive after it was freed or after the graph returned.

Step n is what happens between call n of the wrapper and the next call. Nothing outlives the call of the graph.

>>> lives = planned(("own", 4, False, ("buf0", "allocate", "", 0, 1)))
>>> def call(args, life):
...     life.begins()
...     buf0 = torch.empty(1)
...     life.allocate("buf0", buf0)
...     life.call("exp_0", ("buf0", buf0))
...     if args:
...         del buf0
...         life.free("buf0")
...     life.returns()
>>> watched(lives, "assert", [])(call)(["free it"])
>>> watched(lives, "assert", [])(call)([])
Traceback (most recent call last):
minductor.core.errors.MemoryFault: [MD042] at the return: free buf0 (4 bytes) is missing
  at: step 1 (exp_0)
  why: planned: buf0: allocate in step 0, gone in step 1
  hint: a fault of minductor or of a registered pass, not of your program; MINDUCTOR_TRACE=4 shows the plan
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from minductor.core.errors import MemoryFault

EVENTS = ("allocate", "give", "alias", "transfer")


@dataclass(frozen=True, slots=True)
class Name:
    """The plan for one name."""

    name: str
    making: str
    of: str
    start: int
    end: int | None
    storage: int

    def __str__(self) -> str:
        made = f"{self.making} of {self.of}" if self.of else self.making
        return f"{self.name}: {made} in step {self.start}" + ("" if self.end is None else f", gone in step {self.end}")


@dataclass(frozen=True, slots=True)
class Storage:
    """The plan for one storage. Its bytes are missing if the plan does not know the size."""

    owner: str
    bytes: int | None
    is_returned: bool
    first: str


@dataclass(frozen=True, slots=True)
class Lives:
    """The plan of one function: the events due in each step, by kind and name."""

    storages: tuple[Storage, ...]
    names: Mapping[str, Name]
    due: Mapping[int, Mapping[tuple[str, str], Name]]


def planned(*rows: tuple[Any, ...]) -> Lives:
    """The plan from the rows in the wrapper's text: owner, bytes, whether the storage is returned, then its names.

    A name is a row too: name, making, of, start, end, as in ir/plan/storage.py.
    """
    storages: list[Storage] = []
    names: dict[str, Name] = {}
    due: dict[int, dict[tuple[str, str], Name]] = {}
    for number, (owner, size, is_returned, *own) in enumerate(rows):
        storages.append(Storage(owner, size, is_returned, own[0][0]))
        for name, making, of, start, end in own:
            names[name] = Name(name, making, of, start, end, number)
    taken = {name.of for name in names.values() if name.making == "transfer"}
    for name in names.values():
        if name.making in EVENTS:
            due.setdefault(name.start, {})[name.making, name.name] = name
        if name.end is not None and name.name not in taken:
            due.setdefault(name.end, {})["free", name.name] = name
    return Lives(tuple(storages), names, due)


def watched(lives: Lives, mode: str, events: list[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that calls a function with a Watch as its last argument; the function reports events to the Watch."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            watch = Watch(lives, mode, events)
            try:
                result = function(*args, watch)
                watch.ends()
                return result
            finally:
                watch.reset()

        return call

    return wrap


@dataclass(slots=True)
class Watch:
    """One call of the graph."""

    lives: Lives
    mode: str
    events: list[Any]
    step: int = 0
    what: str = "start"
    due: dict[tuple[str, str], Name] = field(init=False)
    live: dict[str, int] = field(default_factory=dict[str, int])  # name -> storage
    refs: dict[int, StorageWeakRef] = field(default_factory=dict[int, StorageWeakRef])

    def __post_init__(self) -> None:
        self.due = dict(self.lives.due.get(0, {}))
        self.live = {n.name: n.storage for n in self.lives.names.values() if n.making == "constant"}

    # --- events that the wrapper reports

    def begins(self, *inputs: tuple[str, torch.Tensor]) -> None:
        for name, tensor in inputs:
            self._add(name, tensor)

    def allocate(self, name: str, tensor: torch.Tensor) -> None:
        self._made("allocate", name, tensor)
        size, wanted = tensor.untyped_storage().nbytes(), self._storage(name).bytes
        if wanted is not None and size != wanted:
            self._fault(f"{name} has {size} bytes, planned are {wanted}", name)

    def give(self, name: str, tensor: torch.Tensor) -> None:
        """An operator made the tensor."""
        self._made("give", name, tensor)

    def laid_out(self, name: str, tensor: torch.Tensor) -> None:
        """The tensor may now be a copy, with the strides that were traced."""
        self._add(name, tensor)

    def alias(self, name: str, of: str, tensor: torch.Tensor) -> None:
        self._event("alias", name, of)
        self._add_alias(name, of, tensor)

    def transfer(self, name: str, of: str, tensor: torch.Tensor) -> None:
        self._event("transfer", name, of)
        self._add_alias(name, of, tensor)
        self.live.pop(of, None)

    def free(self, *names: str) -> None:
        """The wrapper has dropped these names."""
        for name in names:
            self._event("free", name)
            storage = self.live.pop(name, None)
            if storage is None or storage in self.live.values():
                continue
            ref = self.refs.pop(storage, None)
            if ref is None or ref.expired():
                continue
            owner = self.lives.storages[storage].owner
            if owner == "own":
                self._fault(f"{name} ({self._bytes(name)}) is freed, and somebody still holds it", name)
            elif owner == "donated":
                self.events.append(("held", name))

    def call(self, what: str, *tensors: tuple[str, torch.Tensor]) -> None:
        """The next call is about to be made with these tensors."""
        self._report_missing(f"before call {self.step + 1} ({what})")
        self.step += 1
        self.what = what
        self.due = dict(self.lives.due.get(self.step, {}))
        self._check_storages(tensors)

    def returns(self, *tensors: tuple[str, torch.Tensor]) -> None:
        self._report_missing("at the return")
        self._check_storages(tensors)
        found = {self.live[name] for name, _ in tensors if name in self.live}
        for number, storage in enumerate(self.lives.storages):
            if storage.is_returned != (number in found):
                fault = (
                    "planned to be returned, and is not" if storage.is_returned else "returned, and not planned to be"
                )
                self._fault(f"{storage.first} ({self._bytes(storage.first)}) is {fault}", storage.first)

    def ends(self) -> None:
        """The wrapper's names are gone: only returned storages may still be alive."""
        for number, ref in self.refs.items():
            storage = self.lives.storages[number]
            if storage.owner == "own" and not storage.is_returned and not ref.expired():
                self.events.append(("leak", storage.first))
                self._fault(f"{storage.first} ({self._bytes(storage.first)}) outlives the call", storage.first)

    def reset(self) -> None:
        self.live.clear()
        self.refs.clear()

    # --- comparisons with the plan

    def _event(self, kind: str, name: str, of: str = "") -> None:
        due = self.due.pop((kind, name), None)
        if due is None or (kind != "free" and due.of != of):
            self._fault(f"{kind} {name}{f' of {of}' if of else ''} ({self._bytes(name)}) is not planned here", name)

    def _made(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        self._event(kind, name)
        ref = _reference(tensor)
        for number, other in self.refs.items():
            if other == ref:
                first = self.lives.storages[number].first
                self._fault(f"{kind} {name} ({self._bytes(name)}) gives memory that {first} has", name)
        self._add(name, tensor)

    def _add(self, name: str, tensor: torch.Tensor) -> None:
        if name in self.lives.names:
            number = self.live[name] = self.lives.names[name].storage
            if (ref := _reference(tensor)) is not None:
                self.refs[number] = ref

    def _add_alias(self, name: str, of: str, tensor: torch.Tensor) -> None:
        if of not in self.live:
            self._fault(f"{name} is made of {of}, which is gone", of)
            return
        self.live[name] = self.live[of]
        self._check_storages(((name, tensor),))

    def _check_storages(self, tensors: tuple[tuple[str, torch.Tensor], ...]) -> None:
        for name, tensor in tensors:
            if name not in self.live:
                self._fault(f"{name} ({self._bytes(name)}) is used, and is gone", name)
                continue
            ref = self.refs.get(self.live[name])
            if ref is not None and ref != _reference(tensor):
                self._fault(f"{name} ({self._bytes(name)}) lies in another storage than planned", name)

    def _report_missing(self, when: str) -> None:
        for kind, name in self.due:
            self._fault(f"{when}: {kind} {name} ({self._bytes(name)}) is missing", name)

    def _storage(self, name: str) -> Storage:
        return self.lives.storages[self.lives.names[name].storage]

    def _bytes(self, name: str) -> str:
        size = self._storage(name).bytes if name in self.lives.names else None
        return "of a size known at the call" if size is None else f"{size} bytes"

    def _fault(self, what: str, name: str) -> None:
        wanted = str(self.lives.names[name]) if name in self.lives.names else f"no {name}"
        fault = MemoryFault(what, wanted, where=f"step {self.step} ({self.what})")
        self.events.append(("fault", what))
        if self.mode == "assert":
            raise fault
        logging.getLogger("minductor").warning("%s", fault)


def _reference(tensor: torch.Tensor | None) -> StorageWeakRef | None:
    """A weak reference to the tensor's storage; None for the tokens by which torch orders effects."""
    return None if tensor is None or tensor.is_mkldnn else StorageWeakRef(tensor.untyped_storage())
