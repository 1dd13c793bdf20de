"""Chooses between functions that do the same: the default, an earlier winner, or the fastest at the first call.

Takes such functions, what another choice would change (bits or time), a clock, and winners of earlier processes. Gives
one function, and reports a winner under a digest of the work. Refuses to measure a choice that affects bits where
results must be reproducible (ChoiceByClock): the default is taken there.

It knows nothing of kernels, stores or streams. Measuring runs each candidate on the tensors of the call and then
restores their contents (tune_memory.py). A candidate that raises, or whose results differ from the default's, cannot
win. A winner holds for sizes with the same number of bits; calls with other sizes are measured again.

The search is coordinate descent: it measures the candidates one step from the default, moves to the fastest if that is
clearly faster, and goes on from there. It ends where no step is faster, or when the seconds for the work or for the
graph are spent; then the best candidate so far wins.

A candidate may itself launch kernels whose launches are not chosen yet, as a variant does. Such candidates are screened
by the default launches of their kernels. The launches are searched for the winner of the screening only, when it runs
next; or for the two best candidates, if one of the two is nearly as fast as the other and its launches may make it
faster. Then these two are measured once more.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from minductor.core.errors import ChoiceByClock
from minductor.ir.artefact.winner import Winner
from minductor.runtime.tune.tune_clock import cache_bytes, is_stream_captured, wall_clock

if TYPE_CHECKING:  # who measures nothing needs no copies
    import torch

    from minductor.runtime.tune.tune_memory import TrialMemory

Run = Callable[..., Any]
ROUNDS, TRIES = 3, 10  # rounds over the candidates of a step; calls per measurement, at most
ENOUGH = 0.1  # seconds of a measurement: slow candidates are called fewer times
NEARLY = 1.15  # a candidate that takes more than so many times the best one's time is out before its launches are tuned
GAIN = 0.97  # a winner takes less than this share of the default's time, so that a tie keeps the default
WORK_SECONDS = 4.0  # for one kernel: few steps, each of which compiles its candidates for one or two seconds
GRAPH_SECONDS = 300.0  # for one graph: a model has about a hundred kernels, most of which need few seconds
FIRST_LINE, LINES = 1.0, 10.0  # seconds of tuning until the first line about the progress, and between two lines
DEFAULT = "default"  # the name of a kernel's default launch


Choose = Callable[..., Run]  # what a wrapper calls: `Tuner.choose` or `by_default`


@dataclass(frozen=True, slots=True)
class Candidates:
    """Functions that do the same, by name."""

    default: str
    make: Callable[[str], Run]  # returns a candidate, or raises: then it cannot win
    steps: Callable[[str], Iterable[str]]  # the candidates one step from a candidate
    has: Callable[[str], bool]  # whether there is a candidate of this name
    prepare: Callable[[Sequence[str]], object] = lambda names: None  # is called before several candidates are made
    about: str = ""  # what candidates compute, for people: the symbol of a kernel

    @classmethod
    def among(cls, default: str, names: Sequence[str], make: Callable[[str], Run], about: str = "") -> Candidates:
        """Candidates that are all one step from the default one."""
        return cls(default, make, lambda name: names if name == default else (), names.__contains__, about=about)


class _Work(NamedTuple):
    """What is decided once: candidates, for calls whose sizes lie in ranges."""

    key: str
    affects: str
    candidates: Candidates
    trial: Callable[[Sequence[Any]], TrialMemory]
    sizes: tuple[tuple[int, int], ...] = ()

    @property
    def label(self) -> str:
        """The work's name for people."""
        ranges = ", ".join(f"{least} to {most}" for least, most in self.sizes)
        return f"{self.candidates.about or self.key[:16]}{f' for sizes {ranges}' if ranges else ''}"


@dataclass(slots=True)
class _Trial:
    """One call, in whose memory candidates are measured."""

    work: _Work
    args: Sequence[Any]
    memory: TrialMemory
    flush: Callable[[], object] | None  # empties the cache before each run that is measured
    ends: float  # when the time for this work is spent
    # by candidate the choices of its own that it puts off
    unsettled: dict[str, tuple[Candidates, ...]] = field(default_factory=dict[str, "tuple[Candidates, ...]"])


class _ClockFailed(RuntimeError):
    """A clock gave no positive number of seconds."""


class Tuned(NamedTuple):
    """What is told about work that was measured: `winner` is None if nothing was recorded."""

    label: str
    seconds: float
    measured: int
    notes: tuple[str, ...]
    winner: Winner | None


def by_default(digest: str, affects: str, default: str, candidates: Mapping[str, Run], *numbers: object) -> Run:
    """The default candidate, chosen without measuring; the arguments are those of `Tuner.choose`."""
    del digest, affects, numbers
    return candidates[default]


def _is_clearly_faster(least: Mapping[str, float], name: str, other: str) -> bool:
    """Whether a candidate is faster than another one by more than what measurements of equal ones differ."""
    return least[name] < GAIN * least[other]


def _flush_of(memory: TrialMemory, cache: Callable[[torch.device], int]) -> Callable[[], object] | None:
    from minductor.runtime.tune.tune_memory import cache_flush

    return cache_flush(memory, cache)


@dataclass(slots=True)
class Tuner:
    """Measures candidates of one graph. `recall` returns the winner of another process for a digest; `keep` records
    a winner; `tell` is called after each work that was measured.
    """

    clock: Callable[[Callable[[], object]], float] = wall_clock
    recall: Callable[[str], Winner | None] = lambda digest: None
    keep: Callable[[str, Winner], object] = lambda digest, winner: None
    is_deterministic: bool = False
    room: Callable[[], int] | None = None  # bytes of the host that copies may take; None asks the machine
    is_captured: Callable[[], bool] = is_stream_captured  # nothing can be measured meanwhile
    tell: Callable[[Tuned], object] = lambda tuned: None
    now: Callable[[], float] = time.monotonic  # for the seconds that may be spent
    cache: Callable[[torch.device], int] = cache_bytes
    winners: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])  # a candidate, or work that is not measured: why
    notes: list[str] = field(default_factory=list[str])  # as `refused`, in the order of time
    measured: int = 0  # how many times the clock was asked
    spent: float = 0.0  # the seconds that this graph's tuning took
    since: float | None = None  # when the tuning that runs now began
    next_line: float = FIRST_LINE  # at so many seconds of tuning a line tells the progress
    lock: Any = field(default_factory=RLock)  # measuring a variant may first measure the launches of its own kernel
    put_off: dict[str, Candidates] | None = None  # by the candidate that runs; None while no candidates are searched

    def choose(self, digest: str, affects: str, default: str, candidates: Mapping[str, Run], *numbers: Any) -> Run:
        """As `launch`, for `candidates` by name. The default one if the choice affects bits that must not change."""
        if self.is_deterministic and affects == "bits":
            return candidates[default]
        symbol, end = getattr(candidates[default], "__name__", ""), f"_{default}"  # a wrapper's functions end so
        about = symbol.removesuffix(end) if symbol.endswith(end) else ""
        among = Candidates.among(default, tuple(candidates), candidates.__getitem__, about)
        return self.launch(digest, affects, among, *numbers)

    def launch(
        self,
        digest: str,
        affects: str,
        candidates: Candidates,
        overwritten: Sequence[int] = (),
        written: Sequence[int] | None = None,
        sizes: Sequence[int] = (),
    ) -> Run:
        """The winner among the candidates; if none is known, a function that finds it when it is first called.

        `affects`: "bits" or "perf". The other arguments are numbers of a candidate's arguments. `overwritten`: tensors
        whose contents candidates read or add to, and then write. `written`: all tensors that candidates write; None if
        unknown, which compares the contents of every tensor. `sizes`: arguments that are sizes; calls whose sizes have
        the same numbers of bits share a winner.
        """

        def trial(args: Sequence[Any]) -> TrialMemory:
            from minductor.runtime.tune.tune_memory import TrialMemory, free_host_memory

            return TrialMemory(args, overwritten, written, self.room or free_host_memory)

        if not sizes:
            return self._of_one_size(_Work(digest, affects, candidates, trial))
        found: dict[tuple[int, ...], Run] = {}

        def by_size(*args: Any) -> Any:
            bucket = tuple([args[number].bit_length() for number in sizes])
            if bucket not in found:
                key = f"{digest} sizes of {', '.join(map(str, bucket))} bits"
                ranges = tuple((1 << bits >> 1, (1 << bits) - 1) for bits in bucket)
                found[bucket] = self._of_one_size(_Work(key, affects, candidates, trial, ranges))
            return found[bucket](*args)

        return by_size

    def _of_one_size(self, work: _Work) -> Run:
        candidates = work.candidates
        if candidates.has(known := self._known(work.key)):
            try:
                return candidates.make(known)
            except Exception as error:
                if known == candidates.default:
                    raise
                self._refuse(f"{work.label}, recorded as {known}", str(error))
                del self.winners[work.key]
        found: list[Run] = []

        def first(*args: Any) -> Any:
            if not found and self.is_captured():
                return candidates.make(candidates.default)(*args)
            if not found:
                with self.lock:
                    won = self.winners.get(work.key, "")  # by now an equal one may have been measured
                    is_known = candidates.has(won)
                    if self.put_off is not None and not is_known:
                        self.put_off[work.key] = candidates
                        return candidates.make(candidates.default)(*args)
                    found.append(candidates.make(won if is_known else self._decided(work, args)))
            return found[0](*args)

        return first

    def _known(self, key: str) -> str:
        """The winner in this or an earlier process; "" if there is none."""
        if key not in self.winners and (found := self.recall(key)) is not None:
            self.winners[key] = found.name
        return self.winners.get(key, "")

    def _decided(self, work: _Work, args: Sequence[Any]) -> str:
        """Measures and records the winner. The default, in this process only, if that is not possible.

        It is not possible without memory for copies, without time, or with a clock that gives no seconds. If a
        candidate or the user interrupts, nothing is recorded.
        """
        from minductor.runtime.tune.tune_memory import NoRoom

        start, before, known = self.now(), self.measured, len(self.notes)
        is_outer, winner = self.since is None, None
        self.since = start if is_outer else self.since
        try:
            winner = self._winner(work, args)
        except (NoRoom, _ClockFailed) as error:
            self._refuse(work.key, str(error))
        finally:
            if is_outer:
                self.spent, self.since = self.elapsed(), None
        if winner:
            self.keep(work.key, winner)
        self.winners[work.key] = winner.name if winner else work.candidates.default
        notes = tuple(self.notes[known:])
        self.tell(Tuned(work.label, self.now() - start, self.measured - before, notes, winner))
        return self.winners[work.key]

    def elapsed(self) -> float:
        """The seconds that tuning of this graph has taken so far."""
        return self.spent + (0.0 if self.since is None else self.now() - self.since)

    def _winner(self, work: _Work, args: Sequence[Any]) -> Winner | None:
        """The fastest candidate for a call. Restores the contents of the call's tensors. None if no time is left."""
        left = GRAPH_SECONDS - self.elapsed()
        if left <= 0:
            self._refuse(work.key, f"tuning this graph has taken {GRAPH_SECONDS:.0f} s: the default is kept for now")
            return None
        default = work.candidates.default
        run, memory = work.candidates.make(default), work.trial(args)
        try:
            flush = _flush_of(memory, self.cache)
            ends = self.now() + min(left, WORK_SECONDS)
            trial = _Trial(work, args, memory, flush, ends)
            self.put_off = {}
            try:
                runs, least, found = self._descent(trial, run)
            finally:
                self.put_off = None
            least, found = self._final(trial, runs, least, found)
            return Winner(found, work.candidates.about or work.key[:16], work.sizes, least[found], least[default])
        finally:
            memory.restore()

    def _descent(self, trial: _Trial, default_run: Run) -> tuple[dict[str, Run], dict[str, float], str]:
        """The candidates that can win, the seconds of those of the last step, and the one that the search ends at."""
        work, candidates = trial.work, trial.work.candidates
        default = here = candidates.default
        runs, tried, least = {default: default_run}, {default}, {default: 0.0}
        trial.memory.begin()
        self._first_run(trial, default, default_run)
        trial.memory.keep()
        while step := [name for name in candidates.steps(here) if name not in tried]:
            tried.update(step)
            if not (right := self._right(trial, step)):
                break
            runs |= right
            least = self._measured(trial, {default: default_run, here: runs[here], **right})
            before = here if here in least else default
            best = min(least, key=lambda name: least[name])
            here = best if _is_clearly_faster(least, best, before) else before
            here = here if _is_clearly_faster(least, here, default) else default  # else an earlier step was luck
            if here in (before, default):
                break
            if self.now() >= trial.ends:
                self._log(f"the time for tuning {work.label} is spent: {here} is the fastest so far")
                break
        return runs, least, here

    def _final(
        self, trial: _Trial, runs: Mapping[str, Run], least: Mapping[str, float], here: str
    ) -> tuple[Mapping[str, float], str]:
        """The seconds of candidates, and the winner once the two best candidates have made the choices they put off.

        `least`: the seconds by which candidates were screened. `here`: the winner of the screening. It stays if no
        other candidate that put off choices is nearly as fast: its own choices are then made when it runs next.
        """
        default, limit = trial.work.candidates.default, NEARLY * min(least.values())
        rivals = [name for name in least if name in trial.unsettled and name != here and least[name] <= limit]
        left = trial.ends - self.now()
        if left <= 0:
            return least, here
        pair = (here, *sorted(rivals, key=lambda name: least[name])[:1])
        for inner in (inner for name in pair for inner in trial.unsettled.get(name, ())):
            inner.prepare(tuple(inner.steps(inner.default)))  # those of several kernels are compiled side by side
        if not rivals:
            return least, here
        right = self._right(replace(trial, ends=math.inf), [name for name in pair if name != default])
        if default in pair:
            trial.memory.begin()
            runs[default](*trial.args)
            right[default] = runs[default]
        # the time that the choices of the two took counts as theirs
        runs = {name: right[name] for name in pair if name in right}
        timed = self._measured(replace(trial, ends=self.now() + left), runs)
        if here not in timed:
            return least, default
        stays, other = pair if pair[1] != default else (default, here)
        won = other if other in timed and _is_clearly_faster(timed, other, stays) else stays
        return {**least, **timed}, won

    def _right(self, trial: _Trial, names: Sequence[str]) -> dict[str, Run]:
        """The candidates of a step that can be made and leave the default's results, by name."""
        candidates = trial.work.candidates
        found: dict[str, Run] = {}
        candidates.prepare(names)
        for name in names:
            if found and self.now() >= trial.ends:
                self._log(f"the time for tuning {trial.work.label} is spent before {name} was tried")
                break
            try:
                run = candidates.make(name)
            except Exception as error:
                reason = str(error) or type(error).__name__
            else:
                reason = self._fault(trial, name, run)
                found |= {} if reason else {name: run}
            if reason:
                self._refuse(self._full_name(trial, name), reason)
            self._tell_progress(trial)
        return found

    def _measured(self, trial: _Trial, runs: Mapping[str, Run]) -> dict[str, float]:
        """The least seconds of a call of each candidate, in rounds over all of them."""
        least = dict.fromkeys(runs, math.inf)
        tries = 1  # in the first round, which tells how long a call takes
        for number in range(ROUNDS):
            if number and self.now() >= trial.ends:
                self._log(f"the time for tuning {trial.work.label} is spent after {number} of {ROUNDS} rounds")
                break
            for name in tuple(least):
                try:
                    taken = self._time(trial, partial(runs[name], *trial.args), tries)
                except (_ClockFailed, ChoiceByClock):
                    raise
                except Exception as error:
                    if name == trial.work.candidates.default:
                        raise
                    self._refuse(self._full_name(trial, name), f"it raises {type(error).__name__}: {error}")
                    del least[name]
                else:
                    least[name] = min(least[name], taken)
                self._tell_progress(trial)
            tries = max(1, min(TRIES, int(ENOUGH / max(least.values(), default=ENOUGH))))
        return least

    def _first_run(self, trial: _Trial, name: str, run: Run) -> None:
        """Runs a candidate for the first time, and records whether it puts off choices of its own."""
        if self.put_off is not None:
            self.put_off.clear()
        run(*trial.args)
        if self.put_off:
            trial.unsettled[name] = tuple(self.put_off.values())

    def _fault(self, trial: _Trial, name: str, run: Run) -> str:
        """The reason why a candidate cannot win; "" if it can."""
        trial.memory.begin()
        try:
            self._first_run(trial, name, run)
            return trial.memory.difference(trial.work.affects)  # which may find no memory for a chunk
        except Exception as error:
            return f"it raises {type(error).__name__}: {error}"

    def _full_name(self, trial: _Trial, name: str) -> str:
        """The name of a candidate for people: behind the kernel's, if that is known."""
        return f"{trial.work.candidates.about} {name}".strip()

    def _refuse(self, name: str, reason: str) -> None:
        """Records why a candidate cannot win, or why some work is not measured."""
        self.refused[name] = reason
        self.notes.append(f"{name}: {reason}")
        self._log(f"not chosen by measure: {name}: {reason}")

    def _log(self, text: str) -> None:
        logging.getLogger("minductor").info("%s", text)

    def _tell_progress(self, trial: _Trial) -> None:
        """Writes a line if tuning takes long. Python shows warnings of a logger also where logging is not set up."""
        elapsed = self.elapsed()
        if elapsed >= self.next_line:
            self.next_line = elapsed + LINES
            logging.getLogger("minductor").warning(
                "tuning takes %.0f s so far: %d measurements, now of %s", elapsed, self.measured, trial.work.label
            )

    def _time(self, trial: _Trial, run: Callable[[], object], tries: int) -> float:
        """The seconds of a call. If a candidate reads what it overwrites, the contents are restored first."""
        memory, affects = trial.memory, trial.work.affects
        if not memory.has_read and trial.flush is None:
            return self.seconds(affects, run, tries)
        least = math.inf
        for _ in range(1 if memory.has_read and memory.is_far else tries):
            memory.rewind()
            if trial.flush is not None:
                trial.flush()
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

        found = self.clock(several)
        if not 0 < found < math.inf:
            raise _ClockFailed(f"the clock gave {found} seconds: the default is kept")
        return found / tries
