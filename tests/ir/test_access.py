"""Blocks of memory in a program's text, and the rule that holds them to the indices."""

from __future__ import annotations

import pytest

from minductor.core.errors import VerifyError
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
