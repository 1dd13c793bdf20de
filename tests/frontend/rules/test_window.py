"""Pooling, unfold and fold against eager, forward and backward, without extern calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from minductor.analysis.domain import is_bent
from minductor.frontend.capture.schemas import REASONS
from minductor.ir.program.nodes import Load, Masked, Reduce
from tests.frontend.tracing import CPU, GPU, compiled, grads, integers, lowered, randn

IMAGE, LINE, SOLID = randn(2, 3, 9, 7), randn(2, 3, 11), randn(2, 2, 5, 6, 7)

POOLS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "max1d": (lambda x: F.max_pool1d(x, 3, 2, 1), LINE),
    "max2d": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "max2d places": (lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 1), return_indices=True), IMAGE),
    "max2d dilated": (lambda x: F.max_pool2d(x, 3, 1, 1, 2, return_indices=True), IMAGE),
    "max2d ceil": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), IMAGE),
    "max2d without overlap": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "max2d of many": (lambda x: F.max_pool2d(x, 7, 1, 3), IMAGE.detach()),
    "max2d places of many": (lambda x: F.max_pool2d(x, 5, 2, 2, return_indices=True), IMAGE),
    "max2d dilated places of many": (lambda x: F.max_pool2d(x, 4, 1, 2, 2, return_indices=True), SOLID[0]),
    "max3d": (lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True), SOLID),
    "avg1d": (lambda x: F.avg_pool1d(x, 4, 3, 2), LINE),
    "avg2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "avg2d ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
    "avg2d inside": (lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), IMAGE),
    "avg2d divisor": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=4), IMAGE),
    "avg2d of many": (
        lambda x: F.avg_pool2d(x, (6, 5), (2, 1), (3, 2), ceil_mode=True, count_include_pad=False),
        IMAGE,
    ),
    "avg3d": (lambda x: F.avg_pool3d(x, (2, 3, 2), 2, (1, 1, 0), ceil_mode=True), SOLID),
    "adaptive avg1d": (lambda x: F.adaptive_avg_pool1d(x, 4), LINE),
    "adaptive avg2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), IMAGE),
    "adaptive avg2d up": (lambda x: F.adaptive_avg_pool2d(x, (12, 15)), IMAGE),
    "adaptive avg2d late overlap": (lambda x: F.adaptive_avg_pool2d(x, (2, 6)), randn(1, 2, 7, 5)),
    "adaptive max2d late overlap": (lambda x: F.adaptive_max_pool2d(x, (2, 6)), randn(1, 2, 7, 5)),
    "adaptive avg2d of long windows": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), randn(1, 2, 58, 37)),
    "adaptive max2d of long windows": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), randn(1, 2, 58, 37)),
    "adaptive max1d of long windows": (lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True), randn(2, 1, 58)),
    "adaptive avg2d of all": (lambda x: F.adaptive_avg_pool2d(x, (None, 1)), IMAGE),
    "adaptive avg3d": (lambda x: F.adaptive_avg_pool3d(x, (3, 3, 3)), SOLID),
    "adaptive max1d": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), LINE),
    "adaptive max2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), IMAGE),
    "adaptive max3d": (lambda x: F.adaptive_max_pool3d(x, (3, 4, 5)), SOLID),
    "lp": (lambda x: F.lp_pool2d(x, 2, 3, 2), IMAGE),
    "area": (lambda x: F.interpolate(x, (4, 5), mode="area"), IMAGE),
    "local response": (lambda x: F.local_response_norm(x, 2), IMAGE),
    "unfold": (lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=(1, 2), stride=(2, 1)), IMAGE),
    "fold": (lambda x: F.fold(x, (6, 5), (2, 3), padding=(1, 1), stride=(2, 1)), randn(2, 18, 20)),
    "fold dilated": (lambda x: F.fold(x, (6, 7), 3, dilation=2, padding=1, stride=(1, 2)), randn(1, 18, 12)),
}


@pytest.mark.parametrize("name", POOLS)
def test_forward_and_backward(name: str) -> None:
    fn, x = POOLS[name]
    given = [x] if name in ("local response", "area") else [x, x[0]]
    if name not in ("max2d of many", "adaptive max2d of long windows"):
        given = grads(*given)
    for env in (CPU, GPU):
        seen = lowered(lambda *each: tuple(fn(one) for one in each), *given, env=env)
        assert not [op for op in seen.externs if env is GPU or op.split(".")[1] not in REASONS]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats(dtype: torch.dtype) -> None:
    x = IMAGE.to(dtype)
    lowered(lambda x: F.max_pool2d(x, 3, 2, 1), *grads(x))
    lowered(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), *grads(x))
    lowered(lambda x: F.adaptive_avg_pool2d(x, 4), *grads(x))
    lowered(lambda x: F.unfold(x, 2), *grads(x))


def test_integers() -> None:
    x = integers(-9, 9, 2, 3, 6, 7)
    assert not lowered(lambda x: F.max_pool2d(x, 3, 1, 1, return_indices=True), x).externs
    assert not lowered(lambda x: F.avg_pool2d(x, 2), x).externs


@pytest.mark.parametrize("filling", [float("nan"), float("-inf"), 0.0])
def test_places_of_equals(filling: float) -> None:
    """The index is that of the first of equal maxima, of the last NaN, and never one in the padding."""
    x = torch.full((1, 5, 6), filling)
    y = IMAGE[0].detach().clone()
    y[:, 2:5, 3:] = filling
    for fn in (
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        lambda x: F.max_pool2d(x, 2, 1, 1, 3, return_indices=True),
        lambda x: F.max_pool2d(x, 4, 1, 2, return_indices=True),
        lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
    ):
        lowered(fn, x)
        lowered(fn, y)


def test_channels_last_and_gaps() -> None:
    x = randn(2, 4, 8, 6).contiguous(memory_format=torch.channels_last)
    for fn in (lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 3)):
        lowered(fn, *grads(x))
        lowered(fn, randn(2, 8, 8, 12)[:, ::2, :, ::2])


def test_nothing_in_the_batch() -> None:
    x = torch.zeros(0, 3, 8, 8)
    for fn in (
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 3),
    ):
        lowered(fn, x)
    lowered(lambda x: F.adaptive_avg_pool2d(x, (0, 3)), IMAGE)


def test_sizes_that_vary() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (3, 4)),
            F.unfold(x, 2, padding=1),
        )

    seen = compiled(fn, *grads(IMAGE), dynamic=True, env=GPU)
    assert not seen.externs and any(g.symbols for g in seen.graphs)
    compiled(lambda x: F.adaptive_avg_pool2d(x, (3, 4)).cos(), *grads(IMAGE), dynamic=True)


@pytest.mark.parametrize("size", [(9, 7), (4, 40), (3, 4), (6, 5)])
def test_unequal_windows_of_sizes_that_vary_need_no_call_on_a_cpu(size: tuple[int, int]) -> None:
    """Windows of one element and of many, which overlap, divide evenly, or are fewer than the elements."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pooled = F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_max_pool2d(x, (3, 4)), F.adaptive_avg_pool2d(x, (7, 2))
        return *pooled, *F.adaptive_max_pool2d(x, (2, 5), return_indices=True)

    seen = compiled(fn, randn(2, 3, *size), dynamic=True)
    assert not seen.externs and any(g.symbols for g in seen.graphs)


def test_rows_of_16_bits_in_windows_of_sizes_that_vary_are_the_library_s() -> None:
    for dtype, calls in ((torch.bfloat16, 1), (torch.float32, 0)):
        seen = compiled(lambda x: F.adaptive_avg_pool1d(x, 4), randn(2, 3, 31).to(dtype), dynamic=True)
        assert len(seen.externs) == calls


def test_unequal_windows_are_read_without_masks_in_loops_over_them() -> None:
    """Each window has so many elements; whether it has one more is asked behind the loop."""
    kernels = lowered(lambda x: F.adaptive_avg_pool1d(x, 3), randn(2, 3, 100)).kernels
    assert [op.attrs for kernel in kernels for op in kernel.body.ops if isinstance(op.attrs, Reduce)]
    assert not [op for kernel in kernels for op in kernel.body.ops if isinstance(op.attrs, Masked)]


def test_only_the_border_is_masked() -> None:
    """Of nine taps, those that stay inside for every window are plain loads; a maximum needs no mask at all."""

    def masks(fn: Callable[..., Any]) -> int:
        (kernel,) = lowered(fn, randn(2, 3, 8, 8), env=GPU).kernels
        return sum(isinstance(op.attrs, Masked) for op in kernel.body.ops)

    assert masks(lambda x: F.avg_pool2d(x, 3, 2, 1)) == 5
    assert masks(lambda x: F.avg_pool2d(x, 2)) == 0
    assert masks(lambda x: F.max_pool2d(x, 3, 2, 1)) == 0


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_windows_without_padding_are_read_where_they_lie_whatever_the_sizes_are(size: int, stride: int) -> None:
    seen = compiled(lambda x: F.max_pool2d(x, size, stride, return_indices=True), randn(2, 3, 9, 8), dynamic=True)
    loads = [op.attrs for kernel in seen.kernels for op in kernel.body.ops if isinstance(op.attrs, Load)]
    assert any(g.symbols for g in seen.graphs)
    assert not any(is_bent(load.index) for load in loads if load.ref.storage.startswith("arg"))


@pytest.mark.usefixtures("one_thread")
def test_elements_go_back_to_where_their_maximum_was() -> None:
    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[-2:])

    for x in (
        IMAGE,
        IMAGE[0],
        IMAGE.contiguous(memory_format=torch.channels_last),
        IMAGE[:, :1, :1].repeat(1, 1, 4, 1),
    ):
        compiled(there_and_back, *grads(x))
        assert not compiled(there_and_back, *grads(x), env=GPU).externs
    last = IMAGE.contiguous(memory_format=torch.channels_last)
    largest, places = F.max_pool2d(last, 2, return_indices=True)
    compiled(lambda x, at: F.max_unpool2d(x, at, 2), largest, places % 48, dynamic=True)
    assert not lowered(
        lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), randn(1, 2, 4, 4, 4)
    ).externs
