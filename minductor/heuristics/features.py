"""The features of a kernel or of a matrix product: plain numbers by which a learned choice decides.

Takes a kernel, the buffers, and hints for unknown sizes, or the sizes of a product. Gives a number for each name that
FEATURES has for the choice. Refuses nothing: a size that is not known is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from minductor.core.expressions.hints import Hints
from minductor.cost.shape import Shape, shape_of
from minductor.ir.program.nodes import Buffer, Kernel

# By name what the number is. The values of a kernel do not depend on the recipe by which it is scheduled.
OF_KERNEL: Mapping[str, str] = {
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
OF_CUT: Mapping[str, str] = {
    **OF_KERNEL,
    "scans": "scans",
    "parts": "parts of a row in the cheapest cut by prices",
}
OF_PRODUCT: Mapping[str, str] = {
    "batch": "products of the same size",
    "m": "rows of the result",
    "n": "columns of the result",
    "k": "products that an element of the result sums",
    "itemsize": "bytes of an element",
    "is_tf32": "1 if float32 is rounded to TF32, else 0",
    "base": "1 if a matrix is added, else 0",
    "after": "elementwise operators behind the product that may be fused with it",
    "left_inner": "1 if the left factor is contiguous along the inner axis, else 0",
    "right_inner": "1 if the right factor is contiguous along the inner axis, else 0",
    "alignment": "the largest power of two that divides the bytes of rows of both factors, at most 128",
    "results": "elements of the result",
    "products": "products that are summed, of all elements",
    "bytes": "bytes of factors and result",
}
OF_PADDING: Mapping[str, str] = {
    **OF_PRODUCT,
    "pad_rows": "rows of zeros",
    "pad_columns": "columns of zeros",
    "pad_inner": "zeros behind the inner axis",
    "copied": "bytes of operands that a kernel of its own would pad",
    "copies": "operands that a kernel of its own would pad",
    "fused": "bytes of operands that the kernel which computes them would pad",
    "result_copied": "bytes of the result if a reader needs it contiguous, else 0",
}
# By choice. These are the choices that can be learned; `bench/clients.py` says how each is measured.
FEATURES: Mapping[str, Mapping[str, str]] = {
    "rows": OF_KERNEL,
    "cut": OF_CUT,
    "products": OF_PRODUCT,
    "padding": OF_PADDING,
}
LINE = 128  # bytes of a cache line
LANES = 16  # elements: the widest vector of four-byte values


def features_of(kernel: Kernel, table: Mapping[str, Buffer], hints: Hints) -> dict[str, float]:
    """The features of a kernel, by the names of OF_KERNEL in their order."""
    return _numbers(shape_of(kernel, table, hints, is_gpu=False))


def cut_features(kernel: Kernel, table: Mapping[str, Buffer], hints: Hints, parts: int) -> dict[str, float]:
    """The features of a kernel that may be cut, by the names of OF_CUT; `parts`: of a row in the cheapest cut."""
    shape = shape_of(kernel, table, hints, is_gpu=False)
    return {**_numbers(shape), "scans": shape.scans, "parts": parts}


class ProductSizes(NamedTuple):
    """What decides how long a matrix product takes; for all but the last two see OF_PRODUCT.

    `left_row`, `right_row`: elements from a row of a factor to the next one, or from a column to the next one
    if columns are contiguous.
    """

    batch: int
    m: int
    n: int
    k: int
    itemsize: int
    is_tf32: bool
    base: bool
    after: int
    left_inner: bool
    right_inner: bool
    left_row: int
    right_row: int


def product_features(sizes: ProductSizes) -> dict[str, float]:
    """The features of a matrix product, by the names of OF_PRODUCT in their order."""
    *plain, left_row, right_row = sizes
    rows = (left_row | right_row) * sizes.itemsize
    results = sizes.batch * sizes.m * sizes.n
    factors = sizes.batch * sizes.k * (sizes.m + sizes.n)
    derived = min(LINE, rows & -rows), results, results * sizes.k, (factors + results) * sizes.itemsize
    return dict(zip(OF_PRODUCT, (*map(int, plain), *derived), strict=True))


class ProductPads(NamedTuple):
    """The pads of a product and what they cost, by the names of OF_PADDING in their order."""

    pad_rows: int
    pad_columns: int
    pad_inner: int
    copied: int
    copies: int
    fused: int
    result_copied: int


def padding_features(sizes: ProductSizes, pads: ProductPads) -> dict[str, float]:
    """The features of a product that may be padded, by the names of OF_PADDING in their order."""
    return {**product_features(sizes), **pads._asdict()}


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
    return dict(zip(OF_KERNEL, map(_short, values), strict=True))


def _short(value: float) -> float:
    """A number with five digits, so that measurements and generated code can be read.

    >>> _short(4096), _short(4 + 1 / 3)
    (4096, 4.3333)
    """
    return value if isinstance(value, int) else float(f"{value:.5g}")
