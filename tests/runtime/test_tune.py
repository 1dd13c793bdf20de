"""Choices by measure, with clocks and candidates of our own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.core.errors import ChoiceByClock
from minductor.ir.artefact.winner import Winner
from minductor.runtime.tune import tune_memory
from minductor.runtime.tune.tune import Candidates, Tuner
from minductor.runtime.tune.tune_memory import NoRoom, TrialMemory


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
    lane, kept = Lane({"extern": 2.0, "native": 1.0}), dict[str, Winner]()
    tuner = Tuner(lane.clock, keep=kept.__setitem__)
    chosen = tuner.choose("work", "bits", "extern", lane.candidates(), ())
    assert lane.ran == [], "nothing is measured before the first call"
    assert chosen() == "native" and kept == {"work": Winner("native", "work", (), 1.0, 2.0)}
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
    tuner = Tuner(lane.clock, recall={"work": Winner("native")}.get)
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "native"
    assert tuner.measured == 0 and lane.ran == ["native"]


def test_what_was_kept_of_another_version_is_measured_again() -> None:
    lane = Lane({"extern": 1.0, "native": 2.0})
    tuner = Tuner(lane.clock, recall={"work": Winner("by hand")}.get)
    assert tuner.choose("work", "bits", "extern", lane.candidates(), ())() == "extern"


def test_no_clock_decides_about_bits_where_they_must_not_change() -> None:
    lane = Lane({"extern": 2.0, "native": 1.0})
    tuner = Tuner(lane.clock, recall={"work": Winner("native")}.get, is_deterministic=True)
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
    chosen = tuner.launch("work", "perf", Candidates.among("default", tuple(lane.times), make))
    assert made == [] and chosen() == "less" and chosen() == "less"
    assert tuner.refused == {"much": "too much shared memory"}
    assert sorted(made) == ["default", "less", "less", "much"], "what lost is made once"
    warm = Tuner(lane.clock, recall={"work": Winner("less")}.get)
    assert warm.launch("work", "perf", Candidates.among("default", tuple(lane.times), make))() == "less"
    assert warm.measured == 0


def test_a_default_that_cannot_be_made_is_an_error() -> None:
    def make(name: str) -> Callable[..., str]:
        raise RuntimeError(name)

    with pytest.raises(RuntimeError, match="default"):
        Tuner().launch("work", "perf", Candidates.among("default", ("default", "other"), make))()


# --- what candidates leave in memory ------------------------------------------------------------------------------


def fast(name: str, *slow: str) -> Callable[[Callable[[], object]], float]:
    """A clock by which one candidate is the fastest; the candidates return their names."""
    times = {name: 0.5, **dict.fromkeys(slow, 1.0)}
    return lambda run: times[str(run())]


def good(x: Tensor, out: Tensor) -> str:
    out.copy_(x * 2)
    return "good"


def tuned(bad: Callable[[Tensor, Tensor], object], x: Tensor, out: Tensor, affects: str = "perf") -> Tuner:
    """A tuner that chose between `good` and a faster candidate, for a call with these tensors."""

    def other(*args: Tensor) -> str:
        bad(*args)
        return "bad"

    tuner = Tuner(fast("bad", "good"))
    tuner.choose("work", affects, "good", {"good": good, "bad": other}, (), (1,))(x, out)
    return tuner


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda x, out: out.fill_(math.nan), r"argument 1, element 0 is nan, where the default has 0\.0"),
        (lambda x, out: out.copy_(x * 3), r"argument 1, element 66 is 198\.0, where the default has 132\.0"),
        (lambda x, out: None, r"argument 1, element \d+ is .*, where the default has "),
        (lambda x, out: out[:-1].copy_(x[:-1] * 2), r"argument 1, element 131071 is .*, where the default has 262142"),
        (lambda x, out: out.copy_(x * 2)[7].fill_(math.inf), r"argument 1, element 7 is inf, where the default has 14"),
        (lambda x, out: out[1 << 20], "it raises IndexError: index 1048576 is out of bounds"),
    ],
    ids=["NaN", "other numbers", "nothing", "all but the last", "infinity", "an error"],
)
def test_a_candidate_with_other_results_does_not_win(bad: Callable[[Tensor, Tensor], object], reason: str) -> None:
    x = torch.arange(float(1 << 17))
    out = x * 2  # where the results were before, as in memory that is used again
    tuner = tuned(bad, x, out)
    assert tuner.winners == {"work": "good"} and torch.equal(out, x * 2)
    assert re.match(reason, tuner.refused["bad"]), tuner.refused


def test_a_candidate_that_rounds_otherwise_may_win() -> None:
    special = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-30, 1e30])
    for dtype, relative in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2), (torch.float64, 1e-10)):
        x, out = torch.cat((torch.randn(500), special)).to(dtype), torch.zeros(507, dtype=dtype)
        factor = 2 * (1 + relative)
        assert tuned(lambda x, out, f=factor: out.copy_(x * f), x, out).winners == {"work": "bad"}
        assert tuned(lambda x, out: out.copy_(x * 2.5), x, out).winners == {"work": "good"}
    x = torch.complex(torch.randn(50), torch.randn(50))
    assert tuned(lambda x, out: out.copy_(x * 2), x, torch.zeros_like(x)).winners == {"work": "bad"}
    assert tuned(lambda x, out: out.copy_(x.conj() * 2), x, torch.zeros_like(x)).winners == {"work": "good"}


def test_integers_differ_only_where_bits_may() -> None:
    x = torch.arange(1000)

    def rounded(x: Tensor, out: Tensor) -> None:
        out.copy_(x * 2)
        out[500] += 1

    assert tuned(rounded, x, torch.zeros_like(x)).winners == {"work": "good"}
    assert tuned(rounded, x, torch.zeros_like(x), "bits").winners == {"work": "bad"}
    assert tuned(lambda x, out: out.copy_(x * 2 + (x % 50 == 0)), x, torch.zeros_like(x), "bits").winners == {
        "work": "good"
    }


def test_results_are_compared_where_nobody_says_what_candidates_write() -> None:
    x, out = torch.arange(9.0), torch.zeros(9)
    bad = {"good": good, "bad": lambda x, out: out.fill_(math.nan) is out and "bad"}
    tuner = Tuner(fast("bad", "good"))
    tuner.choose("work", "perf", "good", bad, ())(x, out)
    assert tuner.winners == {"work": "good"} and torch.equal(out, x * 2)
    same = {"good": good, "same": lambda x, out: good(x, out) and "same"}
    tuner = Tuner(fast("same", "good"))
    tuner.choose("work", "perf", "good", same, ())(x, out)
    assert tuner.winners == {"work": "same"}


@pytest.mark.parametrize("least", [-1e4, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("share", [0.001, 0.5], ids=["one in a thousand", "every second"])
def test_values_of_a_mask_hide_no_difference(least: float, share: float) -> None:
    is_masked = torch.arange(1000) % round(1 / share) == 0
    x, out = torch.randn(1000).masked_fill(is_masked, least / 2), torch.zeros(1000)
    small, masked = x.masked_fill(is_masked, 0), x.masked_fill(~is_masked, 0)
    assert tuned(lambda x, out: out.copy_(2 * masked + 3 * small), x, out).winners == {"work": "good"}
    assert tuned(lambda x, out: out.copy_(2 * small), x, out).winners == {"work": "good"}
    assert tuned(lambda x, out: out.copy_(2 * x + 1e-5), x, out).winners == {"work": "bad"}


@pytest.mark.parametrize("period", [2, 64, 4096])
def test_values_of_a_mask_hide_no_difference_in_a_large_chunk(period: int) -> None:
    """Typical sizes are those of a sample, which must not consist of the masked columns."""
    x = torch.ones(tune_memory.MOST_CHUNK // 4)
    x[::period] = -1e9
    wrong = tune_memory._wrong((x + 0.5 * (x > 0)).view(torch.uint8), x.view(torch.uint8), x.dtype)
    assert int(wrong.sum()) == x.numel() - x.numel() // period


def test_each_run_begins_with_what_was_there() -> None:
    """A kernel that moves the places it reads would leave its table in the second of several runs."""
    places, table, out = torch.tensor([0, 1]), torch.tensor([5.0, 6.0, 7.0]), torch.zeros(2)

    def step(places: Tensor, table: Tensor, out: Tensor) -> str:
        places += 1
        out.copy_(table[places])
        return "step"

    candidates = {"step": step, "same": lambda *args: step(*args) and "same"}
    tuner = Tuner(fast("same", "step"))
    tuner.choose("work", "perf", "step", candidates, (0,), (0, 2))(places, table, out)
    assert tuner.winners == {"work": "same"} and (places.tolist(), out.tolist()) == ([1, 2], [6.0, 7.0])


def test_arguments_in_one_memory_stay_so_and_are_copied_once() -> None:
    held = torch.arange(12.0)
    low, high = held[:8], held[4:]

    def run(low: Tensor, high: Tensor) -> str:
        low += 1
        high *= 2
        return "run"

    right = held.clone()
    run(right[:8], right[4:])
    memory = TrialMemory((low, high), (0, 1))
    assert [span.before.numel() for span in memory.spans] == [12 * 4]
    Tuner(fast("same", "run")).choose(
        "work", "perf", "run", {"run": run, "same": lambda *args: run(*args) and "same"}, (0, 1)
    )(low, high)
    assert torch.equal(held, right)


@pytest.mark.parametrize(
    ("size", "stride", "length"),
    [((4, 6), (1, 4), 24), ((6, 4), (8, 1), 44), ((3, 5), (2, 7), 33), ((2, 3), (1, 20), 42), ((), (), 1)],
    ids=["transposed", "rows with gaps", "both strided", "columns far apart", "one element"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool], ids=str)
def test_a_copy_is_flat_and_of_the_length_that_is_needed(
    size: tuple[int, ...], stride: tuple[int, ...], length: int, dtype: torch.dtype
) -> None:
    held = torch.randint(0, 255, (64 * dtype.itemsize,), dtype=torch.uint8)
    held = held % 2 if dtype == torch.bool else held
    before, arg = held.clone(), held.view(dtype).as_strided(size, stride, 5)
    for overwritten, written in (((0,), (0,)), ((), (0,))):
        memory = TrialMemory((arg,), overwritten, written)
        (span,) = memory.spans
        assert (span.before.dim(), span.before.dtype) == (1, torch.uint8)
        assert span.before.numel() == span.results.numel() == length * dtype.itemsize
        memory.begin()
        arg.fill_(1)
        held[: 5 * dtype.itemsize].fill_(0)  # another tensor's, which is no business of the copy
        held[5 * dtype.itemsize :][: length * dtype.itemsize].fill_(1)  # what lies between the elements
        memory.restore()
        assert torch.equal(held[5 * dtype.itemsize :], before[5 * dtype.itemsize :])
        assert not held[: 5 * dtype.itemsize].any()


def test_what_is_only_written_counts_as_read_where_an_input_shares_its_memory() -> None:
    held = torch.arange(8.0)

    def run(x: Tensor, out: Tensor) -> str:
        out.copy_((x * 2)[2:])
        return "run"

    right = held.clone()
    run(right, right[:6])
    candidates = {"run": run, "same": lambda *args: run(*args) and "same"}
    Tuner(fast("same", "run")).choose("work", "perf", "run", candidates, (), (1,))(held, held[:6])
    assert torch.equal(held, right)


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RuntimeError])
def test_an_error_while_measuring_leaves_all_as_it_was(fault: type[BaseException]) -> None:
    held, out = torch.arange(6.0), torch.full((6,), 3.0)

    def run(held: Tensor, out: Tensor) -> str:
        held += 1
        out.copy_(held)
        return "run"

    def clock(run: Callable[[], object]) -> float:
        run()
        raise fault

    with pytest.raises(fault):
        Tuner(clock).choose("work", "perf", "run", {"run": run, "same": run}, (0,), (0, 1))(held, out)
    assert torch.equal(held, torch.arange(6.0)) and torch.equal(out, torch.full((6,), 3.0))


def test_nothing_is_measured_without_room_for_copies() -> None:
    lane, kept = Lane({"extern": 2.0, "native": 1.0}), dict[str, Winner]()
    tuner = Tuner(lane.clock, keep=kept.__setitem__, room=lambda: 1 << 20)
    held = torch.zeros(1 << 20)
    chosen = tuner.choose("work", "bits", "extern", lane.candidates(), (0,))
    assert chosen(held) == chosen(held) == "extern" and (tuner.measured, kept) == (0, {})
    assert held[0] == 2 and lane.ran == ["extern", "extern"]
    assert tuner.refused["work"].endswith("and the host has 1048576 left")
    assert tuner.choose("small", "bits", "extern", lane.candidates(), (0,))(held[:100]) == "native"


def test_copies_are_kept_by_the_host_where_the_device_has_no_piece_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    take = TrialMemory._take

    def scarce(memory: TrialMemory, *, is_near: bool) -> None:
        asked.append(is_near)
        if is_near:
            raise torch.OutOfMemoryError("in pieces")
        take(memory, is_near=is_near)

    monkeypatch.setattr(TrialMemory, "_take", scarce)
    held = torch.zeros(100)
    memory = TrialMemory((held,), (0,))
    held += 1
    memory.restore()
    assert asked == [True, False] and held.sum() == 0
    with pytest.raises(NoRoom, match="take 800 bytes, and the host has 799 left"):
        TrialMemory((held,), (0,), room=lambda: 799)


def test_copies_and_what_compares_them_take_a_tenth_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_memory, "SMALL", 0)
    given, asked = 128 << 20, list[int]()

    def room() -> int:
        asked.append(1)
        return 1 << 40

    for size, is_far in ((given // 40, False), (given // 40 + 4096, True)):
        asked.clear()
        x, out = (torch.zeros(count, dtype=torch.uint8) for count in (given - size, size))
        memory = TrialMemory((x, out), (1,), (1,), room)
        assert bool(asked) == is_far, "two copies, of the contents and of the results"
        assert memory.chunk * tune_memory.COMPARED <= memory.given // 20


def test_nothing_is_measured_while_a_stream_is_captured() -> None:
    lane, captures = Lane({"extern": 2.0, "native": 1.0}), [True, False]
    tuner = Tuner(lane.clock, is_captured=lambda: captures.pop(0))
    chosen = tuner.choose("work", "bits", "extern", lane.candidates(), ())
    assert chosen() == "extern" and (lane.ran, tuner.measured) == (["extern"], 0)
    assert chosen() == "native" and tuner.winners == {"work": "native"}, "a later call measures"


def test_why_a_candidate_does_not_win_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "minductor"):
        tuned(lambda x, out: out.fill_(math.nan), torch.ones(3), torch.zeros(3))
    assert caplog.messages == ["not chosen by measure: bad: argument 1, element 0 is nan, where the default has 2.0"]


# --- winners by size ----------------------------------------------------------------------------------------------


def test_sizes_have_winners_by_powers_of_two() -> None:
    ran: list[str] = []

    def run(name: str) -> Callable[[int], str]:
        return lambda n: ran.append(f"{name} {n}") or name

    def clock(run: Callable[[], object]) -> float:
        run()
        name, _, n = ran[-1].partition(" ")
        return float(n) if name == "small" else 100.0

    kept: dict[str, Winner] = {}
    candidates = {name: run(name) for name in ("large", "small")}
    chosen = Tuner(clock, keep=kept.__setitem__).choose("work", "perf", "large", candidates, (), (), (0,))
    assert [chosen(n) for n in (10, 2000, 8, 15, 1024)] == ["small", "large", "small", "small", "large"]
    assert sorted((won.name, won.sizes) for won in kept.values()) == [
        ("large", ((1024, 2047),)),
        ("small", ((8, 15),)),
    ]
    warm = Tuner(clock, recall=kept.get)
    again = warm.choose("work", "perf", "large", candidates, (), (), (0,))
    assert [again(n) for n in (2000, 10)] == ["large", "small"] and warm.measured == 0
    assert again(100_000) == "large" and warm.measured > 0, "another bucket is measured"
