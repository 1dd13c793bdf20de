"""Rules of normalizations over rows: native_layer_norm, _fused_rms_norm and their gradients.

Batch norm and group norm, which normalize per channel, are in `batch.py`.

Takes the arguments of ATen's native operators. Gives the normalized tensor and the saved statistics, or the gradients;
a gradient that `output_mask` does not ask for is None. Each statistic is a reduction over the last dimensions, and each
result a pointwise kernel that reads it; the passes fuse them. Everything is computed in the compute dtype of x's dtype,
and statistics are saved in the traced dtype. Refuses (to an extern call) tensors without elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minductor.core.dtypes import DType, compute_dtype
from minductor.core.expressions.expr import Expr
from minductor.frontend.capture.captured_graph import TensorMeta
from minductor.frontend.capture.size_formulas import count, is_zero
from minductor.frontend.lowering_context.kernel_builder import KernelBuilder, KernelValue
from minductor.frontend.lowering_context.lowering import Lowering
from minductor.frontend.lowering_context.reduction_kernels import store_reduction
from minductor.frontend.lowering_context.values import Coords, Rule, Value
from minductor.frontend.rules.reduce import keepdim_sum, mean_and_square_sum, to_layout
from minductor.ir.program.nodes import View


def layer_norm(
    ctx: Lowering, x: View, shape: Sequence[Expr], weight: View | None, bias: View | None, eps: float
) -> Value:
    """Lowers native_layer_norm over the last len(shape) dimensions: y, mean and rstd = 1 / sqrt(variance + eps)."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    y_meta, mean_meta, rstd_meta = ctx.metas
    dims = tuple(range(len(x.size) - len(shape), len(x.size)))
    mean, squares, _, size = mean_and_square_sum(ctx, x, dims, x.dtype, is_scale=True)
    rstd = reciprocal_std(ctx, squares, size, eps)

    def fn(x: KernelValue, mean: KernelValue, rstd: KernelValue, *affine: KernelValue) -> KernelValue:
        return apply_affine((x - mean) * rstd, affine, weight, bias)

    given = [p for p in (weight, bias) if p is not None]
    y = ctx.pointwise(fn, x, mean, rstd, *given, meta=y_meta)
    return y, to_layout(ctx, mean, mean_meta), to_layout(ctx, rstd, rstd_meta)


def reciprocal_std(ctx: Lowering, squares: View, size: Expr, eps: float) -> View:
    """rstd = 1 / sqrt(squares / size + eps), in a kernel of its own; `squares` is the sum of squared distances."""

    def rstd(loop: KernelBuilder) -> KernelValue:
        total = loop.load(squares)
        return (total / total.size(size) + eps).op("rsqrt")

    return ctx.fill(ctx.buffer(squares.dtype, squares.size), rstd)


def apply_affine(y: KernelValue, affine: Sequence[KernelValue], weight: View | None, bias: View | None) -> KernelValue:
    """y * weight + bias, where None leaves a step out; `affine` has the elements of those that are not None."""
    left = list(affine)
    if weight is not None:
        y = y * left.pop(0)
    return y if bias is None else y + left.pop(0)


class RowGradients(NamedTuple):
    """The operands of the gradient of a normalization over rows, and the terms that it is made of at one element.

    Terms are in the dtype `compute`. `mean` is None for rms norm, which does not subtract it.
    """

    compute: DType
    grad: View
    x: View
    mean: View | None
    rstd: View
    weight: View | None

    def grad_at(self, loop: KernelBuilder, at: Coords) -> KernelValue:
        """The incoming gradient; its sum over the rows is the bias's gradient."""
        return loop.load(self.grad, at, self.compute)

    def scaled_grad(self, loop: KernelBuilder, at: Coords) -> KernelValue:
        """grad * weight: the gradient of the normalized value."""
        g = self.grad_at(loop, at)
        return g if self.weight is None else g * loop.load(self.weight, at, self.compute)

    def normalized(self, loop: KernelBuilder, at: Coords) -> KernelValue:
        """The normalized value (x - mean) * rstd, computed again."""
        value = loop.load(self.x, at, self.compute)
        centred = value if self.mean is None else value - loop.load(self.mean, at, self.compute)
        return centred * loop.load(self.rstd, at, self.compute)

    def row_total(self, ctx: Lowering, length: int, value: Callable[[KernelBuilder, Coords], KernelValue]) -> View:
        """The sum of `value` over each row, that is, over the last `length` dimensions."""
        rank = len(self.x.size)
        return keepdim_sum(ctx, self.x.size, tuple(range(rank - length, rank)), self.compute, value)

    def weight_slope(self, loop: KernelBuilder, at: Coords) -> KernelValue:
        """grad * normalized value; its sum over the rows is the weight's gradient."""
        return self.grad_at(loop, at) * self.normalized(loop, at)

    def scaled_slope(self, loop: KernelBuilder, at: Coords) -> KernelValue:
        """scaled_grad * normalized value."""
        return self.scaled_grad(loop, at) * self.normalized(loop, at)

    def gradient(self, ctx: Lowering, length: int) -> tuple[KernelBuilder, KernelValue]:
        """The gradient of x, for rows of the last `length` dimensions: the loop of its kernel and the value to store.

        rstd * (g - mean(g) - normalized * mean(g * normalized)), where g is `scaled_grad`; mean(g) only with a mean.
        """
        mean = None if self.mean is None else self.row_total(ctx, length, self.scaled_grad)
        dot = self.row_total(ctx, length, self.scaled_slope)
        loop = KernelBuilder(self.x.size)
        at = loop.coords
        g = self.scaled_grad(loop, at)
        n = g.size(count(self.x.size[-length:]))  # divides the two sums of a row, not each element
        share = self.normalized(loop, at) * (loop.load(dot) / n)
        if mean is not None:
            share = loop.load(mean) / n + share
        return loop, loop.load(self.rstd, at, self.compute) * (g - share)


def layer_norm_backward(
    ctx: Lowering,
    grad: View,
    x: View,
    shape: Sequence[Expr],
    mean: View,
    rstd: View,
    weight: View | None,
    bias: View | None,
    mask: Sequence[bool],
) -> Value:
    """Lowers native_layer_norm_backward: the gradients of x, weight and bias that `mask` asks for."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    return _gradients(ctx, RowGradients(compute_dtype(x.dtype), grad, x, mean, rstd, weight), len(shape), mask)


def _gradients(ctx: Lowering, rows: RowGradients, length: int, mask: Sequence[bool]) -> tuple[View | None, ...]:
    """The gradients of x, weight and bias that `mask` asks for, for rows of the last `length` dimensions of x."""
    size = rows.x.size
    dx_meta, *metas = metas_by_mask(ctx, mask)
    results: list[View | None] = [None]
    if dx_meta is not None:
        loop, value = rows.gradient(ctx, length)
        results = [ctx.store(loop, ctx.result(dx_meta), loop.coords, value)]
    outer = range(len(size) - length)
    for meta, slope in zip(metas, (rows.weight_slope, rows.grad_at), strict=False):
        results.append(None if meta is None else store_reduction(ctx, ctx.result(meta), size, outer, slope, "sum"))
    return tuple(results)


def metas_by_mask(ctx: Lowering, mask: Sequence[bool]) -> list[TensorMeta | None]:
    """The metadata of each result that `mask` asks for, else None."""
    metas = ctx.node.meta
    assert isinstance(metas, tuple)
    return [m if wanted and isinstance(m, TensorMeta) else None for m, wanted in zip(metas, mask, strict=True)]


# --- rms norm -----------------------------------------------------------------------------------------------------


def rms_norm(ctx: Lowering, x: View, shape: Sequence[Expr], weight: View | None, eps: float | None) -> Value:
    """Lowers _fused_rms_norm: x * rstd * weight, and rstd = 1 / sqrt(mean(x**2) + eps).

    Without an eps it is the machine epsilon of x's dtype.
    """
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    y_meta, rstd_meta = ctx.metas
    dims = tuple(range(len(x.size) - len(shape), len(x.size)))
    compute = compute_dtype(x.dtype)
    small = x.dtype.eps if eps is None else eps

    def squared(loop: KernelBuilder, at: Coords) -> KernelValue:
        value = loop.load(x, at, compute)
        return value * value

    squares = keepdim_sum(ctx, x.size, dims, compute, squared)
    rstd = reciprocal_std(ctx, squares, count(x.size[d] for d in dims), small)
    given = [] if weight is None else [weight]
    y = ctx.pointwise(lambda x, r, *w: x * r * w[0] if w else x * r, x, rstd, *given, meta=y_meta)
    return y, to_layout(ctx, rstd, rstd_meta)


def rms_norm_backward(
    ctx: Lowering, grad: View, x: View, shape: Sequence[Expr], rstd: View, weight: View | None, mask: Sequence[bool]
) -> Value:
    """Lowers _fused_rms_norm_backward: the gradients of x and weight that `mask` asks for."""
    if any(is_zero(n) for n in x.size):
        return NotImplemented
    return _gradients(ctx, RowGradients(compute_dtype(x.dtype), grad, x, None, rstd, weight), len(shape), mask)


RULES: Mapping[str, Rule] = {
    "aten.native_layer_norm.default": layer_norm,
    "aten.native_layer_norm_backward.default": layer_norm_backward,
    "aten._fused_rms_norm.default": rms_norm,
    "aten._fused_rms_norm_backward.default": rms_norm_backward,
}
