"""Online softmax: computes the maximum of a row and the sum of exp(x - maximum) in one pass over the row.

Takes a kernel and the axes of its looped reductions, which read a row again in each pass. Gives the kernel with one
reduction in place of each maximum and the sum that follows it; the same object if there is no such pair. Refuses
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from minductor.analysis.domain import extents_of
from minductor.ir.program.below_maximum import maximum_above
from minductor.ir.program.build import Builder, combine, softmax_terms, softmax_total
from minductor.ir.program.nodes import Kernel, Op, Reduce
from minductor.passes.rewriting.prune import prune_body


def online(kernel: Kernel, walked: Collection[str]) -> Kernel:
    """The kernel with an online softmax for each maximum and sum over the axes `walked`."""
    ops = kernel.body.ops
    tops = {n: top for n, op in enumerate(ops) if (top := maximum_of(op, ops, walked)) is not None}
    if not tops:
        return kernel
    b = Builder([axis.symbol for axis in kernel.axes], extents_of(kernel.axes))
    place: list[int] = []  # by old op, its position among the new ones
    for position, op in enumerate(ops):
        b.node = op.node
        if position in tops.values():
            assert isinstance(op.attrs, Reduce) and op.dtype is not None
            how = combine("online_softmax", op.dtype)
            place.append(b.reduce(softmax_terms(b, place[op.args[0]]), op.attrs.axes, how))
        elif position in tops:
            place.append(softmax_total(b, place[tops[position]]))
        else:
            place.append(b.again(op, tuple(place[a] for a in op.args)))
    return replace(kernel, body=prune_body(b.build()))


def maximum_of(op: Op, ops: tuple[Op, ...], walked: Collection[str] | None = None) -> int | None:
    """If an op is the sum of exp(x - maximum): the position of this maximum of x over the same axes; else None.

    `walked`: the axes over which both may run; None for any.
    """
    axes = _reduced_by(op, "sum")
    if axes is None or ops[op.args[0]].name != "exp" or not (walked is None or axes <= set(walked)):
        return None
    top = maximum_above(ops[op.args[0]].args[0], ops)
    return top if top is not None and _reduced_by(ops[top], "max") == axes else None


def _reduced_by(op: Op, how: str) -> set[str] | None:
    """The axes that an op reduces by the combine of this name; None for any other op."""
    return set(op.attrs.axes) if isinstance(op.attrs, Reduce) and op.attrs.combine.name == how else None
