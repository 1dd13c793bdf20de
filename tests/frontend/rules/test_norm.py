"""Normalizations against eager, forward and backward: layer, rms, group, instance and batch norm."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from tests.frontend.tracing import compiled, grads, lowered, randn

X, W, B = randn(3, 4, 6), randn(6, seed=1), randn(6, seed=2)
IMAGE, CW, CB = randn(2, 8, 3, 5), randn(8, seed=3), randn(8, seed=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_layer_norm(dtype: torch.dtype) -> None:
    given = grads(X.to(dtype), W.to(dtype), B.to(dtype))
    assert not lowered(lambda x, w, b: F.layer_norm(x, (6,), w, b), *given).externs


def test_layer_norm_over_two_dimensions_and_without_weights() -> None:
    weight = randn(4, 6, seed=5)
    assert not lowered(lambda x, w: F.layer_norm(x, (4, 6), w), *grads(X, weight)).externs
    assert not lowered(lambda x: F.layer_norm(x, (6,)), *grads(X)).externs


def test_layer_norm_gradient_of_the_weights_only() -> None:
    seen = lowered(lambda x, w, b: F.layer_norm(x, (6,), w, b), X, *grads(W, B))
    assert len([k for k in seen.kernels if k.origins[0].op.endswith("backward.default")]) == 2


def test_rms_norm() -> None:
    assert not lowered(lambda x, w: F.rms_norm(x, (6,), w, 1e-5), *grads(X, W)).externs
    assert not lowered(lambda x: F.rms_norm(x, (6,)), X).externs


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_group_norm(groups: int) -> None:
    assert not lowered(lambda x, w, b: F.group_norm(x, groups, w, b), *grads(IMAGE, CW, CB)).externs
    assert not lowered(lambda x: F.group_norm(x, groups), *grads(IMAGE)).externs


def test_instance_norm() -> None:
    assert not lowered(lambda x: F.instance_norm(x), *grads(IMAGE)).externs


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_batch_norm_in_training_moves_its_statistics(layout: torch.memory_format) -> None:
    mean, var = torch.zeros(8), torch.ones(8)

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, m, v, w, b, training=True)

    x = IMAGE.contiguous(memory_format=layout)
    assert not compiled(fn, x, CW, CB, mean, var).externs
    assert mean.abs().sum() > 0 and not torch.equal(var, torch.ones(8))
    assert not lowered(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), *grads(IMAGE, CW, CB)).externs


def test_batch_norm_in_inference() -> None:
    mean, var = randn(8, seed=6), randn(8, seed=7).abs() + 0.1

    def fn(x: torch.Tensor, w: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, m, v, w, None, training=False)

    assert not compiled(fn, IMAGE, CW, mean, var).externs
    compiled(fn, *grads(IMAGE, CW), mean, var)


def test_statistics_of_half_precision_are_float32() -> None:
    seen = lowered(lambda x: F.layer_norm(x, (6,)), X.bfloat16())
    assert {b.dtype.name for b in seen.program.buffers if b.kind == "local"} == {"f32", "bf16"}
