"""Makes the loop nest of a draft for a GPU: a grid of programs around a tile, and the launch of the kernel.

Takes a finished draft. Gives a kernel with a Schedule and the choices of its launch. Refuses nothing.

Rows that a tile holds whole are one block of it: a persistent reduction. Other rows are walked block by block: a looped
reduction. What is needed after such a loop is computed again in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minductor.analysis.passes_over import is_reduced, moved_to_use, overwriting_stores, pass_numbers
from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.needed import needed
from minductor.ir.program.nodes import Kernel, Load, Op, Reduce, Scan, body_writes
from minductor.passes.schedule.draft import Draft
from minductor.passes.schedule.launch_choices import launch_choices


def place(draft: Draft) -> Kernel:
    """The kernel with the schedule of a finished draft, and the choices for its launch."""
    steps = _Phases(draft).steps()
    for level in reversed(draft.levels):
        if level.kind != "serial":
            steps = (Loop(level.axis, level.kind, steps, block=level.block),)
    dots = () if draft.dots is None else draft.dots.reduces
    made = replace(draft.kernel, schedule=Schedule(steps, dots=dots, recipe=draft.recipe))
    return replace(made, choices=launch_choices(made, draft, _kept_limits(draft)))


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
        self.joined = {level.axis for level in self.walked}
        self.written = {write.ref.storage for write in body_writes(kernel.body)}
        self.level = self.levels()

    def is_inside(self, op: Op) -> bool:
        """Whether an op is inside a loop: it varies over a looped axis, or reduces along one."""
        return not self.joined.isdisjoint(op.loop_axes)

    def levels(self) -> dict[int, int]:
        """By op its level: k for ops in or directly before loop k, counted from 0; k + 1 for ops after loop k."""

        def ends(position: int) -> bool:
            return isinstance(self.ops[position].attrs, Reduce) and self.is_inside(self.ops[position])

        every = range(len(self.ops))
        found = pass_numbers(self.ops, every, ends)
        last = max((level for p, level in found.items() if self.is_inside(self.ops[p])), default=0)
        found |= {p: last for p in overwriting_stores(self.ops, every) if self.is_inside(self.ops[p])}
        # values of an epilogue would take registers from matrix products, so they are computed as late as possible
        return moved_to_use(self.ops, found, self.may_move) if self.factors else found

    def may_move(self, position: int) -> bool:
        """Whether an op gives the same value in a later loop."""
        op = self.ops[position]
        is_fixed = op.is_effect or self.is_inside(op) or isinstance(op.attrs, Reduce)
        return not is_fixed and not (isinstance(op.attrs, Load) and op.attrs.ref.storage in self.written)

    def steps(self) -> tuple[Step, ...]:
        """The steps of the kernel: ops outside of loops, and for each level a loop if it has something to compute."""
        if not self.joined:
            return tuple(p for p in range(len(self.ops)) if p not in self.unwritten)
        steps: list[Step] = []
        for level in range(max(self.level.values()) + 1):
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

        def operands(position: int) -> list[int]:
            args = self.factors.get(position, self.ops[position].args)
            return [a for a in args if self.is_inside(self.ops[a]) and not is_reduced(self.ops[a], self.ops)]

        steps: tuple[Step, ...] = tuple(inside := needed(wanted, operands))
        carries = tuple(p for p in inside if isinstance(self.ops[p].attrs, Reduce | Scan))
        for level in reversed(self.walked):
            steps = (Loop(level.axis, "serial", steps, block=level.block, carries=carries),)
        (made,) = steps
        assert isinstance(made, Loop)
        return made
