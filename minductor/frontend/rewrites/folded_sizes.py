"""Tells which values of frozen weights are too large to be kept beside the weights.

Takes a node of an ATen graph whose value depends on weights alone. Gives whether the value is computed at each call,
because of its bytes. Refuses nothing. Rewrites ask, since a weight that is computed at each call can't be packed, and
`split_frozen_graph.py` asks, which folds the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import fx

MAX_GROWTH = 4  # a folded value has at most so many times the bytes of the weights that it comes from
SMALL_BYTES = 4096  # a value of at most this size is folded in any case


def is_too_large(node: fx.Node) -> bool:
    """Whether a frozen value has too many bytes to be kept: it has grown, or is a widened weight of bytes."""
    if node.op in ("placeholder", "get_attr") or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    if _is_widened_bytes(node):
        return True
    return nbytes(node) > max(SMALL_BYTES, MAX_GROWTH * sum(map(nbytes, _weights_of(node))))


def owner_of(node: fx.Node) -> fx.Node:
    """The node whose memory a view shows; the node itself, if it is no view."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


def nbytes(node: fx.Node) -> int:
    """The bytes of a node's traced tensor; 0 if a size is no number."""
    value: Any = node.meta["val"]
    return prod(value.shape) * value.itemsize if all(type(n) is int for n in value.shape) else 0


def _is_widened_bytes(node: fx.Node) -> bool:
    """Whether a value is nothing but a weight of one byte an element, converted and scaled, and large.

    Such a weight saves memory, and a copy of 2 or 4 times its bytes would lie beside it.
    """
    largest = max(_weights_of(node), key=nbytes, default=node)
    weight = largest.meta["val"]
    is_widened = weight.itemsize == 1 < node.meta["val"].itemsize and weight.dtype != torch.bool
    return is_widened and nbytes(node) > max(SMALL_BYTES, nbytes(largest))


def _weights_of(node: fx.Node) -> Iterator[fx.Node]:
    """The weights that a frozen value is computed from, each once."""
    seen: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.op in ("placeholder", "get_attr"):
            yield each
        waiting += each.all_input_nodes
