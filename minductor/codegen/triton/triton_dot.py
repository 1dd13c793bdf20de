"""Matrix products in Triton: the dimensions of each value, and the operands of `tl.dot`.

Takes a Kernel whose schedule names products. Gives the kernel with one inner axis for each side of the product, the
dimensions of each value, and for each operand the position and dtype from which `tl.dot` takes it. Refuses nothing.

No value has rows, columns and the inner axis at once. Rows are always the first of two dimensions, columns the second.
The inner axis is the second dimension beside rows and the first beside columns, so it has two names. Thus an operand is
loaded in the layout that `tl.dot` takes, whatever its strides: nothing is reshaped or transposed. A value that varies
over fewer axes has size 1 in the other dimension.
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

DOWN = "_down"  # ends the name of the inner axis where it is the first dimension (of the right operand)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of `tl.dot`: the position of the value it is read from, and its dtype there."""

    position: int
    dtype: DType
    is_loaded: bool  # whether it is a load, taken in the dtype of memory


@dataclass(frozen=True, slots=True)
class Products:
    """What the printer asks about the products of a kernel."""

    kernel: Kernel
    dots: Dots
    sides: Mapping[int, Side]
    tile: tuple[Dim, ...]
    down: str

    @classmethod
    def of(cls, kernel: Kernel) -> Products | None:
        """The products of a kernel; None if it has none."""
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
        """The dimensions of a value that varies over these axes, or over some of them."""
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
        """The axes, by their names in this file, that an operation varies over or reduces."""
        op = self.kernel.body.ops[position]
        if position in self.dots.reduces:
            return (*op.axes, self.dots.inner, self.down)
        return op.loop_axes

    def is_crossing(self, user: int, value: int) -> bool:
        """Whether a value belongs to one side of the product and is used on the other."""
        is_inner = not {self.dots.inner, self.down}.isdisjoint(self.kernel.body.ops[value].axes)
        return is_inner and user in self.sides and self.sides[user] != self.sides[value]

    def users(self, position: int) -> list[int]:
        return [n for n, op in enumerate(self.kernel.body.ops) if position in op.args]

    def is_absorbed(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether an operation is a rounding that only `tl.dot` uses, which rounds by itself."""
        if not isinstance(self.kernel.body.ops[position].attrs, Round):
            return False
        muls = {self.kernel.body.ops[reduce].args[0]: reduce for reduce in self.dots.reduces}
        users = self.users(position)
        given = [operand.position for u in users if u in muls for operand in self.operands(muls[u], dtypes)[:2]]
        return all(user in muls for user in users) and position not in given

    def is_taken_raw(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether `tl.dot` takes a loaded value in the dtype that it has in memory."""
        return any(
            operand.is_loaded and operand.position == position
            for reduce in self.dots.reduces
            for operand in self.operands(reduce, dtypes)[:2]
        )

    def is_widened(self, position: int, dtypes: Mapping[str, DType]) -> bool:
        """Whether a loaded value is also used outside of `tl.dot`."""
        muls = [self.kernel.body.ops[reduce].args[0] for reduce in self.dots.reduces]
        return any(u not in muls and not self.is_absorbed(u, dtypes) for u in self.users(position))

    def operands(self, reduce: int, dtypes: Mapping[str, DType]) -> tuple[Operand, Operand, bool]:
        """Both operands of a product, and whether float32 operands may be rounded to tf32."""
        product = next(p for p in self.dots.products if p.reduce == reduce)
        left, right = (self._narrow(p, dtypes) for p in (product.left, product.right))
        wide = self.kernel.body.ops[reduce].dtype
        assert wide is not None
        is_fast = left == right == TF32
        dtype = left if left == right and not is_fast else wide
        first, second = (self._operand(p, dtype, dtypes) for p in (product.left, product.right))
        return first, second, is_fast

    def _narrow(self, position: int, dtypes: Mapping[str, DType]) -> DType:
        """The narrowest dtype that is known to represent an operand exactly."""
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
    """The operation with the inner axis under its other name."""
    axes = tuple(down.name if name == inner.name else name for name in op.axes)
    return replace(op, axes=axes, attrs=_turned_attrs(op, inner, down))


def _turned_attrs(op: Op, inner: Axis, down: Axis) -> Attrs:
    moved: dict[Symbol, Expr] = {inner.symbol: down.symbol}
    match op.attrs:
        case Load() | Store() | Atomic():
            return replace(op.attrs, index=substitute(op.attrs.index, moved))
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
