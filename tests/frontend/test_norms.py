"""Normalisations that are opened keep their values, and the backward computes their results again."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch
from torch.nn import functional as F

from minductor.core.expressions.expr import as_int
from tests.frontend.tracing import Lowered, compiled, grads, lowered, randn


def given_to_backward(found: Lowered, elements: int) -> int:
    """How many tensors of full size the backward takes, the gradient among them."""
    backward = found.programs[-1]
    assert backward.name == "backward"
    table = backward.buffer_table()
    sizes = [[as_int(n) or 0 for n in table[i.name].size] for i in backward.inputs if i.symbol is None]
    return sum(prod(size) >= elements for size in sizes)


NORMS: dict[str, Callable[..., torch.Tensor]] = {
    "group": lambda x, w, b: F.silu(F.group_norm(x, 3, w, b)),
    "group, plain": lambda x, w, b: F.silu(F.group_norm(x, 2)) * w[0] * b[0],
    "batch": lambda x, w, b: F.silu(F.batch_norm(x, None, None, w, b, training=True)),
    "batch, running": lambda x, w, b: F.silu(
        F.batch_norm(x, torch.zeros_like(w), torch.ones_like(w), w, b, training=True)
    ),
    "layer": lambda x, w, b: F.silu(F.layer_norm(x, (6,), w, b)),
    "layer, plain": lambda x, w, b: F.silu(F.layer_norm(x, (6, 6))) * w[0] * b[0],
}


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", NORMS)
def test_the_backward_is_given_the_operand_and_not_the_result(name: str, dtype: torch.dtype) -> None:
    leaves = grads(randn(4, 6, 6, 6).to(dtype), randn(6).to(dtype), randn(6).to(dtype))
    assert given_to_backward(compiled(NORMS[name], *leaves), 4 * 6 * 6 * 6) == 2


@pytest.mark.parametrize(("is_training", "count"), [(True, 5), (False, 7)])
def test_running_statistics_are_saved_where_the_backward_reads_them(*, is_training: bool, count: int) -> None:
    """In training it reads those of the batch: x, weight, mean, rstd, and the gradient."""
    mean, var = torch.zeros(6), torch.ones(6)
    leaves = grads(randn(4, 6, 5, 5), randn(6), randn(6))
    found = lowered(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, is_training), *leaves, mean, var)
    backward = found.programs[-1]
    assert backward.name == "backward"
    assert len(backward.inputs) == count


@pytest.mark.parametrize("dim", [0, -1])
def test_a_log_softmax_is_saved_as_two_numbers_a_row(dim: int) -> None:
    found = compiled(lambda x: F.log_softmax(x, dim).square(), *grads(randn(8, 10)))
    assert given_to_backward(found, 80) == 2
    found = compiled(lambda x, t: F.cross_entropy(x, t), *grads(randn(8, 10)), torch.randint(10, (8,)))
    assert given_to_backward(found, 80) == 1
    found = compiled(lambda x, w, t: F.cross_entropy(x @ w, t), *grads(randn(8, 4), randn(4, 10)), torch.arange(8))
    assert given_to_backward(found, 80) == 1


@pytest.mark.parametrize("shape", [(6,), (6, 6), (4, 6, 6)])
def test_what_a_function_of_one_tensor_makes_is_not_saved_for_a_norm(shape: tuple[int, ...]) -> None:
    leaves = grads(randn(4, 6, 6), randn(*shape), randn(*shape))
    found = compiled(lambda x, w, b: F.layer_norm(F.gelu(x * x), shape, w, b), *leaves)
    assert given_to_backward(found, 4 * 6 * 6) == 2 + (len(shape) == 3)
    compiled(lambda x: F.layer_norm(F.gelu(x), shape) * 2, *grads(randn(4, 6, 6)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("group", "batch, running", "layer") else pytest.mark.long) for n in NORMS],
)
def test_sizes_that_vary_and_other_layouts_keep_their_values(name: str) -> None:
    vectors = randn(6), randn(6)
    channels_last = randn(4, 6, 6, 6).to(memory_format=torch.channels_last)
    compiled(NORMS[name], *grads(channels_last, *vectors))
    compiled(NORMS[name], *grads(randn(4, 6, 6, 6), *vectors), dynamic=True)


def test_what_is_rounded_stays_whole() -> None:
    half = [x.bfloat16() for x in (randn(4, 6, 6, 6), randn(6), randn(6))]
    assert given_to_backward(compiled(NORMS["group"], *grads(*half)), 4 * 6 * 6 * 6) == 3


@pytest.mark.parametrize(("columns", "kept"), [(6, 1), (5000, 2)])
def test_of_a_row_that_is_kept_one_statistic_is_kept(columns: int, kept: int) -> None:
    found = compiled(lambda x, w: F.layer_norm(x, (columns,), w) * 2, *grads(randn(2, 3, columns), randn(columns)))
    table = found.programs[-1].buffer_table()
    sizes = [[as_int(n) for n in table[given.name].size] for given in found.programs[-1].inputs]
    assert sizes.count([2, 3, 1]) == kept


def test_a_deviation_that_is_summed_again_keeps_its_precision() -> None:
    rows = torch.cat([torch.full((2, 24), 1 / 3), 30 + randn(2, 24), randn(2, 24)])
    compiled(lambda x, w: F.layer_norm(x, (24,), w), *grads(rows, randn(24)))
    compiled(lambda x: F.layer_norm(x, x.shape[1:]), *grads(randn(4, 6)), dynamic=True)
    half = compiled(lambda x: F.layer_norm(x, (6,)), *grads(randn(4, 6).bfloat16())).programs[-1]
    assert [[as_int(n) for n in half.buffer_table()[i.name].size] for i in half.inputs].count([4, 1]) == 2


def test_what_a_product_is_given_stays_whole() -> None:
    found = compiled(lambda x, w: F.layer_norm(x, (8,)).view(-1, 8) @ w, *grads(randn(2, 4, 8), randn(8, 8)))
    assert "native_layer_norm" in [str(node.origins[0].node) for node in found.kernels]
