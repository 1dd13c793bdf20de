"""Sums of many 16-bit floats into few elements: rounded once and not at each step, on every target.

Eager rounds at each step on the CPU, so it is no measure there: a sum may be 4 ULP from float64, whatever eager's is.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_plugin.oracle.accuracy import Policy
from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run

ROUNDED_ONCE = Policy(k=0, ulps=4)
HALVES = (torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.long))
TERMS, ROWS, COLUMNS = 1024, 4, 8
aten = torch.ops.aten
everywhere = pytest.mark.devices("cpu", "interpret", "cuda")


def rows(device: object, *size: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Positive numbers of bfloat16, as which each dtype holds them."""
    made = torch.rand(*size, generator=torch.Generator().manual_seed(seed)).bfloat16() + 0.25
    return made.to(str(device), dtype)


def numbers(device: object, below: int, *size: int) -> Tensor:
    return torch.randint(below, size, generator=torch.Generator().manual_seed(1)).to(str(device))


def float32_buffers(run: Run) -> list[list[int]]:
    """The sizes of those that are allocated."""
    (wrapper,) = run.wrappers
    found = re.findall(r"empty_strided(?:_cuda)?\(\(([^()]*)\), \([^()]*\), f32", wrapper)
    assert "empty_strided((" in wrapper or "empty_strided_cuda((" in wrapper
    return [[int(n) for n in size.split(",") if n] for size in found]


def sums(x: Tensor, i: Tensor, v: Tensor, image: Tensor, grid: Tensor) -> dict[str, Tensor]:
    """`x` has few rows, `i` names a row for each of the many rows of `v`; `image` holds the samples of `grid`."""
    zeros, first, at = torch.zeros_like(x), v[:, 0], i[:, None].expand_as(v)
    held = x.clone()
    held.index_put_((i,), v, accumulate=True)
    return {
        "index_add": x.index_add(0, i, v),
        "index_add into zeros": zeros.index_add(0, i, v),
        "index_add scaled": x.index_add(0, i, v, alpha=0.5),
        "index_add of columns": x.index_add(1, i, v.T[: x.shape[0]]),
        "index_put": x.index_put((i,), v, accumulate=True),
        "index_put in place": held,
        "index_put of elements": x.index_put((i, 1 - i), first, accumulate=True),
        "index_put negative": zeros.index_put((-1 - i,), v, accumulate=True),
        "index_put where a mask holds": aten._unsafe_masked_index_put_accumulate(x, first > 0.5, [i, i], first),
        "put": x.put(i, first, accumulate=True),
        "scatter_add": x.scatter_add(0, at, v),
        "scatter_add of columns": x.scatter_add(1, at.T[: x.shape[0]], v.T[: x.shape[0]]),
        "scatter_reduce sum": x.scatter_reduce(0, at, v, "sum"),
        "scatter_reduce sum without itself": x.scatter_reduce(0, at, v, "sum", include_self=False),
        "scatter_reduce mean": x.scatter_reduce(0, at, v, "mean"),
        "scatter_reduce prod": x.scatter_reduce(0, at[:20], v[:20], "prod"),
        "index_reduce mean": x.index_reduce(0, i, v, "mean"),
        "embedding": aten.embedding_dense_backward(v, i, x.shape[0], -1, False),
        "embedding with padding": aten.embedding_dense_backward(v, i, x.shape[0], 1, False),
        "grid_sample": aten.grid_sampler_2d_backward(image, image[..., :3, :3], grid, 0, 0, True, [True, False])[0],
    }  # fmt: skip


def sum_arguments(device: object, dtype: torch.dtype, height: int = ROWS) -> tuple[Tensor, ...]:
    # places of the grid that the dtype holds and whose weights are exact, so that float64 sees the same
    grid = (numbers(device, 17, 1, 32, 32, 2) - 8).to(dtype) / 8
    x, v = rows(device, height, COLUMNS, dtype=dtype), rows(device, TERMS, COLUMNS, dtype=dtype, seed=2)
    return x, numbers(device, ROWS, TERMS), v, rows(device, 1, 2, 32, 32, dtype=dtype), grid


@everywhere
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_into_few_rows(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    compiled(sums, *sum_arguments(device, dtype), policy=ROUNDED_ONCE)


@everywhere
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_sums_into_few_rows_of_a_large_tensor(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    """The tensor is not copied to float32: only what is added to is."""
    x, i, v, *_ = sum_arguments(device, dtype, height=1 << 14)

    def fn(x: Tensor, i: Tensor, v: Tensor) -> dict[str, Tensor]:
        held = x.clone()
        held.index_add_(0, i * 4001, v)
        return {
            "index_add in place": held,
            "index_put of elements": x.index_put((i, 1 - i), v[:, 0], accumulate=True),
            "scatter_add": x.scatter_add(0, (i * 4001)[:, None].expand_as(v), v),
            "embedding": aten.embedding_dense_backward(v, i, x.shape[0], -1, False),
        }

    run = compiled(fn, x, i, v, policy=ROUNDED_ONCE)
    assert {rows for rows, *_ in float32_buffers(run)} == {TERMS}


@everywhere
def test_sums_into_a_large_tensor_of_as_many_values_as_the_call_has(compiled: Compile, device: str) -> None:
    grad, ids = rows(device, TERMS, COLUMNS, dtype=torch.bfloat16), numbers(device, ROWS, TERMS)

    def fn(grad: Tensor, ids: Tensor) -> Tensor:
        return aten.embedding_dense_backward(grad, ids, 1 << 16, -1, False)

    run = compiled(fn, grad, ids, dynamic=True, policy=ROUNDED_ONCE)
    run.again(grad[:100], ids[:100])
    (wrapper,) = run.wrappers
    assert re.search(r"empty_strided(_cuda)?\(\(65536, ", wrapper)
    assert not re.search(r"empty_strided(_cuda)?\(\(65536, .*f32\)", wrapper)


@everywhere
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_rows_that_are_read_often(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    def fn(given: list[Tensor], image: Tensor, i: Tensor) -> list[Tensor]:
        a, b, c, d, e, f = given
        at = i[:, None].expand(TERMS, COLUMNS)
        read = [F.embedding(i, a), b[i], c[:, i], d.gather(0, at), e.index_select(0, i), f.take(at)]
        return [*read, F.interpolate(image, scale_factor=16)]

    given = [rows(device, ROWS, COLUMNS, dtype=dtype, seed=n) for n in range(6)]
    image = rows(device, 1, 2, 2, 2, dtype=dtype)
    compiled(fn, given, image, numbers(device, ROWS, TERMS), grad=True, policy=ROUNDED_ONCE)


@pytest.mark.devices("cpu", "cuda")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_an_embedding_that_is_read_very_often(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    ids, grad = numbers(device, 32, 1 << 18), rows(device, 1 << 18, COLUMNS, dtype=dtype)
    compiled(lambda grad, ids: aten.embedding_dense_backward(grad, ids, 32, -1, False), grad, ids, policy=ROUNDED_ONCE)


@everywhere
def test_a_relative_position_bias_in_training(compiled: Compile, device: str) -> None:
    """Attention with a bias for each of few distances, as T5's: each gets a sum of 4,096 values."""
    places = torch.arange(64, device=device)
    distance = (places[:, None] - places).abs().clamp(max=7)

    def fn(table: Tensor, q: Tensor, k: Tensor, v: Tensor, w: Tensor) -> Tensor:
        scores = q @ k.mT + F.embedding(distance, table).permute(2, 0, 1)
        return (scores.float().softmax(-1).to(v.dtype) @ v - w).square().sum()

    generator = torch.Generator().manual_seed(0)
    given = (torch.randn(4, 2, 64, 16, generator=generator).to(device, torch.bfloat16) for _ in range(4))
    table, *others = rows(device, 8, 2, dtype=torch.bfloat16).requires_grad_(), *given
    (found,) = compiled(fn, table, *others).grads.values()
    exact = table.detach().double().requires_grad_()
    fn(exact, *(x.double() for x in others)).backward()
    assert exact.grad is not None
    # the loss was given a gradient of its own, which scales all
    one, other = (x.double() / x.flatten()[exact.grad.abs().argmax()] for x in (found, exact.grad))
    assert (one - other).abs().max() < 0.03


@pytest.mark.devices("compile:sm_90")
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_no_kernel_adds_to_16_bits(compiled: Compile, device: str, dtype: torch.dtype) -> None:
    run = compiled(sums, *sum_arguments("cpu", dtype))
    added = [name for text in run.kernels for name in re.findall(r"tl\.atomic_\w+\((\w+)", text)]
    assembly = "".join(str(each) for each in run.assembly)
    assert len(added) > 10 and not re.search(r"(atom|red)\.[\w.]*\.b?f16", assembly)


@everywhere
def test_values_that_cannot_meet_need_no_float32(compiled: Compile, device: str) -> None:
    """One element for each row: the gradient of a loss that picks a class. Extremes are never rounded."""
    logits, target = rows(device, 64, 40, dtype=torch.bfloat16), numbers(device, 40, 64)

    def fn(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        at = i[:, None]
        return (
            x.scatter_add(1, at, x[:, :1]), x.index_add(0, i[:1], x[:1]), x.index_put((i[:1],), x[0], accumulate=True),
            x.scatter_reduce(0, at, x, "amax"), x.scatter_reduce(0, at, x, "amin", include_self=False),
        )  # fmt: skip

    run = compiled(fn, logits, target)
    assert not float32_buffers(run)
