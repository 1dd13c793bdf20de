"""Each row of the table of fusions: its kernels, externs and bytes, and its values."""

from __future__ import annotations

import pytest
import torch

from pytest_plugin.oracle.compiled import Compile
from tests.e2e.fusion_table import ROWS, Row, gelu_three_times

# Each is like another row: the one of which the name here is an extension, or its neighbour in the table.
LONG = (
    "accumulated_by_three",
    "block_scales_repeated",
    "head_norm_and_interleaved_rotary",
    "heads_norm_added",
    "norm_then_block_scales",
    "shifted_onto_itself",
    "stacked",
)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name, marks=pytest.mark.long if row.name in LONG else ()) for row in ROWS]
)
def test_row(row: Row, compiled: Compile) -> None:
    options = (
        {"max_live_bytes": row.max_live_bytes} if row.max_live_bytes else {}
    )  # other compilers have no such option
    run = compiled(row.program, *row.inputs(), grad=row.grad, dynamic=row.dynamic, options=options)
    if row.kernels is not None:
        assert (run.report.kernels, run.report.externs) == (row.kernels, row.externs), run.report.refusals
    if row.bytes is not None:
        assert run.report.bytes == row.bytes
    if row.peak is not None:
        assert run.report.peak is not None
        assert run.report.peak <= row.peak


def test_few_rows_differ_from_what_is_expected_elsewhere() -> None:
    """And each says why."""
    differing = [row for row in ROWS if row.elsewhere is not None]
    assert all(row.because and row.elsewhere != row.kernels for row in differing)
    assert len(differing) <= len(ROWS) / 18


def test_an_error_function_that_three_use_is_computed_once(compiled: Compile) -> None:
    run = compiled(gelu_three_times, torch.randn(64, 256), torch.randn(64, 256))
    (kernel,) = run.graphs[0].kernels
    assert kernel.text.split('extern "C"')[-1].count("md_erf_f32(") == 1
