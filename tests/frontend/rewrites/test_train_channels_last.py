"""Which convolutions of a training step get channels-last images, which stay, and that its values are eager's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from minductor.frontend.quirks.eager_strides import layout_of
from minductor.frontend.rewrites import convolution_layouts
from minductor.frontend.rewrites.convolution_seconds import Convolution, gradient_seconds, group_norm_seconds
from tests.random_nets import random_net
from tests.trained_layouts import IMAGES, copied, train

Conv = partial(nn.Conv2d, padding=1)
Norm = nn.BatchNorm2d


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All convolutions and gradients want channels-last images, whatever the copies cost."""
    for name in ("layout_seconds", "gradient_seconds"):
        monkeypatch.setattr(convolution_layouts, name, lambda *_, **__: (1.0, 0.0))


def images(batch: int = 2, channels: int = 3, side: int = 16) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(batch, channels, side, side)


def net(*layers: nn.Module) -> nn.Module:
    """Layers behind a first convolution, in front of the mean of each channel."""
    torch.manual_seed(0)
    return nn.Sequential(Conv(3, 16, 3, bias=False), Norm(16), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Residual(nn.Module):
    """Convolutions around sums, a concatenation, poolings and resizing, with operations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Conv(3, 16, 3), Conv(16, 16, 3), Conv(32, 24, 3)
        self.norm, self.group = Norm(16), nn.GroupNorm(4, 24)
        self.up = nn.ConvTranspose2d(24, 8, 2, 2)

    def forward(self, x: Tensor) -> Any:
        x = F.relu_(self.norm(self.first(x)))
        y = F.hardswish(self.second(x) + x)
        y = F.max_pool2d(torch.cat((x, y), 1), 3, 2, 1)
        y = F.interpolate(F.avg_pool2d(F.pad(self.group(self.third(y)), (1, 1, 1, 1)), 2), scale_factor=2)
        y = self.up(y)
        y += 1.0
        return y.mean((2, 3), keepdim=True), x.mean((2, 3))


class Halves(nn.Module):
    """Convolutions of halves of a convolution's result, whose gradients are joined again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right = Conv(3, 32, 3), Conv(16, 16, 3), Conv(16, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.first(x).chunk(2, 1)
        return (self.left(left) * self.right(right)).mean((2, 3))


class Kept(nn.Module):
    """Gives its activations too, and a view of one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = Conv(3, 16, 3), Norm(16), Conv(16, 16, 3)

    def forward(self, x: Tensor) -> Any:
        kept = F.relu(self.norm(self.first(x)))
        y = self.second(kept)
        return kept, y, y.mean((2, 3)), y.flatten(1)


class Again(nn.Module):
    """Blocks that the backward computes again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Conv(3, 16, 3)
        self.block = nn.Sequential(Conv(16, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), Conv(16, 16, 3))

    def forward(self, x: Tensor) -> Any:
        x = self.first(x)
        x = checkpoint(self.block, x, use_reentrant=False)
        return checkpoint(self.block, x, use_reentrant=False).mean((2, 3))


class Shared(nn.Module):
    """A computed weight that is used twice, and a normalized one, whose gradient is read as if it were contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 16, 3, 3) / 12)
        self.first = torch.nn.utils.parametrizations.weight_norm(Conv(3, 16, 3))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.tanh(self.weight)
        x = F.relu(F.conv2d(self.first(x), weight, padding=1))
        return F.conv2d(x, weight, padding=1).mean((2, 3))


MATCHES: dict[str, Callable[[], nn.Module]] = {
    "two": lambda: net(nn.ReLU(), Conv(16, 16, 3)),
    "strided": lambda: net(nn.ReLU(inplace=True), Conv(16, 32, 3, stride=2), Norm(32, affine=False)),
    "depthwise": lambda: net(nn.Hardswish(), Conv(16, 16, 3, groups=16), Norm(16), nn.ReLU6(), nn.Conv2d(16, 24, 1)),
    "dilated": lambda: net(nn.GELU(), Conv(16, 16, 3, dilation=2), nn.PReLU(), nn.MaxPool2d(2), Conv(16, 16, 5)),
    "transposed": lambda: net(nn.SiLU(), nn.ConvTranspose2d(16, 8, 2, 2), nn.LeakyReLU(), Conv(8, 8, 3)),
    "residual": Residual,
    "halves": Halves,
    "checkpoint": Again,
    "computed weights": Shared,
}


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("name", MATCHES)
def test_steps_become_channels_last(name: str) -> None:
    step = train(MATCHES[name]().train(), images().requires_grad_())
    assert step.why() == [""]
    assert set(step.layouts()) == {"l"}
    step.check()


@pytest.mark.long
@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("name", sorted({*MATCHES} - {"checkpoint"}))  # which Dynamo cannot trace so
def test_sizes_that_change(name: str) -> None:
    step = train(MATCHES[name]().train(), images().requires_grad_(), dynamic=True)
    assert step.why() == [""]
    assert set(step.layouts()) == {"l"}
    step.check()


@pytest.mark.usefixtures("wanted")
@pytest.mark.parametrize("name", ["two", "transposed", "halves"])
def test_autocast(name: str) -> None:
    step = train(MATCHES[name]().train(), images(), autocast=True)
    assert step.why() == [""]
    assert set(step.layouts()) == {"l"}
    step.check(5e-2)


@pytest.mark.usefixtures("wanted")
def test_volumes() -> None:
    model = nn.Sequential(nn.Conv3d(3, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.Conv3d(16, 8, 3))
    step = train(model, torch.randn(2, 3, 6, 8, 8).requires_grad_())
    assert step.why() == [""]
    assert set(step.layouts()) == {"l"}
    step.check()


@pytest.mark.usefixtures("wanted")
def test_what_the_caller_gets_keeps_its_strides() -> None:
    step = train(Kept().train(), images().requires_grad_())
    assert step.why() == [""]
    assert set(step.layouts()) == {"l"}
    step.check()


@pytest.mark.usefixtures("wanted")
def test_a_weight_is_copied_by_the_kernel_that_casts_it() -> None:
    """Both the convolution and its gradient read the copy; images are copied in front of the first layer only."""
    forward, backward = train(net(nn.ReLU(), Conv(16, 16, 3)), images(), autocast=True).graphs
    for gm in (forward, backward):
        read = [node.all_input_nodes for node in gm.graph.nodes if node.target in IMAGES]
        weights = [node for row in read for node in row if node.meta["val"].shape[2:] == (3, 3)]
        assert weights
        assert all(layout_of(node.meta["val"]).is_channels_last for node in weights)
    assert copied(forward) == 3  # the images and two weights


@pytest.mark.usefixtures("wanted")
def test_a_checkpoint_is_computed_again() -> None:
    """Convolutions in checkpoints stay marked for the backward: it computes as many again as without the row."""
    counts = []
    for rewrites in ("", "-train_channels_last"):
        _, backward = train(Again().train(), images().requires_grad_(), rewrites=rewrites).graphs
        counts.append(len(backward.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)))
    assert counts[0] == counts[1] > 0


def test_a_view_with_gaps_for_the_caller_keeps_all_as_it_is(wanted: None) -> None:
    class Gaps(Kept):
        def forward(self, x: Tensor) -> Any:
            kept, y, *_ = super().forward(x)
            return kept[:, :4], y.mean((2, 3))

    step = train(Gaps().train(), images())
    assert step.why() == ["no copy has the strides of slice_1"]
    assert set(step.layouts()) == {"c"}
    step.check()


NEAR_MISSES: dict[str, tuple[Callable[[], nn.Module], Tensor, str]] = {
    "small images": (lambda: nn.Sequential(Conv(256, 256, 3), Conv(256, 256, 3)), images(1, 256, 3), "would cost"),
    "grouped": (lambda: nn.Sequential(Conv(16, 16, 3, groups=4)), images(4, 16), "would cost"),
    "float64": (lambda: nn.Sequential(Conv(3, 16, 3), Conv(16, 16, 3)).double(), images().double(), "one layout only"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_others_stay(name: str) -> None:
    build, x, why = NEAR_MISSES[name]
    step = train(build(), x.requires_grad_())
    assert len(step.why()) == 1
    assert why in step.why()[0]
    assert set(step.layouts()) == {"c"}
    step.check()


def test_float32_without_short_products_stays() -> None:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        step = train(MATCHES["two"](), images(16, 3, 40))
    assert "would cost" in step.why()[0]
    assert set(step.layouts()) == {"c"}


def test_the_row_is_off_by_name() -> None:
    step = train(MATCHES["two"](), images(), rewrites="-train_channels_last")
    assert step.why() == []
    assert "a backward reads what" in step.why("channels_last")[0]
    assert set(step.layouts()) == {"c"}


def test_a_channels_last_model_stays_as_it_is() -> None:
    model = net(nn.ReLU(), Conv(16, 16, 3)).to(memory_format=torch.channels_last)
    step = train(model, images().to(memory_format=torch.channels_last))
    assert list(map(copied, step.graphs)) == [0, 0]
    step.check()


# --- a CPU


@pytest.mark.parametrize("name", sorted({*MATCHES} - {"depthwise"}))
def test_a_cpu_takes_channels_last_images(name: str) -> None:
    step = train(MATCHES[name]().train(), images(4, 3, 32), target="cpu")
    assert step.why() == [""]
    assert "l" in step.layouts()
    step.check()


def test_a_convolution_and_its_gradient_read_one_copy_of_a_weight() -> None:
    """A weight of 36 KiB is copied, the one of 2 KiB is left to the library."""
    model = nn.Sequential(Conv(3, 16, 3), nn.ReLU(), Conv(16, 64, 3), nn.AdaptiveAvgPool2d(1))
    step = train(model, images(4, 3, 32), target="cpu")
    assert set(step.layouts()) == {"l"}
    forward, backward = step.graphs
    read = [node.args[1 if gm is forward else 2] for gm in (forward, backward) for node in convolutions(gm)]
    shapes = [(node.meta["val"].shape[0], layout_of(node.meta["val"]).is_channels_last) for node in read]
    assert sorted(shapes) == [(16, False), (16, False), (64, True), (64, True)]
    assert sum(copied_weight.meta["val"].shape[:2] == (64, 16) for copied_weight in clones(forward)) == 1
    assert not any(clone.meta["val"].shape == (64, 16, 3, 3) and is_last(clone) for clone in clones(backward))
    step.check()


def convolutions(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The convolutions of a graph and their gradients."""
    return [node for node in gm.graph.nodes if node.target in IMAGES]


def clones(gm: torch.fx.GraphModule) -> list[torch.fx.Node]:
    """The copies that a graph makes."""
    return list(gm.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default))


def is_last(node: torch.fx.Node) -> bool:
    """Whether a value is channels-last."""
    return layout_of(node.meta["val"]).is_channels_last


CONTIGUOUS_ON_A_CPU: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "large weights": (lambda: Conv(256, 256, 3), images(1, 256, 7)),
    "few results": (lambda: nn.Conv2d(8, 2, 1), images(2, 8, 56)),
    "groups of few channels": (lambda: nn.Sequential(Conv(8, 16, 3), nn.GroupNorm(8, 16)), images(4, 8, 48)),
}


@pytest.mark.parametrize("name", CONTIGUOUS_ON_A_CPU)
def test_what_stays_contiguous_on_a_cpu(name: str) -> None:
    build, x = CONTIGUOUS_ON_A_CPU[name]
    step = train(nn.Sequential(build(), nn.AdaptiveAvgPool2d(1)), x.requires_grad_(), target="cpu")
    assert len(step.why()) == 1
    assert "would cost" in step.why()[0]
    assert set(step.layouts()) == {"c"}
    step.check()


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(200, 240))])
def test_random_nets(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A step with layouts chosen at random, and the same step with those of today."""
    draw = random.Random(seed)
    for name in ("layout_seconds", "gradient_seconds"):
        monkeypatch.setattr(convolution_layouts, name, lambda *_, **__: (draw.random(), draw.random()))
    model, x = random_net(seed)
    for rewrites in ("", "-train_channels_last"):
        train(model.train(), x.requires_grad_(), rewrites=rewrites).check(1e-3)


NUMBERS = Convolution(
    is_transposed=False,
    is_depthwise=False,
    groups=1,
    images=16,
    pixels=56 * 56,
    window=9,
    inputs=64,
    outputs=64,
    input_bytes=6_422_528,
    output_bytes=6_422_528,
    weight_bytes=73_728,
    macs=10**9,
)


def test_prices_of_gradients() -> None:
    facts = {"dtype": torch.float16, "is_gpu": True, "images": True, "weights": True, "is_cast": False}
    contiguous, last = gradient_seconds(NUMBERS, **facts)
    assert last < contiguous
    one, _ = gradient_seconds(NUMBERS, **{**facts, "images": False})
    assert one < contiguous  # the gradient of the images is not computed
    assert gradient_seconds(NUMBERS, **{**facts, "is_cast": True})[1] == 0
    depthwise = replace(NUMBERS, is_depthwise=True, groups=64)
    contiguous, last = gradient_seconds(depthwise, **facts)
    assert contiguous > last == 0


def test_prices_of_gradients_on_a_cpu() -> None:
    facts = {"dtype": torch.float32, "is_gpu": False, "images": True, "weights": True, "is_cast": False}
    contiguous, last = gradient_seconds(NUMBERS, **facts)
    assert 0 < last < contiguous
    one, _ = gradient_seconds(NUMBERS, **{**facts, "images": False})
    assert one < contiguous  # the gradient of the images is not computed
    large = replace(NUMBERS, weight_bytes=20_000_000)
    contiguous, last = gradient_seconds(large, **facts)
    assert last > contiguous  # the gradient of the weight is copied back
    head = replace(NUMBERS, window=1, outputs=1)
    contiguous, last = gradient_seconds(head, **facts)
    assert last > contiguous == 0
    depthwise = replace(NUMBERS, groups=64, is_depthwise=True)
    wide = replace(depthwise, window=25)
    assert gradient_seconds(wide, **facts)[0] > 2 * gradient_seconds(depthwise, **facts)[0]
    assert gradient_seconds(replace(NUMBERS, groups=4), **facts) == (0, 0)


def test_prices_of_group_norms() -> None:
    x = torch.empty(2, 64, 8, 8)
    facts = {"is_gpu": False, "is_gradient": False}
    two, eight = group_norm_seconds(x, 32, **facts), group_norm_seconds(x, 8, **facts)
    assert two > eight > group_norm_seconds(x, 4, **facts) == 0
    assert group_norm_seconds(x, 8, is_gpu=False, is_gradient=True) > eight
    assert group_norm_seconds(x, 32, is_gpu=True, is_gradient=False) == 0
