"""Training steps of convolution nets whose layouts are chosen, by both wrappers; and faults of the choice.

The prices are those of a CPU, or drawn.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import minductor
from minductor.frontend.rewrites import convolution_layouts
from pytest_plugin.oracle.compiled import Compile
from tests.random_nets import random_net

pytestmark = pytest.mark.devices("cpu")
ROW = "train_channels_last"
Conv = partial(nn.Conv2d, padding=1)


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], tuple[float, float]]], None]:
    """Lets a function give the seconds of both layouts for each convolution."""
    monkeypatch.setattr(convolution_layouts, "has_layouts", lambda *_, **__: True)

    def by(seconds: Callable[[], tuple[float, float]]) -> None:
        for name in ("layout_seconds", "gradient_seconds"):
            monkeypatch.setattr(convolution_layouts, name, lambda *_, **__: seconds())

    by(lambda: (1.0, 0.0))
    return by


def applied(run: Any, row: str = ROW) -> list[str]:
    """Why a row was not applied, once for each graph; "" where it was."""
    return [each[3] for each in run.report.rewrites if each[0] == row]


class SmallNet(nn.Module):
    """A stem, a residual block with a depthwise convolution, a transposed one and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.inner = nn.Sequential(Conv(16, 16, 3, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Linear(24, 12, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        y = x + self.inner(x)
        return y, self.head(torch.cat((y.mean((2, 3)), self.up(y).amax((2, 3))), 1))


class Distances(nn.Module):
    """An image of the distances between the rows of two others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Conv(3, 8, 3), Conv(3, 8, 3), Conv(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.cdist(self.first(x), self.second(x))).mean((2, 3))


class Checkpoints(nn.Module):
    """Two blocks that the backward computes again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = Conv(3, 8, 3), nn.Sequential(Conv(8, 8, 3), nn.SiLU(), Conv(8, 8, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.block, self.first(x), use_reentrant=False)
        return checkpoint(self.block, x, use_reentrant=False).mean((2, 3))


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize("wrapper", [pytest.param("python", marks=pytest.mark.long), "cpp"])
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.long)])
def test_a_training_step(compiled: Compile, wrapper: str, dynamic: bool | None) -> None:
    torch.manual_seed(0)
    options = {"wrapper": wrapper, "verify": True}
    run = compiled(SmallNet(), torch.randn(2, 3, 24, 24), options=options, dynamic=dynamic, grad=True)
    assert applied(run) == [""]
    assert "a backward reads" in applied(run, "channels_last")[0]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(300, 330))])
def test_random_nets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prices: Any, seed: int) -> None:
    """Gradients that cancel are as unsure as eager's, so all are held against the largest; a wrong layout gives other
    numbers altogether.
    """
    monkeypatch.setenv("MINDUCTOR_CACHE_DIR", str(tmp_path))
    net, x = random_net(seed)
    eager = copy.deepcopy(net.train())
    draw = random.Random(seed)
    prices(lambda: (draw.random(), draw.random()))
    wanted = gradients(eager, eager, x)
    found = gradients(torch.compile(net, backend=minductor.minductor), net, x)
    largest = max(each.abs().max().item() for each in wanted)
    for got, value in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, value, rtol=1e-3, atol=1e-4 * largest)


def gradients(call: Callable[[Tensor], list[Tensor]], net: nn.Module, x: Tensor) -> list[Tensor]:
    """The results of a call, and the gradients of the net's weights, each result weighted by random numbers."""
    results = call(x)
    torch.manual_seed(0)
    torch.stack([(each * torch.randn(each.shape)).sum() for each in results]).sum().backward()
    return [*results, *(weight.grad for weight in net.parameters() if weight.grad is not None)]


# --- faults


@pytest.mark.long
@pytest.mark.must_fail_under("train-weights-to-the-library")
def test_a_copy_of_a_weight(compiled: Compile) -> None:
    model = nn.Sequential(Conv(16, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    run = compiled(model, torch.randn(4, 16, 32, 32), grad=True)
    assert applied(run) == [""]
    assert "(64, 16, 3, 3), (144, 1, 48, 16)" in run.wrappers[0]


@pytest.mark.long
@pytest.mark.must_fail_under("train-gradients-of-weights-free")
def test_large_weights(compiled: Compile) -> None:
    run = compiled(nn.Sequential(Conv(96, 96, 3), nn.AdaptiveAvgPool2d(1)), torch.randn(1, 96, 8, 8), grad=True)
    assert "would cost" in applied(run)[0]


@pytest.mark.long
@pytest.mark.must_fail_under("train-group-norms-free")
def test_groups_of_few_channels(compiled: Compile) -> None:
    model = nn.Sequential(Conv(8, 16, 3), nn.GroupNorm(8, 16), nn.AdaptiveAvgPool2d(1))
    run = compiled(model, torch.randn(4, 8, 48, 48), grad=True)
    assert "would cost" in applied(run)[0]


@pytest.mark.long
@pytest.mark.usefixtures("prices")
@pytest.mark.must_fail_under("train-marks-lost")
def test_checkpoints(compiled: Compile) -> None:
    run = compiled(Checkpoints(), torch.randn(2, 3, 16, 16), grad=True)
    assert applied(run) == [""]
    _, backward = run.wrappers
    assert backward.count("= torch.convolution(") >= 2


@pytest.mark.long
@pytest.mark.usefixtures("prices")
def test_distances(compiled: Compile) -> None:
    """Autograd gives the gradient of distances contiguous gradients, which come from a convolution here."""
    run = compiled(Distances(), torch.randn(2, 3, 16, 16), grad=True)
    assert applied(run) == [""]


@pytest.mark.long
@pytest.mark.usefixtures("prices")
def test_normalized_weights(compiled: Compile) -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(Conv(3, 8, 3)), nn.ReLU(), Conv(8, 8, 3))
    run = compiled(model, torch.randn(2, 3, 16, 16), grad=True)
    assert applied(run) == [""]
