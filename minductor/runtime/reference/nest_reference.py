"""Evaluates a Program whose kernels run by their loop nests, iteration by iteration.

Takes a Program with schedules, its inputs and constants, and the target. Gives the outputs. They equal those of
`run_program` where no addition rounds, as with integers. It is the semantics of `ir/program/loops.py` as a program: it
makes an accumulator where a loop carries one, keeps an array where the nest names rows, and computes an op as often as
the nest names it. Elements of a vector, and of a block on a GPU, are computed at once, operation by operation. The
iterations of parallel loops and of grids run in a random order.

Refuses (WrongNest, which names the kernel, the op and the open loops) a nest in which

- an op stands outside of a loop over one of its axes, or reads a value that these iterations have not computed;
- a value is read from a row (an array) of which this element was not written, or that has no bounded size;
- an accumulator is missing, is read before its loop is complete, is shared by threads, or holds an element of its axes
  twice or not at all;
- a scan does not run from element to element in order;
- an effect runs twice for a point, or never;
- memory is accessed in a wrong order (see nest_memory.py);
- a head says what is not so: a block that does not hold the whole axis, cuts out of order, a mask that is not known
  before its loop, a loop where its kind may not stand.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from minductor.core.expressions import expr as exprs
from minductor.core.expressions.bounds import at_least
from minductor.ir.program import nodes as ir
from minductor.ir.program.aligned_rows import most_in_bulk
from minductor.ir.program.loops import Loop, Step, loops, positions
from minductor.runtime.reference.nest_sums import NestSums
from minductor.runtime.reference.nest_values import Carry
from minductor.runtime.reference.reference import State, run_program
from minductor.target import Target


def run_nests(
    program: ir.Program,
    inputs: Sequence[Any],
    constants: Mapping[str, Any] | None = None,
    *,
    target: Target,
    seed: int = 0,
) -> tuple[Any, ...]:
    """The program's outputs, computed by the loop nests of its kernels. Inputs that it mutates are written.

    `seed` decides in which order iterations of parallel loops run.
    """
    chance = random.Random(seed)

    def run_kernel(state: State, kernel: ir.Kernel) -> None:
        NestRun(state, kernel, chance, is_gpu=target.is_gpu).run_all()

    return run_program(program, inputs, constants, run_kernel)


class Opened(NamedTuple):
    """What `enter` changes and `leave` restores. `part`: the elements of the axis that were open before."""

    axis: int
    part: range
    is_bounded: bool
    thread: int


class NestRun(NestSums):
    """One run of a kernel by its nest."""

    def run_all(self) -> None:
        """Runs the kernel, or in a random order the kernels of a bundle, and then those that finish it."""
        steps = self.schedule.steps
        parts = [steps[a:b] for a, b in pairwise((0, *self.schedule.parts, len(steps)))]
        first = len(parts) - self.schedule.finishing
        for part in (*self.chance.sample(parts[:first], first), *parts[first:]):
            self.scopes = [{}]
            self.steps(part)
        for position, _ in self.effects():
            missing = int((self.times[position] == 0).sum())
            if missing:
                raise self.fail(f"{self.named(position)} never runs for {missing} of its points")

    def steps(self, steps: tuple[Step, ...]) -> None:
        """Runs steps in order, with the rows that begin here."""
        saved = self.rows
        if wanted := [p for p in self.rows_of(steps) if p not in saved]:
            self.rows = {**saved, **{p: self.row(p) for p in wanted}}
        for step in steps:
            if isinstance(step, Loop):
                self.loop(step)
            else:
                self.step(step)
        self.rows = saved

    def loop(self, loop: Loop) -> None:
        """Runs a loop, between making its accumulators and completing them."""
        self.refuse_misplaced(loop)
        around = self.carries
        if loop.kind == "parallel" and loop.carries:
            made = self.run_parts(loop)
        else:
            made = [self.accumulators(p, loop) for p in loop.carries]
            self.carries = {**around, **{carry.position: carry for carry in made}}
            self.run(loop)
        self.carries = around
        if loop.kind == "parallel" and not any(outer.kind == "parallel" for outer in self.opened):
            self.memory.join_threads()
        for carry in made:
            if loop.kind == "tree":
                self.fold_carry(carry)
            if carry.position in around:
                self.add(around[carry.position], carry)
            else:
                self.finish(carry)

    def refuse_misplaced(self, loop: Loop) -> None:
        """Refuses a loop that may not stand here, or whose block is not what its kind asks for."""
        if loop.axis not in self.number:
            raise self.fail(f"{loop.axis} is no axis of the kernel")
        length = self.lengths[self.number[loop.axis]]
        kinds = [outer.kind for outer in self.opened]
        in_block = any(outer.axis == loop.axis and outer.is_blocked for outer in self.opened)
        of_gpu = loop.kind in ("grid", "tile")
        held = most_in_bulk(length, loop.aligned) if loop.aligned else length  # the edges have a block of their own
        rules = {
            "stands in a loop over the same elements": self.at[self.number[loop.axis]] is not None,
            "is of a kind that the target has not": loop.kind != "serial" and of_gpu != self.is_gpu,
            "has a block that is no power of two": self.is_gpu and bool(loop.block & (loop.block - 1)),
            "has no block": not loop.is_blocked and (self.is_gpu or (loop.kind == "parallel" and bool(loop.carries))),
            f"has a block that does not hold its {length} elements": loop.kind == "tile" and loop.block < held,
            "is not among the outermost loops": loop.kind == "grid" and any(kind != "grid" for kind in kinds),
            "stands in a vector loop": "vector" in kinds and loop.kind in ("parallel", "vector"),
            "stands in no vector loop over a block": loop.kind == "tree" and not (in_block and "vector" in kinds),
            "has lanes and no vector": loop.lanes > 0 and loop.kind != "vector" and not self.is_beside_vectors(loop),
            "runs through no whole block": loop.is_whole and not (in_block and loop.kind == "vector"),
            "runs past the end of its axis and touches more than arrays": loop.is_whole and self.touches_more(loop),
        }
        for rule, is_broken in rules.items():
            if is_broken:
                raise self.fail(f"the {loop.kind} loop over {loop.axis} {rule}")

    def is_beside_vectors(self, loop: Loop) -> bool:
        """Whether a serial loop has accumulators for each element of a vector loop inside."""
        return loop.kind == "serial" and any(inner.kind == "vector" for inner in loops(loop.body))

    def touches_more(self, loop: Loop) -> bool:
        """Whether elements past the end of the loop's axis would be read or written in memory, or reduced."""
        inside = [self.ops[p] for p in positions(loop.body)]
        reduced = {axis for op in inside if isinstance(op.attrs, ir.Reduce) for axis in op.attrs.axes}
        read = {axis for op in inside if isinstance(op.attrs, ir.Load | ir.Masked | ir.Check) for axis in op.axes}
        return loop.axis in reduced | read or any(op.is_effect for op in inside)

    def run(self, loop: Loop) -> None:
        """Runs the iterations of a loop."""
        saved = self.unmasked, self.piece
        self.unmasked |= self.masks_that_hold(loop)
        for piece in self.pieces(loop):
            for at, part in self.iterations(loop, piece):
                before = self.enter(loop, at, part)
                self.steps(loop.body)
                self.leave(before)
        self.unmasked, self.piece = saved

    def run_parts(self, loop: Loop) -> list[Carry]:
        """Runs a parallel loop with accumulators of its own for each block, and gives them combined, pair by pair."""
        n = self.number[loop.axis]
        blocks = list(enumerate(self.blocks(loop, self.part[n]))) or [(0, range(0))]
        found: dict[int, list[Carry]] = {}
        for number, part in self.chance.sample(blocks, len(blocks)):
            before = self.enter(loop, None, part)
            own = [self.accumulators(p, loop) for p in loop.carries]
            self.carries = {**self.carries, **{carry.position: carry for carry in own}}
            self.steps(loop.body)
            self.leave(before)
            for carry in own:
                self.fold_carry(carry)
            found[number] = own
        rows = [found[number] for number, _ in blocks]
        while len(rows) > 1:
            for left, right in zip(rows[::2], rows[1::2], strict=False):
                for first, second in zip(left, right, strict=True):
                    self.join(first, second.data, second.numbers, [slice(None)] * len(self.names))
            rows = rows[::2]
        return rows[0]

    def pieces(self, loop: Loop) -> Iterator[range]:
        """The elements of the open part of an axis, in the pieces into which the loop is cut."""
        part = self.part[self.number[loop.axis]]
        if not loop.cuts:
            yield part
            return
        axis, begin = self.kernel.axes[self.number[loop.axis]], part.start
        for first, last in pairwise((exprs.integer(0), *loop.cuts, axis.extent)):
            if at_least(first - last, 1):
                raise self.fail(f"the loop over {loop.axis} is cut at {first} and then at {last}")
            begin, stop = max(begin, self.state.number(first)), self.state.number(last)
            self.piece = (axis.symbol, first, last)
            yield range(begin, max(begin, min(stop, part.stop)))

    def blocks(self, loop: Loop, part: range) -> list[range]:
        """The blocks of a part of an axis."""
        step = loop.block or max(1, -(-len(part) // loop.parts))
        step = step if loop.most is None else max(1, min(step, self.state.number(loop.most)))
        return [range(start, min(start + step, part.stop)) for start in range(part.start, part.stop, step)]

    def iterations(self, loop: Loop, part: range) -> Iterator[tuple[range | None, range]]:
        """For each iteration over a part of an axis: the elements that it computes at once, and those that are open."""
        if loop.kind == "tile":
            yield part, part
            return
        if loop.kind in ("vector", "tree") or self.is_free(loop):
            yield from ((each, each) for each in self.vectors(part))
            return
        blocks = self.blocks(loop, part) if loop.is_blocked else [range(n, n + 1) for n in part]
        if loop.kind in ("parallel", "grid"):
            self.chance.shuffle(blocks)
        elif self.is_reversed(loop):
            blocks.reverse()
        at_once = self.is_gpu or not loop.is_blocked
        yield from ((block if at_once else None, block) for block in blocks)

    def vectors(self, part: range) -> Iterator[range]:
        """The elements that are computed at once: all, or random numbers of them if memory is read and overwritten."""
        start = part.start
        while start < part.stop:
            stop = start + self.chance.randint(1, 9) if self.memory.shared else part.stop
            yield range(start, min(stop, part.stop))
            start = stop

    def is_reversed(self, loop: Loop) -> bool:
        """Whether a loop runs from the end of its axis, for a scan."""
        found = [attrs for p in positions(loop.body) if isinstance(attrs := self.ops[p].attrs, ir.Scan)]
        return any(scan.reverse and scan.axis == loop.axis for scan in found)

    def masks_that_hold(self, loop: Loop) -> frozenset[int]:
        """The masked ops that a loop runs without masks: all that it names, if all their conditions hold."""
        for position in loop.unmasked:
            if position not in loop.body or not isinstance(self.ops[position].attrs, ir.Masked):
                raise self.fail(f"{self.named(position)} is no masked op of the loop over {loop.axis}")
        asked = [self.value(self.ops[p].args[0], p)[0] for p in loop.unmasked]
        return frozenset(loop.unmasked) if all(bool(condition.all()) for condition in asked) else frozenset()

    def enter(self, loop: Loop, at: range | None, part: range) -> Opened:
        """Opens an iteration, which computes the elements `at` at once. Inner loops run over the elements `part`."""
        n = self.number[loop.axis]
        before = Opened(n, self.part[n], self.is_bounded[n], self.thread)
        self.at[n], self.part[n] = at, part
        self.is_bounded[n] = loop.block > 0 if loop.is_blocked else self.is_bounded[n]
        if at is not None:
            self.extents[n] = len(at)
            self.symbols[loop.axis] = self.elements[n].narrow(n, at.start, len(at))
            if len(at) == 1:
                self.points[loop.axis] = at.start
        if loop.kind in ("parallel", "grid"):
            self.threads += 1
            self.thread = self.threads
        self.opened = (*self.opened, loop)
        self.scopes.append({})
        return before

    def leave(self, before: Opened) -> None:
        """Closes an iteration: its values are forgotten."""
        n = before.axis
        self.at[n], self.extents[n] = None, 1
        self.part[n], self.is_bounded[n], self.thread = before.part, before.is_bounded, before.thread
        self.symbols.pop(self.names[n], None)
        self.points.pop(self.names[n], None)
        self.opened = self.opened[:-1]
        self.scopes.pop()
