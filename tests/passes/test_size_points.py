"""The sizes for which a kernel has variants: hints within the symbols' ranges, and few of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minductor.core.expressions.expr import Symbol, symbol
from minductor.core.expressions.hints import MOST_HINT
from minductor.ir.program.nodes import Axis, Kernel
from minductor.options import Options
from minductor.passes.rewriting.size_points import MOST_POINTS, size_points
from minductor.target import Env, by_name
from tests.passes.test_ways import KERNEL

FREE, NARROW = symbol("s0", "size", 0), symbol("s1", "size", 4, 100)


def points(*symbols: Symbol, target: str = "cpu", **options: Any) -> list[tuple[int, ...]] | None:
    """The points of a kernel with these sizes."""
    assert isinstance(KERNEL, Kernel)
    axes = tuple(Axis(symbol(f"i{n}", "axis"), size) for n, size in enumerate(symbols))
    found = size_points(replace(KERNEL, axes=axes), Env(Options(**options), by_name(target)), ())
    return None if found is None else list(found.hints)


def test_hints_are_clamped_to_the_range_of_each_symbol_and_equal_points_are_one() -> None:
    assert points(FREE, NARROW, size_hints=(1, 64, 4096, 1 << 62)) == [(1, 4), (64, 64), (4096, 100), (MOST_HINT, 100)]
    assert points(NARROW, size_hints=(200, 4096)) == [(100,)]


def test_names_have_hints_of_their_own() -> None:
    assert points(FREE, NARROW, size_hints={"s1": (8, 4096)}) == [(8,), (100,)]
    assert points(FREE, NARROW, size_hints={"s0": (8, 16), "s1": 2}) == [(8, 4), (16, 4)]
    assert points(FREE, size_hints={"s7": 8}) is None


def test_points_are_few() -> None:
    hints = {"s0": tuple(range(1, 12)), "s1": tuple(range(4, 20))}
    assert len(points(FREE, NARROW, size_hints=hints) or ()) == MOST_POINTS
    assert len(points(FREE, size_hints=tuple(range(1, 40))) or ()) == MOST_POINTS


@pytest.mark.parametrize("options", [{}, {"size_hints": (8,)}])
def test_a_kernel_without_symbols_or_hints_has_none(options: dict[str, Any]) -> None:
    assert points(*([FREE] if not options else []), **options) is None
