"""Variants are compared by their default launches first: the launches of those that are out are never compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from minductor.ir.artefact.winner import Winner
from minductor.runtime.tune import tune
from minductor.runtime.tune.tune import DEFAULT, Candidates, Tuned, Tuner

WARPS = (4, 8, 16)


@dataclass
class Shop:
    """Variants of one kernel each, which adds 1 to its argument. `seconds`: of each kernel by its numbers of warps.

    The first number of warps of a kernel is its default launch.
    """

    seconds: Mapping[str, Sequence[float]]
    default: str = ""
    now: float = 0.0
    compiling: float = 0.0  # seconds of the user that a launch takes to compile
    wrong: tuple[str, ...] = ()  # launches that leave other results
    compiled: list[str] = field(default_factory=list[str])
    prepared: list[str] = field(default_factory=list[str])
    ran: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    kept: dict[str, Winner] = field(default_factory=dict[str, Winner])
    told: list[Tuned] = field(default_factory=list[Tuned])

    def launches(self, kernel: str) -> Candidates:
        """The launches of a kernel, each one step from the one with half as many warps."""
        names = [DEFAULT, *(f"warps={warps}" for warps in WARPS[1 : len(self.seconds[kernel])])]

        def make(name: str) -> Callable[[Tensor], str]:
            launch = f"{kernel} {name}"
            if name != DEFAULT and launch not in self.compiled:
                self.compiled.append(launch)
                self.now += self.compiling

            def run(held: Tensor) -> str:
                self.ran.append(launch)
                held += 1 if launch not in self.wrong else 9
                return launch

            return run

        def steps(name: str) -> Iterator[str]:
            place = names.index(name)
            yield from (*names[max(0, place - 1) : place], *names[place + 1 : place + 2])

        def prepare(names: Sequence[str]) -> None:
            self.prepared += [f"{kernel} {name}" for name in names]

        return Candidates(DEFAULT, make, steps, names.__contains__, prepare, kernel)

    def clock(self, run: Callable[[], object]) -> float:
        launch = str(run())
        self.asked.append(launch)
        kernel, _, name = launch.partition(" ")
        warps = WARPS[0] if name == DEFAULT else int(name.removeprefix("warps="))
        return self.seconds[kernel][WARPS.index(warps)]

    def tuner(self, *, is_deterministic: bool = False) -> Tuner:
        return Tuner(
            self.clock,
            self.kept.get,
            self.kept.__setitem__,
            is_deterministic=is_deterministic,
            tell=self.told.append,
            now=lambda: self.now,
        )

    def bound(self, tuner: Tuner, affects: str = "bits", work: str = "variants") -> Callable[[Tensor], object]:
        """The choice between the variants. A kernel with one launch has no choice of its own."""
        variants: dict[str, Callable[..., object]] = {}
        for kernel, seconds in self.seconds.items():
            launches = self.launches(kernel)
            chosen = tuner.launch(f"launches of {kernel}", "perf", launches, (0,), (0,))
            variants[kernel] = chosen if len(seconds) > 1 else launches.make(DEFAULT)
        return tuner.choose(work, affects, self.default or next(iter(variants)), variants, (0,), (0,))

    def call(self, tuner: Tuner, affects: str = "bits") -> str:
        """The launch that runs once variants and launches are chosen."""
        held, chosen = torch.zeros(3), self.bound(tuner, affects)
        chosen(held)
        assert held.tolist() == [1, 1, 1], "one run"
        found = str(chosen(held))
        assert held.tolist() == [2, 2, 2]
        return found


FAST, SLOW = (2.0, 1.0, 3.0), (2.0 * tune.NEARLY + 0.1, 0.1, 0.1)


@pytest.mark.parametrize("order", [("fast", "slow"), ("slow", "fast")], ids=" ".join)
def test_a_variant_that_is_slow_by_its_default_launch_is_out(order: tuple[str, str]) -> None:
    """Also if it is the default variant, and if one of its launches would be the fastest of all."""
    shop = Shop({name: {"fast": FAST, "slow": SLOW}[name] for name in order})
    assert shop.call(shop.tuner()) == "fast warps=8"
    assert shop.compiled == ["fast warps=8", "fast warps=16"], "no launch of the slow one"
    assert {*shop.prepared} == {*shop.compiled}
    assert {work: winner.name for work, winner in shop.kept.items()} == {
        "variants": "fast",
        "launches of fast": "warps=8",
    }
    variants = shop.kept["variants"]
    assert (variants.seconds, variants.default_seconds) == (2.0, 2.0 if order[0] == "fast" else SLOW[0])


@pytest.mark.parametrize("default", ["one", "other"])
@pytest.mark.parametrize("faster", ["one", "other"])
def test_the_launches_of_two_near_variants_decide(default: str, faster: str) -> None:
    near = 2.0 * tune.NEARLY - 0.01
    seconds = {"one": (2.0, 1.9, 3.0), "other": (near, 2.1, 2.1), "third": (near + 0.005, 0.1, 0.1)}
    if faster == "other":
        seconds["other"] = (near, 1.5, 3.0)
    shop = Shop(seconds, default)
    assert shop.call(shop.tuner()) == {"one": "one warps=8", "other": "other warps=8"}[faster]
    assert {*shop.compiled} == {f"{name} warps={warps}" for name in ("one", "other") for warps in (8, 16)}
    assert shop.prepared[:2] == [f"{name} warps=8" for name in ("one", "other")], "side by side"
    assert {*shop.prepared} == {*shop.compiled}
    assert shop.kept["variants"].name == faster
    assert shop.kept["variants"].seconds == {"one": 1.9, "other": 1.5}[faster]


def test_a_rival_without_launches_of_its_own_needs_no_second_comparison() -> None:
    """The winner of the screening can only gain: it is measured once, and its launches when it runs."""
    shop = Shop({"one": (2.0, 1.0, 3.0), "library": (2.1,)})
    assert shop.call(shop.tuner()) == "one warps=8"
    assert [told.label for told in shop.told] == ["variants", "one"], "one after the other and not nested"
    assert shop.told[0].measured == 2 * tune.ROUNDS


def test_a_tie_keeps_the_default_also_after_its_launches_are_chosen() -> None:
    shop = Shop({"one": (2.0, 2.0, 2.0), "other": (1.9, 1.9, 1.9)}, "one")
    assert shop.call(shop.tuner()) == f"other {DEFAULT}", "clearly faster"
    shop = Shop({"one": (2.0, 1.0, 2.0), "other": (1.9, 0.99, 1.9)}, "one")
    assert shop.call(shop.tuner()) == "one warps=8", "no longer clearly faster"
    shop = Shop({"one": (2.0, 1.0, 2.0), "other": (1.9, 0.99, 1.9), "default": (9.0,)}, "default")
    assert shop.call(shop.tuner()) == "other warps=8", "the winner of the screening stays"


def test_what_was_recorded_is_not_screened_again() -> None:
    shop = Shop({"one": FAST, "other": (2.1, 1.5, 3.0)})
    shop.call(shop.tuner())
    warm = Shop(shop.seconds, kept=dict(shop.kept))
    assert warm.call(warm.tuner()) == "one warps=8" and warm.asked == []
    del shop.kept["variants"]
    again = Shop(shop.seconds, kept=dict(shop.kept))
    assert again.call(again.tuner()) == "one warps=8"
    assert {*again.asked} == {"one warps=8", "other warps=8"}, "variants are compared by their known launches"


def test_variants_of_equal_kernels_are_compared_by_the_launches_that_won() -> None:
    """Both choices are bound before the first of them is made."""
    shop = Shop({"one": FAST, "other": (2.1, 1.5, 3.0)})
    tuner = shop.tuner()
    first, second = (shop.bound(tuner, work=work) for work in ("first", "second"))
    first(torch.zeros(3))
    shop.asked.clear()
    second(torch.zeros(3))
    assert {*shop.asked} == {"one warps=8", "other warps=8"}


def test_the_variants_of_what_must_not_change_are_not_screened() -> None:
    shop = Shop({"slow": (2.0, 1.0, 3.0), "fast": (1.0, 0.5, 1.0)})
    assert shop.call(shop.tuner(is_deterministic=True)) == "slow warps=8", "launches that change no bits are chosen"
    assert shop.compiled == ["slow warps=8", "slow warps=16"] and shop.kept.keys() == {"launches of slow"}
    shop = Shop({"slow": (2.0, 1.0, 3.0), "fast": (1.0, 0.5, 1.0)})
    assert shop.call(shop.tuner(is_deterministic=True), "perf") == "fast warps=8"


def test_a_launch_with_other_results_takes_no_variant_along() -> None:
    shop = Shop({"one": (2.0, 2.0, 3.0), "other": (2.1, 0.5, 3.0)}, wrong=("other warps=8",))
    tuner = shop.tuner()
    assert shop.call(tuner) == f"one {DEFAULT}" and "other warps=8" in tuner.refused
    assert shop.kept["launches of other"].name == DEFAULT


@pytest.mark.parametrize("default", ["one", "slow"])
def test_compiling_the_launches_of_two_variants_leaves_time_to_compare_them(default: str) -> None:
    seconds = {"one": (2.0, 1.9, 3.0), "other": (2.1, 1.5, 3.0), "slow": (9.0,)}
    shop = Shop(seconds, default, compiling=0.9 * tune.WORK_SECONDS)
    assert shop.call(shop.tuner()) == "other warps=8"
    assert shop.asked[-2 * tune.ROUNDS :] == ["one warps=8", "other warps=8"] * tune.ROUNDS


def test_a_failed_clock_or_an_interrupt_while_screening_leaves_nothing_half_done() -> None:
    shop = Shop({"one": FAST, "other": (2.1, 1.5, 3.0)})

    def interrupted(run: Callable[[], object]) -> float:
        run()
        raise KeyboardInterrupt

    tuner, clock = shop.tuner(), shop.clock
    tuner.clock = interrupted
    with pytest.raises(KeyboardInterrupt):
        shop.call(tuner)
    assert (tuner.put_off, shop.kept, shop.compiled) == (None, {}, [])
    tuner.clock = clock
    assert shop.call(tuner) == "one warps=8"
