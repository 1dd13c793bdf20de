"""What has to hold of a call's sizes and places, for which eager raises otherwise.

Takes sizes and places as they were traced. Gives whether they may be right: False where they are known to be wrong.
Where only the call tells, a requirement stands before what the rule adds next, and the call raises RuntimeError.
Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, as_expr
from minductor.frontend.capture.size_formulas import is_one
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.ir.program.build import Builder


def require(ctx: Lowering, b: Builder, holds: int, message: str) -> None:
    ctx.require(b.build([holds]), message)


def require_size(ctx: Lowering, size: Sequence[Expr], expected: Sequence[Expr]) -> bool:
    """Whether two sizes are the same."""
    if len(size) != len(expected):
        return False
    pairs = [(n, e) for n, e in zip(size, expected, strict=True) if not (at_least(n - e, 0) and at_least(e - n, 0))]
    if any(at_least(n - e, 1) or at_least(e - n, 1) for n, e in pairs):
        return False
    for n, e in pairs:
        b = Builder()
        require(ctx, b, b.op("eq", b.index(n), b.index(e)), f"{ctx.node.name}: expected size {e} but got {n}")
    return True


def require_broadcast(ctx: Lowering, size: Sequence[Expr], extents: Sequence[Expr]) -> bool:
    """Whether a tensor of that size is repeated along the last of those extents where it has 1, and nowhere else."""
    pairs = [(n, e) for n, e in zip(reversed(size), reversed(extents), strict=False) if n != e and not is_one(n)]
    if len(size) > len(extents) or not all(at_least(n, 2) and at_least(e, 2) for n, e in pairs):
        return False
    return require_size(ctx, [n for n, _ in pairs], [e for _, e in pairs])


def require_index(ctx: Lowering, index: int | Expr, dim: int, extent: Expr) -> bool:
    """Whether an index, which may count from the end, lies in a dimension."""
    at = as_expr(index)
    if at_least(at + extent, 0) and at_least(extent - at, 1):
        return True
    if at_least(-at - extent, 1) or at_least(at - extent, 0):
        return False
    b = Builder()
    place, size = b.index(at), b.index(extent)
    inside = b.op("logical_and", b.op("ge", place, b.op("neg", size)), b.op("lt", place, size))
    require(ctx, b, inside, f"index {index} is out of bounds for dimension {dim} with size {extent}")
    return True
