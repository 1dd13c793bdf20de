"""Faults of the conditions and prices of convolutions' rewrites. Most change which calls a graph makes and its notes.

One kind of check notices the others: `norm-of-two-axes` and `pack-numbers-turned` lead to an error before there are
numbers; `norm-without-eps` and `post-op-wrong-slope` change numbers only; `pack-few-results` changes which operator is
called.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_plugin.oracle.compiled import Compile

pytestmark = [pytest.mark.devices("cpu"), pytest.mark.long]

Conv = partial(nn.Conv2d, padding=1)
LAST = torch.channels_last
FROZEN = {"freeze": True}


def whys(run: object, name: str) -> list[str]:
    return [row[3] for row in run.report.rewrites if row[0] == name]  # type: ignore[attr-defined]


def net(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*layers).eval()


def images(batch: int, channels: int, side: int) -> Tensor:
    return torch.randn(batch, channels, side, side)


class OfCaller(nn.Module):
    """A convolution with the caller's weight."""

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1)


class GivenWeight(nn.Module):
    """A convolution with the caller's weight, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return self.norm(F.conv2d(x, w))


@pytest.mark.must_fail_under("layout-copies-free")
@pytest.mark.counts(kernels=0)
def test_two_copies_cost_more_than_they_save(compiled: Compile) -> None:
    run = compiled(net(nn.Conv2d(32, 32, 1)), images(4, 32, 48), grad=False)
    assert "would cost" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("layout-weights-free")
@pytest.mark.counts(kernels=0)
def test_large_weights(compiled: Compile) -> None:
    run = compiled(net(Conv(256, 256, 3)), images(1, 256, 7), grad=False)
    assert "would cost" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("layout-windows-alike")
@pytest.mark.counts(kernels=0)
def test_large_depthwise_windows(compiled: Compile) -> None:
    run = compiled(net(nn.Conv2d(32, 32, 7, padding=3, groups=32)), images(1, 32, 14), grad=False)
    assert "would cost" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("layout-results-alike")
@pytest.mark.counts(kernels=0)
def test_few_results(compiled: Compile) -> None:
    run = compiled(net(nn.Conv2d(8, 2, 1)), images(1, 8, 56), grad=False)
    assert "would cost" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("layout-of-float64")
@pytest.mark.counts(kernels=1)
def test_float64(compiled: Compile) -> None:
    model = net(Conv(3, 16, 3), nn.AdaptiveAvgPool2d(1)).double()
    run = compiled(model, images(1, 3, 16).double(), grad=False)
    assert whys(run, "channels_last") == ["the library computes these convolutions in one layout only"]


@pytest.mark.must_fail_under("layout-saved-operands")
def test_a_backward(compiled: Compile) -> None:
    model = net(Conv(3, 16, 3), nn.ReLU(), Conv(16, 16, 3), nn.AdaptiveAvgPool2d(1))
    run = compiled(model, images(2, 3, 40), options={"rewrites": "-train_channels_last"}, grad=True)
    assert "a backward reads" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("pack-any-weight")
@pytest.mark.counts(kernels=0)
def test_weights_of_the_caller(compiled: Compile) -> None:
    given = images(1, 256, 7), torch.randn(256, 256, 3, 3)
    run = compiled(OfCaller().eval(), *given, options=FROZEN, grad=False)
    assert "would cost" in whys(run, "channels_last")[0]


@pytest.mark.must_fail_under("pack-contiguous")
@pytest.mark.counts(kernels=0)
def test_contiguous_images(compiled: Compile) -> None:
    options = {**FROZEN, "rewrites": "-channels_last"}
    run = compiled(net(Conv(3, 16, 3)), images(2, 3, 16), options=options, grad=False)
    assert "its images are contiguous" in whys(run, "pack_convolution")[0]


@pytest.mark.must_fail_under("pack-few-results")
def test_few_results_are_not_packed(compiled: Compile) -> None:
    options = {**FROZEN, "rewrites": "-channels_last"}
    x = images(2, 16, 16).contiguous(memory_format=LAST)
    run = compiled(net(nn.Conv2d(16, 2, 1)), x, options=options, grad=False)
    assert "2 results of 1x1 windows" in whys(run, "pack_convolution")[0]
    assert "_convolution_pointwise" not in "".join(run.wrappers)


@pytest.mark.must_fail_under("pack-numbers-turned")
def test_numbers_of_a_convolution(compiled: Compile) -> None:
    x = images(2, 3, 16).contiguous(memory_format=LAST)
    run = compiled(net(nn.Conv2d(3, 16, 3, stride=2, padding=1)), x, options=FROZEN, grad=False)
    assert whys(run, "pack_convolution") == [""]


@pytest.mark.must_fail_under("post-op-wrong-slope")
def test_usual_slope(compiled: Compile) -> None:
    x = images(2, 3, 16).contiguous(memory_format=LAST)
    model = net(Conv(3, 16, 3), nn.LeakyReLU())
    run = compiled(model, x, options=FROZEN, grad=False)
    assert whys(run, "post_ops") == [""]


@pytest.mark.must_fail_under("norm-of-changing-weights")
@pytest.mark.counts(kernels=2)
def test_norm_of_changing_weights(compiled: Compile) -> None:
    run = compiled(GivenWeight().eval(), images(2, 3, 16), torch.randn(8, 3, 3, 3), options=FROZEN, grad=False)
    assert "is not a frozen weight" in whys(run, "fold_batch_norm")[0]


@pytest.mark.must_fail_under("norm-of-two-axes")
def test_norm_of_two_axes(compiled: Compile) -> None:
    model = net(nn.ConvTranspose2d(4, 8, 2, 2, groups=2), nn.BatchNorm2d(8))
    run = compiled(model, images(2, 4, 8), options=FROZEN, grad=False)
    assert "on two axes" in whys(run, "fold_batch_norm")[0]


@pytest.mark.must_fail_under("norm-without-eps")
def test_eps_of_a_norm(compiled: Compile) -> None:
    model = net(nn.Linear(8, 12), nn.BatchNorm1d(12, eps=0.1))
    run = compiled(model, torch.randn(4, 8), options=FROZEN, grad=False)
    assert whys(run, "fold_batch_norm") == [""]
