"""The benchmark's models, small: every graph's program against the graph, forward, backward and inference."""

from __future__ import annotations

import pytest
import torch

from minductor.bench import models
from tests.frontend.tracing import compiled

EXPECTED = {
    "addmm",
    "mm",
    "convolution",
    "convolution_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "embedding_dense_backward",
}


REGULAR = ("vit",)  # attention and convolutions; tests/e2e/test_models.py trains gpt and resnet


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in REGULAR else pytest.mark.long) for name in models.NAMES]
)
def test_model(name: str) -> None:
    module, inputs, loss_fn = models.make(name, size="tiny")

    def step(*args: torch.Tensor) -> torch.Tensor:
        return loss_fn(module(*args))

    seen = compiled(step, *inputs)
    assert [g.role for g in seen.graphs] == ["forward", "backward"]
    assert {op.split(".")[1] for op in seen.externs} <= EXPECTED
    module.eval()
    with torch.no_grad():
        seen = compiled(step, *inputs)
    assert [g.role for g in seen.graphs] == ["inference"]
    assert {op.split(".")[1] for op in seen.externs} <= EXPECTED
