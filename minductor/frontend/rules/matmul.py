"""Rules of matrix products: mm, bmm, addmm and baddbmm, as kernels of our own on targets that have a matrix unit.

Takes matrices, or batches of them, of one floating dtype. Gives one kernel with the axes (batch, row, column, inner),
which sums a[i, k] * b[k, j] over the inner axis k, accumulates 16-bit floats in float32, and adds the base of addmm.
Refuses (to an extern call, that is, to the vendor's library) all products on a CPU, products that `options.matmul`
leaves to the library, other dtypes, and matrices without elements.

Each operand is rounded to the dtype of its tensor. So a producer may be fused into the product as a prologue, and the
matrix unit still multiplies the values that eager would multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from minductor.core.dtypes import BF16, F16, F32, F64, TF32
from minductor.core.expressions.expr import Expr, as_int
from minductor.core.expressions.hints import estimate
from minductor.frontend.capture import schemas
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_one, is_zero, sizes
from minductor.frontend.lowering_context.extern_calls import extern
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.values import Rule, Value, rules_for
from minductor.heuristics.features import ProductSizes, product_features
from minductor.heuristics.learned import Answer, learned
from minductor.ir.program.dots import MIN_ROWS_AND_COLUMNS
from minductor.ir.program.nodes import View
from minductor.ir.program.variant_note import VariantNote

MAX_SHORT_SUM = 16  # products per element: up to here writing the result to memory costs more than computing it
EXTERN, NATIVE = "extern", "native"  # a product by the library, and by a kernel of ours, as in `ways.py`


class Product(NamedTuple):
    """beta * base + alpha * (a @ b)."""

    a: View
    b: View
    base: View | None


def why_native(ctx: Lowering, given: Product) -> tuple[str, Answer | None]:
    """The reason to compile a product ourselves, "" leaves it to the library; and what was learned, if that was asked.

    The library's kernels are hard to beat. But if the inner dimension is short, nearly all time goes into writing the
    result, and a kernel of ours can be fused with the operators that follow.
    """
    options = ctx.env.options
    if not ctx.env.target.is_gpu or options.matmul == "extern":
        return "", None
    if options.matmul == "native":
        return "options.matmul is 'native'", None
    known = [as_int(n) for n in sizes(ctx.meta.size)[-2:]]
    if options.autotune and all(n is None or n >= MIN_ROWS_AND_COLUMNS for n in known):
        return "autotuning measures it against the library", None
    answer = learned("products", (EXTERN, NATIVE), partial(_features, ctx, given), ctx.env)
    if answer is not None and answer.option:
        return answer.note if answer.option == NATIVE else "", answer
    short = as_int(given.a.size[-1])
    is_short = short is not None and short <= MAX_SHORT_SUM
    return f"each element sums only {short} products" if is_short else "", answer


def _features(ctx: Lowering, given: Product) -> dict[str, float]:
    """The features by which the choice `products` was learned."""
    (*batch, m, k), n = given.a.size, given.b.size[-1]
    left, right = (view.stride[-2:] for view in given[:2])
    inner = is_one(left[1]), is_one(right[0])
    found = ProductSizes(
        *(estimate(each, ctx.hints) for each in (batch, m, n, k)),
        itemsize=ctx.meta.dtype.itemsize,
        is_tf32=ctx.meta.dtype == F32 and ctx.env.options.matmul_precision == "tf32",
        base=given.base is not None,
        after=_followers(ctx),
        left_inner=inner[0],
        right_inner=inner[1],
        left_row=estimate(left[0 if inner[0] else 1], ctx.hints),
        right_row=estimate(right[1 if inner[1] else 0], ctx.hints),
    )
    return product_features(found)


def _followers(ctx: Lowering) -> int:
    """The operators behind a product, each of which alone uses the one before and gives as many elements.

    Views do not count, and calls end the chain.
    """
    found, node, elements = 0, ctx.node, count(sizes(ctx.meta.size))
    while node.name not in ctx.last_uses.returned:
        users = ctx.last_uses.users.get(node.name, ())
        if len(users) != 1:
            break
        node = users[0]
        is_call = node.op in RULES or schemas.is_expected_call(node.op)
        if is_call or not isinstance(node.meta, TensorMeta) or count(sizes(node.meta.size)) != elements:
            break
        found += node.op not in ctx.view_operators
    return found


def _left_to_library(ctx: Lowering, answer: Answer | None) -> Value:
    """NotImplemented; or where a learned choice was asked, the call, since its note would be undone with the rule."""
    if answer is None:
        return NotImplemented
    node = ctx.node
    _tell(ctx, answer)
    kwargs = {name: ctx.value(arg) for name, arg in node.kwargs}
    return extern(ctx, node.op, [ctx.value(arg) for arg in node.args], kwargs, schemas.reason_for_call(node.op))


def _tell(ctx: Lowering, answer: Answer) -> None:
    """Adds the note of a learned choice that was asked."""
    if answer.option:
        by_learned = VariantNote("lower", ctx.node.name, answer.option, "learned", (EXTERN, NATIVE), answer.note)
        ctx.state.notes.append(by_learned)
    else:
        ctx.add_note(answer.note)


def product(ctx: Lowering, a: View, b: View, base: View | None = None, beta: float = 1, alpha: float = 1) -> Value:
    """beta * base + alpha * (a @ b) in one kernel; with beta == 0 the base is not read, so its NaN does not count.

    Same law as eager. The base broadcasts to the result.
    """
    out = ctx.meta
    given = [a, b] if base is None else [a, b, base]
    if out.dtype not in (F32, F64, BF16, F16) or any(v.dtype != out.dtype for v in given):
        return NotImplemented
    if any(is_zero(n) for v in (a, b) for n in v.size):
        return NotImplemented
    if base is not None and not _can_broadcast(base, out):
        return NotImplemented
    why, answer = why_native(ctx, Product(a, b, base))
    if not why:
        return _left_to_library(ctx, answer)
    if answer is not None:
        _tell(ctx, answer)
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
