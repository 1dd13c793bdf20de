"""Rules of matrix products: mm, bmm, addmm and baddbmm, as kernels of our own on targets that have a matrix unit.

Takes matrices, or batches of them, of one floating dtype. Gives one kernel with the axes (batch, row, column, inner),
which sums a[i, k] * b[k, j] over the inner axis k, accumulates 16-bit floats in float32, and adds the base of addmm.
Refuses (to an extern call, that is, to the vendor's library) all products on a CPU, products that `options.matmul`
leaves to the library, other dtypes, and matrices without elements.

Each operand is rounded to the dtype of its tensor. So a producer may be fused into the product as a prologue, and the
matrix unit still multiplies the values that eager would multiply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minductor.core.dtypes import BF16, F16, F32, F64, TF32
from minductor.core.expressions.expr import Expr, as_int
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import is_one, is_zero, sizes
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value, rules_for
from minductor.ir.program.dots import MIN_ROWS_AND_COLUMNS
from minductor.ir.program.nodes import View

MAX_SHORT_SUM = 16  # products per element: up to here writing the result to memory costs more than computing it


def why_native(ctx: Lowering, size: Sequence[Expr], inner: Expr) -> str:
    """The reason to compile a product of that result size and inner length ourselves; "" leaves it to the library.

    The library's kernels are hard to beat. But if the inner dimension is short, nearly all time goes into writing the
    result, and a kernel of ours can be fused with the operators that follow.
    """
    options = ctx.env.options
    if not ctx.env.target.is_gpu or options.matmul == "extern":
        return ""
    if options.matmul == "native":
        return "options.matmul is 'native'"
    known = [as_int(n) for n in size[-2:]]
    if options.autotune and all(n is None or n >= MIN_ROWS_AND_COLUMNS for n in known):
        return "autotuning measures it against the library"
    count = as_int(inner)
    return f"each element sums only {count} products" if count is not None and count <= MAX_SHORT_SUM else ""


def product(ctx: Lowering, a: View, b: View, base: View | None = None, beta: float = 1, alpha: float = 1) -> Value:
    """beta * base + alpha * (a @ b) in one kernel; with beta == 0 the base is not read, so its NaN does not count.

    Same law as eager. The base broadcasts to the result.
    """
    out = ctx.meta
    why = why_native(ctx, sizes(out.size), a.size[-1])
    given = [a, b] if base is None else [a, b, base]
    if not why or out.dtype not in (F32, F64, BF16, F16) or any(v.dtype != out.dtype for v in given):
        return NotImplemented
    if any(is_zero(n) for v in (a, b) for n in v.size):
        return NotImplemented
    if base is not None and not _can_broadcast(base, out):
        return NotImplemented
    made = ctx.result()
    rank = len(made.size)
    loop = KernelBuilder((*made.size, a.size[-1]))
    *batch, row, column, inner = loop.coords
    left, right = (_operand(ctx, loop, v, (*batch, *at)) for v, at in ((a, (row, inner)), (b, (inner, column))))
    value = loop.reduce([left * right], [rank], "sum")
    if alpha != 1:
        value = value * alpha
    if base is not None and (not isinstance(beta, int | float) or beta != 0):
        added = loop.load(base, loop.coords[:rank], out.dtype)
        value = value + (added * beta if beta != 1 else added)
    ctx.add_note(f"{ctx.node.op}: compiled to a kernel, because {why}")
    return ctx.store(loop, made, loop.coords[:rank], value)


def _can_broadcast(base: View, out: TensorMeta) -> bool:
    """Whether each dimension of `base` is known to be the result's or to have size 1."""
    tail = sizes(out.size)[len(out.size) - len(base.size) :]
    return all(is_one(n) or n == m for n, m in zip(base.size, tail, strict=True))


def _operand(ctx: Lowering, loop: KernelBuilder, view: View, at: tuple[Expr, ...]) -> KernelValue:
    """An element of a factor, rounded to its tensor's dtype, or to TF32 if the options allow that for float32."""
    value = loop.load(view, at)
    if view.dtype == F32 and ctx.env.options.matmul_precision == "tf32":
        return loop.term(loop.b.round_to(value.at, TF32))
    return value.cast(view.dtype)


def added_product(ctx: Lowering, base: View, a: View, b: View, *, beta: float = 1, alpha: float = 1) -> Value:
    """Lowers addmm and baddbmm."""
    return product(ctx, a, b, base, beta, alpha)


RULES: Mapping[str, Rule] = {
    **rules_for("mm bmm", lambda ctx, a, b: product(ctx, a, b)),
    **rules_for("addmm baddbmm", added_product),
}
