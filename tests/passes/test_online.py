"""A maximum and the sum of exp(x - maximum) behind it become one reduce, where rows are walked over."""

from __future__ import annotations

import pytest

from minductor.core.dtypes import F32
from minductor.core.expressions.expr import integer, symbol
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Axis, Kernel, Reduce, Ref
from minductor.passes.rewriting.online import online

ROW, COLUMN = symbol("i0", "axis", 0, 7), symbol("i1", "axis", 0, 9999)
AXES = (Axis(ROW, integer(8)), Axis(COLUMN, integer(10000)))


def softmax(*, over: str = "i1", of: float = 1.0, how: str = "max") -> Kernel:
    """A softmax along i1; or of the maximum over another axis, of another value, or of no maximum."""
    b = Builder([ROW, COLUMN])
    x = b.load(Ref("arg0", 0), 10000 * ROW + COLUMN, F32)
    top = b.reduce([b.op("mul", x, b.constant(of, F32)) if of != 1 else x], [over], combine(how, F32))
    share = b.op("exp", b.op("sub", x, top))
    total = b.reduce([share], ["i1"], combine("sum", F32))
    b.store(Ref("buf0", 0), 10000 * ROW + COLUMN, b.op("div", share, total))
    return Kernel("softmax", AXES, b.build(), origins=())


def ways(kernel: Kernel) -> list[str]:
    return [op.attrs.combine.name for op in kernel.body.ops if isinstance(op.attrs, Reduce)]


def test_one_walk_finds_both() -> None:
    made = online(softmax(), ["i1"])
    assert ways(made) == ["online_softmax"]
    names = [op.name for op in made.body.ops]
    assert names.count("load") == 1 and names.count("exp") == 3  # of an element, of the total, and behind both


@pytest.mark.parametrize("kernel", [softmax(over="i0"), softmax(of=2.0), softmax(how="min")])
def test_other_pairs_stay(kernel: Kernel) -> None:
    assert online(kernel, ["i0", "i1"]) is kernel


def test_rows_that_a_program_holds_stay() -> None:
    kernel = softmax()
    assert online(kernel, []) is kernel
