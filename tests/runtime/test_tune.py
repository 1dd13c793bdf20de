"""Choices by measure, with clocks and candidates of our own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest
import torch

from minductor.core.errors import ChoiceByClock
from minductor.runtime.tune import Tuner


@dataclass
class Lane:
    """Candidates that take a number of seconds which they say, and a clock that believes them."""

    times: dict[str, float]
    ran: list[str] = field(default_factory=list[str])

    def run(self, name: str) -> Callable[..., str]:
        def candidate(*args: Any) -> str:
            self.ran.append(name)
            for arg in args:
                arg += 1
            return name

        return candidate

    def candidates(self) -> dict[str, Callable[..., str]]:
        return {name: self.run(name) for name in self.times}

    def clock(self, run: Callable[[], object]) -> float:
        run()
        return self.times[self.ran[-1]]


def test_the_fastest_wins_once() -> None:
    lane, kept = Lane({"extern": 2.0, "native": 1.0}), dict[str, str]()
    tuner = Tuner(lane.clock, keep=kept.__setitem__)
    chosen = tuner.choose("work", "bits", "extern", lane.candidates(), ())
    assert lane.ran == [], "nothing is measured before the first call"
    assert chosen() == "native" and kept == {"work": "native"}
    measured = tuner.measured
    assert chosen() == "native" and tuner.measured == measured
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "native", "equal work is measured once"
    assert tuner.measured == measured


def test_a_variant_whose_kernel_has_a_choice_of_its_own_is_measured_with_its_winner() -> None:
    lane = Lane({"warps=4": 2.0, "warps=8": 1.0, "extern": 3.0})
    run = lane.candidates()
    tuner = Tuner(lambda run: lane.times[str(run())])
    kernel = tuner.choose("kernel", "perf", "warps=4", {name: run[name] for name in ("warps=4", "warps=8")}, ())
    variants = {"extern": run["extern"], "native": lambda: kernel()}
    chosen = tuner.choose("work", "bits", "extern", variants, ())
    found: list[object] = []
    thread = Thread(target=lambda: found.append(chosen()), daemon=True)
    thread.start()
    thread.join(20)
    assert found == ["warps=8"], "the two choices do not wait for each other"
    assert tuner.winners == {"kernel": "warps=8", "work": "native"}


def test_a_tie_stays_with_the_default() -> None:
    lane = Lane({"native": 0.99, "extern": 1.0})
    assert Tuner(lane.clock).choose("work", "bits", "extern", lane.candidates(), ())() == "extern"


def test_a_warm_start_measures_nothing() -> None:
    lane = Lane({"extern": 1.0, "native": 2.0})
    tuner = Tuner(lane.clock, recall={"work": "native"}.get)
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "native"
    assert tuner.measured == 0 and lane.ran == ["native"]


def test_what_was_kept_of_another_version_is_measured_again() -> None:
    lane = Lane({"extern": 1.0, "native": 2.0})
    tuner = Tuner(lane.clock, recall={"work": "by hand"}.get)
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "extern"


def test_no_clock_decides_about_bits_where_they_must_not_change() -> None:
    lane = Lane({"extern": 2.0, "native": 1.0})
    tuner = Tuner(lane.clock, recall={"work": "native"}.get, is_deterministic=True)
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "extern"
    assert tuner.choose("other", "perf", "extern", lane.candidates(), ())() == "native"
    with pytest.raises(ChoiceByClock):
        tuner.seconds("bits", lambda: None)


def test_measuring_changes_nothing_that_is_overwritten() -> None:
    lane = Lane({"extern": 2.0, "native": 1.0})
    held = torch.zeros(4, 6)
    window, out = held.t()[1:5:2], torch.zeros(3)
    chosen = Tuner(lane.clock).choose("work", "bits", "extern", lane.candidates(), (0,))
    chosen(window, out)
    assert held.sum() == window.numel() == 8, "one call"
    assert out[0] > 1, "the others need no copy"


def test_what_cannot_be_made_is_no_candidate() -> None:
    lane = Lane({"default": 3.0, "much": 1.0, "less": 2.0})
    made: list[str] = []

    def make(name: str) -> Callable[..., str]:
        made.append(name)
        if name == "much":
            raise RuntimeError("too much shared memory")
        return lane.run(name)

    tuner = Tuner(lane.clock)
    chosen = tuner.launch("work", "perf", "default", tuple(lane.times), make)
    assert made == [] and chosen() == "less" and chosen() == "less"
    assert tuner.refused == {"much": "too much shared memory"}
    assert sorted(made) == ["default", "less", "less", "much"], "what lost is made once"
    warm = Tuner(lane.clock, recall=tuner.winners.get)
    assert warm.launch("work", "perf", "default", tuple(lane.times), make)() == "less" and warm.measured == 0


def test_a_default_that_cannot_be_made_is_an_error() -> None:
    def make(name: str) -> Callable[..., str]:
        raise RuntimeError(name)

    with pytest.raises(RuntimeError, match="default"):
        Tuner().launch("work", "perf", "default", ("default", "other"), make)()
