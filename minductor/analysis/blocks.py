"""Finds the block of memory that a tile touches, as dimensions with sizes and strides, without // and %.

Takes an index expression, the axes of a tile and, for an access in a masked region, the windows of the axes in which
the region runs. Gives a BlockAccess. Refuses, with a reason in words, an index that is not such a block.

A view such as x.reshape(...) makes an index in which one axis occurs in several terms factor * ((axis // step) %
radix). The axis is then several dimensions of memory at once, like the digits of a number. This works if 1, the steps
and the products step * radix can be sorted so that each divides the next one, and the last one divides the extent of
the axis. Then each digit is one dimension of the block, and the terms add up to its stride.

>>> from minductor.core.expressions.expr import integer, symbol
>>> i, s = symbol("i", "axis", 0, 2047), symbol("s", "size", 1)
>>> (axis,) = axes = (Axis(i, integer(2048)),)
>>> block = analyze(16 * (i // 128) + i % 16 + s * ((i // 16) % 8) + 5, axes)
>>> [(str(dim.size), str(dim.stride), str(dim.slice)) for dim in block.dims], str(block.offset)
([('16', '16', '128'), ('8', 's', '16'), ('16', '1', '1')], '5')
>>> analyze(i // 12 + i % 12, axes)
'12 does not divide the 2048 elements of i'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from minductor.analysis.domain import has_division
from minductor.core.expressions.algebra import const_and_terms, factors_of, product_of
from minductor.core.expressions.bounds import Extents, at_least, divides
from minductor.core.expressions.division import divide
from minductor.core.expressions.expr import Expr, FloorDiv, Mod, Symbol, add, expand, free_symbols, integer
from minductor.core.expressions.rewrite import simplify
from minductor.ir.program.memory_access import ONE, ZERO, BlockAccess, BlockDim
from minductor.ir.program.nodes import CALL_SYMBOL_KINDS, Atomic, Axis, Body, Constant, Index, Load, Masked, Op, Store


class Window(NamedTuple):
    """The values of an axis for which a masked region runs: from `start` up to, not including, `stop`."""

    start: Expr
    stop: Expr


NO_WINDOWS: Mapping[str, Window] = {}


class Term(NamedTuple):
    """One term of an index: factor * ((axis // step) % radix), or factor * (axis // step) if the radix is None."""

    factor: Expr
    step: Expr = ONE
    radix: Expr | None = None


def analyze(index: Expr, axes: Sequence[Axis], windows: Mapping[str, Window] = NO_WINDOWS) -> BlockAccess | str:
    """The block that a tile of these axes touches, its dimensions in the order of the axes; or the reason for none."""
    found = terms_of(index, {axis.symbol: axis.extent for axis in axes})
    if isinstance(found, str):
        return found
    offset, terms = found
    dims: list[BlockDim] = []
    for axis in axes:
        digits = digits_of(axis, terms.get(axis.name, ()))
        if isinstance(digits, str):
            return digits
        if (window := windows.get(axis.name)) and len(digits) == 1 and digits[0].stride != ZERO:
            size = window.stop - window.start
            digits = (BlockDim(axis.name, size, digits[0].stride, ONE, window.start),)
            offset = offset + digits[0].stride * window.start
        dims += digits if any(dim.stride != ZERO for dim in digits) else ()
    return BlockAccess(simplify(expand(offset)), tuple(dims))


def terms_of(index: Expr, extents: Extents) -> tuple[Expr, dict[str, list[Term]]] | str:
    """The part of an index that no axis changes, and the terms of each axis by its name; or the reason for none.

    >>> from minductor.core.expressions.algebra import identity
    >>> from minductor.core.expressions.expr import symbol
    >>> x, y = symbol("x", "axis"), symbol("y", "axis")
    >>> terms_of(identity(x + 2 * y) + 5, {}) == (5, {"x": [Term(ONE)], "y": [Term(integer(2))]})
    True
    """
    plain = expand(simplify(expand(index, identity=True), extents))
    const, items = const_and_terms(plain)
    offset: list[Expr | int] = [const]
    found: dict[str, list[Term]] = {}
    for item, count in items:
        moving = [s for s in free_symbols(item) if s.kind not in CALL_SYMBOL_KINDS]
        if not moving:
            offset.append(item * count)
            continue
        if any(s.kind != "axis" for s in moving):
            return "data decide the index"
        factors = factors_of(item)
        atoms = [factor for factor in factors if any(s in free_symbols(factor) for s in moving)]
        term = (
            _term(atoms[0], product_of([f for f in factors if f is not atoms[0]]) * count) if len(atoms) == 1 else None
        )
        if term is None:
            return f"{item} is not a term of a single axis"
        found.setdefault(moving[0].name, []).append(term)
    return add(*offset), found


def _term(atom: Expr, factor: Expr) -> Term | None:
    """The Term of `atom` times `factor`, in which no axis occurs; None if `atom` is not of that form."""
    match atom:
        case Symbol():
            return Term(factor)
        case FloorDiv(Symbol(kind="axis"), den) if not _moves(den):
            return Term(factor, den)
        case Mod(Symbol(kind="axis"), den) if not _moves(den):
            return Term(factor, ONE, den)
        case Mod(FloorDiv(Symbol(kind="axis"), step), den) if not _moves(den) and not _moves(step):
            return Term(factor, step, den)
        case _:
            return None


def _moves(expr: Expr) -> bool:
    """Whether an expression changes within a call: it contains an axis, or a value that is loaded."""
    return any(s.kind not in CALL_SYMBOL_KINDS for s in free_symbols(expr))


def digits_of(axis: Axis, terms: Sequence[Term]) -> tuple[BlockDim, ...] | str:
    """The dimensions of one axis, outermost first, or the reason for none; neighbours that form one are merged.

    >>> from minductor.core.expressions.expr import symbol
    >>> i = Axis(symbol("i", "axis", 0, 23), integer(24))
    >>> (one,) = digits_of(i, [Term(integer(8), integer(4)), Term(integer(2), ONE, integer(4))])
    >>> str(one.size), str(one.stride)
    ('24', '2')
    """
    ends = {n: term.step if term.radix is None else term.step * term.radix for n, term in enumerate(terms)}
    wanted = dict.fromkeys([ONE, *(term.step for term in terms), *ends.values()])
    places = _sorted_by_division([place for place in wanted if place == ONE or place != axis.extent])
    if isinstance(places, str):
        return f"{axis.name} has {places}"
    if not divides(places[-1], axis.extent):
        return f"{places[-1]} does not divide the {axis.extent} elements of {axis.name}"
    order = {place: number for number, place in enumerate(places)}
    strides: list[Expr] = [ZERO for _ in places]
    for number, term in enumerate(terms):
        stop = len(places) if term.radix is None else order.get(ends[number], len(places))
        for at in range(order.get(term.step, stop), stop):
            strides[at] = strides[at] + term.factor * divide(places[at], term.step)[0]
    digits: list[BlockDim] = []
    for place, after, stride in zip(places, [*places[1:], axis.extent], map(expand, strides), strict=True):
        size = divide(expand(after), place)[0]
        if digits and expand(digits[0].stride * digits[0].size) == stride:
            last = digits[0]
            digits[0] = BlockDim(axis.name, expand(last.size * size), last.stride, last.slice)
        else:
            digits.insert(0, BlockDim(axis.name, size, stride, place))
    return tuple(digits)


def _sorted_by_division(places: Sequence[Expr]) -> list[Expr] | str:
    """The places sorted so that each divides the next one; or the reason why they cannot be."""
    left, found = list(places), list[Expr]()
    while left:
        least = next((p for p in left if all(p is q or divides(p, q) for q in left)), None)
        if least is None:
            return f"steps {', '.join(map(str, left))}, of which none divides all the others"
        left.remove(least)
        found.append(least)
    return found


# --- masks --------------------------------------------------------------------------------------------------------


class MaskContext(NamedTuple):
    """The masked regions around an access.

    `path`: the positions of the `masked` ops that lead to it, outermost first. `windows`: by axis, the values for which
    it runs; None if the conditions are more than bounds of single axes.
    """

    path: tuple[int, ...]
    windows: Mapping[str, Window] | None

    def is_masked_by_bounds(self, block: BlockAccess) -> bool:
        """Whether the bounds of a block's dimensions are the windows, so that the access needs no other mask."""
        windows = self.windows
        return windows is not None and all(
            (dim.start, dim.start + dim.size) == (windows[dim.axis].start, windows[dim.axis].stop)
            for dim in block.dims
            if dim.axis in windows
        )


UNMASKED = MaskContext((), NO_WINDOWS)


def memory_ops(
    body: Body, axes: Sequence[Axis], context: MaskContext = UNMASKED
) -> Iterator[tuple[int, Op, MaskContext]]:
    """Each load, store and atomic, with its position in its own body and the masked regions around it."""
    for position, op in enumerate(body.ops):
        match op.attrs:
            case Load() | Store() | Atomic():
                yield position, op, context
            case Masked(inner, _):
                windows = None
                if not context.path:  # a nested condition may use values that are not in `body`
                    windows = windows_of(body.ops, op.args[0], axes)
                yield from memory_ops(inner, axes, MaskContext((*context.path, position), windows))
            case _:
                pass


def block_of(op: Op, axes: Sequence[Axis], context: MaskContext) -> BlockAccess | None:
    """The block that an access touches in tiles of suitable sizes; None if there are no suitable sizes.

    An axis that is several dimensions of memory cannot have a mask in the shape of the tile. So such a block must have
    its whole mask in its bounds, and be no atomic.
    """
    assert isinstance(op.attrs, Load | Store | Atomic)
    block = analyze(op.attrs.index, axes, context.windows or NO_WINDOWS)
    if isinstance(block, str):
        return None
    is_plain = all(dim.slice == ONE for dim in block.dims)
    return block if is_plain or (context.is_masked_by_bounds(block) and not isinstance(op.attrs, Atomic)) else None


def block_limits(body: Body, axes: Sequence[Axis]) -> Iterator[Mapping[str, int]]:
    """For each access that is a block only in tiles of some sizes: the largest such size of each axis."""
    for _, op, context in memory_ops(body, axes):
        assert isinstance(op.attrs, Load | Store | Atomic)
        if has_division(op.attrs.index) and (block := block_of(op, axes, context)) and (limits := block.limits()):
            yield limits


def windows_of(ops: Sequence[Op], condition: int, axes: Sequence[Axis]) -> dict[str, Window] | None:
    """The windows in which a condition holds; None if it is more than bounds of single axes."""
    low: dict[str, list[Expr]] = {}
    high: dict[str, list[Expr]] = {}
    by_symbol = {axis.symbol: axis for axis in axes}
    for difference in _comparisons(ops, condition):  # the condition says that each is at least 0
        moving = [s for s in free_symbols(difference or ZERO) if s.kind not in CALL_SYMBOL_KINDS] if difference else []
        if difference is None or len(moving) != 1 or moving[0] not in by_symbol:
            return None
        (axis,) = moving
        rest = difference - axis
        if axis not in free_symbols(rest):
            low.setdefault(axis.name, []).append(-rest)
            continue
        rest = difference + axis
        if axis in free_symbols(rest):
            return None
        high.setdefault(axis.name, []).append(rest + 1)
    found: dict[str, Window] = {}
    for axis in axes:
        start = _largest([ZERO, *low.get(axis.name, [])])
        stop = _largest([-axis.extent, *(-e for e in high.get(axis.name, []))])
        if start is None or stop is None:
            return None
        if (start, -stop) != (ZERO, axis.extent):
            found[axis.name] = Window(start, -stop)
    return found


def _largest(values: Sequence[Expr]) -> Expr | None:
    """The value that is proved to be the largest; None if none is."""
    return next((a for a in values if all(at_least(a - b, 0) for b in values)), None)


def _comparisons(ops: Sequence[Op], position: int) -> Iterator[Expr | None]:
    """Expressions that are at least 0 exactly where a condition holds; None for each part that compares no indices."""
    op = ops[position]
    if op.name == "logical_and":
        for arg in op.args:
            yield from _comparisons(ops, arg)
        return
    if op.name not in ("lt", "le", "gt", "ge"):
        yield None
        return
    above, below = [_index_of(ops[arg]) for arg in (op.args if op.name in ("gt", "ge") else op.args[::-1])]
    yield None if above is None or below is None else above - below - (op.name in ("lt", "gt"))


def _index_of(op: Op) -> Expr | None:
    """The index expression that an op computes; None if it is another value."""
    match op.attrs:
        case Index(expr):
            return expr
        case Constant(value) if isinstance(value, int) and not isinstance(value, bool):
            return integer(value)
        case _:
            return None
