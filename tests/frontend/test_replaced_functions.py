"""Functions that torch traces otherwise than eager runs them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from minductor.driver import Compiler
from tests.frontend.tracing import randn

# shapes, layouts and whether sizes vary, in `make test`
SAMPLE = (
    ((2, 3, 5, 7), torch.contiguous_format, False),
    ((1, 1, 9, 4), torch.channels_last, False),
    ((2, 8, 6, 6), torch.channels_last, False),
    ((2, 3, 5, 7), torch.channels_last, True),
)


def test_dropout_that_does_nothing_gives_its_argument() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        same = F.dropout(x.t(), training=False)
        torch.dropout(x, 0.0, train=True).mul_(2)
        return same, same + 1

    x = randn(3, 4)
    expected = 2 * x.t()
    same, more = torch.compile(fn, backend=Compiler())(x)
    assert same.data_ptr() == x.data_ptr()
    assert torch.equal(same, expected)
    assert torch.equal(more, expected + 1)


def test_a_branch_gives_none_of_its_arguments() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: F.dropout(x, training=False), torch.sin, [x])

    x = torch.ones(3)
    assert torch.equal(torch.compile(fn, backend=Compiler())(x), x)


def test_dropout_in_training_drops() -> None:
    assert (torch.compile(lambda x: F.dropout(x, 0.5), backend=Compiler())(torch.ones(99)) == 0).any()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_encoder_layer_under_autocast(norm_first: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=norm_first).eval()
    x = randn(2, 5, 16, dtype=dtype)
    with torch.no_grad():
        truth = layer(x.float())
        with torch.autocast("cpu", torch.bfloat16):
            expected, found = layer(x), torch.compile(layer, backend=Compiler())(x)
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    assert (found - truth).abs().max() <= 2 * (expected - truth).abs().max()


def test_a_soft_margin_loss_has_the_input_s_dtype() -> None:
    x, target = randn(3, 4).requires_grad_(), randn(3, 4, seed=1, dtype=torch.float64)
    expected, found = F.soft_margin_loss(x, target), torch.compile(F.soft_margin_loss, backend=Compiler())(x, target)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x) for loss in (found, expected)))
    with pytest.raises(RuntimeError):
        torch.compile(F.soft_margin_loss, backend=Compiler())(x[:1], target)


@pytest.mark.parametrize(
    ("shape", "memory_format", "dynamic"),
    [
        pytest.param(shape, layout, dynamic, marks=() if (shape, layout, dynamic) in SAMPLE else pytest.mark.long)
        for dynamic in (False, True)
        for shape in ((2, 3, 5, 7), (1, 1, 9, 4), (2, 8, 6, 6))
        for layout in (torch.contiguous_format, torch.channels_last)
    ],
    ids=str,
)
def test_bytes_are_rounded_as_eager_does(
    shape: tuple[int, ...], memory_format: torch.memory_format, dynamic: bool
) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, scale_factor=(0.7, 1.9), mode="bilinear"),
            F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
            F.interpolate(x, (4, 20), mode="bilinear", align_corners=True),
            F.interpolate(x, 9, mode="bilinear", antialias=True),
            F.interpolate(x, scale_factor=1.7, mode="bicubic"),
            F.interpolate(x, scale_factor=1.7),
        )

    x = torch.randint(256, shape, dtype=torch.uint8).contiguous(memory_format=memory_format)
    torch._dynamo.reset()
    for found, expected in zip(torch.compile(fn, backend=Compiler(), dynamic=dynamic)(x), fn(x), strict=True):
        assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("args", [(None, None, "none"), (None, None, "mean"), (False,)])
def test_labels_behind_the_end_are_no_labels(args: tuple[object, ...]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.multilabel_margin_loss(x, torch.tensor([[2, 2, -1, 1], [3, 1, 0, 2], [-1, 0, 1, 1]]), *args)

    x = randn(3, 4).requires_grad_()
    expected, found = fn(x), torch.compile(fn, backend=Compiler())(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), x) for loss in (found, expected)))


@pytest.mark.parametrize(("x", "target"), [(torch.ones(5), 2), (torch.ones(5), [2]), (torch.eye(3, 5), [0, 4, 2])])
def test_a_gap_that_is_closed_has_no_gradient(x: torch.Tensor, target: object) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        weight = torch.arange(1.0, 6.0)
        return F.multi_margin_loss(x, torch.tensor(target), margin=0.0, weight=weight, reduction="none")

    x = x.clone().requires_grad_()
    expected, found = fn(x), torch.compile(fn, backend=Compiler())(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), x) for loss in (found, expected)))


def test_margin_losses_are_float32_under_autocast() -> None:
    def fn(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            labels = torch.tensor([[2, -1, 1], [0, 1, 2]])
            losses = F.multi_margin_loss(x, labels[:, 2]), F.multilabel_margin_loss(x, labels)
            return *losses, F.soft_margin_loss(x, target)

    x, target = randn(2, 3, dtype=torch.bfloat16), randn(2, 3, seed=1)
    torch.testing.assert_close(torch.compile(fn, backend=Compiler())(x, target), fn(x, target))


@pytest.mark.parametrize(
    ("size", "pad"), [((8, 9), (2, 1, 3, 0)), ((8, 9), (1, 1, 8, 8)), ((3, 4, 5), (5, 0, 0, 1, 2, 2))]
)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.preserve_format])
def test_circular_padding_of_sizes_that_vary_is_concatenated(
    size: tuple[int, ...], pad: tuple[int, ...], layout: torch.memory_format
) -> None:
    """The writes that torch traces were masked, and each read the one before."""
    seen: list[str] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, pad, mode="circular")

    x = randn(2, 3, *size)
    x = (x if layout == torch.contiguous_format else x.transpose(1, -1).contiguous().transpose(1, -1)).requires_grad_()
    compiler = Compiler(graph_pass=lambda gm: seen.extend(str(node.target) for node in gm.graph.nodes))
    expected, found = fn(x), torch.compile(fn, backend=compiler, dynamic=True)(x)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()
    assert "aten.cat.default" in seen
    assert "aten.slice_scatter.default" not in seen
    weights = randn(*expected.shape)
    (want,), (got,) = (torch.autograd.grad(each, x, weights) for each in (expected, found))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("pad", [(-1, 2, 1, 1), (1, 1)])
def test_circular_padding_that_crops_or_has_fewer_sides(pad: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, pad, mode="circular")

    x = randn(*((2, 3, 8, 9) if len(pad) > 2 else (3, 8, 9)))
    assert torch.equal(torch.compile(fn, backend=Compiler(), dynamic=True)(x), fn(x))
