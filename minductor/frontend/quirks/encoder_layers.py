"""The formula of a transformer encoder layer, which `nn.TransformerEncoderLayer` calls as one operator in inference.

Takes the operator's arguments while torch traces. Gives the result; the layer's parts then fuse, and frozen weights are
packed. Refuses (NotImplemented, which keeps the operator whole) nested tensors and masks of unknown kinds.

`decompositions.py` applies the formula to ATen graphs, and `replaced_functions.py` to Dynamo's graph where autocast is
on, since torch traces the operator as if autocast were off.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

PADDING, PAIRS, SCORES = 1, 0, 2  # kinds of masks: of (batch, keys), of (queries, keys), and of all scores
FEWEST_FUSED = 192  # keys in float32 on a CPU, from which the fused attention is faster than products and a softmax


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    *others: Any,
) -> Any:
    """The formula of `_transformer_encoder_layer_fwd`.

    `others`: whether it uses gelu, whether norms come first, their epsilon; the weights of two norms and of two linear
    layers, each with its bias; then a mask and its kind, if there are any.
    """
    use_gelu, norm_first, eps, *weights = others
    (norm_1, norm_2), (ffn_1, bias_1, ffn_2, bias_2) = (weights[:2], weights[2:4]), weights[4:8]
    mask, kind = (*weights[8:], None, None)[:2]
    if src.is_nested or src.dim() != 3 or (mask is not None and kind not in (PADDING, PAIRS, SCORES)):
        return NotImplemented

    def norm(x: Tensor, scale_and_shift: Any) -> Tensor:
        return F.layer_norm(x, (embed_dim,), scale_and_shift[0], scale_and_shift[1], eps)

    x = norm(src, norm_1) if norm_first else src
    qkv = F.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    mixed = _attention(q, k, v, mask, kind).transpose(1, 2).flatten(2)
    x = _added_to(F.linear(mixed, proj_weight, proj_bias), src)
    x = x if norm_first else norm(x, norm_1)
    hidden = F.linear(norm(x, norm_2) if norm_first else x, ffn_1, bias_1)
    x = _added_to(F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_2, bias_2), x)
    return x if norm_first else norm(x, norm_2)


def _added_to(x: Tensor, other: Tensor) -> Tensor:
    """The sum in the dtype of `x`, to which eager adds in place; under autocast `other` may be wider."""
    return (x + other).to(x.dtype)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kind: int | None) -> Tensor:
    """Attention of heads; a query whose keys are all masked gives NaN, as in eager."""
    is_wide = q.dtype in (torch.float32, torch.float64) and q.device.type == "cpu"
    is_short = is_wide and isinstance(k.shape[-2], int) and k.shape[-2] < FEWEST_FUSED
    if mask is None and not is_short:
        return F.scaled_dot_product_attention(q, k, v)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = mask.to(torch.bool)
        scores = scores.masked_fill(hidden[:, None, None] if kind == PADDING else hidden, float("-inf"))
    return scores.softmax(-1) @ v
