"""Which of the values that a reduction carries are the same in all lanes, so that one number is enough for them.

Takes a reduction and the ops of its body. Gives numbers of carried values. Refuses nothing.

A Welford reduction carries a mean, a sum of squares and a count. Each element enters with the count 1, and a count
depends on counts only. So while each lane takes in one element after the other, all lanes have the same count, and what
depends on counts alone is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import Constant, Op, Parameter, Reduce


def uniform_parts(op: Op, ops: Sequence[Op]) -> frozenset[int]:
    """The numbers of the values of a reduction that depend on nothing but constants with which elements enter."""
    assert isinstance(op.attrs, Reduce)
    body, count = op.attrs.combine.body, len(op.args)
    found = {number for number, arg in enumerate(op.args) if isinstance(ops[arg].attrs, Constant)}
    while found:
        varying = {number for number in found if not _parameters(body.ops, body.results[number], count) <= found}
        if not varying:
            break
        found -= varying
    return frozenset(found)


def _parameters(ops: Sequence[Op], result: int, count: int) -> set[int]:
    """The carried values on which a result of a combine depends."""
    below = (ops[position].attrs for position in needed([result], lambda position: ops[position].args))
    return {attrs.number % count for attrs in below if isinstance(attrs, Parameter)}
