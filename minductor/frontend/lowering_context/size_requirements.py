"""Checks of sizes and indices for which eager raises an error.

Takes traced sizes and indices. Gives False if they are known to be wrong. Gives True if they are right or if only the
call can tell; in the latter case a `Require` node is added, so that a wrong call raises RuntimeError. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.capture.size_formulas import is_one
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.ir.program.build import Builder


def require_size(ctx: Lowering, size: Sequence[Expr], expected: Sequence[Expr]) -> bool:
    """Whether two sizes can be equal; requires that they are."""
    if len(size) != len(expected):
        return False
    pairs = [(n, e) for n, e in zip(size, expected, strict=True) if not (at_least(n - e, 0) and at_least(e - n, 0))]
    if any(at_least(n - e, 1) or at_least(e - n, 1) for n, e in pairs):
        return False
    for n, e in pairs:
        b = Builder()
        is_equal = b.op("eq", b.index(n), b.index(e))
        ctx.require(b.build([is_equal]), f"{ctx.node.name}: expected size {e} but got {n}")
    return True


def require_broadcast(ctx: Lowering, size: Sequence[Expr], extents: Sequence[Expr]) -> bool:
    """Whether a tensor of that size can be broadcast to those extents; requires that it can."""
    pairs = [(n, e) for n, e in zip(reversed(size), reversed(extents), strict=False) if n != e and not is_one(n)]
    if len(size) > len(extents) or not all(at_least(n, 2) and at_least(e, 2) for n, e in pairs):
        return False
    return require_size(ctx, [n for n, _ in pairs], [e for _, e in pairs])


def require_index(ctx: Lowering, index: int | Expr, dim: int, extent: Expr) -> bool:
    """Whether an index, which may be negative, can lie in a dimension of that extent; requires that it does."""
    at = as_expr(index)
    if at_least(at + extent, 0) and at_least(extent - at, 1):
        return True
    if at_least(-at - extent, 1) or at_least(at - extent, 0):
        return False
    b = Builder()
    place, size = b.index(at), b.index(extent)
    is_inside = b.op("logical_and", b.op("ge", place, b.op("neg", size)), b.op("lt", place, size))
    ctx.require(b.build([is_inside]), f"index {index} is out of bounds for dimension {dim} with size {extent}")
    return True
