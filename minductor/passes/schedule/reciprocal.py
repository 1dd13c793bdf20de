"""Divides by a softmax's sum with one division for each row, and by a power of two with none.

Takes a kernel, and the buffers where their types decide. Gives the kernel with a product in place of each such
division, and one division for each row; the same object if there is no such division. Refuses nothing.

A product with the reciprocal of a power of two is the quotient, bit for bit (`scale_by_powers`).

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
from math import frexp

from minductor.analysis.domain import extents_of
from minductor.core.dtypes import F32, F64
from minductor.ir.program.build import Builder
from minductor.ir.program.nodes import Buffer, Constant, Kernel, Op, Store
from minductor.passes.rewriting.online import maximum_of
from minductor.passes.rewriting.prune import prune_body

LARGEST_POWER = 126  # of two, whose reciprocal is a normal float32

# From a dividend, the divisor and its reciprocal (positions in the body that is built) to the quotient.
Quotient = Callable[[Builder, int, int, int], int]


def divide_once(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Kernel:
    """The kernel with a product in place of each division by a softmax's sum that is stored with 16 bits."""
    ops = kernel.body.ops
    wide = {arg for op in ops for arg in op.args if not _is_short_store(op, buffers)}
    divisions = {n for n in _divisions(ops) if ops[n].dtype == F32 and n not in wide}
    return _replaced(kernel, divisions, lambda b, x, _, inverse: b.op("mul", x, inverse))


def scale_by_powers(kernel: Kernel) -> Kernel:
    """The kernel with a product in place of each division by a constant that is a power of two.

    Both round the same number, as long as the reciprocal is a normal number: so for 2**-126 to 2**126.
    """
    ops = kernel.body.ops
    places = range(len(ops))
    powers = {n for n in places if ops[n].dtype in (F32, F64) and _is_power_of_two(ops[n])}
    divisions = {n for n in places if ops[n].name == "div" and ops[n].args[1] in powers}
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
                inverse[row] = _inverse(b, kernel.body.ops[row], place[row])
            place.append(quotient(b, args[0], place[row], inverse[row]))
        else:
            place.append(b.again(op, args))
    return replace(kernel, body=prune_body(b.build()))


def _inverse(b: Builder, divisor: Op, position: int) -> int:
    """The reciprocal of a divisor, which has this position in the new body."""
    assert divisor.dtype is not None
    if isinstance(divisor.attrs, Constant) and isinstance(divisor.attrs.value, float):
        return b.constant(1.0 / divisor.attrs.value, divisor.dtype)
    return b.op("div", b.constant(1.0, divisor.dtype), position)


def _is_power_of_two(op: Op) -> bool:
    """Whether an op is a constant whose reciprocal is exact."""
    if not isinstance(op.attrs, Constant) or not isinstance(op.attrs.value, float):
        return False
    mantissa, exponent = frexp(op.attrs.value)
    return abs(mantissa) == 0.5 and abs(exponent - 1) <= LARGEST_POWER


def _is_short_store(op: Op, buffers: Mapping[str, Buffer]) -> bool:
    """Whether an op stores floats with 16 bits."""
    if not isinstance(op.attrs, Store):
        return False
    dtype = buffers[op.attrs.ref.storage].dtype
    return dtype.kind == "float" and dtype.itemsize == 2
