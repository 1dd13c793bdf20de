"""Divides by a softmax's sum with one division for each row, and a product with the reciprocal for each element.

Takes a kernel, and the buffers where their types decide. Gives the kernel with one division for each row in place of
one for each element; the same object if there is no such division. Refuses nothing.

A product with the reciprocal is off by at most one unit in the last of 24 bits. Where quotients are only stored with 16
bits, rounding hides that (`divide_once`). Elsewhere two more operations correct it (`divide_with_rest`): of the
quotient `q = x * (1 / sum)`, a fused multiply-add gives the rest `x - q * sum` exactly, and another one the quotient
`q + rest / sum`, rounded as the division rounds it (Markstein, "Computation of elementary functions on the IBM RISC
System/6000 processor", 1990). Only where x is below 2**-100 the rest is rounded too, and the quotient may be off by a
unit. A processor without fused multiply-add may be off by a unit anywhere.

The sum of exp(x - maximum) is at least 1 and finite, so that its reciprocal is neither zero nor infinite; no other
divisor is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from minductor.analysis.domain import extents_of
from minductor.core.dtypes import F32, F64
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Buffer, Kernel, Op, Store
from minductor.passes.rewriting.online import maximum_of
from minductor.passes.rewriting.prune import prune_body

# From a dividend, the divisor and its reciprocal (positions in the body that is built) to the quotient.
Quotient = Callable[[Builder, int, int, int], int]


def divide_once(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """The kernel with a product in place of each division by a softmax's sum that is stored with 16 bits."""
    ops = kernel.body.ops
    wide = {arg for op in ops for arg in op.args if not _is_short_store(op, buffers)}
    divisions = {n for n in _divisions(ops) if ops[n].dtype == F32 and n not in wide}
    return _replaced(kernel, divisions, lambda b, x, _, inverse: b.op("mul", x, inverse))


def divide_with_rest(kernel: Kernel) -> Kernel:
    """The kernel with a corrected product in place of each division by a softmax's sum.

    Only dividends that the sum adds up are taken: they are finite where the sum is, so that no rest is inf - inf.
    """
    ops = kernel.body.ops
    divisions = {
        n for n in _divisions(ops) if ops[n].dtype in (F32, F64) and ops[n].args[0] in ops[ops[n].args[1]].args
    }
    return _replaced(kernel, divisions, _corrected)


def _corrected(b: Builder, dividend: int, divisor: int, inverse: int) -> int:
    quotient = b.op("mul", dividend, inverse)
    rest = b.op("fma", b.op("neg", quotient), divisor, dividend)
    return b.op("fma", rest, inverse, quotient)


def _divisions(ops: tuple[Op, ...]) -> set[int]:
    """The divisions by the sum of exp(x - maximum)."""
    sums = {n for n, op in enumerate(ops) if maximum_of(op, ops) is not None}
    return {n for n, op in enumerate(ops) if op.name == "div" and op.args[1] in sums}


def _replaced(kernel: Kernel, divisions: set[int], quotient: Quotient) -> Kernel:
    """The kernel with `quotient` in place of each of the divisions, and one reciprocal for each divisor."""
    if not divisions:
        return kernel
    b = Builder([axis.symbol for axis in kernel.axes], extents_of(kernel.axes))
    place: list[int] = []  # by old op, its position among the new ones
    inverse: dict[int, int] = {}
    for position, op in enumerate(kernel.body.ops):
        args, b.node = tuple(place[a] for a in op.args), op.node
        if position in divisions:
            row = op.args[1]
            if row not in inverse:
                assert op.dtype is not None
                inverse[row] = b.op("div", b.constant(1.0, op.dtype), place[row])
            place.append(quotient(b, args[0], place[row], inverse[row]))
        else:
            place.append(b.again(op, args))
    return replace(kernel, body=prune_body(b.build()))


def _is_short_store(op: Op, buffers: Mapping[str, Buffer]) -> bool:
    """Whether an op stores floats with 16 bits."""
    if not isinstance(op.attrs, Store):
        return False
    dtype = buffers[op.attrs.ref.storage].dtype
    return dtype.kind == "float" and dtype.itemsize == 2
