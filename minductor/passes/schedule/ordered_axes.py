"""Which axes of a scatter must run in order, because two of their points may write the same element.

Takes a Kernel and the buffers. Gives the names of these axes; none for a kernel without scatters. Refuses nothing: axes
count as ordered unless their points are proved to write different elements.

The index of a write is split into the coordinates of its buffer. If a coordinate is one axis alone, points along this
axis write different elements, whatever the data are. Loops over such an axis may be parallel or vectorised. All other
axes run in the order of the kernel's axes, on one thread. So sums add their terms in one order, and the last of several
writes wins, as in eager.

>>> from minductor.core.dtypes import F32, I64
>>> from minductor.core.expressions.expr import integer, symbol
>>> from minductor.ir.program.build import Builder
>>> from minductor.ir.program.nodes import Axis, Ref
>>> i, j = symbol("i0", "axis", 0, 99), symbol("i1", "axis", 0, 7)
>>> b = Builder((i, j))
>>> row = b.check(b.load(Ref("ids", 0), i, I64), integer(10), wrap=False)
>>> _ = b.atomic(Ref("out", 1), 8 * row + j, b.load(Ref("x", 0), 8 * i + j, F32), "add")
>>> kernel = Kernel("k", (Axis(i, integer(100)), Axis(j, integer(8))), b.build(), ())
>>> ordered_axes(kernel, {"out": Buffer("out", F32, (integer(10), integer(8)), (integer(8), integer(1)))})
frozenset({'i0'})
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.analysis.domain import extents_of
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear
from minductor.core.expressions.rewrite import delinearize
from minductor.ir.program.nodes import Atomic, Buffer, Check, Kernel


def ordered_axes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """The names of the axes that must run in order."""
    writes = [op.attrs for op in kernel.body.ops if isinstance(op.attrs, Atomic)]
    if not writes:
        return frozenset()
    checks = (op.attrs for op in kernel.body.ops if isinstance(op.attrs, Check))
    extents = extents_of(kernel.axes) | {check.symbol: check.size for check in checks}
    free = {axis.name for axis in kernel.axes}
    for write in writes:
        buffer = buffers[write.ref.storage]
        at = delinearize(write.index, buffer.size, buffer.stride, extents)
        free &= {name for coordinate in at or () if (name := _own_axis(coordinate))}
    return frozenset(axis.name for axis in kernel.axes) - free


def _own_axis(coordinate: Expr) -> str:
    """The only axis in a coordinate of the form factor * axis + constant; "" if it has another form."""
    axes = [s for s in free_symbols(coordinate) if s.kind != "size"]
    if len(axes) != 1 or axes[0].kind != "axis":
        return ""
    split: tuple[Mapping[Symbol, Expr], Expr] | None = linear(coordinate, axes)
    factor = None if split is None else as_int(split[0][axes[0]])
    return axes[0].name if factor else ""
