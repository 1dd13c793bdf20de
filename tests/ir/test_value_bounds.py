"""What is known of an integer value of a body, and that a known one needs no check."""

from __future__ import annotations

import pytest

from minductor.core.dtypes import I64
from minductor.core.expressions.expr import integer, symbol
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Check
from minductor.ir.program.value_bounds import value_bounds


@pytest.mark.parametrize(
    ("name", "by", "wanted"),
    [("floordiv", 32, ("i0//32", "i0//32")), ("mod", 32, ("i0 % 32", "i0 % 32")), ("floordiv", -32, ("None", "None"))],
)
def test_divisions_of_known_numbers(name: str, by: int, wanted: tuple[str, str]) -> None:
    b = Builder((symbol("i0", "axis", 0, 8191),))
    value = b.op(name, b.index(b.axes[0]), b.constant(by, I64))
    assert tuple(map(str, value_bounds(b.build().ops, value))) == wanted


def test_a_computed_block_number_is_no_indirect_index() -> None:
    b = Builder((symbol("i0", "axis", 0, 8191),))
    value = b.op("floordiv", b.index(b.axes[0]), b.constant(32, I64))
    assert str(b.check(value, integer(256), wrap=True)) == "i0//32"
    assert not any(isinstance(op.attrs, Check) for op in b.build().ops)
    assert str(b.check(value, integer(255), wrap=True)) == "v0"  # the last block is out of range
