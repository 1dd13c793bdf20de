"""Kernels that only copy: rows by calls of the C library, and transposed blocks without a buffer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.uint8, torch.bool, torch.int64]
ROWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "side by side": lambda x, y: torch.cat((x, y), -1),
    "one behind the other": lambda x, y: torch.cat((x, y[:, :-1], x)),
    "rows backwards": lambda x, y: x.flip(0),
    "rolled": lambda x, y: x.roll(3, -1),
    "a part of rows": lambda x, y: x[:, 1:-2].clone(),
    "repeated": lambda x, y: x.repeat(2, 3),
    "looked up": lambda x, y: x[torch.tensor([2, 0, 2, 1])],
    "heads": lambda x, y: x.unflatten(1, (-1, 2)).transpose(0, 1).contiguous(),
}


def values(dtype: torch.dtype, *size: int) -> Tensor:
    return (torch.arange(torch.Size(size).numel()).reshape(size) % 251 % (2 if dtype == torch.bool else 999)).to(dtype)


def calls(run: Run, text: str) -> bool:
    """Whether a kernel, and not a function that it may call, has this text."""
    return any(text in kernel.text.split('extern "C"')[-1] for graph in run.graphs for kernel in graph.kernels)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_copied_as_they_are(compiled: Compile, dtype: torch.dtype, dynamic: bool) -> None:
    """Rows of 40 elements are shorter than what a call pays for in each dtype, those of 2100 are longer."""
    for length in (40, 2100):
        x, y = values(dtype, 5, length), values(dtype, 5, length + 1)

        def fn(x: Tensor, y: Tensor) -> list[Tensor]:
            return [each(x, y) for each in ROWS.values()]

        run = compiled(fn, x, y, dynamic=dynamic, grad=False)
        assert compiled.device.kind != "cpu" or calls(run, "md_copy_row(")


@pytest.mark.parametrize("dynamic", [False, True])
def test_elements_that_data_place_one_by_one_are_no_row(compiled: Compile, dynamic: bool) -> None:
    """Each column takes the row that its own index names, of few columns, whose indices are kept for all rows."""
    for length in (17, 40, 2100):
        x, at = values(torch.uint8, 3, length, 2), torch.tensor([length - 1, 1])
        sizes = values(torch.float32, 2, 3).sin()

        def fn(x: Tensor, at: Tensor, sizes: Tensor) -> Tensor:
            rows = at + torch.linalg.vector_norm(sizes, dim=1).long() % 1
            return torch.take_along_dim(x, rows.expand_as(x) % x.shape[-2], -2)

        compiled(fn, x, at, sizes, dynamic=dynamic, grad=False)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "matrix": lambda x: x.t().contiguous(),
    "images": lambda x: x.unflatten(0, (2, -1)).movedim(1, -1).contiguous(),
    "all": lambda x: x.unflatten(1, (2, -1)).permute(2, 1, 0).contiguous(),
}


# Rows of 4096 elements share few sets of the cache; rows of 64 and 128 are whole lines.
SIZES = [(66, 150), (64, 128), (130, 4096)]
EACH_SIZE = [torch.float32, torch.float64, torch.bfloat16, torch.uint8]  # of elements


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", EACH_SIZE, ids=str)
def test_blocks_are_transposed_as_they_are(compiled: Compile, dtype: torch.dtype, order: str) -> None:
    for size in SIZES:
        run = compiled(ORDERS[order], values(dtype, *size), grad=False)
        assert compiled.device.kind != "cpu" or calls(run, "md_copy_transposed(")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", EACH_SIZE, ids=str)
def test_blocks_of_any_size_are_transposed(compiled: Compile, dtype: torch.dtype, order: str) -> None:
    run = compiled(ORDERS[order], values(dtype, *SIZES[0]), dynamic=True, grad=False)
    assert compiled.device.kind != "cpu" or calls(run, "md_copy_transposed(")
    for size in (*SIZES[1:], (6, 8), (20, 4)):
        run.again(values(dtype, *size))
    assert len(run.graphs) == 1


@pytest.mark.parametrize("dtype", EACH_SIZE, ids=str)
def test_few_long_rows_of_a_small_kernel_are_one_block(compiled: Compile, dtype: torch.dtype) -> None:
    """They are about a multiple of 4 KiB apart, so that an array gathers their lines, 64 elements at a time."""
    run = compiled(ORDERS["matrix"], values(dtype, 2047, 4), grad=False, options={"variant": "transposed"})
    assert compiled.device.kind != "cpu" or calls(run, "md_copy_transposed(")


@pytest.mark.parametrize("size", [(65, 7), (7, 65), (130, 70), (64, 64)])
@pytest.mark.parametrize("variant", ["", "transposed"])
def test_what_a_block_makes_for_other_loops(compiled: Compile, size: tuple[int, int], variant: str) -> None:
    """The values have a row as long as the axis, of which the last block fills a part."""

    def fn(x: Tensor) -> Tensor:
        turned = x.t()
        return torch.copysign(turned.half() * 0.5 + 1, turned.nan_to_num()).expand(2, -1, -1).repeat(2, 1, 1)

    options = {"variant": variant} if variant and compiled.device.kind == "cpu" else {}
    compiled(fn, torch.randn(size), grad=False, options={"verify": True, **options})
