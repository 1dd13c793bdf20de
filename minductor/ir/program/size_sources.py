"""Sizes of tensors from which the value of a symbol can be computed, for symbols whose values depend on data.

Takes an Extern and a symbol that it defines, or the sizes of tensors. Gives the tensor, its dimension, and the numbers
with which `size == scale * symbol + shift`. Refuses (None) a symbol that is in no size, or not linear in it.

>>> from minductor.core.expressions.expr import symbol
>>> u = symbol("u0", "size", 0)
>>> size_sources([("x", (2 * u + 1, 8))])
{Symbol<u0>: ('x', 0, 2, 1)}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear
from minductor.ir.program.nodes import Extern, View

T = TypeVar("T")


def size_source(node: Extern, symbol: Symbol) -> tuple[int, int, int, int] | None:
    """The result and dimension of a call whose size gives the symbol's value, or None.

    (r, d, scale, shift): the size of result r along dimension d is `scale * symbol + shift`.
    """
    sizes = ((number, result.size) for number, result in enumerate(node.results) if isinstance(result, View))
    return size_sources(sizes).get(symbol)


def size_sources(layouts: Iterable[tuple[T, Sequence[object]]]) -> Mapping[Symbol, tuple[T, int, int, int]]:
    """For each symbol a tensor's size from which its value can be computed, as (tensor, dim, scale, shift).

    The size of the tensor along `dim` is `scale * symbol + shift`. `layouts` are pairs of a tensor and its sizes. A
    size that is the symbol itself is preferred, then the first size.
    """
    sizes = [(of, dim, size) for of, row in layouts for dim, size in enumerate(row) if isinstance(size, Expr)]
    told: dict[Symbol, tuple[T, int, int, int]] = {}
    for of, dim, size in sorted(sizes, key=lambda found: not isinstance(found[2], Symbol)):
        for symbol in free_symbols(size):
            if symbol not in told and (rule := scale_and_shift(size, symbol)) is not None:
                told[symbol] = (of, dim, *rule)
    return told


def scale_and_shift(size: Expr, symbol: Symbol) -> tuple[int, int] | None:
    """The numbers (scale, shift) for which `size == scale * symbol + shift`; None if there are none."""
    if symbol not in free_symbols(size):
        return None
    found = linear(size, (symbol,))
    scale, shift = (None, None) if found is None else (as_int(found[0][symbol]), as_int(found[1]))
    return (scale, shift) if scale and shift is not None else None
