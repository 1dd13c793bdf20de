"""Multiplies by the reciprocal of a softmax's sum, where the quotients are only stored with 16 bits.

Takes a kernel for a GPU and the buffers. Gives the kernel with one division for each row in place of one for each
element, which cost a softmax of long rows a quarter of its time (benchmarks/cost_model.md). The same object if there is
no such division. Refuses nothing.

A product with the reciprocal is off by at most one unit in the last of 24 bits, which 16-bit storage rounds away. The
sum of exp(x - maximum) is at least 1, so that its reciprocal cannot overflow; no other divisor is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minductor.analysis.domain import extents_of
from minductor.core.dtypes import F32
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Buffer, Kernel, Op, Store
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.schedule.online import maximum_of


def divide_once(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """The kernel with a product in place of each division by a softmax's sum."""
    ops = kernel.body.ops
    sums = {n for n, op in enumerate(ops) if maximum_of(op, ops) is not None}
    wide = {arg for op in ops for arg in op.args if not _is_short_store(op, buffers)}
    divisions = {
        n for n, op in enumerate(ops) if op.name == "div" and op.dtype == F32 and op.args[1] in sums and n not in wide
    }
    if not divisions:
        return kernel
    b = Builder([axis.symbol for axis in kernel.axes], extents_of(kernel.axes))
    place: list[int] = []  # by old op, its position among the new ones
    inverse: dict[int, int] = {}
    for position, op in enumerate(ops):
        args = tuple(place[a] for a in op.args)
        if position in divisions:
            row = op.args[1]
            if row not in inverse:
                inverse[row] = b.op("div", b.constant(1.0, F32), place[row])
            place.append(b.op("mul", args[0], inverse[row]))
        else:
            place.append(b.again(op, args))
    return replace(kernel, body=prune_body(b.build()))


def _is_short_store(op: Op, buffers: Mapping[str, Buffer]) -> bool:
    """Whether an op stores floats with 16 bits."""
    if not isinstance(op.attrs, Store):
        return False
    dtype = buffers[op.attrs.ref.storage].dtype
    return dtype.kind == "float" and dtype.itemsize == 2
