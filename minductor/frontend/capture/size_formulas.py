"""Formulas of a tensor's sizes and strides, each of which may be a number or an expression of symbols.

Takes and gives plain data. Refuses nothing.

>>> [str(stride) for stride in row_major(sizes((2, 3, 4)))]
['12', '4', '1']
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minductor.core.expressions.expr import Expr, as_expr, as_int, integer
from minductor.frontend.capture.captured_graph import Size


def sizes(given: Iterable[Size]) -> tuple[Expr, ...]:
    return tuple([as_expr(n) for n in given])


def is_one(size: Expr) -> bool:
    return as_int(size) == 1


def is_zero(size: Expr) -> bool:
    return as_int(size) == 0


def count(size: Iterable[Expr]) -> Expr:
    """The number of elements."""
    total = integer(1)
    for n in size:
        total = total * n
    return total


def row_major(size: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a contiguous tensor, as torch gives them: a dimension of size 0 counts as 1."""
    strides: list[Expr] = []
    step = integer(1)
    for n in reversed(size):
        strides.append(step)
        step = step if is_zero(n) else step * n
    return tuple(reversed(strides))


def is_row_major(size: Sequence[Expr], stride: Sequence[Expr]) -> bool:
    expected = row_major(size)
    return all(is_one(n) or s == e for n, s, e in zip(size, stride, expected, strict=True))


def span(size: Sequence[Expr], stride: Sequence[Expr]) -> Expr:
    """From the first element in memory to the last, in elements."""
    total = integer(1)
    for n, s in zip(size, stride, strict=True):
        total = total + (n - 1) * s
    return total
