"""What decides how long a kernel takes before it has a schedule: its `Shape`.

Takes a kernel, the buffers, and hints for unknown sizes. Gives a `Shape`: plain numbers, equal for kernels that take
equally long. Refuses nothing: a size that is not known is estimated.

Axes that every access runs through as one count as one axis, as after `merge_axes`. A set of axes is an integer whose
bit n stands for axis n. Most facts of an op are the same for all its uses, so each is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple, TypeAlias

from minductor.analysis.bends import MOST_CUTS, bends
from minductor.analysis.domain import buffer_bytes
from minductor.analysis.strides import step_along
from minductor.core.dtypes import BF16, F16, DType
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, integer, linear
from minductor.core.expressions.hints import Hints, estimate
from minductor.cost.registers import alive_at_once, double_rate, words
from minductor.ir.program.dots import find_dots
from minductor.ir.program.nodes import (
    EFFECTS,
    Atomic,
    Axis,
    Buffer,
    Check,
    Constant,
    Index,
    Kernel,
    Load,
    Masked,
    Op,
    Project,
    Reduce,
    Round,
    Scan,
    Store,
    all_ops,
)
from minductor.ir.program.ops import FUNCTION, op_cost

WORD = 4  # bytes: smaller values are computed as such
ROUND = 5  # operations of storing a value that is rounded to 16 bits
CHECK = 4  # operations of a bounds check
NAN_MAXIMUM = 3  # operations of a maximum that a NaN wins
MOVED = 2  # operations of storing and loading a value
LONGEST_FREE = 1 << 13  # elements of a row whose values have registers enough, unless a reduction waits for them
INTEGER_DIVISIONS = frozenset(("div", "truncdiv", "floordiv", "mod", "fmod"))


# By axis the distance in elements, 0 for none, None if it is not constant or data decide it.
Steps: TypeAlias = tuple[int | None, ...]

# An element of a storage: its place, or a tuple of what decides it. Equal ones are the same element.
Start: TypeAlias = int | Expr | tuple[object, ...]
AT_FIRST: frozenset[Start] = frozenset((0,))


class Span(NamedTuple):
    """A value that data decide: the axes along which it varies, how many values there are, and what a step moves."""

    axes: int
    values: int
    step: int  # bytes


class Touch(NamedTuple):
    """The loads, or the stores, of one storage that move alike, as those of a stencil do."""

    storage: str
    itemsize: int
    steps: Steps
    axes: int  # of the loops around it
    size: int  # bytes of the elements that it touches
    storage_bytes: int
    drawn: int = 0  # bytes of the part in which data decide on an element; 0 if data decide nothing
    is_store: bool = False
    passes: int = 1  # over a row in which it is needed
    times: int = 1  # loads or stores that are not the same
    # where a step is None: whether it changes at few points only, at which a vector loop along the axis is cut
    is_bent: bool = False
    spans: tuple[Span, ...] = ()  # by value that decides on the element; the places of no more elements differ
    starts: frozenset[Start] = AT_FIRST  # where they begin, one of each


class Work(NamedTuple):
    """The operations at each point of some axes."""

    axes: int
    size: int  # bytes of a value
    passes: int  # over a row in which they are needed
    is_inside: bool = False  # of values that are the same along a row and needed at each of its elements; on a CPU
    operations: float = 0.0
    functions: float = 0.0  # those of `operations` that functions take
    divisions: int = 0  # of integers


class Join(NamedTuple):
    """A reduction: over which axes, the axes of its result, its values, and its operations for one more element.

    `registers`: of its values, at one point.
    """

    reduced: int
    kept: int
    values: int
    operations: int
    registers: int


class Product(NamedTuple):
    """The matrix products of a kernel. `others`: reductions that are none."""

    row: int
    column: int
    inner: int
    products: int
    itemsize: int
    others: int


class Shape(NamedTuple):
    """See the head of this file. `joined`: the axes that are reduced or scanned."""

    extents: tuple[int, ...]
    touches: tuple[Touch, ...]
    work: tuple[Work, ...]
    joins: tuple[Join, ...] = ()
    joined: int = 0
    in_turn: int = 0  # reductions of which each needs the one before
    walked_again: int = 0  # axes over which values vary that need a reduction over them
    alive: int = 0  # registers of a point, of the values that live at once where a whole row is held
    scans: int = 0
    product: Product | None = None
    indices: tuple[Steps, ...] = ()  # how the indices that are values move

    def points(self, axes: int) -> int:
        """The number of combinations of values of these axes."""
        total = 1
        for extent in self.extents:
            if axes & 1:
                total *= extent
            axes >>= 1
        return total

    @property
    def every(self) -> int:
        return (1 << len(self.extents)) - 1

    def contiguous(self) -> list[int]:
        """The axes along which some access is contiguous, that of most bytes first; of equals the last one.

        Of an access that is contiguous along none, the last axis along which its step is not constant counts.
        """
        claims = self.claims()
        found = [axis for axis, claim in enumerate(claims) if claim]
        return sorted(found, key=lambda axis: (-claims[axis], -axis))

    def claims(self) -> list[int]:
        """By axis the bytes of the accesses that are contiguous along it, or count as such."""
        claims = [0] * len(self.extents)
        for touch in self.touches:
            for axis in _beside(touch.steps):
                claims[axis] += touch.size if self.extents[axis] > 1 else 0
        return claims

    def along(self, axis: int) -> list[Touch]:
        """The accesses that are contiguous along an axis, or count as such."""
        return [touch for touch in self.touches if axis in _beside(touch.steps)]


@lru_cache(1024)  # kernels move in the same few ways
def _beside(steps: Steps) -> tuple[int, ...]:
    """The axes along which an access is contiguous; if there are none, the last one whose step is not constant."""
    beside = [axis for axis, step in enumerate(steps) if step in (1, -1)]
    return tuple(beside or [axis for axis, step in enumerate(steps) if step is None][-1:])


# By extents and axes the accesses that are known already, by storage and index.
KnownTouches: TypeAlias = dict[object, dict[tuple[str, Expr], tuple[Touch, bool]]]


def shape_of(
    kernel: Kernel, table: Mapping[str, Buffer], hints: Hints, *, is_gpu: bool, known: KnownTouches | None = None
) -> Shape:
    """The Shape of a kernel.

    Args:
        kernel: the kernel.
        table: the buffers by name.
        hints: for sizes that are not known.
        is_gpu: whether to find what only GPUs ask for, the products and the values that stay alive.
        known: accesses of other kernels to the same buffers; those of this kernel are added.
    """
    return _Reader(kernel, table, hints, {} if known is None else known).shape(is_gpu=is_gpu)


def is_own(index: Expr, axes: tuple[Axis, ...], size: tuple[Expr, ...], hints: Hints) -> bool:
    """Whether it is plain that no two points of these axes touch the same element of a storage of this `size`."""
    steps, _, is_drawn = _steps(index, tuple(axis.symbol for axis in axes), hints)
    extents = [estimate(axis.extent, hints) for axis in axes]
    moves = all(step != 0 or extent == 1 for step, extent in zip(steps, extents, strict=True))
    return moves and not is_drawn and prod(extents) <= estimate(size, hints)


class _Reader:
    """Reads one kernel. Lists of it go by axis, or by position of an op."""

    def __init__(self, kernel: Kernel, table: Mapping[str, Buffer], hints: Hints, known: KnownTouches) -> None:
        self.kernel, self.table, self.hints, self.ops = kernel, table, hints, kernel.body.ops
        self.places = tuple(axis.symbol for axis in kernel.axes), hints
        self.extents = [estimate(axis.extent, hints) for axis in kernel.axes]
        self.known = known.setdefault((*self.places, *self.extents), {})
        bits = {axis.name: 1 << n for n, axis in enumerate(kernel.axes)}
        sets = {axes: sum(bits[name] for name in axes) for axes in {op.axes for op in self.ops}}
        self.bits = bits
        self.results = [sets[op.axes] for op in self.ops]
        self.axes = self.results.copy()
        self.joined = 0
        self.scans = 0
        for p, op in enumerate(self.ops):
            attrs = op.attrs
            if isinstance(attrs, Reduce):
                reduced = sum(bits[n] for n in attrs.axes)
                self.joined |= reduced
                self.axes[p] |= reduced
            elif isinstance(attrs, Scan):
                self.joined |= bits[attrs.axis]
                self.scans += 1
        self.passes = [1] * len(self.ops)
        self.in_turn = self.walked_again = 0
        if self.joined:
            self.read_passes()

    def read_passes(self) -> None:
        """Finds in how many passes over a row each op is needed: one for each reduction in turn, one for the rest."""
        ends: list[int] = []  # the reductions in turn that end before the value exists
        over: list[int] = []  # the axes of the reductions that a value needs
        for op, axes, result in zip(self.ops, self.axes, self.results, strict=True):
            end = reduced = 0
            for a in op.args:
                end = ends[a] if ends[a] > end else end
                reduced |= over[a]
            self.walked_again |= reduced & result
            is_reduction = axes != result
            ends.append(end + is_reduction)
            over.append(reduced | axes & ~result)
        self.in_turn = max(ends)
        walks = [0] * len(self.ops)  # the passes that need each op, as bits
        for p in range(len(self.ops) - 1, -1, -1):
            op = self.ops[p]
            if isinstance(op.attrs, Reduce):  # its operands are needed while it runs, not where its result is used
                walks[p] = 1 << (ends[p] - 1)
            elif isinstance(op.attrs, EFFECTS):
                walks[p] |= 1 << ends[p]
            mine = walks[p]
            for a in op.args:
                if self.results[a] & self.joined:
                    walks[a] |= mine
        self.passes = [each.bit_count() or 1 for each in walks]

    def shape(self, *, is_gpu: bool) -> Shape:
        touches = self.touches()
        joins = tuple(self.joins()) if self.joined else ()
        dots = find_dots(self.kernel) if is_gpu and self.joined else None
        product = None
        if dots is not None:
            row, column, inner = (self.bits[name].bit_length() - 1 for name in (dots.row, dots.column, dots.inner))
            size = min(self.size_of(factor) for product in dots.products for factor in (product.left, product.right))
            product = Product(row, column, inner, len(dots.products), size, len(joins) - len(dots.products))
        alive = 0
        if is_gpu and self.joined and (self.walked_again or self.row > LONGEST_FREE):
            found = alive_at_once(self.kernel.body, self.names(self.joined))
            alive = max((sum(map(words, ops)) for ops in found), default=0)
        indices = tuple(
            dict.fromkeys(_steps(op.attrs.expr, *self.places)[0] for op in self.ops if isinstance(op.attrs, Index))
        )
        facts = (self.joined, self.in_turn, self.walked_again, alive, self.scans, product, indices)
        return Shape(tuple(self.extents), touches, self.work(is_gpu=is_gpu), joins, *facts)

    @property
    def row(self) -> int:
        """The elements of a row that is reduced or scanned."""
        return prod(extent for n, extent in enumerate(self.extents) if self.joined >> n & 1)

    def names(self, axes: int) -> list[str]:
        """The names of a set of axes."""
        return [axis.name for n, axis in enumerate(self.kernel.axes) if axes >> n & 1]

    def size_of(self, position: int) -> int:
        """The bytes of an operand of a product: of what is loaded or rounded to, if it is one of the two."""
        op = self.ops[position]
        if isinstance(op.attrs, Round):
            return op.attrs.dtype.itemsize
        if isinstance(op.attrs, Load):
            return self.table[op.attrs.ref.storage].dtype.itemsize
        return WORD if op.dtype is None else op.dtype.itemsize

    def joins(self) -> Iterator[Join]:
        """The reductions."""
        for p, op in enumerate(self.ops):
            if isinstance(op.attrs, Reduce):
                reduced = self.axes[p] & ~self.results[p]
                yield Join(reduced, self.results[p], len(op.args), self.operations(op), len(op.args) * words(op))

    # --- accesses

    def touches(self) -> tuple[Touch, ...]:
        """The accesses, each kind once."""
        found: dict[tuple[str, bool, Steps], Touch] = {}
        for p, each in self.accesses():
            ref, index = each.ref, each.index
            is_store = not isinstance(each, Load)
            axes, passes = self.axes[p], self.passes[p]
            touch, is_drawn = self.known.get((ref.storage, index)) or self.touch(ref.storage, index)
            steps = touch.steps
            if is_drawn:  # data decide where it is along its axes
                steps = tuple(None if step == 0 and axes >> n & 1 else step for n, step in enumerate(steps))
            key = ref.storage, is_store, steps
            before = found.get(key)
            if before is None:
                fixed = touch.size, touch.storage_bytes, touch.drawn
                found[key] = Touch(touch[0], touch[1], steps, axes, *fixed, is_store, passes, 1, *touch[-3:])
            elif not touch.starts <= before.starts or axes | before.axes != before.axes or passes > before.passes:
                starts = before.starts | touch.starts
                size = before.size  # those that data decide are elements of the same part
                if not is_drawn:
                    size = min(before.storage_bytes, before.size // before.times * len(starts))
                axes, passes = before.axes | axes, max(before.passes, passes)
                rest = len(starts), before.is_bent and touch.is_bent, before.spans, starts
                found[key] = Touch(*before[:3], axes, size, *before[5:8], passes, *rest)
        return tuple(found.values())

    def accesses(self) -> Iterator[tuple[int, Load | Store | Atomic]]:
        """The accesses with the positions of their ops, those under a mask with the position of the masked op."""
        for p, op in enumerate(self.ops):
            attrs = op.attrs
            if attrs is None:
                continue
            if isinstance(attrs, (Load, Store, Atomic)):
                yield p, attrs
            elif isinstance(attrs, Masked):
                for inner in all_ops(attrs.body):
                    if isinstance(inner.attrs, Load | Store | Atomic):
                        yield p, inner.attrs

    def touch(self, storage: str, index: Expr) -> tuple[Touch, bool]:
        """A load at an index, wherever it stands; and whether data decide its place."""
        buffer = self.table[storage]
        size, whole = buffer.dtype.itemsize, buffer_bytes(buffer, self.hints)
        steps, start, is_drawn = _steps(index, *self.places)
        moved = prod(extent for extent, step in zip(self.extents, steps, strict=True) if step != 0)
        if is_drawn:  # how far it reaches depends on the kernel's checks
            spans = self.spans(index, size)
            reach = min(whole, size + sum((span.values - 1) * span.step for span in spans)) if spans else whole
            starts = frozenset(((start, *self.values(start)),))
            part = min(whole, moved * reach)
            return Touch(storage, size, steps, 0, part, whole, max(1, reach), spans=spans, starts=starts), True
        starts = frozenset((start,))
        is_bent = None in steps and self.is_bent(index, steps)
        made = Touch(storage, size, steps, 0, min(whole, moved * size), whole, is_bent=is_bent, starts=starts)
        self.known[storage, index] = made, False
        return made, False

    def is_bent(self, index: Expr, steps: Steps) -> bool:
        """Whether an index changes its formula at few points only of the axes along which its step is not constant."""
        axes = zip(self.places[0], self.extents, steps, strict=True)
        counts = [bends(index, symbol, extent) for symbol, extent, step in axes if step is None]
        return all(count is not None and count <= MOST_CUTS for count in counts)

    def spans(self, index: Expr, itemsize: int) -> tuple[Span, ...]:
        """The values of an index that data decide; none if the index is no sum of multiples of them."""
        checks = self.checks(index)
        if (split := linear(index, [check.symbol for _, check in checks])) is None:
            return ()
        steps = [as_int(split[0][check.symbol]) for _, check in checks]
        return tuple(
            Span(self.axes[p], estimate(check.size, self.hints), itemsize * abs(step))
            for (p, check), step in zip(checks, steps, strict=True)
            if step is not None and None not in steps
        )

    def values(self, index: int | Expr) -> Iterator[tuple[object, ...]]:
        """What computes each value of an index that data decide: other kernels use the same names for other values."""
        for p, _ in self.checks(index):
            needed = {p}
            for q in range(p, -1, -1):
                needed.update(self.ops[q].args if q in needed else ())
            places = {q: n for n, q in enumerate(sorted(needed))}
            used = [(each, tuple(places[a] for a in each.args)) for each in map(self.ops.__getitem__, places)]
            yield tuple((o.name, args, None if isinstance(o.attrs, Check) else o.attrs) for o, args in used)

    def checks(self, index: int | Expr) -> list[tuple[int, Check]]:
        """The checks, by position, of the values of an index that data decide."""
        names = () if isinstance(index, int) else free_symbols(index)
        checks = ((p, op.attrs) for p, op in enumerate(self.ops) if isinstance(op.attrs, Check))
        return [(p, check) for p, check in checks if check.symbol in names]

    # --- operations

    def work(self, *, is_gpu: bool) -> tuple[Work, ...]:
        """The operations of all ops, those of equal axes, sizes and passes together."""
        found: dict[tuple[int, int, int, bool], list[float]] = {}
        inside = [False] * len(self.ops) if is_gpu or not self.joined else self.inside()
        for op, axes, passes, is_inside in zip(self.ops, self.axes, self.passes, inside, strict=True):
            size = WORD if op.dtype is None else max(WORD, op.dtype.itemsize)
            total = found.setdefault((axes, size, passes, is_inside), [0, 0, 0])
            if op.attrs is None:
                units = _units(op.name, op.dtype)
                total[0] += units[0] * (double_rate(op) if is_gpu else 1)
                total[1] += units[1]
                total[2] += units[2]
                continue
            total[0] += self.operations(op) * (double_rate(op) if is_gpu else 1)
            for each in all_ops(op.attrs.body) if isinstance(op.attrs, Masked) else ():
                units = (self.operations(each), 0, 0) if each.attrs is not None else _units(each.name, each.dtype)
                total[0] += units[0]
                total[1] += units[1]
                total[2] += units[2]
        return tuple(Work(*key, total[0], total[1], int(total[2])) for key, total in found.items() if any(total))

    def inside(self) -> list[bool]:
        """Of each op whether its value is the same along a row, and something that varies along the row needs it."""
        found = [False] * len(self.ops)
        for p in range(len(self.ops) - 1, -1, -1):
            for a in self.ops[p].args if found[p] or self.axes[p] & self.joined else ():
                found[a] = not self.axes[a] & self.joined
        return found

    def operations(self, op: Op) -> int:
        """The operations at one point of an op that is not pointwise."""
        match op.attrs:
            case Load():
                return 1
            case Store(ref, _) | Atomic(ref, _, _) if self.table[ref.storage].dtype in (F16, BF16):
                return ROUND
            case Check():
                return CHECK
            case Constant() | Index() | Project():
                return 0
            case Reduce(_, how) | Scan(_, how, _):
                if how.name in ("max", "min") and op.dtype is not None and op.dtype.kind == "float":
                    return NAN_MAXIMUM
                return sum(op_cost(inner.name) for inner in how.body.ops if inner.attrs is None)
            case _:
                return 1


# --- shapes made of shapes


def merged(shape: Shape) -> Shape:
    """The shape with axes that everything runs through as one made one, and without axes of one element."""
    if shape.product is not None:
        return shape
    sets = _axis_sets(shape)
    steps = frozenset((*[touch.steps for touch in shape.touches], *shape.indices))
    groups = _groups(shape.extents, shape.joined, steps, sets)
    if len(groups) == len(shape.extents):
        return shape

    renamed: dict[int, int] = {}  # by a set of axes the set of those that they are part of
    for axes in sets | {shape.walked_again}:
        renamed[axes] = sum(1 << place for place, group in enumerate(groups) if axes >> group[-1] & 1)
    inner = [group[-1] for group in groups]
    touches = [
        Touch(t.storage, t.itemsize, tuple(map(t.steps.__getitem__, inner)), renamed[t.axes], *t[4:])
        for t in shape.touches
    ]
    if any(touch.spans for touch in touches):
        spans = [tuple(span._replace(axes=renamed[span.axes]) for span in touch.spans) for touch in touches]
        touches = [touch._replace(spans=each) for touch, each in zip(touches, spans, strict=True)]
    return shape._replace(
        extents=tuple(prod(shape.extents[n] for n in group) for group in groups),
        touches=tuple(touches),
        work=tuple(Work(renamed[work.axes], *work[1:]) for work in shape.work),
        joins=tuple(Join(renamed[join.reduced], renamed[join.kept], *join[2:]) for join in shape.joins),
        joined=renamed[shape.joined],
        walked_again=renamed[shape.walked_again],
        indices=(),
    )


def _axis_sets(shape: Shape) -> frozenset[int]:
    """The sets of axes over which something varies or is reduced."""
    sets = [shape.joined, *[touch.axes for touch in shape.touches], *[work.axes for work in shape.work]]
    for join in shape.joins:
        sets += join.reduced, join.kept
    sets += [span.axes for touch in shape.touches for span in touch.spans]
    return frozenset(sets)


@lru_cache(1024)  # kernels of a program that differ in what they compute move alike
def _groups(
    extents: tuple[int, ...], joined: int, steps: frozenset[Steps], sets: frozenset[int]
) -> tuple[tuple[int, ...], ...]:
    """The axes that become one, outermost first in each group; `sets`: those over which something varies or joins."""
    groups: list[list[int]] = []
    for axis, extent in enumerate(extents):
        if extent == 1 and not joined >> axis & 1:
            continue
        for group in groups:
            if _follows(group[-1], axis, extents, steps, sets):
                group.append(axis)
                break
            if _follows(axis, group[0], extents, steps, sets):
                group.insert(0, axis)
                break
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


def _follows(outer: int, inner: int, extents: tuple[int, ...], steps: Iterable[Steps], sets: Iterable[int]) -> bool:
    """Whether one step along `outer` is a walk through all of `inner`, in each access and each op."""
    extent = extents[inner]
    for each in steps:
        a, b = each[outer], each[inner]
        if a is None or b is None or a != b * extent:
            return False
    return all(axes >> outer & 1 == axes >> inner & 1 for axes in sets)


def inlined(consumer: Shape, producer: Shape, storage: str, *, is_index: bool = False) -> Shape:
    """The shape of a consumer that computes each element of `storage` where it uses it, as `producer` does.

    `is_index`: they are integers; an index that is computed where it is used is often proved to be in range, so it
    needs no check.
    """
    (store,) = [touch for touch in producer.touches if touch.is_store]
    loads = [touch for touch in producer.touches if not touch.is_store]
    uses: list[Touch] = []
    found: dict[tuple[str, bool, Steps], Touch] = {}
    for touch in consumer.touches:
        if touch.storage == storage and not touch.is_store:
            uses.append(touch)
        else:
            found[touch.storage, touch.is_store, touch.steps] = touch
    work = {each[:4]: each for each in consumer.work}
    in_row = {each.axes for each in consumer.work if each.is_inside}
    for use in uses:
        places, moved, is_same = _places(use.steps, consumer.extents, producer.extents, store.steps)
        share = min(1.0, use.size / max(1, store.size))
        axes = use.axes & moved
        is_same = is_same and share == 1 and use.starts == AT_FIRST and not use.drawn
        for touch in loads:
            is_moved = not (is_same and touch.axes == axes and touch.passes == use.passes) or touch.spans
            _add_touch(found, _used(touch, use, places, axes, share, store.steps) if is_moved else touch)
        spared = use.times * (MOVED + CHECK * is_index)
        for each in producer.work:
            key = axes & _axes_around(places, each.axes), each.size, use.passes, use.axes in in_row
            old = work.get(key) or Work(*key)
            operations = old.operations + use.times * each.operations
            less = min(spared, operations) if each.axes == store.axes else 0
            spared -= less
            functions = old.functions + use.times * each.functions
            work[key] = Work(*key, operations - less, functions, old.divisions + use.times * each.divisions)
    return Shape(consumer.extents, tuple(found.values()), tuple(work.values()), *consumer[3:])


def and_stored(made: Shape, consumer: Shape, storage: str) -> Shape:
    """The shape `made` of a consumer that computes the elements of `storage` that it loaded before, and stores them."""
    loads = (touch for touch in consumer.touches if touch.storage == storage and not touch.is_store)
    stores = [Touch(*touch[:7], True, 1, *touch[9:]) for touch in loads]
    return Shape(made.extents, (*made.touches, *stores), *made[2:])


# Along an axis of a consumer: the axis of the producer that it runs through, and how many of its elements a step is.
_Place: TypeAlias = tuple[int, int] | None


@lru_cache(1024)  # most kernels of a program use each other's results in the same few ways
def _places(
    use: Steps, extents: Sequence[int], others: Sequence[int], store: Steps
) -> tuple[tuple[_Place, ...], int, bool]:
    """By axis of the consumer the place in the producer's axes, whose results lie `store` elements apart.

    Also the axes along which the consumer moves through the results, and whether it walks as the producer does.
    """
    found: list[_Place] = []
    for step, extent in zip(use, extents, strict=True):
        within = [n for n, other in enumerate(store) if step and other and step % other == 0]
        if not within:
            found.append(None)
            continue
        axis = max(within, key=lambda n: abs(store[n] or 0))
        times = (step or 0) // (store[axis] or 1)
        found.append((axis, times) if abs(times) * (extent - 1) < others[axis] or len(within) == len(others) else None)
    moved = sum(1 << n for n, step in enumerate(use) if step != 0)
    is_same = extents == others and found == [(n, 1) for n in range(len(others))]
    return tuple(found), moved, is_same


@lru_cache(1024)
def _axes_around(places: tuple[_Place, ...], axes: int) -> int:
    """The axes of the consumer along which something of these axes of the producer varies."""
    return sum(1 << n for n, at in enumerate(places) if at is None or axes >> at[0] & 1)


@lru_cache(1024)
def _steps_through(own: Steps, use: Steps, places: tuple[_Place, ...]) -> Steps:
    """How an access of a producer moves along the axes of a consumer."""
    steps: list[int | None] = []
    for place, step in zip(places, use, strict=True):
        if step == 0:
            steps.append(0)
        elif place is None or (along := own[place[0]]) is None:
            steps.append(None if any(each != 0 for each in own) else 0)
        else:
            steps.append(along * place[1])
    return tuple(steps)


def _used(touch: Touch, use: Touch, places: tuple[_Place, ...], axes: int, share: float, store: Steps) -> Touch:
    """An access of a producer where a consumer uses the result, which lies `store` elements apart."""
    steps = _steps_through(touch.steps, use.steps, places)
    drawn, size = touch.drawn, touch.size
    if any(steps) or None in steps:
        drawn = max(drawn, min(touch.storage_bytes, use.drawn))
        size = max(touch.itemsize, int(size * share))
    starts = touch.starts
    if use.starts != AT_FIRST:
        starts = frozenset(_start(own, at, touch.steps, store) for own in touch.starts for at in use.starts)
    spans = use.spans if use.drawn else touch.spans
    if spans and not use.drawn:
        spans = tuple(span._replace(axes=_along(span.axes, use, places)) for span in spans)
    is_bent = (touch.is_bent or None not in touch.steps) and (use.is_bent or None not in use.steps)
    fixed = touch.storage, touch.itemsize, steps, axes
    return Touch(*fixed, size, touch.storage_bytes, drawn, False, use.passes, len(starts), is_bent, spans, starts)


def _along(axes: int, use: Touch, places: Sequence[_Place]) -> int:
    """The axes of a consumer along which it runs through some axes of a producer."""
    return sum(
        1 << n
        for n, (place, step) in enumerate(zip(places, use.steps, strict=True))
        if step != 0 and (place is None or axes >> place[0] & 1)
    )


def _start(own: Start, at: Start, steps: Steps, store: Steps) -> Start:
    """Where an access of a producer begins, of which the consumer uses the results from `at` on."""
    if not at:
        return own
    if isinstance(own, tuple) or isinstance(at, tuple):
        return own, at
    if not isinstance(at, int):
        return own + at
    for step, other in sorted(zip(store, steps, strict=True), key=lambda pair: -abs(pair[0] or 0)):
        if step:
            count, at = divmod(at, step)
            own += count * (other or 0)
    return own


def _add_touch(found: dict[tuple[str, bool, Steps], Touch], touch: Touch) -> None:
    """Adds an access, or makes it one with those that move alike."""
    key = touch.storage, touch.is_store, touch.steps
    old = found.setdefault(key, touch)
    axes, size, passes, starts = touch.axes, touch.size, touch.passes, touch.starts
    if old is touch or (
        axes | old.axes == old.axes and size <= old.size and passes <= old.passes and starts <= old.starts
    ):
        return
    axes, size, passes, starts = old.axes | axes, max(old.size, size), max(old.passes, passes), old.starts | starts
    if not touch.drawn | old.drawn:
        size = max(size, min(old.storage_bytes, max(old.size // old.times, touch.size // touch.times) * len(starts)))
    rest = len(starts), old.is_bent and touch.is_bent, old.spans, starts
    found[key] = Touch(*old[:3], axes, size, *old[5:8], passes, *rest)


# --- reading


@lru_cache(1024)
def _units(name: str, dtype: DType | None) -> tuple[int, int, int]:
    """The operations of a pointwise op; those of them that are a function's; 1 if it divides integers."""
    count = op_cost(name)
    is_division = name in INTEGER_DIVISIONS and dtype is not None and dtype.kind != "float"
    return count, count if count >= FUNCTION else 0, int(is_division)


@lru_cache(8192)  # fusion asks for the same few indices again with each kernel that it tries
def _steps(index: Expr, symbols: tuple[Symbol, ...], hints: Hints) -> tuple[Steps, int | Expr, bool]:
    """How far an index moves along each axis, sizes that are not known estimated; its start; and if data decide it."""
    names = free_symbols(index)
    split = linear(index, symbols)
    steps: list[int | None] = []
    for symbol in symbols:
        step = split[0][symbol] if split else step_along(index, symbol) if symbol in names else integer(0)
        known = as_int(step)
        is_known = known is not None or all(s.kind == "size" for s in free_symbols(step))
        steps.append(known if known is not None else estimate(step, hints) if is_known else None)
    start = split[1] if split else index
    known = as_int(start)
    return tuple(steps), start if known is None else known, any(symbol.kind == "value" for symbol in names)
