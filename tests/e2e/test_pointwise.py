"""Elementwise functions and views, from torch.compile to the numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_plugin import at_most
from pytest_plugin.goldens.golden import Goldens
from pytest_plugin.oracle.compiled import Compile


def gelu_tail(x: Tensor) -> Tensor:
    return F.gelu(2 * x + 1) - 0.5


@pytest.mark.golden(view=("kernel", "wrapper"))
@pytest.mark.counts(kernels=1, externs=0, block_accesses=2, bytes=2 * 4 * 64 * 128)
def test_chain(compiled: Compile, device: str) -> None:
    compiled(gelu_tail, torch.randn(64, 128, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_broadcast(compiled: Compile, device: str) -> None:
    row, column = torch.randn(48, device=device), torch.randn(32, 1, device=device)
    compiled(lambda x, r, c: (x + r) * torch.sigmoid(c), torch.randn(8, 32, 48, device=device), row, column)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_transposed_read(compiled: Compile, device: str) -> None:
    compiled(lambda x, y: x.t() + y, torch.randn(320, 192, device=device), torch.randn(192, 320, device=device))


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_bfloat16_stays_wide_inside(compiled: Compile, device: str) -> None:
    compiled(lambda x: torch.tanh(x * 3) * x + 1, torch.randn(64, 64, device=device).bfloat16())


@pytest.mark.golden(view="kernel")
@pytest.mark.counts(kernels=1, externs=0)
def test_in_place_update_of_an_input(compiled: Compile, device: str) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(0.9).add_(y, alpha=0.1)
        return x * 2

    compiled(fn, torch.randn(16, 33, device=device), torch.randn(16, 33, device=device))


@pytest.mark.counts(kernels=2, externs=0, bytes=at_most("100 KiB"))
def test_training(compiled: Compile, device: str) -> None:
    compiled(gelu_tail, torch.randn(32, 64, device=device), grad=True)


def test_gradients_of_hardsigmoid_are_eagers_in_float64() -> None:
    """Its sixth is rounded to float32."""
    x, grad = torch.randn(20, dtype=torch.float64), torch.ones(20, dtype=torch.float64)
    backward = torch.ops.aten.hardsigmoid_backward
    assert torch.equal(torch.compile(backward, backend="minductor")(grad, x), backward(grad, x))


VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "slice": lambda x: x[1:, ::2] + 1,
    "reshape": lambda x: (x * 2).reshape(4, 48, 2).transpose(0, 1) + 1,
    "expand": lambda x: x[:, None].expand(-1, 3, -1) * 2,
    "flip": lambda x: x.flip(1) - x,
    "cat": lambda x: torch.cat((x, x * 2, x[:3]), 0) + 1,
    "stack": lambda x: torch.stack((x, x + 1), 1) * 2,
    "pad": lambda x: F.pad(x, (1, 2), value=3.0) * 2,
    "chunk": lambda x: tuple(part * 2 for part in x.chunk(3, 1)),
    "select": lambda x: x[2] * x[:, 5, None],
    "output view": lambda x: (x + 1).t(),
    "where": lambda x: torch.where(x > 0, x, x.exp()),
    "masked fill": lambda x: x.masked_fill(x > 0.5, -1.0),
    "clamp": lambda x: x.clamp(-0.5, 0.5).abs().sqrt(),
    "round": lambda x: (x * 10).round() + (x * 10).trunc() + x.floor() + x.ceil(),
    "logic": lambda x: ((x > 0) & ~(x > 1)) | (x == 0),
    "integers": lambda x: (x * 10).to(torch.int32) // 3 % 5,
    "half": lambda x: x.half() * 2 + 1,
    "double": lambda x: torch.erf(x.double()),
    "constants": lambda x: x + torch.arange(24, device=x.device) + torch.full((8, 1), 2.0, device=x.device),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.counts(externs=0)
def test_views_and_functions(compiled: Compile, device: str, name: str) -> None:
    compiled(VIEWS[name], torch.randn(16 if name == "reshape" else 8, 24, device=device))


@pytest.mark.counts(kernels=0, externs=0)
def test_a_view_of_an_input_is_no_kernel(compiled: Compile, device: str) -> None:
    compiled(lambda x: x[2:].t(), torch.randn(5, 6, device=device))


@pytest.mark.counts(kernels=0)
def test_empty_tensors_launch_nothing(compiled: Compile, device: str) -> None:
    compiled(lambda x: x.sin() * 2, torch.randn(0, 4, device=device))


@pytest.mark.parametrize(
    "dtypes", [("int32", "float32"), ("uint8", "int64"), ("bool", "float16"), ("bfloat16", "float16")]
)
@pytest.mark.counts(kernels=1, externs=0)
def test_promotion(compiled: Compile, device: str, dtypes: tuple[str, str]) -> None:
    x, y = ((torch.rand(7, 9, device=device) * 4).to(getattr(torch, dtype)) for dtype in dtypes)
    compiled(lambda x, y: (x + y) * 2, x, y)


@pytest.mark.counts(kernels=1, externs=0)
def test_special_values(compiled: Compile, device: str) -> None:
    values = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e38, 88.8, -104.0]
    compiled(
        lambda x: (x.exp(), x.tanh(), x.abs(), x * 2, torch.maximum(x, x * 0.5), x.sqrt(), F.relu(x), F.silu(x)),
        torch.tensor(values, device=device),
    )


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 5), (2, 3, 4, 5, 6)])
def test_shapes(compiled: Compile, device: str, shape: tuple[int, ...]) -> None:
    compiled(lambda x: x.sin() * 2, torch.randn(shape, device=device))


@pytest.mark.parametrize("layout", ["transposed", "strided", "offset", "channels last", "expanded"])
@pytest.mark.counts(kernels=1, externs=0)
def test_layouts_of_inputs_reach_the_outputs(compiled: Compile, device: str, layout: str) -> None:
    x = {
        "transposed": torch.randn(6, 4, device=device).t(),
        "strided": torch.randn(8, 10, device=device)[::2, ::2],
        "offset": torch.randn(50, device=device)[10:30].reshape(4, 5),
        "channels last": torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last),
        "expanded": torch.randn(5, 1, device=device).expand(5, 7),
    }[layout]
    compiled(lambda x: x * 2 + 1, x)


@pytest.mark.golden
@pytest.mark.counts(kernels=1, externs=0)
def test_dynamic_sizes(compiled: Compile, device: str) -> None:
    run = compiled(
        lambda x, y: x * 2 + y, torch.randn(6, 8, device=device), torch.randn(8, device=device), dynamic=True
    )
    for rows, columns in ((7, 8), (3, 11), (300, 2)):
        run.again(torch.randn(rows, columns, device=device), torch.randn(columns, device=device))
    assert len(run.graphs) == 1


def test_equal_kernels_are_printed_once(compiled: Compile, device: str, golden: Goldens) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = F.gelu(x @ w)
        return x

    run = compiled(fn, torch.randn(16, 16, device=device), torch.randn(16, 16, device=device))
    # on a GPU a product is a kernel too and takes in what stands around it: no two of the three are equal
    assert run.report.kernels == 3 and len(run.kernels) == (3 if "@triton.jit" in run.kernels[0] else 1)
    golden.check(run)


@pytest.mark.counts(kernels=1, externs=0)
def test_transposed_reads_stand_in_the_loops_that_they_need(compiled: Compile, device: str) -> None:
    """What is costly and does not vary along the first dimension is computed before, in blocks of its own."""
    x = torch.randn(48, device=device).as_strided((4, 4, 3), (4, 1, 16))
    compiled(lambda x: (x[1].exp().log1p().sin() + x).contiguous() * 2, x)


def test_blocks_of_a_whole_row_are_transposed_to_their_places(compiled: Compile, device: str) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return F.silu((x + y).expand(2, 65, 7))

    compiled(fn, torch.randn(7, 65, device=device).t(), torch.randn(65, 7, device=device))


def test_expanded_dimensions_of_16_bits_leave_the_layout_to_the_others(compiled: Compile, device: str) -> None:
    row = torch.randn(7, device=device).bfloat16()
    compiled(lambda x, y: x + y, row.expand(5, 7), torch.randn(7, 5, device=device).bfloat16().t())
