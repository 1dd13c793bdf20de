"""Shared storages in random programs: the same bits, the lives that were planned, no peak above what is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from minductor.codegen.wrapper.wrapper_python import wrapper_python
from minductor.core.expressions.expr import as_int
from minductor.ir.plan.plan import AllocateLine, KernelLine, Plan, ReuseLine
from minductor.ir.plan.storage import Usage, peak_bytes
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.nodes import Input, Kernel, Program, Ref
from minductor.ir.program.signature import rename_storages, signature
from minductor.options import Options
from minductor.passes.fuse.fuse import fuse
from minductor.passes.memory import reuse
from minductor.passes.memory.memory import memory
from minductor.passes.order.order import order
from minductor.runtime.launch.launch import launch
from minductor.runtime.reference.reference import run_program
from minductor.target import Env
from tests.passes.graphs import programs
from tests.passes.sketch import CPU, Sketch, arguments
from tests.rows import inline, schedule

WAYS = [(True, True), (True, False), (False, True), (False, False)]


def env(*, reuse: bool, inplace: bool) -> Env:
    return Env(Options(reuse_storage=reuse, inplace=inplace, verify_memory="assert"), CPU.target)


def interpreted(kernel: Kernel) -> Callable[..., int]:
    """A kernel as a function of tensors, by the interpreter."""
    parameters = signature(kernel).storages
    refs = {op.attrs.ref for op in kernel.body.ops if op.name in ("store", "atomic")}  # type: ignore[union-attr]
    # in a program a parameter arrives as version 0, which is then not written
    moved = {name for name in parameters if Ref(name, 0) in refs}
    names = {Ref(name, v): Ref(name, v + 1) for name in moved for v in range(8)}
    program = Program("kernel", (), tuple(map(Input, parameters)), (), (rename_storages(kernel, names),), ())

    def call(*args: Any) -> int:
        run_program(program, args[: len(parameters)])
        return 0

    return call


def run(plan: Plan, settings: Env, inputs: list[Tensor]) -> list[Tensor]:
    symbols = {line.id: line.symbol for line in plan.lines if isinstance(line, KernelLine)}
    kernels = {symbols[name]: interpreted(kernel) for name, kernel in plan.kernels}
    text = wrapper_python(plan, settings).replace("kernels(", "KERNELS.get(")
    return list(launch(text, None, "test", {"KERNELS": kernels}, [])(inputs))


def donating(program: Program, donated: set[int]) -> Program:
    inputs = (replace(i, is_donated=n in donated) for n, i in enumerate(program.inputs))
    return replace(program, inputs=tuple(inputs))


@settings(max_examples=40, deadline=None)
@given(programs(), st.booleans(), st.sets(st.integers(0, 2)))
def test_the_bits_are_the_same_and_the_peak_is_what_is_needed(program: Program, fused: bool, donated: set[int]) -> None:
    for stage in (inline, fuse, order, schedule) if fused else ():
        program = stage(program, CPU)
    wanted = run_program(program, arguments(program))
    program = donating(program, donated)
    peaks: dict[tuple[bool, bool], int | None] = {}
    for way in WAYS:
        settings = env(reuse=way[0], inplace=way[1])
        plan = memory(program, settings)
        verify_plan(plan)
        peaks[way] = peak_bytes(plan.storages)
        for found, value in zip(run(plan, settings, arguments(program)), wanted, strict=True):
            assert found.stride() == value.stride() or found.numel() <= 1
            torch.testing.assert_close(found, value, rtol=0, atol=0, equal_nan=True)
    # a dead storage is kept for another only where the peak does not rise, and the estimate of orders is the plan's
    assert peaks[True, False] == peaks[False, False] == Usage(program).peak(range(len(program.nodes)))
    assert peaks[True, True] == peaks[False, True]
    assert (peaks[True, True] or 0) <= (peaks[False, False] or 0)


@settings(max_examples=40, deadline=None)
@given(programs())
def test_no_block_of_all_storages_would_be_smaller(program: Program) -> None:
    """Whatever offsets they get in one allocation: those alive during one call lie apart."""
    storages = memory(program, CPU).storages
    own = [s for s in storages if s.owner == "own"]
    steps = {s.birth for s in own}
    together = max(
        (sum(as_int(s.bytes) or 0 for s in own if s.birth <= n and not (s.death or n) < n) for n in steps), default=0
    )
    assert peak_bytes(storages) == together


def names(plan: Plan, kind: type) -> list[str]:
    return [line.name for line in plan.lines if isinstance(line, kind)]


def waiting(large: bool) -> Program:
    """A storage dies early, one of its size is wanted late, and much is alive in between."""
    s = Sketch()
    x = s.input(64, 64)
    early = s.reduce("sum", s.op("exp", x), 1)
    wide = [s.op("neg", early) for _ in range(2)] if not large else [s.cat(0, x, x)]
    middle = [s.reduce("sum", v, 0) for v in wide]
    late = s.op("exp", x)
    return s.done(early, *middle, s.reduce("max", late, 1))


def test_a_dead_storage_is_kept_only_where_that_costs_no_peak() -> None:
    plain = env(reuse=True, inplace=True)
    few, much = memory(waiting(large=False), plain), memory(waiting(large=True), plain)
    assert len(names(few, ReuseLine)) == 1
    assert names(much, ReuseLine) == []
    assert peak_bytes(much.storages) == Usage(waiting(large=True)).peak(range(len(waiting(large=True).nodes)))


def test_kept_at_any_price_it_would_raise_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tests above can see it."""
    program = waiting(large=True)
    before = peak_bytes(memory(program, CPU).storages)
    monkeypatch.setattr(reuse._MemoryProfile, "keep", lambda *_: True)
    assert (peak_bytes(memory(program, CPU).storages) or 0) > (before or 0)


def test_switched_off_nothing_is_shared() -> None:
    plan = memory(waiting(large=False), env(reuse=False, inplace=False))
    assert names(plan, ReuseLine) == []
    assert len(names(plan, AllocateLine)) == len([b for b in waiting(large=False).buffers if b.kind == "local"])
