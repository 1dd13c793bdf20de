"""Scans against eager: along each dimension, in each dtype; the dtype of the accumulator."""

from __future__ import annotations

import pytest
import torch

from minductor.core.dtypes import F32, F64
from minductor.ir.program.nodes import Scan
from tests.frontend.tracing import compiled, grads, integers, lowered, randn

X = randn(3, 4, 5)
WHOLE = integers(-5, 6, 3, 4)
KINDS = {"f32": X, "bf16": X.bfloat16(), "i64": WHOLE, "u8": WHOLE.byte(), "bool": X > 0, "permuted": X.transpose(0, 2)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_scan(name: str, kind: str) -> None:
    x = KINDS[kind]
    if name == "logcumsumexp" and not x.is_floating_point():
        return
    scan = getattr(torch, name)
    made = lowered(lambda x: (scan(x, 0), scan(x, -1)), x)
    assert not made.externs


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax"])
def test_derivative(name: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        made = getattr(torch, name)(x, 1)
        return made if isinstance(made, torch.Tensor) else made.values

    lowered(fn, *grads(X))


def test_what_carries_is_wider_than_the_result() -> None:
    made = lowered(lambda x: (x.cumsum(0), x.half().cumsum(0), x.cumsum(0, dtype=torch.float64)), X)
    carried = [op.dtype for k in made.kernels for op in k.body.ops if isinstance(op.attrs, Scan)]
    assert carried == [F64, F32, F64]


def test_dtype_argument_converts_first() -> None:
    assert not lowered(lambda x: (x.cumsum(0, dtype=torch.int32), x.cumprod(1, dtype=torch.bfloat16)), X * 2).externs


def test_sums_of_truth_that_eager_refuses_are_its_to_refuse() -> None:
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        lowered(lambda x: x.cumsum(0, dtype=torch.bool), X)


def test_numbers_and_sizes_without_elements() -> None:
    minus = torch.tensor(-0.0)
    assert not lowered(lambda x: (x.cumsum(0), x.cumprod(-1), *x.cummax(0)), minus).externs
    found = lowered(lambda x: x.cumsum(0), minus.reshape(1))
    assert not any(isinstance(op.attrs, Scan) for k in found.kernels for op in k.body.ops)
    lowered(lambda x: (x.cumsum(0), x.cumsum(1), x.cummin(1)), torch.zeros(3, 0))


def test_unknown_sizes() -> None:
    assert not compiled(lambda x: (x.cumsum(1), x.cummax(0)), X, dynamic=True).externs


def test_a_long_row_stays_whole_here() -> None:
    assert len(lowered(lambda x: x.cumsum(1), randn(2, 1 << 16)).kernels) == 1  # `split` cuts it
