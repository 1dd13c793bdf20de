"""Rows of a softmax that are longer than a program holds: maximum and sum of each part, read once, and a join."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minductor.core.dtypes import F32
from minductor.ir.program.build import combine
from minductor.ir.program.nodes import Kernel, NodeNote, Program, Reduce
from minductor.options import Options
from minductor.passes.split import split as stage
from minductor.passes.split import wanted_cut
from minductor.passes.split.split import split
from minductor.runtime.reference.reference import run_program
from minductor.target import Env, by_name
from tests.passes.graphs import assert_same
from tests.passes.sketch import CPU, Sketch, element
from tests.verifying import verify

SM_90 = Env(Options(), by_name("sm_90"))


def softmax(rows: int, row: int, *, has_result: bool = False) -> Program:
    """The maximum and the sum of exp(x - maximum) of each row, and if `has_result` their quotients, in one kernel."""
    s = Sketch()
    x, top, total = s.input(rows, row), s.buffer([rows]), s.buffer([rows])
    axes, at, b = s.loop([rows, row])
    value = b.load(x.ref, element(x, at), F32)
    over = [axes[-1].name]
    largest = b.reduce([value], over, combine("max", F32))
    each = b.op("exp", b.op("sub", value, largest))
    summed = b.reduce([each], over, combine("sum", F32))
    b.store(top.ref, element(top, at[:1]), largest)
    b.store(total.ref, element(total, at[:1]), summed)
    outputs = [top, total]
    if has_result:
        outputs.append(s.buffer([rows, row]))
        b.store(outputs[-1].ref, element(outputs[-1], at), b.op("div", each, summed))
    s.kernel(axes, b)
    return s.done(*outputs)


def kernels(program: Program) -> list[Kernel]:
    return [node for node in program.nodes if isinstance(node, Kernel)]


def combines(kernel: Kernel) -> list[str]:
    return [op.attrs.combine.name for op in kernel.body.ops if isinstance(op.attrs, Reduce)]


@pytest.fixture
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 16 elements are held, and each kernel is cut so."""
    monkeypatch.setattr(wanted_cut, "HELD", 16)
    monkeypatch.setattr(stage, "LEAST", -1)
    monkeypatch.setattr(stage, "fastest", lambda prices: [*prices][-1])


def cut(program: Program) -> list[Kernel]:
    made = split(program, SM_90)
    verify(made, "split")
    assert_same(program, made)
    return kernels(made)


@pytest.mark.usefixtures("short_parts")
@pytest.mark.parametrize("row", [32, 48, 37, 17])
def test_each_part_is_read_once(row: int) -> None:
    parts, join = cut(softmax(3, row))
    assert combines(parts) == ["max", "sum"]
    assert combines(join) == ["online_softmax"]
    assert [each.name for each in cut(softmax(3, row, has_result=True))] == ["k0", "k0_join", "k0_map"]


@pytest.mark.usefixtures("short_parts")
def test_rows_that_are_held_and_other_reductions_stay() -> None:
    assert split(program := softmax(1 << 20, 16), SM_90) is program
    assert split(program := softmax(4, 48), CPU) is program
    s = Sketch()
    assert split(program := s.done(s.reduce("sum", s.input(1 << 20, 48), 1)), SM_90) is program


SPECIAL = (-math.inf, math.inf, math.nan, 0.0, -0.0, 1.0, -1e30, 1e30, 3.4e38, -3.4e38, 88.0, -104.0, 16.0, 1e-40)


def values_of(program: Program, x: torch.Tensor) -> list[torch.Tensor]:
    return [torch.as_tensor(each) for each in run_program(program, [x.clone()])]


@pytest.mark.usefixtures("short_parts")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data(), st.sampled_from([17, 32, 37]))
def test_special_values_are_those_of_eager(data: st.DataObject, row: int) -> None:
    """A part or a whole row may be -inf, and parts may differ in magnitude by any factor."""
    fill = data.draw(st.sampled_from(SPECIAL))
    places = data.draw(st.lists(st.tuples(st.integers(0, row - 1), st.sampled_from(SPECIAL)), max_size=6))
    x = torch.full((2, row), fill)
    x[1] = torch.randn(row, generator=torch.Generator().manual_seed(row)) * 20
    for place, value in places:
        x[0, place] = value
        x[1, row - 1 - place] = value
    program = softmax(2, row, has_result=True)
    top, total, result = values_of(split(program, SM_90), x)
    assert torch.equal(top.nan_to_num(7.0), x.amax(1).nan_to_num(7.0))
    wide = x.double()
    torch.testing.assert_close(
        total.double(), (wide - wide.amax(1, keepdim=True)).exp().sum(1), equal_nan=True, rtol=1e-5, atol=0
    )
    torch.testing.assert_close(result, torch.softmax(x, 1), equal_nan=True, rtol=2e-5, atol=1e-37)


@pytest.mark.parametrize(
    ("rows", "row", "parts"),
    [(1024, 128256, 16), (4096, 32000, 0), (512, 262144, 32), (4096, 4096, 0), (8192, 8192, 0)],
)
def test_statistics_of_long_rows_are_cut_where_that_is_faster(rows: int, row: int, parts: int) -> None:
    made = split(softmax(rows, row), SM_90)
    assert len(kernels(made)) == (2 if parts else 1)
    notes = [note.text for note in made.notes if isinstance(note, NodeNote)] if parts else []
    assert notes == [
        f"{rows} rows of {row} elements are longer than one program holds, so each is cut in {parts} parts"
    ] * bool(parts)
