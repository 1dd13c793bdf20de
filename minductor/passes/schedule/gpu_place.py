"""Makes the loop nest of a draft for a GPU: a grid of programs around a tile, and the launch of the kernel.

Takes a finished draft. Gives a kernel with a Schedule and the choices of its launch. Refuses nothing.

Rows that a tile holds whole are one block of it: a persistent reduction. Other rows are walked block by block: a looped
reduction. What is needed after such a loop is computed again in the next one. Where rows and columns are reduced, the
loop over rows carries the sums of the columns, and a row is reduced within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minductor.analysis.passes_over import moved_to_use, overwriting_stores, pass_numbers
from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import Kernel, Load, Project, Reduce, Scan, body_writes
from minductor.passes.schedule.draft import Draft, Level
from minductor.passes.schedule.launch_choices import launch_choices


def place(draft: Draft) -> Kernel:
    """The kernel with the schedule of a finished draft, and the choices for its launch."""
    steps = _Phases(draft).steps()
    for level in reversed(draft.levels):
        if level.kind != "serial":
            steps = (held_loop(level, steps),)
    dots = () if draft.dots is None else draft.dots.reduces
    schedule = Schedule(steps, dots=dots, recipe=draft.recipe)
    return replace(draft.kernel, schedule=schedule, choices=launch_choices(draft, _kept_limits(draft)))


def walks(draft: Draft) -> int:
    """How many loops over the walked axes the kernel of a finished draft has, one after the other."""
    return sum(isinstance(step, Loop) for step in _Phases(draft).steps()) if draft.levels else 0


def held_loop(level: Level, steps: tuple[Step, ...]) -> Loop:
    """The loop of a level over a block of the grid, or over a row that is held."""
    return Loop(level.axis, level.kind, steps, level.block, aligned=level.aligned, reference=level.reference)


def _kept_limits(draft: Draft) -> dict[str, int]:
    """By axis the largest block with which all accesses that are blocks of memory still are."""
    blocks, found = draft.blocks, dict[str, int]()
    for limits in draft.boxes:
        if all(blocks[axis] <= most for axis, most in limits.items()):
            found |= {axis: min(found.get(axis, most), most) for axis, most in limits.items()}
    return found


class _Phases:
    """Places the ops of a kernel before, inside and after its looped reductions."""

    def __init__(self, draft: Draft) -> None:
        kernel, dots = draft.kernel, draft.dots
        self.ops = kernel.body.ops
        # by reduction of a matrix product: its factors, which it takes in place of their product
        products = () if dots is None else dots.products
        self.factors = {p.reduce: (p.left, p.right) for p in products}
        self.unwritten = {self.ops[reduce].args[0] for reduce in self.factors}
        self.walked = [level for level in draft.levels if level.kind == "serial"]
        joined = {level.axis for level in self.walked}
        # the ops inside a loop: they vary over a looped axis, or reduce along one; the latter are complete behind it
        self.inside = {p for p, op in enumerate(self.ops) if not joined.isdisjoint(op.loop_axes)}
        self.carried = {p for p, op in enumerate(self.ops) if not joined.isdisjoint(op.reduced_axes)}
        self.written = {write.ref.storage for write in body_writes(kernel.body)}
        self.level = self.levels()

    def levels(self) -> dict[int, int]:
        """By op its level: k for ops in or directly before loop k, counted from 0; k + 1 for ops after loop k."""
        every = range(len(self.ops))
        found = pass_numbers(self.ops, every, lambda p: p in self.carried)
        last = max((found[p] for p in self.inside), default=0)
        found |= {p: last for p in overwriting_stores(self.ops, every) if p in self.inside}
        # values of an epilogue would take registers from matrix products, so they are computed as late as possible
        return moved_to_use(self.ops, found, self.may_move) if self.factors else found

    def may_move(self, position: int) -> bool:
        """Whether an op gives the same value in a later loop."""
        op = self.ops[position]
        is_fixed = op.is_effect or position in self.inside or isinstance(op.attrs, Reduce)
        return not is_fixed and not (isinstance(op.attrs, Load) and op.attrs.ref.storage in self.written)

    def steps(self) -> tuple[Step, ...]:
        """The steps of the kernel: ops outside of loops, and for each level a loop if it has something to compute."""
        steps: list[Step] = []
        for level in range(max(self.level.values()) + 1):
            here = [p for p in self.level if self.level[p] == level and p not in self.unwritten]
            steps += [p for p in here if p not in self.inside]
            goals = (p for p in here if self.ops[p].is_effect or p in self.carried)
            steps += self.loop([p for p in goals if p in self.inside])
        return tuple(steps)

    def is_carried(self, position: int) -> bool:
        """Whether an op is a result of a reduction that is complete behind a loop."""
        op = self.ops[position]
        return (op.args[0] if isinstance(op.attrs, Project) else position) in self.carried

    def loop(self, wanted: Sequence[int]) -> tuple[Step, ...]:
        """The loop over the looped axes that computes `wanted`, if anything, and what they need of earlier loops."""

        def operands(position: int) -> list[int]:
            args = self.factors.get(position, self.ops[position].args)
            return [a for a in args if a in self.inside and not self.is_carried(a)]

        steps: tuple[Step, ...] = tuple(inside := needed(wanted, operands))
        carries = tuple(p for p in inside if p in self.carried or isinstance(self.ops[p].attrs, Scan))
        for level in reversed(self.walked if wanted else ()):
            steps = (Loop(level.axis, "serial", steps, level.block, carries=carries, stages=level.stages),)
        return steps
