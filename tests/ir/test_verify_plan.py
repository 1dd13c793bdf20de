"""Each rule of plans refuses a plan that breaks it, and no other rule has to."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from minductor.core.dtypes import F32
from minductor.core.errors import VerifyError
from minductor.core.expressions.expr import symbol
from minductor.ir.plan.plan import (
    DispatchLine,
    ExternLine,
    FreeLine,
    KernelLine,
    LaunchLine,
    Line,
    Plan,
    ReturnLine,
    ReuseLine,
    ViewLine,
    handles,
)
from minductor.ir.plan.verify_plan import verify_plan
from minductor.ir.program.nodes import Origin
from minductor.ir.program.parser import parse_program
from minductor.options import Options
from minductor.passes.memory.memory import memory
from minductor.target import Env, by_name
from tests.ir.programs import ALL, CALLS, CHAIN

Change = Callable[[list[Line]], object]


def place(lines: list[Line], kind: type) -> int:
    return next(number for number, line in enumerate(lines) if isinstance(line, kind))


def edit(kind: type, **changes: object) -> Change:
    """Replaces fields of the first line of a kind."""

    def change(lines: list[Line]) -> None:
        at = place(lines, kind)
        lines[at] = replace(lines[at], **changes)

    return change


def before(kind: type, line: Line) -> Change:
    return lambda lines: lines.insert(place(lines, kind), line)


def without(kind: type) -> Change:
    return lambda lines: lines.pop(place(lines, kind))


def twice(kind: type) -> Change:
    return lambda lines: lines.insert(place(lines, kind), lines[place(lines, kind)])


FAULTS: dict[str, tuple[Change, str]] = {
    "a launch without an origin": (edit(LaunchLine, origins=()), "comes from no ATen node"),
    "a call without an origin": (edit(ExternLine, origins=(Origin("", ""),)), "comes from no ATen node"),
    "used before it is made": (before(LaunchLine, FreeLine(("buf1",))), "uses buf1, which is not alive"),
    "freed twice": (before(ReturnLine, FreeLine(("buf0",))), "uses buf0, which is not alive"),
    "freed twice at once": (before(ExternLine, FreeLine(("buf0", "buf0"))), "frees a name twice"),
    "used after it is freed": (before(ExternLine, FreeLine(("buf0",))), "uses buf0, which is not alive"),
    "used after it is taken over": (
        before(ExternLine, ReuseLine("buf9", "buf0", F32, (), ())),
        "uses buf0, which is not alive",
    ),
    "written after it is freed": (before(ExternLine, FreeLine(("buf1",))), "uses buf1, which is not alive"),
    "made twice": (twice(ViewLine), "makes arg1_view1, which is alive"),
    "a number before it is known": (edit(LaunchLine, sizes=(symbol("s9", "size"),)), "uses s9, which is not alive"),
    "another count of tensors": (edit(LaunchLine, tensors=("arg0",)), "with 1 tensors and 1 sizes"),
    "another count of sizes": (edit(LaunchLine, sizes=()), "with 3 tensors and 0 sizes"),
    "an unknown kernel": (edit(LaunchLine, kernel="k9"), "launches k9, which is not defined"),
    "a kernel defined twice": (twice(KernelLine), "two kernels have one name"),
    "other kinds of numbers": (edit(KernelLine, numbers=("real",)), "k0 is defined with what its kernel does not have"),
    "other errors": (edit(KernelLine, errors=(("E", "m"),)), "k0 is defined with what its kernel does not have"),
    "other tensors are written": (edit(KernelLine, written=()), "k0 is defined with what its kernel does not have"),
    "others are overwritten": (edit(KernelLine, overwritten=(0,)), "k0 is defined with what its kernel does not have"),
    "a constant": (edit(KernelLine, nonfinite=("inf",)), "k0 is defined with what its kernel does not have"),
    "no return": (without(ReturnLine), "0 lines return"),
    "two returns": (twice(ReturnLine), "2 lines return"),
    "a call's handle given again": (edit(ExternLine, handle=1), "call 1 stands behind call 1"),
    "lines behind the return": (lambda lines: lines.append(FreeLine(("c0",))), "1 kinds of lines"),
}


@pytest.mark.parametrize("name", ALL)
def test_plans_of_programs_keep_the_rules(name: str) -> None:
    verify_plan(plan_of(ALL[name]))


def plan_of(text: str) -> Plan:
    return memory(parse_program(text), Env(Options(), by_name("cpu")))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    change, why = FAULTS[fault]
    plan = plan_of(CHAIN)
    lines = list(plan.lines)
    change(lines)
    with pytest.raises(VerifyError) as raised:
        verify_plan(replace(plan, lines=tuple(lines)))
    assert why in str(raised.value)


def test_what_is_left_at_the_return_was_returned() -> None:
    plan = plan_of(CHAIN)
    lines = [replace(line, values=()) if isinstance(line, ReturnLine) else line for line in plan.lines]
    storages = [replace(storage, is_returned=False) for storage in plan.storages]
    with pytest.raises(VerifyError, match="is neither freed nor returned"):
        verify_plan(replace(plan, lines=tuple(lines), storages=tuple(storages)))


def test_a_region_s_calls_have_handles_of_their_own() -> None:
    plan = plan_of(CALLS)
    assert plan.regions
    assert list(handles(plan)) == list(range(1, len(list(handles(plan))) + 1))
    region = plan.regions[0]
    lines = [replace(line, handle=1) if isinstance(line, LaunchLine | ExternLine) else line for line in region.lines]
    with pytest.raises(VerifyError, match="call 1 stands behind call"):
        verify_plan(replace(plan, regions=(replace(region, lines=tuple(lines)), *plan.regions[1:])))


ALTERNATIVES = """program inference
  input arg0: f32[8] stride [1] cpu
  input arg1: f32[8] stride [1] cpu
  input arg2: i64[8] stride [1] cpu
  kernel k0 (i0: 8) from add = aten.add.Tensor
    choice variant bits extern of (extern, native)
    variant extern {
      extern x0 out aten.add.out(arg0@0 f32[8] stride [1] offset 0, arg1@0 f32[8] stride [1] offset 0) -> \
(arg0@1 f32[8] stride [1] offset 0) from add = aten.add.Tensor because "for the test"
    }
    %0 = load arg0@0[i0] : f32 {i0}
    %1 = load arg1@0[i0] : f32 {i0}
    %2 = add %0 %1 : f32 {i0}
    %3 = store arg0@1[i0] %2 {i0}
  kernel k1 (i0: 8) from index_add = aten.index_add.default
    choice variant bits native of (other, native)
    variant other {
      kernel k2 (i0: 8) from index_add = aten.index_add.default
        %0 = load arg1@0[i0] : f32 {i0}
        %1 = atomic add arg0@2[7 - i0] %0 {i0}
    }
    %0 = load arg1@0[i0] : f32 {i0}
    %1 = atomic add arg0@2[7 - i0] %0 {i0}
  return (arg0@2 f32[8] stride [1] offset 0)
"""


def test_a_choice_and_its_variants_come_from_nodes() -> None:
    plan = plan_of(ALTERNATIVES)
    at, choice = next((n, line) for n, line in enumerate(plan.lines) if isinstance(line, DispatchLine))
    groups = tuple(tuple(replace(line, origins=()) for line in group) for group in choice.variants)
    for faulty in (replace(choice, origins=()), replace(choice, variants=groups)):
        with pytest.raises(VerifyError, match="comes from no ATen node"):
            verify_plan(replace(plan, lines=(*plan.lines[:at], faulty, *plan.lines[at + 1 :])))


def test_a_choice_puts_back_what_its_candidates_overwrite() -> None:
    """What is read and written, and what is added to: by kernels, and by calls of the library."""
    plan = plan_of(ALTERNATIVES)
    choices = [line for line in plan.lines if isinstance(line, DispatchLine)]
    assert [line.overwritten for line in choices] == [("arg0",), ("arg0",)]
    verify_plan(plan)
    for choice, option in zip(choices, ("extern", "other"), strict=True):
        lines = [replace(line, overwritten=()) if line is choice else line for line in plan.lines]
        with pytest.raises(VerifyError, match=f"{option} overwrites arg0, which the choice does not put back"):
            verify_plan(replace(plan, lines=tuple(lines)))
