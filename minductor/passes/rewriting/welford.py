"""Welford's algorithm: computes the mean of a row and the sum of squared distances from it in one pass over the row.

Takes a kernel that sums twice, the row and then the squared distances from its mean. Gives the kernel with one
reduction in place of both, and of the sum of the distances themselves, which corrects a rounded mean; the same object
if there is no such pair. Refuses nothing.

Two passes are the more exact way, and cheap where the row stays in a cache. A kernel that is cut would read the row
from memory twice, and rows of 131,072 elements and more leave the caches near a GPU's multiprocessors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from minductor.analysis.domain import extents_of, product
from minductor.core.expressions.bounds import at_least
from minductor.core.expressions.expr import Expr, Symbol, as_int
from minductor.ir.program.build import Builder, combine
from minductor.ir.program.nodes import Constant, Index, Kernel, Op, Reduce
from minductor.passes.rewriting.prune import prune_body


class _Variance(NamedTuple):
    """Positions of ops: of a mean, the value that it is the mean of, and the sum of squared distances from it."""

    mean: int
    value: int
    squares: int


def welford(kernel: Kernel) -> Kernel:
    """The kernel with each mean and the sum of squared distances from it computed in one reduction."""
    ops = kernel.body.ops
    extents = {axis.name: axis.extent for axis in kernel.axes}
    found = [made for p in range(len(ops)) if (made := _variance(p, ops, extents)) is not None]
    if not found:
        return kernel
    by_mean, by_squares = {each.mean: each for each in found}, {each.squares: each for each in found}
    b = Builder([axis.symbol for axis in kernel.axes], extents_of(kernel.axes))
    place: list[int] = []  # by old op, its position among the new ones
    checked: dict[Symbol, Expr] = {}
    zeros: set[int] = set()  # old ops that are 0 now
    for position, op in enumerate(ops):
        b.node = op.node
        if position in by_mean:
            each = by_mean[position]
            dtype, attrs = ops[each.squares].dtype, ops[each.squares].attrs
            assert dtype is not None and isinstance(attrs, Reduce)
            terms = (place[each.value], b.constant(0.0, dtype), b.constant(1.0, dtype))
            place.append(b.reduce(terms, attrs.axes, combine("welford", dtype)))
        elif position in by_squares:
            place.append(b.project(place[by_squares[position].mean], 1))
        elif op.dtype is not None and _is_sum(op) and _mean_below(op.args[0], ops, extents) in by_mean:
            place.append(b.constant(0.0, op.dtype))  # of the distances from the exact mean
            zeros.add(position)
        elif op.dtype is not None and _is_zero(op, ops, zeros):
            place.append(b.constant(0.0, op.dtype))
            zeros.add(position)
        elif op.name == "sub" and op.args[1] in zeros:
            place.append(place[op.args[0]])
        else:
            args = tuple(place[a] for a in op.args)
            place.append(b.moved(op, args, checked))  # over the axes over which its arguments still vary
    return replace(kernel, body=prune_body(b.build()))


def _is_zero(op: Op, ops: Sequence[Op], zeros: Set[int]) -> bool:
    """Whether an op scales a 0 by a constant or by another 0; a number of the call's may be 0, and makes NaN of it."""
    is_number = all(arg in zeros or isinstance(ops[arg].attrs, Constant) for arg in op.args)
    return is_number and not zeros.isdisjoint(op.args[: 1 if op.name == "div" else 2]) and op.name in ("div", "mul")


def _variance(position: int, ops: Sequence[Op], extents: Mapping[str, Expr]) -> _Variance | None:
    """The mean that belongs to an op, if the op is the sum of squared distances from it; else None."""
    op = ops[position]
    if not _is_sum(op) or ops[op.args[0]].name != "mul":
        return None
    distance, other = ops[op.args[0]].args
    mean = _mean_below(distance, ops, extents) if distance == other else None
    if mean is None or ops[ops[mean].args[0]].attrs != op.attrs:
        return None
    return _Variance(mean, ops[distance].args[0], position)


def _mean_below(position: int, ops: Sequence[Op], extents: Mapping[str, Expr]) -> int | None:
    """The position of the mean of x, if the value at `position` is x minus its mean; else None."""
    if ops[position].name != "sub":
        return None
    value, mean = ops[position].args
    if ops[mean].name not in ("div", "mul"):
        return None
    total, count = ops[mean].args
    attrs = ops[total].attrs
    if not isinstance(attrs, Reduce) or not _is_sum(ops[total]) or ops[total].args != (value,):
        return None
    number = product(extents[name] for name in attrs.axes)
    if not at_least(number, 1):
        return None  # the mean of no elements is NaN
    is_mean = _is_number(ops[count], ops, number) if ops[mean].name == "div" else _is_share(ops[count], number)
    return mean if is_mean else None


def _is_sum(op: Op) -> bool:
    """Whether an op is a sum of floats."""
    is_float = op.dtype is not None and op.dtype.kind == "float"
    return is_float and isinstance(op.attrs, Reduce) and op.attrs.combine.name == "sum"


def _is_share(op: Op, number: Expr) -> bool:
    """Whether the value of an op is one of so many equal parts of 1, as exactly as floats have it."""
    size = as_int(number)
    return isinstance(op.attrs, Constant) and bool(size) and op.attrs.value == 1 / size


def _is_number(op: Op, ops: Sequence[Op], number: Expr) -> bool:
    """Whether the value of an op is this number of elements."""
    if op.name == "cast":
        op = ops[op.args[0]]
    match op.attrs:
        case Constant(value):
            return value == as_int(number)
        case Index(expr):
            return expr == number
        case _:
            return False
