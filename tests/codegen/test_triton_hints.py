"""The printed hints: loads of rows that are walked again are kept in the cache, what nobody reads again leaves it.

Takes functions of rows. Gives nothing. It reads the texts of their kernels for sm_90, where the recipe is forced.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch

import minductor

KEPT, LEAVES = "evict_last", "evict_first"


def policies(fn: Callable[[torch.Tensor], object], columns: int, variant: str) -> list[tuple[str, str]]:
    """For each load and store of the text, in order, its kind and its eviction policy."""
    x = torch.empty(8, columns, device="meta")
    made = minductor.compile_only(fn, x, target="sm_90", options={"variant": variant})
    lines = re.findall(r"tl\.(load|store)\((.*)", made.source)
    assert variant in str(made.graphs[0].report.variants)
    return [(kind, (re.findall(r'eviction_policy="(\w+)"', rest) or [""])[0]) for kind, rest in lines]


@pytest.mark.parametrize("variant", ["looped", pytest.param("looped16", marks=pytest.mark.long)])
def test_rows_that_are_walked_again_are_kept_until_the_last_walk(variant: str) -> None:
    found = policies(lambda x: torch.softmax(x, -1), 40_000, variant)
    assert found == [("load", KEPT), ("load", KEPT), ("load", LEAVES), ("store", LEAVES)]


def test_a_row_that_is_walked_once_has_no_hints() -> None:
    assert policies(lambda x: x.sum(-1), 40_000, "looped") == [("load", ""), ("store", "")]


def test_what_each_row_reads_has_no_hints() -> None:
    weight = torch.empty(40_000, device="meta")
    found = policies(lambda x: torch.softmax(x + weight, -1), 40_000, "looped")
    row, shared = [KEPT, KEPT, LEAVES], ["", "", ""]
    assert found == [*(("load", each) for pair in zip(row, shared, strict=True) for each in pair), ("store", LEAVES)]


def test_rows_in_registers_have_no_hints() -> None:
    assert policies(lambda x: torch.softmax(x, -1), 4096, "persistent4") == [("load", ""), ("store", "")]
