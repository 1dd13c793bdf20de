"""Which recipe the prices take for rows of a length on an H200, where the fastest one was measured.

Takes rows of 2**27 elements without memory. Gives nothing. `benchmarks/cost_model.md` has the measurements. A length
stands here if other recipes take at least 1.05 times as long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import minductor

FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {  # with the number of weights
    "softmax": (lambda x: torch.softmax(x, -1), 0),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), 2),
}
NARROW, WIDE = torch.bfloat16, torch.float32


def compiled(name: str, length: int, dtype: torch.dtype) -> minductor.Compilation:
    fn, weights = FUNCTIONS[name]
    sizes = [(2**27 // length, length), *[(length,)] * weights]
    with torch.no_grad():
        return minductor.compile_only(fn, *(torch.empty(size, dtype=dtype, device="meta") for size in sizes))


@pytest.mark.parametrize(
    ("name", "length", "dtype", "fastest"),
    [
        ("layer_norm", 1000, NARROW, {"persistent1", "persistent2"}),
        ("softmax", 1000, WIDE, {"persistent4"}),  # a thread adds up few values
        ("layer_norm", 4097, NARROW, {"aligned4"}),
        ("softmax", 8192, NARROW, {"persistent4", "persistent8"}),
        ("softmax", 32768, NARROW, {"looped16"}),
        ("softmax", 65536, NARROW, {"looped32"}),  # in registers it takes 3.4 times as long
        ("layer_norm", 65536, NARROW, {"looped16", "looped32"}),  # in registers 7.6 times
        ("layer_norm", 131072, NARROW, {"online32"}),  # in two walks for its mean and variance 1.2 times
        ("layer_norm", 262144, NARROW, {"online32"}),  # in parts 1.13 times
    ],
)
def test_the_fastest_recipe_is_taken(name: str, length: int, dtype: torch.dtype, fastest: set[str]) -> None:
    (graph,) = compiled(name, length, dtype).graphs
    (taken,) = {taken for _, taken, _, _, _ in graph.report.variants} - {"whole"}
    assert taken in fastest


@pytest.mark.parametrize(("dtype", "sums"), [(NARROW, 2), (WIDE, 3)])
def test_a_mean_of_16_bit_values_is_not_corrected(dtype: torch.dtype, sums: int) -> None:
    """The third sum is that of the distances from a rounded mean."""
    assert compiled("layer_norm", 1024, dtype).source.count("tl.sum(") == sums


def columns_beside_rows(x: torch.Tensor, g: torch.Tensor, w: torch.Tensor, mean: torch.Tensor) -> Any:
    """The gradients of a layer norm: rows and columns are reduced."""
    return torch.ops.aten.native_layer_norm_backward(g, x, [x.shape[-1]], mean, mean, w, w, [True, True, True])


def joined_gradients(x: torch.Tensor, g: torch.Tensor, y: torch.Tensor) -> Any:
    """The gradients of three projections side by side, and those of their biases."""
    joined = torch.cat((x, g, y), -1)
    return joined, joined.sum(0)


def empty(*size: int, dtype: torch.dtype = NARROW) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def test_warps_share_no_column_beside_rows() -> None:
    """With 16 warps, of which several had parts of one column, this kernel took 40 us; with two it takes 8."""
    rows = [empty(6304, 512), empty(6304, 512), empty(512), empty(6304, 1, dtype=WIDE)]
    (graph,) = minductor.compile_only(columns_beside_rows, *rows).graphs
    launches = [json.loads(line.rstrip(",")) for line in graph.sources["launches.json"].splitlines()[1:-1]]
    launch, join = launches
    assert "+" in join["programs"]  # one launch joins the parts of both sums, which one kernel has made
    assert "R1_BLOCK" in launch["blocks"]
    assert launch["warps"] == 2
    assert launch["programs"][0] >= 2 * 132


def test_sums_of_a_concatenation_are_cut() -> None:
    """Whole, 16 programs took 143 us; in parts 256 programs take 12 us."""
    (graph,) = minductor.compile_only(joined_gradients, *(empty(6304, 512) for _ in range(3))).graphs
    assert "cut" in {taken for _, taken, _, _, _ in graph.report.variants}


@pytest.mark.parametrize(("rows", "counts"), [(100_352, "[1, 1]"), (100_003, "[XBLOCK, R0_BLOCK]")])
def test_lanes_share_the_count_of_a_variance_where_none_is_masked(rows: int, counts: str) -> None:
    source = minductor.compile_only(lambda x: torch.var_mean(x.float(), 0), empty(rows, 256)).source
    (count,) = re.findall(r"_2 = tl.full\((\[[^\]]*\]), 0.0, tl.float32\)\n    for", source)[:1]
    assert count == counts


@pytest.mark.parametrize(("rows", "length"), [(8192, 1024), (2048, 8192), (6304, 512)])
def test_rows_beside_columns_are_loaded_ahead(rows: int, length: int) -> None:
    """Otherwise each step waits for its own rows: 1.65 times as long for 1024 elements, 1.29 times for 8192."""
    given = [empty(rows, length), empty(rows, length), empty(length), empty(rows, 1, dtype=WIDE)]
    (graph,) = minductor.compile_only(columns_beside_rows, *given).graphs
    assert re.search(r"in tl\.range\(0, \d+, \w+, num_stages=3\):", graph.sources["kernels.py"])
    assert "cp.async" in graph.kernels[0].assembly
    assert graph.kernels[0].spills == 0


def test_columns_of_few_programs_are_loaded_ahead() -> None:
    """A sum of 1024 rows of 32,000 elements took 23.7 us, and 20 so."""
    (graph,) = minductor.compile_only(lambda x: x.sum(0), empty(1024, 32_000)).graphs
    assert "num_stages=4" in graph.sources["kernels.py"]


def test_rows_that_are_walked_again_are_not_loaded_ahead() -> None:
    """They lose the cache to the blocks that are under way: a softmax of 65,536 took 1.6 times as long."""
    for name in FUNCTIONS:
        assert "num_stages" not in compiled(name, 65536, NARROW).source
