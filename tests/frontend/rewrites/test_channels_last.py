"""Which convolutions get channels-last images, which stay as they are, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minductor.frontend.rewrites.add_phases import add_phases
from minductor.frontend.rewrites.convolution_seconds import STAND_IN, Convolution, layout_seconds, number
from tests.convolution_rewrites import check, rewrite

Conv = partial(nn.Conv2d, padding=1)
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def chain(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).eval()


def classifier(*layers: nn.Module) -> nn.Module:
    """Layers that begin with few channels, and end with the mean of each channel: a chain that pays."""
    return chain(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def images(batch: int = 2, channels: int = 3, side: int = 40) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(batch, channels, side, side)


class Residual(nn.Module):
    """Convolutions around a sum, a concatenation, a pooling and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = Conv(3, 16, 3), Conv(16, 16, 3), Conv(32, 24, 3)
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Any:
        x = F.relu(self.norm(self.first(x)))
        y = F.hardswish(self.second(x) + x)
        y = F.max_pool2d(torch.cat((x, y), 1), 3, 2, 1)
        y = F.interpolate(F.avg_pool2d(F.pad(self.third(y), (1, 1, 1, 1)), 2), scale_factor=2)
        return y.mean((2, 3), keepdim=True), x.mean((2, 3))


MATCHES: dict[str, Callable[[], nn.Module]] = {
    "two": lambda: classifier(Conv(16, 16, 3)),
    "in a row": lambda: classifier(Conv(16, 16, 3), Conv(16, 16, 1), Conv(16, 16, 3)),
    "strided": lambda: classifier(Conv(16, 32, 3, stride=2)),
    "depthwise": lambda: classifier(Conv(16, 16, 3, groups=16), nn.Hardswish(), Conv(16, 16, 3, groups=16)),
    "depthwise5": lambda: classifier(nn.Conv2d(16, 16, 5, padding=2, groups=16), nn.SiLU(), Conv(16, 16, 3)),
    "grouped": lambda: classifier(Conv(16, 16, 3, groups=2), nn.PReLU(), Conv(16, 16, 3, groups=4, dilation=2)),
    "transposed": lambda: classifier(Conv(16, 16, 3), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2)),
    "residual": Residual,
}


@pytest.mark.parametrize("name", MATCHES)
@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.long)])
def test_chains_become_channels_last(name: str, freeze: bool, dynamic: bool | None) -> None:
    torch.manual_seed(0)
    found = rewrite(MATCHES[name]().eval(), images(), freeze=freeze, dynamic=dynamic)
    assert found.why("channels_last") == [""]
    assert set(found.layouts()) == {"l"}
    check(found)


def test_a_chain_has_one_copy_at_each_end() -> None:
    found = rewrite(chain(Conv(3, 16, 3), nn.ReLU(), Conv(16, 16, 3), nn.ReLU(), Conv(16, 3, 3)), images())
    assert found.layouts() == "lll"
    assert found.names().count("aten.clone") == 2
    assert found.results[0].is_contiguous()
    check(found)


NEAR_MISSES: dict[str, tuple[Callable[[], nn.Module], Tensor, str]] = {
    "weights larger than images": (lambda: chain(Conv(256, 256, 3)), images(1, 256, 7), "would cost"),
    "large depthwise windows": (
        lambda: chain(nn.Conv2d(32, 32, 7, padding=3, groups=32)),
        images(1, 32, 56),
        "would cost",
    ),
    "few results": (lambda: chain(nn.Conv2d(32, 1, 1)), images(1, 32, 128), "would cost"),
    "float64": (lambda: chain(Conv(3, 16, 3)).double(), images().double(), "one layout only"),
    "16 bits": (lambda: chain(Conv(3, 16, 3)).bfloat16(), images().bfloat16(), "one layout only"),
    "a reader wants rows": (lambda: chain(nn.Conv2d(2, 64, 1), nn.Flatten(2)), images(1, 2, 64), "would cost"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_others_stay(name: str) -> None:
    build, x, why = NEAR_MISSES[name]
    found = rewrite(build(), x, rewrites="-widen_products")
    assert len(found.why("channels_last")) == 1
    assert why in found.why("channels_last")[0]
    assert set(found.layouts()) == {"c"}
    check(found, 2e-2 if x.dtype is torch.bfloat16 else 1e-5)


def test_layouts_are_chosen_for_each_convolution() -> None:
    wide = chain(Conv(3, 32, 3), nn.ReLU(), nn.MaxPool2d(8), nn.Conv2d(32, 512, 3), nn.ReLU(), nn.Conv2d(512, 512, 3))
    found = rewrite(wide, images(1, 3, 56))
    assert found.layouts() == "lcc"
    check(found)
    assert rewrite(wide, images(1, 3, 56), freeze=True).layouts() == "lll"


def test_a_channels_last_model_stays_as_it_is() -> None:
    model = chain(Conv(3, 16, 3), nn.ReLU(), Conv(16, 8, 3)).to(memory_format=torch.channels_last)
    found = rewrite(model, images().to(memory_format=torch.channels_last))
    assert "aten.clone" not in found.names()
    assert found.results[0].is_contiguous(memory_format=torch.channels_last)
    check(found)


def test_the_first_convolution_may_have_no_choice() -> None:
    """Its weight is channels-last. Those of the others, which read one channel at a time, count as both."""
    torch.manual_seed(0)
    volume, last = partial(nn.Conv3d, kernel_size=5, padding=1), torch.channels_last_3d
    net = chain(volume(8, 1), nn.Hardswish(), volume(1, 2), volume(2, 2, groups=2)).to(memory_format=last)
    found = rewrite(net, torch.randn(2, 8, 8, 8, 8).contiguous(memory_format=last))
    assert found.why("channels_last") == [""] and found.layouts() == "llc"
    check(found)


def test_what_a_backward_reads_stays() -> None:
    found = rewrite(MATCHES["two"](), images().requires_grad_(), grad=True)
    assert found.why("channels_last") == ["a backward reads what convolution reads"]
    assert "aten.clone" not in found.names()


class Cell(nn.Module):
    """Two steps of a convolutional LSTM, whose gates are parts of one convolution's result."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = Conv(32, 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        state, cell = x, x
        for _ in range(2):
            i, f, o, g = self.gates(torch.cat((x, state), 1)).chunk(4, 1)
            cell = cell * f.sigmoid() + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
        return state.mean((2, 3))


class Resized(nn.Module):
    """A convolution reads images that were resized linearly, beside others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Conv(16, 16, 3), Conv(32, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = add_phases(F.max_pool2d(x, 2), (2, 2))
        return self.second(torch.cat((x, y), 1)).mean((2, 3))


def test_parts_of_a_result_follow() -> None:
    torch.manual_seed(0)
    found = rewrite(Cell().eval(), images(2, 16, 32))
    assert found.layouts() == "ll"
    check(found)


def test_resized_images_follow() -> None:
    torch.manual_seed(0)
    found = rewrite(Resized().eval(), images(2, 16, 32))
    assert found.layouts() == "ll"
    check(found)
    joined = [node.meta["val"] for node in found.gm.graph.nodes if node.target is torch.ops.aten.cat.default]
    assert [each.is_contiguous(memory_format=LAST[each.dim()]) for each in joined] == [True] * 3


def test_a_half_of_a_result_is_read_by_another_convolution() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Conv(3, 32, 3), Conv(16, 16, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return (self.second(x[:, :16]) + self.second(x[:, 16:])).mean((2, 3))

    found = rewrite(Halves().eval(), images(2, 3, 96))
    assert found.why("channels_last") == [""]
    check(found)


def test_volumes() -> None:
    model = chain(nn.Conv3d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 8, 3), nn.AdaptiveAvgPool3d(1))
    found = rewrite(model, torch.randn(2, 3, 8, 20, 20))
    assert found.layouts() == "ll"
    check(found)


def test_the_row_is_off_by_name() -> None:
    found = rewrite(MATCHES["two"](), images(), rewrites="-channels_last")
    assert found.notes == []
    assert found.layouts() == "cc"


def test_a_permuted_reader_wants_channels_last() -> None:
    class Norm(nn.LayerNorm):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    found = rewrite(chain(nn.Conv2d(3, 64, 4, 4), Norm(64)), images(2, 3, 64))
    assert found.layouts() == "l"
    check(found)


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


def test_matrix_units_want_channels_last() -> None:
    facts = {"is_gpu": True, "is_packed": False, "is_frozen": False}
    contiguous, last = layout_seconds(NUMBERS, dtype=torch.float16, **facts)
    assert last < contiguous
    small = replace(NUMBERS, images=1, input_bytes=401_408, output_bytes=401_408)
    contiguous, last = layout_seconds(small, dtype=torch.float16, **facts)
    assert contiguous < last  # the copy of the weight costs the host more than the images save
    contiguous, last = layout_seconds(small, dtype=torch.float16, **{**facts, "is_frozen": True})
    assert last < contiguous


@pytest.mark.parametrize("fp32", [False, True])
def test_gpu_graphs_follow_the_flag_of_short_products(fp32: bool) -> None:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=fp32):
        found = rewrite(MATCHES["residual"]().eval(), images(16, 3, 56), target="sm_90")
    assert set(found.layouts()) == ({"l"} if fp32 else {"c"})
    check(found)


def test_a_size_is_a_number_for_all_values_of_its_symbols() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    n = ShapeEnv().create_unbacked_symint()
    assert (number(7), number(n), number(2 * n + 1)) == (7, STAND_IN, 2 * STAND_IN + 1)
    assert (number(n // 98), number(n // (n // 98)), number(5 * n // (n - STAND_IN))) == (STAND_IN,) * 3
