"""Rules of gathers and of nll_loss against eager, and which indices are checked and wrapped."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from minductor.ir.program.nodes import Check
from tests.frontend.tracing import Lowered, grads, integers, lowered, randn

TABLE, IDS = randn(10, 6), integers(0, 10, 3, 4)
X = randn(4, 7, 5)


def wraps(seen: Lowered) -> set[bool]:
    return {op.attrs.wrap for k in seen.kernels for op in k.body.ops if isinstance(op.attrs, Check)}


def test_embedding_is_checked_and_does_not_wrap() -> None:
    seen = lowered(lambda w, i: F.embedding(i, w), *grads(TABLE), IDS)
    assert not seen.externs
    assert wraps(seen) == {False}


def test_gather_and_index_select() -> None:
    index = integers(0, 4, 4, 2, 5)
    assert not lowered(lambda x, i: (x.gather(1, i), x.gather(-1, i)), X, index).externs
    assert not lowered(lambda x, i: x.index_select(1, i), X, torch.tensor([6, 0, 3])).externs


INDICES = {
    "first": lambda x, i, j: x[i],
    "middle": lambda x, i, j: x[:, i],
    "adjacent": lambda x, i, j: x[:, i, j],
    "parted": lambda x, i, j: x[i, :, j],
    "broadcast": lambda x, i, j: x[i[:, None], j],
    "negative": lambda x, i, j: x[-i - 1],
}


@pytest.mark.parametrize("name", INDICES)
def test_indexing(name: str) -> None:
    i, j = torch.tensor([3, 0, 2]), torch.tensor([1, -2, 4])
    seen = lowered(INDICES[name], X, i, j)
    assert not seen.externs
    assert wraps(seen) == {True}


LOSSES = {
    "mean": lambda x, t, w: F.cross_entropy(x, t),
    "sum": lambda x, t, w: F.cross_entropy(x, t, reduction="sum", ignore_index=3),
    "none": lambda x, t, w: F.cross_entropy(x, t, reduction="none", ignore_index=3),
    "weighted": lambda x, t, w: F.cross_entropy(x, t, w, ignore_index=2),
    "smoothed": lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_cross_entropy(name: str) -> None:
    weight = randn(7, seed=1).abs()
    for logits, target in ((randn(10, 7), integers(0, 7, 10)), (randn(2, 7, 3, 4), integers(0, 7, 2, 3, 4))):
        assert not lowered(LOSSES[name], *grads(logits), target, weight).externs


def test_ignored_targets_are_not_read() -> None:
    target = torch.tensor([1, -100, 2, -100])
    assert not lowered(lambda x, t: F.cross_entropy(x, t), *grads(randn(4, 7)), target).externs
    lowered(lambda x, t: F.cross_entropy(x, t), randn(4, 7), torch.full((4,), -100))
    lowered(lambda x, t: F.cross_entropy(x, t), *grads(randn(7)), torch.tensor(3))


@pytest.mark.parametrize("x", [X, X.transpose(0, 2), X[:, ::2], torch.tensor(3.0)])
def test_take_counts_in_rows_whatever_the_layout(x: torch.Tensor) -> None:
    for index in (integers(-x.numel(), x.numel(), 2, 6), torch.tensor(-1)):
        assert not lowered(torch.take, x, index).externs
