"""The points of a kernel, which are the combinations of values of its axes: how many, and which one touches an element.

Takes axes and index expressions. Gives solutions of `store index == load index` for the axes, tests whether two sets of
points match one to one, and estimates of their number. Refuses (None) layouts in which several points may touch one
element.

>>> from minductor.core.expressions.expr import integer, symbol
>>> i, j, n = symbol("i0", "axis", 0, 3), symbol("i1", "axis", 0, 7), symbol("j0", "axis", 0, 31)
>>> axes = (Axis(i, integer(4)), Axis(j, integer(8)))
>>> {str(axis): str(value) for axis, value in (solve(8 * i + j, axes, as_expr(n), {}) or {}).items()}
{'i0': 'j0//8', 'i1': 'j0 % 8'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from minductor.core.expressions.algebra import children
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, FloorDiv, Max, Min, Mod, Symbol, as_expr, as_int, free_symbols, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.core.expressions.rewrite import delinearize, simplify
from minductor.ir.program.nodes import EFFECTS, Axis, Buffer, Kernel, Reduce, Scan, Store

NOT_POINTWISE = (Reduce, Scan, *EFFECTS)
Solution = dict[Symbol, Expr]


def solve(index: Expr, axes: Sequence[Axis], target: Expr, extents: Mapping[Symbol, Expr]) -> Solution | None:
    """The axes in `index` as expressions in the symbols of `target`, such that index == target; None if not proved.

    The solution holds for targets that some point of the axes touches. `extents` bounds the symbols of the target.
    """
    split = linear(index, [axis.symbol for axis in axes])
    if split is None:
        return None
    coefficients, rest = split
    named = [axis for axis in axes if as_int(coefficients[axis.symbol]) != 0]
    if any(symbol.kind in ("axis", "value") for symbol in free_symbols(rest)):
        return None
    strides = [coefficients[axis.symbol] for axis in named]
    found = delinearize(target - rest, [axis.extent for axis in named], strides, extents)
    return None if found is None else {axis.symbol: at for axis, at in zip(named, found, strict=True)}


def extents_of(axes: Iterable[Axis]) -> dict[Symbol, Expr]:
    """The number of values of each axis, by its symbol."""
    return {axis.symbol: axis.extent for axis in axes}


def has_division(expr: Expr) -> bool:
    """Whether an expression contains // or %."""
    return isinstance(expr, FloorDiv | Mod) or any(has_division(part) for part in children(expr))


def is_bent(expr: Expr) -> bool:
    """Whether an expression contains //, %, a minimum or a maximum: the extents of its axes may make it simpler."""
    return isinstance(expr, FloorDiv | Mod | Min | Max) or any(is_bent(part) for part in children(expr))


def is_bijection(solution: Mapping[Symbol, Expr], source: Mapping[Symbol, Expr], target: Mapping[Symbol, Expr]) -> bool:
    """Whether a solution maps the points of the target axes one to one to the points of the source axes.

    `source` and `target` are extents by axis; target axes that the solution does not mention are left out. The proof
    numbers the points of the source row by row. The solution is a bijection if this number, written in the target
    axes, is a mixed radix number: sorted by stride, each axis has the product of the extents before it as its stride.
    Each coordinate must also be proved to lie within its source axis.
    """
    if all(isinstance(at, Symbol) and at in target for at in solution.values()):
        same = all(source[axis] == target[at] for axis, at in solution.items() if isinstance(at, Symbol))
        return same and len(set(solution.values())) == len(solution)
    if not all(at_least(at, 0, target) and at_least(source[axis] - 1 - at, 0, target) for axis, at in solution.items()):
        return False
    number: Expr = as_expr(0)
    for axis, at in solution.items():
        number = number * source[axis] + at
    split = linear(simplify(number, target), target)
    if split is None or as_int(split[1]) != 0:
        return False
    radices = {axis: c for axis, c in split[0].items() if as_int(c) != 0}
    expected: Expr = as_expr(1)
    while radices:
        axis = next((axis for axis, c in radices.items() if c == expected), None)
        if axis is None:
            return False
        expected = expected * target[axis]
        del radices[axis]
    return expected == product(source[axis] for axis in solution)


def product(sizes: Iterable[Expr]) -> Expr:
    """The product of sizes as an expression."""
    return prod(sizes, start=as_expr(1))


def buffer_bytes(buffer: Buffer, hints: Hints) -> int:
    """The bytes of a buffer's elements, with unknown sizes estimated."""
    return estimate(buffer.size, hints) * buffer.dtype.itemsize


def count_points(kernel: Kernel, hints: Hints) -> int:
    """The number of points of a kernel, with unknown extents estimated."""
    return estimate([axis.extent for axis in kernel.axes], hints)


def pure_store(kernel: Kernel) -> Store | None:
    """The store of a kernel that does nothing but compute and store one value for each point; None for any other."""
    found: Store | None = None
    for op in kernel.body.ops:
        if op.attrs is not None and isinstance(op.attrs, NOT_POINTWISE):
            if found is not None or not isinstance(op.attrs, Store):
                return None
            found = op.attrs
    return found
