"""The features of a kernel: plain numbers by which a learned choice decides.

Takes a kernel, the buffers, and hints for unknown sizes. Gives a number for each name in FEATURES. Refuses nothing: a
size that is not known is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.core.expressions.hints import Hints
from minductor.cost.shape import Shape, shape_of
from minductor.ir.program.nodes import Buffer, Kernel

# By name what the number is. The values of a kernel do not depend on the recipe by which it is scheduled.
FEATURES: Mapping[str, str] = {
    "rows": "rows, or columns, that are reduced one by one",
    "row": "elements of a row",
    "row_bytes": "bytes of a row of the largest access",
    "alignment": "the largest power of two that divides `row_bytes`",
    "tail": "elements of a row behind its last whole 16",
    "padding": "the next power of two of `row`, divided by `row`",
    "is_contiguous": "1 if memory is contiguous along a row, else 0",
    "itemsize": "bytes of an element of the largest access",
    "loads": "bytes that are loaded, by element of the iteration space",
    "stores": "bytes that are stored, by element of the iteration space",
    "reductions": "reductions",
    "values": "values of the reduction that keeps most, such as a maximum and its place",
    "in_turn": "reductions of which each needs the one before",
    "is_kept": "1 if values of a row are needed again after a reduction over it, else 0",
    "operations": "operations, by element of the iteration space",
    "functions": "those of `operations` that functions take",
}
LANES = 16  # elements: the widest vector of four-byte values


def features_of(kernel: Kernel, table: Mapping[str, Buffer], hints: Hints) -> dict[str, float]:
    """The features of a kernel, by the names of FEATURES in their order."""
    return _numbers(shape_of(kernel, table, hints, is_gpu=False))


def _numbers(shape: Shape) -> dict[str, float]:
    """The features of a kernel of this shape."""
    every = max(1, shape.points(shape.every))
    row = max(1, shape.points(shape.joined))
    largest = max(shape.touches, key=lambda touch: touch.size, default=None)
    itemsize = 0 if largest is None else largest.itemsize
    vector = next(iter(shape.contiguous()), None)
    loads = sum(touch.size for touch in shape.touches if not touch.is_store)
    stores = sum(touch.size for touch in shape.touches if touch.is_store)
    work = [(shape.points(each.axes), each) for each in shape.work]
    values = (
        every // row,
        row,
        row * itemsize,
        (row * itemsize) & -(row * itemsize),
        row % LANES,
        (1 << (row - 1).bit_length()) / row,
        int(vector is not None and bool(shape.joined >> vector & 1)),
        itemsize,
        loads / every,
        stores / every,
        len(shape.joins),
        max((join.values for join in shape.joins), default=0),
        shape.in_turn,
        int(shape.walked_again > 0),
        sum(points * each.operations for points, each in work) / every,
        sum(points * each.functions for points, each in work) / every,
    )
    return dict(zip(FEATURES, map(_short, values), strict=True))


def _short(value: float) -> float:
    """A number with five digits, so that measurements and generated code can be read.

    >>> _short(4096), _short(4 + 1 / 3)
    (4096, 4.3333)
    """
    return value if isinstance(value, int) else float(f"{value:.5g}")
