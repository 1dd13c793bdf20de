"""x - maximum is recognised only where the maximum is that of x; then C++ takes the shorter exp."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_plugin.oracle.compiled import Compile

ROWS = {
    "the row's own maximum": (lambda x, y: (x - x.amax(-1, keepdim=True)).exp(), True),
    "of both axes": (lambda x, y: (x - x.amax((0, 1))).exp() + y, True),
    "the minimum": (lambda x, y: (x - x.amin(-1, keepdim=True)).exp(), False),
    "another row's maximum": (lambda x, y: (x - y.amax(-1, keepdim=True)).exp(), False),
    "the maximum minus the row": (lambda x, y: (x.amax(-1, keepdim=True) - x).exp(), False),
    "twice the row": (lambda x, y: (2 * x - x.amax(-1, keepdim=True)).exp(), False),
    "float64": (lambda x, y: (x.double() - x.double().amax(-1, keepdim=True)).exp(), False),
}


@pytest.mark.parametrize("name", ROWS)
def test_where_exp_is_of_what_is_at_most_0(compiled: Compile, device: str, name: str) -> None:
    function, is_shorter = ROWS[name]
    x, y = (20 * torch.randn(6, 300, generator=torch.Generator().manual_seed(n)).to(device) for n in (0, 1))
    x[1, 3], x[2, 4], x[3] = torch.nan, -torch.inf, -torch.inf
    made = compiled(function, x, y)
    if device == "cpu":
        assert any("= md_exp_nonpositive_f32(" in text for text in made.kernels) == is_shorter


def test_a_softmax_keeps_its_results(compiled: Compile, device: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1), x.log_softmax(0)

    compiled(program, 50 * torch.randn(70, 90, device=device))
