"""The launches of a kernel as candidates of the tuner: which are compiled and when, and what a winner is known by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minductor.driver_tasks.tuning_winners import Winners
from minductor.ir.artefact.launch_metadata import LAUNCHES, LaunchMetadata, print_launches
from minductor.ir.artefact.winner import WINNER, Winner
from minductor.runtime.launch.cuda import Launch, evaluate
from minductor.runtime.launch.gpu import BINARIES, Binary, Kernels, cubin_name
from minductor.runtime.launch.launch import KERNELS
from minductor.runtime.store.store import Store
from minductor.runtime.tune.tune import DEFAULT, Tuner

TEXT = "def doubled_0(in0, out1, s0, XBLOCK):\n    helper()\n\ndef helper(): ...\n\ndef other_1(): ...\n"
LAUNCH = LaunchMetadata(
    "doubled_0",
    {"in0": "*fp32", "out1": "*fp32", "s0": "i64", "XBLOCK": "constexpr"},
    ("s0", 31, "+", 32, "//"),
    {"XBLOCK": 32},
    4,
    choices={"warps": (2, 4, 8), "XBLOCK": (16, 32, 64, 128)},
    grid=("s0", "XBLOCK", "+", 1, "-", "XBLOCK", "//"),
)


@dataclass
class Machine:
    """A driver whose kernel doubles, and says how it was launched; and what compiles the launches."""

    seconds: Callable[[int, int], float]  # of a number of warps and a block size
    text: str = TEXT
    launch: LaunchMetadata = LAUNCH
    broken: tuple[str, ...] = ()  # what does not compile
    launched: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # warps and programs
    compiled: list[str] = field(default_factory=list[str])
    prepared: list[list[str]] = field(default_factory=list[list[str]])
    works: list[str] = field(default_factory=list[str])
    kept: dict[str, Winner] = field(default_factory=dict[str, Winner])

    def load(self, binary: bytes, launch: Launch) -> int:
        return 0

    def slow(self, name: str, kernel: int, launch: Launch, other: Callable[..., int]) -> Callable[..., int]:
        def run(x: Tensor, out: Tensor, length: int, stream: int) -> int:
            self.launched.append((launch.threads // 32, evaluate(launch.programs, [x, out, length])))
            out.copy_(x * 2)
            return 0

        return run

    def files(self, launch: LaunchMetadata) -> dict[str, bytes]:
        table = {launch.name: asdict(Binary("k", threads=32 * launch.warps, shared=0))}
        return {cubin_name(launch.name): b"", BINARIES: json.dumps(table).encode()}

    def configured(self, launch: LaunchMetadata) -> Mapping[str, bytes]:
        self.compiled.append(launch.variant)
        if launch.variant in self.broken:
            raise RuntimeError("out of resource: shared memory")
        return self.files(launch)

    def prepare(self, launches: Sequence[LaunchMetadata]) -> None:
        self.prepared.append([launch.variant for launch in launches])

    def clock(self, run: Callable[[], object]) -> float:
        run()
        warps, programs = self.launched[-1]
        return self.seconds(warps, 4096 // programs)

    def keep(self, work: str, winner: Winner) -> None:
        self.works.append(work)
        self.kept[work] = winner

    def tuner(self) -> Tuner:
        return Tuner(self.clock, self.kept.get, self.keep)

    def call(self, tuner: Tuner, length: int = 4096) -> tuple[int, int]:
        """How the kernel is launched after tuning."""
        driver: Any = self
        whole = {
            **self.files(self.launch),
            LAUNCHES: print_launches([self.launch]).encode(),
            KERNELS: self.text.encode(),
        }
        files = Kernels(whole, driver, None, self.files, self.configured, tuner, None, self.prepare)
        x, out = torch.arange(float(length)), torch.zeros(length)
        files.bind(self.launch.symbol)(x, out, length, 0)
        assert torch.equal(out, x * 2)
        return self.launched[-1]


def far(warps: int, block: int) -> float:
    """The fastest launch has 8 warps and blocks of 128."""
    return 1.0 + 8 / warps + 128 / block


def test_a_launch_that_differs_in_several_choices_wins() -> None:
    machine = Machine(far)
    assert machine.call(machine.tuner()) == (8, 4096 // 128)
    (won,) = machine.kept.values()
    assert (won.name, won.kernel, won.sizes) == ("warps=8 XBLOCK=128", "doubled_0", ((4096, 8191),))
    assert (won.seconds, won.default_seconds) == (1.0 + 1 + 1, 1.0 + 2 + 4)


def test_only_the_launches_of_each_step_are_compiled_and_side_by_side() -> None:
    machine = Machine(lambda warps, block: 1.0 + 128 / block)
    machine.call(machine.tuner())
    assert machine.prepared[:2] == [
        ["warps=2", "warps=8", "XBLOCK=16", "XBLOCK=64"],
        ["warps=2 XBLOCK=64", "warps=8 XBLOCK=64", "XBLOCK=128"],
    ]
    assert machine.compiled == [variant for step in machine.prepared for variant in step], "each once"
    assert len(machine.compiled) < 11, "not all that there are"


def test_a_launch_that_does_not_compile_is_left_out() -> None:
    machine = Machine(far, broken=("warps=8", "XBLOCK=64"))
    tuner = machine.tuner()
    assert machine.call(tuner) == (4, 4096 // 32)
    assert tuner.refused["doubled_0 warps=8"] == "out of resource: shared memory" and len(tuner.refused) == 2


def test_a_warm_start_compiles_the_winner_only() -> None:
    machine = Machine(far)
    machine.call(machine.tuner())
    warm = Machine(far, kept=machine.kept)
    tuner = warm.tuner()
    assert warm.call(tuner) == (8, 32) and (tuner.measured, warm.launched) == (0, [(8, 32)])
    assert (warm.compiled, warm.prepared) == (["warps=8 XBLOCK=128"], [])


@pytest.mark.parametrize("name", ["XBLOCK=256", "warps=4", "XBLOCK=64 warps=8", "registers=32", "warps", ""])
def test_a_winner_of_other_choices_is_decided_again(name: str) -> None:
    machine = Machine(far)
    machine.call(machine.tuner())
    (work,) = machine.works
    again = Machine(far, kept={work: Winner(name)})
    assert again.call(again.tuner()) == (8, 32) and again.kept[work].name == "warps=8 XBLOCK=128"


def test_the_default_is_a_winner_too() -> None:
    machine = Machine(lambda warps, block: 1.0)
    assert machine.call(machine.tuner()) == (4, 128)
    assert [won.name for won in machine.kept.values()] == [DEFAULT]
    warm = machine.tuner()
    assert machine.call(warm) == (4, 128) and warm.measured == 0


def test_equal_kernels_of_two_graphs_share_a_winner() -> None:
    """Other kernels of the module, and the kernel's name, do not matter; its text, its choices and its grid do."""
    machine = Machine(far)
    machine.call(machine.tuner())
    renamed = replace(LAUNCH, symbol="twice_3")
    equal = Machine(far, TEXT.replace("doubled_0", "twice_3") + "\ndef more_4(): ...\n", renamed, kept=machine.kept)
    tuner = equal.tuner()
    assert equal.call(tuner) == (8, 32) and tuner.measured == 0
    for text, launch in (
        (TEXT.replace("helper(): ...", "helper(): 1"), LAUNCH),
        (TEXT, replace(LAUNCH, choices={**LAUNCH.choices, "warps": (4, 8)})),
        (TEXT, replace(LAUNCH, parameters={**LAUNCH.parameters, "in0": "*fp64"})),
        (TEXT, replace(LAUNCH, grid=("s0", 0, "+", *LAUNCH.grid[1:]))),
    ):
        other = Machine(far, text, launch, kept=dict(machine.kept))
        tuner = other.tuner()
        other.call(tuner)
        assert tuner.measured > 0


def test_a_kernel_without_choices_is_not_measured() -> None:
    machine = Machine(far, launch=replace(LAUNCH, choices={}, grid=()))
    tuner = machine.tuner()
    assert machine.call(tuner) == (4, 128) and (tuner.measured, machine.kept) == (0, {})


# --- winners in the store -------------------------------------------------------------------------------------------


def test_the_store_keeps_a_winner_for_one_place(tmp_path: Path) -> None:
    store, won = Store(tmp_path), Winner("warps=8", "k_0", ((4, 7),), 1e-6, 2e-6, "H100", "12080")
    here = Winners(store, ("sm_90", "H100", "12080"))
    here.keep("work", won)
    assert here.recall("work") == won and here.recall("other") is None
    for place in (("sm_90", "H100", "12090"), ("sm_90", "H200", "12080"), ("sm_80", "H100", "12080")):
        assert Winners(store, place).recall("work") is None
    later = replace(won, name="warps=2")
    here.keep("work", later)
    assert here.recall("work") == later, "the later one replaces it"


@pytest.mark.parametrize(
    "old", [b"warps=8", b"[]", b"{}", b'{"version": 0, "name": "warps=8", "sizes": []}', b'{"version": 1}', None]
)
def test_what_is_no_winner_of_this_version_is_removed(tmp_path: Path, old: bytes | None) -> None:
    store = Store(tmp_path)
    winners = Winners(store, ("sm_90",))
    winners.keep("work", Winner("warps=8"))
    (entry,) = store.entries()
    store.remove(entry)
    store.put(entry.key, {"winner.txt": b"warps=8"} if old is None else {WINNER: old})
    assert winners.recall("work") is None and store.entries() == ()


def test_a_winner_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object, **given: object) -> object:
        raise OSError(28, "No space left on device")

    store = Store(tmp_path)
    monkeypatch.setattr(store, "put", full)
    with caplog.at_level("INFO", "minductor"):
        Winners(store, ()).keep("work", Winner("warps=8", "k_0"))
    assert caplog.messages == ["not recorded: k_0: warps=8: [Errno 28] No space left on device"]
