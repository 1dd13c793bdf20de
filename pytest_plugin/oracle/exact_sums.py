"""Sums of float64 numbers without rounding error: the truth that float64 results are compared with.

Takes nothing. Gives a context, `exact_sums()`: in it, operators below autograd that add up float64 numbers carry the
rounding error of each sum along and add it at the end. The difference between eager and such a run is eager's own
error, which a plain float64 run cannot show. Refuses nothing: infinite sums, matrix products with too many terms and
all other operators stay torch's.

>>> import torch
>>> x = torch.tensor([1e16, 1.0, 1.0, -1e16], dtype=torch.float64)
>>> with exact_sums(): x.sum(), x.cumsum(0)[2] - 1e16, torch.dot(x, torch.ones_like(x))
(tensor(2., dtype=torch.float64), tensor(2., dtype=torch.float64), tensor(2., dtype=torch.float64))
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor

MOST_TERMS = 20_000_000  # of a matrix product that is computed exactly
SPLIT = 2.0**27 + 1  # Veltkamp's constant: splits a float64 into two parts whose products are exact
# Operators that torch itself can write with the operators of `exact_sums`.
COMPOSED = (
    "std.correction std_mean.correction _softmax.default _log_softmax.default "
    "_softmax_backward_data.default _log_softmax_backward_data.default logsumexp.default linalg_vector_norm.default "
    "norm.ScalarOpt_dim norm.Scalar native_layer_norm.default native_layer_norm_backward.default "
    "native_group_norm.default native_batch_norm.default native_batch_norm_backward.default "
    "addmm.default addmv.default mv.default dot.default baddbmm.default"
)


@contextmanager
def exact_sums() -> Generator[None]:
    """Makes sums of float64 numbers exact in the context."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    tools: Any = torch  # torch leaves its types open
    ops = tools.ops.aten
    composed = _composed(ops)
    own: Mapping[Any, Callable[..., Any]] = {
        ops.sum.default: _sum,
        ops.sum.dim_IntList: _sum,
        ops.mean.default: _mean,
        ops.mean.dim: _mean,
        ops.var.correction: _var,
        ops.var_mean.correction: _var_mean,
        ops.cumsum.default: _cumsum,
        ops.logcumsumexp.default: _logcumsumexp,
        ops.mm.default: _matrix_product,
        ops.bmm.default: _matrix_product,
    }

    class ExactSums(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named: dict[str, Any] = kwargs or {}
            tensors = [leaf for leaf in pytree.tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
            if not tensors or any(tensor.dtype != torch.float64 for tensor in tensors):
                return func(*args, **named)
            with self:  # operators that this one is composed of must be computed exactly too
                parts = (composed.get(func) or func.decompose)(*args, **named)
            if parts is not NotImplemented:
                return parts
            plain = func(*args, **named)
            rest = {given.name: value for given, value in zip(func._schema.arguments[1:], args[1:], strict=False)}
            exact = own[func](args[0], **rest, **named) if func in own else ()
            for mine, theirs in zip(pytree.tree_leaves(exact), pytree.tree_leaves(plain), strict=False):
                if theirs.dtype == torch.float64:
                    theirs.copy_(torch.where(mine.isfinite(), mine, theirs))
            return plain

    with ExactSums():
        yield


def _composed(ops: Any) -> Mapping[Any, Callable[..., Any]]:
    from torch import _decomp

    named = (name.partition(".") for name in COMPOSED.split())
    return cast(Any, _decomp).get_decompositions(
        [getattr(getattr(ops, packet), overload) for packet, _, overload in named]
    )


def _sum(x: Tensor, dim: Sequence[int] | None = None, *, keepdim: bool = False, dtype: object = None) -> Tensor:
    del dtype  # float64, as the result is
    if not x.dim():
        return x.clone()
    dims = _dims(x, dim)
    kept = [n for d, n in enumerate(x.shape) if d not in dims]
    total = _sum_of_last_dimension(
        x.permute(*(d for d in range(x.dim()) if d not in dims), *dims).reshape(*kept, _count(x, dims))
    )
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)] if keepdim else kept)


def _dims(x: Tensor, dim: Sequence[int] | None) -> list[int]:
    return sorted({d % x.dim() for d in dim or range(x.dim())}) if x.dim() else []


def _mean(x: Tensor, dim: Sequence[int] | None = None, *, keepdim: bool = False, dtype: object = None) -> Tensor:
    return _sum(x, dim, keepdim=keepdim) / _count(x, _dims(x, dim))


def _var(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    squares = _sum((x - _mean(x, dim, keepdim=True)).square(), dim, keepdim=keepdim)
    return squares / max(_count(x, _dims(x, dim)) - (1 if correction is None else correction), 0)


def _var_mean(
    x: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    return _var(x, dim, correction=correction, keepdim=keepdim), _mean(x, dim, keepdim=keepdim)


def _count(x: Tensor, dims: Sequence[int]) -> int:
    count = 1
    for d in dims:
        count *= x.shape[d]
    return count


def _sum_of_last_dimension(x: Tensor, low: Tensor | None = None) -> Tensor:
    """Returns the sum along the last dimension: adds one half to the other, and adds the rounding errors at the end."""
    import torch

    high, low = x, torch.zeros_like(x) if low is None else low
    if not x.shape[-1]:
        return x.sum(-1)
    while (count := high.shape[-1]) > 1:
        half = (count + 1) // 2
        high, low = (torch.nn.functional.pad(part, (0, 2 * half - count)) for part in (high, low))
        high, error = _two_sum(high[..., :half], high[..., half:])
        low = low[..., :half] + low[..., half:] + error
    return (high + low)[..., 0]


def _cumsum(x: Tensor, dim: int, *, dtype: object = None) -> Tensor:
    import torch

    del dtype
    if not x.dim():
        return x.clone()
    high, step = x.movedim(dim, -1), 1
    low = torch.zeros_like(high)
    while step < high.shape[-1]:
        before, error = _two_sum(high[..., step:], high[..., :-step])
        low = torch.cat([low[..., :step], low[..., step:] + low[..., :-step] + error], -1)
        high, step = torch.cat([high[..., :step], before], -1), 2 * step
    return (high + low).movedim(-1, dim)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Subtracts the largest element first. Where an exponential then underflows, torch's own result is kept."""
    if not x.numel():
        return x.clone()
    largest = x.amax(dim, keepdim=True)
    return _cumsum((x - largest).exp(), dim).log() + largest


def _matrix_product(a: Tensor, mat2: Tensor) -> Tensor:
    if a.numel() * mat2.shape[-1] > MOST_TERMS:
        return a @ mat2
    x, y = a.unsqueeze(-2), mat2.transpose(-1, -2).unsqueeze(-3)
    terms = x * y
    (x1, x2), (y1, y2) = _high_and_low(x), _high_and_low(y)
    return _sum_of_last_dimension(terms, x2 * y2 - (((terms - x1 * y1) - x2 * y1) - x1 * y2))


def _high_and_low(x: Tensor) -> tuple[Tensor, Tensor]:
    """Splits float64 numbers into two parts with half of the bits each."""
    wide = SPLIT * x
    high = wide - (wide - x)
    return high, x - high


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the rounded sum of two tensors, and the rounding error of each element."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)
