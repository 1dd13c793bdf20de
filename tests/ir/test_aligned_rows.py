"""Rows that are held in a bulk and edges: their text, and the rule that each element is in one of them."""

from __future__ import annotations

import pytest

from minductor.core.errors import VerifyError
from minductor.ir.program.aligned_rows import bulk, edge_block, most_in_bulk
from minductor.ir.program.loops import loops, moved, parse_schedule
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from tests.verifying import verify

RULE = "bulk and edges of an aligned row hold each element once"
TEXT = """program inference
  input x: f32[40, 301] stride [301, 1] cpu
  buffer y: f32[40, 301] stride [301, 1] cpu
  kernel k0 (i: 40, j: 301) from softmax = aten.softmax.int
    schedule {
      grid i by 1 {
        tile j by 512 aligned 4 at %0 {
          %0 %1 %2 %3
        }
      }
    }
    %0 = load x@0[301*i + j] : f32 {i j}
    %1 = reduce max over j of %0 : f32 {i}
    %2 = sub %0 %1 : f32 {i j}
    %3 = store y@0[301*i + j] %2 {i j}
  return (y@0 f32[40, 301] stride [301, 1] offset 0)
"""
# old text, new text, what the rule says
FAULTS = [
    ("by 512 aligned", "by 256 aligned", "a block of 256 does not hold its bulk"),
    ("aligned 4", "aligned 512", "an element may be in both edges"),
    ("aligned 4", "aligned 6", "6 elements are no vector"),
    ("tile j", "serial j", "one program computes more than one row"),
    ("grid i by 1", "grid i by 2", "one program computes more than one row"),
    ("at %0", "at %2", "%2 runs along no rows"),
    ("at %0", "at %3 {%0 %1 %2 } tile j by 512 aligned 4 at %3", "one program computes more than one row"),
    ("x@0[301*i + j]", "x@0[i + 40*j]", "%0 runs along no rows"),
    ("y@0[301*i + j] %2", "y@0[301*i] %2", "the elements of a row are not evenly apart"),
    ("y@0[301*i + j] %2", "y@0[301*i + (150 + j)%301] %2", "the elements of a row are not evenly apart"),
    ("= store y@0[301*i + j]", "= atomic add y@0[301*i + j]", "an atomic may add each element"),
    ("= reduce max over j of %0 : f32 {i}", "= scan max over j of %0 : f32 {i j}", "a scan runs in order"),
]


def test_an_aligned_row_is_read_back() -> None:
    program = parse_program(TEXT)
    assert print_program(program).split() == TEXT.split()
    verify(program, "schedule")


def test_an_aligned_row_moves_with_its_ops() -> None:
    text = "grid i by 1 {\n  tile j by 8 aligned 4 at %1 {\n    %0 %1\n  }\n}"
    (_, tile) = loops(moved(parse_schedule(text), [3, 5], {"i": "i0", "j": "i1"}).steps)
    assert (tile.axis, tile.body, tile.aligned, tile.reference) == ("i1", (3, 5), 4, 5)


@pytest.mark.parametrize(("old", "new", "says"), FAULTS)
def test_a_row_with_an_element_that_is_not_held_once_is_refused(old: str, new: str, says: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(VerifyError) as caught:
        verify(parse_program(TEXT.replace(old, new)), "schedule")
    assert caught.value.rule == RULE and f"the loop over j: {says}\n" in f"{caught.value}\n"


@pytest.mark.parametrize("vector", [2, 4, 8, 16])
def test_bulk_and_edges_hold_each_element_once(vector: int) -> None:
    """The places that the generated code computes, for each length and each start of a row."""
    for length in range(vector, 5 * vector):
        for head in range(vector):
            held = bulk(head, length, vector)
            lanes = (lane if lane < head else held + lane for lane in range(edge_block(vector)))
            found = [*range(head, head + held), *(place for place in lanes if place < length)]
            assert sorted(found) == list(range(length)) and held <= most_in_bulk(length, vector)
