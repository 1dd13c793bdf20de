"""Replaces functions that torch traces otherwise than eager runs them by functions that are traced as eager runs.

Takes the graph that Dynamo hands over, before AOTAutograd traces it, and changes its calls. Gives nothing. Refuses
nothing. `known_quirks.py` has a row for each function but `pad`, which is traced as eager runs it, only slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import _reduction
from torch.nn import functional as F

from minductor.frontend.quirks.encoder_layers import encoder_layer

_ENCODER_LAYER: Any = vars(torch)["_transformer_encoder_layer_fwd"]
_PAD: Any = vars(torch._C)["_nn"].pad  # what Dynamo puts into a graph for F.pad


def replace_functions(gm: torch.nn.Module) -> None:
    """Replaces the functions of _REPLACEMENTS that a graph calls, and those of _LOSSES that its inner graphs call.

    Dropout may return its argument, which the graph of a higher-order operator must not do. `interpolate` is replaced
    where it resizes bytes. Circular padding gives the same in either way; it is replaced because it is slow as traced.

    >>> gm = torch.fx.symbolic_trace(lambda x: F.dropout(x, training=False))
    >>> replace_functions(gm)
    >>> x = torch.ones(2)
    >>> gm(x) is x
    True
    """
    parts = [part for part in gm.modules() if isinstance(part, torch.fx.GraphModule)]
    inner = {child for part in parts for child in part.modules() if child is not part}
    for part in parts:
        instead = _LOSSES if part in inner else _REPLACEMENTS
        calls = [node for node in part.graph.nodes if node.op == "call_function" and node.target in instead]
        calls = [node for node in calls if node.target is not F.interpolate or _takes_bytes(node)]
        for node in calls:
            node.target = instead[node.target]
        if calls:
            part.recompile()


def _takes_bytes(node: torch.fx.Node) -> bool:
    """Whether the first operand of a call is a tensor of bytes."""
    operand = next(iter(node.all_input_nodes), None)
    value = None if operand is None else operand.meta.get("example_value")
    return isinstance(value, Tensor) and value.dtype == torch.uint8


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


def _resize_bytes(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", *rest: Any, **named: Any
) -> Tensor:
    """Resizing of bytes by ATen's operator, which rounds the shares of elements; torch traces one rounding only."""
    how = {**dict(zip(("align_corners", "recompute_scale_factor", "antialias"), rest, strict=False)), **named}
    is_traced = mode not in ("bilinear", "bicubic") or how.get("antialias")
    if is_traced or input.dim() != 4 or (size is None) == (scale_factor is None):
        return F.interpolate(input, size, scale_factor, mode, **how)
    given = size if scale_factor is None else scale_factor
    both = tuple(given) if isinstance(given, tuple | list) else (given, given)
    is_scaled = size is None and not how.get("recompute_scale_factor")
    sizes = both if size is not None else [torch.sym_int(n * f) for n, f in zip(input.shape[2:], both, strict=True)]
    op = torch.ops.aten.upsample_bilinear2d if mode == "bilinear" else torch.ops.aten.upsample_bicubic2d
    with torch._C._AutoDispatchBelowAutograd():  # autograd's key has torch's formula; bytes have no gradient
        factors = map(float, both) if is_scaled else (None, None)
        return op.default(input, sizes, bool(how.get("align_corners")), *factors)


def _pad_around(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Circular padding of sizes that vary as concatenations.

    Torch traces writes into a tensor, of which each reads the one before. Where sizes vary, their masks stay masks, and
    the kernel took a hundred times as long as eager.
    """
    count, sizes = len(pad) // 2, input.shape[::-1]
    varies = any(isinstance(n, torch.SymInt) for n in (*pad, *sizes))
    if mode != "circular" or not varies or count >= input.dim():
        return F.pad(input, pad, mode, value)
    if any(not 0 <= n <= sizes[at // 2] for at, n in enumerate(pad)):
        return F.pad(input, pad, mode, value)
    padded = input
    for at in reversed(range(count)):
        before, after, dim = pad[2 * at], pad[2 * at + 1], input.dim() - 1 - at
        parts = (padded.narrow(dim, sizes[at] - before, before), padded, padded.narrow(dim, 0, after))
        padded = torch.cat(parts, dim)
    return padded.contiguous()


def _encoder_layer(src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A transformer encoder layer whose products are cast by autocast; torch traces it as if there were none."""
    is_cast = torch.is_autocast_enabled(src.device.type)
    result = encoder_layer(src, *args, **kwargs) if is_cast else NotImplemented
    return _ENCODER_LAYER(src, *args, **kwargs) if result is NotImplemented else result


_LOSSES: Mapping[object, Callable[..., Tensor]] = {
    F.multi_margin_loss: _multi_margin_loss,
    F.multilabel_margin_loss: _multilabel_margin_loss,
    F.soft_margin_loss: _soft_margin_loss,
}
_REPLACEMENTS: Mapping[object, Callable[..., Tensor]] = {
    **_LOSSES,
    F.dropout: _dropout,
    torch.dropout: _plain_dropout,
    F.interpolate: _resize_bytes,
    _PAD: _pad_around,
    _ENCODER_LAYER: _encoder_layer,
}
