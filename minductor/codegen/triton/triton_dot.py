"""Where the values of a kernel of matrix products stand, and what its matrix unit is given.

Takes a Kernel whose schedule names products. Gives the kernel with an inner axis for each side, the dimensions of each
value, and of each operand the position and dtype that it is taken in. Refuses nothing.

No value has all three axes. Rows are always the first of two dimensions and columns the second; the inner axis is the
second beside rows and the first beside columns. So it has two names, and an operand is loaded as `tl.dot` takes it,
whatever its strides: nothing is reshaped or transposed. What varies over fewer axes has 1 in the other's place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from minductor.codegen.triton.triton_launch import Dim, tile_of
from minductor.core.dtypes import TF32, DType
from minductor.core.expressions.expr import Expr, Symbol, substitute, symbol
from minductor.ir.program.dots import Dots, Side, find_dots, sides_of
from minductor.ir.program.nodes import (
    Atomic,
    Attrs,
    Axis,
    Body,
    Check,
    Index,
    Kernel,
    Load,
    Masked,
    Op,
    Reduce,
    Round,
    Store,
)

DOWN = "_down"  # behind the inner axis' name, where it is the first dimension


@dataclass(frozen=True, slots=True)
class Operand:
    """A value as the matrix unit takes it: the position it is read from, and its dtype there."""

    position: int
    dtype: DType
    is_loaded: bool  # straight from memory, in the dtype that it has there


@dataclass(frozen=True, slots=True)
class Products:
    """All that the printer asks of the products of a kernel."""

    kernel: Kernel
    dots: Dots
    sides: Mapping[int, Side]
    tile: tuple[Dim, ...]
    down: str

    @classmethod
    def of(cls, kernel: Kernel) -> Products | None:
        """None for a kernel without products."""
        if kernel.schedule is None or not kernel.schedule.dots:
            return None
        dots = find_dots(kernel)
        assert dots is not None, "the verifier holds the schedule to it"
        sides = sides_of(kernel.body, dots)
        inner = next(axis for axis in kernel.axes if axis.name == dots.inner)
        down = replace(inner, symbol=symbol(dots.inner + DOWN, "axis", *inner.symbol.range))
        ops = tuple(
            _turned(op, inner, down) if sides.get(n) == "right" and n not in dots.reduces else op
            for n, op in enumerate(kernel.body.ops)
        )
        turned = replace(kernel, axes=(*kernel.axes, down), body=replace(kernel.body, ops=ops))
        tile = tuple(
            made
            for dim in tile_of(kernel)
            for made in ((dim, replace(dim, axis=down.name)) if dim.axis == dots.inner else (dim,))
        )
        return cls(turned, dots, sides, tile, down.name)

    def beside(self, axes: Iterable[str]) -> list[Dim]:
        """The dimensions of what varies over these axes, or some of them."""
        inner, down = self.dots.inner in axes, self.down in axes
        wanted = (
            (self.dots.row, self.dots.inner)
            if inner
            else (self.down, self.dots.column)
            if down
            else (self.dots.row, self.dots.column)
        )
        return [dim for name in wanted for dim in self.tile if dim.axis == name]

    def needs(self, position: int) -> tuple[str, ...]:
        """The axes, by their names here, that an op varies over or joins along."""
        op = self.kernel.body.ops[position]
        if position in self.dots.reduces:
            return (*op.axes, self.dots.inner, self.down)
        return (*op.axes, *(op.attrs.axes if isinstance(op.attrs, Reduce) else ()))

    def is_crossing(self, user: int, value: int) -> bool:
        """Whether a value stands on one side and is used on the other."""
        is_inner = not {self.dots.inner, self.down}.isdisjoint(self.kernel.body.ops[value].axes)
        return is_inner and user in self.sides and self.sides[user] != self.sides[value]

    def users(self, position: int) -> list[int]:
        return [n for n, op in enumerate(self.kernel.body.ops) if position in op.args]

    def is_absorbed(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether an op is a rounding that nobody but the matrix unit asks for, which does it itself."""
        if not isinstance(self.kernel.body.ops[position].attrs, Round):
            return False
        muls = {self.kernel.body.ops[reduce].args[0]: reduce for reduce in self.dots.reduces}
        users = self.users(position)
        given = [operand.position for u in users if u in muls for operand in self.operands(muls[u], dtypes)[:2]]
        return all(user in muls for user in users) and position not in given

    def is_taken_raw(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether the matrix unit takes what is loaded here in the dtype that it has in memory."""
        return any(
            operand.is_loaded and operand.position == position
            for reduce in self.dots.reduces
            for operand in self.operands(reduce, dtypes)[:2]
        )

    def is_widened(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether anybody beside the matrix unit asks for what is loaded here."""
        muls = [self.kernel.body.ops[reduce].args[0] for reduce in self.dots.reduces]
        return any(u not in muls and not self.is_absorbed(u, dtypes) for u in self.users(position))

    def operands(self, reduce: int, dtypes: Mapping[str, DType]) -> tuple[Operand, Operand, bool]:
        """Both operands of a product, and whether float32 ones may be rounded to tf32."""
        product = next(p for p in self.dots.products if p.reduce == reduce)
        left, right = (self._narrow(p, dtypes) for p in (product.left, product.right))
        wide = self.kernel.body.ops[reduce].dtype
        assert wide is not None
        is_fast = left == right == TF32
        dtype = left if left == right and not is_fast else wide
        first, second = (self._operand(p, dtype, dtypes) for p in (product.left, product.right))
        return first, second, is_fast

    def _narrow(self, position: int, dtypes: Mapping[str, DType]) -> DType:
        """The least dtype that is known to hold an operand."""
        op = self.kernel.body.ops[position]
        match op.attrs:
            case Round(dtype):
                return dtype
            case Load(ref, _) if dtypes[ref.storage].kind == "float":
                return dtypes[ref.storage]
            case _:
                assert op.dtype is not None
                return op.dtype

    def _operand(self, position: int, dtype: DType, dtypes: Mapping[str, DType]) -> Operand:
        ops = self.kernel.body.ops
        op = ops[position]
        if isinstance(op.attrs, Round) and op.attrs.dtype in (dtype, TF32):
            position, op = op.args[0], ops[op.args[0]]
        return Operand(position, dtype, isinstance(op.attrs, Load) and dtypes[op.attrs.ref.storage] == dtype)


def _turned(op: Op, inner: Axis, down: Axis) -> Op:
    """The op with the inner axis under its other name."""
    axes = tuple(down.name if name == inner.name else name for name in op.axes)
    return replace(op, axes=axes, attrs=_turned_attrs(op, inner, down))


def _turned_attrs(op: Op, inner: Axis, down: Axis) -> Attrs:
    moved: dict[Symbol, Expr] = {inner.symbol: down.symbol}
    match op.attrs:
        case Load(ref, index):
            return Load(ref, substitute(index, moved))
        case Store(ref, index):
            return Store(ref, substitute(index, moved))
        case Atomic(ref, index, kind):
            return Atomic(ref, substitute(index, moved), kind)
        case Index(expr):
            return Index(substitute(expr, moved))
        case Check():
            return replace(op.attrs, size=substitute(op.attrs.size, moved))
        case Masked(body, other):
            return Masked(Body(tuple(_turned(inside, inner, down) for inside in body.ops), body.results), other)
        case Reduce(axes, how):
            return Reduce(tuple(down.name if name == inner.name else name for name in axes), how)
        case _:
            return op.attrs
