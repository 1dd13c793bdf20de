"""Accesses in a program's text, and the rules that hold blocks to indices, and hints for the cache to the loops."""

from __future__ import annotations

import pytest

from minductor.core.errors import VerifyError
from minductor.ir.program.nodes import Kernel
from minductor.ir.program.parser import parse_program
from minductor.ir.program.printer import print_program
from tests.verifying import verify

TEXT = """program inference
  symbol s0 [2, inf]
  input x: f32[2048] stride [1] cpu
  input s0 = s0
  buffer y: f32[s0, 2048] stride [2048, 1] cpu
  kernel k0 (i: s0, j: 2048) from neg = aten.neg.default
    schedule {
      grid i {
        grid j by 256 {
          %0 %1 %2 %3
        }
      }
    }
    access %2 %0 block at <0> dim j <16> stride <16> every <128> dim j <8> stride <256> every <16> dim j <16> stride <1>
    access %3 block at <0> dim i <s0> stride <2048> dim j <2048> stride <1> as pointer
    %0 = index <j> : i64 {j}
    %1 = ge %0 %0 : bool {j}
    %2 = masked %1 else 0.0 : f32 {j} {
      %0 = load x@0[16*(j//128) + j % 16 + 256*((j//16) % 8)] : f32 {j}
      yield %0
    }
    %3 = store y@0[2048*i + j] %2 {i j}
  return (y@0 f32[s0, 2048] stride [2048, 1] offset 0)
"""
WALKED = """
program inference
  input x: f32[8, 9000] stride [9000, 1] cuda:0
  buffer y: f32[8, 9000] stride [9000, 1] cuda:0
  kernel k0 (i: 8, j: 9000) from softmax = aten.sub.Tensor
    schedule {
      grid i by 1 {
        serial j by 2048 carry %1 {
          %0 %1
        }
        serial j by 2048 {
          %0 %2 %3
        }
      }
    }
    access %0 block at <0> dim i <8> stride <9000> dim j <9000> stride <1> evict last first
    access %3 block at <0> dim i <8> stride <9000> dim j <9000> stride <1> evict first
    %0 = load x@0[9000*i + j] : f32 {i j}
    %1 = reduce max over j of %0 : f32 {i}
    %2 = sub %0 %1 : f32 {i j}
    %3 = store y@0[9000*i + j] %2 {i j}
  return (y@0 f32[8, 9000] stride [9000, 1] offset 0)
"""


def test_a_block_is_read_back() -> None:
    program = parse_program(TEXT)
    assert print_program(program).split() == TEXT.split()
    assert parse_program(print_program(program)) == program
    verify(program, "access")


def test_a_window_is_read_back() -> None:
    text = TEXT.replace("dim i <s0> stride <2048>", "dim i <s0 - 3> stride <2048> from <3>")
    assert parse_program(print_program(parse_program(text))) == parse_program(text)
    assert "dim i <s0 - 3> stride <2048> from <3>" in print_program(parse_program(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stride <16> every <128>", "stride <17> every <128>"),
        ("dim j <8>", "dim j <4>"),
        ("block at <0> dim i", "block at <1> dim i"),
        ("stride <2048> dim j", "stride <s0> dim j"),
    ],
)
def test_a_block_that_is_not_the_index_is_a_fault(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(VerifyError, match="a block of memory holds the elements of its index"):
        verify(parse_program(TEXT.replace(old, new)), "access")


@pytest.mark.parametrize("path", ["%2 %1", "%3 %0", "%7 %0"])
def test_an_access_of_nothing_is_a_fault(path: str) -> None:
    with pytest.raises(VerifyError, match="where nothing is touched"):
        verify(parse_program(TEXT.replace("access %2 %0", f"access {path}")), "access")


def test_hints_for_the_cache_are_read_back() -> None:
    program = parse_program(WALKED)
    (kernel,) = program.nodes
    assert isinstance(kernel, Kernel)
    assert [access.evictions for access in kernel.access] == [("last", "first"), ("first",)]
    assert print_program(program).split() == WALKED.split()
    verify(program, "access")


@pytest.mark.parametrize(("hints", "word"), [("evict", "access"), ("evict soon", "soon"), ("evict last soon", "soon")])
def test_a_hint_for_the_cache_is_one_of_two_words(hints: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse_program(WALKED.replace("evict last first", hints))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("evict last first", "evict first", "has 1 hints, and runs 2 times"),
        ("evict last first", "evict last last first", "has 3 hints, and runs 2 times"),
        ("evict last first", "evict first first", "asks to be evicted first, first"),
        ("evict last first", "evict last last", "asks to be evicted last, last"),
        ("evict first\n", "evict last\n", "asks to be evicted last"),
        ("stride <1> evict last", "stride <1> as pointer evict last", "is no plain load or store"),
        ("grid i by 1", "parallel i by 1", "for a cache that takes none"),
    ],
)
def test_a_hint_for_the_cache_in_a_wrong_place_is_a_fault(old: str, new: str, fault: str) -> None:
    assert WALKED.count(old) == 1
    with pytest.raises(VerifyError, match="a hint for the cache stands for each time") as found:
        verify(parse_program(WALKED.replace(old, new)), "access")
    assert fault in str(found.value)
