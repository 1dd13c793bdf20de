"""Matrix products as sums of products, for targets whose kernels have a matrix unit.

Takes matrices, or batches of them, of one floating dtype. Gives one kernel: the sum over k of a[i, k] * b[k, j], in
float32 for operands of 16 bits, and with what is added to it. Refuses (to the library's call) what the options leave to
it, other dtypes, and matrices without elements.

Each operand is rounded to the dtype that it has as a tensor. So what a kernel computes of an operand on the way may be
fused with the product, and the matrix unit still takes what eager gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from minductor.core.dtypes import BF16, F16, F32, F64, TF32
from minductor.core.expressions.expr import Expr, as_int
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.lower.lower import Lowering
from minductor.frontend.lowering_context.kernel_builder import Loop
from minductor.frontend.lowering_context.values import Term, Value, is_one, is_zero, sizes
from minductor.ir.program.dots import LEAST
from minductor.ir.program.nodes import Note, View

Rule = Callable[..., Value]

SHORT = 16  # a sum of no more products than this costs less than to move its result through memory


def why_native(ctx: Lowering, size: Sequence[Expr], inner: Expr) -> str:
    """Why a product is a kernel of ours; "" if it is the library's.

    The library's products are hard to beat. But where sums are short, nearly all time goes into writing the result, and
    a kernel of ours does in the same pass what follows.
    """
    options = ctx.env.options
    if not ctx.env.target.is_gpu or options.matmul == "extern":
        return ""
    if options.matmul == "native":
        return "as the options ask"
    known = [as_int(n) for n in size[-2:]]
    if options.autotune and all(n is None or n >= LEAST for n in known):
        return "one of two ways, by measure"
    count = as_int(inner)
    return f"sums of only {count} products" if count is not None and count <= SHORT else ""


def product(ctx: Lowering, a: View, b: View, base: View | None = None, beta: float = 1, alpha: float = 1) -> Value:
    """beta * base + alpha * (a @ b); a base whose factor is 0 is not read, as in eager."""
    out = ctx.meta
    why = why_native(ctx, sizes(out.size), a.size[-1])
    given = [a, b] if base is None else [a, b, base]
    if not why or out.dtype not in (F32, F64, BF16, F16) or any(v.dtype != out.dtype for v in given):
        return NotImplemented
    if any(is_zero(n) for v in (a, b) for n in v.size):
        return NotImplemented
    if base is not None and not _is_spread(base, out):
        return NotImplemented
    made = ctx.result()
    rank = len(made.size)
    loop = Loop((*made.size, a.size[-1]))
    *batch, row, column, inner = loop.coords
    left, right = (_operand(ctx, loop, v, (*batch, *at)) for v, at in ((a, (row, inner)), (b, (inner, column))))
    value = loop.reduce([left * right], [rank], "sum")
    if alpha != 1:
        value = value * alpha
    if base is not None and (not isinstance(beta, int | float) or beta != 0):
        added = loop.load(base, loop.coords[:rank], out.dtype)
        value = value + (added * beta if beta != 1 else added)
    ctx.notes.append(Note("lower", ctx.node.name, f"{ctx.node.op}: a product in a kernel of ours: {why}"))
    return ctx.store(loop, made, loop.coords[:rank], value)


def _is_spread(base: View, out: TensorMeta) -> bool:
    """Whether it is known of each dimension that it is the result's, or of size 1."""
    tail = sizes(out.size)[len(out.size) - len(base.size) :]
    return all(is_one(n) or n == m for n, m in zip(base.size, tail, strict=True))


def _operand(ctx: Lowering, loop: Loop, view: View, at: tuple[Expr, ...]) -> Term:
    value = loop.load(view, at)
    if view.dtype == F32 and ctx.env.options.matmul_precision == "tf32":
        return loop.term(loop.b.round_to(value.at, TF32))
    return value.cast(view.dtype)


def added_product(ctx: Lowering, base: View, a: View, b: View, *, beta: float = 1, alpha: float = 1) -> Value:
    """addmm and baddbmm."""
    return product(ctx, a, b, base, beta, alpha)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.mm.default": lambda ctx, a, b: product(ctx, a, b),
        "aten.bmm.default": lambda ctx, a, b: product(ctx, a, b),
        "aten.addmm.default": added_product,
        "aten.baddbmm.default": added_product,
    }
)
