"""One kernel under construction.

Takes the extents of a domain and operands. Gives coordinates, the operands' elements there, and their reduction; axes
of extent 1 get no loop. Refuses complex numbers.

>>> loop = Loop([integer(4), integer(1), integer(7)])
>>> [str(c) for c in loop.coords]
['i0', '0', 'i1']
"""

from __future__ import annotations

from collections.abc import Sequence

from minductor.core.dtypes import I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, Symbol, as_int, integer, symbol
from minductor.frontend.lowering_context.values import Operand, Term, broadcast, element, is_one, number_dtype
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Axis, Body, Check, View


class Loop:
    """Coordinates of a domain, and loads and reductions at them; the rules of stores are the lowering's."""

    def __init__(self, extents: Sequence[Expr], first: int = 0) -> None:
        self.extents = tuple(extents)
        self.axes: list[Axis] = []
        coords: list[Expr] = []
        for extent in self.extents:
            if is_one(extent):
                coords.append(integer(0))
                continue
            known = as_int(extent)
            axis = symbol(f"i{first + len(self.axes)}", "axis", 0, None if known is None else max(known - 1, 0))
            self.axes.append(Axis(axis, extent))
            coords.append(axis)
        self.coords = tuple(coords)
        self.b = Builder([a.symbol for a in self.axes], {a.symbol: a.extent for a in self.axes})

    def term(self, position: int) -> Term:
        return Term(self.b, position)

    def load(self, operand: Operand, coords: Sequence[Expr] | None = None, dtype: DType | None = None) -> Term:
        """An operand's element at `coords` (the loop's own if none), broadcast, as the compute dtype of `dtype`."""
        match operand:
            case View():
                at = broadcast(operand, self.coords if coords is None else coords)
                if coords is None:
                    at = self._wrapped(operand, at)
                found = self.b.load(operand.ref, element(operand, at), compute_dtype(operand.dtype))
            case Expr():
                found = self.b.index(operand)
            case _:
                if isinstance(operand, complex):
                    raise ValueError("complex numbers are no operands of kernels")
                wanted = dtype or (number_dtype(operand))
                return self.term(self.b.constant(operand, compute_dtype(wanted)))
        value = self.term(found)
        return value if dtype is None else value.cast(compute_dtype(dtype))

    def _wrapped(self, operand: View, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """A size that is not written as the loop's own may turn out to be 1: the remainder is right for both.

        One of 0 makes the loop's own 0 as well.
        """
        extents = self.extents[len(self.extents) - len(at) :]
        return tuple(
            [
                c if n == extent or as_int(n) in (0, 1) else c % n
                for c, n, extent in zip(at, operand.size, extents, strict=True)
            ]
        )

    def index(self, expr: Expr, dtype: DType) -> Term:
        return self.term(self.b.index(expr, compute_dtype(dtype)))

    def reduce(self, values: Sequence[Term], dims: Sequence[int], how: str) -> Term:
        """Joins over dimensions of the domain; those of size 1 have nothing to join, but a sum begins at 0.0."""
        names = [s.name for d in dims if isinstance(s := self.coords[d], Symbol)]
        if not names:
            return without_negative_zero(values[0]) if how == "sum" else values[0]
        return self.term(self.b.reduce([v.at for v in values], names, combine(how, values[0].dtype)))

    def body(self) -> Body:
        """All ops, with an effect that needs each index which no load needs, as an index into an expanded tensor."""
        ops = self.b.build().ops
        checks = [p for p, op in enumerate(ops) if isinstance(op.attrs, Check) and op.attrs.error is not None]
        if checks:
            used = {position for op in ops for position in op.args}
            for position in (p for p in checks if p not in used):
                self.b.assertion(self.b.op("ge", position, self.b.constant(0, I64)), "the index exists")
        return self.b.build()


def without_negative_zero(value: Term) -> Term:
    """What a sum that begins at 0.0 is after its first term: the term, but never -0.0."""
    return value + 0.0 if value.dtype.kind == "float" else value
