"""Makes one kernel of two, if their points match and no value changes by it.

Takes two kernels of which the first may run directly before the second. Gives the joined kernel, or says why not.

The kernel with more points lends its axes; the other's are solved from what both touch: `store index == load index`
where the second reads what the first writes, `load index == load index` where both read the same. Axes that this
leaves open are matched by their extents. Laws of a joined kernel, checked on its body: it has rows (the points of
the axes that no reduce runs over) and columns; every reduce runs over all columns, and every effect happens once a row
or once a point. A scan runs along the only column axis, and all scans from the same end. A kernel that reduces both
ways, along its rows and down its columns, has the laws of `both_ways`.
What the second kernel reads of the first one's stores is the very element of the same point, as memory holds it if
it is kept there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from math import gcd, inf
from typing import TypeAlias

from minductor.analysis.both_ways import MANY_POINTS, both_ways, reduced_groups
from minductor.analysis.both_ways import objection as both_ways_objection
from minductor.analysis.domain import Solution, count_points, estimate, extents_of, has_division, is_bijection, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import interval
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear, substitute
from minductor.core.expressions.intervals import Range
from minductor.core.expressions.rewrite import delinearize, simplify
from minductor.cost.footprint import LAUNCH, read_again, repeated, spilled
from minductor.cost.products import product_objection
from minductor.cost.traffic import traffic
from minductor.ir.program.build import Builder, axis_step
from minductor.ir.program.nodes import (
    MAX_BUFFERS,
    MAX_OPS,
    Atomic,
    Axis,
    Body,
    Buffer,
    Kernel,
    Load,
    Masked,
    Op,
    Reduce,
    Ref,
    Round,
    Scan,
    Store,
    body_reads,
    body_writes,
)
from minductor.passes.rewriting.prune import prune_body
from minductor.passes.rewriting.stored_values import as_stored
from minductor.target import Target

TOO_MANY_OPS = f"more than {MAX_OPS} ops"
MAX_PAIRS = 12  # accesses of one buffer that are compared
FEW_ROWS = 8  # with fewer, a reduction and what follows it are better two kernels that each use all cores
NEAR = range(1, 5)  # elements from one column to the next, where a row's cache lines are its own
ROW_BLOCK_BYTES = 1024  # of rows side by side that are worked on at a time if rows are not contiguous
# as `_unless_slower` counts them
COSTS = (
    "accesses in strides",
    "rows that the cache does not keep",
    "values that a thread has no registers for",
    "what it computes again",
)

Pairs: TypeAlias = list[tuple[Expr, Expr]]


@dataclass(frozen=True, slots=True)
class CannotJoin:
    """Why two kernels stay two."""

    reason: str


@dataclass(frozen=True, slots=True)
class JoinContext:
    """What of the program and the target a join must know."""

    table: Mapping[str, Buffer]
    target: Target

    @property
    def cache(self) -> int:
        return self.target.l2_bytes or self.target.shared_memory


def join(first: Kernel, second: Kernel, droppable: frozenset[Ref], limits: JoinContext) -> Kernel | CannotJoin:
    """Both as one kernel; stores of `droppable` versions are left out. Name and origins are the first one's."""
    for kernel in (first, second):
        if any(isinstance(op.attrs, Atomic) for op in kernel.body.ops):
            return CannotJoin(f"{kernel.name} has an atomic")
    pairs = common_accesses(first, second)
    if not pairs and not _fill_one_storage(first, second):
        return CannotJoin("no access of a common buffer names its points")
    if len(_touched(first.body) | _touched(second.body)) - len(droppable) > MAX_BUFFERS:
        return CannotJoin(f"more than {MAX_BUFFERS} buffers")
    reasons: dict[str, None] = {}
    for is_first in _targets(first, second):
        target, source = (first, second) if is_first else (second, first)
        aligned = pairs if not is_first else [(b, a) for a, b in pairs]
        for solution in _alignments(source, target, aligned):
            groups = {*_walked_groups(target.body), *_walked_by(solution, source)}
            if any(axis_step(at) is None for axis, at in solution.items() if axis.name in _scanned(source.body)):
                reasons["a scan would not run along one axis"] = None
                continue
            if any(a != b and not a.isdisjoint(b) for a in groups for b in groups):
                reasons[f"reduces over {_alternatives(groups)}"] = None
                continue
            same: Solution = {}
            maps = (same, solution) if is_first else (solution, same)
            joined = _join_aligned((first, second), target.axes, maps, droppable, limits)
            if isinstance(joined, Kernel) and limits.target.is_gpu:
                reason = product_objection((first, second), joined)
                joined = joined if reason is None else CannotJoin(reason)
            if isinstance(joined, Kernel):
                again = 0 if is_first else repeated(first, target.axes, solution, limits.target)
                joined = _unless_slower((first, second), joined, again, limits)
            if isinstance(joined, Kernel):
                return joined
            if joined.reason == TOO_MANY_OPS:  # whosever axes they are
                return joined
            reasons[joined.reason] = None
    return CannotJoin("; ".join(reasons) or f"{_shape(first)} points do not match {_shape(second)} one to one")


def _shape(kernel: Kernel) -> str:
    return " x ".join(str(axis.extent) for axis in kernel.axes) or "1"


def _touched(body: Body) -> set[str]:
    return {load.ref.storage for load in body_reads(body)} | {write.ref.storage for write in body_writes(body)}


# --- which point of one is which of the other -----------------------------------------------------------------------


def common_accesses(first: Kernel, second: Kernel) -> Pairs:
    """Index pairs (first, second) of elements that both touch, most axes first."""
    stored: dict[Ref, list[Expr]] = {}
    for write in body_writes(first.body):
        stored.setdefault(write.ref, []).append(write.index)
    first_loads = _loads(first.body)
    pairs: Pairs = []
    for ref, indices in _loads(second.body).items():
        if ref in stored:
            pairs += [(made, index) for made in stored[ref] for index in indices][:MAX_PAIRS]
        elif ref in first_loads:
            pairs += [(a, b) for a in first_loads[ref] for b in indices][:MAX_PAIRS]
    for write in body_writes(second.body):  # what the first reads and the second overwrites
        old = first_loads.get(Ref(write.ref.storage, write.ref.version - 1), ())
        pairs += [(index, write.index) for index in old[:MAX_PAIRS]]
    usable = [pair for pair in pairs if not any(s.kind == "value" for index in pair for s in free_symbols(index))]
    return sorted(dict.fromkeys(usable), key=lambda pair: -sum(len(free_symbols(index)) for index in pair))


def _loads(body: Body) -> dict[Ref, list[Expr]]:
    found: dict[Ref, dict[Expr, None]] = {}
    for load in body_reads(body):
        found.setdefault(load.ref, {})[load.index] = None
    return {ref: list(indices) for ref, indices in found.items()}


def _targets(first: Kernel, second: Kernel) -> tuple[bool, ...]:
    """Whose axes to try: True for the first's. With equally many points, the reduction's, then the consumer's."""
    a, b = count_points(first), count_points(second)
    if a != b:
        return (a > b,)
    is_first = _has_reduce(first.body) and not _has_reduce(second.body)
    return (is_first, not is_first)


def _has_reduce(body: Body) -> bool:
    return any(isinstance(op.attrs, Reduce | Scan) for op in body.ops)


def _alignments(source: Kernel, target: Kernel, pairs: Pairs) -> Iterator[Solution]:
    """Ways to write the source's axes in the target's, the most promising first."""
    tried: set[tuple[tuple[Symbol, Expr], ...]] = set()
    for number in range(min(3, len(pairs))):
        solution = _aligned(source, target, [pairs[number], *pairs[:number], *pairs[number + 1 :]])
        if solution is None or (key := tuple(solution.items())) in tried:
            continue
        tried.add(key)
        yield solution

    if _fill_one_storage(source, target) and [a.extent for a in source.axes] == [a.extent for a in target.axes]:
        yield {a.symbol: b.symbol for a, b in zip(source.axes, target.axes, strict=True)}


def _fill_one_storage(first: Kernel, second: Kernel) -> bool:
    """Whether both write slices of one storage: then they may run together, whatever they read."""
    filled = {write.ref.storage for write in body_writes(first.body)}
    return any(write.ref.storage in filled for write in body_writes(second.body))


def _aligned(source: Kernel, target: Kernel, pairs: Pairs) -> Solution | None:
    extents = extents_of(target.axes)
    found: Solution = {}
    for index, wanted in pairs:
        open_axes = [axis for axis in source.axes if axis.symbol not in found]
        if not open_axes:
            break
        split = linear(index, [axis.symbol for axis in source.axes])
        if split is None:
            continue
        unknown = [axis for axis in open_axes if as_int(split[0][axis.symbol]) != 0]
        if not unknown:
            continue
        # what is known already stands in the target's axes, so it moves to the other side
        known = [(c, found[axis]) for axis, c in split[0].items() if axis in found]
        rest = sum((split[0][axis.symbol] * axis.symbol for axis in unknown), split[1])
        solved = solve(rest, unknown, wanted - sum((c * at for c, at in known), start=split[1] * 0), extents)
        if solved is not None and not any(has_division(at) for at in solved.values()):
            found.update(solved)
    return _completed(source, target, found, extents)


def _completed(source: Kernel, target: Kernel, found: Solution, extents: Mapping[Symbol, Expr]) -> Solution | None:
    """Matches what is still open by extent; None if the points then do not match."""
    used = {symbol for at in found.values() for symbol in free_symbols(at)}
    for axis in source.axes:
        if axis.symbol in found:
            continue
        free = (a.symbol for a in target.axes if a.symbol not in used and a.extent == axis.extent)
        match = next(free, None)
        if match is None:
            return None
        found[axis.symbol] = match
        used.add(match)
    ordered = {axis.symbol: found[axis.symbol] for axis in source.axes}
    matched = ordered
    if _scanned(source.body) or _scanned(target.body):  # a flip before or behind a scan turns it round
        matched = {axis.symbol: _turned(ordered[axis.symbol], axis.extent) for axis in source.axes}
    return ordered if is_bijection(matched, extents_of(source.axes), extents) else None


def _turned(at: Expr, extent: Expr) -> Expr:
    """The axis, where a coordinate is one counted from its end."""
    mirrored = extent - 1 - at
    return mirrored if isinstance(mirrored, Symbol) else at


def _reduced(body: Body) -> set[str]:
    return {name for op in body.ops if isinstance(op.attrs, Reduce) for name in op.attrs.axes}


def _scanned(body: Body) -> dict[str, None]:
    """The axes that scans run along, in order."""
    return {op.attrs.axis: None for op in body.ops if isinstance(op.attrs, Scan)}


def _walked_groups(body: Body) -> list[frozenset[str]]:
    """The sets of axes that a reduce or scan walks along, each once."""
    return list(dict.fromkeys([*reduced_groups(body), *(frozenset((axis,)) for axis in _scanned(body))]))


def _walked_by(solution: Solution, source: Kernel) -> list[frozenset[str]]:
    """The target's axes that each of the source's reduces and scans walks along."""
    names = {axis.name: {s.name for s in free_symbols(at)} for axis, at in solution.items()}
    return [frozenset[str]().union(*(names[n] for n in group)) for group in _walked_groups(source.body)]


# --- the joined body ------------------------------------------------------------------------------------------------


def _join_aligned(
    kernels: tuple[Kernel, Kernel],
    axes: tuple[Axis, ...],
    maps: tuple[Mapping[Symbol, Expr], Mapping[Symbol, Expr]],
    droppable: frozenset[Ref],
    limits: JoinContext,
) -> Kernel | CannotJoin:
    first, second = kernels
    extents = extents_of(axes)
    builder = Builder([axis.symbol for axis in axes], extents)
    places = builder.splice(first.body, maps[0], effects=lambda op: not _stores(op, droppable), node=first.only_node)
    stored = _stored(kernels, builder, places, maps[0], droppable, limits)
    trouble: list[str] = []

    def load(b: Builder, wanted: Load, _: DType) -> int | None:
        if wanted.ref not in stored:
            return None
        if b is not builder:
            trouble.append(f"{wanted.ref} is read inside a masked region")
            return None
        there = Load(wanted.ref, simplify(wanted.index, extents))
        # what the last write left alone, an earlier one may have made
        for version in range(wanted.ref.version, -1, -1):
            made = stored.get(Ref(wanted.ref.storage, version), [])
            if (value := next((value for index, value in made if index == there.index), None)) is not None:
                return value
            if not made or not all(_is_apart(there, Store(there.ref, at), extents, limits.table) for at, _ in made):
                break
        trouble.append(f"{wanted.ref} is read at another element than the one stored at the same point")
        return None

    builder.splice(second.body, maps[1], load, node=second.only_node)
    if trouble:
        return CannotJoin(trouble[0])
    body = prune_body(builder.build())
    reason = _objection(body, axes, extents, limits)
    return CannotJoin(reason) if reason is not None else replace(first, axes=axes, body=body)


def _stored(
    kernels: tuple[Kernel, Kernel],
    b: Builder,
    places: Sequence[int],
    at: Mapping[Symbol, Expr],
    droppable: frozenset[Ref],
    limits: JoinContext,
) -> dict[Ref, list[tuple[Expr, int]]]:
    """By version, where in what the second kernel reads the first one stores which value, as memory holds it.

    What is never in memory is not rounded, unless an earlier user was given it as memory had it then.
    """
    first, second = kernels
    read = {load.ref.storage for load in body_reads(second.body)}
    rounded = {(op.args[0], op.attrs.dtype) for op in first.body.ops if isinstance(op.attrs, Round)}
    found: dict[Ref, list[tuple[Expr, int]]] = {}
    for op in first.body.ops:
        if not isinstance(op.attrs, Store) or op.attrs.ref.storage not in read:
            continue
        ref, value, dtype = op.attrs.ref, places[op.args[0]], limits.table[op.attrs.ref.storage].dtype
        if ref not in droppable or (op.args[0], dtype) in rounded:
            value = as_stored(b, value, dtype, limits.table)
        index = simplify(substitute(op.attrs.index, at), b.extents)
        found.setdefault(ref, []).append((index, value))
    return found


def _unless_slower(
    kernels: tuple[Kernel, Kernel], joined: Kernel, again: int, limits: JoinContext
) -> Kernel | CannotJoin:
    """The joined kernel, if what it costs more on the target than the two did, with what the first computes again, is
    no more than the launch it saves."""
    costs = [
        (traffic(k, limits.table), read_again(k, limits.table, limits.target), spilled(k, limits.target))
        for k in (*kernels, joined)
    ]
    more = [*(after - first - second for first, second, after in zip(*costs, strict=True)), again]
    worse = sum(more) - LAUNCH
    return (
        joined
        if worse <= 0
        else CannotJoin(f"{COSTS[more.index(max(more))]} would cost {worse} bytes more than is saved")
    )


def _stores(op: Op, refs: frozenset[Ref]) -> bool:
    return isinstance(op.attrs, Store) and op.attrs.ref in refs


def _objection(body: Body, axes: tuple[Axis, ...], extents: Mapping[Symbol, Expr], limits: JoinContext) -> str | None:
    """What speaks against a body, or None."""
    if len(body.ops) > MAX_OPS:
        return TOO_MANY_OPS
    ways = both_ways(body, axes)
    if ways is not None and limits.target.is_gpu:
        return "reduces along rows and down them: a program of a GPU sees a few rows only"
    if ways is not None and _scanned(body):
        return f"scans and reduces over {_alternatives(_walked_groups(body))}"
    columns = _reduced(body) | _scanned(body).keys() if ways is None else ways.columns
    return (
        (_one_way_objection(body, axes, columns) if ways is None else both_ways_objection(body, axes, ways))
        or _row_objection(body, axes, columns, limits.cache)
        # a scan walks along its row once
        or _overwriting(body, columns if _reduced(body) else set(), extents, limits.table)
        or next(
            (
                reason
                for a, b in _slices(body, extents, limits.table)
                if (reason := _overlap(a, b, columns, extents, limits.table)) is not None
            ),
            None,
        )
    )


def _one_way_objection(body: Body, axes: tuple[Axis, ...], columns: Set[str]) -> str | None:
    """Whether a reduce runs over other axes than the columns, or an effect would happen once for each of several."""
    rows = {axis.name for axis in axes if axis.name not in columns}
    for op in body.ops:
        if isinstance(op.attrs, Reduce) and set(op.attrs.axes) != columns:
            return f"reduces over {_alternatives(reduced_groups(body))}"
        if isinstance(op.attrs, Scan) and {op.attrs.axis} != columns:
            return f"scans and reduces over {_alternatives(_walked_groups(body))}"
        if op.is_effect and not rows.issubset(op.axes):
            return f"would repeat what does not vary over {_names(rows - set(op.axes))}"
    if len({op.attrs.reverse for op in body.ops if isinstance(op.attrs, Scan)}) > 1:
        return "scans a row from both ends"
    return None


def _alternatives(groups: Iterable[Set[str]]) -> str:
    return " and over ".join(sorted(_names(group) for group in groups))


def _names(axes: Iterable[str]) -> str:
    return ", ".join(sorted(axes))


def _row_objection(body: Body, axes: Sequence[Axis], columns: Set[str], cache: int) -> str | None:
    """Whether what is read again after a reduce is too few rows, or in strides that no cache bridges."""
    if not _has_second_phase(body, columns):
        return None
    rows = estimate(axis.extent for axis in axes if axis.name not in columns)
    width = estimate(axis.extent for axis in axes if axis.name in columns)
    if rows < FEW_ROWS and rows * width > MANY_POINTS:
        return f"only {rows} rows could run in parallel"
    symbols = [axis.symbol for axis in axes]
    for access in (*body_reads(body), *body_writes(body)):
        split = linear(access.index, symbols)
        if split is not None and any(s.name in columns and as_int(c) in NEAR for s, c in split[0].items()):
            return None
    # Rows side by side are worked on in blocks instead, which costs more arithmetic than two kernels and less memory.
    if width * ROW_BLOCK_BYTES > cache:
        return "a block of rows, read twice in strides, would not fit the cache"
    return None if 4 * rows * width > 8 * cache else "so little data in strides stays in the cache between two kernels"


def _has_second_phase(body: Body, columns: Set[str]) -> bool:
    """Whether something varies over the columns and needs a reduce over them."""
    after: list[bool] = []
    for op in body.ops:
        needs = any(after[a] for a in op.args)
        if needs and not columns.isdisjoint(op.axes):
            return True
        after.append(needs or isinstance(op.attrs, Reduce))
    return False


def _overwriting(
    body: Body, columns: Set[str], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]
) -> str | None:
    """A version may be overwritten where it is read only at the same element, and not where a row is read again.

    What is read may also be apart from all that is written. No two points write one element: such a write is an Atomic.
    """
    writes = [write for write in body_writes(body) if isinstance(write, Store)]
    varying = {write.ref for op in body.ops if isinstance(write := op.attrs, Store) and not columns.isdisjoint(op.axes)}
    has_scan = any(isinstance(op.attrs, Scan) for op in body.ops)
    inside = {n for op in body.ops if isinstance(op.attrs, Masked) for n in body_reads(op.attrs.body)}
    for load, write in product(dict.fromkeys(body_reads(body)), writes):
        if load.ref.storage != write.ref.storage or load.ref.version >= write.ref.version:
            continue
        if _is_apart(load, write, extents, table):
            continue
        if has_scan:
            return f"{load.ref} is overwritten while a scan walks over it"
        if load.index != write.index:
            return f"{load.ref} is overwritten at another element than the one read"
        if write.ref in varying:
            return f"{load.ref} is overwritten while its row is in use"
        if load in inside:
            return f"{load.ref} is overwritten and read inside a masked region"
    return None


def _slices(body: Body, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> Iterator[tuple[Store, Store]]:
    """Pairs of stores to the same storage, but for storages whose stores lie in a row."""
    stores: dict[str, list[Store]] = {}
    for op in body.ops:
        if isinstance(op.attrs, Store):
            stores.setdefault(op.attrs.ref.storage, []).append(op.attrs)
    for same in stores.values():
        if len(same) > 1 and not _in_a_row(same, extents, table):
            yield from combinations(same, 2)


def _in_a_row(stores: Sequence[Store], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> bool:
    """Whether their boxes stand one behind the other along a dimension, as the parts of a concatenation do."""
    boxes = [box for store in stores if (box := _box(store, extents, table)) is not None]
    return len(boxes) == len(stores) and any(
        all(_is_below(one, other) for one, other in pairwise(sorted(spans, key=_start)))
        for spans in zip(*boxes, strict=True)
    )


def _overlap(
    a: Store, b: Store, columns: Set[str], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]
) -> str | None:
    """Why two stores to one storage may hit the same element; None if their boxes are apart in some dimension.

    Without a reduce each point does its stores in order, so that the second may also overwrite the first.
    """
    if a.index == b.index and not columns:
        return None
    return None if _is_apart(a, b, extents, table) else f"{a.ref} and {b.ref} may overlap"


def _is_apart(a: Load | Store, b: Store, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> bool:
    """Whether two accesses of one storage never touch the same element, at whatever points."""
    if _is_between(a.index, b.index, extents):
        return True
    box, other_box = _box(a, extents, table), _box(b, extents, table)
    if box is None or other_box is None:
        return False
    return any(_is_below(one, other) or _is_below(other, one) for one, other in zip(box, other_box, strict=True))


def _box(access: Load | Store, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> list[Range] | None:
    """From where to where it reaches in each dimension of its buffer."""
    buffer = table[access.ref.storage]
    at = delinearize(access.index, buffer.size, buffer.stride, extents)
    return None if at is None else [interval(coordinate, extents) for coordinate in at]


def _start(span: Range) -> float:
    return -inf if span[0] is None else span[0]


def _is_below(one: Range, other: Range) -> bool:
    return one[1] is not None and other[0] is not None and one[1] < other[0]


def _is_between(a: Expr, b: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether both move by multiples of one step, and stand apart by what is none: even elements and odd ones."""
    starts: list[Expr] = []
    steps: list[int | None] = []
    for index in (a, b):
        split = linear(index, list(extents))
        if split is None:
            return False
        starts.append(split[1])
        steps += [as_int(step) for step in split[0].values()]
    known = [step for step in steps if step is not None]
    apart = as_int(starts[0] - starts[1])
    step = gcd(*known)
    return len(known) == len(steps) and apart is not None and step > 1 and apart % step != 0
