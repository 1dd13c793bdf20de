"""Makes the loop nest of a draft for a CPU: places the ops of the kernel in the loops that are chosen.

Takes a draft, or a body and levels (loops), outermost first. Gives a kernel with a Schedule. Refuses nothing.

Each op runs only in the loops over axes that it varies over. If the result of a reduction is used over an axis that it
has reduced, as in a softmax, the loop over this axis becomes several loops, one after the other: phases. A value that a
later phase needs is computed again there if that is cheap, or kept in an array (a row) if that fits the cache. A value
that is neither cheap nor small is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Literal, TypeAlias

from minductor.analysis.passes_over import moved_to_use, overwriting_stores, pass_numbers
from minductor.ir.program.loops import Loop, LoopKind, Schedule, Step
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import Constant, Index, Kernel, Load, Masked, Op, Project, Reduce, Scan
from minductor.ir.program.ops import op_cost
from minductor.passes.schedule.cut import cut
from minductor.passes.schedule.draft import Draft, Level
from minductor.passes.schedule.fetch import fetch_rows
from minductor.passes.schedule.gathers import gather_first
from minductor.passes.schedule.group import ROWS, group
from minductor.passes.schedule.in_phases import in_phases
from minductor.passes.schedule.rows_in_results import held_by_results, keep_in_results
from minductor.passes.schedule.short_sums import is_long_sum, short_sums
from minductor.passes.schedule.stage import stage
from minductor.passes.schedule.stores_last import stores_last
from minductor.passes.schedule.strips import in_strips
from minductor.passes.schedule.unblock import unblock
from minductor.passes.schedule.unmask import unmask

CHEAP = 4  # operations; a value of no more is recomputed rather than kept, if at most one of them is a load
SMALL_ROWS = 16 * 1024  # bytes of all rows of cheap values, which stay in the first-level cache
LARGE_ROWS = 512 * 1024  # bytes of all rows of expensive values, which may go to the second-level cache
SHARED = 2  # operations; so many are worth a row in a loop that is chosen for sharing (`Level.is_shared`)
EXPENSIVE = 10  # operations; reading a row back from the second-level cache costs less than so many

# Where steps stand: outside of all parallel loops, as the whole body of one, or beside other steps in one.
Place: TypeAlias = Literal["outside", "directly", "beside"]


def place(draft: Draft) -> Kernel:
    """The kernel with the schedule of a finished draft."""
    held = held_by_results(draft) if draft.staged is None else frozenset[int]()
    schedule = placed(draft, held)
    if not held.intersection(schedule.kept_rows) <= dict(schedule.rows_in_results).keys():
        schedule = placed(draft, frozenset())
    return replace(draft.kernel, schedule=schedule)


def placed(draft: Draft, held: frozenset[int]) -> Schedule:
    """The schedule of a draft, in which rows of these values may have any length, since a result may hold them."""
    body, touches = draft.kernel.body, draft.touches
    is_columns = draft.is_outer and bool(touches.reduced) and not touches.scanned and draft.staged is None
    schedule = is_columns and group(nest(draft, short_sums(draft, ROWS), held), body, touches.extents)
    schedule = schedule or nest(draft, short_sums(draft, 1), held)
    schedule = gather_first(schedule, body.ops, draft.gathers) if draft.gathers else schedule
    schedule = in_phases(schedule, draft) if draft.phased else schedule
    schedule = schedule if draft.staged is None else stage(schedule, draft.kernel, draft.staged)
    schedule = unblock(schedule)
    schedule = fetch_rows(schedule, draft.kernel)
    schedule = keep_in_results(schedule, draft, held) if draft.staged is None else schedule
    schedule = in_strips(schedule, draft.kernel) if draft.is_in_strips else schedule
    schedule = stores_last(schedule, body.ops)
    return replace(cut(unmask(schedule, body), draft.kernel), recipe=draft.recipe)


def nest(draft: Draft, levels: Sequence[Level], held: frozenset[int] = frozenset()) -> Schedule:
    """The schedule of a draft's kernel with these loops. `held`: values whose rows may have any length."""
    placer = _Placer(draft, levels, held)
    steps = placer.steps(list(range(len(placer.ops))), 0)
    return Schedule(steps, tuple(sorted(placer.rows)))


class _Placer:
    """Places the ops of one body. `rows`: values kept in arrays; `small` and `large`: the bytes of these arrays.

    `held`: values whose rows may have any length.
    """

    def __init__(self, draft: Draft, levels: Sequence[Level], held: frozenset[int]) -> None:
        self.ops = draft.kernel.body.ops
        self.levels = levels
        self.held = held
        self.target = draft.target
        self.rows: set[int] = set()
        self.small = 0
        self.large = 0
        self.inside = [frozenset(op.loop_axes) for op in self.ops]
        self.parts: dict[int, list[int]] = {}  # by op with several results: itself, and the ops that project the others
        for position, op in enumerate(self.ops):
            if isinstance(op.attrs, Project):
                self.parts.setdefault(op.args[0], [op.args[0]]).append(position)

    def steps(self, members: list[int], depth: int, place: Place = "outside") -> tuple[Step, ...]:
        """The steps that compute `members`, within the loops up to `depth`; the loops from `depth` on are made here."""
        if depth == len(self.levels) or not members:
            return tuple(members)
        level = self.levels[depth]
        inner = {p for p in members if level.axis in self.inside[p]}
        if not inner:
            return self.steps(members, depth + 1, place)
        kind = level.kind
        if kind == "parallel" and place != "outside":
            # OpenMP collapses only perfectly nested loops, so an op that does not need this loop is repeated in it.
            if place == "beside" or any(self.ops[p].is_effect for p in members if p not in inner):
                kind = "serial"
            else:
                inner = set(members)
        beside: Place = "outside" if place == "outside" else "beside"
        phase = self.phases(members, inner, depth)
        self.choose_rows(inner, phase, depth)
        deep = self.repeated(members, inner, depth)
        anywhere = inner | deep
        steps: list[Step] = []
        for number in range(max(phase.values()) + 1):
            before = [p for p in members if p not in anywhere and phase[p] == number]
            steps += self.steps(self.with_recomputed(before, deep, depth), depth + 1, beside)
            group = [p for p in sorted(inner) if phase[p] == number]
            for part in self.around_scans(group, depth):
                steps.append(self.loop(self.with_recomputed(part, anywhere, depth), kind, depth, beside))
        return tuple(steps)

    def repeated(self, members: list[int], inner: set[int], depth: int) -> set[int]:
        """Values that vary over a loop further in but not over this one, and are computed again in each of its runs.

        Expensive ones are left out if they fit a row: they are computed before the loop.
        """
        further = {level.axis for level in self.levels[depth + 1 :]}
        worth = SHARED if self.levels[depth].is_shared else EXPENSIVE
        wanted = {a for p in inner for a in self.ops[p].args}
        deep = {p for p in members if p not in inner and self.is_repeated(p, depth, further)}
        for p in sorted(deep, reverse=True):  # last ops first: their operands then need no row
            if p not in wanted:
                continue
            parts = self.parts.get(p, (p,))  # each of several results has a row
            sizes = [self.row_bytes(part, depth) for part in parts]
            size = sum(size or 0 for size in sizes)
            # a reduction with many accumulators has its results after a loop: there is no single value to keep
            is_costly = self.recompute_cost(p, deep)[0] >= worth and not self.has_many_accumulators(self.ops[p])
            if is_costly and None not in sizes and self.small + size <= SMALL_ROWS:
                self.small += size
                self.rows.update(parts)
            else:
                wanted.update(self.ops[p].args)
        return deep - self.rows

    def is_repeated(self, position: int, depth: int, further: set[str]) -> bool:
        """Whether an op varies over an axis further in, and may be computed again in each run of this loop."""
        op = self.ops[position]
        return not (
            position in self.rows
            or op.is_effect
            or further.isdisjoint(self.inside[position])
            or self.is_array(position, depth)
            or not self.opened(depth).isdisjoint(op.reduced_axes)  # it adds a term in each run of an outer loop
        )

    def is_array(self, position: int, depth: int) -> bool:
        """Whether an op is a reduction with an array of accumulators that outlives all loops further in."""
        op = self.ops[position]
        return isinstance(op.attrs, Reduce) and self.around_reduction(op.attrs, depth + 1)[0].isdisjoint(op.axes)

    def has_many_accumulators(self, op: Op) -> bool:
        """Whether an op is a reduction with a loop over its elements inside the loop that it reduces."""
        # with blocks, the elements of a block are a loop too
        return isinstance(op.attrs, Reduce) and not self.around_reduction(op.attrs, 0)[1].isdisjoint(op.axes)

    def around_reduction(self, attrs: Reduce, depth: int) -> tuple[set[str], set[str]]:
        """The axes of the loops from `depth` on that stand outside of the first one that is reduced; the others."""
        order = [level.axis for level in self.levels[depth:]]
        begins = next((n for n, axis in enumerate(order) if axis in attrs.axes), len(order))
        return set(order[:begins]), set(order[begins:])

    def loop(self, group: list[int], kind: LoopKind, depth: int, beside: Place) -> Loop:
        """The loop at `depth` with the steps of a group inside."""
        level = self.levels[depth]
        carries = tuple(p for p in group if self.ends_at(p, depth) or self.begins_anew(p, level))
        if kind == "vector" and any(self.is_scan(p, level.axis) for p in group):
            kind = "serial"
        has_lanes = kind == "vector" or level.has_lanes
        joined = [p for p in group if has_lanes and level.axis in self.ops[p].reduced_axes]
        lanes = self.lane_count(joined, level) if joined else 0
        body = self.steps(group, depth + 1, "directly" if kind == "parallel" else beside)
        return Loop(level.axis, kind, body, level.block, level.parts, lanes, carries, most=level.most)

    # --- loops before, along and after a scan

    def is_scan(self, position: int, axis: str) -> bool:
        attrs = self.ops[position].attrs
        return isinstance(attrs, Scan) and attrs.axis == axis

    def around_scans(self, group: list[int], depth: int) -> list[list[int]]:
        """The group as groups with loops of their own before, along and after each scan; whole if that does not pay.

        A scan runs from element to element, so ops that share its loop are not vectorised.
        """
        axis = self.levels[depth].axis
        is_last = all(level.axis != axis for level in self.levels[depth + 1 :])
        if not is_last or not any(self.is_scan(p, axis) for p in group):
            return [group] if group else []
        stage = self.stages(group, axis)
        aside = [p for p in group if stage[p] % 2 == 0]
        is_worth = sum(op_cost(self.ops[p].name) for p in aside) >= EXPENSIVE
        if not is_worth and not any(isinstance(self.ops[p].attrs, Reduce) for p in aside):
            return [group]
        rows = self.scan_rows(group, stage, depth)
        if rows is None:
            return [group]
        self.small += sum(rows.values())
        self.rows.update(rows)
        numbers = sorted(set(stage.values()))
        return [[p for p in group if stage[p] == number] for number in numbers]

    def stages(self, group: list[int], axis: str) -> dict[int, int]:
        """By op the number of its loop: odd for loops along a scan, even for loops before and after scans."""
        stage: dict[int, int] = {}
        for p in group:
            op = self.ops[p]
            before = max((stage[a] for a in op.args if a in stage), default=0)
            is_along = self.is_scan(p, axis) or (
                before % 2 == 1 and (isinstance(op.attrs, Project) or op.name == "cast")
            )
            stage[p] = before + (before % 2 != is_along)
        last = max(stage.values())
        stage |= {p: last + last % 2 for p in overwriting_stores(self.ops, group)}

        def may_move(p: int) -> bool:
            op = self.ops[p]
            is_fixed = op.is_effect or stage[p] % 2 == 1 or isinstance(op.attrs, Reduce)
            return not is_fixed and (op.name == "cast" or self.is_cheap(p, set(group)))

        return moved_to_use(self.ops, stage, may_move)

    def scan_rows(self, group: list[int], stage: Mapping[int, int], depth: int) -> dict[int, int] | None:
        """The bytes of each value that is kept from one of these loops to a later one; None if they are too many."""
        rows: dict[int, int] = {}
        elsewhere = self.used_elsewhere(stage)
        for p in group:
            for a in self.ops[p].args:
                if a not in stage or stage[a] == stage[p] or a in self.rows or isinstance(self.ops[a].attrs, Reduce):
                    continue
                if self.is_cheap(a, set(group)):
                    continue
                size = self.row_bytes(a, depth)
                if size is None or a in elsewhere:  # its row would have to hold more than one block
                    return None
                rows[a] = size
        return rows if self.small + sum(rows.values()) <= SMALL_ROWS else None

    def used_elsewhere(self, group: Collection[int]) -> set[int]:
        """The values of the group that ops outside of it need, directly or to compute a value again."""
        found: set[int] = set()
        for p in reversed(range(len(self.ops))):
            op = self.ops[p]
            if p not in group or (p in found and p not in self.rows and not isinstance(op.attrs, Reduce)):
                found.update(op.args)
        return found

    def begins_anew(self, position: int, level: Level) -> bool:
        """Whether a sum has an accumulator of its own in each run of this loop."""
        return level.is_partial and is_long_sum(self.ops[position], level.axis)

    def lane_count(self, joined: Sequence[int], level: Level) -> int:
        """The number of accumulators of a vector loop that reduces `joined`."""
        sizes = [d.itemsize for p in joined for a in self.ops[p].args if (d := self.ops[a].dtype) is not None]
        lanes = self.target.lanes(max(4, *sizes))
        block = next((outer.block for outer in self.levels if outer.axis == level.axis and outer.block), None)
        extent = block or level.extent
        while extent is not None and lanes > max(extent, 1):
            lanes //= 2
        return lanes

    def opened(self, depth: int) -> set[str]:
        """The axes of the loops outside of `depth`."""
        return {level.axis for level in self.levels[:depth]}

    def ends_at(self, position: int, depth: int) -> bool:
        """Whether the loop at `depth` is the outermost one that a reduction or scan runs over: it ends there."""
        op = self.ops[position]
        axes = (op.attrs.axis,) if isinstance(op.attrs, Scan) else op.reduced_axes
        return self.levels[depth].axis in axes and self.opened(depth).isdisjoint(axes)

    def phases(self, members: list[int], inner: set[int], depth: int) -> dict[int, int]:
        """By member the number of its phase, a pass over the loop at `depth`; ops outside stand before that phase."""
        phase = pass_numbers(self.ops, members, lambda p: self.is_reduced_at(p, depth))
        last = max(phase[p] for p in inner)
        phase |= {p: last + (p not in inner) for p in overwriting_stores(self.ops, members)}

        def may_move(p: int) -> bool:
            return p in inner and not (self.ops[p].is_effect or self.is_reduced_at(p, depth) or self.is_part(p, depth))

        return moved_to_use(self.ops, phase, may_move)

    def is_part(self, position: int, depth: int) -> bool:
        """Whether an op is one of several results of a scan or an inner reduction: it is read in the same phase."""
        op = self.ops[position]
        return isinstance(op.attrs, Project) and not self.is_reduced_at(op.args[0], depth)

    def is_reduced_at(self, position: int, depth: int) -> bool:
        """Whether an op is a reduction that ends with the loop at `depth`."""
        return isinstance(self.ops[position].attrs, Reduce) and self.ends_at(position, depth)

    def choose_rows(self, inner: set[int], phase: Mapping[int, int], depth: int) -> None:
        """Decides which values that a later phase needs are kept in rows."""
        crossing = {
            a
            for p in inner
            for a in self.ops[p].args
            if a in inner and phase[a] < phase[p] and not self.is_reduced_at(a, depth)
        }
        for p in sorted(crossing):
            again = {q for q in inner if not self.is_reduced_at(q, depth)}
            size = self.row_bytes(p, depth)
            if size is None and p in self.held and self.recompute_cost(p, again)[0] >= EXPENSIVE:
                self.rows.add(p)
            if p in self.rows or size is None or self.is_cheap(p, again):
                continue
            if self.small + size <= SMALL_ROWS:
                self.small += size
                self.rows.add(p)
            elif self.recompute_cost(p, again)[0] >= EXPENSIVE and self.large + size <= LARGE_ROWS:
                self.large += size
                self.rows.add(p)

    def is_cheap(self, position: int, inner: set[int]) -> bool:
        """Whether a value is computed again in a loop over `inner`, rather than kept."""
        cost, loads = self.recompute_cost(position, inner)
        return cost <= CHEAP and loads <= 1

    def recompute_cost(self, position: int, inner: set[int]) -> tuple[int, int]:
        """The operations, and the loads among them, that computing a value again takes in a loop over `inner`."""
        cost = loads = 0

        def operands(user: int) -> list[int]:
            return [a for a in self.ops[user].args if a in inner and a not in self.rows]

        start = (position,) if position in inner and position not in self.rows else ()
        for p in needed(start, operands):
            match self.ops[p].attrs:
                case Load():
                    loads += 1
                case Reduce() | Scan():
                    cost += 10 * EXPENSIVE
                case Project() if self.is_of_scan(p):  # a row of the scan would hold its first result only
                    cost += 10 * EXPENSIVE
                case Masked(body, _):
                    cost += sum(op_cost(o.name) for o in body.ops)
                    loads += sum(1 for o in body.ops if isinstance(o.attrs, Load))
                case Constant() | Index():
                    pass
                case _:
                    cost += op_cost(self.ops[p].name)
        return cost + loads, loads

    def is_of_scan(self, position: int) -> bool:
        """Whether an op is a result of a scan that has several."""
        op = self.ops[position]
        return isinstance(op.attrs, Project) and isinstance(self.ops[op.args[0]].attrs, Scan)

    def row_bytes(self, position: int, depth: int) -> int | None:
        """The bytes of an array for a value at all points of the loops from `depth` on; None if that is not known."""
        op = self.ops[position]
        assert op.dtype is not None
        spans = [self.span(axis, depth) for axis in op.axes]
        known = [span for span in spans if span is not None]
        return op.dtype.itemsize * prod(known) if len(known) == len(spans) else None

    def span(self, axis: str, depth: int) -> int | None:
        """How many elements of an axis the loops from `depth` on run over: all, a block, or one; None if not known."""
        opened = [level for level in self.levels[:depth] if level.axis == axis]
        if not opened:
            return next((level.extent for level in self.levels if level.axis == axis), 1)
        return opened[-1].block or None if opened[-1].is_blocked else 1

    def with_recomputed(self, group: list[int], inner: set[int], depth: int) -> list[int]:
        """The group with the values of earlier phases that it needs and that no row keeps: they are computed again.

        The result of a reduction over this loop is in its accumulator, which is declared outside of the loop.
        """

        def operands(user: int) -> list[int]:
            args = [a for a in self.ops[user].args if a in inner and (a not in self.rows or self.is_of_scan(user))]
            return [a for a in args if not self.is_reduced_at(a, depth)]

        return needed(group, operands)
