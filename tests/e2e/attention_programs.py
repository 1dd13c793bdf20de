"""Programs that write attention out, as libraries of models do, for the tests of the row `attention`.

Takes nothing. Gives PROGRAMS, each a function of queries, keys, values and masks with the shapes of its arguments, and
NEAR_MISSES, which the row must leave alone, each with a word of its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

B, H, L, D = 2, 4, 192, 16  # batch, heads, length, size of a head
INF = math.inf


@dataclass(frozen=True)
class Program:
    """A function of tensors. `shapes` are those of its arguments; `masks` says how an argument is made, by its number:
    "causal", "padding" (booleans that are true where a key counts), "zeros" (of a causal mask), "bias" or "added".
    """

    fn: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((B, H, L, D),) * 3
    masks: Mapping[int, str] = field(default_factory=dict[int, str])
    why: str = ""

    def arguments(self, dtype: torch.dtype = torch.float32, *, grad: bool = False) -> list[torch.Tensor]:
        """Arguments of the program; with `grad` those that are no masks need gradients."""
        made: list[torch.Tensor] = []
        for n, shape in enumerate(self.shapes):
            if n in self.masks:
                made.append(mask(self.masks[n], shape, dtype))
            else:
                made.append(torch.randn(shape).to(dtype).requires_grad_(grad))
        return made


def mask(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A mask of a kind of `Program.masks`."""
    if kind == "causal":
        return torch.ones(shape, dtype=torch.bool).tril()
    if kind == "zeros":
        return torch.ones(shape).tril()
    if kind == "bias":
        return torch.randn(shape).to(dtype)
    keys = torch.arange(shape[-1]) < shape[-1] - 5
    if kind == "padding":
        return keys.expand(shape).clone()
    assert kind == "added"
    return torch.zeros(shape).masked_fill(~keys, torch.finfo(dtype).min).to(dtype)


def bert(q: Any, k: Any, v: Any, mask: Any) -> Any:
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = scores / math.sqrt(q.size(-1))
    scores = scores + mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = F.dropout(weights, p=0.1, training=False)
    context = torch.matmul(weights, v)
    context = context.permute(0, 2, 1, 3).contiguous()
    return context.view((*context.size()[:-2], H * D))


def gpt2(q: Any, k: Any, v: Any, causal: Any, mask: Any) -> Any:
    weights = torch.matmul(q, k.transpose(-1, -2))
    weights = weights / torch.full([], v.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device)
    rows, columns = q.size(-2), k.size(-2)
    allowed = causal[:, :, columns - rows : columns, :columns]
    least = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype, device=weights.device)
    weights = torch.where(allowed, weights.to(weights.dtype), least)
    weights = weights + mask
    weights = nn.functional.softmax(weights, dim=-1)
    weights = weights.type(v.dtype)
    weights = nn.Dropout(0.0)(weights)
    return torch.matmul(weights, v).transpose(1, 2)


def nano_gpt(q: Any, k: Any, v: Any, zeros: Any) -> Any:
    length = q.size(-2)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(zeros[:, :, :length, :length] == 0, float("-inf"))
    att = F.softmax(att, dim=-1)
    y = att @ v
    return y.transpose(1, 2).contiguous().view(B, length, H * D)


def repeat_kv(x: Any, times: int) -> Any:
    batch, heads, length, size = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, length, size)
    return x.reshape(batch, heads * times, length, size)


def llama(q: Any, k: Any, v: Any, mask: Any) -> Any:
    k, v = repeat_kv(k, 2), repeat_kv(v, 2)
    weights = torch.matmul(q, k.transpose(2, 3)) * D**-0.5
    weights = weights + mask[:, :, :, : k.shape[-2]]
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = nn.functional.dropout(weights, p=0.0, training=True)
    return torch.matmul(weights, v).transpose(1, 2).contiguous()


def t5(q: Any, k: Any, v: Any, bias: Any) -> Any:
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += bias
    weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(weights, v)


def vit(x: Any, w: Any) -> Any:
    batch, count, width = x.shape
    qkv = F.linear(x, w).reshape(batch, count, 3, H, width // H).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    attn = (q @ k.transpose(-2, -1)) * (width // H) ** -0.5
    attn = attn.softmax(dim=-1)
    return (attn @ v).transpose(1, 2).reshape(batch, count, width)


def scale_on_queries(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax((q / D**0.5) @ k.mT, 3) @ v


def scale_on_both(q: Any, k: Any, v: Any) -> Any:
    c = D**-0.25
    return ((q * c) @ (k * c).swapaxes(-1, -2)).softmax(-1).matmul(v)


def scale_on_keys(q: Any, k: Any, v: Any) -> Any:
    return nn.Softmax(dim=-1)(torch.matmul(q, (k * 0.25).permute(0, 1, 3, 2))).contiguous() @ v


def bart(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """With scores of three axes, which are viewed as four for the mask."""
    q3, k3, v3 = (x.reshape(B * H, L, D) for x in (q, k, v))
    weights = torch.bmm(q3 * D**-0.5, k3.transpose(1, 2))
    weights = weights.view(B, H, L, L) + mask
    weights = weights.view(B * H, L, L)
    weights = nn.functional.softmax(weights, dim=-1)
    out = torch.bmm(weights, v3)
    return out.view(B, H, L, D).transpose(1, 2).reshape(B, L, H * D)


def bloom(q: Any, k: Any, v: Any, alibi: Any, hidden: Any) -> Any:
    scores = torch.baddbmm(alibi, q, k.transpose(1, 2), beta=1.0, alpha=D**-0.5)
    scores = scores.view(B, H, L, L)
    scores = torch.masked_fill(scores, ~hidden, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights.view(B * H, L, L), v)


def three_axes(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ((torch.bmm(q, k.transpose(1, 2)) * 0.25) + mask).softmax(-1).bmm(v)


def einsum(q: Any, k: Any, v: Any) -> Any:
    dots = torch.einsum("bhid,bhjd->bhij", q, k) * D**-0.5
    return torch.einsum("bhij,bhjd->bhid", dots.softmax(dim=-1), v)


def einsum_length_first(q: Any, k: Any, v: Any, causal: Any) -> Any:
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * D**-0.5
    scores = scores.masked_fill(~causal, -torch.finfo(scores.dtype).max)
    return torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)


def permuted(q: Any, k: Any, v: Any, keep: Any) -> Any:
    q, k, v = (x.permute(0, 2, 1, 3) for x in (q, k, v))
    scores = torch.where(keep[:, None, None, :], q @ k.transpose(-1, -2) / 4, -INF)
    return (torch.softmax(scores, dim=-1) @ v).permute(0, 2, 1, 3).contiguous()


def in_place(q: Any, k: Any, v: Any, keep: Any) -> Any:
    scores = torch.matmul(q, k.transpose(-1, -2)).mul_(0.25)
    scores.masked_fill_(keep.logical_not(), -1e9)
    return torch.matmul(scores.softmax(dim=-1), v)


def built_inside(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * 0.25
    hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, -1e4).softmax(-1) @ v


def inverted_mask(q: Any, k: Any, v: Any, ones: Any) -> Any:
    mask = (1.0 - ones[:, None, None, :].to(q.dtype)) * torch.finfo(q.dtype).min
    return torch.matmul(((q @ k.transpose(-1, -2)) * 0.25 + mask).softmax(-1), v)


def one_head_of_keys(q: Any, k: Any, v: Any) -> Any:
    return (q @ k.transpose(-1, -2) * 0.25).softmax(-1) @ v


def subtracted(q: Any, k: Any, v: Any, keep: Any) -> Any:
    scores = q @ k.transpose(-1, -2) * 0.25 - 1e4 * (1 - keep.to(q.dtype))
    return scores.softmax(-1) @ v


def mask_of_keys(q: Any, k: Any, v: Any, keep: Any) -> Any:
    """One mask for all rows, as of the places of a static cache that are filled."""
    return F.softmax((q @ k.mT * D**-0.5).masked_fill(~keep, float("-inf")), -1) @ v


def tensor_scale(q: Any, k: Any, v: Any, log: Any) -> Any:
    return ((q @ k.transpose(-1, -2)) * log.exp()).softmax(-1) @ v


def scale_of_heads(q: Any, k: Any, v: Any, scale: Any) -> Any:
    return torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * scale, dim=-1) @ v


def one_matrix(q: Any, k: Any, v: Any) -> Any:
    return torch.mm(torch.softmax(torch.mm(q, k.t()) / 4, -1), v)


def windows(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> Any:
    """Windows of shifted images: the scores are viewed as five axes for a mask of each window."""
    count = mask.shape[0]
    attn = (q * D**-0.5) @ k.transpose(-2, -1) + bias.unsqueeze(0)
    attn = attn.view(q.shape[0] // count, count, H, L, L) + mask.unsqueeze(1).unsqueeze(0)
    return attn.view(-1, H, L, L).softmax(-1) @ v


_Q = (B, H, L, D)
_WINDOWS = (2 * B, H, L, D)
_LENGTH_FIRST = (B, L, H, D)
_THREE = (B * H, L, D)

PROGRAMS: Mapping[str, Program] = {
    "bert": Program(bert, (_Q, _Q, _Q, (B, 1, 1, L)), {3: "added"}),
    "gpt2": Program(gpt2, (_Q, _Q, _Q, (1, 1, 2 * L, 2 * L), (B, 1, 1, L)), {3: "causal", 4: "added"}),
    "nano_gpt": Program(nano_gpt, (_Q, _Q, _Q, (1, 1, 2 * L, 2 * L)), {3: "zeros"}),
    "llama": Program(llama, (_Q, (B, 2, L, D), (B, 2, L, D), (B, 1, L, L + 3)), {3: "added"}),
    "t5": Program(t5, (_Q, _Q, _Q, (1, H, L, L)), {3: "bias"}),
    "vit": Program(vit, ((B, L, H * D), (3 * H * D, H * D))),
    "scale_on_queries": Program(scale_on_queries),
    "scale_on_both": Program(scale_on_both),
    "scale_on_keys": Program(scale_on_keys),
    "bart": Program(bart, (_Q, _Q, _Q, (B, 1, L, L)), {3: "added"}),
    "bloom": Program(bloom, (_THREE, _THREE, _THREE, (B * H, 1, L), (B, 1, L, L)), {3: "bias", 4: "causal"}),
    "three_axes": Program(three_axes, (_THREE, _THREE, _THREE, (B * H, L, L)), {3: "bias"}),
    "einsum": Program(einsum),
    "einsum_length_first": Program(
        einsum_length_first, (_LENGTH_FIRST, _LENGTH_FIRST, _LENGTH_FIRST, (L, L)), {3: "causal"}
    ),
    "permuted": Program(permuted, (_LENGTH_FIRST, _LENGTH_FIRST, _LENGTH_FIRST, (B, L)), {3: "padding"}),
    "in_place": Program(in_place, (_Q, _Q, _Q, (1, L, L)), {3: "causal"}),
    "built_inside": Program(built_inside),
    "inverted_mask": Program(inverted_mask, (_Q, _Q, _Q, (B, L)), {3: "padding"}),
    "one_head_of_keys": Program(one_head_of_keys, (_Q, (B, 1, L, D), (B, 1, L, D))),
    "subtracted": Program(subtracted, (_Q, _Q, _Q, (L, L)), {3: "causal"}),
    "mask_of_keys": Program(mask_of_keys, (_Q, _Q, _Q, (L,)), {3: "padding"}),
    "tensor_scale": Program(tensor_scale, (_Q, _Q, _Q, ()), {3: "bias"}),
    "scale_of_heads": Program(scale_of_heads, (_Q, _Q, _Q, (H, 1, 1)), {3: "bias"}),
    "one_matrix": Program(one_matrix, ((L, D),) * 3),
    "windows": Program(windows, (_WINDOWS, _WINDOWS, _WINDOWS, (H, L, L), (2, L, L)), {3: "bias", 4: "added"}),
}


def _scores(q: Any, k: Any) -> Any:
    return q @ k.transpose(-1, -2) * 0.25


def with_weights(q: Any, k: Any, v: Any) -> Any:
    weights = _scores(q, k).softmax(-1)
    return weights @ v, weights


def other_axis(q: Any, k: Any, v: Any) -> Any:
    return _scores(q, k).softmax(-2) @ v


def other_sum(q: Any, k: Any, v: Any) -> Any:
    return torch.einsum("bhij,bhid->bhjd", _scores(q, k).softmax(-1), v)


def five_axes(q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.unflatten(1, (2, 2)) for x in (q, k, v))
    return _scores(q, k).softmax(-1) @ v


def other_dtypes(q: Any, k: Any, v: Any) -> Any:
    return _scores(q, k).softmax(-1).to(torch.bfloat16) @ v.to(torch.bfloat16)


def rounded_scores(q: Any, k: Any, v: Any) -> Any:
    return _scores(q, k).to(torch.bfloat16).softmax(-1).float() @ v


def dropped(q: Any, k: Any, v: Any) -> Any:
    return F.dropout(_scores(q, k).softmax(-1), 0.25, True) @ v


def scale_of_keys(q: Any, k: Any, v: Any, scale: Any) -> Any:
    return (_scores(q, k) * scale).softmax(-1) @ v


def negative_scale_of_fill(q: Any, k: Any, v: Any, keep: Any) -> Any:
    return (_scores(q, k).masked_fill(~keep, -1e9) * -1.0).softmax(-1) @ v


def visible_fill(q: Any, k: Any, v: Any, keep: Any) -> Any:
    return _scores(q, k).masked_fill(~keep, -2.0).softmax(-1) @ v


def two_masks(q: Any, k: Any, v: Any, keep: Any, bias: Any) -> Any:
    return (_scores(q, k) + bias).masked_fill(~keep, -1e4).softmax(-1) @ v


def mask_of_queries(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return (_scores(q, k) + bias).softmax(-1) @ v


def filled_by_tensor(q: Any, k: Any, v: Any, keep: Any, other: Any) -> Any:
    return torch.where(keep, _scores(q, k), other).softmax(-1) @ v


def groups_of_heads(q: Any, k: Any, v: Any, bias: Any) -> Any:
    return (_scores(q, k).view(B, 2, 2, L, L) + bias).view(B, H, L, L).softmax(-1) @ v


def other_batch(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """The scores are viewed as of H images with B heads each."""
    scores = _scores(q, k).view(-1, L, L).view(H, B, L, L) + bias
    return scores.view(-1, L, L).view(B, H, L, L).softmax(-1) @ v


NEAR_MISSES: Mapping[str, Program] = {
    "with_weights": Program(with_weights, why="which the rewrite would not compute"),
    "other_axis": Program(other_axis, why="along axis -2"),
    "other_sum": Program(other_sum, why="is not the one over which"),
    "five_axes": Program(five_axes, why="have 5 axes"),
    "other_dtypes": Program(other_dtypes, why="the queries are float32, not bfloat16"),
    "rounded_scores": Program(rounded_scores, why="computed in bfloat16"),
    "integers": Program(lambda q, k, v: (_scores(q, k).softmax(-1) * 9).int() @ v.int(), why=""),
    "other_head_size": Program(one_head_of_keys, (_Q, _Q, (B, H, L, 8)), why="head sizes"),
    "dropped": Program(dropped, why="drops weights"),
    "scale_of_keys": Program(scale_of_keys, (_Q, _Q, _Q, (L,)), {3: "bias"}, "a value for each key"),
    "negative_scale_of_fill": Program(negative_scale_of_fill, (_Q, _Q, _Q, (L, L)), {3: "causal"}, "follows a fill"),
    "visible_fill": Program(visible_fill, (_Q, _Q, _Q, (L, L)), {3: "causal"}, "does not hide them"),
    "two_masks": Program(two_masks, (_Q, _Q, _Q, (L, L), (L, L)), {3: "padding", 4: "bias"}, "masked otherwise too"),
    "filled_by_tensor": Program(
        filled_by_tensor, (_Q, _Q, _Q, (L, L), (L, L)), {3: "causal", 4: "bias"}, "filled by a tensor"
    ),
    "mask_of_queries": Program(mask_of_queries, (_Q, _Q, _Q, (L, 1)), {3: "bias"}, "one value for all keys"),
    "groups_of_heads": Program(groups_of_heads, (_Q, _Q, _Q, (2, 1, L, L)), {3: "bias"}, "products do not have"),
    "other_batch": Program(other_batch, (_Q, _Q, _Q, (H, 1, L, L)), {3: "bias"}, "products do not have"),
    "few_queries": Program(mask_of_queries, ((B, H, 9, D), _Q, _Q, (9, L)), {3: "bias"}, "faster written out"),
    "few_keys": Program(mask_of_queries, (_Q, (B, H, 12, D), (B, H, 12, D), (L, 12)), {3: "bias"}, "fewer than 16"),
}
