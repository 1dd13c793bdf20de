"""Chooses between functions that do the same: the default, an earlier winner, or the fastest at the first call.

Takes such functions, what another choice would change (bits or time), a clock, and winners of earlier processes. Gives
one function, and reports a winner under a digest of the work. Refuses to measure a choice that affects bits where
results must be reproducible (ChoiceByClock): the default is taken there.

It knows nothing of kernels, stores or streams. Measuring runs each candidate on the tensors of the call and then
restores their contents (tune_memory.py). A candidate that raises, or whose results differ from the default's, cannot
win. A winner holds for sizes with the same number of bits; calls with other sizes are measured again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from minductor.core.errors import ChoiceByClock

if TYPE_CHECKING:  # who measures nothing needs no copies
    from minductor.runtime.tune.tune_memory import TrialMemory

Run = Callable[..., Any]
ROUNDS, TRIES = 3, 10  # rounds over all candidates, and calls per measurement
GAIN = 0.97  # a winner takes less than this share of the default's time, so that a tie keeps the default


Choose = Callable[..., Run]  # what a wrapper calls: `Tuner.choose` or `by_default`


class _Candidates(NamedTuple):
    """Functions that do the same: `make` gives each of them by its name, and `trial` the memory for trying them."""

    affects: str
    default: str
    names: Sequence[str]
    make: Callable[[str], Run]
    trial: Callable[[Sequence[Any]], TrialMemory]

    def made(self, refuse: Callable[[str, str], None]) -> dict[str, Run]:
        """The candidates that can be made, by name. Calls `refuse` with the name of each other one and the reason."""
        found: dict[str, Run] = {}
        for name in self.names:
            try:
                found[name] = self.make(name)
            except Exception as error:
                if name == self.default:
                    raise
                refuse(name, str(error))
        return found


def by_default(digest: str, affects: str, default: str, candidates: Mapping[str, Run], *numbers: object) -> Run:
    """The default candidate, chosen without measuring; the arguments are those of `Tuner.choose`."""
    del digest, affects, numbers
    return candidates[default]


def wall_clock(run: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def device_clock(run: Callable[[], object]) -> float:
    """The seconds that a function takes on the current GPU, between two events of its stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def device_name() -> str:
    """The name of the current GPU, since another GPU may have another winner."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def is_stream_captured() -> bool:
    """Whether the current stream is being captured into a CUDA graph: kernels do not run meanwhile."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@dataclass(slots=True)
class Tuner:
    """Measures candidates. `recall` returns the winner of another process for a digest; `keep` records a winner."""

    clock: Callable[[Callable[[], object]], float] = wall_clock
    recall: Callable[[str], str | None] = lambda digest: None
    keep: Callable[[str, str], object] = lambda digest, winner: None
    is_deterministic: bool = False
    room: Callable[[], int] | None = None  # bytes of the host that copies may take; None asks the machine
    is_captured: Callable[[], bool] = is_stream_captured  # nothing can be measured meanwhile
    winners: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])  # a candidate, or work that is not measured: why
    measured: int = 0  # how many times the clock was asked
    lock: Any = field(default_factory=RLock)  # measuring a variant may first measure the launches of its own kernel

    def choose(self, digest: str, affects: str, default: str, candidates: Mapping[str, Run], *numbers: Any) -> Run:
        """As `launch`, for `candidates` by name. The default one if the choice affects bits that must not change."""
        if self.is_deterministic and affects == "bits":
            return candidates[default]
        return self.launch(digest, affects, default, tuple(candidates), candidates.__getitem__, *numbers)

    def launch(
        self,
        digest: str,
        affects: str,
        default: str,
        names: Sequence[str],
        make: Callable[[str], Run],
        overwritten: Sequence[int] = (),
        written: Sequence[int] | None = None,
        sizes: Sequence[int] = (),
    ) -> Run:
        """The winner among the candidates that `make` returns by name; if none is known, a function that finds it when
        it is first called.

        A candidate for which `make` raises cannot win. `affects`: "bits" or "perf". `default`: the name of the default
        candidate. The other arguments are numbers of a candidate's arguments. `overwritten`: tensors whose contents
        candidates read or add to, and then write. `written`: all tensors that candidates write; None if unknown, which
        compares the contents of every tensor. `sizes`: arguments that are sizes; calls whose sizes have the same
        numbers of bits share a winner.
        """

        def trial(args: Sequence[Any]) -> TrialMemory:
            from minductor.runtime.tune.tune_memory import TrialMemory, free_host_memory

            return TrialMemory(args, overwritten, written, self.room or free_host_memory)

        candidates = _Candidates(affects, default, names, make, trial)
        if not sizes:
            return self._of_one_size(digest, candidates)
        found: dict[tuple[int, ...], Run] = {}

        def by_size(*args: Any) -> Any:
            bucket = tuple([args[number].bit_length() for number in sizes])
            if bucket not in found:
                work = f"{digest} sizes of {', '.join(map(str, bucket))} bits"
                found[bucket] = self._of_one_size(work, candidates)
            return found[bucket](*args)

        return by_size

    def _of_one_size(self, work: str, candidates: _Candidates) -> Run:
        names, make = candidates.names, candidates.make
        if (known := self._known(work)) in names:
            return make(known)
        found: list[Run] = []

        def first(*args: Any) -> Any:
            if not found and self.is_captured():
                return make(candidates.default)(*args)
            if not found:
                with self.lock:
                    won = self.winners.get(work, "")  # by now an equal one may have been measured
                    found.append(make(won if won in names else self._winner(work, candidates, args)))
            return found[0](*args)

        return first

    def _known(self, work: str) -> str:
        """The winner in this or an earlier process; "" if there is none."""
        if work not in self.winners and (found := self.recall(work)) is not None:
            self.winners[work] = found
        return self.winners.get(work, "")

    def _winner(self, work: str, candidates: _Candidates, args: Sequence[Any]) -> str:
        """Measures and records the winner. Without memory for that, the default, in this process only."""
        from minductor.runtime.tune.tune_memory import NoRoom

        made, default = candidates.made(self._refuse), candidates.default
        try:
            memory = candidates.trial(args)
        except NoRoom as error:
            self._refuse(work, str(error))
            self.winners[work] = default
            return default
        try:
            won = self._fastest(candidates.affects, default, made, args, memory)
        finally:
            memory.restore()
        self.winners[work] = won
        self.keep(work, won)
        return won

    def _fastest(
        self, affects: str, default: str, candidates: dict[str, Run], args: Sequence[Any], memory: TrialMemory
    ) -> str:
        """The fastest candidate with right results, if it is clearly faster than the default; else the default."""
        memory.begin()
        candidates[default](*args)  # also what is done once: loading, allocating
        memory.keep()
        least: dict[str, float] = {}
        for name, run in candidates.items():
            reason = "" if name == default else self._fault(affects, run, args, memory)
            if reason:
                self._refuse(name, reason)
            else:
                least[name] = float("inf")
        for _ in range(ROUNDS):
            for name in least:
                least[name] = min(least[name], self._time(affects, partial(candidates[name], *args), memory))
        best = min(least, key=lambda name: least[name])
        return best if least[best] < GAIN * least[default] else default

    def _fault(self, affects: str, run: Run, args: Sequence[Any], memory: TrialMemory) -> str:
        """The reason why a candidate cannot win; "" if it can."""
        memory.begin()
        try:
            run(*args)
        except Exception as error:
            return f"it raises {type(error).__name__}: {error}"
        return memory.difference(affects)

    def _refuse(self, name: str, reason: str) -> None:
        """Records why a candidate cannot win, or why some work is not measured."""
        self.refused[name] = reason
        logging.getLogger("minductor").info("not chosen by measure: %s: %s", name, reason)

    def _time(self, affects: str, run: Callable[[], object], memory: TrialMemory) -> float:
        """The seconds of a call. If a candidate reads what it overwrites, the contents are restored first."""
        if not memory.has_read:
            return self.seconds(affects, run, TRIES)
        least = float("inf")
        for _ in range(1 if memory.is_far else TRIES):
            memory.rewind()
            least = min(least, self.seconds(affects, run))
        return least

    def seconds(self, affects: str, run: Callable[[], object], tries: int = 1) -> float:
        """The only use of the clock. `affects`: what depends on the result. Returns the seconds of one call."""
        if self.is_deterministic and affects == "bits":
            raise ChoiceByClock(affects)
        self.measured += 1

        def several() -> object:
            for _ in range(tries - 1):
                run()
            return run()

        return self.clock(several) / tries
