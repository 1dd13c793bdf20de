"""Operators that torch has for GPUs only, computed on the CPU, to check GPU programs on a machine without a GPU.

Takes the arguments of such an operator. Gives those of its results that programs use. Refuses dropout
(NotImplementedError); without it, the state of the random generator is None.

>>> q = torch.ones(1, 1, 2, 4)
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
    return (*_forward(given, None, dropout, causal=causal, scale=scale), None, None, 0, 0, None, None, None)


def _efficient(*args: Any, scale: float | None) -> tuple[Any, ...]:
    *given, mask, is_kept, dropout, causal = args
    out, statistics = _forward(given, mask, dropout, causal=causal, scale=scale)
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
