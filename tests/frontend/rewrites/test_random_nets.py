"""Rewritten graphs of random convolution nets give what eager gives, with eager's strides."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.convolution_rewrites import rewrite
from tests.random_nets import random_net

FACTOR = 8  # the error may be so many times eager's, which sums in another order


def is_regular(seed: int, rewrites: str, freeze: bool) -> bool:
    """Whether `make test` runs it: of the nets whose sizes vary, which take ten times as long, one."""
    return seed < 3 or (seed == 3 and not rewrites and freeze)


@pytest.mark.parametrize(
    ("seed", "rewrites", "freeze"),
    [
        pytest.param(seed, rewrites, freeze, marks=() if is_regular(seed, rewrites, freeze) else pytest.mark.long)
        for freeze in (False, True)
        for rewrites in ("", "-all", "+clamping_post_ops")
        for seed in range(60)
    ],
)
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
