"""In which ways a kernel's reductions and scans can be cut in parts.

Takes a kernel, the buffers, how many programs must share a row so that none of the machine is idle, and hints. Gives a
few cuts, of which `split.py` takes the fastest; none for a kernel that cannot be cut: a matrix product, a scatter,
reductions and scans over different axes that are not rows and columns, and scans of a kind that has no blocks, or whose
length is not known. Refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from minductor.analysis.both_ways import both_ways, reduced_groups
from minductor.core.expressions.expr import Expr, as_int, floordiv, integer
from minductor.core.expressions.hints import Hints, estimate
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import Atomic, Axis, Kernel, Scan
from minductor.passes.split.scan_pieces import COMMUTATIVE, may_cut

ALIGNED = 16  # elements: a block whose size is a multiple of it starts where a thread can load several elements at once
SHARES = (2.0, 1.0, 4.0, 8.0)  # programs for each that the machine has room for; of equally fast cuts the first is made
HELD = 8192  # elements of a part that a program of 8 warps holds in registers, with room for others beside it


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

    def parts(self, kernel: Kernel, hints: Hints) -> int:
        """The number of parts of a row."""
        return estimate([*(axis.extent for axis in kernel.axes if axis.name in self.whole), self.count], hints)


def possible_cuts(kernel: Kernel, sharers: float, hints: Hints) -> list[Cut]:
    """The cuts that are weighed: those in which a row has about `sharers` parts, or a few times as many."""
    reduced = cuttable_axes(kernel)
    sizes = [estimate(axis.extent, hints) for axis in kernel.axes]
    if not reduced or not all(sizes) or sharers * max(SHARES) <= 1 or find_dots(kernel) is not None:
        return []
    found = (_cut_axes(reduced, ceil(share * sharers), hints) for share in SHARES)
    scans = [op.attrs for op in kernel.body.ops if isinstance(op.attrs, Scan)]
    is_ragged = all(scan.combine.name in COMMUTATIVE for scan in scans)  # others have no element that changes nothing

    def is_possible(cut: Cut) -> bool:
        return not scans or cut.is_exact or (is_ragged and as_int(cut.block) is not None)

    return list(dict.fromkeys(cut for cut in found if cut is not None and is_possible(cut)))


def held_cuts(kernel: Kernel, hints: Hints) -> list[Cut]:
    """The cut in which a program can hold a part of a row in its registers; none for rows that are no longer."""
    reduced = cuttable_axes(kernel)
    length = prod(as_int(axis.extent) or 0 for axis in reduced)
    if any(isinstance(op.attrs, Scan) for op in kernel.body.ops) or both_ways(kernel.body, kernel.axes) is not None:
        return []
    cut = _cut_axes(reduced, ceil(length / HELD), hints) if length > HELD else None
    return [] if cut is None else [cut]


def cuttable_axes(kernel: Kernel) -> tuple[Axis, ...]:
    """The axes that all reductions and scans of a kernel run over; none for a kernel that cannot be cut.

    Of a kernel that reduces rows and columns, those along the columns: each part has whole rows.
    """
    if (ways := both_ways(kernel.body, kernel.axes)) is not None:
        return tuple(axis for axis in kernel.axes if axis.name in ways.rows)
    groups = set(reduced_groups(kernel.body))
    for op in kernel.body.ops:
        if isinstance(op.attrs, Atomic) or (isinstance(op.attrs, Scan) and not may_cut(op.attrs.combine, op.dtype)):
            return ()
        if isinstance(op.attrs, Scan):
            groups.add(frozenset((op.attrs.axis,)))
    return tuple(axis for axis in kernel.axes if axis.name in next(iter(groups))) if len(groups) == 1 else ()


def _cut_axes(reduced: tuple[Axis, ...], wanted: int, hints: Hints) -> Cut | None:
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
