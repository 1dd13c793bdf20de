"""Small kernels whose work the last program of the kernel before does: which they are, their values, and faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import as_int, symbol
from minductor.ir.plan.plan_text import print_plan
from minductor.ir.program.bundled import bundled_kernels
from minductor.ir.program.choices import defaults
from minductor.ir.program.loops import loops
from minductor.ir.program.nodes import FusionRefusal, Kernel, MergedKernel, NodeNote, Program, reads, writes
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from minductor.ir.program.signature import signature
from minductor.options import Options
from minductor.passes.access.access import access
from minductor.passes.bundle.bundle import bundle
from minductor.passes.memory.memory import memory
from minductor.passes.split.split import split
from minductor.runtime.reference.nest_reference import run_nests
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.passes.sketch import Sketch, arguments
from tests.passes.test_stage_split import sum_of
from tests.rows import schedule
from tests.verifying import verify

GPU = Env(Options(), by_name("sm_90"))
LENGTH = 1 << 20


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def names(program: Program) -> list[str]:
    return [kernel.name for kernel in kernels(program)]


def finished(program: Program, env: Env = GPU) -> Program:
    """The program behind the stage, held to its rules, to its values, and to its text."""
    before = schedule(split(program, env), env)
    made = bundle(before, env)
    verify(made, "bundle")
    assert parse_program(print_program(made)).nodes == made.nodes
    assert set().union(*map(writes, kernels(made))) == set().union(*map(writes, kernels(before)))
    return made


def total(length: int) -> Program:
    s = Sketch()
    return s.done(s.reduce("sum", s.input(1, length), 1))


def finishing(program: Program) -> list[int]:
    return [kernel.schedule.finishing for kernel in kernels(program) if kernel.schedule is not None]


# --- which kernels --------------------------------------------------------------------------------------------------


def test_a_reduction_in_parts_is_one_launch() -> None:
    made = finished(total(LENGTH))
    (kernel,) = kernels(made)
    assert kernel.name == "k0" and kernel.schedule is not None
    assert (kernel.schedule.parts, kernel.schedule.finishing) == ((1,), 1)
    assert MergedKernel("bundle", "k0_join", "k0") in made.notes
    (note,) = (n for n in made.notes if isinstance(n, NodeNote) and n.stage == "bundle")
    assert str(note).startswith("k0: the last of its programs does the work of k0_join (")
    assert re.search(r"\([\d.]+ us together, [\d.]+ us apart\)$", str(note))


@pytest.mark.parametrize(("power", "is_one"), [(17, True), (20, True), (22, True), (27, False), (29, False)])
def test_one_launch_less_counts_where_the_work_is_short(power: int, is_one: bool) -> None:
    made = finished(total(1 << power))
    assert names(made) == (["k0"] if is_one else ["k0", "k0_join"])
    refused = [note for note in made.notes if isinstance(note, FusionRefusal)]
    assert [(n.first, n.second, n.reason) for n in refused] == (
        [] if is_one else [("k0", "k0_join", "one launch saves too little")]
    )
    assert all(re.fullmatch(r"\d+ us together, \d+ us apart", note.figures) for note in refused)


def test_the_small_kernel_has_as_many_threads_be_it_alone_or_not() -> None:
    """So the order of additions is the same."""
    for power in (20, 27):
        before = schedule(split(total(1 << power), GPU), GPU)
        first, small = ({**defaults(kernel.choices)}["warps"] for kernel in kernels(before))
        assert first != small
        assert {defaults(kernel.choices)["warps"] for kernel in kernels(finished(total(1 << power)))} == {first}


def test_a_size_of_the_call() -> None:
    size = symbol("s0", "size", 2)
    made = finished(sum_of((size,), (0,), ((size, LENGTH),)))
    assert names(made) == ["k0"]


def test_rows_that_one_program_joins() -> None:
    s = Sketch()
    assert finishing(finished(s.done(s.reduce("sum", s.input(16, 1 << 17), 1)))) == [1]


# --- columns: the last program of each block finishes it --------------------------------------------------------------


def columns(rows: int, count: int) -> Program:
    s = Sketch()
    return s.done(s.reduce("sum", s.input(rows, count), 0))


@pytest.mark.parametrize(("rows", "count"), [(4096, 1000), (25088, 256), (100352, 64)])
def test_sums_of_columns_are_one_launch(rows: int, count: int) -> None:
    made = finished(columns(rows, count))
    (kernel,) = kernels(made)
    assert kernel.schedule is not None
    assert (kernel.schedule.finishing, kernel.schedule.finishing_blocks) == (1, "i1")
    first, last = (loop for loop in loops(kernel.schedule.steps) if loop.kind == "grid" and loop.block > 1)
    assert (first.axis, first.block) == ("i1", last.block)
    assert {axis.name: as_int(axis.extent) for axis in kernel.axes}[last.axis] == count
    (note,) = (n for n in made.notes if isinstance(n, NodeNote) and n.stage == "bundle")
    assert str(note).startswith("k0: the last of its programs for each block does the work of k0_join (")


def test_long_sums_of_columns_are_two_launches() -> None:
    """One launch saves too little of a long one."""
    assert finishing(finished(columns(1 << 17, 4096))) == [0, 0]


def test_more_blocks_than_counters_are_two_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minductor.passes.bundle.finish.COUNTERS", 31)
    assert finishing(finished(columns(4096, 31 * 32))) == [1]
    assert finishing(finished(columns(4096, 31 * 32 + 1))) == [0, 0]


COLUMNS = """program inference
  input arg0: f32[64, 512] stride [512, 1] cpu
  input arg1: f32[512] stride [1] cpu
  buffer buf0: f32[64, 512] stride [512, 1] cpu
  buffer buf1: f32[512] stride [1] cpu
  kernel k0 (i0: 64, i1: 512) from neg = aten.neg.default
    schedule {{
      grid i0 by 1 {{
        grid i1 by 32 {{
          %0 %1 %2 %3 %4
        }}
      }}
      recipe columns
    }}
    choice warps bits 4 of (4, 8)
    %0 = load arg0@0[512*i0 + i1] : f32 {{i0 i1}}
    %1 = load arg1@0[i1] : f32 {{i1}}
    %2 = add %0 %1 : f32 {{i0 i1}}
    %3 = neg %2 : f32 {{i0 i1}}
    %4 = store buf0@0[{stored}] %3 {{i0 i1}}
  kernel k1 (i0: 512, i1: 64) from sum = aten.sum.default
    schedule {{
      grid i0 by 32 {{
        tile i1 by 64 {{
          %0 %1 %2
        }}
      }}
      recipe persistent
    }}
    choice warps bits 4 of (4, 8)
    %0 = load buf0@0[{loaded}] : f32 {{i0 i1}}
    %1 = reduce sum over i1 of %0 : f32 {{i0}}
    %2 = store {made}[i0] %1 {{i0}}
  return ({made} f32[512] stride [1] offset 0)
"""
USUAL = {"stored": "512*i0 + i1", "loaded": "i0 + 512*i1", "made": "buf1@0"}


@pytest.mark.parametrize(
    ("changed", "is_one"),
    [
        ({}, True),
        ({"stored": "i0 + 64*i1", "loaded": "64*i0 + i1"}, True),  # a line of memory for each column
        ({"loaded": "64*i0 + i1"}, False),  # it needs other columns than those of its block
        ({"stored": "i0 + 64*i1", "loaded": "i0 + 512*i1"}, False),
        ({"made": "arg1@1"}, False),  # programs of other blocks may still read what it writes
    ],
    ids=["columns", "lines", "rows", "turned", "overwritten"],
)
def test_a_block_needs_only_what_the_programs_for_it_have_stored(changed: dict[str, str], *, is_one: bool) -> None:
    program = parse_program(COLUMNS.format(**USUAL | changed))
    made = bundle(program, GPU)
    verify(made, "bundle")
    assert len(kernels(made)) == (1 if is_one else 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("blocks of i1", "blocks of i0"),
        (" blocks of i1", ""),
        ("grid i2 by 32", "grid i2 by 64"),
        ("buf0@0[i2 + 512*i3]", "buf0@0[64*i2 + i3]"),
        ("buf1@0", "arg1@1"),
    ],
    ids=["axis", "none", "block", "index", "overwritten"],
)
def test_a_block_that_needs_others_is_refused(old: str, new: str) -> None:
    text = print_program(bundle(parse_program(COLUMNS.format(**USUAL)), GPU))
    assert old in text
    with pytest.raises(VerifyError, match="is several programs"):
        verify(parse_program(text.replace(old, new)), "bundle")


def test_a_bundle_is_finished_with_a_bundle() -> None:
    """Two sums of equal length: two parts share the programs, and one program joins first the one, then the other."""
    s = Sketch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minductor.passes.bundle.finish.TIE", 0.0)
        patch.setattr("minductor.passes.bundle.finish._shared_axis", shared_axis_of_joins)
        made = finished(s.done(*(s.reduce("sum", s.input(1, LENGTH), 1) for _ in range(2))))
    (kernel,) = kernels(made)
    assert kernel.schedule is not None and (len(kernel.schedule.parts), kernel.schedule.finishing) == (3, 2)
    assert len(bundled_kernels(kernel)) == 4


def shared_axis_of_joins(node: object) -> str | None:
    return "" if isinstance(node, Kernel) and "join" in node.name else None


@pytest.mark.parametrize(
    "env",
    [
        Env(Options(fuse=False), GPU.target),
        Env(Options(wrapper="fx"), GPU.target),
        Env(Options(block_access="descriptor"), GPU.target),
        Env(Options(), by_name("gfx942")),
        Env(Options(), replace(GPU.target, has_counters=False)),
    ],
    ids=["fuse", "fx", "descriptor", "gfx942", "counters"],
)
def test_where_no_counter_is_passed_two_kernels_stay(env: Env) -> None:
    assert names(finished(total(LENGTH), env)) == ["k0", "k0_join"]


TWO = """program inference
  symbol s0 [{least}, 8192]
  input arg0: f32[s0] stride [1] cpu
  buffer buf0: f32[s0] stride [1] cpu
  buffer buf1: f32[s0] stride [1] cpu
  buffer buf2: f32[] stride [] cpu
  kernel k0 (i0: s0) from neg = aten.neg.default
    %0 = load arg0@0[i0] : f32 {{i0}}
    %1 = neg %0 : f32 {{i0}}
    %2 = store buf0@0[i0] %1 {{i0}}
  kernel k1 (i0: s0) from exp = aten.exp.default
    %0 = load buf0@0[i0] : f32 {{i0}}
    %1 = exp %0 : f32 {{i0}}
    %2 = store buf1@0[i0] %1 {{i0}}
  kernel k2 (i0: s0) from sum = aten.sum.default
    %0 = load {read}@0[i0] : f32 {{i0}}
    %1 = reduce sum over i0 of %0 : f32 {{}}
    %2 = store buf2@0[0] %1 {{}}
  return (buf2@0 f32[] stride [] offset 0, buf1@0 f32[s0] stride [1] offset 0)
"""


@pytest.mark.parametrize(
    ("least", "read", "expected"),
    [
        (1, "buf1", ["k0", "k1"]),  # of two kernels the one whose results it reads
        (1, "buf0", ["k0", "k1"]),  # a kernel that stands between, and does not need the first, may come later
        (0, "buf1", ["k0", "k1", "k2"]),  # a launch of no programs does nothing, and the sum of nothing is 0
        (1, "arg0", ["k0", "k1", "k2"]),
    ],
)
def test_a_kernel_joins_the_one_that_makes_what_it_reads(least: int, read: str, expected: list[str]) -> None:
    program = parse_program(TWO.format(least=least, read=read))
    made = bundle(schedule(program, GPU), GPU)
    verify(made, "bundle")
    assert names(made) == expected
    merged = [kernel for kernel in kernels(made) if kernel.schedule is not None and kernel.schedule.finishing]
    assert [{ref.storage for ref in writes(kernel)} for kernel in merged] == (
        [] if len(expected) == 3 else [{read, "buf2"}]
    )


def test_what_the_parts_hand_over_is_no_input_of_the_kernel() -> None:
    (kernel,) = kernels(finished(total(LENGTH)))
    assert [ref.storage for ref in reads(kernel)] == ["arg0"]
    given = signature(kernel)
    assert (given.written, given.overwritten) == ({"k0_part0", "buf1"}, frozenset())


def test_the_plan_frees_what_was_handed_over() -> None:
    made = access(finished(total(LENGTH)), GPU)
    lines = print_plan(memory(made, GPU)).splitlines()
    (launch,) = (n for n, line in enumerate(lines) if line.startswith("  launch"))
    assert any(line.startswith("  allocate k0_part0") for line in lines[:launch])
    assert "k0_part0" in lines[launch] and "k0_part0" in lines[launch + 1] and "free" in lines[launch + 1]


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("length", [1 << 17, 100_003])
def test_the_last_part_runs_behind_all_others(name: str, length: int) -> None:
    """By the loop nests in a random order of parts, on numbers that no order of additions rounds."""
    s = Sketch()
    program = s.done(s.reduce(name, s.input(1, length), 1))
    made = finished(program)
    assert finishing(made) == [1]
    given = [(torch.arange(t.numel()) * 7 % 13 - 6).view_as(t).to(t.dtype) for t in arguments(program)]
    if name == "prod":
        given = [t.sign() + (t == 0) for t in given]
    expected = run_program(program, [t.clone() for t in given])
    for seed in range(4):
        got = run_nests(made, [t.clone() for t in given], target=GPU.target, seed=seed)
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(run_program(made, [t.clone() for t in given]), expected, strict=True))


# --- faults ---------------------------------------------------------------------------------------------------------

RULE = "one program finishes a kernel, with what others have written"
Change = Callable[[str], str]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda text: text.replace("parts 1 finish 1", "parts 1"), "a version is made once, before its readers"),
        (lambda text: text.replace("finish 1", "finish 2"), RULE),  # no part is left whose programs count
        (lambda text: text.replace("tile i2 by 1024", "grid i2 by 64"), RULE),  # several programs
        (lambda text: text.replace("arg0@0[1024*i0 + i1]", "k0_part0@0[2048*i0 + i1]"), RULE),  # too early
        (lambda text: text.replace("load k0_part0@0[i2]", "load buf1@0[i2]"), RULE),  # what the same part writes
    ],
)
def test_faults(change: Change, rule: str) -> None:
    text = print_program(finished(total(LENGTH)))
    broken = change(text)
    assert broken != text
    with pytest.raises(VerifyError, match=rule):
        verify(parse_program(broken), "bundle")


def test_a_kernel_that_may_have_no_program_is_finished_by_none() -> None:
    text = print_program(bundle(schedule(parse_program(TWO.format(least=1, read="buf1")), GPU), GPU))
    verify(parse_program(text), "bundle")
    with pytest.raises(VerifyError, match=RULE):
        verify(parse_program(text.replace("symbol s0 [1,", "symbol s0 [0,")), "bundle")
