"""One recording of a partition: which inputs are read where they lie, which are copied, and what it returns.

Takes a partition's function and the arguments of a call. Gives a Recording, and replays it. Refuses arguments that no
recording can serve (`objection`).

A recording has up to three takes, which are graphs that differ only in where their results lie. A caller who still
holds the results of one gets those of another; callers of the third get copies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from minductor.runtime.graphs.graph_driver import GraphDriver, Stream
from minductor.runtime.graphs.graph_pool import Lent, Pool, PoolEntry, all_held, copied_out, storage_of
from minductor.runtime.graphs.graph_results import ResultMemory

# 1 if elements of a tensor certainly share memory, which torch then copies nothing into
has_shared_elements: Callable[[torch.Tensor], int] = getattr(torch, "_debug_has_internal_overlap")  # noqa: B009
MOST_TAKES = 3  # of one recording: two whose results callers get, and one of whose results they get copies
Function = Callable[..., tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class About:
    """What the wrapper says of a partition's function.

    `tensors`: how many of its arguments are tensors; numbers follow them. `static`: those of the tensors that are
    parameters or buffers of a module. `written`: those that it writes. `places`: for each result the user's line that
    computes it, or "". `memory`: where a thread that records makes results. `are_gradients`: its results are gradients,
    which autograd may keep from step to step.
    """

    function: Function
    name: str
    device: str
    tensors: int
    static: frozenset[int]
    written: tuple[int, ...]
    places: tuple[str, ...]
    memory: ResultMemory
    are_gradients: bool = False


@dataclass(frozen=True, slots=True)
class WindowOfInput:
    """A result that lies in the memory of an input which is read where it lies."""

    input: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, args: Sequence[Any]) -> torch.Tensor:
        """The result of a call with these arguments."""
        return args[self.input].as_strided(self.size, self.stride, self.offset)


@dataclass(frozen=True, slots=True)
class LentResult:
    """A result that callers are lent: number `number` of those in one storage."""

    lent: Lent
    number: int


@dataclass(eq=False, slots=True)
class Take:
    """A recorded graph. `own`: its results that lie outside of the pool, where no other graph writes.

    `lent`: all results that callers are lent.
    """

    entry: PoolEntry
    results: Sequence[LentResult | WindowOfInput]
    own: Sequence[Lent]
    lent: Sequence[Lent]


@dataclass(eq=False)
class Recording:
    """What was recorded for inputs that lie in certain places.

    `placed`: the inputs that are read where they lie; `addresses`: where that is. `buffers`: by the number of another
    input, the buffer that it is copied into. `lent_inputs`: the inputs that lay in the pool, by number, and the storage
    there. `times`: how many recordings were made in its place, with this one. `is_full`: another take could not be
    recorded.
    """

    about: About
    pool: Pool
    placed: list[int]
    addresses: list[int]
    buffers: Mapping[int, torch.Tensor]
    lent_inputs: Mapping[int, int]
    takes: list[Take] = field(default_factory=list[Take])
    times: int = 1
    is_full: bool = False

    def take_again(self, args: Sequence[Any], step: int) -> Take | None:
        """The take for a call that finds everything as calls mostly do; None: the partition has to look closer.

        The inputs lie where they lay, nobody holds what the replay may overwrite in the pool, and of the takes before
        it only results that may not be taken back are held. Asked at each call, where a call of Python's counts.
        """
        if not self._lie_there(*args):
            return None
        for take in self.takes:
            if take.entry.endangered and all_held(take.entry.endangered):
                return None
            held = all_held(take.own)
            if not held:
                return take
            if any(lent.step < step for lent in held):
                return None
        return None

    def moved(self, args: Sequence[Any]) -> list[int]:
        """The inputs that would have to lie where they lay, and do not."""
        if self._lie_there(*args):
            return []
        there = zip(self.placed, self.addresses, self.places_of(args), strict=True)
        return [number for number, was, now in there if was != now]

    def places_of(self, args: Sequence[Any]) -> list[int]:
        """Where the inputs in `placed` lie at a call."""
        return [args[number].data_ptr() for number in self.placed]

    @cached_property
    def _lie_there(self) -> Callable[..., bool]:
        return self.pool.driver.lie_there(self.placed, self.addresses)

    @cached_property
    def _copied(self) -> tuple[list[int], list[torch.Tensor]]:
        return list(self.buffers), list(self.buffers.values())

    def drop(self) -> None:
        """Drops its graphs."""
        for take in self.takes:
            self.pool.drop(take.entry)

    def replay(self, driver: GraphDriver, take: Take, args: Sequence[Any], step: int) -> tuple[torch.Tensor, ...]:
        """Runs the graph of a take for the arguments of a call."""
        if self.buffers:
            numbers, buffers = self._copied
            driver.copy(buffers, [args[number] for number in numbers])
        driver.replay(take.entry.graph)
        if self.buffers and (back := [number for number in self.about.written if number in self.buffers]):
            driver.copy([args[number] for number in back], [self.buffers[number] for number in back])
        for lent in take.lent:
            lent.lend(step)
        results = [
            each.lent.fresh[each.number]() if isinstance(each, LentResult) else each.of(args) for each in take.results
        ]
        if len(self.takes) == MOST_TAKES and take is self.takes[-1]:
            return tuple(copied_out(driver, results, {lent.storage for lent in take.own}))
        return tuple(results)

    def record(self, stream: Stream, args: Sequence[Any]) -> Take:
        """Another take, for inputs that lie where those of `args` lie. Raises RecordFailed.

        Nothing is computed: the caller replays it.
        """
        about, pool = self.about, self.pool
        tensors = args[: about.tensors]
        given = [self.buffers.get(number, arg) for number, arg in enumerate(args)]
        with about.memory.outside(stream) as storages:
            graph, made = pool.driver.record(lambda: about.function(*given), pool.handle(), stream)
        results = _results(about, tensors, self.buffers, made)
        lent = list(dict.fromkeys(each.lent for each in results if isinstance(each, LentResult)))
        own = [each for each in lent if each.owner in storages]
        take = Take(pool.add(graph, [each for each in lent if each.owner not in storages]), results, own, lent)
        self.takes.append(take)
        return take


def objection(about: About, args: Sequence[Any], copied: Collection[int]) -> str:
    """Why no recording serves these arguments if the inputs `copied` are copied, or ""."""
    tensors = args[: about.tensors]
    for number in copied:
        if has_shared_elements(tensors[number]) == 1:
            return "an input that moves has elements that share memory"
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    for number in about.written:
        others = [other for other, storage in enumerate(storages) if storage == storages[number] and other != number]
        if others and not {number, *others}.isdisjoint(copied):
            return "it writes to an input that moves and shares memory with another input"
    return ""


def recording_for(about: About, pool: Pool, args: Sequence[Any], copied: Collection[int]) -> Recording:
    """A recording, without a take, for inputs that lie where those of `args` lie, except those in `copied`."""
    tensors = args[: about.tensors]
    buffers = {number: _buffer(tensors[number]) for number in copied}
    lies_in = [storage_of(tensor) for tensor in tensors]
    lent_inputs = {number: storage for number, storage in enumerate(lies_in) if storage in pool.storages}
    placed = [number for number in range(about.tensors) if number not in buffers]
    return Recording(about, pool, placed, [tensors[number].data_ptr() for number in placed], buffers, lent_inputs)


def _results(
    about: About, tensors: Sequence[torch.Tensor], buffers: Collection[int], made: Sequence[torch.Tensor]
) -> list[LentResult | WindowOfInput]:
    """Where the results of a recording lie: in inputs, or in storages that callers are lent."""
    inputs = {_address(tensor): number for number, tensor in enumerate(tensors) if number not in buffers}
    groups: dict[int, list[int]] = {}
    for place, result in enumerate(made):
        groups.setdefault(storage_of(result), []).append(place)
    found: dict[int, LentResult | WindowOfInput] = {}
    for places in groups.values():
        first = made[places[0]]
        if (number := inputs.get(_address(first))) is not None and _address(first):
            for place in places:
                size, stride = tuple(made[place].size()), tuple(made[place].stride())
                found[place] = WindowOfInput(number, size, stride, int(made[place].storage_offset()))
            continue
        lent = Lent([made[place] for place in places], about.places[places[0]], keeps=about.are_gradients)
        found.update({place: LentResult(lent, number) for number, place in enumerate(places)})
    return [found[place] for place in range(len(made))]


def _address(tensor: torch.Tensor) -> int:
    """Where the storage of a tensor begins; 0 for one without elements."""
    return tensor.untyped_storage().data_ptr()


def _buffer(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of an input with the same strides; it holds the values of a call, so no index in it is out of range."""
    made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
