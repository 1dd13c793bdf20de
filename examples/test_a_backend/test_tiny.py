"""Tests of a third-party backend by minductor's pytest plugin. They need neither minductor's compiler nor a store.

    pip install ./examples/test_a_backend
    pytest examples/test_a_backend --compiler=tiny

`compiled` compares values, dtypes, strides, aliases and changed arguments with eager's, and values with float64.
`counts` is what the adapter reports. `must_fail_under` switches on a fault of the adapter's table and demands that the
test fails. With `--compiler=inductor` or `--compiler=minductor` the tests of `tiny` alone are skipped.
"""

import pytest
import torch

TINY = pytest.mark.compilers("tiny")


@TINY
@pytest.mark.counts(kernels=1)
@pytest.mark.must_fail_under("removes-nothing")
def test_what_does_nothing_is_removed(compiled, device, size) -> None:
    run = compiled(lambda x: ((x * 1 + 0) / 1).exp(), torch.randn(size, device=device))
    (graph,) = run.graphs
    assert "mul" not in graph.kernels[0].text


@TINY
@pytest.mark.counts(kernels=2)
@pytest.mark.must_fail_under("dtype-forgotten")
def test_a_dtype_that_changes_stays(compiled, device, size) -> None:
    run = compiled(lambda x: (x * 1.0).relu(), torch.arange(size, device=device))
    assert run.out.dtype == torch.float32


@TINY
@pytest.mark.must_fail_under("result-shared")
@pytest.mark.parametrize("use", [lambda y: y, lambda y: y.view(-1, 1), lambda y: y.neg_() + 1])
def test_a_result_that_somebody_holds_is_a_new_tensor(compiled, device, size, use) -> None:
    compiled(lambda x: use(x + 0), torch.randn(size, device=device))  # who shares memory, and what x holds afterwards


@TINY
@pytest.mark.must_fail_under("any-number")
def test_other_numbers_count(compiled, device, size) -> None:
    compiled(lambda x: ((x * 2 - 1) / 4).sin(), torch.randn(size, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_small_model(compiled, device, size, dtype) -> None:
    """For every compiler: the numbers are eager's, on strides and sizes that are not round."""
    x = torch.arange(size * 6, device=device).reshape(6, size).t().to(dtype)
    compiled(lambda x: (x * 1 + 0).sum(0, keepdim=True) - x / 1, x)
