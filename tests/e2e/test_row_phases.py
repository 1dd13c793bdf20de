"""Rows of a CPU one by one, side by side and in phases: the same bits, and the values of eager in float64.

Takes the recipes `rows`, `side_by_side` and `phases`, forced, and rows of a length that only the call knows, which are
kept where the result will lie. Refuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_plugin.oracle.compiled import Compile
from pytest_plugin.oracle.run import Run

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
RECIPES = ("rows", "side_by_side", "phases")
FUNCTIONS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "shares and their sums": lambda x: ((y := x.abs() + 1) / y.sum(-1, keepdim=True), y.sum(-1).sqrt()),
    "masked": lambda x: x.masked_fill(x > 1, -torch.inf).softmax(-1).half(),
    "of maxima": lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1).log(),
}


def compiled_as(fn: Callable[..., object], variant: str, *, dynamic: bool = False) -> Callable[..., object]:
    torch._dynamo.reset()
    options = {"variant": variant, "fallback": "error", "verify": True}
    return torch.compile(lambda x: fn(x), backend="minductor", dynamic=dynamic, options=options)


def bits(found: object) -> list[Tensor]:
    return [each.view(torch.uint8) for each in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("length", [7, 50, 64, 100, 1000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_recipe_has_the_same_bits(name: str, length: int) -> None:
    for dtype in DTYPES:
        x = torch.randn(3, 70, length, generator=torch.Generator().manual_seed(length)).to(dtype)
        recipes = ("rows", "phases") if dtype == torch.float64 or length > 40 else RECIPES
        first, *others = (bits(compiled_as(FUNCTIONS[name], recipe)(x)) for recipe in recipes)
        for other in others:
            assert all(map(torch.equal, first, other)), dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_number_of_rows(compiled: Compile, name: str, dtype: torch.dtype) -> None:
    for variant in ("phases", ""):
        x = torch.randn(100, 60).to(dtype)
        run = compiled(FUNCTIONS[name], torch.cat((x, x)), dynamic=True, grad=False, options={"variant": variant})
        run.again(x[:77])
        run.again(x[:2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_of_any_length(compiled: Compile, name: str, dtype: torch.dtype) -> None:
    run = compiled(FUNCTIONS[name], torch.randn(5, 3000).to(dtype), dynamic=True, grad=False)
    for length in (2, 63, 64, 65, 2048, 2049):
        run.again(torch.randn(9, length).to(dtype))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_call_decides_how_many_rows_of_any_length_a_block_has(compiled: Compile, name: str) -> None:
    """Blocks of 32 short rows, of a few longer ones and of single long rows, and of fewer rows at the end."""
    run = compiled(FUNCTIONS[name], torch.randn(70, 60), dynamic=True, grad=False)
    for rows, length in ((70, 16), (33, 600), (5, 5000), (3, 20000), (1, 60)):
        run.again(torch.randn(rows, length))
    blocks = "of maxima" not in name and compiled.device.kind == "cpu"
    assert not blocks or in_kernels(run, "i0_start += i0_block")


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "masked"])
def test_rows_of_any_length_have_the_same_bits_in_phases(name: str) -> None:
    ways = [compiled_as(FUNCTIONS[name], recipe, dynamic=True) for recipe in ("rows", "phases")]
    for rows, length in ((70, 17), (40, 500), (3, 20000)):
        x = torch.randn(rows, length, generator=torch.Generator().manual_seed(length))
        assert all(map(torch.equal, *(bits(way(x)) for way in ways)))


def test_exponentials_of_rows_of_any_length_are_computed_once(compiled: Compile) -> None:
    run = compiled(FUNCTIONS["softmax"], torch.randn(5, 300), dynamic=True, grad=False)
    (kernel,) = run.graphs[0].kernels
    # in a row that needs no blocks of sums, and in one that does
    assert compiled.device.kind != "cpu" or kernel.text.split('extern "C"')[-1].count("md_exp_") == 2


@pytest.mark.parametrize("length", [50, 5000])
def test_rows_that_are_overwritten(compiled: Compile, length: int) -> None:
    def fn(x: Tensor) -> Tensor:
        x.copy_((x * 2).softmax(-1))
        return x + 1

    run = compiled(fn, torch.randn(70, length), dynamic=True, grad=False)
    run.again(torch.randn(3, 64))


def in_kernels(run: Run, text: str) -> bool:
    return any(text in kernel.text.split('extern "C"')[-1] for graph in run.graphs for kernel in graph.kernels)


def test_only_sums_in_lanes_run_past_the_end_of_a_row(compiled: Compile) -> None:
    """What is added to memory behind the row would lie beside a tensor."""
    x, y = torch.randn(2, 21).half(), torch.randn(3, 21).half()
    run = compiled(lambda x: x.sum(-1), x, grad=False)
    assert compiled.device.kind != "cpu" or in_kernels(run, "md_masked_strips<")
    places = torch.tensor([0, 0])
    run = compiled(lambda x, y: y.index_put((places,), x, accumulate=True), x, y, dynamic=True, grad=False)
    assert not in_kernels(run, "md_masked_strips<")
