"""The noise that tells a sum that cancels from a wrong value."""

from __future__ import annotations

import torch

from tests.opinfo.noise import explains, noisy


def test_a_sum_that_cancels_may_be_off_by_its_terms_rounding_and_no_more() -> None:
    torch.manual_seed(0)
    x = torch.randn(1000) * 100
    x -= x.mean()

    def run() -> list[torch.Tensor]:
        return [(x * 3.1).sum()]

    eager, truth = run()[0], (x.double() * 3.1).sum()
    runs = [found[0] for found in noisy(run)]
    assert len({float(r) for r in runs}) > 10
    assert explains((x.flip(0) * 3.1).sum(), eager, truth, runs)
    assert not explains(eager + 0.1, eager, truth, runs)
    assert not explains(eager, eager.long(), None, runs)


def test_noise_leaves_views_and_writes_alone() -> None:
    x = torch.arange(6.0)
    (run, *_) = noisy(lambda: [x.view(2, 3).t(), x.clone().add_(1)])
    assert torch.equal(run[0], x.view(2, 3).t())
    assert (run[1] - x - 1).abs().max() < 1e-5
