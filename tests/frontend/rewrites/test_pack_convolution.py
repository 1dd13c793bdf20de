"""Which convolutions of a frozen graph are packed, which activations become a part of them, and why others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.convolution_rewrites import check, rewrite

PACKED = ("mkldnn._convolution_pointwise", "mkldnn._convolution_transpose_pointwise")


def images(batch: int = 2, channels: int = 3, side: int = 24) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(batch, channels, side, side)


def last_images() -> Tensor:
    return images().contiguous(memory_format=torch.channels_last)


def net(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*layers).eval()


MATCHES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "3x3": (lambda: net(nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 20, 3, 2, 1, dilation=2)), images()),
    "no bias": (lambda: net(nn.Conv2d(3, 16, 3, bias=False)), images()),
    "depthwise": (lambda: net(nn.Conv2d(8, 16, 3, groups=8)), images(2, 8)),
    "grouped": (lambda: net(nn.Conv2d(8, 16, (3, 1), groups=2, padding="same")), images(2, 8)),
    "transposed": (lambda: net(nn.ConvTranspose2d(8, 12, 3, 2, 1, output_padding=1, groups=2)), images(2, 8)),
    "volumes": (lambda: net(nn.Conv3d(3, 8, 3)), torch.randn(2, 3, 6, 7, 8)),
    "transposed volumes": (lambda: net(nn.ConvTranspose3d(3, 8, 2, 2)), torch.randn(2, 3, 6, 7, 8)),
    "one pixel": (lambda: net(nn.Conv2d(64, 128, 1), nn.Flatten()), images(1, 64, 1)),
    "odd channels": (lambda: net(nn.Conv2d(5, 37, 3), nn.Conv2d(37, 7, 1)), images(2, 5)),
}


@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_frozen_weights_are_packed(name: str, dynamic: bool | None) -> None:
    build, x = MATCHES[name]
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    found = rewrite(build(), x.contiguous(memory_format=last), freeze=True, dynamic=dynamic)
    assert set(found.why("pack_convolution")) == {""}
    assert "aten.convolution" not in found.names()
    assert "clone" not in " ".join(found.names())
    check(found)


def test_nothing_is_packed_at_each_call() -> None:
    found = rewrite(MATCHES["3x3"][0](), images(), freeze=True)
    assert "reorder" not in " ".join(found.names())
    assert found.frozen_bytes == 4 * (3 * 16 * 9 + 16 * 20 * 9)


def test_a_weight_that_the_caller_gives_is_not_packed() -> None:
    found = rewrite(lambda x, w: F.conv2d(x, w), last_images(), torch.randn(8, 3, 3, 3), freeze=True)
    (why,) = found.why("pack_convolution")
    assert why.endswith("is not a frozen weight")
    check(found)


NEAR_MISSES: dict[str, tuple[Callable[[], nn.Module], Tensor, dict[str, Any], str]] = {
    "contiguous images": (lambda: net(nn.Conv2d(3, 16, 3)), images(), {"rewrites": "-channels_last"}, "contiguous"),
    "float64": (
        lambda: net(nn.Conv2d(3, 16, 3)).double(),
        last_images().double(),
        {},
        "no weights in torch.float64",
    ),
    "few results": (
        lambda: net(nn.Conv2d(16, 2, 1)),
        images(2, 16).contiguous(memory_format=torch.channels_last),
        {"rewrites": "-channels_last"},
        "2 results of 1x1 windows",
    ),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_others_are_not_packed(name: str) -> None:
    build, x, options, why = NEAR_MISSES[name]
    found = rewrite(build(), x, freeze=True, **options)
    assert [why in each for each in found.why("pack_convolution")] == [True]
    assert not set(PACKED) & set(found.names())
    check(found)


def test_rows_are_not_mentioned() -> None:
    found = rewrite(net(nn.Conv1d(3, 16, 3)), torch.randn(2, 3, 50), freeze=True)
    assert found.notes == []


def test_a_graph_that_is_not_frozen_packs_nothing() -> None:
    assert not set(PACKED) & set(rewrite(MATCHES["3x3"][0](), images()).names())


ACTIVATIONS: dict[str, tuple[Callable[[], nn.Module], str, str]] = {
    "hardswish": (nn.Hardswish, "post_ops", "hardswish"),
    "leaky_relu": (lambda: nn.LeakyReLU(0.2), "post_ops", "leaky_relu"),
    "leaky_relu of the usual slope": (nn.LeakyReLU, "post_ops", "leaky_relu"),
    "relu": (nn.ReLU, "clamping_post_ops", "relu"),
    "relu6": (nn.ReLU6, "clamping_post_ops", "hardtanh"),
    "hardtanh": (lambda: nn.Hardtanh(-0.5, 0.25), "clamping_post_ops", "hardtanh"),
    "hardtanh of the usual bounds": (nn.Hardtanh, "clamping_post_ops", "hardtanh"),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("transposed", [False, True])
def test_activations_become_parts_of_packed_convolutions(name: str, transposed: bool) -> None:
    build, row, attr = ACTIVATIONS[name]
    layer = nn.ConvTranspose2d(3, 16, 2, 2) if transposed else nn.Conv2d(3, 16, 3)
    found = rewrite(net(layer, build()), last_images(), freeze=True, rewrites="+clamping_post_ops")
    assert found.why(row) == [""]
    assert found.gm is not None
    calls = [node for node in found.gm.graph.nodes if "pointwise" in str(node.target)]
    assert [attr in node.args for node in calls] == [True]
    assert f"aten.{attr}" not in found.names()
    check(found)


@pytest.mark.parametrize("name", ["relu", "relu6"])
def test_activations_that_lose_nan_are_left_alone(name: str) -> None:
    model = net(nn.Conv2d(3, 16, 3), ACTIVATIONS[name][0]())
    with torch.no_grad():
        model[0].bias[3] = float("nan")
    found = rewrite(model, last_images(), freeze=True)
    assert found.why("clamping_post_ops") == []
    assert found.results[0][:, 3].isnan().all()
    check(found)


@pytest.mark.parametrize("name", ["hardswish", "leaky_relu"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_activations_keep_what_is_not_finite(name: str, value: float) -> None:
    model = net(nn.Conv2d(3, 16, 3), ACTIVATIONS[name][0]())
    with torch.no_grad():
        model[0].bias[3] = value
    found = rewrite(model, last_images(), freeze=True)
    assert found.why("post_ops") == [""]
    check(found)


class ReadTwice(nn.Module):
    """A convolution whose result two nodes read."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return F.hardswish(y) + y


def test_a_result_that_another_node_reads_stays() -> None:
    found = rewrite(ReadTwice().eval(), last_images(), freeze=True)
    (why,) = found.why("post_ops")
    assert "reads" in why
    check(found)


def test_other_activations_stay_kernels() -> None:
    found = rewrite(net(nn.Conv2d(3, 16, 3), nn.GELU(), nn.Conv2d(16, 16, 3), nn.SiLU()), last_images(), freeze=True)
    assert found.why("post_ops") == []
    assert {"aten.gelu", "aten.silu"} <= set(found.names())
    check(found)


def randomized(norm: Any) -> Any:
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        if norm.affine:
            norm.weight.uniform_(0.5, 2.0)
            norm.bias.normal_()
    return norm.eval()


NORMED: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "bias": (lambda: net(nn.Conv2d(3, 16, 3), randomized(nn.BatchNorm2d(16))), images()),
    "no bias": (lambda: net(nn.Conv2d(3, 16, 3, bias=False), randomized(nn.BatchNorm2d(16))), images()),
    "not affine": (lambda: net(nn.Conv2d(3, 16, 3), randomized(nn.BatchNorm2d(16, affine=False))), images()),
    "depthwise": (lambda: net(nn.Conv2d(4, 8, 3, groups=4), randomized(nn.BatchNorm2d(8))), images(2, 4)),
    "grouped": (lambda: net(nn.Conv2d(4, 8, 3, groups=2), randomized(nn.BatchNorm2d(8))), images(2, 4)),
    "transposed": (lambda: net(nn.ConvTranspose2d(3, 8, 2, 2), randomized(nn.BatchNorm2d(8))), images()),
    "rows": (lambda: net(nn.Conv1d(3, 8, 3), randomized(nn.BatchNorm1d(8))), torch.randn(2, 3, 50)),
    "volumes": (lambda: net(nn.Conv3d(3, 8, 3), randomized(nn.BatchNorm3d(8))), torch.randn(2, 3, 6, 7, 8)),
    "linear": (lambda: net(nn.Linear(12, 24), randomized(nn.BatchNorm1d(24))), torch.randn(5, 12)),
    "linear without bias": (
        lambda: net(nn.Linear(12, 24, bias=False), randomized(nn.BatchNorm1d(24, eps=0.1))),
        torch.randn(5, 12),
    ),
}


@pytest.mark.parametrize("name", NORMED)
def test_norms_are_folded(name: str) -> None:
    build, x = NORMED[name]
    found = rewrite(build(), x, freeze=True)
    assert found.why("fold_batch_norm") == [""]
    assert "norm" not in " ".join(found.names())
    check(found)


KEPT: dict[str, tuple[Callable[[], nn.Module], Tensor, list[str]]] = {
    "norm in front": (lambda: net(randomized(nn.BatchNorm2d(3)), nn.Conv2d(3, 16, 3)), images(), []),
    "relu between": (lambda: net(nn.Conv2d(3, 16, 3), nn.ReLU(), randomized(nn.BatchNorm2d(16))), images(), []),
    "transposed with groups": (
        lambda: net(nn.ConvTranspose2d(4, 8, 2, 2, groups=2), randomized(nn.BatchNorm2d(8))),
        images(2, 4),
        ["the weights of a transposed convolution with groups hold channels on two axes"],
    ),
    "tokens": (lambda: net(nn.Linear(12, 24), randomized(nn.BatchNorm1d(6))), torch.randn(5, 6, 12), []),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_norms_stay(name: str) -> None:
    build, x, whys = KEPT[name]
    found = rewrite(build(), x, freeze=True)
    assert found.why("fold_batch_norm") == whys
    assert "aten._native_batch_norm_legit_no_training" in found.names()
    check(found)


@pytest.mark.parametrize("name", ["bias", "linear"])
def test_norms_in_autocast_are_folded_in_float32(name: str) -> None:
    build, x = NORMED[name]
    model = build()

    def autocast(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    found = rewrite(autocast, x, freeze=True, rewrites="-widen_products")
    assert found.why("fold_batch_norm") == [""]
    wanted = model.double()(x.double())
    ours, eagers = ((each[0].double() - wanted).abs().max() for each in (found.results, found.wanted))
    assert found.results[0].dtype is torch.bfloat16
    assert ours <= 2 * eagers
