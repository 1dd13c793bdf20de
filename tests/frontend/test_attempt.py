"""Rules are taken back where the target's kernels lack what they need."""

from __future__ import annotations

import pytest
import torch

from minductor.options import Options
from minductor.target import Env, by_name
from tests.frontend.tracing import lowered, randn

GPU = Env(Options(), by_name("sm_90"))


def test_a_function_that_triton_lacks_is_called() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.special.zeta(x.abs() + 1, x.abs()) * 2

    made = lowered(fn, randn(4), env=GPU)
    assert made.externs == ["aten.special_zeta.default"]
    assert [kernel.origins[0].op for kernel in made.kernels][-1] == "aten.mul.Tensor"
    assert any("no zeta of f32" in str(note) for note in made.program.notes)
    assert lowered(fn, randn(4)).externs == []


@pytest.mark.parametrize(
    ("dtype", "how", "count"),
    [
        (torch.float32, "sum", 0),
        (torch.int8, "sum", 1),
        (torch.float32, "prod", 1),
        (torch.float32, "amax", 1),
        (torch.int32, "amin", 0),
    ],
)
def test_atomics_that_triton_lacks_are_calls(dtype: torch.dtype, how: str, count: int) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, i, x, how)

    given = torch.ones(4, 5, dtype=dtype), torch.zeros(4, 5, dtype=torch.int64)
    assert len(lowered(fn, *given, env=GPU).externs) == count
    assert lowered(fn, *given).externs == []
