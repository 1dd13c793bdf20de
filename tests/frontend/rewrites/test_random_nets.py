"""Rewritten graphs of random convolution nets give what eager gives, with eager's strides."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.convolution_rewrites import rewrite
from tests.random_nets import random_net

FACTOR = 8  # the error may be so many times eager's, which sums in another order


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 60))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rewrites", ["", "-all", "+clamping_post_ops"])
@pytest.mark.parametrize("freeze", [False, True])
def test_random_nets_agree_with_float64(seed: int, rewrites: str, freeze: bool) -> None:
    net, x = random_net(seed)
    found = rewrite(net, x, freeze=freeze, rewrites=rewrites, dynamic=True if seed % 4 == 3 else None)
    with torch.no_grad():
        exact = copy.deepcopy(net).double()(x.double())
    for got, wanted, truth in zip(found.results, found.wanted, exact, strict=True):
        assert got.stride() == wanted.stride()
        assert got.dtype == wanted.dtype
        error, eagers = ((each.double() - truth).abs().max().item() for each in (got, wanted))
        scale = truth.abs().max().item()
        assert error <= FACTOR * eagers + 1e-6 * scale
