"""Kernels over points of a few coordinates, for the tests of the steps that choose loops.

Takes sizes. Gives sketches of kernels. Refuses nothing.
"""

from __future__ import annotations

from minductor.core.dtypes import F32, I64
from minductor.core.expressions.expr import integer
from tests.codegen.cases import Sketch, integers, randn


def points(rows: int, coordinates: int, *, functions: int = 0, is_gathered: bool = False) -> Sketch:
    """Points whose coordinates have factors of their own, and so many functions of them, one after the other.

    The factors are looked up in a table if `is_gathered`.
    """
    s = Sketch((rows, coordinates))
    i, j = s.i
    place = j
    if is_gathered:
        place = s.b.check(s.read("ids", integers(9, coordinates), I64, j), integer(9), wrap=False)
    x = s.read("a", randn(rows, coordinates), F32, coordinates * i + j)
    x = s.b.op("mul", x, s.read("b", randn(9), F32, place))
    for _ in range(functions):
        x = s.b.op("tanh", x)
    s.write(x, F32)
    return s


def strips_of_points(strips: int, rows: int) -> Sketch:
    """Strips of points of two coordinates, which have factors of their own, less one strip."""
    s = Sketch((strips, rows, 2))
    i, j, k = s.i
    x = s.b.op("mul", s.read("a", randn(strips, rows, 2), F32, 2 * rows * i + 2 * j + k), s.read("b", randn(2), F32, k))
    s.write(s.b.op("sub", x, s.read("c", randn(rows, 2), F32, 2 * j + k)), F32)
    return s
