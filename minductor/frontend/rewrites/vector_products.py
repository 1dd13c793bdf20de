"""The row `vector_products`: a batch of products of matrices and vectors, or of two vectors, becomes a kernel of ours.

Takes a `bmm` in a graph for the CPU. Gives a multiplication, and a sum if there is one, which fuse with what is around
them. 16-bit factors are widened first, since a library sums in float32 too. Refuses products of two matrices, sizes
that vary, and factors whose elements do not lie so that a vector register can be filled from memory in order.

The library calls a product for each matrix of the batch, and a product of small ones takes less time than its call.
Microseconds of `bmm` and of the kernel, one thread of an Intel Xeon (AVX-512), torch 2.13, float32: 256 matrices of
64 x 4 101 and 44, transposed 136 and 30; 64 of 64 x 64 98 and 48; 4 of 512 x 512 447 and 288; 16 of 256 x 256
transposed 255 and 254. In bfloat16 202 and 91, 272 and 66, 163 and 121, 349 and 319, 503 and 342. Matrices of few rows
are slower: 2048 of 4 x 4 131 and 440.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from minductor.frontend.rewrites.product_calls import ProductCall, is_for_cpu, product_call
from minductor.frontend.rewrites.rewrite_row import Match, Rewrite, Site
from minductor.frontend.rewrites.score_steps import is_equal

aten = torch.ops.aten
SIXTEEN = (torch.bfloat16, torch.float16)
LEAST_ROWS = 16  # of a matrix whose rows are contiguous, so that each is summed by itself
LEAST_COLUMNS = 4  # of a matrix whose columns are contiguous, so that rows are summed side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorProduct(Match):
    """A product `call` whose factors are, for each batch index, (rows, inner) and (inner, columns)."""

    call: ProductCall
    rows: object
    inner: object
    columns: object


def find(site: Site) -> VectorProduct | None:
    """The product at the anchor, if one of its three sizes is 1."""
    call = product_call(site, site.anchor)
    left, right = (None, None) if call is None else (site.tensor(call.left), site.tensor(call.right))
    if call is None or left is None or right is None or not is_for_cpu(site):
        return None
    (_, rows, inner), columns = left.shape, right.shape[-1]
    if left.dtype not in (torch.float32, *SIXTEEN) or not any(is_equal(size, 1) for size in (rows, inner, columns)):
        return None
    return VectorProduct(result=site.anchor, call=call, rows=rows, inner=inner, columns=columns)


def has_known_sizes(match: VectorProduct, site: Site) -> str:
    """The sizes of the matrices are numbers; that of the batch may vary."""
    del site
    sizes = (match.rows, match.inner, match.columns)
    return "" if all(type(size) is int for size in sizes) else "the sizes of its matrices vary"


def is_read_in_order(match: VectorProduct, site: Site) -> str:
    """The matrix and the vector fill vector registers in the order in which they lie in memory."""
    if match.inner == 1:
        return ""
    is_left = match.columns == 1
    matrix, vector = (match.call.left, match.call.right)[:: 1 if is_left else -1]
    row_step, step = site.value(matrix).stride()[1:][:: 1 if is_left else -1]
    vector_step = site.value(vector).stride()[1 if is_left else 2]
    rows = match.rows if is_left else match.columns
    assert isinstance(rows, int)
    if is_equal(row_step, 1) and rows >= LEAST_COLUMNS:
        return ""
    if not is_equal(step, 1) or not is_equal(vector_step, 1):
        return "its factors are not contiguous along the axis of the sum"
    return "" if rows >= LEAST_ROWS else f"its matrices have {rows} rows, fewer than {LEAST_ROWS}"


def replace(match: VectorProduct, site: Site) -> fx.Node:
    """The product of each pair of elements, and the sum over them."""
    left, right = match.call.left, match.call.right
    if match.inner == 1:
        return site.write(aten.mul.Tensor, left, right)
    dtype = site.value(match.result).dtype
    if dtype in SIXTEEN:
        left, right = (site.write(aten._to_copy.default, each, dtype=torch.float32) for each in (left, right))
    if match.columns == 1:
        right, axis = site.write(aten.transpose.int, right, 1, 2), 2
    else:
        left, axis = site.write(aten.transpose.int, left, 1, 2), 1
    total = site.write(aten.sum.dim_IntList, site.write(aten.mul.Tensor, left, right), [axis], True)
    return site.write(aten._to_copy.default, total, dtype=dtype) if dtype in SIXTEEN else total


VECTOR_PRODUCTS = Rewrite(
    name="vector_products",
    docs="Batches of products with vectors become kernels on a CPU.",
    level="aten",
    anchors=("aten.bmm",),
    find=find,
    conditions=(has_known_sizes, is_read_in_order),
    replace=replace,
    keeps_strides=False,
)
