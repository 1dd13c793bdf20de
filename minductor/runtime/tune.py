"""Picks one of several ways to do the same: by default, by what won before, or by measuring at the first call.

Takes callables that do the same, what differs if another is taken (bits or time), a clock, and what won before. Gives
one callable, and tells what won, by a digest of the work, to whoever keeps it. Refuses to measure what affects bits
where bits have to be the same each time (ChoiceByClock): there the default is taken.

It knows nothing of kernels, stores or streams. Measuring runs each candidate on the arguments of the call; tensors that
it reads and overwrites are copies then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Protocol

import torch

from minductor.core.errors import ChoiceByClock

Run = Callable[..., Any]
ROUNDS, TRIES = 3, 10  # of all candidates in turn, and calls that each measures at once
GAIN = 0.97  # a candidate has to take less than this share of the default's time: ties stay where they are


class Choose(Protocol):
    """What a wrapper asks: `affects` and the default's name, the candidates, and which arguments they overwrite."""

    def __call__(
        self, digest: str, affects: str, default: str, candidates: Mapping[str, Run], overwritten: Sequence[int]
    ) -> Run: ...


def by_default(
    digest: str, affects: str, default: str, candidates: Mapping[str, Run], overwritten: Sequence[int]
) -> Run:
    """Nobody measures."""
    del digest, affects, overwritten
    return candidates[default]


def wall_clock(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    for _ in range(TRIES):
        run()
    return (time.perf_counter() - start) / TRIES


def device_clock(run: Callable[[], object]) -> float:
    """Seconds of one call on the current GPU, between two events of its stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(TRIES):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / TRIES


def device_name() -> str:
    """The current GPU: what is fastest on one is not on another."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


@dataclass(slots=True)
class Tuner:
    """Who measures. `recall` knows by a digest what won in another process, if anything did; `keep` is told of it."""

    clock: Callable[[Callable[[], object]], float] = wall_clock
    recall: Callable[[str], str | None] = lambda digest: None
    keep: Callable[[str, str], object] = lambda digest, winner: None
    is_deterministic: bool = False
    winners: dict[str, str] = field(default_factory=dict[str, str])
    refused: dict[str, str] = field(default_factory=dict[str, str])  # what could not be made, and why
    measured: int = 0  # how many times the clock was asked
    lock: Any = field(default_factory=RLock)  # measuring a variant may first measure the launches of its own kernel

    def choose(
        self, digest: str, affects: str, default: str, candidates: Mapping[str, Run], overwritten: Sequence[int]
    ) -> Run:
        """The winner; where none is known yet, a function whose first call finds it."""
        if self.is_deterministic and affects == "bits":
            return candidates[default]
        return self.launch(digest, affects, default, tuple(candidates), candidates.__getitem__, overwritten)

    def launch(
        self,
        digest: str,
        affects: str,
        default: str,
        names: Sequence[str],
        make: Callable[[str], Run],
        overwritten: Sequence[int] = (),
    ) -> Run:
        """The same for candidates that have to be made first: of those that cannot be, none wins."""
        if (known := self._known(digest)) in names:
            return make(known)
        found: list[Run] = []

        def first(*args: Any) -> Any:
            if not found:
                with self.lock:
                    won = self.winners.get(digest, "")  # by now an equal one may have been measured
                    if won not in names:
                        made = self._made(names, default, make)
                        won = self._fastest(affects, default, made, _protected(args, overwritten))
                        self._won(digest, won)
                    found.append(make(won))
            return found[0](*args)

        return first

    def _made(self, names: Sequence[str], default: str, make: Callable[[str], Run]) -> dict[str, Run]:
        found: dict[str, Run] = {}
        for name in names:
            try:
                found[name] = make(name)
            except Exception as error:
                if name == default:
                    raise
                self.refused[name] = str(error)
        return found

    def _known(self, digest: str) -> str:
        """What won, here or in another process; "" if nothing has."""
        if digest not in self.winners and (found := self.recall(digest)) is not None:
            self.winners[digest] = found
        return self.winners.get(digest, "")

    def _won(self, digest: str, name: str) -> None:
        self.winners[digest] = name
        self.keep(digest, name)

    def _fastest(self, affects: str, default: str, candidates: Mapping[str, Run], args: Sequence[Any]) -> str:
        """The candidate of the least time, if that is clearly less than the default's."""
        least = dict.fromkeys(candidates, float("inf"))
        for run in candidates.values():
            run(*args)  # what is done once: loading, allocating
        for _ in range(ROUNDS):
            for name, run in candidates.items():
                least[name] = min(least[name], self.seconds(affects, lambda run=run: run(*args)))
        best = min(least, key=lambda name: least[name])
        return best if default not in least or least[best] < GAIN * least[default] else default

    def seconds(self, affects: str, run: Callable[[], object]) -> float:
        """The only way to the clock: whoever asks says what depends on the answer."""
        if self.is_deterministic and affects == "bits":
            raise ChoiceByClock(affects)
        self.measured += 1
        return self.clock(run)


def _protected(args: Sequence[Any], overwritten: Sequence[int]) -> list[Any]:
    """The arguments, with copies of those that must not change; a copy is no longer than from first to last element."""
    return [_copy(arg) if number in overwritten else arg for number, arg in enumerate(args)]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return tensor
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.as_strided((extent,), (1,))
    return flat.clone().as_strided(tensor.shape, tensor.stride(), 0)
