"""Reductions over each kind of dimension, and what is made of them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from minductor.driver import Compiler
from pytest_plugin import at_least
from pytest_plugin.oracle.compiled import Compile

DIMS = ((-1,), (0,), (0, 1, 2), (0, 2), (1,))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0, block_accesses=at_least(1))  # of a GPU, the result's too
def test_sum_inner(compiled: Compile, device: str) -> None:
    compiled(lambda x: (x * 2).sum(-1), torch.randn(64, 100, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_sum_outer(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.exp().sum(0), torch.randn(100, 64, device=device))


@pytest.mark.parametrize("rows", [16, 31, 256, 1000, 5000])
@pytest.mark.counts(externs=0)
def test_sums_over_rows_stay_as_exact_as_eager(compiled: Compile, device: str, rows: int) -> None:
    run = compiled(lambda x: x.exp().sum(0), torch.randn(rows, 48, device=device))
    assert run.report.kernels == 1
    # 48 columns leave a GPU idle: the sum of many rows is split, and the last program for each column adds the parts
    if rows != 1000 and "@triton.jit" in run.kernels[0]:  # of 1000 rows both ways take as long
        assert ("counter" in run.kernels[0]) == (rows > 1000)


@pytest.mark.devices("interpret", "compile:sm_90")
@pytest.mark.parametrize("length", [pytest.param(70_000, marks=pytest.mark.long), 70_001])
@pytest.mark.counts(externs=0)
def test_few_long_rows_are_cut_in_parts_for_a_gpu(compiled: Compile, length: int) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.softmax(x + 1, 1),
            F.layer_norm(x, x.shape[1:]),
            x.round().argmax(1),
            x.var(1),
            x / x.abs().sum(1, True),
        )

    run = compiled(fn, torch.randn(2, length))
    cut = {line.split()[2] for line in run.stages["inference.split"].splitlines() if line.startswith("  note split ")}
    assert cut
    assert any(f"kernel {name}_join " in run.stages["inference.split"] for name in cut)
    # what finishes a kernel loads nothing ahead: all of its programs would have the shared memory for it
    assert "num_stages" not in "".join(part for text in run.kernels for part in text.split("tl.atomic_add(")[1:])


@pytest.mark.devices("interpret", "compile:sm_90")
@pytest.mark.parametrize(("rows", "columns"), [pytest.param(512, 128, marks=pytest.mark.long), (8, 60), (509, 128)])
@pytest.mark.counts(externs=0)
def test_rows_and_columns_are_summed_in_one_pass_on_a_gpu(compiled: Compile, rows: int, columns: int) -> None:
    """The backward of a layer norm: the gradients of its input need sums of rows, those of its weight of columns."""

    def fn(x: Tensor, dy: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        g = dy * weight
        dx = g - g.mean(1, keepdim=True) - x * (g * x).mean(1, keepdim=True)
        return dx, (dy * x).sum(0), dy.sum(0), x.amax(0)

    run = compiled(fn, torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(columns))
    assert run.report.kernels == {512: 2, 8: 1, 509: 3}[rows]


@pytest.mark.devices("interpret", "compile:sm_90")
@pytest.mark.counts(externs=0)
def test_few_long_scans_are_cut_in_blocks_for_a_gpu(compiled: Compile) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.sin().cumsum(0) * 2, x.flip(0).logcumsumexp(0).flip(0), *x.round().cummax(0)

    text = compiled(fn, torch.randn(80_000)).stages["inference.split"]
    assert "_ends " in text


def test_sums_of_a_length_that_only_the_call_knows_are_as_exact_as_others() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        twice = x[:, :, None].expand(3, -1, 2).permute(2, 0, 1).sum((0, 2))  # along rows of rows
        return twice, x.sum(1), x.amax(1), x.var(1, correction=0) + 1, x.logsumexp(1), *(n.float() for n in x.max(1))

    run = torch.compile(fn, backend="minductor", dynamic=True)
    for length in (3, 2048, 2049, 1 << 18):
        x = torch.full((3, length), 0.1)
        x[1:, -1] = 0.2
        for found, exact in zip(run(x), fn(x.double()), strict=True):
            torch.testing.assert_close(found, exact.float(), rtol=8 * torch.finfo(torch.float32).eps, atol=0)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_softmax(compiled: Compile, device: str) -> None:
    compiled(lambda x: torch.softmax(x, -1), torch.randn(32, 200, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_masked_softmax(compiled: Compile, device: str) -> None:
    mask = torch.ones(24, 24, dtype=torch.bool, device=device).triu(1)
    compiled(
        lambda x, m: torch.softmax((x / 8).masked_fill(m, -torch.inf), -1),
        torch.randn(2, 4, 24, 24, device=device),
        mask,
    )


def test_softmax_down_columns_of_a_repeated_block(compiled: Compile, device: str) -> None:
    compiled(lambda x: torch.softmax(x.expand(2, *x.shape), 1), torch.randn(7, 16, 17, device=device))


@pytest.mark.counts(kernels=2, externs=0)
def test_softmax_training(compiled: Compile, device: str) -> None:
    compiled(lambda x: torch.softmax(x, -1), torch.randn(32, 100, device=device), grad=True)


@pytest.mark.counts(externs=0)
def test_cross_entropy_training(compiled: Compile, device: str) -> None:
    targets = torch.randint(50, (64,), device=device)
    targets[3] = -100
    compiled(lambda x: F.cross_entropy(x, targets), torch.randn(64, 50, device=device), grad=True)


REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Any]] = {
    "sum": lambda x, dims: x.sum(dims),
    "mean": lambda x, dims: x.mean(dims, keepdim=True),
    "amax": lambda x, dims: x.amax(dims),
    "amin": lambda x, dims: x.amin(dims),
    "any": lambda x, dims: (x > 2).any(dims[0]),
    "all": lambda x, dims: (x < 2).all(dims[0]),
    "prod": lambda x, dims: (1 + x / 100).prod(dims[0]),
    "argmax": lambda x, dims: x.argmax(dims[0]),
    "argmin": lambda x, dims: x.argmin(dims[0]),
    "var mean": lambda x, dims: torch.var_mean(x + 10, dims),
    "std": lambda x, dims: x.std(dims),
    "logsumexp": lambda x, dims: torch.logsumexp(x, dims),
    "norm": lambda x, dims: x.square().sum(dims).sqrt(),
    "count": lambda x, dims: (x > 0).sum(dims),
}


LONG = ("amin", "all", "argmin", "std", "norm", "count")  # each is like another one


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n in LONG else ()) for n in REDUCTIONS])
@pytest.mark.counts(externs=0)
def test_every_reduction_over_every_kind_of_dimension(compiled: Compile, device: str, name: str) -> None:
    reduction = REDUCTIONS[name]
    compiled(lambda x: [reduction(x, dims) for dims in DIMS], torch.randn(5, 33, 70, device=device))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool])
@pytest.mark.counts(kernels=1, externs=0)
def test_dtypes(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    compiled(lambda x: (x.sum(-1), x.amax(-1)), (torch.rand(16, 40, device=device) * 4).to(dtype))


def test_float16_along_rows_and_columns_and_in_place(compiled: Compile, device: str) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        y.mul_(0.5).add_(x)
        return x.sum(0), x.cumsum(1), x.softmax(1), x > 0.5, x[:, 1:] - x[:, :-1]

    x, y = torch.randn(2, 41, 150, device=device).half()
    compiled(fn, x, y)
    compiled(lambda x: (x / 3, (x / 3).sum(0)), x)  # what each row of a group stores


@pytest.mark.counts(kernels=1, externs=0)
def test_nan_is_the_largest_and_the_smallest(compiled: Compile, device: str) -> None:
    x = torch.randn(4, 90, device=device)
    x[1, 70] = x[1, 80] = float("nan")
    x[2, 5] = float("inf")
    compiled(lambda x: (x.amax(-1), x.amin(-1), x.argmax(-1), x.sum(-1)), x)


@pytest.mark.counts(kernels=1, externs=0)
def test_ties_give_the_first(compiled: Compile, device: str) -> None:
    compiled(lambda x: (x.argmax(-1), x.argmin(-1)), torch.zeros(130, 130, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_siblings_share_one_reading(compiled: Compile, device: str) -> None:
    compiled(lambda x: (x.sum(-1), x.amax(-1), x.square().mean(-1)), torch.randn(40, 128, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_deviation_is_finite_where_its_square_is_not(dtype: torch.dtype) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return *torch.std_mean(x, 1), x.std(0)

    x = torch.randn(5, 40) * torch.tensor([[1e30], [1e-30], [1.0], [3e37], [1e-42]])
    x, info = x.to(dtype), torch.finfo(dtype)
    for found, exact in zip(torch.compile(fn, backend="minductor")(x), fn(x.double()), strict=True):
        torch.testing.assert_close(found, exact.to(dtype), rtol=8 * info.eps, atol=info.smallest_normal * info.eps)


@pytest.mark.parametrize("size", [3, 100, 4097])
def test_equal_elements_have_no_variance(size: int) -> None:
    """Eager's is exactly 0, and a standard deviation's gradient is 0 there and large beside."""
    x = (torch.randn(64, 1) * 3).expand(64, size)
    spread = torch.compile(
        lambda x: (x.var(1), x.std(1), torch.var_mean(x, 1)[0], x.t().contiguous().std(0)), backend=Compiler()
    )
    assert all(not t.any() for t in spread(x))


def test_a_16_bit_extreme_is_found_again_by_its_gradient() -> None:
    """What the forward saves is rounded; what the backward compares it with is computed again, in float32."""

    def fn(x: Tensor) -> Tensor:
        return (x * 1.7).amax(1).float() + (x * 1.7).scatter_reduce(
            1, torch.zeros(16, 9, dtype=torch.int64), x, "amin"
        ).sum(1)

    x = torch.randn(16, 9).bfloat16()
    slopes = []
    for call in (fn, torch.compile(fn, backend=Compiler())):
        leaf = x.clone().requires_grad_()
        slopes.append(*torch.autograd.grad(call(leaf).sum(), leaf))
    torch.testing.assert_close(slopes[1], slopes[0])


def test_what_is_made_of_a_kept_16_bit_value_is_made_of_what_is_kept() -> None:
    """As another graph finds it that is given the kept one: a backward that divides by how many elements are equal."""

    def norm_first(x: Tensor) -> tuple[Tensor, ...]:
        kept = x.norm(dim=-1, keepdim=True)
        return kept, *rest(x, kept)

    def rest(x: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        return x / kept, (x / kept).amax(0), F.layer_norm(x * kept, (33,)), torch.softmax(x - kept, -1)

    x = torch.randn(9, 33).bfloat16()
    kept, *made = torch.compile(norm_first, backend=Compiler())(x)
    torch.testing.assert_close(torch.compile(rest, backend=Compiler())(x, kept), tuple(made), rtol=0, atol=0)


def least(x: Tensor) -> Tensor:
    row = F.normalize(x, dim=-1)
    return row.scatter_reduce(0, torch.zeros(x.shape, dtype=torch.int64), row, "amin").abs()


def greatest(x: Tensor) -> Tensor:
    y = F.gelu(torch.sin(x) * torch.exp(x * 0.1))
    return (y * 1.7).amax(-1) + (y.flip(0) * y.t()).sum(-1)


@pytest.mark.parametrize("fn", [least, greatest])
def test_the_gradient_of_a_16_bit_extreme_divides_by_a_count_that_is_not_0(fn: Callable[[Tensor], Tensor]) -> None:
    """The backward computes again what the forward looked through, in kernels that end elsewhere."""
    leaf = torch.randn(16, 16, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    (slope,) = torch.autograd.grad(torch.compile(fn, backend=Compiler())(leaf).sum(), leaf)
    assert slope.isfinite().all()


def test_parts_of_columns_whose_rows_are_aligned_by_turns(compiled: Compile, device: str) -> None:
    """Each second part begins 16 bytes behind a multiple of 32: g++ 12 loaded it as if it were aligned."""
    compiled(lambda x: x.sum(0), torch.randn(300, 300, device=device))
