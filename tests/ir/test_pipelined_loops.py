"""Loops whose blocks are loaded ahead: their text, and the rule about what they load."""

from __future__ import annotations

import pytest

from minductor.core.errors import VerifyError
from minductor.ir.program.loops import loops, moved, parse_schedule
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from tests.verifying import verify

RULE = "what a pipelined loop loads ahead, it does not write meanwhile"
TEXT = """program inference
  input x: f32[600, 64] stride [64, 1] cpu
  buffer y: f32[600, 64] stride [64, 1] cpu
  buffer z: f32[64] stride [1] cpu
  kernel k0 (i: 600, j: 64) from sum_1 = aten.sum.dim_IntList
    schedule {
      grid j by 64 {
        serial i by 32 carry %2 stages 3 {
          %0 %1 %2
        }
        %3
      }
    }
    %0 = load x@0[64*i + j] : f32 {i j}
    %1 = store y@0[64*i + j] %0 {i j}
    %2 = reduce sum over i of %0 : f32 {j}
    %3 = store z@0[j] %2 {j}
  return (y@0 f32[600, 64] stride [64, 1] offset 0, z@0 f32[64] stride [1] offset 0)
"""
# old text, new text, what the rule says
FAULTS = [
    ("stages 3", "stages 1", "has 1 stages and walks over no blocks"),
    ("serial i by 32", "serial i", "has 3 stages and walks over no blocks"),
    ("serial i by 32", "tile i by 1024", "has 3 stages and walks over no blocks"),
]
# the matrix is written in place, and each row over the one before
IN_PLACE = [
    ("store y@0[64*i + j] %0", "store x@1[64*i + j] %0"),
    ("y@0 f32[600, 64]", "x@1 f32[600, 64]"),
    ("  buffer y: f32[600, 64] stride [64, 1] cpu\n", ""),
]
SHIFTED = ("x@1[64*i + j]", "x@1[64*i + j - 64]")


def test_a_pipelined_loop_is_read_back() -> None:
    program = parse_program(TEXT)
    assert print_program(program).split() == TEXT.split()
    verify(program, "schedule")


def test_a_pipelined_loop_keeps_its_stages_when_its_ops_move() -> None:
    text = "grid i by 1 {\n  serial j by 8 stages 4 {\n    %0 %1\n  }\n}"
    (_, walk) = loops(moved(parse_schedule(text), [3, 5], {"i": "i0", "j": "i1"}).steps)
    assert (walk.axis, walk.body, walk.stages) == ("i1", (3, 5), 4)


@pytest.mark.parametrize(("old", "new", "says"), FAULTS)
def test_a_loop_that_cannot_load_ahead_is_refused(old: str, new: str, says: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(TEXT.replace(old, new)), "schedule")
    assert caught.value.rule == RULE and says in str(caught.value)


def test_a_matrix_that_is_loaded_ahead_is_written_in_place_where_it_was_read() -> None:
    text = TEXT
    for old, new in IN_PLACE:
        assert text.count(old) == 1
        text = text.replace(old, new)
    verify(parse_program(text), "schedule")
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(text.replace(*SHIFTED)), "schedule")
    assert caught.value.rule == RULE and "loads x@0 ahead, which it writes" in str(caught.value)
