"""Reductions against eager: over one, several and all dimensions, in each dtype, of contiguous and permuted inputs."""

from __future__ import annotations

import pytest
import torch

import minductor
from minductor.core.dtypes import F32
from minductor.ir.program.nodes import Kernel, Reduce
from minductor.runtime.reference.reference import run_program
from tests.frontend.tracing import grads, integers, lowered, randn

X = randn(3, 4, 5)
WHOLE = integers(-5, 6, 3, 4)
KINDS = {"f32": X, "bf16": X.bfloat16(), "i64": WHOLE, "bool": X > 0, "permuted": X.transpose(0, 2)}
NAMES = [
    "sum",
    "mean",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "prod",
    "any",
    "all",
    "max",
    "min",
    "var",
    "std",
    "var_mean",
]
FLOATS_ONLY = ("mean", "var", "std", "var_mean")


LONG = ("amin", "argmin", "all", "min", "std", "var")  # each is like another one


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in NAMES])
def test_reduction(name: str, kind: str) -> None:
    x = KINDS[kind]
    if (name in FLOATS_ONLY and not x.is_floating_point()) or (name.startswith("arg") and kind == "bool"):
        return
    reduce = getattr(torch, name)
    assert not lowered(lambda x: (reduce(x), reduce(x, 1), reduce(x, 0, keepdim=True)), x).externs
    if name in ("sum", "mean", "amax", "any", "var"):
        assert not lowered(lambda x: reduce(x, (0, -1)), x).externs


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "prod", "var", "std", "logsumexp", "norm"])
def test_derivative(name: str) -> None:
    given = (1,) if name != "norm" else (2, 1)
    lowered(lambda x: getattr(torch, name)(x, *given), *grads(X))


def test_dtype_argument_decides_what_is_summed_in() -> None:
    lowered(lambda x: (x.sum(dtype=torch.float64), x.mean(-1, dtype=torch.float32)), X.bfloat16())


def test_half_precision_is_summed_in_float32() -> None:
    (kernel,) = lowered(lambda x: x.sum(), X.half()).kernels
    assert [op.dtype for op in kernel.body.ops if isinstance(op.attrs, Reduce)] == [F32]


def test_size_one_has_nothing_to_reduce() -> None:
    for kernel in lowered(lambda x: (x[:1].amax(0), x[:1].argmax(0), x.sum().sum()), X).kernels[:2]:
        assert not any(isinstance(op.attrs, Reduce) for op in kernel.body.ops)


def test_the_mean_beside_a_variance_is_no_infinity() -> None:
    x = torch.tensor([[torch.inf, 1, 2], [1, -torch.inf, 3], [1, 2, 3]])
    lowered(
        lambda x: (torch.var_mean(x, 1), torch.std_mean(x, correction=0), torch.var_mean(x[:, :1], 1), x.mean(1)), x
    )


def test_no_element_at_all() -> None:
    lowered(lambda x: (x[:0].sum(0), x[:0].sum(), x[:, :0].softmax(0)), X)


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf"), -float("inf")], ids=str)
def test_vector_norm(order: float) -> None:
    assert not lowered(lambda x: torch.linalg.vector_norm(x, order, (0, 1), keepdim=True), X).externs


def test_the_first_of_equals_and_the_first_nan() -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, 3.0, 3.0], [nan, 2.0, nan], [2.0, nan, 9.0]])
    lowered(lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.min(0), x.amax(1), x.argmax()), x)


def test_variance_does_not_cancel() -> None:
    """Two passes: the difference of the sums of squares would be all rounding error here."""
    x = 1e4 + randn(4, 100)
    for given, count in ((x, 2), (x.half(), 3)):  # mean, squares and, if not in float64, correction
        program = lowered(lambda x: x.var(-1), given).program
        sums = [k for k in program.nodes if isinstance(k, Kernel) and any(op.name == "reduce" for op in k.body.ops)]
        assert len(sums) == count


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim: int) -> None:
    for x in (X, X.bfloat16(), X.transpose(0, 2)):
        assert not lowered(lambda x: x.softmax(dim), *grads(x)).externs
        assert not lowered(lambda x: x.log_softmax(dim), *grads(x)).externs


def test_softmax_of_a_row_without_a_number() -> None:
    """Eager gives NaN for a row that is minus infinity throughout."""
    x = torch.tensor([[-float("inf")] * 3, [0.0, -float("inf"), 1.0]])
    lowered(lambda x: (x.softmax(-1), x.log_softmax(-1)), x)


def test_a_result_that_nobody_uses_costs_no_kernel() -> None:
    assert len(lowered(lambda x: x.max(1)[0], X).kernels) == 1


@pytest.mark.parametrize("order", [1, 2, 6, 0.5, float("inf"), float("-inf"), 0])
def test_norm_of_single_elements_is_exact(order: float) -> None:
    x = torch.tensor([[1e-30], [-3e30], [0.1], [0.0]])
    (program,) = lowered(lambda x: torch.linalg.vector_norm(x, order, dim=1), x).programs
    assert torch.equal(run_program(program, [x])[0], (x != 0).float()[:, 0] if order == 0 else x.abs()[:, 0])


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_distances_of_pairs(order: float) -> None:
    for x, y in (
        (randn(3, 4), randn(5, 4, seed=1)),
        (randn(2, 1, 3, 4), randn(6, 5, 4, seed=1)),
        (randn(1, 1), randn(1, 1)),
    ):
        assert not lowered(lambda x, y: torch.cdist(x, y, order, "donot_use_mm_for_euclid_dist"), x, y).externs


def test_distances_that_stay_calls() -> None:
    assert lowered(torch.cdist, randn(30, 4), randn(5, 4)).externs
    assert lowered(torch.cdist, randn(3, 0), randn(5, 0)).externs


LARGE = {
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.var_mean(x, -1)[0],
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (x.shape[-1],)),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("size", [1.7e308, 1e200])
def test_a_variance_overflows_to_infinity_and_not_to_nan(name: str, size: float) -> None:
    """The variance of large values overflows to infinity; that of equal values is 0 although their sum overflows."""
    different = torch.tensor([[0.9, 0.5, 0.25, 0.75, 0.1], [-0.8, -0.2, -0.9, -0.5, -0.3]], dtype=torch.float64) * size
    equal = torch.full((2, 5), size, dtype=torch.float64)
    compiled = torch.compile(LARGE[name], backend=minductor.minductor)
    for x in (different, equal):
        torch.testing.assert_close(compiled(x), LARGE[name](x), rtol=1e-6, atol=0)


def test_a_mean_near_the_ends_of_float64() -> None:
    compiled = torch.compile(lambda x: torch.var_mean(x, -1)[1], backend=minductor.minductor)
    for size in (1.7e308, 1.0, 1e-310):
        x = torch.tensor([0.5, 1.0, 0.75, 0.9], dtype=torch.float64) * size
        torch.testing.assert_close(compiled(x), torch.tensor(0.7875, dtype=torch.float64) * size, rtol=1e-12, atol=0)
