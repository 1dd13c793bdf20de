"""One kernel under construction, and arithmetic on the values in its body.

Takes the extents of a domain and operands. Gives a coordinate per dimension, the operands' elements at coordinates, and
reductions of them; a dimension of extent 1 gets the coordinate 0 and no axis. Refuses complex numbers (ValueError).

>>> loop = KernelBuilder([integer(4), integer(1), integer(7)])
>>> [str(c) for c in loop.coords]
['i0', '0', 'i1']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from minductor.core.dtypes import I64, DType, compute_dtype
from minductor.core.expressions.expr import Expr, Symbol, as_int, integer
from minductor.frontend.capture.size_formulas import is_one
from minductor.frontend.lowering_context.values import Operand, broadcast, element, number_dtype
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Axis, Body, Check, View, axis_over


class KernelBuilder:
    """Builds the body of a kernel over a domain. `Lowering.store` and `Lowering.add_kernel` end it."""

    def __init__(self, extents: Sequence[Expr], first: int = 0) -> None:
        self.extents = tuple(extents)
        self.axes: list[Axis] = []
        coords: list[Expr] = []
        for extent in self.extents:
            if is_one(extent):
                coords.append(integer(0))
                continue
            self.axes.append(axis_over(f"i{first + len(self.axes)}", extent))
            coords.append(self.axes[-1].symbol)
        self.coords = tuple(coords)
        self.b = Builder([a.symbol for a in self.axes], {a.symbol: a.extent for a in self.axes})

    def term(self, position: int) -> KernelValue:
        """The result of the op at that position of the body."""
        return KernelValue(self.b, position)

    def load(self, operand: Operand, coords: Sequence[Expr] | None = None, dtype: DType | None = None) -> KernelValue:
        """An operand's element at `coords` (by default the kernel's), broadcast, in the compute dtype of `dtype`."""
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
                return self.term(self.b.constant(operand, compute_dtype(dtype or number_dtype(operand))))
        value = self.term(found)
        return value if dtype is None else value.cast(compute_dtype(dtype))

    def _wrapped(self, operand: View, at: Sequence[Expr]) -> tuple[Expr, ...]:
        """Coordinates for an operand whose sizes may be 1 in a call, which broadcasts them.

        If a size differs from the kernel's extent as an expression, the call may find it equal to the extent or 1. The
        coordinate modulo the size is right for both. If the size is 0, the extent is 0 and nothing is loaded.
        """
        extents = self.extents[len(self.extents) - len(at) :]
        rows = zip(at, operand.size, extents, strict=True)
        return tuple([c if n == extent or as_int(n) in (0, 1) else c % n for c, n, extent in rows])

    def index(self, expr: Expr, dtype: DType) -> KernelValue:
        """An expression of coordinates and symbols as a value."""
        return self.term(self.b.index(expr, compute_dtype(dtype)))

    def reduce(self, values: Sequence[KernelValue], dims: Sequence[int], how: str) -> KernelValue:
        """The reduction of `values` over dimensions of the domain; `how` names it ("sum", "max", ...).

        A sum starts at 0.0: even over dimensions of size 1 only it is never -0.0.
        """
        names = [s.name for d in dims if isinstance(s := self.coords[d], Symbol)]
        if not names:
            return without_negative_zero(values[0]) if how == "sum" else values[0]
        return self.term(self.b.reduce([v.at for v in values], names, combine(how, values[0].dtype)))

    def body(self) -> Body:
        """The body. A checked index that no op uses, as one into an expanded tensor, gets an assertion as its user."""
        ops = self.b.build().ops
        checks = [p for p, op in enumerate(ops) if isinstance(op.attrs, Check) and op.attrs.error is not None]
        if checks:
            used = {position for op in ops for position in op.args}
            for position in (p for p in checks if p not in used):
                self.b.assertion(self.b.op("ge", position, self.b.constant(0, I64)), "the index exists")
        return self.b.build()


def _method(name: str) -> Callable[[KernelValue, KernelValue | float], KernelValue]:
    """A method of KernelValue that adds the op `name` of its value and another one."""

    def method(self: KernelValue, other: KernelValue | float) -> KernelValue:
        return self.op(name, other)

    return method


def _reflected(name: str) -> Callable[[KernelValue, float], KernelValue]:
    """A method of KernelValue that adds the op `name` of a number and its value."""

    def method(self: KernelValue, other: float) -> KernelValue:
        return self.number(other).op(name, self)

    return method


class KernelValue:
    """The result of an op in a kernel's body, with arithmetic operators that add ops; a Python number takes its dtype.

    `at` is the position of the op in the body that `b` builds.
    """

    __slots__ = ("at", "b")

    def __init__(self, b: Builder, at: int) -> None:
        self.b = b
        self.at = at

    @property
    def dtype(self) -> DType:
        return self.b.dtype(self.at)

    def number(self, value: Expr | bool | int | float) -> KernelValue:
        """A constant, or an expression of symbols, in this value's dtype."""
        if isinstance(value, Expr):
            return self.size(value)
        return KernelValue(self.b, self.b.constant(value, self.dtype))

    def size(self, value: Expr) -> KernelValue:
        """A size, or another expression of symbols, in this value's dtype."""
        known = as_int(value)
        return self.number(known) if known is not None else KernelValue(self.b, self.b.index(value, self.dtype))

    def _as_value(self, other: KernelValue | Expr | float) -> KernelValue:
        return other if isinstance(other, KernelValue) else self.number(other)

    def op(self, name: str, *others: KernelValue | float) -> KernelValue:
        given = [self.at, *(self._as_value(o).at for o in others)]
        return KernelValue(self.b, self.b.op(name, *given))

    __add__ = _method("add")
    __sub__ = _method("sub")
    __mul__ = _method("mul")
    __truediv__ = _method("div")
    __radd__ = _reflected("add")
    __rsub__ = _reflected("sub")
    __rmul__ = _reflected("mul")
    __rtruediv__ = _reflected("div")
    __lt__ = _method("lt")
    __le__ = _method("le")
    __gt__ = _method("gt")
    __ge__ = _method("ge")
    equals = _method("eq")
    both = _method("logical_and")
    either = _method("logical_or")

    def __neg__(self) -> KernelValue:
        return self.op("neg")

    def cast(self, dtype: DType) -> KernelValue:
        return KernelValue(self.b, self.b.cast(self.at, dtype))

    def where(self, yes: KernelValue | float, no: KernelValue | float) -> KernelValue:
        """`yes` where this value is true, else `no`; at least one of the two is a KernelValue."""
        like = yes if isinstance(yes, KernelValue) else cast(KernelValue, no)
        left, right = like._as_value(yes), like._as_value(no)
        return KernelValue(self.b, self.b.op("where", self.at, left.at, right.at))


def without_negative_zero(value: KernelValue) -> KernelValue:
    """What a sum that begins at 0.0 is after its first term: the term, but never -0.0."""
    return value + 0.0 if value.dtype.kind == "float" else value
