"""Convolution nets that are compiled with their layouts chosen, frozen or not, by both wrappers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pytest_plugin.oracle.compiled import Compile
from tests.random_nets import random_net

pytestmark = pytest.mark.devices("cpu")


class SmallNet(nn.Module):
    """A stem, a residual block with a depthwise convolution, a transposed one and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.inner = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 1)
        )
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.head = nn.Sequential(nn.Linear(24, 12, bias=False), nn.BatchNorm1d(12))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        y = x + self.inner(x)
        pooled = torch.cat((y.mean((2, 3)), self.up(y).amax((2, 3))), 1)
        return y, self.head(pooled)


def applied(run: object) -> list[str]:
    return sorted({row[0] for row in run.report.rewrites if not row[3]})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrapper", "dynamic"),
    [
        ("python", None),
        ("cpp", True),
        pytest.param("python", True, marks=pytest.mark.long),
        pytest.param("cpp", None, marks=pytest.mark.long),
    ],
)
def test_a_frozen_net(compiled: Compile, wrapper: str, dynamic: bool | None) -> None:
    torch.manual_seed(0)
    options = {"freeze": True, "wrapper": wrapper, "verify": True}
    run = compiled(SmallNet().eval(), torch.randn(2, 3, 40, 40), options=options, dynamic=dynamic, grad=False)
    assert applied(run) == ["channels_last", "fold_batch_norm", "pack_convolution", "post_ops"]


@pytest.mark.parametrize("wrapper", ["python", "cpp"])
def test_a_net_that_is_not_frozen(compiled: Compile, wrapper: str) -> None:
    torch.manual_seed(0)
    options = {"wrapper": wrapper, "verify": True}
    run = compiled(SmallNet().eval(), torch.randn(2, 3, 40, 40), options=options, grad=False)
    assert applied(run) == ["channels_last"]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 120))])
@pytest.mark.parametrize("options", [{"freeze": True}, {}, {"rewrites": "-all"}], ids=["freeze", "plain", "off"])
def test_random_nets(compiled: Compile, seed: int, options: dict[str, object]) -> None:
    net, x = random_net(seed)
    compiled(net, x, options=options, grad=False)
