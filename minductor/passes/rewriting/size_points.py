"""When a kernel has variants: if they are measured, or if the option `size_hints` asks for sizes.

Takes a kernel, the options and the program's hints. Gives the points: a size for each symbol of the kernel, with the
hints that stand for it. Refuses (None) kernels without symbols, targets without variants, and, where results must be
the same in every run, kernels whose variants may differ in bits. A point beyond `MOST_POINTS` is left out.
"""

from __future__ import annotations

from itertools import islice, product
from typing import NamedTuple

from minductor.core.expressions.expr import Symbol
from minductor.core.expressions.hints import Hints, clamped
from minductor.ir.program.choices import Point
from minductor.ir.program.nodes import Kernel, symbols_in
from minductor.ir.program.variants import affects
from minductor.target import Env

MOST_POINTS = 16  # of a kernel: each may be a variant that is compiled


class SizePoints(NamedTuple):
    """The symbols of a kernel, in order of name; and by point the hints with these sizes."""

    symbols: tuple[Symbol, ...]
    hints: dict[Point, Hints]


def is_measured(kernel: Kernel, env: Env) -> bool:
    """Whether the variant of a kernel is chosen by measuring."""
    return env.options.autotune and _may_vary(kernel, env)


def _may_vary(kernel: Kernel, env: Env) -> bool:
    return env.target.has_variants and not (env.options.deterministic and affects(kernel) == "bits")


def size_points(kernel: Kernel, env: Env, hints: Hints) -> SizePoints | None:
    """The points of a kernel; None if it has no variants by size."""
    asked = env.options.size_hints
    if not asked or not _may_vary(kernel, env):
        return None
    found = {s for axis in kernel.axes for s in symbols_in(axis.extent) if s.kind == "size"}
    symbols = tuple(sorted(found, key=lambda symbol: symbol.name))
    given = dict(hints)
    if isinstance(asked[0], int):
        sizes = [[clamped(symbol, size) for symbol in symbols] for size in asked]
    else:
        named = dict(asked)
        symbols = tuple(symbol for symbol in symbols if symbol.name in named)
        each = [[clamped(symbol, size) for size in named[symbol.name]] for symbol in symbols]
        sizes = [list(point) for point in islice(product(*each), MOST_POINTS)]
    if not symbols:
        return None
    points = sorted({tuple(point) for point in sizes})[:MOST_POINTS]
    return SizePoints(
        symbols, {point: tuple((given | dict(zip(symbols, point, strict=True))).items()) for point in points}
    )
