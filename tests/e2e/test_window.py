"""Windows, resizing and padding as kernels: one each, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_plugin.devices.device_choice import Device
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run


def assert_counts(run: Run, device: Device, *, cpu: tuple[int, int], gpu: tuple[int, int]) -> None:
    """The kernels and the library calls of all graphs, where a CPU has others than a GPU."""
    assert (run.report.kernels, run.report.externs) == (cpu if device.id == "cpu" else gpu)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_relu_of_max_pool(compiled: Compile, device: Device) -> None:
    compiled(lambda x: F.relu(F.max_pool2d(x, 3, 2, 1)), torch.randn(2, 4, 14, 14, device=device))


@pytest.mark.golden
def test_avg_pool(compiled: Compile, device: Device) -> None:
    """A CPU adds nine taps in two kernels, one for each dimension."""
    run = compiled(lambda x: F.avg_pool2d(x, 3, 1, 1), torch.randn(2, 4, 14, 14, device=device))
    assert_counts(run, device, cpu=(2, 0), gpu=(1, 0))


def test_sums_begin_at_0_and_bounds_leave_zeros_their_signs() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        ones = x.sum(0, keepdim=True), x[0, 0, 0, 0].mean(), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 3)
        return *ones, F.fold(F.unfold(x, 2), (8, 8), 2), x.clamp(0, 1), x.clamp(max=-0.0), F.relu6(-x), x.clamp_min(0)

    x = torch.full((1, 2, 8, 8), -0.0)
    for found, expected in zip(torch.compile(fn, backend="minductor")(x), fn(x), strict=True):
        assert torch.equal(found.signbit(), expected.signbit())


def test_max_pool_training(compiled: Compile, device: Device) -> None:
    """One kernel each way: values and places together, then a gather. A CPU has one a dimension, and calls ATen."""
    run = compiled(lambda x: F.max_pool2d(x, 3, 2, 1), torch.randn(2, 4, 14, 13, device=device), grad=True)
    assert_counts(run, device, cpu=(2, 1), gpu=(2, 0))


def test_avg_pool_training(compiled: Compile, device: Device) -> None:
    run = compiled(
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        torch.randn(2, 4, 14, 13, device=device),
        grad=True,
    )
    assert_counts(run, device, cpu=(3, 0), gpu=(2, 0))


@pytest.mark.counts(externs=0)
def test_large_windows_are_loops(compiled: Compile, device: Device) -> None:
    x = torch.randn(2, 3, 17, 19, device=device)
    compiled(lambda x: (F.max_pool2d(x, 9, 1, 4), F.avg_pool2d(x, (7, 11), 2, (3, 5))), x)
    compiled(lambda x: F.avg_pool2d(x, (7, 11), 2, (3, 5)), x, grad=True)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (20, 7)])
def test_adaptive_pools(compiled: Compile, device: Device, size: tuple[int, int]) -> None:
    """A CPU calls ATen for the gradient of long windows of unequal sizes."""
    run = compiled(lambda x: F.adaptive_avg_pool2d(x, size), torch.randn(2, 3, 11, 13, device=device), grad=True)
    assert_counts(run, device, cpu={(1, 1): (2, 0), (3, 5): (1, 1), (20, 7): (2, 0)}[size], gpu=(2, 0))


def test_sizes_that_vary(compiled: Compile, device: Device) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return F.max_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, (2, 3)), F.pad(x, (1, 2, 2, 1), "reflect")

    run = compiled(fn, torch.randn(2, 3, 11, 13, device=device), dynamic=True)
    run.again(torch.randn(3, 3, 8, 21, device=device))
    assert run.report.externs == 0


@pytest.mark.parametrize("window", [(3, 1, 1), (3, 2, 1), (5, 1, 2), (4, 1, 2)])
def test_windows_that_are_longer_than_the_image(compiled: Compile, window: tuple[int, int, int]) -> None:
    """The cuts of a loop at both edges lie in another order; what is added to a tensor in place is added once."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        size, stride, padding = window
        pooled = F.max_pool2d(x, size, stride, padding)
        return y[..., : pooled.shape[-2], : pooled.shape[-1]].add_(pooled)

    run = compiled(fn, torch.randn(2, 3, 11, 13), torch.randn(2, 3, 12, 14), dynamic=True, grad=False)
    for rows, columns in ((3, 4), (4, 3), (6, 40), (3, 3), (2, 3)):
        run.again(torch.randn(2, 3, rows, columns), torch.randn(2, 3, rows + 1, columns + 1))
    texts = [kernel.text for graph in run.graphs for kernel in graph.kernels]
    assert window != (5, 1, 2) or compiled.device.kind != "cpu" or any("= md_index_max(2, s" in text for text in texts)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.counts(kernels=2, externs=0)
def test_padding(compiled: Compile, device: Device, mode: str) -> None:
    compiled(lambda x: F.pad(x, (2, 1, 3, 2), mode), torch.randn(2, 3, 9, 10, device=device), grad=True)


@pytest.mark.counts(kernels=2, externs=0)
def test_columns(compiled: Compile, device: Device) -> None:
    compiled(lambda x: F.unfold(x, 3, padding=1, stride=2), torch.randn(2, 3, 9, 10, device=device), grad=True)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(compiled: Compile, device: Device, mode: str) -> None:
    x, grid = torch.randn(2, 3, 9, 10, device=device), torch.rand(2, 5, 7, 2, device=device) * 2.4 - 1.2
    run = compiled(lambda x, g: F.grid_sample(x, g, mode, "reflection", align_corners=False), x, grid)
    assert_counts(run, device, cpu=(0, 1), gpu=(1, 0))


@pytest.mark.counts(kernels=1, externs=0)
def test_block_of_a_network(compiled: Compile, device: Device) -> None:
    """What follows a pool is computed with it, and the mean of all places closes it."""
    pool = nn.MaxPool2d(2)
    compiled(lambda x: F.silu(pool(x)) * 2, torch.randn(2, 4, 12, 12, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_padded_pairs_that_are_swapped(compiled: Compile, dtype: torch.dtype, device: Device) -> None:
    """Two loads side by side under one mask, stored the other way round."""

    def swapped(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 1, 1))
        return torch.stack((padded[:, 1], padded[:, 0]), -1)

    compiled(swapped, torch.arange(96, device=device).to(dtype).view(48, 2))
