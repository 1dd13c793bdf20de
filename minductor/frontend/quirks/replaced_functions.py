"""Replaces functions that torch traces otherwise than eager runs them by functions that are traced as eager runs.

Takes the graph that Dynamo hands over, before AOTAutograd traces it, and changes its calls. Gives nothing. Refuses
nothing. `known_quirks.py` has a row for each function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import upsample_compute_output_size
from torch.nn import _reduction
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves


def replace_functions(gm: torch.nn.Module, *, is_cpu: bool) -> None:
    """Replaces the functions of _REPLACEMENTS that a graph calls, and those of _LOSSES that its inner graphs call.

    Dropout may return its argument, which the graph of a higher-order operator must not do. On a CPU (`is_cpu`) the
    functions of _RESIZINGS are replaced too.

    >>> gm = torch.fx.symbolic_trace(lambda x: F.dropout(x, training=False))
    >>> replace_functions(gm, is_cpu=True)
    >>> x = torch.ones(2)
    >>> gm(x) is x
    True
    """
    parts = [part for part in gm.modules() if isinstance(part, torch.fx.GraphModule)]
    inner = {child for part in parts for child in part.modules() if child is not part}
    for part in parts:
        instead = {**(_LOSSES if part in inner else _REPLACEMENTS), **(_RESIZINGS if is_cpu else {})}
        calls = [node for node in part.graph.nodes if node.op == "call_function" and node.target in instead]
        for node in calls:
            node.target = instead[node.target]
        if calls:
            part.recompile()


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout that gives the argument itself if it drops nothing, where torch traces a copy."""
    return F.dropout(input, p, training, inplace) if training and p else input


def _plain_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """`_dropout` with the parameters of torch.dropout."""
    return _dropout(input, p, train)


def _soft_margin_loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The loss with the input's shape and dtype; torch traces the shape and dtype of input and target together."""
    input = _cast_for_autocast(input)
    return F.soft_margin_loss(input, target.to(input.dtype).expand_as(input), *args, **kwargs)


def _multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """The loss with the target's shape, and no gradient where a gap is exactly 0, where torch traces one."""
    rows, labels = torch.atleast_2d(_cast_for_autocast(input)), torch.atleast_1d(target)[:, None]
    gaps = F.relu(margin - rows.gather(1, labels) + rows) ** p
    if weight is not None:
        gaps = gaps * weight[labels]
    is_other = labels != torch.arange(rows.shape[1], device=rows.device)
    losses = gaps.where(is_other, 0).mean(1).reshape(target.shape)
    return _reduce(losses, size_average, reduce, reduction)


def _multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Tensor:
    """The loss without the labels from the first -1 on, which torch traces as labels of class 0."""
    rows, labels = torch.atleast_2d(_cast_for_autocast(input)), torch.atleast_2d(target)
    is_label = (labels == -1).cumsum(1) == 0
    labels = labels.where(is_label, 0)
    is_hit = is_label[:, :, None] & (labels[:, :, None] == torch.arange(rows.shape[1], device=rows.device))
    is_counted = is_label[:, :, None] & ~is_hit.any(1, keepdim=True)
    gaps = F.relu(1 - rows.gather(1, labels)[:, :, None] + rows[:, None])  # the gap between each label and each class
    losses = gaps.where(is_counted, 0).sum((1, 2)).reshape(input.shape[:-1]) / rows.shape[1]
    return _reduce(losses, size_average, reduce, reduction)


def _cast_for_autocast(input: Tensor) -> Tensor:
    """The input in float32 if it has 16 bits under autocast, where eager computes these losses in float32."""
    is_cast = input.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(input.device.type)
    return input.float() if is_cast else input


def _reduce(losses: Tensor, size_average: Any, reduce: Any, reduction: str) -> Tensor:
    """The losses reduced by `reduction`, or by the deprecated `size_average` and `reduce` if one of these is given."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


def _interpolate(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Resizing whose gradient is one operator of ATen, where torch traces a scatter for each corner.

    torch traces most of these operators for constant sizes only.
    """
    is_traced = input.requires_grad and torch.is_grad_enabled() and input.device.type == "cpu"
    given = tree_leaves((tuple(input.shape), args, kwargs))
    if not is_traced or any(isinstance(n, torch.SymInt | torch.SymFloat) for n in given):
        return F.interpolate(input, *args, **kwargs)
    with _whole_gradients():
        return F.interpolate(input, *args, **kwargs)


@contextmanager
def _whole_gradients() -> Iterator[None]:
    """Within it, the gradient of a resizing is ATen's operator, as in eager, and not that of torch's formula.

    AOTAutograd decomposes an operator above autograd if the operator has a Python formula for the key Autograd. The
    formulas below autograd stay: they make the forward pass.
    """
    saved: list[tuple[Any, dict[Any, Any]]] = []
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    for name in _RESIZING.split():
        packet = getattr(torch.ops.aten, name)
        for op in (packet.default, packet.vec):
            saved.append((op, dict(op.py_kernels)))
            for key in keys:
                op.py_kernels.pop(key, None)
            op._dispatch_cache.clear()
        packet.vec.py_kernels.update(dict.fromkeys(keys, partial(_resize, packet.default)))
    try:
        yield
    finally:
        for op, formulas in saved:
            op.py_kernels.clear()
            op.py_kernels.update(formulas)
            op._dispatch_cache.clear()


def _resize(op: Any, input: Tensor, size: Any, *rest: Any) -> Tensor:
    """The overload `vec` of a resizing by way of the overload `op`, which takes sizes that only the call knows."""
    *flags, scales = rest
    found = upsample_compute_output_size(input.size(), size, scales)
    return op(input, found, *flags, *(scales or [None] * len(found)))


_RESIZING = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
)
_LOSSES: Mapping[object, Callable[..., Tensor]] = {
    F.multi_margin_loss: _multi_margin_loss,
    F.multilabel_margin_loss: _multilabel_margin_loss,
    F.soft_margin_loss: _soft_margin_loss,
}
_REPLACEMENTS: Mapping[object, Callable[..., Tensor]] = {
    **_LOSSES,
    F.dropout: _dropout,
    torch.dropout: _plain_dropout,
}
_RESIZINGS: Mapping[object, Callable[..., Tensor]] = {F.interpolate: _interpolate}
