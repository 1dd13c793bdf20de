"""Programs that each see a fault of the row `attention`: a condition that does not hold, or a mask that is not eager's.

`pytest --mutants tests/e2e/test_attention_mutants.py -m long` shows which kinds of checks see which fault. The reasons
that `tests/frontend/rewrites/test_attention.py` expects see each fault of a condition too.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from pytest_plugin.oracle.compiled import Compile
from tests.e2e.attention_programs import NEAR_MISSES, PROGRAMS, B, D, H, L, Program, mask_of_queries
from tests.e2e.test_rewrites_attention import hidden_by, is_fused, operands, rows_masked_whole

pytestmark = [pytest.mark.long, pytest.mark.devices("cpu")]
canonical = pytest.mark.golden(level="canonical")
BF16 = torch.bfloat16
Q = (B, H, L, D)


CONDITIONS = {
    "other_axis": "attention-along-any-axis",
    "other_sum": "attention-sums-queries",
    "other_dtypes": "attention-of-two-dtypes",
    "rounded_scores": "attention-skips-rounding",
    "scale_of_keys": "attention-scales-keys",
    "negative_scale_of_fill": "attention-scales-fills",
    "visible_fill": "attention-fill-is-seen",
    "mask_of_queries": "attention-mask-of-queries",
    "few_queries": "attention-at-any-size",
}


@pytest.mark.counts(externs=2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.must_fail_under(fault)) for name, fault in CONDITIONS.items()]
)
def test_a_condition(compiled: Compile, name: str) -> None:
    program = NEAR_MISSES[name]
    run = compiled(program.fn, *program.arguments())
    assert not is_fused(run)


@pytest.mark.must_fail_under("attention-of-five-axes")
@pytest.mark.counts(kernels=1, externs=2)
@canonical
def test_five_axes(compiled: Compile) -> None:
    """Torch computes the fused call of five axes by two products, with more kernels around them."""
    compiled(NEAR_MISSES["five_axes"].fn, *operands())


@pytest.mark.must_fail_under("attention-of-other-axes")
@canonical
def test_a_mask_of_groups_of_heads(compiled: Compile) -> None:
    program = NEAR_MISSES["groups_of_heads"]
    compiled(program.fn, *program.arguments())


@pytest.mark.must_fail_under("attention-of-two-head-sizes")
@pytest.mark.counts(kernels=1, externs=2)
@canonical
def test_two_head_sizes(compiled: Compile) -> None:
    """Torch computes the fused call of two head sizes by two products, with more kernels around them."""
    compiled(NEAR_MISSES["other_head_size"].fn, *NEAR_MISSES["other_head_size"].arguments())


@pytest.mark.must_fail_under("attention-forgets-dropout")
@pytest.mark.counts(externs=3)
@canonical
def test_dropout(compiled: Compile) -> None:
    compiled(NEAR_MISSES["dropped"].fn, *operands())


@pytest.mark.must_fail_under("attention-of-few-keys")
@pytest.mark.counts(externs=2)
def test_few_keys(compiled: Compile) -> None:
    assert not is_fused(compiled(NEAR_MISSES["few_keys"].fn, *NEAR_MISSES["few_keys"].arguments(BF16)))


@pytest.mark.must_fail_under("attention-fill-beside-mask")
@pytest.mark.counts(externs=2)
def test_a_weak_fill_beside_a_mask(compiled: Compile) -> None:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return (q @ k.mT * 0.25 + bias).masked_fill(~keep, -1e4).softmax(-1) @ v

    compiled(fn, *operands(), rows_masked_whole(), torch.randn(L, L))


@pytest.mark.must_fail_under("attention-of-two-batches")
@pytest.mark.counts(externs=2)
@canonical
def test_heads_of_a_size_that_varies(compiled: Compile) -> None:
    compiled(PROGRAMS["one_head_of_keys"].fn, *PROGRAMS["one_head_of_keys"].arguments(), dynamic=True)


@pytest.mark.must_fail_under("attention-of-one-query")
@pytest.mark.counts(externs=2)
def test_one_query(compiled: Compile) -> None:
    program = Program(mask_of_queries, ((B, H, 1, D), Q, Q, (1, L)), {3: "bias"})
    assert not is_fused(compiled(program.fn, *program.arguments(BF16)))


@pytest.mark.must_fail_under("attention-trains-slowly")
@pytest.mark.counts(externs=6)
def test_gradients_of_float32(compiled: Compile) -> None:
    assert not is_fused(compiled(PROGRAMS["einsum"].fn, *operands(grad=True), grad=True))


@pytest.mark.must_fail_under("attention-mask-is-learned")
@pytest.mark.counts(externs=6)
@canonical
def test_a_mask_that_needs_a_gradient(compiled: Compile) -> None:
    program = Program(PROGRAMS["t5"].fn, PROGRAMS["t5"].shapes)
    assert not is_fused(compiled(program.fn, *program.arguments(BF16, grad=True), grad=True))


@pytest.mark.must_fail_under("attention-row-masked-whole")
@canonical
def test_a_row_masked_whole(compiled: Compile) -> None:
    run = compiled(partial(hidden_by, -math.inf), *operands(), rows_masked_whole())
    assert run.out[..., 5, :].isnan().all()


@pytest.mark.must_fail_under("attention-row-not-shifted", "attention-hidden-queries")
@canonical
def test_the_gradient_of_a_row_filled_whole(compiled: Compile) -> None:
    run = compiled(partial(hidden_by, -1e9), *operands(BF16, grad=True), rows_masked_whole(), grad=True)
    assert not next(iter(run.grads.values()))[..., 5, :].any()


@pytest.mark.must_fail_under("attention-weak-fill")
@canonical
def test_a_row_filled_whole(compiled: Compile) -> None:
    q, k, v = operands()
    run = compiled(partial(hidden_by, -1e4), q * 8, k * 8, v, rows_masked_whole())
    torch.testing.assert_close(run.out[..., 5, :], v.mean(-2), atol=1e-4, rtol=1e-4)


@pytest.mark.must_fail_under("attention-keeps-turned")
@canonical
def test_where_keeps(compiled: Compile) -> None:
    def fn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return torch.where(keep, q @ k.mT, -math.inf).softmax(-1) @ v

    run = compiled(fn, *operands(), torch.ones(L, L, dtype=torch.bool).tril())
    assert not run.out.isnan().any()
