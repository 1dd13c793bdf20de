"""Finds the reductions of a kernel that are matrix products, which a matrix unit (tensor core) can compute.

Takes a Kernel. Gives `Dots`: its sums of products, and the axes that are their rows, columns and inner (reduced) axis.
One factor varies over rows and the inner axis, the other over the inner axis and columns. Refuses (None) a kernel that
computes any other value for each point (row, column, inner): a matrix unit never holds these values.

>>> from minductor.core.dtypes import F32
>>> from minductor.core.expressions.expr import integer, symbol
>>> from minductor.ir.program.build import Builder, combine
>>> from minductor.ir.program.nodes import Axis, Ref
>>> i, j, k = (symbol(n, "axis", 0, 63) for n in ("i0", "i1", "i2"))
>>> b = Builder((i, j, k))
>>> x, y = b.load(Ref("arg0", 0), 64 * i + k, F32), b.load(Ref("arg1", 0), 64 * k + j, F32)
>>> total = b.reduce([b.op("mul", x, y)], ["i2"], combine("sum", F32))
>>> _ = b.store(Ref("buf0", 0), 64 * i + j, total)
>>> kernel = Kernel("k0", tuple(Axis(s, integer(64)) for s in (i, j, k)), b.build(), ())
>>> find_dots(kernel)
Dots(row='i0', column='i1', inner='i2', products=(Product(reduce=3, left=0, right=1),))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from minductor.core.dtypes import F32, F64, DType
from minductor.core.expressions.expr import as_int, linear
from minductor.core.expressions.hints import estimate
from minductor.ir.program.build import is_standard_combine
from minductor.ir.program.nodes import Axis, Body, Check, Kernel, Load, Op, Reduce, Scan, Store, all_ops

Side: TypeAlias = Literal["left", "right"]
MIN_ROWS_AND_COLUMNS = 8  # with fewer, most of a matrix unit's work would be on padding


class Product(NamedTuple):
    """Positions of a reduction and its two factors: `left` varies over rows, `right` over columns."""

    reduce: int
    left: int
    right: int


class Dots(NamedTuple):
    """The matrix products of one kernel, and the axes that all of them have."""

    row: str
    column: str
    inner: str
    products: tuple[Product, ...]

    @property
    def reduces(self) -> tuple[int, ...]:
        return tuple(product.reduce for product in self.products)


def find_dots(kernel: Kernel) -> Dots | None:
    """The matrix products of a kernel; None if there are none, or the kernel needs the value of single products."""
    ops = kernel.body.ops
    found = [n for n, op in enumerate(ops) if _is_sum_of_products(op, ops)]
    if not found or any(isinstance(op.attrs, Scan) for op in ops):
        return None
    roles = _roles(kernel, found[0])
    if roles is None:
        return None
    dots = dots_of(kernel.body, tuple(found), *roles)
    return dots if dots is not None and _is_flat(kernel.body, dots) else None


def dots_of(body: Body, reduces: Sequence[int], row: str, column: str, inner: str) -> Dots | None:
    """The reductions as matrix products along these axes; None if one has no left or no right factor."""
    products: list[Product] = []
    for reduce in reduces:
        factors = body.ops[body.ops[reduce].args[0]].args
        left = [f for f in factors if row in body.ops[f].axes and column not in body.ops[f].axes]
        right = [f for f in factors if column in body.ops[f].axes and row not in body.ops[f].axes]
        if len(left) != 1 or len(right) != 1:
            return None
        products.append(Product(reduce, left[0], right[0]))
    return Dots(row, column, inner, tuple(products))


def _is_sum_of_products(op: Op, ops: Sequence[Op]) -> bool:
    if not isinstance(op.attrs, Reduce) or op.dtype not in (F32, F64) or len(op.args) != 1:
        return False
    if op.attrs.combine.name != "sum" or not is_standard_combine(op.attrs.combine, op.dtype):
        return False
    factor = ops[op.args[0]]
    if factor.name != "mul" or factor.args[0] == factor.args[1]:
        return False
    if op.dtype == F64 and any(dtype is None or dtype.itemsize < F64.itemsize for dtype in _loaded(factor, ops)):
        return False  # Triton lays out factors by the narrowest value behind them, and computes no float64 laid out so
    return all(set(op.attrs.axes) <= set(ops[a].axes) for a in factor.args)


def _loaded(op: Op, ops: Sequence[Op]) -> list[DType | None]:
    """The dtypes of the loads from which an operation computes, with those under masks."""
    seen: set[int] = set()
    todo = [*op.args]
    while todo:
        position = todo.pop()
        if position not in seen:
            seen.add(position)
            todo += ops[position].args
    behind = all_ops(Body(tuple(ops[n] for n in sorted(seen))))
    return [each.dtype for each in behind if isinstance(each.attrs, Load)]


def _roles(kernel: Kernel, reduce: int) -> tuple[str, str, str] | None:
    """The axes of rows, columns and the reduced axis; None if there are too few rows or columns.

    The columns are the axis along which most stores are contiguous, or else the last axis.
    """
    ops = kernel.body.ops
    op = ops[reduce]
    assert isinstance(op.attrs, Reduce)
    x, y = (set(ops[a].axes) for a in ops[op.args[0]].args)
    if not x - y or not y - x:
        return None
    order = {axis.name: number for number, axis in enumerate(kernel.axes)}
    # no hints: a code generator asks too, which has none, and must find the same products
    extents = {axis.name: estimate(axis.extent, ()) for axis in kernel.axes}
    steps = _steps(kernel)

    def most(names: Iterable[str], along: Callable[[str], int]) -> str:
        return max(names, key=lambda name: (along(name), extents[name], order[name]))

    column = most(x ^ y, lambda name: steps.get(name, 0))
    row = most(x - y if column in y else y - x, lambda name: 0)
    inner = most(op.attrs.axes, lambda name: 0)
    return None if min(extents[row], extents[column]) < MIN_ROWS_AND_COLUMNS else (row, column, inner)


def _steps(kernel: Kernel) -> Mapping[str, int]:
    """For each axis the number of stores that are contiguous along it."""
    found: dict[str, int] = {}
    for op in kernel.body.ops:
        if isinstance(op.attrs, Store):
            for axis in kernel.axes:
                if _is_step(op.attrs, axis):
                    found[axis.name] = found.get(axis.name, 0) + 1
    return found


def _is_step(store: Store, axis: Axis) -> bool:
    split = linear(store.index, (axis.symbol,))
    return split is not None and as_int(split[0][axis.symbol]) == 1


def _is_flat(body: Body, dots: Dots) -> bool:
    """Whether no value but the products themselves varies over rows, columns and the inner axis at once."""
    corner = {dots.row, dots.column, dots.inner}
    muls = {body.ops[reduce].args[0] for reduce in dots.reduces}
    for number, op in enumerate(body.ops):
        if number in muls:
            continue
        if corner <= set(op.axes) or (not muls.isdisjoint(op.args) and number not in dots.reduces):
            return False
        if isinstance(op.attrs, Reduce) and set(op.attrs.axes) & {dots.row, dots.column}:
            return False
    sides = sides_of(body, dots)
    checked = [number for number, op in enumerate(body.ops) if isinstance(op.attrs, Check) and number in sides]
    # A checked index is a name in the code of addresses, so all its users must be on one side.
    return not any(
        sides[check] != sides.get(number, sides[check])
        for check in checked
        for number, op in enumerate(body.ops)
        if check in op.args
    )


def sides_of(body: Body, dots: Dots) -> Mapping[int, Side]:
    """For each value that varies over the inner axis, the side ("left" with rows, "right" with columns) it belongs to.

    A value that varies over the inner axis alone belongs to the side that uses it, or to the left if both do. A
    reduction along the inner axis that is no matrix product belongs to the side of its values.
    """
    found: dict[int, Side] = {}
    users: dict[int, list[int]] = {}
    for number, op in enumerate(body.ops):
        for a in op.args:
            users.setdefault(a, []).append(number)
    ends: dict[int, set[Side]] = {}
    for product in dots.products:
        ends.setdefault(product.left, set()).add("left")
        ends.setdefault(product.right, set()).add("right")
    for number in reversed(range(len(body.ops))):
        op = body.ops[number]
        if isinstance(op.attrs, Reduce) and dots.inner in op.attrs.axes and number not in dots.reduces:
            is_right = any(dots.column in body.ops[a].axes for a in op.args)
            found[number] = "right" if is_right else "left"
            continue
        if dots.inner not in op.axes or (dots.row in op.axes and dots.column in op.axes):
            continue
        wanted = {*ends.get(number, ()), *(found[u] for u in users.get(number, ()) if u in found)}
        is_right = dots.column in op.axes or (dots.row not in op.axes and wanted == {"right"})
        found[number] = "right" if is_right else "left"
    return found
