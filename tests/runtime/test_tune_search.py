"""The search among candidates: which are measured and in which order, what it may take, and what interrupts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.ir.artefact.winner import Winner
from minductor.ir.program.choices import neighbours
from minductor.runtime.tune import tune, tune_memory
from minductor.runtime.tune.tune import Candidates, Tuned, Tuner
from minductor.runtime.tune.tune_memory import TrialMemory, cache_flush

OPTIONS = {"warps": (1, 2, 4, 8), "block": (16, 32, 64, 128)}


def named(warps: int, block: int) -> str:
    return f"warps={warps} block={block}"


@dataclass
class Grid:
    """A candidate for each pair of options. They add 1 to their arguments, and take the seconds of a function."""

    seconds: Callable[..., float]
    default: str = named(2, 32)
    now: float = 0.0
    wall: float = 0.0  # seconds of the user that each run takes
    ran: list[str] = field(default_factory=list[str])
    events: list[str | tuple[str, ...]] = field(default_factory=list["str | tuple[str, ...]"])
    asked: list[str] = field(default_factory=list[str])  # what was measured
    kept: dict[str, Winner] = field(default_factory=dict[str, Winner])
    interrupted: str = ""  # what Ctrl-C interrupts, once:
    until: int = 0  # after so many of its kind

    def interrupt(self, kind: str) -> None:
        if kind == self.interrupted:
            self.until -= 1
            if self.until == -1:
                raise KeyboardInterrupt

    def config(self, name: str) -> dict[str, int]:
        return {key: int(option) for key, option in (part.split("=") for part in name.split())}

    def make(self, name: str) -> Callable[..., str]:
        self.events.append(name)
        self.interrupt("make")

        def run(*args: Tensor) -> str:
            self.ran.append(name)
            self.now += self.wall
            for arg in args:
                arg += 1
            self.interrupt("run")
            return name

        return run

    def steps(self, name: str) -> Iterator[str]:
        return (named(**config) for config in neighbours(OPTIONS, self.config(name)))

    def has(self, name: str) -> bool:
        return name in {named(warps, block) for warps in OPTIONS["warps"] for block in OPTIONS["block"]}

    def prepare(self, names: Sequence[str]) -> None:
        self.events.append(tuple(names))
        self.interrupt("prepare")

    def candidates(self) -> Candidates:
        return Candidates(self.default, self.make, self.steps, self.has, self.prepare, "k_0")

    def clock(self, run: Callable[[], object]) -> float:
        name = str(run())
        self.asked.append(name)
        self.interrupt("clock")
        return self.seconds(**self.config(name))

    def keep(self, work: str, winner: Winner) -> None:
        self.interrupt("keep")
        self.kept[work] = winner

    def tuner(self, **given: Any) -> Tuner:
        return Tuner(**{"clock": self.clock, "keep": self.keep, "now": lambda: self.now, **given})

    def chosen(self, tuner: Tuner, work: str = "work", *args: Tensor) -> str:
        return tuner.launch(work, "perf", self.candidates(), tuple(range(len(args))))(*args)


def away_from(warps: int, block: int) -> Callable[..., float]:
    """Seconds that grow with the distance from one pair of options."""
    best = {"warps": warps, "block": block}
    return lambda **config: 1.0 + sum(abs(math.log2(config[name] / option)) for name, option in best.items())


# --- the way through the candidates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("warps", "block"), [(8, 128), (1, 128), (8, 16), (2, 64), (2, 32)])
def test_the_search_goes_to_a_candidate_that_differs_in_several_choices(warps: int, block: int) -> None:
    grid = Grid(away_from(warps, block))
    assert grid.chosen(grid.tuner()) == named(warps, block)
    assert grid.kept["work"].name == named(warps, block)
    assert len(set(grid.asked)) < 16, "not all are measured"


def test_each_step_goes_on_from_the_fastest_so_far() -> None:
    grid = Grid(away_from(4, 64))
    assert grid.chosen(grid.tuner()) == named(4, 64)
    steps = [set(step) for step in grid.events if isinstance(step, tuple)]
    assert steps == [
        {named(1, 32), named(4, 32), named(2, 16), named(2, 64)},
        {named(8, 32), named(4, 16), named(4, 64)},
        {named(8, 64), named(4, 128)},
    ], "a step has the neighbours that were not tried before"


def test_the_candidates_of_a_step_are_prepared_together_before_one_is_made() -> None:
    grid = Grid(away_from(4, 32))
    grid.chosen(grid.tuner())
    default, step, *made = grid.events
    assert default == grid.default and made[:4] == list(step) and len(step) == 4


def test_where_no_step_is_clearly_faster_the_default_stays() -> None:
    grid = Grid(lambda warps, block: 1.0 - 0.01 * (block == 64) - 0.5 * (warps == 8))
    assert grid.chosen(grid.tuner()) == grid.default, "what is fast two steps away is not seen"
    assert len(grid.asked) == tune.ROUNDS * 5


def test_rounds_are_interleaved_and_measure_the_default_in_each_step() -> None:
    grid = Grid(away_from(4, 64))
    tuner = grid.tuner()
    grid.chosen(tuner)
    first = grid.asked[:5]
    assert len(set(first)) == 5 and grid.asked[: 5 * tune.ROUNDS] == first * tune.ROUNDS
    second = grid.asked[5 * tune.ROUNDS :][:5]
    assert second[:2] == [grid.default, named(4, 32)], "the default, and where the step begins"


def test_a_machine_that_grows_slow_and_fast_again_makes_no_winner() -> None:
    """What is measured later seems faster; all are measured beside the default."""
    speed = [1.0]

    def seconds(warps: int, block: int) -> float:
        speed[0] *= 0.9999
        return speed[0]

    grid = Grid(seconds)
    assert grid.chosen(grid.tuner()) == grid.default


@pytest.mark.parametrize("later", [2.0, 0.99])
def test_a_step_that_was_luck_is_taken_back(later: float) -> None:
    """One candidate seems fast in the first step; in the second, it is not clearly faster than the default."""
    grid = Grid(lambda warps, block: 0.0)

    def seconds(warps: int, block: int) -> float:
        if len(grid.asked) <= tune.ROUNDS * 5:
            return 0.5 if (warps, block) == (4, 32) else 1.0
        return {(2, 32): 1.0, (4, 32): later}.get((warps, block), 1.5)

    grid.seconds = seconds
    assert grid.chosen(grid.tuner()) == grid.default == grid.kept["work"].name
    assert len(grid.asked) > tune.ROUNDS * 5


def test_a_step_from_the_second_candidate_has_to_be_clearly_faster_than_it() -> None:
    grid = Grid(lambda warps, block: 1.0 if warps != 4 else 0.5 - 0.01 * (block == 64))
    assert grid.chosen(grid.tuner()) == named(4, 32)


def test_a_slow_candidate_is_called_fewer_times() -> None:
    for seconds, calls in ((1.0, 1), (tune.ENOUGH / 4, 4), (1e-6, tune.TRIES)):
        grid = Grid(lambda warps, block: math.nan)
        runs = {"default": grid.make("default"), "other": grid.make("other")}

        def clock(run: Callable[[], object], seconds: float = seconds, grid: Grid = grid) -> float:
            before = len(grid.ran)
            run()
            return seconds * (len(grid.ran) - before)

        tuner = Tuner(clock)
        tuner.choose("work", "perf", "default", runs, ())()
        in_rounds = 2 * (1 + (tune.ROUNDS - 1) * calls)  # the first round calls each once
        assert len(grid.ran) == 2 + in_rounds + 1, "two for the results, and the call of the winner"
        assert tuner.measured == 2 * tune.ROUNDS


# --- seconds --------------------------------------------------------------------------------------------------------


def test_the_best_so_far_wins_when_the_seconds_for_a_kernel_are_spent(caplog: pytest.LogCaptureFixture) -> None:
    grid = Grid(away_from(8, 128), wall=tune.WORK_SECONDS / 19)
    with caplog.at_level("INFO", "minductor"):
        found = grid.chosen(grid.tuner())
    assert found == named(4, 32) == grid.kept["work"].name, "one step and not five"
    assert any("the time for tuning k_0 is spent" in text for text in caplog.messages)


def test_one_round_is_measured_however_long_a_call_takes() -> None:
    grid = Grid(away_from(4, 32), wall=2 * tune.WORK_SECONDS)
    grid.chosen(grid.tuner())
    assert grid.asked == [grid.default, named(1, 32)], "the first candidate, in one round"


def test_kernels_keep_their_defaults_when_the_seconds_for_a_graph_are_spent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "GRAPH_SECONDS", 2.7)
    grid = Grid(away_from(8, 128), wall=0.3)
    tuner = grid.tuner()
    assert grid.chosen(tuner, "first") != grid.default
    assert tune.GRAPH_SECONDS <= tuner.elapsed() < tune.WORK_SECONDS and tuner.since is None
    grid.wall, measured = 0.0, tuner.measured
    with caplog.at_level("INFO", "minductor"):
        assert grid.chosen(tuner, "second") == grid.default
    assert tuner.measured == measured and grid.kept.keys() == {"first"}, "another process may measure it"
    assert "tuning this graph has taken 3 s" in caplog.text
    assert grid.chosen(grid.tuner(), "second") == named(8, 128)


def test_a_kernel_that_is_measured_inside_another_counts_once() -> None:
    grid = Grid(away_from(2, 32), wall=1.0)
    tuner = grid.tuner()
    inner = tuner.launch("inner", "perf", grid.candidates())
    tuner.launch("outer", "perf", Candidates.among("a", ("a", "b"), {"a": inner, "b": inner}.__getitem__))()
    assert tuner.spent == len(grid.ran) - 1, "each run takes a second, and the last one is no tuning"
    assert tuner.since is None and {*grid.kept} == {"inner", "outer"}


def test_a_line_tells_the_progress_of_what_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    grid = Grid(away_from(2, 32), wall=0.001)
    grid.chosen(grid.tuner())
    assert caplog.messages == [], "less than a second"
    grid = Grid(away_from(2, 32), wall=0.5)
    tuner = grid.tuner()
    for work in range(3):
        grid.chosen(tuner, str(work))
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert lines[0].startswith("tuning takes 1 s so far: 0 measurements, now of k_0")
    assert len(lines) == 1 + (tuner.spent - tune.FIRST_LINE) // tune.LINES, "a line each ten seconds"


def test_what_was_measured_is_told() -> None:
    told: list[Tuned] = []
    grid = Grid(away_from(4, 32), wall=0.01)
    tuner = grid.tuner(tell=told.append)
    launch = tuner.launch("work", "perf", grid.candidates(), (), (), ())
    launch()
    launch()
    (one,) = told
    assert (one.label, one.measured, one.notes) == ("k_0", tuner.measured, ())
    assert one.seconds == pytest.approx(0.01 * (len(grid.ran) - 2))
    assert one.winner == Winner(named(4, 32), "k_0", (), 1.0, 2.0) == grid.kept["work"]


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("good", [0, 1, 7, 20], ids="after {} good ones".format)
def test_a_clock_that_gives_no_seconds_decides_nothing(given: float, good: int) -> None:
    grid = Grid(away_from(8, 128))
    told: list[Tuned] = []

    def clock(run: Callable[[], object]) -> float:
        found = grid.clock(run)
        return found if len(grid.asked) <= good else given

    tuner, held = grid.tuner(clock=clock, tell=told.append), torch.zeros(3)
    assert grid.chosen(tuner, "work", held) == grid.default
    assert held.tolist() == [1.0] * 3, "one run"
    assert grid.kept == {} and "the clock gave" in tuner.refused["work"] and told[0].winner is None
    asked = len(grid.asked)
    assert grid.chosen(tuner, "work", held) == grid.default and len(grid.asked) == asked, "nor is it asked again"


@pytest.mark.parametrize(
    ("where", "after"), [*((where, n) for where in ("prepare", "make", "run", "clock") for n in range(4)), ("keep", 0)]
)
def test_ctrl_c_leaves_nothing_half_done(where: str, after: int) -> None:
    grid = Grid(away_from(8, 128), interrupted=where, until=after)
    tuner, held = grid.tuner(), torch.arange(6.0)
    chosen = tuner.launch("work", "perf", grid.candidates(), (0,))
    with pytest.raises(KeyboardInterrupt):
        chosen(held.view(2, 3).t())
    assert torch.equal(held, torch.arange(6.0)) and (grid.kept, tuner.winners) == ({}, {})
    assert tuner.since is None and tuner.elapsed() == 0
    assert chosen(held.view(2, 3).t()) == named(8, 128), "the next call measures"
    assert torch.equal(held, torch.arange(1.0, 7.0)) and grid.kept["work"].name == named(8, 128)


def test_a_candidate_that_raises_late_is_out() -> None:
    runs: list[str] = []

    def run(name: str, last: int) -> Callable[..., str]:
        def candidate() -> str:
            runs.append(name)
            if runs.count(name) > last:
                raise RuntimeError(f"{name} is out of memory")
            return name

        return candidate

    times = {"default": 3.0, "late": 1.0, "good": 2.0}
    candidates = {"default": run("default", 99), "late": run("late", 2), "good": run("good", 99)}
    tuner = Tuner(lambda run: times[str(run())])
    assert tuner.choose("work", "perf", "default", candidates, ())() == "good"
    assert tuner.refused == {"late": "it raises RuntimeError: late is out of memory"}
    with pytest.raises(RuntimeError, match="default is out of memory"):
        Tuner(lambda run: times[str(run())]).choose("work", "perf", "default", {"default": run("default", 0)}, ())()


def test_what_cannot_be_compared_or_made_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(memory: TrialMemory, affects: str) -> str:
        raise torch.OutOfMemoryError("no memory for a chunk")

    def unmade(name: str) -> Callable[..., str]:
        if name != grid.default:
            raise RuntimeError
        return make(name)

    monkeypatch.setattr(TrialMemory, "difference", scarce)
    for way, reason in (("compare", "it raises OutOfMemoryError: no memory for a chunk"), ("make", "RuntimeError")):
        grid = Grid(away_from(4, 32))
        make = grid.make
        if way == "make":
            grid.make = unmade
        tuner, held = grid.tuner(), torch.zeros(2)
        assert grid.chosen(tuner, "work", held) == grid.default and held.tolist() == [1, 1]
        assert tuner.refused["k_0 warps=4 block=32"] == reason


def test_a_recorded_winner_that_is_no_candidate_is_decided_again() -> None:
    for old in ("warps=64 block=32", "", "by hand"):
        grid = Grid(away_from(4, 32))
        assert grid.chosen(grid.tuner(recall={"work": Winner(old)}.get)) == named(4, 32) == grid.kept["work"].name


def test_a_recorded_winner_that_cannot_be_made_any_more_is_decided_again() -> None:
    grid = Grid(away_from(1, 32))
    make = grid.make

    def failing(name: str) -> Callable[..., str]:
        if name == named(1, 32):
            raise RuntimeError("it does not load")
        return make(name)

    grid.make = failing
    tuner = grid.tuner(recall={"work": Winner(named(1, 32))}.get)
    assert grid.chosen(tuner) == grid.default == grid.kept["work"].name
    assert tuner.refused["k_0, recorded as warps=1 block=32"] == "it does not load"


# --- a cold cache ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwritten", [(), (0,)])
def test_the_cache_is_emptied_before_each_run_that_is_measured(
    overwritten: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(tune_memory, "cache_flush", lambda memory, cache: partial(order.append, "flush"))

    def run(name: str, x: Tensor) -> str:
        order.append("run")
        return name

    def clock(run: Callable[[], object]) -> float:
        order.append("start")
        run()
        return 1e-3

    candidates = {name: partial(run, name) for name in ("a", "b")}
    tuner = Tuner(clock)
    tuner.choose("work", "perf", "a", candidates, overwritten, (0,))(torch.zeros(4))
    calls = 2 * (1 + (tune.ROUNDS - 1) * tune.TRIES)
    assert order == ["run", "run", *["flush", "start", "run"] * calls, "run"] and tuner.measured == calls


def test_the_cache_is_emptied_for_tensors_that_are_large_for_it() -> None:
    def flushed(count: int, size: int) -> object:
        args = (torch.zeros(count, dtype=torch.uint8), torch.ones(count, dtype=torch.uint8), 3)
        return cache_flush(TrialMemory(args, (), (1,)), lambda device: size)

    size = 1 << 16
    assert flushed(size, size) is not None and flushed(size // tune_memory.COLD_SHARE, size) is not None
    assert flushed(size // tune_memory.COLD_SHARE // 2, size) is None, "the kernel before left them there"
    assert flushed(size, 0) is None, "a device without such a cache"
    assert flushed(size, 4 * size // 2) is not None
    large = 4 * tune_memory.SMALL
    assert flushed(large, large) is None, "the buffer would raise the peak"
    assert flushed(10 * large + 1, large) is not None, "one in twenty bytes of the arguments"


def test_without_memory_for_it_the_cache_is_not_emptied(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = TrialMemory((torch.zeros(1 << 16),), (), (0,))

    def none(*size: object, **given: object) -> Tensor:
        raise torch.OutOfMemoryError("in pieces")

    assert cache_flush(memory, lambda device: 1 << 16) is not None
    monkeypatch.setattr(torch, "empty", none)
    assert cache_flush(memory, lambda device: 1 << 16) is None


def test_a_flush_writes_as_much_as_the_cache_holds() -> None:
    memory = TrialMemory((torch.zeros(1 << 16),), (), (0,))
    flush: Any = cache_flush(memory, lambda device: 12345)
    assert flush.__self__.numel() * flush.__self__.element_size() == 12345
    flush.__self__.fill_(1)
    flush()
    assert not flush.__self__.any()
