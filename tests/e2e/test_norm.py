"""Normalisations: statistics and map in one kernel, forward and backward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_plugin.oracle.compiled import Compile


def gelu_norm(x: Tensor) -> Tensor:
    return F.layer_norm(F.gelu(2 * x + 1), (x.shape[-1],))


@pytest.mark.golden(view=("kernel", "wrapper"))
@pytest.mark.counts(kernels=1, externs=0, block_accesses=4)
def test_layer_norm(compiled: Compile, device: str) -> None:
    weight, bias = torch.randn(256, device=device), torch.randn(256, device=device)
    compiled(lambda x, w, b: F.layer_norm(x, (256,), w, b), torch.randn(32, 256, device=device), weight, bias)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_layer_norm_of_gelu(compiled: Compile, device: str) -> None:
    compiled(gelu_norm, torch.randn(64, 1024, device=device))


def test_layer_norm_where_the_mean_dwarfs_the_spread(compiled: Compile, device: str) -> None:
    compiled(lambda x: F.layer_norm(x, (200,)), torch.randn(16, 200, device=device) + 1e4)


@pytest.mark.parametrize("value", [0.1, 1000.1])
def test_rows_of_one_value_have_no_spread(value: float) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return F.layer_norm(x, (65,)), F.group_norm(x, 2), x.std(-1), torch.var_mean(x, 1)[0]

    found = torch.compile(fn, backend="minductor")(torch.full((6, 4, 65), value))
    assert all(not result.any() for result in found)  # a mean that is rounded would be far off, next to such a spread


@pytest.mark.golden(view="kernel")
@pytest.mark.counts(kernels=1, externs=0)
def test_channels_are_normalised_and_become_the_last_dimension(compiled: Compile, device: str) -> None:
    """As in ConvNeXt. A CPU transposes blocks of the result, so that both sides are walked along their lines."""
    x, weight, bias = (torch.randn(size, device=device) for size in ((2, 96, 56, 56), (96,), (96,)))
    compiled(lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b), x, weight, bias)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        ((3, 70, 130), torch.float32),
        ((3, 70, 130), torch.bfloat16),
        ((1, 300, 7), torch.float16),
        ((2, 65, 64), torch.float64),
        *(
            pytest.param(size, dtype, marks=pytest.mark.long)
            for size, dtypes in (
                ((3, 70, 130), (torch.float16, torch.float64)),
                ((1, 300, 7), (torch.float32, torch.bfloat16, torch.float64)),
                ((2, 65, 64), (torch.float32, torch.bfloat16, torch.float16)),
            )
            for dtype in dtypes
        ),
    ],
)
@pytest.mark.counts(externs=0)
def test_reductions_beside_transposes(
    compiled: Compile, device: str, size: tuple[int, ...], dtype: torch.dtype
) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        turned = x.transpose(1, 2)
        total = (turned * y).sum(-1), (turned + y).amax(1)
        return *total, turned.softmax(-1).contiguous(), x.sum(2), turned.contiguous(), y - x.mean(1, keepdim=True).mT

    batch, rows, columns = size
    x, y = torch.randn(size, device=device, dtype=dtype), torch.randn(batch, columns, rows, device=device, dtype=dtype)
    compiled(fn, x, y)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_rms_norm(compiled: Compile, device: str) -> None:
    def rms_norm(x: Tensor, w: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * w

    compiled(rms_norm, torch.randn(32, 256, device=device), torch.randn(256, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.counts(externs=0)
def test_layer_norm_training(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    module = nn.LayerNorm(96).to(device, dtype)
    compiled(module, torch.randn(40, 96, device=device, dtype=dtype).requires_grad_())


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.InstanceNorm2d])
@pytest.mark.counts(externs=0)
def test_statistics_of_16_bits_are_as_precise_as_the_parameters(
    compiled: Compile, device: str, norm: Callable[..., nn.Module]
) -> None:
    x = torch.randn(4, 8, 9, 9, device=device) + 1
    compiled(norm(8, affine=True).to(device), x.bfloat16().requires_grad_())


@pytest.mark.counts(externs=0)
def test_gelu_norm_training(compiled: Compile, device: str) -> None:
    compiled(gelu_norm, torch.randn(64, 128, device=device), grad=True)


@pytest.mark.counts(externs=0)
def test_group_norm_training(compiled: Compile, device: str) -> None:
    compiled(nn.GroupNorm(4, 16).to(device), torch.randn(2, 16, 6, 7, device=device).requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("size", "groups"), [((2, 24, 6, 7), 4), ((3, 64, 5, 5), 32), ((2, 70, 8, 3), 1)])
@pytest.mark.counts(externs=0)
def test_group_norm_of_channels_that_lie_innermost_and_that_the_call_counts(
    compiled: Compile, device: str, size: tuple[int, ...], groups: int, dtype: torch.dtype
) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x, groups, w, b)  # in eager, GPUs copy such images first

    w, b = torch.rand(2, size[1], device=device, dtype=dtype) + 0.5
    x = (torch.randn(size, device=device, dtype=dtype) + 0.5).to(memory_format=torch.channels_last)
    run = compiled(fn, x, w, b, dynamic=True, grad=False)
    texts = [kernel.text for graph in run.graphs for kernel in graph.kernels]
    by_channel = [text for text in texts if "md_groups<8>(" in text]  # sums of columns: the values, then distances
    assert compiled.device.kind != "cpu" or len(by_channel) == (0 if dtype == torch.float64 else 2)


@pytest.mark.parametrize("shape", [(16, 10), (4, 10, 6, 5)])
@pytest.mark.counts(externs=0)
def test_batch_norm_training_moves_its_buffers(compiled: Compile, device: str, shape: tuple[int, ...]) -> None:
    module = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(10).to(device)
    run = compiled(module, torch.randn(shape, device=device).requires_grad_())
    run.again(torch.randn(shape, device=device).requires_grad_())


@pytest.mark.parametrize("shape", [(2, 16, 2, 2), (4, 64, 2, 2), (2, 8, 3, 3)])
def test_batch_norm_before_the_mean_of_a_small_map(compiled: Compile, device: str, shape: tuple[int, ...]) -> None:
    module = nn.Sequential(nn.BatchNorm2d(shape[1]), nn.AdaptiveAvgPool2d(1)).to(device)
    compiled(module, torch.randn(shape, device=device).requires_grad_())  # sums, over the map, what does not vary there


@pytest.mark.counts(kernels=1, externs=0)
def test_batch_norm_evaluation(compiled: Compile, device: str) -> None:
    compiled(nn.BatchNorm2d(10).to(device).eval(), torch.randn(4, 10, 6, 5, device=device))


@pytest.mark.counts(kernels=1, externs=0)
def test_residual_before_the_norm_is_kept(compiled: Compile, device: str) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        total = x + y
        return total, F.layer_norm(total, (64,))

    compiled(fn, torch.randn(8, 64, device=device), torch.randn(8, 64, device=device))
