"""Which axes of a kernel keep their order, because two of their points may write to one element.

Takes a Kernel and the buffers. Gives the names of those axes; none for a kernel whose writes cannot meet. Refuses
nothing: where it is not proved that points are apart, their axes count as ordered.

An element's place is taken apart into the coordinates of its buffer. An axis that is a coordinate by itself leads to
elements of its own, whatever the data say: along it a loop may be parallel or a vector. All other axes of a write at
places that data decide run in the order of the kernel's axes, on one thread: sums have one order of terms, and the last
of several writes wins, as in eager.

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

from collections.abc import Iterator, Mapping

from minductor.analysis.domain import extents_of
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear
from minductor.core.expressions.rewrite import delinearize
from minductor.ir.program.nodes import Atomic, Buffer, Check, Kernel, Op


def ordered_axes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """See above."""
    writes = [op.attrs for op in kernel.body.ops if isinstance(op.attrs, Atomic)]
    if not writes:
        return frozenset()
    extents = extents_of(kernel.axes) | {c.symbol: c.size for c in _checks(kernel.body.ops)}
    free = {axis.name for axis in kernel.axes}
    for write in writes:
        buffer = buffers[write.ref.storage]
        at = delinearize(write.index, buffer.size, buffer.stride, extents)
        free &= {name for coordinate in at or () if (name := _own_axis(coordinate))}
    return frozenset(axis.name for axis in kernel.axes) - free


def _checks(ops: tuple[Op, ...]) -> Iterator[Check]:
    return (op.attrs for op in ops if isinstance(op.attrs, Check))


def _own_axis(coordinate: Expr) -> str:
    """The axis of which the coordinate is a multiple, but for a constant; "" if there is none."""
    axes = [s for s in free_symbols(coordinate) if s.kind != "size"]
    if len(axes) != 1 or axes[0].kind != "axis":
        return ""
    split: tuple[Mapping[Symbol, Expr], Expr] | None = linear(coordinate, axes)
    factor = None if split is None else as_int(split[0][axes[0]])
    return axes[0].name if factor else ""
