"""Gradients of losses against eager, also of means over a symbolic number of elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tests.frontend.tracing import compiled, grads, lowered, randn

LOSSES = {
    "mse": F.mse_loss,
    "huber": lambda x, y, reduction: F.huber_loss(x, y, reduction, delta=0.7),
    "smooth_l1": lambda x, y, reduction: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5),
    "soft_margin": lambda x, y, reduction: F.soft_margin_loss(x, y.detach().sign(), reduction=reduction),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradient(name: str, reduction: str) -> None:
    loss: Callable[..., torch.Tensor] = LOSSES[name]
    seen = lowered(lambda x, y: loss(x, y, reduction=reduction), *grads(randn(4, 5), randn(4, 5, seed=1)))
    assert not seen.externs
    assert [node.op for node in seen.graphs[1].nodes if "loss" in node.op]


@pytest.mark.parametrize("name", LOSSES)
def test_the_share_of_an_element_is_one_number_of_float64(name: str) -> None:
    """The graph has no float symbol for 1/n, which would need the sizes as inputs of the backward graph."""
    loss: Callable[..., torch.Tensor] = LOSSES[name]
    seen = compiled(lambda x, y: loss(x, y, reduction="mean"), *grads(randn(4, 5), randn(4, 5, seed=1)), dynamic=True)
    assert not seen.externs
    assert [node.op for node in seen.graphs[1].nodes if "loss" in node.op]
    assert all(symbol.kind == "size" for graph in seen.graphs for symbol in graph.symbols)
