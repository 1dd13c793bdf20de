"""Makes one kernel of two, if that changes no value and does not cost more than it saves.

Takes two kernels of which the first may run directly before the second. Gives the joined kernel. Refuses with a reason
(`CannotJoin`), which `explain` shows.

How it works. The kernel with more points lends its axes. The axes of the other kernel are solved from an element that
both touch: `store index == load index` where the second kernel reads what the first one writes, or `load index == load
index` where both read the same. Axes that no such equation contains are matched with axes of equal extent.

Laws of a joined kernel, checked on its body:
- Its axes are rows, over which no reduction runs, and columns. Every reduction runs over all columns. Every store
  happens once for each row, or once for each point.
- A scan runs along the only column axis, and all scans in one direction.
- A kernel that reduces along rows and along columns has the laws of `analysis/both_ways.py` instead.
- If the second kernel reads what the first one stores, it reads the element that the same point has stored. It then
  uses the value directly, rounded to the storage's dtype if the storage is still written.
- An in-place write is legal if every read of the old value is of the element that is being written.
- The joined kernel does not take longer than its two kernels (`cost/kernel_seconds.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import combinations, pairwise, product
from math import gcd, inf
from typing import NamedTuple, TypeAlias

from minductor.analysis.both_ways import both_ways, reduced_groups
from minductor.analysis.both_ways import objection as both_ways_objection
from minductor.analysis.domain import Solution, count_points, extents_of, has_division, is_bijection, solve
from minductor.core.dtypes import DType
from minductor.core.expressions.bounds import interval
from minductor.core.expressions.expr import Expr, Symbol, as_int, free_symbols, linear, substitute
from minductor.core.expressions.hints import Hints
from minductor.core.expressions.intervals import Range
from minductor.core.expressions.rewrite import delinearize, simplify
from minductor.cost.kernel_seconds import Prices
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

TOO_MANY_OPS = f"the fused kernel would have more than {MAX_OPS} operations"
MAX_PAIRS = 12  # pairs of accesses to one buffer that are compared

Pairs: TypeAlias = list[tuple[Expr, Expr]]


class CannotJoin(NamedTuple):
    """The reason why two kernels cannot be fused, shown to the user; `figures`: of both ways, where time decided."""

    reason: str
    figures: str = ""


class JoinContext(NamedTuple):
    """What `join` has to know of the program and the target.

    `table`: the program's buffers by name, complex ones as real numbers. `prices`: what its kernels cost.
    """

    table: Mapping[str, Buffer]
    target: Target
    hints: Hints
    prices: Prices


def join(
    first: Kernel,
    second: Kernel,
    droppable: frozenset[Ref],
    context: JoinContext,
    apart: tuple[Kernel, Kernel] | None = None,
) -> Kernel | CannotJoin:
    """The two kernels as one, or the reason why not.

    Stores of `droppable` versions are left out. The joined kernel has the name and the origins of the first one.
    `apart`: what the kernels are if they stay apart, where the given ones are other forms of them.
    """
    for kernel in (first, second):
        if any(isinstance(op.attrs, Atomic) for op in kernel.body.ops):
            return CannotJoin(f"{kernel.name} may write an element several times (a scatter)")
    pairs = common_accesses(first, second)
    if not pairs and not _fill_one_storage(first, second):
        return CannotJoin("no load or store of a common buffer tells which of their points belong together")
    if len(_touched(first.body) | _touched(second.body)) - len(droppable) > MAX_BUFFERS:
        return CannotJoin(f"the fused kernel would touch more than {MAX_BUFFERS} buffers")
    reasons: dict[str, str] = {}  # with their figures
    for is_first in _targets(first, second, context.hints):
        target, source = (first, second) if is_first else (second, first)
        aligned = pairs if not is_first else [(b, a) for a, b in pairs]
        for solution in _alignments(source, target, aligned):
            groups = {*_walked_groups(target.body), *_walked_by(solution, source)}
            if any(axis_step(at) is None for axis, at in solution.items() if axis.name in _scanned(source.body)):
                reasons["a scan would not run along one axis of the fused kernel"] = ""
                continue
            if any(a != b and not a.isdisjoint(b) for a in groups for b in groups):
                reasons[f"reductions over {_alternatives(groups)} need different loops"] = ""
                continue
            same: Solution = {}
            maps = (same, solution) if is_first else (solution, same)
            joined = _join_aligned((first, second), target.axes, maps, droppable, context)
            if isinstance(joined, Kernel):
                joined = _if_faster(apart or (first, second), joined, context)
            if isinstance(joined, Kernel):
                return joined
            if joined.reason == TOO_MANY_OPS:  # the other kernel's axes would not change that
                return joined
            reasons[joined.reason] = joined.figures
    return CannotJoin(
        "; ".join(reasons)
        or f"the loops over {_extents_text(first)} and over {_extents_text(second)} elements do not match one to one",
        "; ".join(filter(None, reasons.values())),
    )


def _extents_text(kernel: Kernel) -> str:
    return " x ".join(str(axis.extent) for axis in kernel.axes) or "1"


def _touched(body: Body) -> set[str]:
    return {load.ref.storage for load in body_reads(body)} | {write.ref.storage for write in body_writes(body)}


# --- which point of one is which of the other -----------------------------------------------------------------------


def common_accesses(first: Kernel, second: Kernel) -> Pairs:
    """Pairs of indices, of the first and of the second kernel, at which both may touch one element.

    Those with most axes come first; of them, those where one kernel stores what the other one loads.
    """
    stored: dict[Ref, list[Expr]] = {}
    for write in body_writes(first.body):
        stored.setdefault(write.ref, []).append(write.index)
    first_loads = _loads(first.body)
    pairs: Pairs = []
    both_load: Pairs = []
    for ref, indices in _loads(second.body).items():
        if ref in stored:
            pairs += [(made, index) for made in stored[ref] for index in indices][:MAX_PAIRS]
        elif ref in first_loads:
            both_load += [(a, b) for a in first_loads[ref] for b in indices][:MAX_PAIRS]
    for write in body_writes(second.body):  # the first kernel reads the value that the second one overwrites
        old = first_loads.get(Ref(write.ref.storage, write.ref.version - 1), ())
        pairs += [(index, write.index) for index in old[:MAX_PAIRS]]
    pairs += both_load
    usable = [pair for pair in pairs if not any(s.kind == "value" for index in pair for s in free_symbols(index))]
    return sorted(dict.fromkeys(usable), key=lambda pair: -sum(len(free_symbols(index)) for index in pair))


def _loads(body: Body) -> dict[Ref, list[Expr]]:
    """By version, the indices at which a body loads it."""
    found: dict[Ref, dict[Expr, None]] = {}
    for load in body_reads(body):
        found.setdefault(load.ref, {})[load.index] = None
    return {ref: list(indices) for ref, indices in found.items()}


def _targets(first: Kernel, second: Kernel, hints: Hints) -> tuple[bool, ...]:
    """Which axes to try: True means those of the first kernel. With equally many points, those of a reduction first."""
    a, b = count_points(first, hints), count_points(second, hints)
    if a != b:
        return (a > b,)
    is_first = _has_reduce(first.body) and not _has_reduce(second.body)
    return (is_first, not is_first)


def _has_reduce(body: Body) -> bool:
    return any(isinstance(op.attrs, Reduce | Scan) for op in body.ops)


def _alignments(source: Kernel, target: Kernel, pairs: Pairs) -> Iterator[Solution]:
    """Ways to express the axes of `source` in the axes of `target`, the most promising one first."""
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
    """Whether both write slices of one storage, as in a concatenation: then fusing them saves a launch."""
    filled = {write.ref.storage for write in body_writes(first.body)}
    return any(write.ref.storage in filled for write in body_writes(second.body))


def _aligned(source: Kernel, target: Kernel, pairs: Pairs) -> Solution | None:
    """The axes of `source` in those of `target`, by equations `index == wanted` for each pair; None if not found."""
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
        # axes that are solved already are expressions in the target's axes: they move to the other side
        known = [(c, found[axis]) for axis, c in split[0].items() if axis in found]
        rest = sum((split[0][axis.symbol] * axis.symbol for axis in unknown), split[1])
        solved = solve(rest, unknown, wanted - sum((c * at for c, at in known), start=split[1] * 0), extents)
        if solved is not None and not any(has_division(at) for at in solved.values()):
            found.update(solved)
    return _with_open_axes(source, target, found, extents)


def _with_open_axes(source: Kernel, target: Kernel, found: Solution, extents: Mapping[Symbol, Expr]) -> Solution | None:
    """The solution with unsolved axes matched by extent; None if the points then do not match one to one."""
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
    if _scanned(source.body) or _scanned(target.body):  # a flip before or after a scan reverses its axis
        matched = {axis.symbol: _unflipped(ordered[axis.symbol], axis.extent) for axis in source.axes}
    return ordered if is_bijection(matched, extents_of(source.axes), extents) else None


def _unflipped(at: Expr, extent: Expr) -> Expr:
    """The axis itself if `at` counts it from its end, else `at`."""
    mirrored = extent - 1 - at
    return mirrored if isinstance(mirrored, Symbol) else at


def _reduced(body: Body) -> set[str]:
    """The axes that reductions run over."""
    return {name for op in body.ops if isinstance(op.attrs, Reduce) for name in op.attrs.axes}


def _scanned(body: Body) -> dict[str, None]:
    """The axes that scans run along, in order."""
    return {op.attrs.axis: None for op in body.ops if isinstance(op.attrs, Scan)}


def _walked_groups(body: Body) -> list[frozenset[str]]:
    """The sets of axes that a reduction or scan runs over, each once."""
    return list(dict.fromkeys([*reduced_groups(body), *(frozenset((axis,)) for axis in _scanned(body))]))


def _walked_by(solution: Solution, source: Kernel) -> list[frozenset[str]]:
    """The target's axes that each of the source's reductions and scans runs over."""
    names = {axis.name: {s.name for s in free_symbols(at)} for axis, at in solution.items()}
    return [frozenset[str]().union(*(names[n] for n in group)) for group in _walked_groups(source.body)]


# --- the joined body ------------------------------------------------------------------------------------------------


def _join_aligned(
    kernels: tuple[Kernel, Kernel],
    axes: tuple[Axis, ...],
    maps: tuple[Mapping[Symbol, Expr], Mapping[Symbol, Expr]],
    droppable: frozenset[Ref],
    context: JoinContext,
) -> Kernel | CannotJoin:
    """The two kernels as one over `axes`, or the reason why not.

    `maps`: for each kernel its own axes as expressions in `axes`.
    """
    first, second = kernels
    extents = extents_of(axes)
    builder = Builder([axis.symbol for axis in axes], extents)
    places = builder.splice(first.body, maps[0])
    stored = _stored_values(kernels, builder, places, maps[0], droppable, context)
    trouble: list[str] = []

    def load(b: Builder, wanted: Load, _: DType) -> int | None:
        if wanted.ref not in stored:
            return None
        if b is not builder:
            trouble.append(f"the second kernel reads {wanted.ref} under a mask")
            return None
        there = Load(wanted.ref, simplify(wanted.index, extents))
        # If the last write is elsewhere, the element may come from an earlier write to the same storage.
        for version in range(wanted.ref.version, -1, -1):
            made = stored.get(Ref(wanted.ref.storage, version), [])
            if (value := next((value for index, value in made if index == there.index), None)) is not None:
                return value
            if not made or not all(_is_apart(there, Store(there.ref, at), extents, context.table) for at, _ in made):
                break
        trouble.append(f"a point of the second kernel reads another element of {wanted.ref} than the first stores")
        return None

    builder.splice(second.body, maps[1], load)
    if trouble:
        return CannotJoin(trouble[0])
    body = prune_body(builder.build(), droppable)
    reason = _objection(body, axes, extents, context)
    return CannotJoin(reason) if reason is not None else replace(first, axes=axes, body=body)


def _stored_values(
    kernels: tuple[Kernel, Kernel],
    b: Builder,
    places: Sequence[int],
    at: Mapping[Symbol, Expr],
    droppable: frozenset[Ref],
    context: JoinContext,
) -> dict[Ref, list[tuple[Expr, int]]]:
    """By version that the second kernel reads: the indices and values that the first kernel stores.

    Values are rounded to the dtype of the storage, as a load would see them. A value whose store is dropped is not
    rounded, unless the first kernel itself uses the rounded value.
    """
    first, second = kernels
    read = {load.ref.storage for load in body_reads(second.body)}
    rounded = {(op.args[0], op.attrs.dtype) for op in first.body.ops if isinstance(op.attrs, Round)}
    found: dict[Ref, list[tuple[Expr, int]]] = {}
    for op in first.body.ops:
        if not isinstance(op.attrs, Store) or op.attrs.ref.storage not in read:
            continue
        b.node = op.node  # of a rounding that is added
        ref, value, dtype = op.attrs.ref, places[op.args[0]], context.table[op.attrs.ref.storage].dtype
        if ref not in droppable or (op.args[0], dtype) in rounded:
            value = as_stored(b, value, dtype, context.table)
        index = simplify(substitute(op.attrs.index, at), b.extents)
        found.setdefault(ref, []).append((index, value))
    return found


def _if_faster(kernels: tuple[Kernel, Kernel], joined: Kernel, context: JoinContext) -> Kernel | CannotJoin:
    """The joined kernel, unless its two kernels take less time."""
    prices = context.prices
    slower = prices.slower([prices.shape(joined)], [prices.shape(kernel) for kernel in kernels])
    if slower is None:
        return joined
    return CannotJoin(f"together they would need more {slower.needs}", slower.figures("together", "apart"))


def _objection(body: Body, axes: tuple[Axis, ...], extents: Mapping[Symbol, Expr], context: JoinContext) -> str | None:
    """The reason why a body must not be one kernel, or None."""
    if len(body.ops) > MAX_OPS:
        return TOO_MANY_OPS
    ways = both_ways(body, axes)
    if ways is not None and _scanned(body):
        return _needs_different_loops(body)
    columns = _reduced(body) | _scanned(body).keys() if ways is None else ways.columns
    return (
        (
            _one_way_objection(body, axes, columns)
            if ways is None
            else both_ways_objection(body, axes, ways, is_gpu=context.target.is_gpu)
        )
        # a kernel that scans and does not reduce reads its row only once
        or _overwriting_objection(body, columns if _reduced(body) else set(), extents, context.table)
        or next(
            (
                reason
                for a, b in _pairs(body, extents, context.table)
                if (reason := _overlap_objection(a, b, columns, extents, context.table)) is not None
            ),
            None,
        )
    )


def _one_way_objection(body: Body, axes: tuple[Axis, ...], columns: Set[str]) -> str | None:
    """The reason why a body is no kernel of rows and columns: its reductions, its scans or its stores."""
    rows = {axis.name for axis in axes if axis.name not in columns}
    for op in body.ops:
        if isinstance(op.attrs, Reduce) and set(op.attrs.axes) != columns:
            return _needs_different_loops(body)
        if isinstance(op.attrs, Scan) and {op.attrs.axis} != columns:
            return _needs_different_loops(body)
        if op.is_effect and not rows.issubset(op.axes):
            return f"would repeat a store or check that does not depend on {_names(rows - set(op.axes))}"
    if len({op.attrs.reverse for op in body.ops if isinstance(op.attrs, Scan)}) > 1:
        return "scans a row in both directions"
    return None


def _needs_different_loops(body: Body) -> str:
    """The refusal of a body whose reductions and scans run over different axes."""
    kinds = "scans and reductions" if _scanned(body) else "reductions"
    return f"{kinds} over {_alternatives(_walked_groups(body))} need different loops"


def _alternatives(groups: Iterable[Set[str]]) -> str:
    return " and over ".join(sorted(_names(group) for group in groups))


def _names(axes: Iterable[str]) -> str:
    return ", ".join(sorted(axes))


def _overwriting_objection(
    body: Body, columns: Set[str], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]
) -> str | None:
    """The reason why an in-place write of a body is illegal, or None.

    An in-place write is legal if every read of the old value is of the element that is being written, or of elements
    that are never written. A row that is read again after a reduction must not be overwritten in between. No two points
    write one element, since such a write is an Atomic.
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
            return f"{load.ref} is overwritten while a scan still reads it"
        if load.index != write.index:
            return f"{load.ref} is overwritten at another element than the one read"
        if write.ref in varying:
            return f"{load.ref} is overwritten while its row is still read"
        if load in inside:
            return f"{load.ref} is overwritten, and read under a mask"
    return None


def _pairs(body: Body, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> Iterator[tuple[Store, Store]]:
    """Pairs of stores to one storage that have to be compared. Stores that lie one behind the other are left out."""
    stores: dict[str, list[Store]] = {}
    for op in body.ops:
        if isinstance(op.attrs, Store):
            stores.setdefault(op.attrs.ref.storage, []).append(op.attrs)
    for same in stores.values():
        if len(same) > 1 and not _are_in_sequence(same, extents, table):
            yield from combinations(same, 2)


def _are_in_sequence(stores: Sequence[Store], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> bool:
    """Whether stores lie one behind the other along a dimension, as the tensors of a concatenation do."""
    boxes = [box for store in stores if (box := _ranges(store, extents, table)) is not None]
    return len(boxes) == len(stores) and any(
        all(_is_below(one, other) for one, other in pairwise(sorted(spans, key=_lower_end)))
        for spans in zip(*boxes, strict=True)
    )


def _overlap_objection(
    a: Store, b: Store, columns: Set[str], extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]
) -> str | None:
    """The reason why two stores to one storage must not be in one kernel; None if they may.

    They may if they never write the same element. Without a reduction each point does its stores in order, so the
    second store may also overwrite the very element of the first one.
    """
    if a.index == b.index and not columns:
        return None
    return None if _is_apart(a, b, extents, table) else f"the stores to {a.ref} and {b.ref} may overlap"


def _is_apart(a: Load | Store, b: Store, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> bool:
    """Whether two accesses of one storage are proved never to touch the same element, at any two points."""
    if _is_interleaved(a.index, b.index, extents):
        return True
    box, other_box = _ranges(a, extents, table), _ranges(b, extents, table)
    if box is None or other_box is None:
        return False
    return any(_is_below(one, other) or _is_below(other, one) for one, other in zip(box, other_box, strict=True))


def _ranges(access: Load | Store, extents: Mapping[Symbol, Expr], table: Mapping[str, Buffer]) -> list[Range] | None:
    """The first and last coordinate of an access in each dimension of its buffer; None if they are not known."""
    buffer = table[access.ref.storage]
    at = delinearize(access.index, buffer.size, buffer.stride, extents)
    return None if at is None else [interval(coordinate, extents) for coordinate in at]


def _lower_end(span: Range) -> float:
    return -inf if span[0] is None else span[0]


def _is_below(one: Range, other: Range) -> bool:
    return one[1] is not None and other[0] is not None and one[1] < other[0]


def _is_interleaved(a: Expr, b: Expr, extents: Mapping[Symbol, Expr]) -> bool:
    """Whether two indices never meet because they interleave, as even and odd elements do."""
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
