"""Makes the loop nest of a draft for a GPU: a grid of programs around a tile, and the launch of the kernel.

Takes a finished draft. Gives a kernel with a Schedule and the choices of its launch. Refuses nothing.

Rows that a tile holds whole are one block of it: a persistent reduction. Other rows are walked block by block: a looped
reduction. What is needed after such a loop is computed again in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minductor.analysis.passes_over import pass_numbers
from minductor.ir.program.loops import Loop, Schedule, Step
from minductor.ir.program.nodes import Kernel, Load, Op, Project, Reduce, Scan, Store, body_reads, body_writes
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
        self.read = {load.ref.storage for load in body_reads(kernel.body)}
        self.written = {write.ref.storage for write in body_writes(kernel.body)}
        self.level = self.levels()

    def is_inside(self, op: Op) -> bool:
        """Whether an op is inside a loop: it varies over a looped axis, or reduces along one."""
        return not self.joined.isdisjoint(op.loop_axes)

    def levels(self) -> list[int]:
        """By op its level: k for ops in or directly before loop k, counted from 0; k + 1 for ops after loop k."""

        def ends(position: int) -> bool:
            return isinstance(self.ops[position].attrs, Reduce) and self.is_inside(self.ops[position])

        found = list(pass_numbers(self.ops, range(len(self.ops)), ends).values())
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
        for level in reversed(self.walked):
            steps = (Loop(level.axis, "serial", steps, block=level.block, carries=carries),)
        (made,) = steps
        assert isinstance(made, Loop)
        return made

    def is_result(self, position: int) -> bool:
        """Whether a value is the result of a reduction, or one of its several results."""
        op = self.ops[position]
        if isinstance(op.attrs, Project):
            return isinstance(self.ops[op.args[0]].attrs, Reduce)
        return isinstance(op.attrs, Reduce)
