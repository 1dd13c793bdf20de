"""What a wrapper calls in place of a partition's function: it runs the function, records it, or replays a recording.

Takes the arguments of each call. Gives the function's results. Refuses nothing: a call that no recording serves runs
the function, with a note where the user may want to know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock, local
from typing import Any

import torch

from minductor.runtime.graphs.graph_driver import GraphDriver, RecordFailed, Stream
from minductor.runtime.graphs.graph_pool import Lent, Pool, all_held, storage_of
from minductor.runtime.graphs.graph_recording import About, Recording, Take, objection, recording_for
from minductor.runtime.graphs.graph_results import ResultMemory

MOST_SIZES = 64  # recordings of one partition with different sizes, devices or streams
MOST_RECORDINGS = 8  # of one partition for the same sizes and weights, each of which replaces the one before
MOST_SETS = 64  # of weights for which one partition is recorded for the same sizes
MOST_MOVES = 2  # how often an input may move before it is copied at each call

Note = Callable[[str], object]


@dataclass(eq=False, slots=True)
class Shared:
    """What the partitions of a chain share: the driver, a pool for each stream, and one lock.

    `warn` is given what a user should know, `tell` what is worth a line of the trace. `memory`: where results are made.
    """

    driver: GraphDriver
    warn: Note
    tell: Note
    memory: ResultMemory
    pools: dict[Stream, Pool] = field(default_factory=dict[Stream, Pool])
    lock: RLock = field(default_factory=RLock)

    def pool(self, stream: Stream) -> Pool:
        if stream not in self.pools:
            self.pools[stream] = Pool(self.driver)
        return self.pools[stream]


class _RanHere(local):
    """Whether the current thread has run a function."""

    value = False


@dataclass(eq=False, slots=True)
class _Case:
    """The calls of one partition with the same sizes on the same stream, which `pool` is for.

    `addresses`: of the tensors of the first. `recordings`: by where the inputs lie that they read there; all read the
    same inputs where they lie. `latest`: the one that was used last.
    """

    pool: Pool
    addresses: Sequence[int]
    ran: _RanHere = field(default_factory=_RanHere)
    recordings: dict[tuple[int, ...], Recording] = field(default_factory=dict[tuple[int, ...], Recording])
    latest: Recording | None = None
    moves: Counter[int] = field(default_factory=Counter[int])  # how often each input moved
    is_refused: bool = False

    def fitting(self, latest: Recording, args: Sequence[Any]) -> tuple[Recording, Sequence[int]]:
        """A recording that reads its inputs where those of a call lie; else `latest`, and which lie elsewhere."""
        moved = latest.moved(args)
        if moved and (found := self.recordings.get(tuple(latest.places_of(args)))) is not None:
            return found, ()
        return latest, moved

    def add(self, made: Recording, replaced: Recording | None) -> None:
        """Adds a recording; drops the one that it replaces and those that no call will fit any more."""
        pool = made.pool
        for old in list(self.recordings.values()):
            is_stale = any(storage not in pool.storages for storage in old.lent_inputs.values())
            if old is replaced or is_stale or old.placed != made.placed:
                old.drop()
                del self.recordings[tuple(old.addresses)]
        self.recordings[tuple(made.addresses)] = self.latest = made


class CapturedPartition:
    """A partition's function that is recorded at its second call with the same sizes, and replayed then."""

    def __init__(self, about: About, shared: Shared) -> None:
        self.about = about
        self.shared = shared
        self._cases: dict[tuple[Any, ...], _Case] = {}
        self._noted: set[str] = set()

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        driver = self.shared.driver
        if driver.is_recording():  # the user records this call
            return self.about.function(*args)
        stream = driver.current_stream(self.about.device)
        key = (stream, *args[self.about.tensors :])
        with self.shared.lock:
            case = self._cases.get(key)
            if case is None:
                self._begin(key, stream, args)
                results = None
            elif case.latest is not None and (take := case.latest.take_again(args, step := driver.step())) is not None:
                results = case.latest.replay(driver, take, args, step)
            else:
                results = self._replayed(case, stream, args)
        return self.about.function(*args) if results is None else results

    def _begin(self, key: tuple[Any, ...], stream: Stream, args: Sequence[Any]) -> None:
        """Notes the first call with some sizes, if there is room for another."""
        if len(self._cases) >= MOST_SIZES:
            self._note(f"no more than {MOST_SIZES} sizes are recorded; others run without a CUDA graph")
            return
        addresses = [tensor.data_ptr() for tensor in args[: self.about.tensors]]
        case = self._cases[key] = _Case(self.shared.pool(stream), addresses)
        case.ran.value = True

    def _replayed(self, case: _Case, stream: Stream, args: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
        """The results of a replay, after a recording if that is needed; None if the function has to run."""
        if case.is_refused:
            return None
        pool, step = case.pool, self.shared.driver.step()
        replaced: Recording | None = None
        if case.latest is None:
            self._judge_first_moves(case, pool, args)
        else:
            recording, moved = case.fitting(case.latest, args)
            take = None if moved else self._take(case, recording, stream, args, step)
            if take is not None:
                case.latest = recording
                return recording.replay(self.shared.driver, take, args, step)
            set_apart = [number for number in moved if self._is_set_apart(number, pool, args)]
            replaced = None if set_apart else recording
            if not self._may_record_again(case, recording, [n for n in moved if n not in set_apart], replaced):
                return None
        if not case.ran.value:  # what the libraries keep for a thread cannot be made in a recording
            case.ran.value = True
            return None
        recording = self._record(case, pool, stream, args, replaced)
        return recording.replay(self.shared.driver, recording.takes[0], args, step) if recording is not None else None

    def _judge_first_moves(self, case: _Case, pool: Pool, args: Sequence[Any]) -> None:
        """Has each input copied that does not lie where it lay at the first call, unless it is set apart."""
        for number, address in enumerate(case.addresses):
            if args[number].data_ptr() != address and not self._is_set_apart(number, pool, args):
                case.moves[number] = MOST_MOVES

    def _is_set_apart(self, number: int, pool: Pool, args: Sequence[Any]) -> bool:
        """Whether an input is never copied: parameters and buffers, of which each layer has a set, and the pool's."""
        return number in self.about.static or storage_of(args[number]) in pool.storages

    def _take(self, case: _Case, recording: Recording, stream: Stream, args: Sequence[Any], step: int) -> Take | None:
        """A take whose replay overwrites nothing that somebody holds; a new one if results outside of the pool are."""
        is_pool_held = False
        for take in recording.takes:
            held, own = all_held(take.entry.endangered), all_held(take.own)
            if held and self._is_held(recording.pool, held, step):
                is_pool_held = True
            elif not own or not self._is_held(recording.pool, own, step):
                return take
        if is_pool_held or recording.is_full or not case.ran.value:
            return None
        try:
            made = recording.record(stream, args)
        except RecordFailed as error:
            recording.is_full = True
            self._note(f"its earlier results are still held: it runs without a CUDA graph, since for another {error}")
            return None
        self.shared.tell(f"{self.about.name}: recorded once more, since its earlier results are held")
        return made

    def _is_held(self, pool: Pool, held: Sequence[Lent], step: int) -> bool:
        """Whether somebody may still use one of the results that are held; those of earlier steps are taken back."""
        for lent in held:
            if lent.step < step:
                pool.take_back(lent)
        return any(lent.step >= step for lent in held)

    def _may_record_again(
        self, case: _Case, recording: Recording, moved: Sequence[int], replaced: Recording | None
    ) -> bool:
        """Whether another recording serves this call, and later ones, better than running the function.

        `moved`: the inputs that may be copied. `replaced`: the recording that this one would replace.
        """
        if replaced is not None and replaced.is_full:
            return False
        in_pool = [lent for take in recording.takes for lent in take.entry.lent]
        if replaced is not None and any(lent.is_held for lent in in_pool):
            at = next((lent.place for lent in in_pool if lent.is_held and lent.place), "")
            self._note(
                f"its earlier results are still held{f' (from {at})' if at else ''}: it runs without a CUDA graph"
            )
            return False
        for number in moved:
            if number in recording.lent_inputs:  # the call that made it ran without a graph
                return False
            case.moves[number] += 1
        if replaced is not None and replaced.times >= MOST_RECORDINGS:
            self._note(
                f"it was recorded {MOST_RECORDINGS} times, since inputs move or results are held; it runs without"
            )
            return False
        if replaced is None and len(case.recordings) >= MOST_SETS:
            self._note(f"no more than {MOST_SETS} sets of weights are recorded; others run without a CUDA graph")
            return False
        return True

    def _record(
        self, case: _Case, pool: Pool, stream: Stream, args: Sequence[Any], replaced: Recording | None
    ) -> Recording | None:
        """A new recording of the function, in place of `replaced`; None with a note if there is none."""
        copied = [number for number, count in sorted(case.moves.items()) if count >= MOST_MOVES]
        why = objection(self.about, args, copied)
        made: Recording | None = None
        if not why:
            try:
                made = recording_for(self.about, pool, args, copied)
                made.record(stream, args)
            except RecordFailed as error:
                why = str(error)
        if made is None or why:
            case.is_refused = True
            self._note(f"it runs without a CUDA graph: {why}")
            return None
        if replaced is not None:
            made.times = replaced.times + 1
        case.add(made, replaced)
        numbers = args[self.about.tensors :]
        sizes = f" for {', '.join(map(str, numbers))}" if numbers else ""
        what = f"{len(copied)} of {self.about.tensors} inputs copied" if copied else "no input copied"
        self.shared.tell(f"{self.about.name}: recorded{sizes}, {what}")
        return made

    def _note(self, text: str) -> None:
        """Tells the user something once."""
        if text not in self._noted:
            self._noted.add(text)
            self.shared.warn(f"{self.about.name}: {text}")
            self.shared.tell(f"{self.about.name}: {text}")
