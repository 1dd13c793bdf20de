"""Rules of concatenation, padding, flips, views, gradients of views, and creation, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from minductor.frontend.capture.capture import capture
from minductor.ir.program.nodes import Kernel, Load, Masked, Store
from tests.frontend.tracing import CPU, grads, lowered, randn
from tests.rows import inline, lower

X, Y = randn(4, 6, 5), randn(4, 6, 5, seed=1)
IMAGE = randn(2, 4, 3, 5)

MOVES: dict[str, Callable[..., Any]] = {
    "cat": lambda x, y: torch.cat([x, y * 2, x[:, :3]], 1),
    "cat promotes": lambda x, y: torch.cat([x, y.double()], -1),
    "cat skips": lambda x, y: torch.cat([x, y[:0]]),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "stack last": lambda x, y: torch.stack([x, y], -1),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "pad and cut": lambda x, y: F.pad(x, (1, 2, -1, 3, 2, 0), value=5.0),
    "cut": lambda x, y: F.pad(x, (-1, -2)),
    "reflect": lambda x, y: F.pad(x, (2, 1), mode="reflect"),
    "replicate": lambda x, y: F.pad(x, (2, 1), mode="replicate"),
    "flip": lambda x, y: x.flip(0, 2),
    "roll": lambda x, y: x.roll((-1, 20), (0, 2)),
    "roll flat": lambda x, y: x.roll(7),
    "repeat": lambda x, y: x.repeat(2, 1, 3, 1),
    "tril": lambda x, y: x.tril(1),
    "triu": lambda x, y: x.triu(-1),
    "select": lambda x, y: x[:, 2] * 3,
    "slice": lambda x, y: x[:, 1:5:2] * 3,
    "slice from the end": lambda x, y: x[:, -3:] * 3,
    "select_scatter": lambda x, y: torch.select_scatter(x, y[:, 0], 1, -2),
    "slice_scatter": lambda x, y: torch.slice_scatter(x, y[:, :3], 1, 0, 6, 2),
    "slice_scatter end": lambda x, y: torch.slice_scatter(x, y[:, :3], 1, -3),
    "rotary": lambda x, y: torch.cat((-x[..., 2:], x[..., :2]), -1) * y,
}


# their gradients sum several elements of the result into one of the source, and may stay extern calls
MAY_BE_CALLED = (
    "aten.reflection_pad1d_backward.default",
    "aten.replication_pad1d_backward.default",
    "aten.index_put.default",
)


@pytest.mark.parametrize("name", MOVES)
def test_forward_and_backward(name: str) -> None:
    seen = lowered(MOVES[name], *grads(X, Y))
    assert not [op for op in seen.externs if op not in MAY_BE_CALLED]


VIEWS: dict[str, Callable[..., Any]] = {
    "slices": lambda x: x[1:, ::2, 3].unsqueeze(0).expand(5, 3, 3) + 1,
    "reshape": lambda x: x.transpose(0, 2).reshape(-1) * 2,
    "contiguous": lambda x: x.permute(2, 0, 1).contiguous(),
    "returned": lambda x: (x[1], x.mT, x.view(-1)[5:], x),
    "diagonal": lambda x: torch.diagonal(x, 0, 1, 2) * 2,
    "unfold": lambda x: x.unfold(2, 4, 1) + 1,
    "chunks": lambda x: [t * 2 for t in x.chunk(3, 1)],
    "unbind": lambda x: [t.sin() for t in x.unbind(0)],
    "split": lambda x: [t.sum() for t in x.split([1, 2, 3], 1)],
    "squeezed": lambda x: x.unsqueeze(1).squeeze() + 1,
    "empty": lambda x: x[:0] * 2,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    lowered(VIEWS[name], X)
    lowered(VIEWS[name], randn(9, 6, 5)[3:7])  # offsets count from the input's own first element


def test_as_strided_counts_from_the_storage() -> None:
    lowered(lambda x: x[1:].as_strided((3, 4), (2, 5), 1) + 1, X)


def test_views_cost_no_kernel() -> None:
    assert not lowered(lambda x: (x[1], x.mT, x.view(-1)[5:]), X).program.nodes


def test_channels_last_stays() -> None:
    x = IMAGE.contiguous(memory_format=torch.channels_last)
    lowered(lambda x: (x + 1, x.sum(1, keepdim=True), x.clone()), x)


CREATED: dict[str, Callable[..., Any]] = {
    "full": lambda x: torch.full((2, 3), 7.0) + x[0, 0, 0],
    "arange": lambda x: torch.arange(3, 20, 4) * x[0, 0, 0],
    "arange floats": lambda x: torch.arange(0.3, 2, 0.1),
    "linspace": lambda x: torch.linspace(-1, 1, 11),
    "eye": lambda x: torch.eye(3, 4),
    "like": lambda x: torch.zeros_like(x) + torch.ones_like(x) + x.new_full((1,), 3),
    "bools": lambda x: torch.ones(3, dtype=torch.bool),
    "mask": lambda x: torch.ones(5, 5, dtype=torch.bool).tril(),
}


@pytest.mark.parametrize("name", CREATED)
def test_creation(name: str) -> None:
    seen = lowered(CREATED[name], X)
    assert not seen.externs


def test_empty_is_allocated_and_left_alone() -> None:
    seen = lowered(lambda x: torch.empty(3, 4).fill_(2) + x[0, 0, 0], X)
    assert not seen.externs, "what fill_ covers is never read"
    seen = lowered(lambda x: (torch.empty(3, 4), x * 2)[0].zero_() + x[0, 0, 0], X)
    assert not seen.externs


def test_each_piece_of_a_cat_makes_a_version() -> None:
    kernels = lowered(lambda x, y: torch.cat([x, y, x]), X, Y).kernels
    stores = [op.attrs.ref.version for k in kernels for op in k.body.ops if isinstance(op.attrs, Store)]
    assert stores == [0, 1, 2]


def test_padding_reads_only_inside() -> None:
    (kernel,) = lowered(lambda x: F.pad(x, (1, 2)), X).kernels
    masked = [op.attrs for op in kernel.body.ops if isinstance(op.attrs, Masked)]
    assert len(masked) == 1 and not any(isinstance(op.attrs, Load) for op in kernel.body.ops)
    assert any(isinstance(op.attrs, Load) for op in masked[0].body.ops)


def test_nearest_and_bilinear_resizing() -> None:
    lowered(lambda x: F.interpolate(x, scale_factor=2.0), IMAGE)
    lowered(lambda x: F.interpolate(x, size=(7, 4), mode="bilinear"), IMAGE)


def test_bilinear_rows_are_weighted_once_if_they_are_read_several_times() -> None:
    for height, kernels in ((48, 2), (12, 1)):
        seen = lowered(lambda x, n=height: F.interpolate(x, size=(n, 80), mode="bilinear"), randn(2, 4, 24, 40))
        big = [k for k in inline(seen.program, CPU).nodes if isinstance(k, Kernel) and len(k.axes) > 1]
        assert len(big) == kernels


def test_a_sum_that_nobody_reads_may_stand_beside_indexed_reads() -> None:
    gm = make_fx(lambda x, at: (x + x, torch.ops.aten._unsafe_index(x, [at]))[1])(X, torch.tensor([1, 0]))
    assert len(lower(capture(gm, "inference"), CPU).nodes) == 1
