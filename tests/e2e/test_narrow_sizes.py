"""Sums over axes that only the call knows, and that are much shorter or longer than a block of the loops.

Takes sums of columns, sums in parts and masks of edges on each device, with sizes that vary. Each call is compared
with eager in float64.
"""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def text_of(run: Run) -> str:
    return "".join(kernel.text.split('extern "C"')[-1] for graph in run.graphs for kernel in graph.kernels)


def averages(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((2, 3)), x.amax((0, 2, 3))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_number_of_columns(compiled: Compile, dtype: torch.dtype) -> None:
    def image(*size: int) -> Tensor:
        return torch.randn(size).to(dtype).contiguous(memory_format=torch.channels_last)

    run = compiled(averages, image(3, 5, 40, 40), dynamic=True, grad=False)
    for channels in (2, 16, 1023, 1024, 1030):
        run.again(image(2, channels, 9, 9))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_of_rows_of_any_length(compiled: Compile, dtype: torch.dtype) -> None:
    run = compiled(
        lambda x, y: (x * y[:, None]).sum(),
        torch.rand(50, 3000).to(dtype),
        torch.rand(50).to(dtype),
        dynamic=True,
        grad=False,
    )
    if compiled.device.kind == "cpu":
        assert "if (i1_end - i1_start <= 2048)" in text_of(run)
    for rows, columns in ((2, 2), (300, 65), (2, 150000), (3, 64 * 2048 + 1)):
        run.again(torch.rand(rows, columns).to(dtype), torch.rand(rows).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_edges_of_any_number_of_channels(compiled: Compile, dtype: torch.dtype) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        beside = F.pad(x * x, (0, 0, 0, 0, 1, 1))
        return x / (beside[:, :-2] + beside[:, 2:] + 1), F.pad(x * 2, (0, 0, 1, 2), value=3.0)

    run = compiled(fn, torch.rand(2, 7, 12, 12).to(dtype), dynamic=True, grad=False)
    assert compiled.device.kind != "cpu" or "= md_end_if(x" in text_of(run)
    for channels, side in ((2, 3), (6, 17), (3, 40)):
        run.again(torch.rand(2, channels, side, side).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_number_of_the_row_leaves_its_loop_under_masks(compiled: Compile, dtype: torch.dtype) -> None:
    """The length of a row is an integer outside of the loop, whose lanes compute in float32."""
    run = compiled(
        lambda x: x / (x.square().mean(-1, keepdim=True) + 1), torch.randn(9, 300).to(dtype), dynamic=True, grad=False
    )
    assert compiled.device.kind != "cpu" or ("md_masked_" in text_of(run)) == (dtype != torch.float64)
    for length in (2, 12, 16, 63, 64, 100):
        run.again(torch.randn(70, length).to(dtype))


def test_loops_over_whole_blocks_load_nothing_under_masks(compiled: Compile) -> None:
    """Past the end of an axis a mask may still hold: such loops read and wrote past their tensors and rows."""
    x = torch.randn(1, 2, 3, 6).bfloat16()
    run = compiled(lambda x: F.max_pool2d(x, 3, padding=1, dilation=(1, 2), ceil_mode=True), x, dynamic=True)
    assert "x0_row[" in text_of(run)
    assert not re.findall(r"i1 < md_index_max\(\d, i1_start\) \+ 64;", text_of(run))


def test_bytes_are_stored_beside_sizes_that_g_plus_plus_may_keep(compiled: Compile) -> None:
    """A byte may alias any other type: a loop that stores one stays scalar if it reads its end through a reference."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().clamp(-127, 127).to(torch.int8), scale

    run = compiled(fn, torch.randn(70, 300), dynamic=True, grad=False)
    if compiled.device.kind == "cpu":
        assert re.search(r"firstprivate\(in0, out1, out2, s0, s1(, \w+)*\)", text_of(run))
    run.again(torch.randn(3, 65))


def test_gates_are_as_long_as_the_state(compiled: Compile) -> None:
    """Torch's guards say that (n + 2) // 3 is the size of the state: no index of the cell wraps around."""

    def cell(given: Tensor, before: Tensor, state: Tensor) -> Tensor:
        (a, b, c), (d, e, f) = given.chunk(3, 1), before.chunk(3, 1)
        update = (b + e).sigmoid()
        new = (c + (a + d).sigmoid() * f).tanh()
        return new + update * (state - new)

    def sizes(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
        return torch.randn(rows, 3 * width), torch.randn(rows, 3 * width), torch.randn(rows, width)

    run = compiled(cell, *sizes(5, 40), dynamic=True, grad=False)
    assert len(run.kernels) == 1
    if compiled.device.kind == "cpu":
        assert not re.search(r"%|md_index_mod|/ 3", text_of(run))
    run.again(*sizes(3, 17))


def test_edges_beside_a_mask_that_varies_along_the_loop(compiled: Compile) -> None:
    """The gradient of a total variation: whether a row has neighbours is the same for a whole row, and stays a mask."""

    def fn(x: Tensor) -> Tensor:
        return (x[..., 1:, :] - x[..., :-1, :]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean()

    x = torch.arange(2 * 40 * 50.0).reshape(2, 40, 50).sin().requires_grad_()
    run = compiled(fn, x)
    if compiled.device.kind == "cpu":
        assert "= md_end_if(x" in "".join(kernel.text for graph in run.graphs for kernel in graph.kernels)


def test_masks_that_join_others_stay_branches(compiled: Compile) -> None:
    """The gradient of a replicating pad: g++ leaves its loop scalar either way, where branches cost less than ends."""
    x = torch.arange(2 * 3 * 8 * 9 * 40.0).reshape(2, 3, 8, 9, 40).sin().requires_grad_()
    run = compiled(lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), mode="replicate"), x)
    assert "md_end_if(" not in "".join(kernel.text for graph in run.graphs for kernel in graph.kernels)
