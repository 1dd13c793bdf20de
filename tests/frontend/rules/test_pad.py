"""Reflecting and replicating padding, forward and backward, and the `_copy` forms of views, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.frontend.tracing import compiled, grads, lowered, randn

LINE, IMAGE, SOLID = randn(2, 3, 7), randn(2, 3, 5, 6), randn(1, 2, 4, 5, 3)

PADS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    **{f"{mode} 1d": (lambda x, m=mode: F.pad(x, (3, 2), m), LINE) for mode in ("reflect", "replicate", "circular")},
    **{f"{mode} 2d": (lambda x, m=mode: F.pad(x, (1, 2, 3, 0), m), IMAGE) for mode in ("reflect", "replicate")},
    **{f"{mode} 3d": (lambda x, m=mode: F.pad(x, (1, 2, 0, 0, 1, 3), m), SOLID) for mode in ("reflect", "replicate")},
    "reflect all": (lambda x: F.pad(x, (6, 6), "reflect"), LINE),
    "replicate far": (lambda x: F.pad(x, (9, 7, 5, 4), "replicate"), IMAGE),
    "replicate and cut": (lambda x: F.pad(x, (-2, 3, 1, -1), "replicate"), IMAGE),
    "replicate one": (lambda x: F.pad(x[..., :1], (2, 3), "replicate"), LINE),
    "reflect without a batch": (lambda x: F.pad(x[0], (2, 1), "reflect"), LINE),
}


@pytest.mark.parametrize("name", PADS)
def test_forward_and_backward(name: str) -> None:
    fn, x = PADS[name]
    assert set(lowered(fn, *grads(x)).externs) <= {"aten.empty_strided.default"}


def test_sizes_that_vary() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (1, 2, 2, 0), "reflect").sum((2, 3)) * F.pad(x, (1, 2, 2, 0), "replicate").amax((2, 3))

    assert not compiled(fn, *grads(IMAGE), dynamic=True).externs


COPIES: dict[str, Callable[..., Any]] = {
    "view": lambda x: torch.view_copy(x, (6, 5)),
    "permute": lambda x: torch.permute_copy(x, (2, 0, 1)),
    "transpose": lambda x: torch.transpose_copy(x, 0, 2),
    "expand": lambda x: torch.expand_copy(x[:, :1], (2, 4, 5)),
    "squeeze": lambda x: torch.squeeze_copy(x[:, :1], 1),
    "unsqueeze": lambda x: torch.unsqueeze_copy(x, -1),
    "diagonal": lambda x: torch.diagonal_copy(x, 1, 1, 2),
    "unfold": lambda x: torch.unfold_copy(x, 2, 3, 2),
    "narrow": lambda x: torch.narrow_copy(x, 2, 1, 3),
    "split": lambda x: torch.split_with_sizes_copy(x, (1, 4), 2)[1],
    "unbind": lambda x: torch.unbind_copy(x, 1)[1],
    "as_strided": lambda x: torch.as_strided_copy(x, (3, 4), (2, 5), 1),
    "t": lambda x: torch.t_copy(x[0]),
    "cross": lambda x: torch.linalg.cross(x, x.flip(2), dim=1),
    "block_diag": lambda x: torch.block_diag(x[0], x[1, :2], x[0, 0]),
    "weight_norm": lambda x: torch._weight_norm(x, x[:, :1, :1] + 2, 0),
    "renorm": lambda x: torch.renorm(x, 2, 1, 1.5),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views(name: str) -> None:
    x = randn(2, 3, 5)
    assert not lowered(COPIES[name], x).externs


def test_indices_of_triangles() -> None:
    assert not lowered(lambda x: (torch.tril_indices(4, 6, 1) * x, torch.triu_indices(5, 3, -1)), randn(1)).externs
