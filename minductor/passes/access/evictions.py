"""How long the cache of a GPU should keep what the loads and stores of a kernel touch.

Takes a kernel with a schedule and its accesses. Gives the accesses with the hints of those that have some. Refuses
nothing.

A row that is too long for the registers is walked several times, and the second-level cache has room for the rows that
are walked at once only if nothing else takes it. So its loads ask to be evicted last until the last walk, and what
nobody reads again asks to be evicted first: softmax of rows of 65,536 takes 0.83 of the time on an H200. What several
programs read, such as a weight, has no hint, and other kernels have none, nor has one of a single program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from minductor.analysis.walked_again import walked_again
from minductor.ir.program.loops import Step, loops, positions
from minductor.ir.program.memory_access import Access, Eviction
from minductor.ir.program.nodes import Kernel, Op, Store


def with_evictions(kernel: Kernel) -> Kernel:
    """The kernel with a hint for each time that it loads or stores what the cache should keep, or need not keep.

    Only accesses that are sums over the axes of the tile have hints.
    """
    assert kernel.schedule is not None
    hints: dict[int, tuple[Eviction, ...]] = {}
    for start, stop in pairwise((0, *kernel.schedule.parts, len(kernel.schedule.steps))):
        hints |= _hints(kernel.body.ops, kernel.schedule.steps[start:stop])
    return replace(kernel, access=tuple(_hinted(each, hints.get(each.position, ())) for each in kernel.access))


def _hints(ops: Sequence[Op], steps: Sequence[Step]) -> dict[int, tuple[Eviction, ...]]:
    """By position the hints of the loads and stores of one part of a kernel, which no other part runs."""
    every = list(loops(steps))
    serial = [loop for loop in every if loop.kind == "serial"]
    inner = [walk for walk in serial if all(loop.kind != "serial" for loop in loops(walk.body))]
    walks = [tuple(positions(walk.body)) for walk in inner]
    grid = {loop.axis for loop in every if loop.kind == "grid"}
    again = walked_again(ops, walks, {loop.axis for loop in serial}, grid) if grid else {}
    found: dict[int, tuple[Eviction, ...]] = {
        position: (*("last" for _ in numbers[1:]), "first") for position, numbers in again.items()
    }
    for position in walks[-1] if again else ():
        if isinstance(ops[position].attrs, Store):
            found[position] = ("first",)
    return found


def _hinted(access: Access, hints: tuple[Eviction, ...]) -> Access:
    return replace(access, evictions=hints) if hints and access.is_plain and not access.inside else access
