"""Each row of the table of fusions: its kernels, externs and bytes, and its values."""

from __future__ import annotations

import pytest

from pytest_plugin.compiled import Compile
from tests.e2e.fusion_table import ROWS, Row


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_row(row: Row, compiled: Compile) -> None:
    run = compiled(row.program, *row.inputs(), grad=row.grad, dynamic=row.dynamic)
    if row.kernels is not None:
        assert (run.report.kernels, run.report.externs) == (row.kernels, row.externs), run.report.refusals
    if row.bytes is not None:
        assert run.report.bytes == row.bytes


def test_few_rows_differ_from_what_is_expected_elsewhere() -> None:
    """And each says why."""
    differing = [row for row in ROWS if row.elsewhere is not None]
    assert all(row.because and row.elsewhere != row.kernels for row in differing)
    assert len(differing) <= len(ROWS) / 20
