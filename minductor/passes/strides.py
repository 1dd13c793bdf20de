"""How far an index moves when one axis does.

Takes an index expression and an axis; gives the difference of two neighbours, which holds the axis itself where the
step is not constant. Refuses nothing.

>>> from minductor.core.expr import symbol
>>> i, j = symbol("i", "axis", 0, 7), symbol("j", "axis", 0, 63)
>>> str(step_along(64 * i + j, i)), str(step_along(j // 8, i)), str(step_along(j // 8, j))
('64', '0', '-(j//8) + (j + 1)//8')
"""

from __future__ import annotations

from minductor.core.expr import Expr, Symbol, free_symbols, integer, substitute


def step_along(index: Expr, axis: Symbol) -> Expr:
    """The step in elements."""
    if axis not in free_symbols(index):
        return integer(0)
    return substitute(index, {axis: axis + 1}) - index
