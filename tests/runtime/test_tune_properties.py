"""Random kernels with random memory, tuned by a random clock: memory then holds what one run of the default leaves.

A kernel has effects on windows of a few tensors. Windows may be strided, transposed and overlapping; inputs may be
expanded. Candidates run the kernel, or do something else that must not win and must leave no trace.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minductor.ir.artefact.winner import Winner
from minductor.runtime.tune import tune_memory
from minductor.runtime.tune.tune import Candidates, Tuner

LENGTH = 48  # elements of a base
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
)
# size, strides and length of a window; a written window has no element twice
WINDOWS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = MappingProxyType(
    {
        "all": ((24,), (1,)),
        "every second": ((12,), (2,)),
        "a matrix": ((4, 6), (6, 1)),
        "a transposed matrix": ((6, 4), (1, 6)),
        "rows with gaps": ((3, 4), (8, 1)),
        "transposed rows with gaps": ((4, 3), (1, 8)),
        "one element": ((), ()),
    }
)
EXPANDED: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = MappingProxyType(
    {"an expanded row": ((4, 6), (0, 1)), "one element as many": ((5, 3), (0, 0))}
)
EFFECTS = ("writes", "writes every second", "adds to", "atomically adds to")
FAULTS = ("nothing", "another number", "NaN", "a gap", "an error", "an error after the work", "a late error")


@dataclass(frozen=True)
class Effect:
    """What a kernel does to a window of a base, with the numbers of another window."""

    kind: str
    base: int
    window: str
    offset: int
    read_base: int
    read_window: str
    read_offset: int


@dataclass(frozen=True)
class Case:
    dtypes: tuple[torch.dtype, ...]
    effects: tuple[Effect, ...]
    candidates: tuple[str, ...]  # "right", or a fault
    seed: int
    is_far: bool  # copies are made as if the device had no memory for them
    has_room: bool
    launches: str  # what the second launch of each candidate does: "right", or a fault; "" if there is one launch


EFFECT = st.builds(
    Effect,
    st.sampled_from(EFFECTS),
    st.integers(0, 1),
    st.sampled_from(tuple(WINDOWS)),
    st.integers(0, LENGTH - 24),
    st.integers(0, 1),
    st.sampled_from((*WINDOWS, *EXPANDED)),
    st.integers(0, LENGTH - 24),
)
CASE = st.builds(
    Case,
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.lists(EFFECT, min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(("right", *FAULTS)), min_size=1, max_size=5).map(tuple),
    st.integers(0, 1 << 30),
    st.booleans(),
    st.sampled_from((True, True, True, False)),
    st.sampled_from(("", "right", *FAULTS)),
)


def window(base: Tensor, name: str, offset: int) -> Tensor:
    size, stride = {**WINDOWS, **EXPANDED}[name]
    return base.as_strided(size, stride, offset)


def bases(case: Case) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(case.seed)
    found: list[Tensor] = []
    for dtype in case.dtypes:
        numbers = torch.randint(0, 9, (LENGTH,), generator=drawn)
        found.append((numbers % 2 == 0) if dtype == torch.bool else numbers.to(dtype))
    return found


def arguments(case: Case, held: Sequence[Tensor]) -> list[Tensor]:
    """For each effect the window that is written and the window that is read."""
    found: list[Tensor] = []
    for effect in case.effects:
        found.append(window(held[effect.base], effect.window, effect.offset))
        found.append(window(held[effect.read_base], effect.read_window, effect.read_offset))
    return found


def do(effect: Effect, out: Tensor, read: Tensor) -> None:
    """One effect; it changes each element that it writes."""
    by = read.real.sum() % 5 + 1 if read.is_complex() else read.sum() % 5 + 1
    if out.dtype == torch.bool:
        by = by % 2 == 0
    match effect.kind:
        case "writes":
            out.fill_(by.to(out.dtype))
        case "writes every second":
            (out if out.dim() == 0 else out[::2]).fill_(by.to(out.dtype))
        case "adds to" if out.dtype == torch.bool:
            out.logical_not_()
        case "adds to":
            out.add_(by.to(out.dtype))
        case _ if out.dtype == torch.bool:
            out.logical_not_()
        case _:
            every = [
                torch.arange(n).view([-1 if d == k else 1 for k in range(out.dim())]) for d, n in enumerate(out.shape)
            ]
            given = torch.full((), 3, dtype=out.dtype)
            out.index_put_(tuple(every), given, accumulate=True) if every else out.add_(given)


def spoil(out: Tensor, fault: str, at: int) -> None:
    """Changes one element of a window, or one between its elements."""
    size = 1 + sum((n - 1) * step for n, step in zip(out.shape, out.stride(), strict=True))
    flat = out.as_strided((size,), (1,), out.storage_offset())
    inside = sorted({int(place) for place in places(out).flatten()})
    outside = [place for place in range(size) if place not in inside]
    place = (outside or inside)[at % len(outside or inside)] if fault == "a gap" else inside[at % len(inside)]
    if fault == "NaN" and (out.is_floating_point() or out.is_complex()):
        flat[place] = math.nan
    elif out.dtype == torch.bool:
        flat[place : place + 1].logical_not_()
    elif out.is_floating_point() or out.is_complex():
        flat[place] = 3e4
    else:
        flat[place] += 1


def places(out: Tensor) -> Tensor:
    """The place of each element of a window, from the window's first."""
    return torch.arange(LENGTH).as_strided(out.shape, out.stride())


class Late(RuntimeError):
    pass


def candidate(case: Case, kind: str, number: int) -> Callable[..., str]:
    drawn, runs = random.Random(case.seed + number), [0]

    def run(*args: Tensor) -> str:
        runs[0] += 1
        if kind == "an error":
            raise ValueError(kind)
        if kind == "nothing":
            return kind
        for effect, out, read in zip(case.effects, args[::2], args[1::2], strict=True):
            do(effect, out, read)
        if kind in ("another number", "NaN", "a gap"):
            spoil(args[2 * drawn.randrange(len(case.effects))], kind, drawn.randrange(99))
        elif kind == "an error after the work" or (kind == "a late error" and runs[0] > 1):
            raise Late(kind)
        return kind

    return run


def check(case: Case) -> None:
    held, right = bases(case), bases(case)
    candidates = {"default": candidate(case, "right", 0)}
    kinds = {"default": "right"}
    for number, kind in enumerate(case.candidates, 1):
        candidates[f"{number} {kind}"], kinds[f"{number} {kind}"] = candidate(case, kind, number), kind
    candidates["default"](*arguments(case, right))
    drawn, kept, now = random.Random(case.seed), dict[str, Winner](), [0.0]

    def clock(run: Callable[[], object]) -> float:
        run()
        now[0] += drawn.choice((0.0, 0.1, 9.0))
        return (
            drawn.choice((0.001, 0.5, 1.0, drawn.random())) if drawn.random() < 0.99 else drawn.choice((0.0, math.nan))
        )

    reads = [2 * n for n, effect in enumerate(case.effects) if "adds" in effect.kind]
    written = [2 * n for n in range(len(case.effects))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tune_memory, "SMALL", 0 if case.is_far else tune_memory.SMALL)
        room = (1 << 20) if case.has_room else 0
        tuner = Tuner(clock, keep=kept.__setitem__, room=lambda: room, now=lambda: now[0])
        variants: dict[str, Callable[..., object]] = {}
        for number, (name, run) in enumerate(candidates.items()):
            second = candidate(case, case.launches, 100 + number)
            launches = Candidates.among("first", ("first", "second"), {"first": run, "second": second}.__getitem__)
            variants[name] = tuner.launch(name, "perf", launches, reads, written) if case.launches else run
        chosen = tuner.choose("work", "perf", "default", variants, reads, written)
        chosen(*arguments(case, held))
    won = kinds[tuner.winners["work"]]
    assert won == "right" or (won == "nothing" and is_same(bases(case), right)), f"{won} won: {tuner.refused}"
    assert all(winner.name == tuner.winners[work] for work, winner in kept.items())
    assert is_same(held, right), (held, right)
    if won == "right":
        candidates["default"](*arguments(case, right))
        chosen(*arguments(case, held))
        assert is_same(held, right), "the second call runs the winner alone"


def is_same(held: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Whether all bytes are equal."""
    pairs = zip(held, right, strict=True)
    return all(torch.equal(base.view(torch.uint8), expected.view(torch.uint8)) for base, expected in pairs)


@settings(max_examples=60)
@given(CASE)
def test_memory_is_what_one_run_of_the_default_leaves(case: Case) -> None:
    check(case)


@pytest.mark.long
@settings(max_examples=3000)
@given(CASE)
def test_memory_of_many_kernels(case: Case) -> None:
    check(case)
