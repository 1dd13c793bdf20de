"""Operators that torch has for GPUs only, computed on the CPU, to check GPU programs on a machine without a GPU.

Takes the arguments of such an operator. Gives those of its results that programs use. Refuses dropout
(NotImplementedError), and what the operator itself refuses (ValueError); without dropout, the state of the random
generator is None.

>>> q = torch.ones(1, 1, 2, 8).half()
>>> out, statistics, *rest = ON_CPU["aten._scaled_dot_product_flash_attention.default"](q, q, q, 0.0, False, scale=None)
>>> out.shape == q.shape, rest
(True, [None, None, 0, 0, None, None, None])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

FORWARD = "aten._scaled_dot_product_{}_attention.default"
BACKWARD = "aten._scaled_dot_product_{}_attention_backward.default"


def _flash(*args: Any, scale: float | None) -> tuple[Any, ...]:
    *given, dropout, causal = args
    if given[0].itemsize != 2 or given[0].shape[-1] > 256:
        raise ValueError(f"flash attention of {given[0].dtype} with heads of {given[0].shape[-1]} elements")
    _refuse_unaligned(given, None)
    return (*_forward(given, None, dropout, causal=causal, scale=scale), None, None, 0, 0, None, None, None)


def _efficient(*args: Any, scale: float | None) -> tuple[Any, ...]:
    *given, mask, is_kept, dropout, causal = args
    _refuse_unaligned(given, mask)
    out, statistics = _forward(given, mask, dropout, causal=causal, scale=scale)
    out = out.transpose(1, 2).contiguous().transpose(1, 2)  # the heads of a row lie side by side
    return out, statistics if is_kept else statistics.new_empty((*statistics.shape[:2], 0)), None, None


def _forward(given: Sequence[Any], mask: Any, dropout: float, *, causal: bool, scale: float | None) -> tuple[Any, ...]:
    _refuse(dropout)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return call(*given, 0.0, causal, attn_mask=mask, scale=scale)


def _flash_backward(*args: Any, scale: float | None) -> tuple[Any, ...]:
    given, dropout, causal = args[:6], args[10], args[11]
    return _backward(given, None, dropout, causal=causal, scale=scale)


def _efficient_backward(*args: Any, scale: float | None) -> tuple[Any, ...]:
    gradient, q, k, v, mask, out, statistics, _, _, dropout, _, causal = args
    return (*_backward((gradient, q, k, v, out, statistics), mask, dropout, causal=causal, scale=scale), None)


def _backward(given: Sequence[Any], mask: Any, dropout: float, *, causal: bool, scale: float | None) -> tuple[Any, ...]:
    _refuse(dropout)
    call = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return call(*given, 0.0, causal, attn_mask=mask, scale=scale)


def _refuse_unaligned(given: Sequence[Any], mask: Any) -> None:
    """The kernels load 16 bytes at a time, along the last dimension, and take a mask as it is."""
    query, key, _ = given
    if query.dtype == torch.float64:
        raise ValueError("attention in float64")
    step = 16 // query.itemsize
    for tensor in given:
        if tensor.shape[-1] % step or tensor.stride(-1) != 1:
            raise ValueError(f"heads of {tensor.shape[-1]} elements, {tensor.stride(-1)} apart")
    if mask is not None:
        if mask.dtype != query.dtype or mask.shape != (*query.shape[:3], key.shape[2]):
            raise ValueError(f"a mask of {mask.dtype} and {tuple(mask.shape)} for queries of {tuple(query.shape)}")
        starts = [stride for size, stride in zip(mask.shape, mask.stride(), strict=True) if size > 1][:-1]
        if mask.stride(-1) != 1 or any(each % step for each in (mask.storage_offset(), *starts)):
            raise ValueError(f"a mask whose rows do not begin at multiples of 16 bytes: {mask.stride()}")


def _refuse(dropout: float) -> None:
    if dropout:
        raise NotImplementedError("dropout in an operator that torch has for GPUs only")


ON_CPU: Mapping[str, Callable[..., tuple[Any, ...]]] = MappingProxyType(
    {
        FORWARD.format("flash"): _flash,
        FORWARD.format("efficient"): _efficient,
        BACKWARD.format("flash"): _flash_backward,
        BACKWARD.format("efficient"): _efficient_backward,
    }
)
