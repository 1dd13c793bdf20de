"""Whether a kernel's reductions are cut in parts, and in which.

Takes a kernel, the buffers, the target and the hints. Gives a `Cut`, with the reason for the user. Gives None where the
GPU has enough programs without a cut, where the rows are short, and where the kernel cannot be cut: a matrix product, a
scan, a scatter, or reductions over different axes. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from minductor.analysis.both_ways import reduced_groups
from minductor.analysis.touch import Touches
from minductor.core.expressions.expr import Expr, as_int, floordiv, integer
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Atomic, Axis, Buffer, Kernel, Scan
from minductor.target import Target

LONG_ROW, LONG_COLUMN = 1 << 16, 1 << 10  # elements: a shorter row (or column) is reduced by one program
LEAST_ROW, LEAST_COLUMN = 1 << 12, 1 << 7  # elements: the smallest part of a row (or column)
ALIGNED = 16  # elements: a block whose size is a multiple of it starts where a thread can load several elements at once
WAVES = 2  # programs per multiprocessor that the kernel of the parts should have


@dataclass(frozen=True, slots=True)
class Cut:
    """How reduced axes are cut: one part for each index of the axes `whole` and each block of `axis`.

    `axis` has `count` blocks of `block` elements; if not `is_exact`, the last block may be shorter.
    """

    whole: tuple[str, ...]
    axis: str
    count: Expr
    block: Expr
    is_exact: bool
    reason: str = ""  # for the user


def wanted_cut(kernel: Kernel, table: dict[str, Buffer], target: Target, hints: Hints) -> Cut | None:
    """How to cut the reductions of a kernel; None if it stays whole."""
    reduced = _cuttable_axes(kernel)
    sizes = {axis.name: estimate(axis.extent, hints) for axis in kernel.axes}
    length = prod(sizes[axis.name] for axis in reduced)
    if not reduced or not all(sizes.values()) or length < LONG_COLUMN:
        return None
    columns = _columns(kernel, reduced, table, hints)
    kept = {name: size for name, size in sizes.items() if all(axis.name != name for axis in reduced)}
    programs = prod(-(-size // target.columns_per_block) if name == columns else size for name, size in kept.items())
    least, most = (LONG_ROW, LEAST_ROW) if columns is None else (LONG_COLUMN, LEAST_COLUMN)
    if length < least or programs > target.multiprocessors or find_dots(kernel) is not None:
        return None
    parts = min(-(-WAVES * target.multiprocessors // programs), length // most)
    cut = _cut_axes(reduced, parts, hints)
    if cut is None:
        return None
    parts = prod(sizes[name] for name in cut.whole) * estimate(cut.count, hints)
    reason = (
        f"{prod(kept.values())} rows of {length} elements would be {programs} programs for {target.multiprocessors} "
        f"multiprocessors, so each row is reduced in {parts} parts"
    )
    return Cut(cut.whole, cut.axis, cut.count, cut.block, cut.is_exact, reason)


def _cuttable_axes(kernel: Kernel) -> tuple[Axis, ...]:
    """The axes that all reductions of a kernel run over; none for a kernel that cannot be cut."""
    groups = reduced_groups(kernel.body)
    if len(groups) != 1 or any(isinstance(op.attrs, Scan | Atomic) for op in kernel.body.ops):
        return ()
    return tuple(axis for axis in kernel.axes if axis.name in groups[0])


def _columns(kernel: Kernel, reduced: Sequence[Axis], table: dict[str, Buffer], hints: Hints) -> str | None:
    """The axis along which most bytes are contiguous; None if that axis is reduced, or nothing is contiguous."""
    touches = Touches(kernel, table, hints)
    first = touches.vector_axis()
    is_reduced = any(axis.name == first for axis in reduced)
    return None if first is None or is_reduced or not touches.contiguous_bytes(first) else first


def _cut_axes(reduced: Sequence[Axis], wanted: int, hints: Hints) -> Cut | None:
    """A cut of the outer reduced axes in about `wanted` parts; None if no element would be left to a part."""
    whole: list[Axis] = []
    for axis in reduced:
        if wanted <= 1:
            break
        size = estimate(axis.extent, hints)
        names = tuple(outer.name for outer in whole)
        if size > wanted and as_int(axis.extent) is None:
            block = floordiv(axis.extent + (wanted - 1), wanted)
            return Cut(names, axis.name, integer(wanted), block, is_exact=False)
        if size > wanted:
            return _blocks(names, axis.name, size, wanted)
        whole.append(axis)
        wanted = -(-wanted // size)
    if not whole or len(whole) == len(reduced):
        return None
    *outer, last = whole
    return Cut(tuple(axis.name for axis in outer), last.name, last.extent, integer(1), is_exact=True)


def _blocks(whole: tuple[str, ...], axis: str, size: int, wanted: int) -> Cut:
    """A cut of an axis into about `wanted` blocks: equal ones if such a number of blocks divides the size."""
    near = [n for n in (*range(wanted, min(4 * wanted, size)), *range(wanted - 1, wanted // 2, -1)) if size % n == 0]
    if near:
        count = min(near, key=lambda n: size // n % ALIGNED != 0)
        return Cut(whole, axis, integer(count), integer(size // count), is_exact=True)
    block = -(-size // (wanted * ALIGNED)) * ALIGNED
    return Cut(whole, axis, integer(-(-size // block)), integer(block), is_exact=False)
