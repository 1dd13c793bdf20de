"""Chooses the tile of a kernel for a GPU: how many elements of which axes one program computes at once.

Takes a Kernel whose axes are merged. Gives it with a Schedule: loops over the grid, and a tile inside. Refuses nothing.

A program works on blocks of up to three axes that are not reduced. The first is the axis along which most bytes are
contiguous. The next is one along which other accesses are contiguous, as in a transpose. Then come inner axes, until
the tile has enough elements. All other axes belong to the grid alone. Each axis has offsets of its own, so no index
needs a division.

Short reduced rows are one block of the tile: a persistent reduction. Longer rows are walked block by block: a looped
reduction. What is needed after such a loop is computed again in the next one. A softmax then walks its rows twice
(`online.py`).

If several axes were merged into one, a tile is a block of memory only if its block of this axis divides the inner of
them: of x[:, :5, :64], 64 elements lie together and 1024 do not. A smaller block is chosen if other axes fill the tile,
or if the options ask for block pointers or descriptors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from minductor.analysis.blocks import block_limits
from minductor.analysis.touch import Touches
from minductor.cost.seconds import seconds
from minductor.ir.program.dots import Dots, find_dots
from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.nodes import (
    Buffer,
    Kernel,
    Load,
    NodeNote,
    Op,
    Project,
    Reduce,
    Scan,
    Store,
    body_reads,
    body_writes,
)
from minductor.passes.schedule.online import online
from minductor.passes.schedule.recipes import CLASSIC, Recipe, Rows, fastest, price_list, recipes_for
from minductor.passes.schedule.tile_choices import launch_choices
from minductor.passes.schedule.tile_dot import dot_tiles
from minductor.passes.schedule.tiles import NO_LIMITS, Limits, Tiles, power_of_two
from minductor.target import Env, Target

OUTER_PERSISTENT = 64  # rows that a program reduces at once, if columns are reduced and rows are contiguous
CROSSING = 32  # elements: the side of a square tile, if accesses are contiguous along both axes
AXES = 3  # of a tile, reduced ones not counted


def tile_gpu(kernel: Kernel, buffers: dict[str, Buffer], env: Env, notes: list[NodeNote]) -> Kernel:
    """The kernel with the schedule of its fastest recipe and the choices for its launch. `notes` takes the prices."""
    touches, dots = Touches(kernel, buffers), find_dots(kernel)
    legal = recipes_for(touches, env.target) if dots is None else (CLASSIC,)
    forced = env.options.variant
    if forced:
        if all(recipe.name != forced for recipe in legal):
            notes.append(
                NodeNote("schedule", kernel.name, f"the recipe {forced} is not legal here, so classic is taken")
            )
        legal = tuple(recipe for recipe in legal if recipe.name == forced) or (CLASSIC,)
    made = {recipe.name: _scheduled(kernel, touches, dots, env, recipe) for recipe in legal}
    if len(made) == 1:
        return made.popitem()[1]
    prices = {name: seconds(each, buffers, env.target).seconds for name, each in made.items()}
    taken = fastest(prices)
    notes.append(NodeNote("schedule", kernel.name, price_list(prices, taken)))
    return made[taken]


def _scheduled(kernel: Kernel, touches: Touches, dots: Dots | None, env: Env, recipe: Recipe) -> Kernel:
    """The kernel with the schedule that a recipe makes."""
    target = env.target

    def chosen(limits: Limits) -> Tiles:
        if dots is None:
            return choose(touches, target, limits, recipe.rows)
        return dot_tiles(kernel, touches, dots, target, limits)

    tiles, wanted = chosen(NO_LIMITS), list(block_limits(kernel.body, kernel.axes))
    if smaller := _smaller(tiles, wanted, target.warp_size):
        boxed = chosen(smaller)
        if env.options.block_access != "offsets" or boxed.values == tiles.values:
            tiles = boxed
    if tiles.looped and dots is None and recipe.rows == "classic":
        kernel = online(kernel, tiles.looped)
    phases = _Phases(kernel, tiles, dots)
    steps = phases.steps()
    for axis in reversed(tiles.persistent):
        steps = (Loop(axis, "tile", steps, block=tiles.blocks[axis]),)
    for axis in reversed(tiles.grid):
        steps = (Loop(axis, "grid", steps, block=tiles.blocks[axis]),)
    made = replace(kernel, schedule=Schedule(steps, dots=() if dots is None else dots.reduces))
    return replace(made, choices=launch_choices(made, target, _kept_limits(tiles, wanted), recipe.warps))


def _smaller(tiles: Tiles, wanted: Iterable[Limits], least: int) -> Limits:
    """By axis a smaller block with which more accesses are blocks of memory, if it has at least `least` elements."""
    found: dict[str, int] = {}
    for limits in wanted:
        smaller = {axis: most for axis, most in limits.items() if tiles.blocks[axis] > most}
        if all(most >= least and axis not in tiles.persistent for axis, most in smaller.items()):
            found |= {axis: min(found.get(axis, most), most) for axis, most in smaller.items()}
    return found


def _kept_limits(tiles: Tiles, wanted: Iterable[Limits]) -> Limits:
    """By axis the largest block with which all accesses that are blocks of memory in `tiles` still are."""
    found: dict[str, int] = {}
    for limits in wanted:
        if all(tiles.blocks[axis] <= most for axis, most in limits.items()):
            found |= {axis: min(found.get(axis, most), most) for axis, most in limits.items()}
    return found


def choose(touches: Touches, target: Target, limits: Limits = NO_LIMITS, rows: Rows = "classic") -> Tiles:
    """The tile of a kernel without matrix products. `rows`: how the axes that it reduces are tiled."""
    vector = touches.vector_axis()
    joined = touches.by_stride([n for n in touches.axes if n in touches.reduced or n in touches.scanned])
    kept = touches.by_stride([n for n in touches.axes if n not in joined])
    is_outer = bool(joined) and vector in kept
    extents = [touches.extents[name] for name in joined]
    blocks = {n: target.looped_block if e is None else power_of_two(e) for n, e in zip(joined, extents, strict=True)}
    row = prod(blocks.values())
    longest = OUTER_PERSISTENT if is_outer else target.max_persistent_row
    is_held = rows == "held" or (rows == "classic" and row <= longest and None not in extents)
    if not is_held:
        known = None if vector is None else touches.extents[vector]
        columns = target.columns_per_block if known is None else power_of_two(known)
        row = max(OUTER_PERSISTENT, target.max_tile_values // columns) if is_outer else target.looped_block
        if rows == "unrolled":
            row = 1
        inner = joined[-1] if vector not in joined else vector
        joined = [*(n for n in joined if n != inner), inner]
        left = row
        for name in reversed(joined):  # elements that a short inner axis leaves over go to the next axis
            blocks[name] = min(left, blocks[name], limits.get(name, left))
            left //= blocks[name]
        row //= left
    blocks.update(_kept(touches, kept, target, row, limits, is_outer=is_outer))
    return Tiles(tuple(kept), tuple(joined if is_held else ()), tuple(() if is_held else joined), blocks)


def _kept(
    touches: Touches, kept: Sequence[str], target: Target, row: int, limits: Limits, *, is_outer: bool
) -> dict[str, int]:
    """The blocks of the axes that are not reduced, if the reduced ones already take `row` elements of the tile."""
    contiguous = sorted(
        (n for n in reversed(kept) if touches.contiguous_bytes(n)), key=touches.contiguous_bytes, reverse=True
    )
    rest = [n for n in reversed(kept) if n not in contiguous]
    order = [*contiguous[:2], *(n for n in reversed(kept) if n in rest or n in contiguous[2:])]
    side, room = target.max_tile_values, max(1, target.max_tile_values // row)
    if is_outer:
        side, room = target.columns_per_block, max(room, target.columns_per_block)
    elif len(contiguous) > 1 and not touches.reduced:
        side = CROSSING
    blocks = dict.fromkeys(kept, 1)
    for name in order[:AXES]:
        extent = touches.extents[name]
        most = target.max_tile_values if extent is None else power_of_two(extent)
        blocks[name] = min(most, side if name in contiguous[:2] else room, room, limits.get(name, most))
        room //= blocks[name]
    return blocks


class _Phases:
    """Places the ops of a kernel before, inside and after its looped reductions."""

    def __init__(self, kernel: Kernel, tiles: Tiles, dots: Dots | None = None) -> None:
        self.ops = kernel.body.ops
        # by reduction of a matrix product: its factors, which it takes in place of their product
        products = () if dots is None else dots.products
        self.factors = {p.reduce: (p.left, p.right) for p in products}
        self.unwritten = {self.ops[reduce].args[0] for reduce in self.factors}
        self.tiles = tiles
        self.joined = set(tiles.looped)
        self.read = {load.ref.storage for load in body_reads(kernel.body)}
        self.written = {write.ref.storage for write in body_writes(kernel.body)}
        self.level = self.levels()

    def is_inside(self, op: Op) -> bool:
        """Whether an op is inside a loop: it varies over a looped axis, or reduces along one."""
        return not self.joined.isdisjoint(op.axes) or (
            isinstance(op.attrs, Reduce) and not self.joined.isdisjoint(op.attrs.axes)
        )

    def levels(self) -> list[int]:
        """By op its level: k for ops in or directly before loop k, counted from 0; k + 1 for ops after loop k."""
        found: list[int] = []
        for op in self.ops:
            level = 0
            for arg in op.args:
                behind = isinstance(self.ops[arg].attrs, Reduce) and self.is_inside(self.ops[arg])
                level = max(level, found[arg] + behind)
            found.append(level)
        last = max((level for op, level in zip(self.ops, found, strict=True) if self.is_inside(op)), default=0)
        for position, op in enumerate(self.ops):
            # stores to a storage that a later loop loads again come last
            if isinstance(op.attrs, Store) and self.is_inside(op) and op.attrs.ref.storage in self.read:
                found[position] = last
        return self.sunk(found) if self.factors else found

    def sunk(self, level: list[int]) -> list[int]:
        """The levels with each op as late as possible: values of an epilogue would take registers from the products."""
        users: dict[int, list[int]] = {}
        for position, op in enumerate(self.ops):
            for arg in op.args:
                users.setdefault(arg, []).append(position)
        for position, op in reversed(list(enumerate(self.ops))):
            is_fixed = op.is_effect or self.is_inside(op) or isinstance(op.attrs, Reduce)
            if is_fixed or (isinstance(op.attrs, Load) and op.attrs.ref.storage in self.written):
                continue
            level[position] = min((level[user] for user in users.get(position, ())), default=level[position])
        return level

    def steps(self) -> tuple[Step, ...]:
        """The steps of the kernel: ops outside of loops, and for each level a loop if it has something to compute."""
        if not self.joined:
            return tuple(p for p in range(len(self.ops)) if p not in self.unwritten)
        steps: list[Step] = []
        for level in range(max(self.level) + 1):
            steps += [p for p, op in enumerate(self.ops) if self.level[p] == level and not self.is_inside(op)]
            wanted = [p for p, op in enumerate(self.ops) if self.level[p] == level and self.is_goal(op)]
            if wanted:
                steps.append(self.loop(wanted))
        return tuple(steps)

    def is_goal(self, op: Op) -> bool:
        """Whether an op is a reason for a loop: an effect or a reduction inside it."""
        return self.is_inside(op) and (op.is_effect or isinstance(op.attrs, Reduce))

    def loop(self, wanted: Iterable[int]) -> Loop:
        """The loop over the looped axes that computes `wanted`, and again what they need of earlier loops."""
        needed: set[int] = set()
        pending = list(wanted)
        while pending:
            position = pending.pop()
            if position not in needed:
                needed.add(position)
                args = self.factors.get(position, self.ops[position].args)
                pending += [a for a in args if self.is_inside(self.ops[a]) and not self.is_result(a)]
        carries = tuple(sorted(p for p in needed if isinstance(self.ops[p].attrs, Reduce | Scan)))
        steps: tuple[Step, ...] = tuple(sorted(needed))
        for axis in reversed(self.tiles.looped):
            steps = (Loop(axis, "serial", steps, block=self.tiles.blocks[axis], carries=carries),)
        (made,) = steps
        assert isinstance(made, Loop)
        return made

    def is_result(self, position: int) -> bool:
        """Whether a value is the result of a reduction, or one of its several results."""
        op = self.ops[position]
        if isinstance(op.attrs, Project):
            return isinstance(self.ops[op.args[0]].attrs, Reduce)
        return isinstance(op.attrs, Reduce)
