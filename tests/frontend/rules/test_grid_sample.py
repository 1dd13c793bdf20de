"""grid_sample, its gradients, and interpolation against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.frontend.tracing import GPU, compiled, grads, lowered, randn

IMAGE, SOLID = randn(2, 3, 6, 5), randn(1, 2, 4, 3, 5)
# positions on the edges and between elements; the random ones lie inside and far outside
EDGES = torch.tensor([[-1.0, 1.0], [0.0, 0.5], [-3.7, 9.0], [1.2, -0.2], [0.6, -0.6], [1 / 3, 0.25]])
GRID = torch.cat([EDGES.expand(2, 1, 6, 2), randn(2, 3, 6, 2), 4 * randn(2, 3, 6, 2)], 1)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: Any, padding: Any, align: bool) -> None:
    seen = lowered(lambda x, g: F.grid_sample(x, g, mode, padding, align), IMAGE, GRID, env=GPU)
    assert not seen.externs and len(seen.kernels) == 1
    if mode != "bicubic":
        grid = torch.cat([randn(1, 2, 3, 4, 3), 3 * randn(1, 2, 3, 4, 3)], 1)
        assert not lowered(lambda x, g: F.grid_sample(x, g, mode, padding, align), SOLID, grid, env=GPU).externs


@pytest.mark.parametrize(
    ("padding", "align"),
    [
        ("zeros", True),
        ("border", False),
        ("reflection", True),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (("zeros", False), ("border", True), ("reflection", False))
        ),
    ],
)
def test_gradients_of_samples(padding: Any, align: bool) -> None:
    def sampled(mode: Any) -> Any:
        return lambda x, g: F.grid_sample(x, g, mode, padding, align)

    for mode in ("bilinear", "nearest"):
        assert not lowered(sampled(mode), *grads(IMAGE, GRID), env=GPU).externs
        lowered(sampled(mode), *grads(IMAGE, GRID))
    centres = F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 3, 6, 5], align_corners=align)
    lowered(sampled("bilinear"), *grads(IMAGE, centres), env=GPU)
    assert not lowered(sampled("bilinear"), *grads(SOLID, 2 * randn(1, 2, 3, 4, 3)), env=GPU).externs
    assert lowered(sampled("bicubic"), *grads(IMAGE, GRID), env=GPU).externs == [
        "aten.grid_sampler_2d_backward.default"
    ]


def test_places_that_are_no_numbers_read_nothing() -> None:
    grid = GRID.clone()
    grid[0, 0, :, 0] = float("nan")
    grid[1, 1, :, 1] = float("inf")
    lowered(lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, grid, env=GPU)


def test_what_lies_outside_is_not_multiplied() -> None:
    x = torch.full_like(IMAGE, float("inf"))
    lowered(lambda x, g: F.grid_sample(x, g, align_corners=True), x, 5 * GRID, env=GPU)


def test_doubles() -> None:
    lowered(lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE.double(), GRID.double(), env=GPU)


def test_sizes_that_vary() -> None:
    def fn(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(theta, [x.shape[0], 1, 4, 7], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False) * 2

    assert compiled(fn, IMAGE, randn(2, 2, 3), dynamic=True).kernels


@pytest.mark.parametrize(
    "mode", ["nearest", "nearest-exact", "bilinear", pytest.param("bicubic", marks=pytest.mark.long)]
)
def test_interpolation(mode: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        corners = [{}] if "nearest" in mode else [{}, {"align_corners": True}]
        return tuple(
            F.interpolate(x, **size, mode=mode, **c)  # pyright: ignore[reportArgumentType]
            for size in ({"size": (7, 4)}, {"scale_factor": (1.7, 0.6)})
            for c in corners
        )

    assert not lowered(fn, IMAGE).externs
    assert not lowered(fn, IMAGE.contiguous(memory_format=torch.channels_last)).externs
