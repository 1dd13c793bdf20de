"""The memory that a whole training graph needs in the order that is chosen for it."""

import pytest
import torch
from torch import Tensor

from pytest_plugin import at_most
from pytest_plugin.oracle.compiled import Compile


def two_branches(x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, w4: Tensor) -> Tensor:
    """One widens first and the other last; a backward keeps the first product of each."""
    return (x @ w1 @ w3).sum() + (x @ w2 @ w4).sum()


@pytest.mark.counts(peak=at_most(98_428))  # of the backward; the forward needs 98,308, and another order more
def test_branches_of_products_one_after_the_other(compiled: Compile, device: str) -> None:
    weights = [torch.randn(shape, device=device, requires_grad=True) for shape in ((1, 10), (1, 1), (10, 1), (1, 10))]
    compiled(two_branches, torch.randn(2048, 1, device=device, requires_grad=True), *weights)
