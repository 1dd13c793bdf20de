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
from minductor.runtime.graphs.graph_pool import Pool, storage_of
from minductor.runtime.graphs.graph_recording import About, Recording, objection, record

MOST_SIZES = 64  # recordings of one partition with different sizes, devices or streams
MOST_RECORDINGS = 8  # of one partition for the same sizes, each of which replaces the one before
MOST_MOVES = 2  # how often an input may move before it is copied at each call

Note = Callable[[str], object]


@dataclass(eq=False, slots=True)
class Shared:
    """What the partitions of a chain share: the driver, a pool for each stream, and one lock.

    `warn` is given what a user should know, `tell` what is worth a line of the trace.
    """

    driver: GraphDriver
    warn: Note
    tell: Note
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
    """The calls of one partition with the same sizes on the same stream. `addresses`: of the tensors of the first."""

    addresses: Sequence[int]
    ran: _RanHere = field(default_factory=_RanHere)
    recording: Recording | None = None
    recorded: int = 0  # how many recordings were made
    moves: Counter[int] = field(default_factory=Counter[int])  # how often each input moved
    is_refused: bool = False


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
        with self.shared.lock:
            case = self._case(stream, args)
            results = self._replayed(case, stream, args) if case is not None else None
        return self.about.function(*args) if results is None else results

    def _case(self, stream: Stream, args: Sequence[Any]) -> _Case | None:
        """The earlier calls with these sizes; None if there is none, or no room for another."""
        key = (stream, *args[self.about.tensors :])
        if (found := self._cases.get(key)) is not None:
            return found
        if len(self._cases) >= MOST_SIZES:
            self._note(f"no more than {MOST_SIZES} sizes are recorded; others run without a CUDA graph")
            return None
        case = self._cases[key] = _Case([tensor.data_ptr() for tensor in args[: self.about.tensors]])
        case.ran.value = True
        return None

    def _replayed(self, case: _Case, stream: Stream, args: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
        """The results of a replay, after a recording if that is needed; None if the function has to run."""
        if case.is_refused:
            return None
        pool, step = self.shared.pool(stream), self.shared.driver.step()
        recording = case.recording
        if recording is None:
            self._judge_first_moves(case, pool, args)
        else:
            moved = recording.moved(args)
            if not moved and not self._is_blocked(recording, step):
                return recording.replay(self.shared.driver, args, step)
            if not self._may_record_again(case, recording, moved, pool, args):
                return None
        if not case.ran.value:  # what the libraries keep for a thread cannot be made in a recording
            case.ran.value = True
            return None
        recording = self._record(case, pool, stream, args)
        return recording.replay(self.shared.driver, args, step) if recording is not None else None

    def _judge_first_moves(self, case: _Case, pool: Pool, args: Sequence[Any]) -> None:
        """Has each input copied that does not lie where it lay at the first call, unless it lies in the pool."""
        for number, address in enumerate(case.addresses):
            if args[number].data_ptr() != address and storage_of(args[number]) not in pool.storages:
                case.moves[number] = MOST_MOVES

    def _is_blocked(self, recording: Recording, step: int) -> bool:
        """Whether a replay would overwrite a result that somebody holds and may still use."""
        held = recording.pool.overwritten(recording.entry)
        for lent in held:
            if lent.step < step:
                recording.pool.take_back(lent)
        return any(lent.step >= step for lent in held)

    def _may_record_again(
        self, case: _Case, recording: Recording, moved: Sequence[int], pool: Pool, args: Sequence[Any]
    ) -> bool:
        """Whether another recording serves this call, and later ones, better than running the function."""
        if any(lent.is_held for lent in recording.entry.lent):
            at = next((lent.place for lent in recording.entry.lent if lent.is_held and lent.place), "")
            self._note(
                f"its earlier results are still held{f' (from {at})' if at else ''}: it runs without a CUDA graph"
            )
            return False
        for number in moved:
            if storage_of(args[number]) in pool.storages:
                continue
            if number in recording.lent_inputs:  # the call that made it ran without a graph
                return False
            case.moves[number] += 1
        if case.recorded >= MOST_RECORDINGS:
            self._note(
                f"it was recorded {MOST_RECORDINGS} times, since inputs move or results are held; it runs without"
            )
            return False
        return True

    def _record(self, case: _Case, pool: Pool, stream: Stream, args: Sequence[Any]) -> Recording | None:
        """A new recording of the function, in place of the one before; None with a note if there is none."""
        copied = [number for number, count in sorted(case.moves.items()) if count >= MOST_MOVES]
        why = objection(self.about, args, copied)
        made: Recording | None = None
        if not why:
            try:
                made = record(self.about, pool, stream, args, copied)
            except RecordFailed as error:
                why = str(error)
        if made is None:
            case.is_refused = True
            self._note(f"it runs without a CUDA graph: {why}")
            return None
        if case.recording is not None:
            pool.drop(case.recording.entry)
        case.recording = made
        case.recorded += 1
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
