"""What the pieces of a scan compute that is cut in blocks.

Takes a scan, and a builder with the positions of values in it. Gives expressions and the positions of new values.
Refuses nothing: `may_cut` says beforehand which scans can be cut.

A cumulative sum over one long row becomes three kernels: the sum of each block; a cumulative sum of these sums; and for
each block a cumulative sum that starts with the sum of the blocks before it. Where blocks cannot be reduced in any
order, as by "last_max", the first kernel scans each block, and the last one loads that.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.dtypes import DType
from minductor.core.expressions.expr import Expr, integer, maximum, minimum
from minductor.ir.program.build import Builder, is_standard_combine
from minductor.ir.program.nodes import Combine, Scan

COMMUTATIVE = frozenset(("sum", "prod", "max", "min", "any", "all", "xor", "argmax", "argmin", "logsumexp"))


def may_cut(how: Combine, dtype: DType | None) -> bool:
    """Whether blocks may be scanned apart, by a named combine.

    The product of a block alone may overflow, although that of the row up to its end does not.
    """
    is_product = how.name == "prod" and dtype is not None and dtype.kind == "float"
    return is_standard_combine(how, dtype) and not is_product


def last_element(scan: Scan, block: Expr) -> Expr:
    """The place, in a block of so many elements, of the element that the scan comes to last."""
    return integer(0) if scan.reverse else block - 1


def block_before(part: Expr, count: Expr, scan: Scan) -> Expr:
    """The number of the block that a scan runs through before block number `part` of `count`; the first one's own."""
    return minimum(part + 1, count - 1) if scan.reverse else maximum(part - 1, 0)


def scan_on_top(
    b: Builder, inside: Sequence[int], before: Sequence[int], scan: Scan, part: Expr, count: Expr
) -> list[int]:
    """The values of a scan in block number `part`: those of the block's own scan on top of the end of the block before.

    Nothing is before the first block, so its `before` is not used.
    """
    how = scan.combine
    is_first = b.op("eq", b.index(part), b.index(count - 1 if scan.reverse else integer(0)))
    pairs = zip(before, how.identity, strict=True)
    starts = [b.op("where", is_first, b.constant(identity, b.dtype(v)), v) for v, identity in pairs]
    places = b.splice(how.body, {}, parameters=[*starts, *inside])
    return [places[result] for result in how.body.results]
