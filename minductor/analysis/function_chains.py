"""Functions that wait for each other: in the tanh of a sine, the tanh needs the result of the sine first.

Takes the ops of a body and positions of some of them. Gives the functions among them, or how many of them form the
longest chain. Refuses nothing.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import integer
>>> from minductor.ir.program.build import Builder
>>> from minductor.ir.program.nodes import Ref
>>> b = Builder()
>>> x = b.load(Ref("x", 0), integer(0), F32)
>>> last = b.op("add", b.op("tanh", b.op("neg", b.op("sin", x))), b.op("exp", x))
>>> ops = b.build().ops
>>> [ops[p].name for p in functions(ops, range(len(ops)))], function_chain(ops, range(len(ops)))
(['sin', 'tanh', 'exp'], 2)
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.analysis.passes_over import longest_chain
from minductor.ir.program.nodes import Body, Op, all_ops
from minductor.ir.program.ops import FUNCTION, op_cost


def functions(ops: Sequence[Op], members: Sequence[int]) -> list[int]:
    """The members that are functions, such as an exponential, or that compute one under a mask."""
    return [p for p in members if max(op_cost(each.name) for each in all_ops(Body((ops[p],)))) >= FUNCTION]


def function_chain(ops: Sequence[Op], members: Sequence[int]) -> int:
    """The most functions among the members, which are in order, of which each needs the one before."""
    found = frozenset(functions(ops, members))
    return longest_chain(ops, members, found.__contains__) if len(found) > 1 else len(found)
